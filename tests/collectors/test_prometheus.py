"""The reader of recorded series: on a real Prometheus, and on answers written by hand."""

import json
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import pytest
from real.patience import patience
from real.programs import wait_for
from real.prometheus import prometheus

from collectors.collector import CollectorTurn, SourceError, SourceSettings
from collectors.sources import prometheus as reader
from collectors.sources.prometheus import PrometheusAccess, PrometheusClient, PrometheusCollector
from collectors.telemetry.prometheus_rules import STEP_S, Hour, recorded, rules_text
from store.records.telemetry import MAX_DEVICES

HOUR_S = 1_740_801_600  # 2025-03-01T04:00:00Z


class Server:
    """Answers with what it is told, and keeps what it was asked."""

    def __init__(self) -> None:
        self.answers: list[tuple[int, bytes]] = []
        self.result: list[Any] = []
        self.asked: list[tuple[str, dict[str, str], dict[str, list[str]]]] = []
        self.page = ""
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.reply(200, server.page.encode())

            def do_POST(self) -> None:
                form = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
                server.asked.append((self.path, dict(self.headers), form))
                ok = json.dumps({"status": "success", "data": {"result": server.result}}).encode()
                self.reply(*(server.answers.pop(0) if server.answers else (200, ok)))

            def reply(self, status: int, body: bytes) -> None:
                self.send_response(status)
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_arguments: Any) -> None:
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.http.daemon_threads = True
        self.address = f"127.0.0.1:{self.http.server_port}"
        threading.Thread(target=self.http.serve_forever, args=(0.02,), daemon=True).start()


@pytest.fixture
def server() -> Iterator[Server]:
    """One that answers."""
    server = Server()
    yield server
    server.http.shutdown()
    server.http.server_close()


def dcgm(temp: float, sbe: int) -> str:
    """The page of two nodes with two GPUs each."""
    return "".join(
        f'''DCGM_FI_DEV_GPU_TEMP{{gpu="{gpu}",Hostname="gpu-01{node}"}} {temp + gpu}
DCGM_FI_DEV_GPU_UTIL{{gpu="{gpu}",Hostname="gpu-01{node}"}} 50
DCGM_FI_DEV_ECC_SBE_VOL_TOTAL{{gpu="{gpu}",Hostname="gpu-01{node}"}} {sbe if gpu == 1 else 0}
'''
        for node in (7, 8)
        for gpu in (0, 1)
    )


def parts(collector: PrometheusCollector, newest_s: int) -> CollectorTurn:
    """A step's parts as one."""
    found = list(collector.step(newest_s))
    return CollectorTurn(
        events=tuple(event for part in found for event in part.events),
        rollups=tuple(rollup for part in found for rollup in part.rollups),
        position=found[-1].position,
    )


@pytest.mark.integration
def test_a_real_prometheus_gives_roll_ups_and_rises(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rules over two seconds instead of five minutes; the page changes while it is scraped."""
    monkeypatch.setattr(reader, "STEP_S", 2)
    rules = rules_text(1).replace("[5m]", "[2s]")
    groups = rules[rules.index("  - name: foreshock-dcgm") : rules.index("  - name: foreshock-node_exporter")]
    server.page = dcgm(50, 7)
    with prometheus(tmp_path, {"dcgm": server.address}, "groups:\n" + groups) as url:
        client = PrometheusClient(PrometheusAccess(url))

        def has(question: str) -> bool:
            return any(True for _ in client.query(question, int(time.time())))

        wait_for("the first values are recorded", lambda: has("foreshock:ecc_sbe:last == 7"))
        collector = PrometheusCollector(f"{url}#delay_s=0", SourceSettings("mon-1"))
        collector.open({"done_s": int(time.time())})
        seen: set[int] = set()  # a change is told of one second, and the collector reads each other one

        def changes_are_recorded() -> bool:
            server.page = dcgm(50 + int(time.time()) % 2, 7)
            now = int(time.time())
            seen.update(now % 2 for _ in client.query("foreshock:gpu_temp_c:changes >= 1", now))
            return len(seen) == 2

        wait_for("changes of the temperature are recorded", changes_are_recorded)
        server.page = dcgm(60, 9)
        wait_for("the rise is recorded", lambda: has("foreshock:ecc_sbe:last == 9"))
        wait_for("and the new temperature alone", lambda: has("foreshock:gpu_temp_c:min >= 60"))
        found = parts(collector, int(time.time()))
    hours = {rollup.node: rollup for rollup in found.rollups}
    assert set(hours) == {"gpu-017", "gpu-018"}
    hour = hours["gpu-017"]
    assert (hour.gpus_seen, hour.gpu_temp_max_c, hour.gpu_util_mean) == (2, 61.0, 0.5)
    assert hour.samples > 4
    assert hour.devices is not None
    low, high, mean, last, changes = hour.devices["gpu:0"]["gpu_temp_c"]
    assert (low, high, last) == (50, 60, 60)
    assert 50 < (mean or 0) < 60
    assert (changes or 0) >= 1
    rises = [event for event in found.events if event.node == "gpu-017"]
    assert sum(int(event.attributes["count"] or 0) for event in rises) % 2 == 0
    assert {(one.source, one.kind, one.device.type, one.device.index, one.attributes["count"]) for one in rises} == {
        ("dcgm", "ecc_sbe", "gpu", 1, 2)
    }
    assert len({event.id for event in found.events}) == len(found.events)


def test_the_first_question_and_those_after_an_absence(server: Server) -> None:
    """Each hour that ended is asked for once, rises since the last step in one range; at most a day."""
    for done_s, ends in ((0, [HOUR_S + 600]), (HOUR_S - 5000, [HOUR_S - 3600, HOUR_S, HOUR_S + 600])):
        server.asked.clear()
        collector = PrometheusCollector(f"http://{server.address}", SourceSettings("mon-1"))
        collector.open({"done_s": done_s} if done_s else None)
        found = parts(collector, HOUR_S + 600)
        assert found.position == {"done_s": HOUR_S + 600}
        times = [int(form["time"][0]) for path, _headers, form in server.asked if path == "/api/v1/query"]
        assert sorted(set(times)) == ends
    collector.open({"done_s": HOUR_S - 100 * 3600})
    server.asked.clear()
    parts(collector, HOUR_S)
    assert len({form["time"][0] for _path, _headers, form in server.asked}) == 24


def test_rises_are_asked_for_in_one_range_and_told_once(server: Server) -> None:
    """The same answer gives the same ids."""
    [one] = [one for one in recorded() if (one.exporter, one.measure) == ("node_exporter", "link_downed")]
    labels = {"node": "n1", "device": "mlx5_0", "port": "1", "exporter": "node_exporter"}
    present = {"__name__": "foreshock:link_downed:last", "exporter": one.exporter}
    ok = json.dumps({"data": {"result": [{"metric": present, "value": [0, "1"]}]}}).encode()
    server.result = [{"metric": labels, "values": [[HOUR_S + 300, "2"], [HOUR_S + 600, "1"]]}]
    ids = []
    for _ in range(2):
        collector = PrometheusCollector(f"http://{server.address}", SourceSettings("mon-1"))
        server.answers = [(200, ok)]
        [events] = collector._rises(HOUR_S, HOUR_S + 600)
        assert [(one.node, one.kind, one.device.port, one.name(), one.attributes["count"]) for one in events] == [
            ("n1", "counter", 1, "mlx5_0", 2),
            ("n1", "counter", 1, "mlx5_0", 1),
        ]
        ids.append([event.id for event in events])
    asked = server.asked[-1][2]
    assert (asked["start"], asked["end"], asked["step"]) == ([str(HOUR_S + 300)], [str(HOUR_S + 600)], [str(STEP_S)])
    assert ids[0] == ids[1]
    assert len(set(ids[0])) == 2


def test_tenant_and_token_are_shown(server: Server, tmp_path: Path) -> None:
    """The token is read anew each time."""
    token = tmp_path / "token"
    token.write_text("secret\n")
    spec = f"http://{server.address}/prometheus#tenant=gpu&token_file={token}"
    collector = PrometheusCollector(spec, SourceSettings("mon-1"))
    collector.open(None)
    parts(collector, HOUR_S)
    path, headers, _form = server.asked[0]
    assert path == "/prometheus/api/v1/query"
    told = {name.lower(): value for name, value in headers.items()}
    assert (told["x-scope-orgid"], told["authorization"]) == ("gpu", "Bearer secret")
    assert "secret" not in collector.spec


def test_a_server_that_is_busy_is_asked_again_and_a_refusal_is_told(server: Server) -> None:
    """The first with growing pauses; the second with what it said."""
    waited: list[float] = []
    client = PrometheusClient(PrometheusAccess(f"http://{server.address}"), waited.append)
    server.answers = [(503, b"busy"), (429, b""), (200, b"not json")]
    assert list(client.query("up", HOUR_S)) == []
    assert waited == [1.0, 2.0, 4.0]
    server.answers = [(400, b"parse error at char 3")]
    with pytest.raises(SourceError, match="parse error at char 3"):
        list(client.query("up{", HOUR_S))
    assert len(waited) == 3
    server.answers = [(500, b"x")] * 4
    with pytest.raises(SourceError, match="gave no answer"):
        list(client.query("up", HOUR_S))


@pytest.mark.parametrize("rest", ["", "host:9090", "http://x#tennant=a", "http://x#delay_s=soon"])
def test_a_spec_that_cannot_be_is_refused(rest: str) -> None:
    """With what would be."""
    with pytest.raises(SourceError, match="prometheus:"):
        PrometheusCollector(rest, SourceSettings("mon-1"))


def test_a_mean_of_a_node_is_weighted_by_its_samples() -> None:
    """A GPU that was seen for a part of the hour counts so much; what is no number is missing."""
    hour = Hour(HOUR_S)
    for device, mean, count in (("gpu:0", 60.0, 300), ("gpu:1", 90.0, 100)):
        hour.add("n1", (device, "gpu_temp_c"), "avg", mean)
        hour.add("n1", (device, "gpu_temp_c"), "count", count)
    hour.add("n1", ("gpu:1", "power_w"), "max", float("nan"))
    hour.add("n1", ("nic:mlx5_0/1", "link_downed"), "max", 3.0)
    for number in range(MAX_DEVICES):
        hour.add("n2", (f"gpu:{number:03d}", "power_w"), "max", 1.0)
        hour.add("n2", (f"nic:{number:03d}/1", "link_downed"), "max", 1.0)
    one, two = hour.rollups()
    assert (one.samples, one.gpus_seen, one.gpu_temp_mean_c, one.gpu_temp_spread_c) == (400, 2, 67.5, 30.0)
    assert one.devices is not None
    assert one.devices["nic:mlx5_0/1"]["link_downed"] == [None, 3, None, None, None]
    assert len(two.devices or {}) == MAX_DEVICES


def test_nothing_is_asked_before_a_step_is_due(server: Server) -> None:
    """A turn waits its time and gives nothing."""
    collector = PrometheusCollector(f"http://{server.address}", SourceSettings("mon-1"))
    collector.open({"done_s": int(time.time()) + STEP_S})
    assert collector.collect(0.01) == CollectorTurn()
    assert server.asked == []


def host(boot: float) -> str:
    """A node_exporter's page."""
    return f"node_boot_time_seconds {boot}\nnode_vmstat_oom_kill 0\n"


def gpu(number: int, xid: int) -> str:
    """A GPU's temperature and last Xid, on a dcgm-exporter's page."""
    labels = f'{{gpu="{number}",UUID="GPU-{number}",Hostname="gpu-017"}}'
    return f"DCGM_FI_DEV_GPU_TEMP{labels} 40\nDCGM_FI_DEV_XID_ERRORS{labels} {xid}\n"


@pytest.mark.integration
def test_a_real_prometheus_gives_xids_reboots_and_lost_gpus(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each once, at the step that shows it; what stood before tells nothing."""
    monkeypatch.setattr(reader, "STEP_S", 2)
    rules = "groups:\n" + rules_text(1)[rules_text(1).index("  - name:") :].replace("[5m]", "[2s]")
    server.page = gpu(0, 0) + gpu(1, 31) + host(1_740_000_000)
    with prometheus(tmp_path, {"all": server.address}, rules) as url:
        client = PrometheusClient(PrometheusAccess(url))

        def has(question: str) -> bool:
            return any(True for _ in client.query(question, int(time.time())))

        def told() -> list[tuple[str, int | None, int | None]]:
            found = parts(collector, int(time.time()))
            return sorted({(one.kind, one.code, one.device.index) for one in found.events}, key=str)

        wait_for("the first values are recorded for a step", lambda: has("foreshock:xid_last:last offset 4s == 31"))
        wait_for("and the boot time", lambda: has("foreshock:boot_time_s:last offset 4s == 1740000000"))
        collector = PrometheusCollector(f"{url}#delay_s=0", SourceSettings("mon-1"))
        collector.open({"done_s": int(time.time())})
        server.page = gpu(0, 79) + gpu(1, 31) + host(1_741_000_000)
        wait_for("the Xid is recorded", lambda: has("foreshock:xid_last:last offset 4s == 79"))
        wait_for("the boot is recorded", lambda: has("foreshock:boot_time_s:last offset 4s == 1741000000"))
        assert told() == [("node_reboot", None, None), ("xid", 79, 0)]
        server.page = gpu(0, 79) + host(1_741_000_000)
        wait_for("the GPU is gone", lambda: not has('foreshock:gpu_temp_c:last{gpu="1"}'))
        wait_for("the other goes on", lambda: has('foreshock:gpu_temp_c:last{gpu="0"}'))
        deadline = time.monotonic() + patience(30)
        found: list[tuple[str, int | None, int | None]] = []
        while not found and time.monotonic() < deadline:
            time.sleep(2.5)  # a step later
            found = told()
        assert found == [("gpu_missing", None, 1)]


def mlu(number: int, xid: int, health: int) -> str:
    """An MLU's temperature, last Xid and health, on an mlu-exporter's page."""
    labels = f'{{mlu="{number}",uuid="U-{number}",node="mlu-7"}}'
    return f"mlu_chip_temperature{labels} 60\nmlu_last_xid_error{labels} {xid}\nmlu_health{labels} {health}\n"


@pytest.mark.integration
def test_a_real_prometheus_gives_the_codes_and_the_health_of_mlus(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By Cambricon's numbers; an end of ill health, too."""
    monkeypatch.setattr(reader, "STEP_S", 2)
    rules = "groups:\n" + rules_text(1)[rules_text(1).index("  - name:") :].replace("[5m]", "[2s]")
    server.page = mlu(0, 0, 1) + mlu(1, 8, 0)
    with prometheus(tmp_path, {"all": server.address}, rules) as url:
        client = PrometheusClient(PrometheusAccess(url))

        def has(question: str) -> bool:
            return any(True for _ in client.query(question, int(time.time())))

        wait_for("the first values are recorded for a step", lambda: has("foreshock:mlu_xid_last:last offset 4s == 8"))
        collector = PrometheusCollector(f"{url}#delay_s=0", SourceSettings("mon-1"))
        collector.open({"done_s": int(time.time())})
        server.page = mlu(0, 14, 0) + mlu(1, 8, 1)
        wait_for("the Xid is recorded", lambda: has("foreshock:mlu_xid_last:last offset 4s == 14"))
        found = parts(collector, int(time.time())).events
        assert sorted((one.kind, one.code or 0, one.severity, one.device.type, one.device.index) for one in found) == [
            ("accelerator_health", 0, "error", "mlu", 0),
            ("accelerator_health", 0, "info", "mlu", 1),
            ("mlu_xid", 14, "fatal", "mlu", 0),
        ]

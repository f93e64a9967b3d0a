"""The demo, run as a user runs it: two addresses, a moving cluster, a fault written by hand, nothing left behind."""

import os
import re
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

import httpx2
import pytest
from grafana import PAGES
from real.foreshock import Running, sidecar
from real.patience import patience
from real.prometheus import prometheus

from cli.replay.tape import BEFORE_FAULT, read_tape

PATIENCE_S = patience(240.0)
# Some 60 hours are replayed in seven minutes, so that they are not over before a busy machine has looked at them.
SPEED = 480


class Demo:
    """A running `foreshock demo`, small and fast."""

    def __init__(self, directory: Path) -> None:
        """Start it; its temporary folder lies under `directory`."""
        self.directory = directory
        self.out = directory / "out"
        self.client = httpx2.Client(timeout=patience(30.0))  # one for all: each reads the authorities of the machine
        options = ["--nodes", "16", "--days", "35", "--speed", str(SPEED), "--no-browser"]
        ports = ["--port", "0", "--dashboard-port", "0"]
        with self.out.open("wb") as out, (directory / "err").open("wb") as err:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "foreshock", "demo", *options, *ports],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                env={**os.environ, "TMPDIR": str(directory)},
            )

    def address(self, name: str) -> str:
        """The address that the demo printed for `API` or `Dashboard`."""

        def printed() -> str | None:
            assert self.process.poll() is None, (self.directory / "err").read_text()
            lines = [line.split() for line in self.out.read_text().splitlines()]
            return next((words[1] for words in lines if words[0] == name), None)

        return str(await_value(printed))

    def get(self, path: str) -> Any:
        """What the API answers."""
        answer = self.client.get(f"{self.address('API')}/api/v1/{path}")
        assert answer.status_code == 200, answer.text
        return answer.json()


def await_value(ask: Callable[[], Any]) -> Any:
    """Ask until there is an answer."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        if found := ask():
            return found
        time.sleep(0.2)
    raise AssertionError("there was no answer in time")


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Demo]:
    """One demo for the tests of this file."""
    running = Demo(tmp_path_factory.mktemp("demo"))
    yield running
    running.process.terminate()
    running.process.wait(patience(60))
    running.client.close()


pytestmark = [pytest.mark.integration, pytest.mark.xdist_group("kmsg")]  # one test writes there


def test_both_addresses_answer(demo: Demo) -> None:
    """They are printed once they do."""
    assert demo.client.get(f"{demo.address('API')}/readyz").status_code == 200
    assert demo.client.get(f"{demo.address('Dashboard')}/_stcore/health").status_code == 200


def test_it_says_how_long_the_replay_is(demo: Demo) -> None:
    """Of its own time and of the watcher's."""
    demo.address("Dashboard")
    hours, minutes = await_value(
        lambda: re.findall(r"the replay: (\d+) hours in ([\d.]+) minutes", (demo.directory / "err").read_text())
    )[0]
    assert float(minutes) == pytest.approx(60 * int(hours) / SPEED, abs=1.0)


def test_history_is_there_with_scores_and_reasons(demo: Demo) -> None:
    """Every node is scored by a model that was trained on what lies before."""
    nodes = demo.get("nodes?limit=1000")["items"]
    simulated = [node for node in nodes if node["node"].startswith("gpu-")]
    assert len(simulated) == 16
    assert "gwdg-ggpu142" in [node["node"] for node in nodes]
    assert sum(node["score_24h"] is not None for node in simulated) >= 14
    assert any(node["reasons"] for node in simulated)


def test_the_cluster_moves(demo: Demo) -> None:
    """The replay's moment goes on, and events of it arrive through the sidecar."""
    first = demo.get("cluster")["now"]
    assert await_value(lambda: demo.get("cluster")["now"] > first)
    assert await_value(lambda: demo.get(f"events?kind=iteration&since={first}")["items"])


def test_the_ledger_of_the_replayed_run_grows(demo: Demo) -> None:
    """Wall time is split without a rest, and goes on, once the loop has made the first one."""
    path = f"runs/{demo.get('cluster')['run']}/goodput"
    await_value(lambda: demo.client.get(f"{demo.address('API')}/api/v1/{path}").status_code == 200)
    before = demo.get(path)
    assert sum(before["buckets"].values()) == pytest.approx(before["wall_s"], abs=1e-6)
    assert await_value(lambda: demo.get(path)["wall_s"] > before["wall_s"])


def test_the_real_node_says_whose_it_is(demo: Demo) -> None:
    """Source and licence, where the demo starts and as the node's note."""
    node = demo.get("nodes/gwdg-ggpu142")
    for said in (node["note"], (demo.directory / "err").read_text()):
        assert "Real telemetry: GWDG GPU Node Telemetry, doi 10.5281/zenodo.19052367, CC-BY-4.0" in said
    assert (node["gpus"], node["gpu_model"], node["known_by"]) == (4, "NVIDIA A100-SXM4-80GB", "archive")
    # What lies before the replay, by the hour.
    assert len(node["telemetry"]) > 7 * 24


def test_the_real_node_s_fault_is_found_by_its_telemetry_alone(demo: Demo) -> None:
    """Xid 79 at the first sample that shows it, on the four GPUs that did; one incident, and a hint for the node."""

    def found() -> Any:
        return demo.get("events?node=gwdg-ggpu142&kind=xid&limit=1000")["items"]

    events = await_value(lambda: len(found()) >= 4 and found())
    assert {(event["code"], event["device"]["index"]) for event in events} == {(79, gpu) for gpu in range(4)}
    assert len({event["time"] for event in events}) == 1
    first = datetime.fromisoformat(events[0]["time"])
    page = read_tape(first - BEFORE_FAULT).exposition(first)
    shown = re.findall(r'^DCGM_FI_DEV_XID_ERRORS\{gpu="(\d)".*\} 79.0 ', page, re.MULTILINE)
    assert shown == ["0", "1", "2", "3"]
    incidents = await_value(lambda: demo.get("incidents?node=gwdg-ggpu142")["items"])
    assert [(one["kind"], one["code"], one["severity"]) for one in incidents] == [("xid", 79, "fatal")]
    assert await_value(lambda: demo.get("nodes/gwdg-ggpu142")["hint"])


@pytest.mark.skipif(not os.access("/dev/kmsg", os.W_OK), reason="/dev/kmsg is not writable here: run as root")
def test_a_fault_written_by_hand_is_an_event_of_this_host(demo: Demo) -> None:
    """One line into the kernel log, and the API serves it."""
    demo.address("Dashboard")
    mark = uuid.uuid4().hex[:12]
    line = f"<3>NVRM: Xid (PCI:0000:0f:00): 79, pid=1, name={mark}, GPU has fallen off the bus.\n"
    Path("/dev/kmsg").write_text(line)
    path = f"events?kind=xid&node={socket.gethostname()}&limit=1000"

    def found() -> Any:
        return next((e for e in demo.get(path)["items"] if e["attributes"].get("process") == mark), None)

    event = await_value(found)
    assert (event["code"], event["device"]["pci"]) == (79, "0000:0f:00.0")


def test_every_query_of_the_grafana_dashboards_has_an_answer(demo: Demo, tmp_path: Path) -> None:
    """A real Prometheus that scrapes the demo and a sidecar; the variables are what their own queries find."""
    (log := tmp_path / "kern.log").write_text("")
    server = Running(demo.address("API"), demo.process.pid)
    await_value(lambda: "foreshock_run_seconds{" in server.text("/metrics"))
    with (
        sidecar(server, tmp_path, f"file:{log}:kernel") as agent,
        prometheus(tmp_path, {"server": server.url[7:], "sidecars": agent.url[7:]}, "groups: []\n") as url,
    ):

        def asked(query: str) -> list[Any]:
            answer = demo.client.get(f"{url}/api/v1/query", params={"query": query}).json()
            assert answer["status"] == "success", (query, answer)
            found: list[Any] = answer["data"]["result"]
            return found

        for page in PAGES:
            values = {}
            for name, query in page.variables:
                metric, label = re.fullmatch(r"label_values\((\w+), (\w+)\)", query).groups()  # type: ignore[union-attr]
                values[name] = await_value(partial(asked, metric))[0]["metric"][label]
            for panel in page.panels:
                for query, _ in panel.queries:
                    filled = re.sub(r"\$(\w+)", lambda found, values=values: values[found[1]], query)  # type: ignore[misc]
                    assert await_value(partial(asked, filled)), (page.uid, panel.title, filled)


def test_interrupting_it_leaves_nothing_running(demo: Demo) -> None:
    """Ctrl-C, pressed twice: the children end, the folder goes, the exit is clean. The last test of this demo."""
    demo.address("Dashboard")
    children = _children(demo.process.pid)
    assert len(children) >= 3
    demo.process.send_signal(signal.SIGINT)
    time.sleep(0.05)
    demo.process.send_signal(signal.SIGINT)
    assert demo.process.wait(patience(60)) == 0
    assert await_value(lambda: not any(Path(f"/proc/{pid}").exists() for pid in children))
    assert not list(demo.directory.glob("foreshock-demo-*"))


def test_killing_it_leaves_nothing_running(tmp_path: Path) -> None:
    """kill -9 gives it no time to stop anything: the kernel ends the children."""
    other = Demo(tmp_path)
    other.client.close()
    other.address("Dashboard")
    children = _children(other.process.pid)
    assert len(children) >= 3
    other.process.kill()
    other.process.wait()
    assert await_value(lambda: not any(Path(f"/proc/{pid}").exists() for pid in children))


def _children(pid: int) -> set[int]:
    """Every process that descends from one."""
    parents = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            words = stat.read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue
        parents[int(stat.parent.name)] = int(words[1])
    found: set[int] = set()
    while more := {child for child, parent in parents.items() if parent in found | {pid}} - found:
        found |= more
    return found

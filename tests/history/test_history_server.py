"""Questions to a Prometheus's history: on a real one that has a past, and on servers that refuse."""

import json
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import numpy as np
import pyarrow.parquet as pq
import pytest
from real.prometheus_history import PastPrometheus, past_prometheus, series_of, tape_as_openmetrics, write_sample

from cli.console.errors import Failure
from cli.history import windows
from cli.history.server import AwayError, HistoryAccess, HistoryServer, LimitError, basic
from cli.history.windows import HOUR_MS, HistoryChoice, HistoryReader, HistoryWindow, read_selector

TAPE = Path(__file__).parents[2] / "fixtures/real/gwdg/tapes/ggpu142_2025-02-17_gpus-fallen-off-bus"
SINCE_MS = 1_739_145_600_000  # 2025-02-10
DAY_MS = 24 * HOUR_MS


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PastPrometheus]:
    """One that has a tape, and a series of awkward labels and values."""
    folder = tmp_path_factory.mktemp("prometheus")
    with (folder / "past.txt").open("w", encoding="utf-8") as file:
        labels = {"instance": "[::1]:9100", "text": 'a "b" \\ \n é {x="+Inf"}'}
        for number, value in enumerate((1.5, float("nan"), float("inf"), float("-inf"), 1e-9, 2.0**60)):
            write_sample(file, series_of("site_pump", labels), (value, SINCE_MS / 1000 + number * 0.25))
        tape_as_openmetrics([TAPE], file)
    with past_prometheus(folder, folder / "past.txt", "--query.max-samples=20000") as server:
        yield server


def reader(url: str, *selectors: str, step_ms: int = 0) -> HistoryReader:
    """Of a server that is asked without a wait."""
    return HistoryReader(HistoryServer(HistoryAccess(url), sleep=lambda _s: None), HistoryChoice(selectors, step_ms))


def points(read: list[HistoryWindow]) -> dict[tuple[str, str], list[tuple[int, float]]]:
    """Everything, by metric and GPU."""
    found: dict[tuple[str, str], list[tuple[int, float]]] = {}
    for window in read:
        for one in window.series:
            assert (one.time_ms >= window.since_ms).all()
            assert (one.time_ms < window.until_ms).all()
            key = one.labels["__name__"], one.labels.get("gpu", "")
            found.setdefault(key, []).extend(zip(one.time_ms.tolist(), one.values.tolist(), strict=True))
    return found


@pytest.mark.integration
def test_a_range_gives_every_raw_sample_once(prometheus: PastPrometheus) -> None:
    """Gaps stay gaps; a server that takes few samples at once is asked for less, by metric and then by time."""
    table = pq.read_table(TAPE / "telemetry" / "gpu.parquet")
    expected: dict[tuple[str, str], list[tuple[int, float]]] = {}
    times = [round(moment.timestamp() * 1000) for moment in table["time"].to_pylist()]
    gpus = [str(gpu) for gpu in table["gpu"].to_pylist()]
    for name in table.column_names[3:]:
        for time_ms, gpu, value in zip(times, gpus, table[name].to_pylist(), strict=True):
            if value is not None:
                expected.setdefault((name, gpu), []).append((time_ms, value))
    one = reader(prometheus.url)
    read = list(one.windows(SINCE_MS, SINCE_MS + 10 * DAY_MS))
    found = {key: values for key, values in points(read).items() if key[0].startswith("DCGM_")}
    assert found == expected
    assert one.refused > 0
    assert [window.since_ms for window in read[1:]] == [window.until_ms for window in read[:-1]]
    assert (read[0].since_ms, read[-1].until_ms) == (SINCE_MS, SINCE_MS + 10 * DAY_MS)
    assert all(window.since_ms % HOUR_MS == 0 for window in read)


@pytest.mark.integration
def test_what_is_held_at_once_is_bounded(prometheus: PastPrometheus, monkeypatch: pytest.MonkeyPatch) -> None:
    """A window that turns out too large is read anew in halves; an hour that is too large is refused."""
    until_ms = SINCE_MS + 2 * DAY_MS
    whole = points(list(reader(prometheus.url).windows(SINCE_MS, until_ms)))
    monkeypatch.setattr(windows, "WINDOW_SAMPLES", 1000)
    small = list(reader(prometheus.url).windows(SINCE_MS, until_ms))
    assert max(window.samples for window in small) <= 2 * 1000
    assert len(small) > 20
    assert points(small) == whole
    monkeypatch.setattr(windows, "HOUR_SAMPLES", 100)
    with pytest.raises(Failure, match="one hour holds over 100 samples: import a part at a time with --match"):
        list(reader(prometheus.url).windows(SINCE_MS, until_ms))


@pytest.mark.integration
def test_any_label_and_any_number_arrives(prometheus: PastPrometheus) -> None:
    """Text with quotes and line breaks, milliseconds, NaN and the infinities."""
    [window] = reader(prometheus.url, "site_pump", '{__name__=~"site_.+"}').windows(SINCE_MS, SINCE_MS + HOUR_MS)
    [one] = window.series
    assert one.labels["text"] == 'a "b" \\ \n é {x="+Inf"}'
    assert one.time_ms.tolist() == [SINCE_MS + number * 250 for number in range(6)]
    np.testing.assert_array_equal(one.values, [1.5, np.nan, np.inf, -np.inf, 1e-9, 2.0**60])


@pytest.mark.integration
def test_a_step_keeps_the_last_sample_of_each(prometheus: PastPrometheus) -> None:
    """Of ten-minute samples one an hour, and none where there is none: a query of a range would fill it in."""
    name = "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION"
    thin = points(list(reader(prometheus.url, name, step_ms=HOUR_MS).windows(SINCE_MS, SINCE_MS + 10 * DAY_MS)))
    whole = points(list(reader(prometheus.url, name).windows(SINCE_MS, SINCE_MS + 10 * DAY_MS)))
    assert thin.keys() == whole.keys()
    for key, values in thin.items():
        last = {time_ms // HOUR_MS: value for time_ms, value in whole[key]}
        assert {time_ms // HOUR_MS: value for time_ms, value in values} == last
        assert len(values) == len(last)


@pytest.mark.integration
def test_what_cannot_be_had_is_a_clear_sentence(prometheus: PastPrometheus) -> None:
    """No known metric in the range; a selector that Prometheus does not understand; a limit that nothing fits in."""
    with pytest.raises(Failure, match=r"has no metric that is known, among 0 in this time .hours that are over"):
        list(reader(prometheus.url).windows(SINCE_MS - 90 * DAY_MS, SINCE_MS - 80 * DAY_MS))
    with pytest.raises(Failure, match=r"400 .*parse error"):
        list(reader(prometheus.url, "{job=}").windows(SINCE_MS, SINCE_MS + DAY_MS))
    one = HistoryServer(HistoryAccess(prometheus.url))
    with pytest.raises(LimitError, match="too many samples"):
        one.samples('{job="dcgm"}', SINCE_MS, SINCE_MS + 10 * DAY_MS)
    with pytest.raises(LimitError, match="11,000 points"):
        one.samples("site_pump", SINCE_MS, SINCE_MS + 10 * DAY_MS, 10)


@pytest.mark.parametrize("text", ["", "{}", "1x", "up{job", "sum(up)", 'a b{c="d"}'])
def test_what_is_no_selector_is_refused(text: str) -> None:
    """Before anything is asked."""
    with pytest.raises(Failure, match="--match"):
        read_selector(text)


@pytest.mark.parametrize(
    ("text", "matchers"),
    [
        ("up", '__name__="up"'),
        ('up{job="a}b"}', '__name__="up",job="a}b"'),
        ('{job=~"x|y", }', 'job=~"x|y"'),
        ('{__name__=~"a.*"}', '__name__=~"a.*"'),
    ],
)
def test_a_selector_gives_its_matchers(text: str, matchers: str) -> None:
    """As they stand between the braces, with the name as one of them."""
    assert read_selector(text) == matchers


class Refusing:
    """Answers what it is told to, and keeps what it was asked."""

    def __init__(self) -> None:
        self.answers: list[tuple[int, dict[str, str], bytes]] = []
        self.asked: list[tuple[str, dict[str, str], dict[str, list[str]]]] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                form = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
                outer.asked.append((self.path, dict(self.headers), form))
                status, headers, body = outer.answers.pop(0)
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_arguments: Any) -> None:
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.http.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.http.server_port}"
        threading.Thread(target=self.http.serve_forever, args=(0.02,), daemon=True).start()


@pytest.fixture
def refusing() -> Iterator[Refusing]:
    """One that refuses."""
    server = Refusing()
    yield server
    server.http.shutdown()
    server.http.server_close()


def answer(**fields: Any) -> bytes:
    """A body of Prometheus' API."""
    return json.dumps(fields).encode()


OK = answer(status="success", data={"resultType": "matrix", "result": []})


@pytest.mark.parametrize(
    ("status", "headers", "body", "words"),
    [
        (401, {}, b"Unauthorized", "401 Unauthorized: give --token-file, or --basic-file"),
        (403, {}, b"<html>no</html>", "403 Forbidden: give --token-file"),
        (404, {}, b"404 page not found", "it has no /api/v1/query below this address"),
        (302, {"Location": "https://sso.example.org/"}, b"", "leads to 'https://sso.example.org/': give that address"),
        (200, {}, b"<html>Grafana</html>", "is no Prometheus: its answer to /api/v1/query is not of that API"),
        (200, {}, b'{"ok": true}', "is no Prometheus"),
        (200, {}, b'{"status": "error", "error": "out of order"}', "is no Prometheus: .*out of order"),
        (400, {}, answer(status="error", errorType="bad_data", error="no X-Scope-OrgID"), "400 no X-Scope-OrgID"),
    ],
)
def test_a_first_contact_says_what_is_wrong(
    refusing: Refusing, status: int, headers: dict[str, str], body: bytes, words: str
) -> None:
    """At once, without a second try."""
    refusing.answers = [(status, headers, body)]
    with pytest.raises(Failure, match=words):
        HistoryServer(HistoryAccess(refusing.url)).first_contact()
    assert len(refusing.asked) == 1


def test_a_wrong_address_is_told_at_once() -> None:
    """Nobody listens there."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
    with pytest.raises(Failure, match=r"gives no answer .*refused.*: see that the address is right"):
        HistoryServer(HistoryAccess(url)).first_contact()


def test_a_server_that_is_starting_is_waited_for(refusing: Refusing) -> None:
    """503 until it has read its log of writes; the tenant and the credentials go with each question."""
    waited: list[float] = []
    refusing.answers = [(503, {}, b"Service Unavailable")] * 3 + [(200, {}, OK)]
    access = HistoryAccess(refusing.url + "/prometheus/", basic("me:secret"), "gpu")
    HistoryServer(access, sleep=waited.append).first_contact()
    assert waited == [1.0, 2.0]
    path, headers, form = refusing.asked[-1]
    assert path == "/prometheus/api/v1/query"
    assert headers["Authorization"] == "Basic bWU6c2VjcmV0"
    assert {name.lower(): value for name, value in headers.items()}["x-scope-orgid"] == "gpu"
    assert form["partial_response"] == ["false"]


def test_a_server_that_stays_away_is_given_up(refusing: Refusing) -> None:
    """After all tries, with its last words; an answer that breaks off is no answer."""
    waited: list[float] = []
    one = HistoryServer(HistoryAccess(refusing.url), sleep=waited.append, waits_s=(1, 2, 3))
    refusing.answers = [
        (200, {}, OK[:20]),
        (200, {"Content-Length": "1000"}, OK[:-5]),
        (500, {}, b""),
        (503, {}, answer(status="error", error="shutting down")),
    ]
    with pytest.raises(AwayError, match="503 shutting down"):
        one.samples("up", 0, HOUR_MS)
    assert waited == [1, 2, 3]


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (422, "query processing would load too many samples into memory in query execution"),
        (400, "exceeded maximum resolution of 11,000 points per timeseries. Try decreasing the query resolution"),
        (503, "query timed out in expression evaluation"),
        (422, "the query hit the max number of chunks limit (limit: 2) (err-mimir-max-chunks-per-query)"),
        (413, "whatever"),
    ],
)
def test_a_server_s_limits_are_told_from_its_faults(refusing: Refusing, status: int, error: str) -> None:
    """Less must be asked for: the same again would be refused again."""
    refusing.answers = [(status, {}, answer(status="error", errorType="execution", error=error))]
    with pytest.raises(LimitError, match=error[:20]):
        HistoryServer(HistoryAccess(refusing.url)).samples("up", 0, HOUR_MS)


def test_an_answer_that_is_too_large_is_not_read(refusing: Refusing, monkeypatch: pytest.MonkeyPatch) -> None:
    """What this program holds is bounded."""
    monkeypatch.setattr("cli.history.server.MOST_BYTES", 100)
    refusing.answers = [(200, {}, OK + b" " * 100)]
    with pytest.raises(LimitError, match="over 100 bytes"):
        HistoryServer(HistoryAccess(refusing.url)).samples("up", 0, HOUR_MS)

"""Batches out of the spool to a real HTTP server."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson
import pytest
from real.patience import patience

from collectors.collector import CollectorTurn
from collectors.metrics import SidecarMetrics
from collectors.ship.shipper import RejectedFile, Shipper
from collectors.ship.transport import Backoff, ServerAccess, ServerAnswer, Transport
from collectors.spool.spool import Spool
from store.records.event import Event, with_id
from store.records.telemetry import Rollup

TIME = datetime(2025, 3, 1, 4, tzinfo=UTC)
Until = Callable[[Callable[[], Any]], Any]


class Bench:
    """A spool and a shipper between a test and its server."""

    def __init__(self, folder: Path, url: str, token_file: Path | None = None) -> None:
        self.folder = folder
        self.spool = Spool(folder, 10**7)
        self.metrics = SidecarMetrics()
        self.transport = Transport(url, ServerAccess(token_file, 2))
        rejected = RejectedFile(folder / "rejected.jsonl")
        self.shipper = Shipper(self.spool, self.transport, rejected, self.metrics, linger_s=0.01)
        self.shipper._backoff = Backoff(0.02, 0.1)

    def add(self, *numbers: int) -> None:
        """Events to ship."""
        self.spool.append("test", CollectorTurn(events=tuple(event(i) for i in numbers), position={"at": max(numbers)}))

    def rejected(self) -> list[Any]:
        """What was put aside."""
        path = self.folder / "rejected.jsonl"
        return [orjson.loads(line) for line in path.read_bytes().splitlines()] if path.exists() else []

    def value(self, name: str, **labels: str) -> float:
        """One of its own figures."""
        return self.metrics.registry.get_sample_value(f"foreshock_sidecar_{name}", labels) or 0.0

    @contextmanager
    def running(self) -> Iterator[None]:
        """Ships meanwhile."""
        stop = threading.Event()
        thread = threading.Thread(target=self.shipper.run, args=(stop,))
        thread.start()
        try:
            yield
        finally:
            stop.set()
            self.spool.news.set()
            thread.join(patience(10))
            assert not thread.is_alive()

    def close(self) -> None:
        """Let go."""
        self.transport.close()
        self.spool.close()


def event(i: int) -> Event:
    """One of many."""
    return with_id(Event(time=TIME, node="n1", source="test", kind="test", message=f"event {i}"))


def numbers(items: list[Any]) -> list[int]:
    """Which events they are."""
    return [int(item["message"].split()[1]) for item in items]


@pytest.fixture
def bench(tmp_path: Path, recorder: Any) -> Iterator[Bench]:
    """With a server that takes everything."""
    bench = Bench(tmp_path / "spool", recorder.url)
    yield bench
    bench.close()


def test_events_arrive_in_order_and_are_acknowledged(bench: Bench, recorder: Any, until: Until) -> None:
    """As JSON arrays of the wire form; large ones are compressed."""
    with bench.running():
        bench.add(*range(300))
        assert until(lambda: len(recorder.events) == 300)
        assert until(lambda: bench.spool.backlog_bytes("events") == 0)
    assert numbers(recorder.events) == list(range(300))
    assert recorder.requests[0]["path"] == "/api/v1/events"
    assert recorder.requests[0]["headers"]["content-encoding"] == "zstd"
    assert recorder.events[0]["id"] == event(0).id
    assert bench.value("shipped_items_total", queue="events") == 300
    assert bench.value("last_shipped_timestamp_seconds") > 0


def test_a_batch_is_no_larger_than_a_thousand(bench: Bench, recorder: Any, until: Until) -> None:
    """Whatever waits."""
    bench.add(*range(2600))
    with bench.running():
        assert until(lambda: len(recorder.events) == 2600)
    assert max(len(request["items"]) for request in recorder.requests) <= 1000
    assert len(recorder.requests) <= 4


def test_rollups_go_to_their_own_address(bench: Bench, recorder: Any, until: Until) -> None:
    """After the events."""
    rollup = Rollup(node="n1", time=TIME, samples=8, gpus_seen=8)
    bench.spool.append("scrape", CollectorTurn(rollups=(rollup,)))
    bench.add(1)
    with bench.running():
        assert until(lambda: recorder.items["telemetry"])
    assert [request["path"] for request in recorder.requests] == ["/api/v1/events", "/api/v1/telemetry"]
    assert recorder.items["telemetry"][0]["node"] == "n1"


@pytest.mark.parametrize("status", [500, 502, 503, 429, 408, 404, 301])
def test_what_a_server_cannot_take_now_is_sent_again(bench: Bench, recorder: Any, until: Until, status: int) -> None:
    """Nothing is dropped, nothing put aside."""
    recorder.answers = [(status, {}, {}), (status, {"Retry-After": "0"}, {})]
    with bench.running():
        bench.add(1, 2)
        assert until(lambda: len(recorder.events) == 2)
    assert len(recorder.requests) == 3
    assert bench.rejected() == []
    assert bench.value("request_failures_total", reason=str(status)) == 2


def test_retry_after_is_waited_for(bench: Bench, recorder: Any, until: Until) -> None:
    """At least so long."""
    recorder.answers = [(429, {"Retry-After": "0.6"}, {})]
    with bench.running():
        bench.add(1)
        assert until(lambda: recorder.events)
    first, second = (request["at"] for request in recorder.requests)
    assert second - first >= 0.6


def test_a_server_that_was_away_gets_everything(bench: Bench, recorder: Any, until: Until) -> None:
    """Refused connections, then a restart on the same port."""
    with bench.running():
        bench.add(1)
        assert until(lambda: recorder.events)
        recorder.stop()
        for i in range(2, 6):
            bench.add(i)
        assert until(lambda: bench.value("request_failures_total", reason="unreachable") >= 2)
        recorder.start()
        assert until(lambda: len(recorder.events) == 5)
    assert numbers(recorder.events) == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("status", [400, 413, 422])
def test_a_bad_record_is_found_and_put_aside(bench: Bench, recorder: Any, until: Until, status: int) -> None:
    """The others arrive; the bad ones are kept with the reason."""

    def judge(_queue: str, items: list[Any]) -> Any:
        bad = set(numbers(items)) & {17, 18, 90}
        return (status, {}, {"detail": "too strange"}) if bad else None

    recorder.judge = judge
    with bench.running():
        bench.add(*range(100))
        assert until(lambda: bench.spool.backlog_bytes("events") == 0)
    assert numbers(recorder.events) == [i for i in range(100) if i not in (17, 18, 90)]
    aside = bench.rejected()
    assert numbers([entry["item"] for entry in aside]) == [17, 18, 90]
    assert "too strange" in aside[0]["reason"]
    assert aside[0]["queue"] == "events"
    assert bench.value("rejected_items_total", queue="events") == 3


def test_records_that_the_answer_names_as_bad_are_put_aside(bench: Bench, recorder: Any, until: Until) -> None:
    """By their 1-based line; the rest was taken."""
    recorder.answers = [(200, {}, {"accepted": 1, "known": 1, "rejected": [{"line": 2, "detail": "no kind"}]})]
    with bench.running():
        bench.add(1, 2, 3)
        assert until(lambda: bench.spool.backlog_bytes("events") == 0)
    assert [(numbers([entry["item"]]), entry["reason"]) for entry in bench.rejected()] == [([2], "no kind")]
    assert bench.value("shipped_items_total", queue="events") == 2


def test_an_answer_that_names_only_some_of_the_bad_is_asked_again_in_halves(
    bench: Bench, recorder: Any, until: Until
) -> None:
    """Until each refused record is known."""

    def judge(_queue: str, items: list[Any]) -> Any:
        bad = [line for line, i in enumerate(numbers(items), start=1) if i % 2]
        named = [{"line": line, "detail": "odd"} for line in bad[:1]]
        return 200, {}, {"accepted": len(items) - len(bad), "known": 0, "rejected": named}

    recorder.judge = judge
    with bench.running():
        bench.add(*range(8))
        assert until(lambda: bench.spool.backlog_bytes("events") == 0)
    assert sorted(numbers([entry["item"] for entry in bench.rejected()])) == [1, 3, 5, 7]


@pytest.mark.parametrize("body", [[], {}, {"rejected": 5}, {"accepted": 1, "known": 0, "rejected": [{"line": 99}]}])
def test_an_answer_that_says_nothing_counts_as_taken(bench: Bench, recorder: Any, until: Until, body: Any) -> None:
    """Some proxies and older servers say only 200."""
    recorder.answers = [(200, {}, body)]
    with bench.running():
        bench.add(1)
        assert until(lambda: bench.spool.backlog_bytes("events") == 0)
    assert bench.rejected() == []


@pytest.mark.parametrize("status", [401, 403])
def test_a_denied_token_is_said_and_the_new_one_read(
    tmp_path: Path, recorder: Any, until: Until, status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file is read at each try; nothing is lost meanwhile."""
    monkeypatch.setattr("collectors.ship.shipper._DENIED_S", 0.05)
    token_file = tmp_path / "token"
    token_file.write_text("old\n")

    def judge(_queue: str, _items: list[Any]) -> Any:
        right = recorder.requests[-1]["headers"].get("authorization") == "Bearer new"
        return None if right else (status, {}, {})

    recorder.judge = judge
    bench = Bench(tmp_path / "spool", recorder.url, token_file)
    with bench.running():
        bench.add(1)
        assert until(lambda: bench.value("request_failures_total", reason=str(status)) >= 1)
        token_file.write_text("new\n")
        assert until(lambda: recorder.events)
    bench.close()


def test_a_missing_token_file_is_a_failure_that_may_pass(tmp_path: Path, recorder: Any, until: Until) -> None:
    """It may be mounted later."""
    bench = Bench(tmp_path / "spool", recorder.url, tmp_path / "token")
    with bench.running():
        bench.add(1)
        assert until(lambda: bench.value("request_failures_total", reason="unreachable") >= 1)
        (tmp_path / "token").write_text("now")
        assert until(lambda: recorder.events)
    bench.close()


def test_an_error_inside_does_not_end_the_shipping(
    bench: Bench, recorder: Any, until: Until, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full disk under the acknowledgement, say: it is sent again, which changes nothing."""
    real = bench.spool.acknowledge
    failures = [OSError(28, "No space left on device")]

    def acknowledge(*arguments: Any) -> None:
        if failures:
            raise failures.pop()
        real(*arguments)

    monkeypatch.setattr(bench.spool, "acknowledge", acknowledge)
    with bench.running():
        bench.add(1)
        assert until(lambda: bench.spool.backlog_bytes("events") == 0)
    assert numbers(recorder.events) == [1, 1]


def test_the_last_flush_says_whether_something_stays(bench: Bench, recorder: Any) -> None:
    """What stays is for the next start."""
    bench.add(1)
    assert bench.shipper.flush(2) is True
    assert numbers(recorder.events) == [1]
    bench.add(2)
    recorder.answers = [(503, {}, {})]
    assert bench.shipper.flush(2) is False
    bench.add(*range(2000))
    assert bench.shipper.flush(0) is False


def test_put_aside_records_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One older file is kept."""
    monkeypatch.setattr("collectors.ship.shipper._MOST_BYTES", 200)
    rejected = RejectedFile(tmp_path / "rejected.jsonl")
    for i in range(10):
        rejected.park("events", {"number": i}, "bad")
    assert (tmp_path / "rejected.jsonl.old").exists()
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) < 600


def test_linger_is_short(bench: Bench, recorder: Any, until: Until) -> None:
    """What comes together goes together, and nothing waits for company long: the default is below 0.1 s."""
    from collectors.agent.sidecar import SidecarSettings

    assert SidecarSettings("http://x", "n", ("kmsg",), Path("x")).linger_s <= 0.1
    bench.add(1)
    bench.add(2)
    with bench.running():
        assert until(lambda: len(recorder.events) == 2)
    assert len(recorder.requests) == 1


def test_a_long_backlog_goes_in_large_batches(bench: Bench, recorder: Any, until: Until) -> None:
    """Up to 5,000 items or 4 MB; what is left goes in small ones again."""
    events = tuple(
        with_id(Event(time=TIME, node="n1", source="test", kind="test", message=f"event {i} " + "x" * 300))
        for i in range(12_000)
    )
    bench.spool.append("test", CollectorTurn(events=events, position={"at": 1}))
    with bench.running():
        assert until(lambda: len(recorder.events) == 12_000)
    sizes = [len(request["items"]) for request in recorder.requests]
    assert 4_500 < sizes[0] <= 5_000
    assert sizes[-1] <= 1_000
    assert numbers(recorder.events) == list(range(12_000))


def test_what_every_sidecar_is_told_is_waited_for_a_little_differently(bench: Bench) -> None:
    """Never less than `Retry-After`, up to a half more: a cluster does not come back in one moment."""
    waits = [bench.shipper._wait_s(ServerAnswer(429, retry_after_s=100.0)) for _ in range(50)]
    assert 100 <= min(waits) < 115 < 135 < max(waits) <= 150
    denied = [bench.shipper._wait_s(ServerAnswer(401)) for _ in range(20)]
    assert len(set(denied)) > 10


def test_another_server_is_tried_at_once(tmp_path: Path, recorders: list[Any], until: Until) -> None:
    """Not when the old one's back-off is over."""
    old, new = recorders[:2]
    old.judge = lambda _queue, _items: (429, {"Retry-After": "3000"}, {})
    bench = Bench(tmp_path / "spool", old.url)
    with bench.running():
        bench.add(1)
        assert until(lambda: old.requests)
        bench.shipper.use(Transport(new.url, ServerAccess(timeout_s=patience(2))))
        assert until(lambda: new.events)
    bench.shipper.close()
    bench.close()


def test_a_refused_record_that_cannot_be_put_aside_stays_in_the_spool(
    bench: Bench, recorder: Any, until: Until, full_disk: Any
) -> None:
    """The disk is full: it is neither lost nor half written, and goes its way when there is room."""
    recorder.judge = lambda _queue, items: (422, {}, {"detail": "odd"}) if 5 in numbers(items) else None
    older = orjson.dumps({"item": {"message": "x" * 3000}}) + b"\n"
    (bench.folder / "rejected.jsonl").write_bytes(older)
    with bench.running():
        bench.add(4)
        assert until(lambda: len(recorder.events) == 1)
        with full_disk(2000):
            bench.add(5)
            assert until(lambda: len(recorder.requests) > 3)
            assert (bench.folder / "rejected.jsonl").read_bytes() == older
            assert bench.spool.backlog_bytes("events") > 0
        assert until(lambda: len(bench.rejected()) == 2 and bench.spool.backlog_bytes("events") == 0)
    assert bench.rejected()[1]["item"]["message"] == "event 5"

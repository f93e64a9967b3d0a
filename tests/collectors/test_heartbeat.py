"""What a sidecar says of itself."""

import threading
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest
from real.patience import patience

from collectors.collector import CollectorTurn
from collectors.metrics import SidecarMetrics
from collectors.ship.heartbeat import HeartbeatSender, report
from collectors.ship.transport import ServerAccess, Transport
from collectors.spool.spool import Spool
from store.records.event import Event, with_id
from wire.sidecars import HeartbeatJson

Until = Callable[[Callable[[], Any]], Any]


@pytest.fixture
def metrics() -> SidecarMetrics:
    """Of a sidecar with a good source and a bad one."""
    metrics = SidecarMetrics()
    good, bad = metrics.source("kmsg"), metrics.source("scrape:x")
    good.set_up(True)
    good.count(CollectorTurn(lines=7, errors=1, lost=3))
    bad.failed()
    bad.set_blocked(True)
    return metrics


def test_a_report_says_all_that_an_operator_asks(tmp_path: Path, metrics: SidecarMetrics) -> None:
    """Sources with their totals, the spool, what was lost; every key that the server knows."""
    spool = Spool(tmp_path, 10**6, "n1")
    spool.append("kmsg", CollectorTurn(events=(with_id(Event(datetime.now(UTC), "n1", "test", "test")),)))
    spool._losses.add("telemetry", "full", 4)
    spool._losses.add("events", "full", 2)
    spool._losses.add("events", "damaged", 900)
    spool._losses.add("events", "missing", 1)
    metrics.rejected_total = 5
    said = report("n1", metrics, spool, 60.0)
    assert list(said["sources"]) == [
        {"source": "kmsg", "up": True, "blocked": False}
        | {"lines": 7, "events": 0, "errors": 1, "lost": 3, "failures": 0, "refused": 0, "trust": None},
        {"source": "scrape:x", "up": False, "blocked": True}
        | {"lines": 0, "events": 0, "errors": 0, "lost": 0, "failures": 1, "refused": 0, "trust": None},
    ]
    assert said["lost"] == {"records": 4, "events": 2, "rollups": 4, "damaged_bytes": 900}
    assert said["spool"]["events_bytes"] == spool.backlog_bytes("events") > 0
    assert (said["spool"]["telemetry_bytes"], said["spool"]["limit_bytes"]) == (0, 10**6)
    assert said["spool"]["oldest_s"] >= 0
    assert (said["node"], said["interval_s"], said["rejected"], said["version"]) == ("n1", 60.0, 5, "0.1.0")
    assert said["boot"] is None or len(said["boot"]) == 36
    assert said["started"] <= said["time"]
    assert set(said) == {field.name for field in msgspec.structs.fields(HeartbeatJson)}
    read = msgspec.convert(said, HeartbeatJson, strict=True)
    assert msgspec.to_builtins(read) == {**said, "sources": tuple(said["sources"])}
    spool.close()


def test_reports_come_with_nothing_else_to_send_and_the_newest_replaces_what_failed(
    recorder: Any, until: Until
) -> None:
    """A server that is away costs reports, never keeps them; what it says when it is back is the present state."""
    count = iter(range(10**6))
    went: list[bool] = []
    heart = HeartbeatSender(
        lambda _interval_s: {"count": next(count)}, Transport(recorder.url, ServerAccess(timeout_s=patience(1))), 0.02
    )
    heart.beats = went.append
    recorder.answers = [(503, {}, {}), (404, {}, {})]
    stop = threading.Event()
    thread = threading.Thread(target=heart.run, args=(stop,))
    thread.start()
    assert until(lambda: len(recorder.items.get("heartbeats", [])) >= 3)
    stop.set()
    thread.join(patience(5))
    assert recorder.requests[0]["path"] == "/api/v1/heartbeats"
    assert [each["count"] for each in recorder.items["heartbeats"][:3]] == [2, 3, 4]
    assert went[:3] == [False, False, True]


def test_a_report_that_cannot_be_made_ends_no_reports(recorder: Any, caplog: pytest.LogCaptureFixture) -> None:
    """Said once, and that it is over."""
    wrong = [ZeroDivisionError("odd"), ZeroDivisionError("odd")]

    def say(_interval_s: float) -> dict[str, Any]:
        if wrong:
            raise wrong.pop()
        return {}

    heart = HeartbeatSender(say, Transport(recorder.url, ServerAccess(timeout_s=patience(1))), 60.0)
    with caplog.at_level("INFO", "foreshock.sidecar"):
        for _ in range(4):
            heart.beat()
    heart.close()
    assert [record.message for record in caplog.records] == [
        "heartbeats are not taken: ZeroDivisionError: odd",
        "heartbeats are taken again",
    ]
    assert len(recorder.items["heartbeats"]) == 2


def test_another_server_is_talked_to_from_the_next_report_on(recorders: list[Any]) -> None:
    """As a changed configuration asks."""
    heart = HeartbeatSender(
        lambda _interval_s: {}, Transport(recorders[0].url, ServerAccess(timeout_s=patience(1))), 60.0
    )
    heart.beat()
    heart.use(Transport(recorders[1].url, ServerAccess(timeout_s=patience(1))))
    heart.beat()
    heart.close()
    assert [len(each.requests) for each in recorders] == [1, 1, 0]

"""JSON objects to typed records: what is missing, what is new, what is wrong."""

from datetime import UTC, datetime
from typing import Any

import pytest

from dashboard.answers.cluster import AuditEntry, Cluster, Device, Event, Ledger, Node
from dashboard.answers.decoding import AnswerError, decode

EVENT: dict[str, Any] = {
    "time": "2025-03-01T04:05:06.789000Z",
    "kind": "xid",
    "source": "kernel",
    "code": 79,
    "device": {"type": "gpu", "pci": "0000:0f:00.0", "index": None, "uuid": None, "port": None},
}


def test_times_become_aware_utc_and_devices_records() -> None:
    """The parts of an event are typed."""
    event = decode(Event, EVENT)
    assert event.time == datetime(2025, 3, 1, 4, 5, 6, 789000, UTC)
    assert event.device == Device("gpu", pci="0000:0f:00.0")
    assert event.code == 79


def test_a_time_of_another_zone_becomes_utc() -> None:
    """05:05+01:00 is 04:05 UTC; a time without a zone is taken as UTC."""
    moved = decode(Event, EVENT | {"time": "2025-03-01T05:05:06+01:00"})
    assert moved.time == datetime(2025, 3, 1, 4, 5, 6, tzinfo=UTC)
    assert moved.time.tzinfo == UTC
    assert decode(Event, EVENT | {"time": "2025-03-01T04:05:06"}).time == moved.time


def test_missing_optional_fields_take_their_defaults_and_are_never_zero() -> None:
    """A node that was not scored has no score."""
    node = decode(Node, {"node": "gpu-017"})
    assert (node.score_24h, node.reasons, node.hint, node.state) == (None, (), None, "unknown")


def test_an_event_without_a_time_has_none() -> None:
    """A required field that may be None is None where it is not sent."""
    assert decode(Event, {"kind": "xid"}).time is None


def test_fields_of_a_newer_server_are_ignored() -> None:
    """A dashboard understands the next version's answers."""
    assert decode(Event, EVENT | {"received": "2025-03-01T04:05:07Z", "moon": 1}) == decode(Event, EVENT)


def test_lists_of_records_become_tuples() -> None:
    """Reasons are records, their events texts."""
    node = decode(Node, {"node": "a", "reasons": [{"text": "hot", "contribution": 0.1, "events": ["x", "y"]}]})
    assert node.reasons[0].events == ("x", "y")
    assert node.reasons[0].contribution == 0.1


def test_whatever_a_detail_holds_is_kept() -> None:
    """The detail of an audit entry has no fixed shape."""
    assert decode(AuditEntry, {"time": "2025-03-01T00:00:00Z", "detail": [1, {"a": 2}]}).detail == [1, {"a": 2}]


@pytest.mark.parametrize(
    ("kind", "body", "names"),
    [
        (Event, [], "expected an object for Event, got list"),
        (Event, None, "got NoneType"),
        (Event, {"time": None}, "Event.kind is missing"),
        (Cluster, {"nodes": 3}, "Cluster.now is missing"),
        (Cluster, {"now": "yesterday"}, "Cluster.now cannot be 'yesterday'"),
        (Cluster, {"now": 12}, "Cluster.now"),
        (Event, EVENT | {"code": "seventy-nine"}, "Event.code cannot be"),
        (Event, EVENT | {"device": "GPU 3"}, "expected an object for Device"),
        (Ledger, {"run": "r", "wall_s": 1, "buckets": 7}, "Ledger.buckets"),
        (Node, {"node": "a", "reasons": 7}, "Node.reasons"),
    ],
)
def test_a_wrong_answer_names_the_field(kind: type, body: Any, names: str) -> None:
    """No answer can raise anything but an AnswerError."""
    with pytest.raises(AnswerError, match=names):
        decode(kind, body)

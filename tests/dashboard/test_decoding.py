"""JSON objects to typed records: what is missing, what is new, what is wrong."""

import re
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from wire import message
from wire.cluster import ClusterJson
from wire.events import AuditJson, DeviceJson, EventJson
from wire.goodput import InterruptionJson, LedgerJson
from wire.message import AnswerError
from wire.nodes import NodeJson


def decode(kind: Any, body: Any) -> Any:
    """The object of a JSON value."""
    return message.decode(kind, msgspec.json.encode(body))


EVENT: dict[str, Any] = {
    "time": "2025-03-01T04:05:06.789000Z",
    "kind": "xid",
    "source": "kernel",
    "code": 79,
    "device": {"type": "gpu", "pci": "0000:0f:00.0", "index": None, "uuid": None, "port": None},
}


def test_times_become_aware_utc_and_devices_records() -> None:
    """The parts of an event are typed."""
    event = decode(EventJson, EVENT)
    assert event.time == datetime(2025, 3, 1, 4, 5, 6, 789000, UTC)
    assert event.device == DeviceJson(type="gpu", pci="0000:0f:00.0")
    assert event.code == 79


def test_a_time_of_another_zone_becomes_utc() -> None:
    """05:05+01:00 is 04:05 UTC; a time without a zone is taken as UTC."""
    moved = decode(EventJson, EVENT | {"time": "2025-03-01T05:05:06+01:00"})
    assert moved.time == datetime(2025, 3, 1, 4, 5, 6, tzinfo=UTC)
    assert moved.time.tzinfo == UTC
    assert decode(EventJson, EVENT | {"time": "2025-03-01T04:05:06"}).time == moved.time


def test_missing_optional_fields_take_their_defaults_and_are_never_zero() -> None:
    """A node that was not scored has no score."""
    node = decode(NodeJson, {"node": "gpu-017"})
    assert (node.score_24h, node.reasons, node.hint, node.state) == (None, (), None, "unknown")


def test_an_event_without_a_time_has_none() -> None:
    """A field that may be null is None where it is not sent."""
    assert decode(EventJson, {"kind": "xid"}).time is None
    assert decode(InterruptionJson, {"lost_s": 3.0}).time is None


def test_fields_of_a_newer_server_are_ignored() -> None:
    """A dashboard understands the next version's answers."""
    assert decode(EventJson, EVENT | {"moon": 1}) == decode(EventJson, EVENT)


def test_lists_of_records_become_tuples() -> None:
    """Reasons are records, their events texts."""
    node = decode(NodeJson, {"node": "a", "reasons": [{"text": "hot", "contribution": 0.1, "events": ["x", "y"]}]})
    assert node.reasons[0].events == ("x", "y")
    assert node.reasons[0].contribution == 0.1


def test_whatever_a_detail_holds_is_kept() -> None:
    """The detail of an audit entry has no fixed shape."""
    assert decode(AuditJson, {"time": "2025-03-01T00:00:00Z", "detail": [1, {"a": 2}]}).detail == [1, {"a": 2}]


@pytest.mark.parametrize(
    ("kind", "body", "names"),
    [
        (EventJson, [], "EventJson: expected object, got array"),
        (EventJson, None, "EventJson: expected object, got null"),
        (EventJson, {"time": None}, "EventJson: object missing required field kind"),
        (ClusterJson, {"nodes": 3}, "ClusterJson: object missing required field now"),
        (ClusterJson, {"now": "yesterday"}, "ClusterJson.now: invalid RFC3339"),
        (ClusterJson, {"now": 12}, "ClusterJson.now: expected datetime, got int"),
        (EventJson, EVENT | {"code": "seventy-nine"}, "EventJson.code: expected int | null, got str"),
        (EventJson, EVENT | {"device": "GPU 3"}, "EventJson.device: expected object, got str"),
        (LedgerJson, {"run": "r", "wall_s": 1, "buckets": 7}, "LedgerJson.buckets: expected object, got int"),
        (NodeJson, {"node": "a", "reasons": 7}, "NodeJson.reasons: expected array, got int"),
    ],
)
def test_a_wrong_answer_names_the_field(kind: type, body: Any, names: str) -> None:
    """No answer can raise anything but an AnswerError."""
    with pytest.raises(AnswerError, match=re.escape(names)):
        decode(kind, body)

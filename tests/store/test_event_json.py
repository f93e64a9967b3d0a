"""Events in bulk: what the fast reader takes, the careful one takes too, and makes the same of it."""

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.edge.auth import ANONYMOUS
from api.intake.entries import events_of, read_event, records, sift
from store.events.event_json import MAX_MESSAGE, MAX_NAME, decode_events
from store.records.event import ACTIONS, CAUSES, SEVERITIES, Event

RECORD: dict[str, Any] = {
    "time": "2025-03-01T04:05:06.789Z",
    "node": "gpu-017",
    "source": "kernel",
    "kind": "xid",
    "code": 79,
    "severity": "fatal",
    "cause": "hardware",
    "action": "reboot_node",
    "device": {"type": "gpu", "pci": "0000:0f:00.0", "index": None, "uuid": None, "port": None},
    "message": "GPU has fallen off the bus.",
    "attributes": {"pid": 1234, "process": "python", "ratio": 0.5, "sure": True, "none": None},
    "line": 3,
    "id": "e1",
}


def slowly(body: bytes) -> tuple[list[Event], int]:
    """What reading record by record makes of a body: the events, and how many records are bad."""
    events, rejected = sift(records(body), read_event)
    return events, len(rejected)


def both(*parts: dict[str, Any]) -> list[bytes]:
    """The records as an array and as lines."""
    return [orjson.dumps(parts), b"\n".join(map(orjson.dumps, parts)) + b"\n\n"]


def test_a_body_of_good_records_is_read_at_once_and_gives_the_same() -> None:
    """As an array and as lines, with every key or with few, with keys that nobody knows."""
    few = {"time": None, "node": None, "source": "s", "kind": "k", "unheard": {"of": [1]}}
    for body in both(RECORD, few, RECORD | {"file": "a.log", "device": {}}):
        fast = decode_events(body)
        assert fast is not None
        assert (fast, 0) == slowly(body)
        assert all(event.time is None or event.time.tzinfo is UTC for event in fast)


@pytest.mark.parametrize(
    "changes",
    [
        {"severity": "dreadful"},
        {"cause": "gremlins"},
        {"action": "pray"},
        {"code": True},
        {"code": 1.0},
        {"code": 2**63},
        {"line": -(2**63) - 1},
        {"device": {"type": "gpu", "index": 2**64}},
        {"device": {"type": "gpu", "port": "1"}},
        {"node": ""},
        {"node": "n" * (MAX_NAME + 1)},
        {"id": "i" * (MAX_NAME + 1)},
        {"source": ""},
        {"kind": None},
        {"kind": "telemetry"},
        {"message": "m" * (MAX_MESSAGE + 1)},
        {"message": 5},
        {"time": "yesterday"},
        {"time": 1_700_000_000},
        {"time": "0001-01-01T00:00:00Z"},
        {"time": "9999-01-01T00:00:00Z"},
        {"time": "0001-01-01T00:00:00+23:00"},
        {"time": "2025-03-01t04:05:06z"},
        {"attributes": {"a": [1]}},
        {"attributes": {"a": {"b": 1}}},
        {"attributes": {"run": "r" * (MAX_NAME + 1)}},
        {"attributes": {"run": ""}},
        {"attributes": [1]},
    ],
    ids=lambda changes: "-".join(changes),
)
def test_what_the_careful_reader_refuses_the_fast_one_does_not_take(changes: dict[str, Any]) -> None:
    """It leaves the whole body to the careful one, which names the bad record and takes the others."""
    lines = b"\n".join(orjson.dumps(part) for part in (RECORD, RECORD | {"code": 31}))
    try:
        bad = orjson.dumps(RECORD | changes)
    except TypeError:  # more than 64 bits
        import json

        bad = json.dumps(RECORD | changes).encode()
    assert slowly(bad + b"\n")[1] == 1
    assert decode_events(lines + b"\n" + bad) is None
    events, rejected = events_of(lines + b"\n" + bad, ANONYMOUS)
    assert ([event.code for event in events], [entry.line for entry in rejected]) == ([79, 31], [3])


@pytest.mark.parametrize(
    "text",
    [
        b'"message": "a\\u0000b"',
        b'"tim\\u0065": "2025-03-01T04:05:06.1234567Z"',
        b'"time": "2025-03-01T04:05:06.1234567Z"',
        b'"time": "2025-03-01"',
        b'"time": " 2025-03-01T04:05:06Z"',
        b'"severity": null',
        b'"device": null',
        b'"attributes": {"a": 123456789012345678901234}',
    ],
)
def test_what_both_would_read_otherwise_is_left_to_the_careful_one(text: bytes) -> None:
    """NUL characters, times of more digits than a microsecond has, integers that one of them makes a float."""
    body = b'[{"node": null, "time": null, "source": "s", "kind": "k", %s}]' % text
    assert decode_events(body) is None
    assert len(events_of(body, ANONYMOUS)[0]) == 1


def test_a_time_among_the_attributes_stands_for_no_other() -> None:
    """Times are told by how many are written our way: one too many hides none that is written otherwise."""
    other = {"time": "2025-03-01T04:05:06.1234567Z", "attributes": {"time": "2025-03-01T04:05:06.789000Z"}}
    fine = {"time": "2025-03-01T04:05:06.123456Z", "attributes": {"time": "2025-03-01T04:05:06.789000Z"}}
    assert decode_events(orjson.dumps([RECORD | other])) is None
    taken = decode_events(orjson.dumps([RECORD | fine]))
    assert taken is not None
    assert taken == slowly(orjson.dumps([RECORD | fine]))[0]


def test_a_broken_body_is_left_to_the_careful_reader() -> None:
    """Cut short, no UTF-8, no JSON, nested without end."""
    whole = orjson.dumps([RECORD])
    for body in (whole[:-5], b"\xff" + whole, b"plainly not", b"[" * 100_000, b'{"a": 1}', b"17"):
        assert decode_events(body) is None
    assert decode_events(b"") == decode_events(b" \n") == decode_events(b"[]") == []


names = st.text(max_size=300) | st.none()
integers = st.integers(-(2**65), 2**65) | st.none() | st.booleans()
# Hypothesis takes its bounds without a zone.
moments = st.datetimes(datetime(1960, 1, 1), datetime(9999, 12, 31)).map(  # noqa: DTZ001
    lambda moment: moment.replace(tzinfo=UTC).isoformat()
)
zoned = st.builds(
    lambda moment, minutes, space: moment.replace(tzinfo=timezone(timedelta(minutes=minutes))).isoformat(sep=space),
    st.datetimes(datetime(1960, 1, 1), datetime(2100, 1, 1)),  # noqa: DTZ001
    st.integers(-1400, 1400),
    st.sampled_from("T "),
)
values = st.text() | st.integers(-(2**65), 2**65) | st.floats(allow_nan=False) | st.booleans() | st.none()
wires = st.fixed_dictionaries(
    {"source": names, "kind": names, "time": moments | zoned | st.text(max_size=30) | st.none(), "node": names},
    optional={
        "code": integers,
        "severity": st.sampled_from([*SEVERITIES, "", None, "x"]),
        "cause": st.sampled_from([*CAUSES, "", None]),
        "action": st.sampled_from([*ACTIONS, "x"]),
        "device": st.none()
        | st.fixed_dictionaries({}, optional={"type": names, "pci": names, "index": integers, "port": integers}),
        "message": st.text(max_size=50) | st.none(),
        "attributes": st.none() | st.dictionaries(st.text(max_size=8) | st.just("run"), values, max_size=4),
        "line": integers,
        "file": names,
        "id": names,
        "more": values,
    },
)


@given(st.lists(wires, max_size=4), st.booleans())
def test_whatever_the_fast_reader_takes_the_careful_one_takes_alike(parts: list[dict[str, Any]], lines: bool) -> None:
    """The same events, none refused; and what the careful one refuses, the fast one has not taken."""
    import json

    texts = [json.dumps(part, ensure_ascii=False) for part in parts]
    body = ("\n".join(texts) if lines else f"[{', '.join(texts)}]").encode("utf-8", "replace")
    fast = decode_events(body)
    if fast is not None:
        assert (fast, 0) == slowly(body)

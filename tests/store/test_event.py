"""The event: its wire form both ways, its id, its times, and what is refused."""

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from store.records.event import (
    ACTIONS,
    CAUSES,
    SEVERITIES,
    Device,
    Event,
    RecordError,
    event_id,
    format_time,
    from_us,
    from_wire,
    parse_time,
    to_us,
    to_wire,
    with_id,
)

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
WORD = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20)
WHOLE = st.integers(-(2**63), 2**63 - 1)
TIME = st.datetimes(datetime(1, 1, 2), datetime(9999, 12, 30), timezones=st.just(UTC))  # noqa: DTZ001  # hypothesis adds the zone
DEVICES = st.builds(Device, WORD, st.none() | TEXT, st.none() | WHOLE, st.none() | TEXT, st.none() | WHOLE)
EVENTS = st.builds(
    Event,
    time=st.none() | TIME,
    node=st.none() | TEXT,
    source=WORD,
    kind=WORD,
    code=st.none() | WHOLE,
    severity=st.sampled_from(SEVERITIES),
    cause=st.sampled_from(CAUSES),
    action=st.sampled_from(ACTIONS),
    device=DEVICES,
    message=TEXT,
    attributes=st.dictionaries(TEXT, st.none() | TEXT | WHOLE | st.booleans() | st.floats(allow_nan=False), max_size=4),
    line=st.none() | WHOLE,
    file=st.none() | TEXT,
    id=st.none() | WORD,
)


@given(EVENTS)
def test_what_goes_over_the_wire_comes_back(event: Event) -> None:
    """As JSON text, not only as an object."""
    back = from_wire(orjson.loads(orjson.dumps(to_wire(event))))
    infinite = {k for k, v in event.attributes.items() if isinstance(v, float) and v in (float("inf"), float("-inf"))}
    expected = {k: None if k in infinite else v for k, v in event.attributes.items()}  # JSON has no infinity
    assert back.attributes == expected
    assert to_wire(back) == {**to_wire(event), "attributes": expected}


@given(TIME, st.integers(-12, 12))
def test_microseconds_since_1970_are_exact(moment: datetime, zone_h: int) -> None:
    """In any year, where a float of seconds rounds; whatever zone the moment is told in."""
    elsewhere = moment.astimezone(timezone(timedelta(hours=zone_h)))
    assert from_us(to_us(elsewhere)) == moment
    assert to_us(from_us(to_us(moment) + 1)) == to_us(moment) + 1


@given(EVENTS)
def test_an_id_is_the_same_each_time_and_after_the_wire(event: Event) -> None:
    """Re-sending the same record changes nothing."""
    finite = all(not isinstance(v, float) or abs(v) != float("inf") for v in event.attributes.values())
    assert len(event_id(event)) == 32
    if finite:
        assert event_id(from_wire(orjson.loads(orjson.dumps(to_wire(event))))) == event_id(event)


def test_an_id_stays_what_it_was_when_this_test_was_written() -> None:
    """Ids are stored: another way of making them would double every event on the next ingest."""
    event = Event(
        datetime(2025, 3, 1, tzinfo=UTC), "gpu-017", "kernel", "xid", 79, device=Device("gpu", "0000:0f:00.0")
    )
    assert event_id(event) == "36e3f573bb62f0895296383881578c16"
    assert event_id(event, "kernel/gpu-017.log:3") == "e3eee3efa164234f4facdc73f1176ebd"


@pytest.mark.parametrize("change", [{"node": "b"}, {"kind": "y"}, {"code": 1}, {"message": "m"}, {"time": None}])
def test_another_content_has_another_id(change: dict[str, Any]) -> None:
    """What tells two events apart."""
    base: dict[str, Any] = {"time": datetime(2025, 1, 1, tzinfo=UTC), "node": "a", "source": "s", "kind": "x"}
    assert event_id(Event(**base)) != event_id(Event(**{**base, **change}))


def test_neither_line_nor_severity_makes_the_id() -> None:
    """A better catalogue may judge a line differently: it stays the same event."""
    event = Event(None, "a", "s", "k")
    assert event_id(Event(None, "a", "s", "k", severity="fatal", line=4, file="f")) == event_id(event)


def test_an_event_keeps_an_id_that_it_has() -> None:
    """The sender's id holds."""
    assert with_id(Event(None, None, "s", "k", id="mine"), "elsewhere").id == "mine"
    assert with_id(Event(None, None, "s", "k")).id == event_id(Event(None, None, "s", "k"))


def test_a_run_is_known_where_the_source_names_one() -> None:
    """Only text is a run's name."""
    assert Event(None, None, "s", "k", attributes={"run": "llm"}).run() == "llm"
    assert Event(None, None, "s", "k", attributes={"run": 7}).run() is None
    assert Event(None, None, "s", "k").run() is None


@pytest.mark.parametrize(
    ("device", "key"),
    [
        (Device("gpu", pci="0000:0f:00.0", index=3), "gpu:0000:0f:00.0"),
        (Device("gpu", index=3, uuid="GPU-1"), "gpu:GPU-1"),
        (Device("gpu", index=0), "gpu:0"),
        (Device("switch", uuid="0x1", port=33), "switch:0x1:33"),
        (Device(), "node:"),
    ],
)
def test_a_device_s_key_is_its_best_name(device: Device, key: str) -> None:
    """The PCI address before the UUID before the index."""
    assert device.key() == key


def test_the_wire_has_design_s_keys_and_order() -> None:
    """Always present, null where unknown; `file` and `id` only where there is one."""
    wire = to_wire(Event(None, None, "kernel", "xid"))
    names = "line time node source kind code severity cause action device message attributes"
    assert list(wire) == names.split()
    assert list(wire["device"]) == ["type", "pci", "index", "uuid", "port"]
    assert to_wire(Event(None, None, "s", "k", file="f", id="i"))["file"] == "f"


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("2025-03-01T04:05:06.789Z", datetime(2025, 3, 1, 4, 5, 6, 789000, UTC)),
        ("2025-03-01T04:05:06+02:00", datetime(2025, 3, 1, 2, 5, 6, tzinfo=UTC)),
        (" 2025-03-01T04:05:06 ", datetime(2025, 3, 1, 4, 5, 6, tzinfo=UTC)),
        ("2025-03-01", datetime(2025, 3, 1, tzinfo=UTC)),
    ],
)
def test_a_time_is_read_as_utc(text: str, moment: datetime) -> None:
    """With a zone or without one."""
    assert parse_time(text) == moment


@pytest.mark.parametrize("text", ["", "soon", "2025-13-01", "2025-02-30T00:00:00Z", "0001-01-01T00:00:00+05:00"])
def test_what_is_no_time_is_refused(text: str) -> None:
    """With how to write one."""
    with pytest.raises(RecordError, match="write it as"):
        parse_time(text)


@given(TIME)
def test_a_formatted_time_sorts_as_the_moment_does_and_reads_back(moment: datetime) -> None:
    """Six digits of a second, Z at the end, four digits of a year."""
    assert parse_time(format_time(moment)) == moment
    assert len(format_time(moment)) == 27


def test_a_time_of_another_zone_is_written_in_utc() -> None:
    """The moment stays."""
    assert format_time(datetime(2025, 3, 1, 4, tzinfo=timezone(timedelta(hours=2)))) == "2025-03-01T02:00:00.000000Z"


GOOD = {"source": "kernel", "kind": "xid"}


@pytest.mark.parametrize(
    ("wire", "problem"),
    [
        ({}, "'source'"),
        ({"source": "kernel"}, "'kind'"),
        ({"source": "", "kind": "x"}, "'source'"),
        ({"source": 1, "kind": "x"}, "'source'"),
        ({**GOOD, "time": 5}, "'time'"),
        ({**GOOD, "time": "soon"}, "no time"),
        ({**GOOD, "node": ["a"]}, "'node'"),
        ({**GOOD, "code": "79"}, "'code'"),
        ({**GOOD, "code": True}, "'code'"),
        ({**GOOD, "code": 2**63}, "64-bit"),
        ({**GOOD, "code": 1.5}, "'code'"),
        ({**GOOD, "severity": "dreadful"}, "use one of info"),
        ({**GOOD, "severity": ["fatal"]}, "'severity'"),
        ({**GOOD, "cause": "ghosts"}, "'cause'"),
        ({**GOOD, "action": "pray"}, "'action'"),
        ({**GOOD, "device": "gpu"}, "'device'"),
        ({**GOOD, "device": {"index": "3"}}, "'index'"),
        ({**GOOD, "attributes": []}, "'attributes'"),
        ({**GOOD, "attributes": {"a": {"b": 1}}}, "flatten"),
        ({**GOOD, "message": 7}, "'message'"),
        ({**GOOD, "id": 7}, "'id'"),
    ],
)
def test_a_record_that_does_not_fit_is_refused_by_the_name_of_its_field(wire: dict[str, Any], problem: str) -> None:
    """Never with another error, whatever JSON comes."""
    with pytest.raises(RecordError, match=problem):
        from_wire(wire)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
FIELDS = [
    "line",
    "time",
    "node",
    "source",
    "kind",
    "code",
    "severity",
    "cause",
    "action",
    "device",
    "message",
    "attributes",
    "file",
    "id",
]


@given(st.dictionaries(st.sampled_from(FIELDS), JSON))
def test_any_json_object_gives_an_event_or_a_record_error(wire: dict[str, Any]) -> None:
    """What comes from outside never raises anything else."""
    try:
        event = from_wire({**GOOD, **wire})
    except RecordError:
        return
    assert event.source
    assert event.kind


@pytest.mark.parametrize(
    ("device", "name", "words"),
    [
        (Device("gpu", pci="0000:0f:00.0", index=3), None, "gpu 0000:0f:00.0"),
        (Device("gpu", index=0), None, "gpu 0"),
        (Device("port", uuid="0x248a", port=12), None, "port 0x248a port 12"),
        (Device("disk"), "nvme0", "disk nvme0"),
        (Device("hca", pci="0000:ab:00.0", port=1), "mlx5_5", "hca 0000:ab:00.0 (mlx5_5) port 1"),
        (Device("port", uuid="leaf11/swp51"), "swp51", "port leaf11/swp51"),
        (Device("gpu"), None, "gpu"),
        (Device(), "tsc", "node"),
    ],
)
def test_a_device_in_words(device: Device, name: str | None, words: str) -> None:
    """By its address, its number, its name; a name that the address holds is not said twice."""
    assert device.words(name) == words


def test_a_device_is_called_what_its_event_says() -> None:
    """An interface's or disk's name before a DIMM's label; an empty one is none."""
    event = from_wire({**GOOD, "attributes": {"name": "", "dimm": "P1-DIMMA1"}})
    assert event.name() == "P1-DIMMA1"
    assert from_wire({**GOOD, "attributes": {"name": "nvme0", "dimm": "x"}}).name() == "nvme0"
    assert from_wire({**GOOD, "attributes": {"dimm": 3}}).name() == "3"
    assert from_wire({**GOOD, "attributes": {"process": "python"}}).name() is None


@pytest.mark.parametrize("known", [{"pci": "0000:0f:00.0"}, {"index": 0}, {"uuid": "x"}, {"port": 0}])
def test_a_bare_device_is_known_by_its_type_alone(known: dict[str, Any]) -> None:
    """Any address or number tells it apart."""
    assert Device("disk").is_bare()
    assert not Device("disk", **known).is_bare()

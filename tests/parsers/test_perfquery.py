"""perfquery: error counters of one port."""

import pytest

from parsers.formats.perfquery import PerfqueryParser
from parsers.text.parser import Context, parse
from store.records.event import Attribute, Event


def decode(*lines: str) -> list[Event]:
    """The events of some lines."""
    return list(parse(PerfqueryParser(Context()), lines))


@pytest.mark.parametrize(
    ("head", "device", "where"),
    [
        ("# Port counters: Lid 2 port 5 (CapMask: 0x1300)", ("port", 5), {"lid": 2}),
        ("# Port extended counters: Lid 11 port 39 (CapMask: 0x1300 CapMask2: 0x0000002)", ("port", 39), {"lid": 11}),
        ("# Port counters: Lid 2 port 255 (CapMask: 0x1300)", ("switch", None), {"lid": 2}),
        ("# PortRcvErrorDetails counters: Lid 4 port 1", ("port", 1), {"lid": 4}),
        (
            "# Port counters: DR path slid 65535; dlid 65535; 0,1 port 1 (CapMask: 0x1300)",
            ("port", 1),
            {"path": "DR path slid 65535; dlid 65535; 0,1"},
        ),
    ],
    ids=["lid", "extended", "all", "details", "route"],
)
def test_the_head_of_a_block_says_whose_its_counters_are(
    head: str, device: tuple[str, int | None], where: dict[str, Attribute]
) -> None:
    """By LID or directed route; 255 is a switch's sum."""
    (event,) = decode(head, "PortSelect:......................5", "LinkDownedCounter:...............23")
    assert (event.device.type, event.device.port) == device
    assert event.attributes == {"counter": "LinkDownedCounter", "count": 23, **where}
    assert event.device.index == where.get("lid")
    assert event.time is None


def test_only_error_counters_above_zero_are_events() -> None:
    """Neither data, nor selectors, nor waiting; names of old versions are today's."""
    events = decode(
        "# Port counters: Lid 2 port 5 (CapMask: 0x1300)",
        "CounterSelect:...................0x1000",
        "SymbolErrors:....................65535",
        "LinkRecovers:....................0",
        "XmtDiscards:.....................3",
        "PortXmitData:....................3960",
        "PortXmitWait:....................7",
        "LocalLinkIntegrityErrors:........1",
    )
    assert [(e.attributes["counter"], e.attributes["count"]) for e in events] == [
        ("SymbolErrorCounter", 65535),
        ("PortXmitDiscards", 3),
        ("LocalLinkIntegrityErrors", 1),
    ]


def test_a_block_does_not_lend_its_port_to_the_next() -> None:
    """Two ports in one file."""
    events = decode(
        "# Port counters: Lid 2 port 5 (CapMask: 0x1300)",
        "LinkDownedCounter:...............1",
        "# Port counters: Lid 3 port 6 (CapMask: 0x1300)",
        "LinkDownedCounter:...............1",
    )
    assert [(e.attributes["lid"], e.device.port) for e in events] == [(2, 5), (3, 6)]


def test_more_than_a_counter_can_hold_is_refused() -> None:
    """64 bits; the largest is taken."""
    errors: list[str] = []
    lines = [f"VL15Dropped:.....................{count}" for count in (2**64 - 1, 2**64)]
    events = list(parse(PerfqueryParser(Context()), lines, lambda _line, error: errors.append(str(error))))
    assert [event.attributes["count"] for event in events] == [2**64 - 1]
    assert len(errors) == 1
    assert "64 bits" in errors[0]

"""The kernel parser: which lines it takes, and records over several lines."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from parsers.formats.kernel import SIGNS, KernelParser
from parsers.registry import make_parser
from parsers.site_rules.rules import NO_RULES
from parsers.text.parser import MAX_LINE, Context, ParseError, Parser, parse
from store.records.event import Event

FIXTURES = sorted((Path(__file__).parents[2] / "fixtures/kernel").glob("*.log"))
XID = "NVRM: Xid (PCI:0000:3b:00): 79, x"


def decode(*lines: str | bytes, context: Context | None = None) -> list[Event]:
    """The events of some lines."""
    return list(parse(KernelParser(context or Context(year=2026)), lines))


def test_the_contexts_node_stands_in_where_the_line_names_none() -> None:
    """dmesg names no host; a host that is named wins."""
    context = Context(year=2026, node="gpu-017")
    events = decode(XID, f"Nov 20 22:31:54 vm kernel: {XID}", context=context)
    assert [event.node for event in events] == ["gpu-017", "vm"]


def test_every_event_comes_from_a_line_with_a_literal() -> None:
    """What a scan of a whole buffer may rely on."""
    assert {"NVRM: The NVIDIA GPU", '"MESSAGE":['} < set(SIGNS)
    assert decode("Nov 20 22:31:54 vm kernel: usb 1-1: new device") == []


def test_a_message_of_several_lines_takes_the_time_of_its_first() -> None:
    """dmesg indents what follows a line break."""
    events = decode("[Fri Nov 20 22:31:19 2026] NVRM: first", f"                           {XID}")
    assert [(event.line, event.time) for event in events] == [(2, datetime(2026, 11, 20, 22, 31, 19, tzinfo=UTC))]


def test_an_indented_quotation_under_another_programs_line_is_no_event() -> None:
    """The line above says who speaks."""
    assert decode("Nov 20 22:31:54 vm nhc[1]: failed:", f"        {XID}") == []


def test_a_kmsg_record_holds_several_lines() -> None:
    """`\\x0a` is a line break."""
    events = decode(rf"11,8416,2122548539,-;NVRM: hello\x0a{XID}", " SUBSYSTEM=pci", " DEVICE=+pci:0000:3b:00.0")
    assert [event.code for event in events] == [79]


def test_a_gpu_that_is_gone_without_an_xid() -> None:
    """On one line, and broken over three as older drivers print it: the event's line is the first."""
    one = decode("[6781741.548783] NVRM: GPU 0000:91:00.0: GPU has fallen off the bus.")
    three = decode(
        "[ 1843.308145] NVRM: The NVIDIA GPU 0000:b3:00.0",
        "               NVRM: (PCI ID: 10de:26b5) installed in this system has",
        "               NVRM: fallen off the bus and is not responding to commands.",
    )
    assert [(e.kind, e.code, e.device.pci, e.line) for e in one + three] == [
        ("gpu_lost", 79, "0000:91:00.0", 1),
        ("gpu_lost", 79, "0000:b3:00.0", 1),
    ]


@pytest.mark.parametrize(
    "line",
    ["RuntimeError: GPU has fallen off the bus", "NVRM: fallen off the bus", "NVRM: GPU at PCI:0000:0b:00: "],
)
def test_a_gpu_that_nobody_names_is_not_lost(line: str) -> None:
    """No address, no event."""
    assert decode(line) == []


def test_the_driver_says_once_which_gpu_is_at_an_address() -> None:
    """Later faults bear its UUID; the same address on another host is another GPU."""
    uuid = "GPU-509665ad-b600-ac93-3616-d754b23d636d"
    events = decode(
        f"Nov 20 22:31:54 a kernel: NVRM: GPU at PCI:0000:3b:00: {uuid}",
        f"Nov 20 22:31:54 a kernel: {XID}",
        f"Nov 20 22:31:54 b kernel: {XID}",
    )
    assert [(event.kind, event.node, event.device.uuid) for event in events] == [
        ("gpu_map", "a", uuid),
        ("xid", "a", uuid),
        ("xid", "b", None),
    ]


def test_a_uuid_cut_short_names_no_later_fault() -> None:
    """It is told as it stands, and forgotten."""
    events = decode("NVRM: GPU at PCI:0000:3b:00: GPU-5096", XID)
    assert [event.device.uuid for event in events] == ["GPU-5096", None]


def test_repeats_are_an_attribute() -> None:
    """rsyslog folds equal lines into one."""
    events = decode(f"Nov 20 22:31:54 vm kernel: message repeated 7 times: [{XID}]")
    assert events[0].attributes["repeats"] == 7


def test_two_records_of_an_export_are_two_events() -> None:
    """Each begins with its cursor, and the last needs no blank line."""
    record = [
        "__CURSOR=x",
        "__REALTIME_TIMESTAMP=1795213914121678",
        "_HOSTNAME=vm",
        "SYSLOG_IDENTIFIER=kernel",
        f"MESSAGE={XID}",
    ]
    events = decode(*record, "", *record, "PRIORITY=3", *record)
    assert [(event.line, event.node) for event in events] == [(2, "vm"), (8, "vm"), (14, "vm")]


def test_an_export_of_another_program_is_no_event() -> None:
    """Its identifier says so."""
    assert decode("__CURSOR=x", "_HOSTNAME=vm", "SYSLOG_IDENTIFIER=nhc", f"MESSAGE={XID}", "") == []


def test_fields_without_end_are_bounded() -> None:
    """A file of nothing but fields holds no more than a record's worth."""
    parser = KernelParser(Context())
    for number in range(5000):
        assert list(parser.feed(f"_FIELD_{number}=x", number)) == []
    assert len(parser._fields) <= 128
    assert list(parser.flush()) == []


def test_bad_bytes_never_hide_the_good_beside_them() -> None:
    """NUL, broken UTF-8, a carriage return, a megabyte on one line."""
    events = decode(
        b"\x00\x00" + XID.encode(),
        XID.encode() + b"\xff\xfe\r\n",
        b"NVRM: " + b"x" * 1_000_000,
        b"NVRM: Xid (PCI:0000:3b:00): 48, " + b"y" * 1_000_000 + b"\n",
        b"\x89PNG\r\n\x1a\n\x00Xid\x01\x02",
        b"",
        XID,
    )
    assert [(event.line, event.code) for event in events] == [(1, 79), (2, 79), (4, 48), (7, 79)]
    assert all(len(event.message) <= MAX_LINE for event in events)


def test_a_cut_object_is_counted_and_the_next_line_is_read() -> None:
    """One error, one event."""
    errors: list[int] = []

    def on_error(line: int, _error: ParseError) -> None:
        errors.append(line)

    lines = ['{"MESSAGE":"NVRM: Xid (PCI', XID]
    events = list(parse(KernelParser(Context()), lines, on_error))
    assert (errors, [event.line for event in events]) == ([1], [2])


@pytest.mark.parametrize("path", FIXTURES, ids=lambda path: path.stem)
@pytest.mark.parametrize("under_rules", [False, True])
def test_it_says_whether_a_flush_would_give_anything(path: Path, under_rules: bool) -> None:
    """After each line: one parser is asked, another is flushed."""
    rules = (lambda: NO_RULES) if under_rules else None
    asked: Parser = make_parser("kernel", Context(node="gpu-017", year=2026), rules)
    lines: list[str] = []
    for text in path.read_text(errors="replace").splitlines()[:20]:
        lines.append(text)
        list(asked.feed(text, len(lines)))
        holds = bool(getattr(asked, "holds"))  # noqa: B009 - no parser must have it
        flushed = make_parser("kernel", Context(node="gpu-017", year=2026), rules)
        for number, line in enumerate(lines, start=1):
            list(flushed.feed(line, number))
        assert bool(list(flushed.flush())) == holds

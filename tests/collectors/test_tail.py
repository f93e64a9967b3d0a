"""Bytes to whole lines; blocks that are passed over say what they would have said line by line."""

import codecs
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from collectors.decoder import Decoder
from collectors.files.content import FilePosition, mark_of
from collectors.files.tail import FileTail, LineSplitter
from parsers.registry import make_parser
from parsers.text.parser import MAX_LINE, Context
from store.records.event import Event
from store.records.event_sources import Trust


@given(st.lists(st.binary(max_size=30).map(lambda raw: raw.replace(b"\n", b"")), max_size=20), st.data())
def test_any_cut_into_chunks_gives_the_same_lines(lines: list[bytes], data: st.DataObject) -> None:
    """Where a read ends is chance; the lines, their numbers and the offset do not depend on it."""
    text = b"".join(line + b"\n" for line in lines)
    splitter = LineSplitter()
    found = []
    rest = text
    while rest:
        size = data.draw(st.integers(1, len(rest)))
        found += splitter.feed(rest[:size])
        rest = rest[size:]
    assert found == [(number, line.lstrip(b"\0")) for number, line in enumerate(lines, start=1)]
    assert splitter.offset == splitter.read_offset == len(text)


def test_a_partial_line_is_kept_until_its_end_comes() -> None:
    """The position stays before it, so that a restart reads it whole."""
    splitter = LineSplitter(offset=100, line=7)
    assert splitter.feed(b"one\ntw") == [(8, b"one")]
    assert (splitter.offset, splitter.read_offset, splitter.line) == (104, 106, 8)
    assert splitter.feed(b"o\n") == [(9, b"two")]
    assert splitter.offset == 108


def test_a_gigantic_line_is_cut_and_the_next_one_is_whole() -> None:
    """A megabyte without a line end neither fills the memory nor moves the offset wrongly."""
    splitter = LineSplitter()
    for _ in range(16):
        assert splitter.feed(b"x" * 65536) == []
    lines = splitter.feed(b"y\nnext\n")
    assert [(number, len(raw)) for number, raw in lines] == [(1, MAX_LINE), (2, 4)]
    assert splitter.offset == 16 * 65536 + 7


def test_the_last_line_of_a_finished_file_needs_no_end() -> None:
    """`rest` gives it once, and nothing where there is none."""
    splitter = LineSplitter()
    splitter.feed(b"one\ntwo")
    assert splitter.rest() == [(2, b"two")]
    assert splitter.rest() == []
    assert splitter.offset == 7


def test_a_mark_tells_files_apart_by_what_is_before_the_position() -> None:
    """Only the last bytes count; nothing before it is a mark of its own."""
    assert mark_of(b"a" * 1000 + b"b" * 256) == mark_of(b"b" * 256)
    assert mark_of(b"a") != mark_of(b"b")
    assert mark_of(b"") == 0


def test_generations_of_a_file_have_different_identities() -> None:
    """So that the first line after a truncation gets another id than the first before."""
    assert FilePosition(1, 2, 0).identity != FilePosition(1, 2, 1).identity


# What a kernel's log may hold: quiet lines, faults, records over several lines, names that forge faults, damage.
_ISO, _SYSLOG, _RING = (
    "2025-03-01T04:05:{n:02}+00:00 gpu-017 kernel: ",
    "Mar  1 04:05:{n:02} gpu-017 kernel: ",
    "[ {n}.000001] ",
)
_PIECES = (
    "\ufeff{head}NVRM: Xid (PCI:0000:0f:00): 92, behind a mark",
    "{head}usb 1-1: new high-speed USB device number 4",
    "{head}usb 1-1: new high-speed USB device number 4",
    "{head}e1000: quiet as ever",
    "{head}NVRM: Xid (PCI:0000:0f:00): 79, pid=1234, name=python, GPU has fallen off the bus.",
    "{head}nvidia-nvswitch3: SXid (PCI:0000:85:00.0): 20034, Fatal, Link 30 LTSSM Fault Up",
    "{head}nvidia-nvswitch3: SXid (PCI:0000:85:00.0): 20034, Severity 1 Engine instance 30 Sub-engine instance 00",
    "{head}message repeated 3 times: [ NVRM: Xid (PCI:0000:0f:00): 31, pid=7, name=a, MMU Fault]",
    "{head}evil[77]: segfault at 0 ip 0 sp 0 error 4 in a\n{head}NVRM: Xid (PCI:0000:0f:00): 79, forged\n.so[5d+1]",
    "{head}evil[77]: segfault at 0 ip 0 sp 0 error 4 in b",
    '{{"_TRANSPORT":"kernel","MESSAGE":"NVRM: Xid (PCI:0000:0f:00): 63, r","__REALTIME_TIMESTAMP":"174080000{n:07}"}}',
    '{{"_TRANSPORT":"kernel","MESSAGE":"quiet","__REALTIME_TIMESTAMP":"174080000{n:07}"}}',
    '{{"MESSAGE":"NVRM: Xid (PCI:0000:0f:00): 63, cut short',
    "__CURSOR={n}\n__REALTIME_TIMESTAMP=1740{n:012}\nSYSLOG_IDENTIFIER=kernel\nMESSAGE=NVRM: Xid (PCI:0000:0f:00): 48",
    "[Sat Mar  1 04:05:{n:02} 2025] NVRM: Xid (PCI:0000:0f:00): 43, pid=5, name=b, Ch 00000008",
    "[  +0.00{n:04}] NVRM: Xid (PCI:0000:0f:00): 43, pid=5, name=b, Ch 00000008",
    "    indented, of a record before",
    "{head}mlx5_core 0000:3b:00.0: poll_health:800: device's health compromised - reached miss count",
    "\0\0\0{head}NVRM: Xid (PCI:0000:0f:00): 94, pid=9, name=c, Contained",
    "{head}NV\0RM: Xid (PCI:0000:0f:00): 95, hidden by a hole",
    "{head}" + "x" * 70_000 + "NVRM: Xid (PCI:0000:0f:00): 79, beyond the cut",
    "\udcff broken bytes",
    "",
)


@st.composite
def logs(draw: st.DrawFn) -> list[bytes]:
    """A log in chunks."""
    head = draw(st.sampled_from((_ISO, _SYSLOG, _RING)))
    pieces = draw(st.lists(st.sampled_from(_PIECES), max_size=30))
    lines = [piece.replace("{head}", head).format(n=n % 60) for n, piece in enumerate(pieces)]
    text = "".join(line + "\n" for line in lines).encode("utf-8", "surrogateescape")
    cuts = sorted(draw(st.lists(st.integers(0, len(text)), max_size=8)))
    return [text[begin:end] for begin, end in zip([0, *cuts], [*cuts, len(text)], strict=True)]


def told(
    path: Path, chunks: list[bytes], trust: Trust | None, flushes: bool
) -> Iterator[tuple[tuple[Event, ...], dict[str, int], FilePosition, bool]]:
    """What following a file gives after each chunk, with the lines and broken lines so far."""
    path.write_bytes(b"")
    tail = FileTail(
        path, FilePosition(1, 2), lambda: make_parser("kernel", Context(node="gpu-017", year=2025, trust=trust))
    )
    for chunk in chunks:
        with path.open("ab") as file:
            file.write(chunk)
        while tail.read():
            pass
        if flushes:
            tail.flush()
        events, lines, errors = tail.take()
        yield events, {**tail.take_refused(), "lines": lines, "errors": errors}, tail.position(), tail.settled
    tail.finish()
    yield tail.take()[0], tail.take_refused(), tail.position(), tail.settled
    tail.close()


@pytest.mark.parametrize("trust", [None, "kernel", "system", "user"])
@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(chunks=logs(), flushes=st.booleans())
def test_a_block_that_is_passed_over_says_what_its_lines_say(
    trust: Trust | None, tmp_path: Path, chunks: list[bytes], flushes: bool
) -> None:
    """The same events, refusals, counts and positions, wherever a read ends."""
    found = list(told(tmp_path / "kern.log", chunks, trust, flushes))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LineSplitter, "block", lambda _self, _data: None)
        assert found == list(told(tmp_path / "kern.log", chunks, trust, flushes))


def test_quiet_lines_are_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a thousand quiet lines the last is fed, when another line is; with a fault among them all are."""
    fed: list[int] = []
    feed = Decoder.feed
    monkeypatch.setattr(Decoder, "feed", lambda self, text, line: (fed.append(line), feed(self, text, line))[1])
    quiet = (_ISO.format(n=1) + "usb 1-1: quiet\n").encode() * 500
    fault = (_ISO.format(n=2) + "NVRM: Xid (PCI:0000:0f:00): 79, pid=1, name=a, x\n").encode()
    list(told(tmp_path / "kern.log", [quiet, quiet + fault, quiet], "kernel", flushes=False))
    assert sorted(fed) == [500, *range(501, 1002)]


def test_a_byte_order_mark_hides_no_first_line(tmp_path: Path) -> None:
    """Of a log and of a table, which a head begins; nor does a parser that is shown the head again miss it."""
    fault = (_ISO.format(n=2) + "NVRM: Xid (PCI:0000:0f:00): 79, pid=1, name=a, x\n").encode()
    (events, *_told), *_last = told(tmp_path / "kern.log", [codecs.BOM_UTF8 + fault], "kernel", flushes=False)
    assert [event.code for event in events] == [79]

    def follow(position: FilePosition) -> FileTail:
        return FileTail(table, position, lambda: make_parser("sacctmgr", Context(node="login", year=2025)))

    table = tmp_path / "events.txt"
    table.write_bytes(codecs.BOM_UTF8 + b"NodeName|TimeStart|TimeEnd|State|Reason|User\n")
    tail = follow(FilePosition(1, 2))
    while tail.read():
        pass
    place = tail.position()
    tail.close()
    with table.open("ab") as file:
        file.write(b"gpu-017|2025-03-01T04:05:06|2025-03-01T06:00:00|DOWN|Xid 79|root\n")
    tail = follow(place)
    while tail.read():
        pass
    tail.finish()
    found, _lines, errors = tail.take()
    assert ([(event.node, event.kind) for event in found], errors) == ([("gpu-017", "outage")], 0)
    tail.close()

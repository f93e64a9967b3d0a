"""Blocks searched for signs give what feeding every line gives, whatever the log and wherever it is cut."""

import io
import itertools
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from parsers.formats.kernel import FORMAT, SIGNS, KernelParser
from parsers.registry import MIXED, PARSERS, MixedSelector, make_parser, recognise
from parsers.text.lines import blocks, lines
from parsers.text.parser import MAX_LINE, Context, FormatSigns, ParseError, clean, decode, parse
from parsers.text.scan import LineSelector, Search, by_hyperscan, by_re2, numbered, select_lines
from store.records.event import Event

FIXTURES = Path(__file__).parents[2] / "fixtures"
FORMS = sorted(path for path in (FIXTURES / "kernel").iterdir() if path.suffix in (".txt", ".log", ".json"))
LOGS = [path.read_bytes() for path in FORMS if not path.name.startswith("LICENSE")]
LINES = sorted({line for log in LOGS for line in log.split(b"\n")})
XID = b"NVRM: Xid (PCI:0000:0f:00): 79, pid=1234, name=python, GPU has fallen off the bus."
RECORD = b"_TRANSPORT=kernel\nPRIORITY=3\nHOST=gpu-9\nPRIORITY=3\nMESSAGE=" + XID + b"\n"
# What changes how the lines around it are read, and what nearly does.
ODD = [
    b"",
    b"\r",
    b"    indented",
    b"        " + XID,
    b"\tMESSAGE=" + XID,
    b"__CURSOR=s=1",
    b"__REALTIME_TIMESTAMP=1795213914121678",
    b"_HOSTNAME=vm",
    b"PRIORITY=3",
    b"HOST=gpu-9",
    RECORD,
    b"SYSLOG_IDENTIFIER=kernel",
    b"MESSAGE=" + XID,
    b"[Nov20 22:31] NVRM: hello",
    b"[Nov 20 22:31] usb 1-1: new device",
    b"[  +0.000001] " + XID,
    b"[     +0.5] " + XID,
    b"[+1.0] quiet",
    b"[...] " + XID,
    b"NV\x00RM: Xi\x00d (PCI:0000:0f:00): 48, x",
    b"\x00\x00    " + XID,
    b"\x00[Nov20 22:32] quiet",
    b"{",
    b"}",
    b'\t"MESSAGE" : "' + XID + b'",',
    b"Nov 20 22:31:54 vm kernel: message repeated 3 times: [ " + XID + b"]",
    b"x" * (MAX_LINE - 10) + XID,
    b"Nov 20 22:31:54 vm kernel: " + XID + b"y" * MAX_LINE,
]
SEARCHES: list[Callable[[FormatSigns], Search]] = [by_re2, by_hyperscan]


class Portions(io.RawIOBase):
    """A pipe that gives what the test says."""

    def __init__(self, data: bytes, cuts: Iterable[int]) -> None:
        places = sorted({0, *(cut for cut in cuts if cut < len(data)), len(data)})
        self._portions = [data[a:b] for a, b in itertools.pairwise(places)]

    def read1(self, _size: int, /) -> bytes:
        """The next portion."""
        return self._portions.pop(0) if self._portions else b""


@pytest.fixture(scope="module", params=SEARCHES, ids=["re2", "hyperscan"])
def pick(request: pytest.FixtureRequest) -> LineSelector:
    """By each engine; one that is not installed is not asked."""
    if request.param is by_hyperscan:
        pytest.importorskip("hyperscan")
    assert FORMAT.signs is not None
    return LineSelector(FORMAT.signs, request.param(FORMAT.signs))


def scanned(pick: LineSelector, whole: Iterator[bytes]) -> tuple[list[Event], list[int]]:
    """The events of blocks, and the lines that were broken."""
    broken: list[int] = []
    select_lines = (pick(block, 0, len(block)) for block in whole)
    events = list(decode(KernelParser(Context(year=2026)), numbered(select_lines), lambda line, _: broken.append(line)))
    return events, broken


def fed(log: bytes) -> tuple[list[Event], list[int]]:
    """The events of all lines, each fed."""
    broken: list[int] = []
    parser = KernelParser(Context(year=2026))
    return list(parse(parser, lines(io.BytesIO(log), "x"), lambda line, _: broken.append(line))), broken  # type: ignore[arg-type]


def made(parts: list[tuple[bytes, bytes]], ends: bool) -> bytes:
    """A log of lines, each with its end."""
    log = b"".join(line + end for line, end in parts)
    return log if ends else log.rstrip(b"\n")


PIECES = st.one_of(
    st.sampled_from(LINES),
    st.sampled_from(ODD),
    st.sampled_from(LOGS),
    st.binary(max_size=30),
)
PARTS = st.lists(st.tuples(PIECES, st.sampled_from([b"\n", b"\n", b"\n", b"\r\n", b"\n\n", b""])), max_size=12)
MAKE = settings(max_examples=200, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])


@MAKE
@given(parts=PARTS, ends=st.booleans(), cuts=st.lists(st.integers(0, 3000), max_size=6))
def test_a_log_in_any_portions_gives_what_its_lines_give(
    pick: LineSelector, parts: list[tuple[bytes, bytes]], ends: bool, cuts: list[int]
) -> None:
    """Every form that readers print, spliced, with line ends of any kind, NULs and lines too long."""
    log = b"-" + made(parts, ends)
    assert scanned(pick, blocks(Portions(log, cuts), "x")) == fed(log)


@pytest.mark.parametrize("log", LOGS, ids=[path.name for path in FORMS if not path.name.startswith("LICENSE")])
def test_each_form_cut_at_each_place_gives_what_its_lines_give(pick: LineSelector, log: bytes) -> None:
    """Two portions; the block's border falls into every line."""
    expected = fed(log)
    for cut in range(1, len(log), max(1, len(log) // 60)):
        assert scanned(pick, blocks(Portions(log, [cut]), "x")) == expected


def test_fields_within_a_record_are_read_though_they_bear_no_sign(pick: LineSelector) -> None:
    """A record of several lines is read whole, wherever it stands."""
    log = b"quiet\n" * 3 + RECORD + b"quiet\n" * 3
    events, _ = scanned(pick, iter([log]))
    assert [(event.node, event.code, event.line) for event in events] == [("gpu-9", 79, 4)]


def test_a_part_of_a_buffer_is_searched(pick: LineSelector) -> None:
    """What stands before and behind it is not there."""
    inner = b"quiet\n[Nov20 22:31] x\nquiet\nquiet\n" + XID + b"\nquiet\n"
    buffer = bytearray(XID + b"\n" + inner + XID)
    start = len(XID) + 1
    found = pick(buffer, start, start + len(inner))
    assert found.lines == 6
    assert found.texts == [(0, "quiet"), (1, "[Nov20 22:31] x"), (2, "quiet"), (4, XID.decode()), (5, "quiet")]
    assert pick(buffer, start, start).texts == []


@pytest.mark.parametrize("large_bytes", [0, 1, 500, 10**9])
def test_a_log_that_turns_out_large_is_read_on_by_the_faster_matcher(large_bytes: int) -> None:
    """Nothing is lost where one takes over from the other."""
    assert FORMAT.signs is not None
    log = (b"quiet\n" * 20 + XID + b"\n" + RECORD) * 20
    whole = blocks(Portions(log, range(0, len(log), 97)), "x")
    events = list(decode(KernelParser(Context(year=2026)), numbered(select_lines(whole, FORMAT.signs, large_bytes))))
    assert events == fed(log)[0]
    assert len(events) == 40


def test_quiet_lines_are_passed_over(pick: LineSelector) -> None:
    """All but the first and the last of a block: else nothing would be won."""
    quiet = b"Nov 20 22:31:54 vm kernel: usb 1-1: new device\n" * 1000
    found = pick(quiet + XID + b"\n" + quiet, 0, 2 * len(quiet) + len(XID) + 1)
    assert found.lines == 2001
    assert [place for place, _ in found.texts] == [0, 1000, 2000]


def test_every_sign_is_found_as_it_stands(pick: LineSelector) -> None:
    """Whatever it means in a pattern."""
    blocks = {sign: b"quiet\nx" + sign.encode() + b"x\nquiet\n" for sign in SIGNS}
    lost = [s for s, block in blocks.items() if (1, f"x{s}x") not in pick(block, 0, len(block)).texts]
    assert lost == []


@pytest.mark.parametrize("name", [name for name, entry in PARSERS.items() if entry.signs is not None])
def test_signs_of_each_format_lose_nothing(name: str) -> None:
    """Its fixtures between quiet lines, by the engine that is installed."""
    entry = PARSERS[name]
    assert entry.signs is not None
    for path in sorted((FIXTURES / name).iterdir()):
        if path.suffix not in (".log", ".txt", ".json", ".prom"):
            continue
        log = b"quiet\nquiet\n" + path.read_bytes() + b"\nquiet\nquiet\n"
        ours, theirs = entry.make(Context(year=2026, run="r")), entry.make(Context(year=2026, run="r"))
        ignore: Callable[[int, ParseError], None] = lambda _line, _error: None  # noqa: E731
        found = decode(ours, numbered(select_lines(blocks(io.BytesIO(log), "x"), entry.signs, large_bytes=0)), ignore)
        assert list(found) == list(parse(theirs, lines(io.BytesIO(log), "x"), ignore)), path.name


OPENSM_LINES = sorted(
    {line for path in sorted((FIXTURES / "opensm").glob("*.log")) for line in path.read_bytes().split(b"\n")}
)
SWEEP = b"Nov 20 22:18:08 838000 [8EAC6C0] 0x04 -> osm_pi_rcv_process: Discovered port num 3 of 36\n"


@settings(max_examples=300, suppress_health_check=[HealthCheck.too_slow])
@given(
    lines_=st.lists(st.sampled_from([*OPENSM_LINES, SWEEP.rstrip()]), min_size=1, max_size=25), cut=st.integers(1, 2000)
)
def test_a_subnet_managers_records_are_read_whole_between_lines_that_say_nothing(lines_: list[bytes], cut: int) -> None:
    """Whatever stands where, wherever a block ends: the same events; one that was held back may come later."""
    entry = PARSERS["opensm"]
    assert entry.signs is not None
    log = SWEEP * 3 + b"\n".join(lines_) + b"\n" + SWEEP * 3
    ignore: Callable[[int, ParseError], None] = lambda _line, _error: None  # noqa: E731
    ours, theirs = entry.make(Context(year=2026)), entry.make(Context(year=2026))
    picked = numbered(select_lines(blocks(Portions(log, range(0, len(log), cut)), "x"), entry.signs))  # type: ignore[arg-type]
    found = list(decode(ours, picked, ignore))
    expected = list(parse(theirs, lines(io.BytesIO(log), "x"), ignore))
    assert sorted(map(repr, found)) == sorted(map(repr, expected))


def of_signed_formats() -> list[bytes]:
    """Lines of the fixtures that speak for a format with signs, or for none."""
    names = [name for name, entry in PARSERS.items() if entry.signs is not None and name != "opensm"]
    paths = [path for name in names for path in sorted((FIXTURES / name).iterdir()) if path.suffix in (".log", ".prom")]
    known = sorted({line for path in paths for line in path.read_bytes().split(b"\n")})
    spoken = {line: recognise(clean(line)) for line in known}
    return [line for line, name in spoken.items() if name is None or PARSERS[name].signs is not None]


MIXED_CONTEXT = Context(year=2026, run="r", node="n1")
SIGNED = of_signed_formats()
UNSIGNED = [
    b'Switch\t36 "S-248a070300f88080"\t\t# "leaf01"',
    b"Hostname %LINK-3-UPDOWN: Interface Eth1, changed state to down",
]
QUIET = [b"hello world", b"gpu-1:77:77 [0] NCCL INFO Channel 1", "größer ✓".encode(), b"    indented", b"x\x00y", b""]


@settings(max_examples=150, suppress_health_check=[HealthCheck.too_slow])
@given(
    parts=st.lists(
        st.one_of(st.sampled_from(SIGNED), st.sampled_from(QUIET), st.sampled_from(UNSIGNED)), min_size=1, max_size=60
    ),
    cut=st.integers(1, 4000),
)
def test_a_log_of_several_formats_gives_what_its_lines_give(parts: list[bytes], cut: int) -> None:
    """Headings, records of several lines, formats that need every line: whatever stands where, cut wherever."""
    log = b"\n".join(parts) + b"\n"
    broken: tuple[list[int], list[int]] = ([], [])
    picked = numbered(MixedSelector()(blocks(Portions(log, range(0, len(log), cut)), "x")))  # type: ignore[arg-type]
    found = list(decode(make_parser(MIXED, MIXED_CONTEXT), picked, lambda line, _error: broken[0].append(line)))
    every = lines(io.BytesIO(log), "x")
    expected = list(parse(make_parser(MIXED, MIXED_CONTEXT), every, lambda line, _error: broken[1].append(line)))
    assert (found, broken[0]) == (expected, broken[1])


def test_lines_of_several_formats_that_say_nothing_are_passed_over() -> None:
    """Once a format has spoken; and all from the line on that speaks for one that needs every line."""
    quiet = b"hello world\n" * 1000
    log = quiet + b"Nov 20 22:31:54 vm kernel: usb 1-1: new device\n" + quiet
    assert sum(len(one.texts) for one in MixedSelector()([log])) < 40
    assert sum(len(one.texts) for one in MixedSelector()([log, UNSIGNED[0] + b"\n" + quiet, quiet])) > 2000


@pytest.mark.parametrize("name", [name for name, entry in PARSERS.items() if entry.loosely])
def test_what_finds_a_line_loosely_finds_all_that_the_pattern_finds(name: str) -> None:
    """In the fixtures and the format's sample."""
    entry = PARSERS[name]
    known = [line for path in (FIXTURES / name).iterdir() for line in path.read_text(errors="replace").splitlines()]
    spoken = [line for line in [*known, entry.sample] if entry.recognises.search(line)]
    assert spoken
    assert [line for line in spoken if not re.search(entry.loosely, line)] == []

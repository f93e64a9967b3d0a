"""A file searched by several processes gives what its lines give, wherever blocks begin."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from cli.archive.log_input import forked_scan, picked_at
from parsers.formats.kernel import FORMAT, KernelParser
from parsers.text.lines import ReadError
from parsers.text.parser import MAX_LINE, Context, decode, parse
from parsers.text.scan import LineSelection, LineSelector, numbered
from store.records.event import Event

FIXTURES = Path(__file__).parents[2] / "fixtures/kernel"
XID = b"2025-03-01T04:05:06Z gpu-017 kernel: NVRM: Xid (PCI:0000:0f:00): 79, x\n"
QUIET = b"2025-03-01T04:05:06Z gpu-017 kernel: usb 1-1: new device\n"
LONG = b"2025-03-01T04:05:06Z gpu-017 kernel: NVRM: Xid (PCI:0000:0f:00): 48, " + b"z" * 3 * MAX_LINE + b"\n"
# Newer Pythons warn of a fork beside threads; a test runner has some.
pytestmark = pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
assert FORMAT.signs is not None
PICK = LineSelector(FORMAT.signs)


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[int]:
    """A file to write to, and to read."""
    descriptor = os.open(tmp_path / "x.log", os.O_RDWR | os.O_CREAT)
    yield descriptor
    os.close(descriptor)


def events(picked: Iterator[LineSelection]) -> list[Event]:
    """What is decoded of blocks."""
    return list(decode(KernelParser(Context(year=2026)), numbered(picked)))


def fed(log: bytes) -> list[Event]:
    """What is decoded of all lines."""
    return list(parse(KernelParser(Context(year=2026)), log.split(b"\n")))


def children() -> set[str]:
    """The processes that this one began."""
    return {pid for task in Path("/proc/self/task").iterdir() for pid in (task / "children").read_text().split()}


@pytest.mark.parametrize("workers", [1, 2, 3])
@pytest.mark.parametrize("block_bytes", [1, 40, 1000, 70_000])
@pytest.mark.parametrize("ending", [b"", b"\n", b"no end"], ids=["whole", "blank", "cut"])
def test_blocks_of_any_size_by_any_number_of_processes(
    opened: int, workers: int, block_bytes: int, ending: bytes
) -> None:
    """Lines longer than a block, and longer than any line may be, among them."""
    log = (QUIET * 3 + XID) * 5 + LONG + XID * 2 + QUIET + XID + ending
    if block_bytes == 1:
        log = QUIET + XID + ending
    os.write(opened, log)
    found = events(forked_scan(opened, len(log), PICK, workers, block_bytes))
    assert found == fed(log)
    assert found


@pytest.mark.parametrize("path", sorted(FIXTURES.glob("journalctl-*.txt")), ids=lambda path: path.stem)
def test_two_blocks_that_meet_at_any_byte(opened: int, path: Path) -> None:
    """Records of several lines are whole, whichever block their lines belong to."""
    log = path.read_bytes()
    os.write(opened, log)
    buffer = bytearray(1 + len(log) + MAX_LINE)
    expected = fed(log)
    for cut in range(1, len(log)):
        first = picked_at(opened, 0, buffer, PICK, cut)
        second = picked_at(opened, cut, buffer, PICK, len(log) - cut)
        assert events(iter([first, second])) == expected


def test_an_empty_file_has_no_block(opened: int) -> None:
    """No process is begun."""
    assert list(forked_scan(opened, 0, PICK, workers=2)) == []


def test_a_file_that_was_cut_meanwhile_ends_where_it_ends(opened: int) -> None:
    """Its size was asked for before."""
    os.write(opened, XID * 3)
    found = events(forked_scan(opened, 10_000, PICK, workers=2, block_bytes=50))
    assert [event.line for event in found] == [1, 2, 3]


def test_who_stops_reading_leaves_no_process(opened: int) -> None:
    """`foreshock parse ... | head`: the workers end with the reader."""
    log = XID * 20_000
    for _ in range(10):
        os.write(opened, log)
    before = children()
    scan = forked_scan(opened, 10 * len(log), PICK, workers=2, block_bytes=100_000)
    next(scan)
    assert len(children() - before) == 2
    scan.close()  # type: ignore[attr-defined]
    assert children() == before


def test_a_file_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    """What the system says of it."""
    descriptor = os.open(tmp_path, os.O_RDONLY)
    try:
        with pytest.raises(ReadError, match="cannot read on: Is a directory"):
            list(forked_scan(descriptor, 100, PICK, workers=2))
    finally:
        os.close(descriptor)


def test_a_process_that_dies_is_an_error(opened: int) -> None:
    """A system out of memory kills; what it should have found is not silently missing."""
    os.write(opened, XID)

    def die(_block: bytearray, _start: int, _end: int) -> LineSelection:
        os._exit(9)

    with pytest.raises(ReadError, match="ended early"):
        list(forked_scan(opened, len(XID), die, workers=1))

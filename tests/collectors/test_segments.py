"""The append-only log under the spool."""

import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collectors.spool.segments import SegmentCursor, SegmentLog, write_atomically


def log_at(folder: Path, segment_bytes: int = 100) -> SegmentLog:
    """A log without opening records."""
    return SegmentLog(folder, segment_bytes, lambda: None)


def payloads(log: SegmentLog, cursor: SegmentCursor | None = None) -> list[bytes]:
    """Everything after a place."""
    return [payload for payload, _end in log.read(cursor or SegmentCursor()) if payload is not None]


def test_what_was_appended_is_read_again_over_segments_and_restarts(tmp_path: Path) -> None:
    """In order, and from any place on."""
    written = [f"record {i}".encode() for i in range(40)]
    log = log_at(tmp_path)
    for payload in written:
        log.append([payload])
    assert len(log.segments) > 3
    again = log_at(tmp_path)
    assert payloads(again) == written
    assert again.end == log.end
    assert again.size_bytes == sum(path.stat().st_size for path in tmp_path.glob("*.seg"))
    places = [end for _payload, end in again.read(SegmentCursor())]
    assert payloads(again, places[17]) == written[18:]


@given(st.integers(min_value=0, max_value=200), st.booleans())
@settings(max_examples=60, deadline=None)
def test_a_torn_tail_is_cut_at_the_last_good_record(
    tmp_path_factory: pytest.TempPathFactory, cut: int, flip: bool
) -> None:
    """Whatever a crash left of the newest segment: whole records stay, nothing broken comes out, appending goes on."""
    folder = tmp_path_factory.mktemp("log")
    written = [f"record {i}".encode() * 2 for i in range(6)]
    log_at(folder, 10_000).append(written)
    path = folder / "00000001.seg"
    size = path.stat().st_size
    place = min(cut, size - 1)
    if flip:
        raw = bytearray(path.read_bytes())
        raw[place] ^= 0xFF
        path.write_bytes(raw)
    else:
        os.truncate(path, place)
    log = log_at(folder, 10_000)
    kept = payloads(log)
    expected = written[: len(kept)] if not flip else [each for each in written if each in kept]
    assert kept == expected
    assert len(kept) == len(written) - 1 if flip else len(kept) < len(written)
    assert log.size_bytes + log.torn_bytes == place + (0 if not flip else size - place)
    log.append([b"after"])
    assert payloads(log_at(folder, 10_000)) == [*kept, b"after"]


def test_zeros_at_the_end_are_no_records(tmp_path: Path) -> None:
    """A file system may leave them after a power failure; a length of zero with a checksum of zero would fit."""
    log_at(tmp_path).append([b"good"])
    with (tmp_path / "00000001.seg").open("ab") as file:
        file.write(bytes(4096))
    log = log_at(tmp_path)
    assert payloads(log) == [b"good"]
    assert log.torn_bytes == 4096


def test_a_broken_record_in_an_older_segment_costs_itself_alone(tmp_path: Path) -> None:
    """Later segments are read, the loss is counted once."""
    log = log_at(tmp_path, 30)
    for i in range(6):
        log.append([f"record number {i}".encode()])
    first = tmp_path / "00000001.seg"
    raw = bytearray(first.read_bytes())
    raw[12] ^= 1
    first.write_bytes(raw)
    log = log_at(tmp_path, 30)
    assert b"record number 5" in payloads(log)
    assert b"record number 0" not in payloads(log)
    assert payloads(log)
    assert log.damaged_bytes == 8 + len("record number 0")


def test_dropping_never_uses_a_number_twice(tmp_path: Path) -> None:
    """A place that was acknowledged must never point into other records."""
    log = log_at(tmp_path)
    assert log.drop_oldest() is None
    log.append([b"one"])
    assert log.drop_oldest() == SegmentCursor(2, 0)
    assert log.size_bytes == 0
    log.append([b"two"])
    assert log.segments == [2]
    assert payloads(log_at(tmp_path), SegmentCursor(2, 0)) == [b"two"]


def test_the_opening_record_comes_first_in_each_segment(tmp_path: Path) -> None:
    """Also in one that a crash left empty."""
    log = SegmentLog(tmp_path, 40, lambda: b"opening")
    for _ in range(4):
        log.append([b"x" * 30])
    for number in log.segments:
        assert next(log.read(SegmentCursor(number, 0)))[0] == b"opening"
    os.truncate(tmp_path / f"{log.segments[-1]:08d}.seg", 0)
    log = SegmentLog(tmp_path, 40, lambda: b"opening")
    log.append([b"y"])
    assert payloads(log, SegmentCursor(log.segments[-1], 0)) == [b"opening", b"y"]


def test_a_full_disk_leaves_the_log_as_it_was(
    tmp_path: Path, full_disk: Callable[[int], AbstractContextManager[None]]
) -> None:
    """No file may grow beyond what there is: part of the record is written, the error is told, nothing of it stays."""
    log = log_at(tmp_path, 10_000)
    log.append([b"one"])
    with full_disk(100):
        for _ in range(2):
            with pytest.raises(OSError, match="too large"):
                log.append([b"two" * 100])
        log.append([b"fits"])
        assert log_at(tmp_path, 10_000).torn_bytes == 0
    log.append([b"three" * 100])
    assert payloads(log) == [b"one", b"fits", b"three" * 100]
    assert payloads(log_at(tmp_path, 10_000)) == [b"one", b"fits", b"three" * 100]


def test_a_file_is_replaced_whole(tmp_path: Path) -> None:
    """No leftover beside it."""
    path = tmp_path / "file.json"
    write_atomically(path, b"one")
    write_atomically(path, b"two")
    assert path.read_bytes() == b"two"
    assert list(tmp_path.iterdir()) == [path]

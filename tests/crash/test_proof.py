"""The proof itself: it sees what is missing, doubled, strange or uncounted."""

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path

import pytest
from crash.feeds import KernelLog, TrainingLog, checksum
from crash.proof import Rows, differences, spans, uncounted, wait_until_all_is_stored


@pytest.fixture
def rows(tmp_path: Path) -> Iterator[Rows]:
    """A store with the columns that are asked for: two Xids and an iteration, counted."""
    with closing(sqlite3.connect(tmp_path / "x.db")) as connection:
        connection.executescript(
            """
            CREATE TABLE events (kind, severity, source, run, attributes, message);
            CREATE TABLE incidents (count);
            CREATE TABLE intake (seq);
            INSERT INTO events VALUES
              ('xid', 'error', 'kernel', NULL, '{"pid": 0, "process": "f"}', ''),
              ('xid', 'error', 'kernel', NULL, '{"pid": 1, "process": "f"}', ''),
              ('iteration', 'info', 'training', 'run1', '{"iteration": 0}', '');
            INSERT INTO incidents VALUES (2);
            """
        )

        def ask(query: str) -> Sequence[Sequence[object]]:
            return connection.execute(query).fetchall()

        yield ask


def feeds(tmp_path: Path, kernel: int, training: int) -> list[KernelLog | TrainingLog]:
    """Feeds that wrote so many lines."""
    log, steps = KernelLog(tmp_path / "kern.log", "f"), TrainingLog(tmp_path / "run1.log")
    log.write(kernel)
    steps.write(training)
    log.close()
    return [log, steps]


def test_a_whole_store_differs_in_nothing(tmp_path: Path, rows: Rows) -> None:
    """By count and by checksum, and every fault is counted."""
    assert differences(rows, feeds(tmp_path, 2, 1)) == []
    assert uncounted(rows) == ""


def test_what_is_missing_is_named(tmp_path: Path, rows: Rows) -> None:
    """By its serials; waiting for it ends."""
    written = feeds(tmp_path, 5, 1)
    looks: list[int] = []
    wait_until_all_is_stored(rows, written, lambda: looks.append(1), patience_s=0.01)
    assert looks
    (found,) = differences(rows, written)
    assert "5 written, 2 stored; 3 missing [2-4]" in found


def test_what_is_doubled_is_named_though_the_number_is_right(tmp_path: Path, rows: Rows) -> None:
    """One twice and another not at all: the checksum tells."""
    rows('UPDATE events SET attributes = \'{"pid": 0, "process": "f"}\' WHERE kind = \'xid\'')
    (found,) = differences(rows, feeds(tmp_path, 2, 1))
    assert "1 missing [1], 1 doubled [0]" in found


def test_what_was_never_written_is_named(tmp_path: Path, rows: Rows) -> None:
    """A store that invents events is no better."""
    (found,) = differences(rows, feeds(tmp_path, 2, 0))
    assert "1 never written [0]" in found


@pytest.mark.parametrize("change", ["UPDATE incidents SET count = 1", "INSERT INTO intake VALUES (1)"])
def test_faults_that_no_incident_counts_are_told(rows: Rows, change: str) -> None:
    """Or that wait for it."""
    rows(change)
    assert uncounted(rows) != ""


def test_serials_are_shown_in_runs() -> None:
    """The first few."""
    assert spans([1, 2, 3, 7, 9], most=2) == "[1-3, 7, ...]"
    assert checksum([1, 2]) == checksum([2, 1]) != checksum([1, 2, 2])

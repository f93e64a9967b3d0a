"""Following every file that a pattern matches."""

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from collectors.collector import CollectorTurn, Position, SourceError, SourceSettings
from collectors.files import changes
from collectors.files.follow import FileCollector
from collectors.sources import file
from collectors.sources.file import FilesCollector, file_collector
from store.records.event import Event

SETTINGS = SourceSettings(node="gpu-017", poll_interval_s=0.01, rotation_grace_s=0.05)


def step(number: int) -> str:
    """A line of Megatron's log that is one event."""
    return (
        f" [2025-03-01 04:05:{number:02d}] iteration {number:8d}/ 1000 | elapsed time per iteration (ms): 3000.0 |"
        " lm loss: 7.6 |\n"
    )


def append(path: Path, *lines: str) -> None:
    """As a program does."""
    with path.open("a") as file:
        file.write("".join(lines))


class Reader:
    """Reads a pattern as the runner does, and remembers the last position as the spool does."""

    def __init__(self, spec: str) -> None:
        self.spec = spec
        self.position: Position | None = None
        self.events: list[Event] = []
        self.collector: FilesCollector | None = None

    def start(self) -> "Reader":
        """Begin, or go on after a crash."""
        self.stop()
        made = file_collector(self.spec, SETTINGS)
        assert isinstance(made, FilesCollector)
        self.collector = made
        made.open(self.position)
        return self

    def stop(self) -> None:
        """As a crash does."""
        if self.collector is not None:
            self.collector.close()
            self.collector = None

    def turn(self) -> CollectorTurn:
        """One turn that looks at the folder."""
        assert self.collector is not None
        self.collector._look_due = 0.0
        collected = self.collector.collect(0.03)
        self.events += collected.events
        self.position = collected.position
        return collected

    def steps(self, turns: int = 8) -> dict[str, list[int]]:
        """The iterations of each run, after some turns."""
        for _ in range(turns):
            self.turn()
        found: dict[str, list[int]] = {}
        for event in self.events:
            if event.kind == "iteration":
                found.setdefault(str(event.run()), []).append(int(event.attributes["iteration"] or 0))
        return found


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where the logs are."""
    folder = tmp_path / "train"
    folder.mkdir()
    return folder


@pytest.fixture
def reader(folder: Path) -> Iterator[Reader]:
    """A reader of its logs, not started."""
    reader = Reader(f"{folder}/*.log:training")
    yield reader
    reader.stop()


def test_a_pattern_is_told_from_a_path(folder: Path) -> None:
    """A file whose name holds a bracket is a file; a format that is none is said."""
    odd = folder / "run[1].log"
    odd.write_text("")
    assert isinstance(file_collector(str(odd), SETTINGS), FileCollector)
    assert isinstance(file_collector(f"{folder}/*.log", SETTINGS), FilesCollector)
    assert file_collector(f"{folder}/*.log:training", SETTINGS).spec == f"file:{folder}/*.log:training"
    with pytest.raises(SourceError, match="trainig is no format"):
        file_collector(f"{folder}/*.log:trainig", SETTINGS)


def test_each_run_is_named_by_its_file_and_new_ones_are_picked_up(reader: Reader, folder: Path) -> None:
    """A run that begins later is found while others go on; a restart reads none of them twice."""
    append(folder / "llama.log", step(1), step(2))
    assert reader.start().steps() == {"llama": [1, 2]}
    append(folder / "mixtral.log", step(1), step(2))
    append(folder / "llama.log", step(3))
    assert reader.steps() == {"llama": [1, 2, 3], "mixtral": [1, 2]}
    reader.start()
    append(folder / "mixtral.log", step(3))
    append(folder / "qwen.log", step(1))
    assert reader.steps() == {"llama": [1, 2, 3], "mixtral": [1, 2, 3], "qwen": [1]}


@pytest.mark.parametrize("restart", [False, True])
def test_a_file_that_is_renamed_is_read_to_its_end_and_then_forgotten(
    reader: Reader, folder: Path, restart: bool
) -> None:
    """Its old form matches the wider pattern, and is no file of its own."""
    reader.spec = f"{folder}/*:training"
    log = folder / "llama.log"
    append(log, step(1))
    reader.start().steps()
    if restart:
        reader.stop()
    append(log, step(2))
    log.rename(folder / "llama.log.1")
    if restart:
        reader.start()
    assert reader.steps(30) == {"llama": [1, 2]}
    if not restart:
        assert reader.position == {"paths": {}}
    append(log, step(3))
    assert reader.steps() == {"llama": [1, 2, 3]}


def test_one_that_cannot_be_read_stops_no_other_and_is_told_once(
    reader: Reader, folder: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A log that is of no known format; once it may be told, it is read."""
    monkeypatch.setattr(file, "_RETRY_S", 0.0)
    reader.spec = f"{folder}/*.log"
    append(folder / "poem.log", "the quick brown fox\n" * 5000)
    append(folder / "llama.log", step(1), step(2))
    with caplog.at_level(logging.INFO, "foreshock.sidecar"):
        assert reader.start().steps() == {"llama": [1, 2]}
        (folder / "poem.log").write_text(step(1) + step(2))
        assert reader.steps() == {"llama": [1, 2], "poem": [1, 2]}
    told = [record.getMessage() for record in caplog.records if "poem" in record.getMessage()]
    assert sum("cannot tell the format" in text for text in told) == 1
    assert sum("is read again" in text for text in told) == 1


def test_of_too_many_files_those_written_to_last_are_read(
    reader: Reader, folder: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And the operator is told how many were left out."""
    import os

    monkeypatch.setattr(file, "MOST_FILES", 3)
    for number in range(5):
        path = folder / f"run{number}.log"
        append(path, step(number))
        os.utime(path, (1e9 + number, 1e9 + number))
    with caplog.at_level(logging.WARNING, "foreshock.sidecar"):
        assert reader.start().steps() == {"run2": [2], "run3": [3], "run4": [4]}
        append(folder / "run0.log", step(9))
        assert reader.steps()["run0"] == [0, 9]
    assert reader.position is not None
    assert len(reader.position["paths"]) == 3
    assert sum("of 5 files the 3" in record.getMessage() for record in caplog.records) == 1


def test_a_quiet_file_that_is_not_heard_is_looked_at_as_often_as_the_pattern_is(
    reader: Reader, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sixty-four finished runs cost next to nothing."""
    monkeypatch.setattr(file, "_IDLE_S", -1.0)
    monkeypatch.setattr(file, "_LOOK_S", 3600.0)
    monkeypatch.setattr(changes, "reports_writes", lambda _place: False)
    append(folder / "llama.log", step(1))
    reader.start().steps()
    append(folder / "llama.log", step(2))
    assert reader.steps() == {"llama": [1]}
    assert reader.collector is not None
    reader.collector._turn_due.clear()
    reader.collector._turn_due[str(folder / "llama.log")] = 0.0
    assert reader.steps() == {"llama": [1, 2]}

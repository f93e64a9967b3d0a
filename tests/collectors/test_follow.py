"""Following a file."""

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from collectors.collector import CollectorTurn, Position, SourceError, SourceSettings
from collectors.files.follow import FileCollector, split_format
from parsers.site_rules.rules import RulesFile
from parsers.text.parser import MAX_LINE
from store.records.event import Event

SETTINGS = SourceSettings(node="gpu-017", poll_interval_s=0.01, rotation_grace_s=0.05)


def xid(number: int) -> str:
    """A kernel line that is one event; its pid tells it apart."""
    return (
        f"2025-03-01T04:05:06.789000+00:00 gpu-017 kernel: NVRM: Xid (PCI:0000:0f:00): 79, pid={number}, "
        "name=python, GPU has fallen off the bus.\n"
    )


def pids(events: list[Event]) -> list[Any]:
    """Which lines they came from."""
    return [event.attributes["pid"] for event in events]


class Reader:
    """Reads a path as the runner does, and remembers the last position as the spool does."""

    def __init__(self, spec: str, settings: SourceSettings = SETTINGS) -> None:
        self.spec, self.settings = spec, settings
        self.position: Position | None = None
        self.events: list[Event] = []
        self.gaps: list[Event] = []
        self.turns: list[CollectorTurn] = []
        self.collector: FileCollector | None = None

    def start(self) -> "Reader":
        """Begin, or go on after a crash."""
        self.stop()
        self.collector = FileCollector(self.spec, self.settings)
        self.collector.open(self.position)
        return self

    def stop(self) -> None:
        """As a crash does: nothing is saved but what was."""
        if self.collector is not None:
            self.collector.close()
            self.collector = None

    def turn(self, wait_s: float = 0.03) -> CollectorTurn:
        """One turn."""
        assert self.collector is not None
        collected = self.collector.collect(wait_s)
        self.turns.append(collected)
        self.events += [event for event in collected.events if event.kind != "collector_gap"]
        self.gaps += [event for event in collected.events if event.kind == "collector_gap"]
        if collected.position is not None:
            self.position = collected.position
        return collected

    def until(self, count: int) -> list[Event]:
        """Turns until there are so many events, and a few more in case there are too many."""
        for _ in range(200):
            if len(self.events) >= count:
                break
            self.turn()
        for _ in range(3):
            self.turn()
        assert len(self.events) == count, pids(self.events)
        assert len({event.id for event in self.events}) == count
        return self.events


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """The path that is followed."""
    return tmp_path / "kern.log"


@pytest.fixture
def reader(log: Path) -> Iterator[Reader]:
    """A reader of it, not started."""
    reader = Reader(f"{log}:kernel".removeprefix("file:"))
    yield reader
    reader.stop()


def append(path: Path, *lines: str) -> None:
    """As a logger does."""
    with path.open("a") as file:
        file.write("".join(lines))


def test_a_file_is_read_from_its_start_and_followed(reader: Reader, log: Path) -> None:
    """Lines of before and of after; each names its file and line."""
    append(log, "nothing\n", xid(1))
    reader.start().until(1)
    append(log, xid(2), xid(3))
    events = reader.until(3)
    assert pids(events) == [1, 2, 3]
    assert [(event.line, event.file) for event in events] == [(2, str(log)), (3, str(log)), (4, str(log))]
    assert sum(turn.lines for turn in reader.turns) == 4


def test_a_file_that_is_not_there_yet_is_waited_for(reader: Reader, log: Path) -> None:
    """Its folder may be missing too."""
    reader.start().turn()
    append(log, xid(1))
    reader.until(1)


def test_a_line_without_its_end_waits_for_it(reader: Reader, log: Path) -> None:
    """Half a line is no event, and no half of one is lost over a restart."""
    append(log, xid(1)[:60])
    reader.start().turn()
    assert reader.turn().lines == 0
    reader.start()
    append(log, xid(1)[60:])
    assert pids(reader.until(1)) == [1]


def test_a_renamed_file_is_read_to_its_end_beside_the_new_one(reader: Reader, log: Path) -> None:
    """Its writer holds it open for a while; its last line need not end."""
    append(log, xid(1))
    reader.start().until(1)
    with log.open("a") as writer:
        log.rename(log.with_name("kern.log.1"))
        append(log, xid(10))
        writer.write(xid(2) + xid(3).rstrip("\n"))
        writer.flush()
        assert sorted(pids(reader.until(4))) == [1, 2, 3, 10]
    append(log, xid(11))
    reader.until(5)


def test_a_file_renamed_while_nobody_looked_is_found_again(reader: Reader, log: Path) -> None:
    """By its inode and content; the new one is read too."""
    append(log, xid(1))
    reader.start().until(1)
    reader.stop()
    append(log, xid(2))
    log.rename(log.with_name("kern.log.1"))
    append(log, xid(10))
    reader.start()
    assert sorted(pids(reader.until(3))) == [1, 2, 10]


@pytest.mark.parametrize("restart", [False, True])
def test_a_truncated_file_is_read_from_its_start(reader: Reader, log: Path, restart: bool) -> None:
    """Copied and truncated: the same inode, shorter; an equal line in it is another event."""
    append(log, xid(1), xid(2))
    reader.start().until(2)
    if restart:
        reader.stop()
    os.truncate(log, 0)
    if not restart:
        reader.turn()
    append(log, xid(1))
    if restart:
        reader.start()
    assert pids(reader.until(3)) == [1, 2, 1]
    assert [gap.severity for gap in reader.gaps] == ["warning"] * restart, "what was cut off unseen nobody knows"


def test_a_file_that_was_truncated_and_grew_past_the_position_is_noticed(reader: Reader, log: Path) -> None:
    """The bytes before the position are no longer the same."""
    append(log, xid(1))
    reader.start().until(1)
    log.write_text("".join(xid(i) for i in range(10, 15)))
    assert pids(reader.until(6)) == [1, 10, 11, 12, 13, 14]


def test_a_file_that_vanished_with_its_rest_is_given_up(reader: Reader, log: Path) -> None:
    """Deleted while nobody looked: the next one is read all the same."""
    append(log, xid(1))
    reader.start().until(1)
    reader.stop()
    log.with_name("other").write_text("keeps the inode busy")
    log.rename(log.with_name("elsewhere"))
    append(log, xid(2))
    reader.start()
    assert pids(reader.until(2)) == [1, 2]


@pytest.mark.parametrize("every", [1, 2, 5])
def test_a_restart_after_any_turn_loses_and_doubles_nothing(reader: Reader, log: Path, every: int) -> None:
    """Ids are the same whenever a line is read, so even an unsaved turn is not sent twice."""
    for i in range(20):
        append(log, xid(i), "noise\n")
        if i % every == 0:
            saved = reader.position
            reader.start().turn()
            if i % 3 == 0:
                reader.position = saved  # it died before the spool had the turn
    reader.start()
    for _ in range(30):
        reader.turn()
    unique = {event.id: event for event in reader.events}
    assert sorted(pids(list(unique.values()))) == list(range(20))


def test_a_gigantic_and_a_binary_line_stop_nothing(reader: Reader, log: Path) -> None:
    """They are cut and replaced; the next line is read."""
    with log.open("wb") as file:
        file.write(b"\xff\x00\xfe" * 1000 + b"\n" + b"NVRM: Xid " + b"z" * (MAX_LINE * 16) + b"\n" + xid(1).encode())
    reader.start()
    for _ in range(30):
        reader.turn()
    assert 1 in pids([event for event in reader.events if event.code == 79])


def test_a_table_written_anew_repeats_nothing(tmp_path: Path) -> None:
    """A row of sacct says the same wherever it stands."""
    path = tmp_path / "jobs.csv"
    header = "JobID|JobName|State|Submit|Start|End|NNodes|NodeList|ExitCode\n"
    first = "1|run-a|FAILED|2025-03-01T00:00:00|2025-03-01T00:01:00|2025-03-01T01:00:00|1|gpu-001|1:0\n"
    second = "2|run-a|COMPLETED|2025-03-01T02:00:00|2025-03-01T02:01:00|2025-03-01T03:00:00|1|gpu-001|0:0\n"
    path.write_text(header + first)
    reader = Reader(str(path)).start()
    for _ in range(10):
        reader.turn()
    path.write_text(header + second + first)
    for _ in range(10):
        reader.turn()
    reader.start()
    append(path, second.replace("2|run-a", "3|run-a"))
    for _ in range(10):
        reader.turn()
    reader.stop()
    assert len({event.id for event in reader.events}) == 3
    assert {event.attributes["run"] for event in reader.events} == {"run-a"}


def test_a_training_log_bears_its_file_name_as_run_and_is_told_by_its_content(tmp_path: Path) -> None:
    """No format given: waits until the first lines tell."""
    path = tmp_path / "llama-70b.log"
    path.write_text("> setting up\n")
    reader = Reader(str(path)).start()
    assert reader.turn().lines == 0
    line = (
        " [2025-03-01 04:05:{:02d}] iteration {:8d}/ 1000 | elapsed time per iteration (ms): 3000.0 | lm loss: 7.6 |\n"
    )
    append(path, line.format(6, 1), line.format(9, 2))
    for _ in range(10):
        reader.turn()
    reader.start()
    append(path, line.format(12, 3))
    for _ in range(10):
        reader.turn()
    reader.stop()
    iterations = [event for event in reader.events if event.kind == "iteration"]
    assert [event.attributes["iteration"] for event in iterations] == [1, 2, 3]
    assert {event.attributes["run"] for event in iterations} == {"llama-70b"}
    assert iterations[2].attributes["iterations"] == 1, "the parser knows the line before the restart"


def test_a_file_of_no_known_format_is_refused_with_a_remedy(tmp_path: Path) -> None:
    """Once there are lines enough to tell."""
    path = tmp_path / "poem.txt"
    path.write_text("the quick brown fox\n" * 5000)
    reader = Reader(str(path)).start()
    with pytest.raises(SourceError, match=r"file:.*poem\.txt:kernel"):
        reader.turn()
    reader.stop()


def test_what_no_user_may_read_is_refused_with_a_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reader: Reader, log: Path
) -> None:
    """Root may read anything, so the refusal is made here."""
    append(log, xid(1))

    def refuse(*_arguments: object, **_options: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("collectors.files.follow.FileTail", refuse)
    with pytest.raises(SourceError, match="may not read"):
        reader.start().turn()


def test_a_spec_is_split_into_path_and_format() -> None:
    """A colon in a path is no format; a word that is none is said."""
    assert split_format("/var/log/kern.log") == (Path("/var/log/kern.log"), None)
    assert split_format("/var/log/kern.log:kernel") == (Path("/var/log/kern.log"), "kernel")
    assert split_format("/var/log/kern.log:auto") == (Path("/var/log/kern.log"), None)
    assert split_format("/var/log/a:b/kern.log") == (Path("/var/log/a:b/kern.log"), None)
    for wrong, message in (("/var/log/x:kernle", "kernle is no format"), ("", "names no file")):
        with pytest.raises(SourceError, match=message):
            split_format(wrong)


def test_each_day_the_parser_learns_the_date_anew(reader: Reader, log: Path) -> None:
    """Years that lines do not name depend on it; nothing is read twice for it."""
    append(log, xid(1))
    reader.start().until(1)
    assert reader.collector is not None
    reader.collector._day = None
    append(log, xid(2))
    assert pids(reader.until(2)) == [1, 2]


def test_a_followed_file_is_read_by_the_sites_rules(log: Path, tmp_path: Path) -> None:
    """Those in force when the line comes."""
    path = tmp_path / "rules.yaml"
    path.write_text("patterns: [{name: stall, program: mmfs, match: 'deadlock on (?P<name>.*)'}]\n")
    append(log, "2025-03-01T04:05:06Z n mmfs[1]: deadlock on fs7\n")
    reader = Reader(f"{log}:kernel", replace(SETTINGS, rules=RulesFile(path).current)).start()
    try:
        assert [event.attributes["name"] for event in reader.until(1)] == ["fs7"]
    finally:
        reader.stop()

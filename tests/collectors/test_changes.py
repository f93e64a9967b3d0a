"""Files that are heard of: real inotify, real rotations; and files that are not heard of."""

import ctypes
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from real.patience import patience

from collectors.collector import Collector, CollectorTurn, SourceSettings, Wake
from collectors.files import changes, follow
from collectors.files.changes import Changes, reports_writes
from collectors.registry import make_collector
from collectors.sources import file
from store.records.event import Event

SETTINGS = SourceSettings(node="gpu-017", poll_interval_s=0.01, rotation_grace_s=0.05)
LONG_S = 3600.0
DEADLINE_S = patience(20.0)  # a test that hears nothing fails


def xid(number: int) -> str:
    """A kernel line that is one event; its pid tells it apart."""
    return f"2025-03-01T04:05:06.789000+00:00 gpu-017 kernel: NVRM: Xid (PCI:0000:0f:00): 79, pid={number}, lost.\n"


def append(path: Path, *lines: str) -> None:
    """As a logger does."""
    with path.open("a") as file:
        file.write("".join(lines))


def pids(events: tuple[Event, ...] | list[Event]) -> list[Any]:
    """Which lines they came from."""
    return [event.attributes["pid"] for event in events]


@pytest.fixture
def heard() -> Iterator[Changes]:
    """One descriptor."""
    heard = Changes(Wake(), 0.0)
    yield heard
    heard.close()


@pytest.fixture
def no_second_look(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is not heard of is never seen: a test that waits for it would not end."""
    monkeypatch.setattr(follow, "UNHEARD_S", LONG_S)
    monkeypatch.setattr(file, "UNHEARD_S", LONG_S)
    monkeypatch.setattr(file, "_LOOK_S", 0.0)


class Following:
    """A collector with a position, asked with waits that only a change can end."""

    def __init__(self, spec: str) -> None:
        self.collector: Collector = make_collector(spec, SETTINGS)
        self.collector.open(None)

    def next(self) -> list[Any]:
        """The pids of the next turn that gives events."""
        end = time.monotonic() + DEADLINE_S
        while time.monotonic() < end:
            collected = self.collector.collect(DEADLINE_S)
            if collected.events and time.monotonic() < end:  # the look at the end of a turn hears nothing
                return pids(collected.events)
        raise AssertionError("nothing was heard")

    def after(self, act: Callable[..., object], *arguments: object) -> list[Any]:
        """The same, where something is done while it waits."""
        timer = threading.Timer(0.05, act, arguments)
        timer.start()
        try:
            return self.next()
        finally:
            timer.join()

    def settle(self) -> None:
        """Turns enough that nothing is left to do but wait for changes."""
        for _ in range(5):
            assert not self.collector.collect(0.02).events


@pytest.fixture
def following(tmp_path: Path) -> Iterator[Following]:
    """`kern.log`, with one line in it that was read."""
    append(tmp_path / "kern.log", xid(1))
    following = Following(f"file:{tmp_path}/kern.log:kernel")
    assert following.next() == [1]
    following.settle()
    yield following
    following.collector.close()


def test_only_the_owner_of_what_changed_is_told(heard: Changes, tmp_path: Path) -> None:
    """A file's writing, a name in a folder, any name in a folder."""
    one, two = tmp_path / "one", tmp_path / "two"
    one.touch()
    two.touch()
    heard.watch_file(one, "one")
    heard.watch_file(two, "two")
    append(two, "x")
    assert heard.wait(DEADLINE_S) == {"two"}
    append(one, "x")
    assert heard.wait(DEADLINE_S) == {"one"}
    heard.watch_folder(tmp_path, "three", "three")
    (tmp_path / "other").touch()
    (tmp_path / "three").touch()
    assert heard.wait(DEADLINE_S) == {"three"}
    heard.watch_folder(tmp_path, "any")
    (tmp_path / "other").rename(tmp_path / "another")
    assert heard.wait(DEADLINE_S) == {"any"}


def test_an_owner_that_left_is_not_told_and_the_others_still_are(heard: Changes, tmp_path: Path) -> None:
    """Two may follow the same file by two names; the last that leaves ends the watch."""
    path = tmp_path / "log"
    path.touch()
    link = tmp_path / "link"
    link.hardlink_to(path)
    watch, same = heard.watch_file(path, "a"), heard.watch_file(link, "b")
    assert watch == same
    heard.leave(watch, "a")
    append(path, "x")
    assert heard.wait(DEADLINE_S) == {"b"}
    heard.leave(watch, "b")
    assert not heard.sees(watch)
    append(path, "x")
    other = tmp_path / "other"
    other.touch()
    heard.watch_file(other, "c")
    append(other, "x")
    assert heard.wait(DEADLINE_S) == {"c"}


def test_a_watch_ends_with_its_folder(heard: Changes, tmp_path: Path) -> None:
    """Its owner is told, and sees that it must ask anew."""
    folder = tmp_path / "run"
    folder.mkdir()
    watch = heard.watch_folder(folder, "run", "log")
    assert heard.sees(watch)
    folder.rmdir()
    assert heard.wait(DEADLINE_S) == {"run"}
    assert not heard.sees(watch)


def test_where_events_were_dropped_everybody_looks(heard: Changes) -> None:
    """The kernel's queue ran over: who was meant is not known."""
    heard._whose = {1: [("a", None)], 2: [("b", "log"), ("c", None)]}
    assert heard._touched(changes._EVENT.pack(-1, changes._OVERFLOW, 0, 0)) == {"a", "b", "c"}


def test_two_waits_end_apart_so_that_lines_are_read_together(tmp_path: Path) -> None:
    """A busy log is not looked at for each of its lines."""
    slow = Changes(Wake(), 0.05)
    path = tmp_path / "log"
    path.touch()
    slow.watch_file(path, "log")
    ended = []
    for _ in range(2):
        append(path, "x")
        assert slow.wait(DEADLINE_S) == {"log"}
        ended.append(slow._ended)
    slow.close()
    assert ended[1] - ended[0] >= 0.05


def test_a_quiet_wait_is_one_sleep(monkeypatch: pytest.MonkeyPatch) -> None:
    """The pause is made only where something was heard soon after the last: waking is what a quiet file costs."""
    slow = Changes(Wake(), 0.05)
    waits: list[float] = []
    monkeypatch.setattr(Wake, "wait", lambda _self, wait_s, *_descriptors: waits.append(wait_s) or time.sleep(wait_s))
    for _ in range(2):
        assert slow.wait(0.1) == set()
    assert len(waits) == 2
    slow.close()


def test_a_busy_log_ends_one_sleep_a_pause(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its next line is sure to come meanwhile: what was written in the pause is told when that is over."""
    slow = Changes(Wake(), patience(0.2))  # within it each step of the test is "soon"
    path = tmp_path / "log"
    path.touch()
    slow.watch_file(path, "log")
    slow._ended = time.monotonic()
    append(path, "x")
    assert slow.wait(DEADLINE_S) == {"log"}
    assert slow._busy
    slept: list[bool] = []
    wait = Wake.wait
    monkeypatch.setattr(Wake, "wait", lambda self, wait_s, *fds: (slept.append(not fds), wait(self, wait_s, *fds))[1])
    append(path, "x")
    assert slow.wait(DEADLINE_S) == {"log"}
    assert slept[0], "the pause first"
    append(path, "x")
    assert slow.wait(0.001) == set(), "no longer than was asked"
    assert slow.wait(DEADLINE_S) == {"log"}
    slow.close()


@pytest.mark.parametrize(("place", "expected"), [("/proc/self", False), ("/sys", False), ("/no/such/place", False)])
def test_a_file_system_that_is_not_known_to_tell_is_not_trusted(place: str, expected: bool) -> None:
    """Whatever is in /proc changes without a word."""
    assert reports_writes(os.fsencode(place)) is expected


def test_a_line_is_read_when_it_is_written(following: Following, tmp_path: Path, no_second_look: None) -> None:
    """Nothing but the writing ends these waits, of an hour each."""
    for number in (2, 3):
        assert following.after(append, tmp_path / "kern.log", xid(number)) == [number]


def test_quiet_lines_are_one_look_each_and_told_of_together(
    following: Following, tmp_path: Path, no_second_look: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Read to its end with nothing held back, the file is looked at when it is written to; a turn ends with news."""
    monkeypatch.setattr(follow, "_QUIET_S", LONG_S)
    looked = threading.Semaphore(0)
    find = follow.FileCollector._find

    def look(collector: follow.FileCollector) -> None:
        find(collector)
        looked.release()

    def write() -> None:
        for _ in range(3):
            append(tmp_path / "kern.log", "2025-03-01T04:05:06+00:00 gpu-017 kernel: usb 1-1: new device\n")
            assert looked.acquire(timeout=DEADLINE_S)
        append(tmp_path / "kern.log", xid(2))

    monkeypatch.setattr(follow.FileCollector, "_find", look)
    writer = threading.Timer(0.05, write)
    writer.start()
    collected = following.collector.collect(DEADLINE_S)
    writer.join()
    assert (collected.lines, pids(collected.events)) == (4, [2])
    assert looked.acquire(blocking=False), "the look that found the fault"
    assert not looked.acquire(blocking=False), "no other"


def test_quiet_lines_alone_are_told_of_after_a_while(
    following: Following, tmp_path: Path, no_second_look: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sidecar's figures are never old, however quiet the log."""
    monkeypatch.setattr(follow, "_QUIET_S", 0.05)
    append(tmp_path / "kern.log", "2025-03-01T04:05:06+00:00 gpu-017 kernel: usb 1-1: new device\n")
    began = time.monotonic()
    assert following.collector.collect(DEADLINE_S).lines == 1
    assert time.monotonic() < began + DEADLINE_S


def test_what_is_held_back_is_looked_for_soon(following: Following, tmp_path: Path, no_second_look: None) -> None:
    """Nothing more is written: what a parser holds comes all the same."""
    append(tmp_path / "kern.log", "[ 1.0] pcieport 0000:00:01.0: AER: Uncorrected (Fatal) error received: id=0008\n")
    assert [event.kind for event in following.collector.collect(DEADLINE_S).events] == ["pcie_aer"]


def test_a_renamed_file_and_its_heir_are_both_heard(following: Following, tmp_path: Path, no_second_look: None) -> None:
    """logrotate's `create`: the old one is still written to for a moment."""
    log = tmp_path / "kern.log"
    append(log, xid(2))

    def rename() -> None:
        log.rename(tmp_path / "kern.log.1")
        append(tmp_path / "kern.log.1", xid(3))

    assert following.next() == [2]
    following.settle()
    assert following.after(rename) == [3]
    following.settle()
    assert following.after(append, log, xid(4)) == [4]
    following.settle()
    assert following.after(append, log, xid(5)) == [5], "the heir is heard as the first one was"


def test_a_truncated_file_is_heard(following: Following, tmp_path: Path, no_second_look: None) -> None:
    """logrotate's `copytruncate`."""
    os.truncate(tmp_path / "kern.log", 0)
    following.settle()
    assert following.after(append, tmp_path / "kern.log", xid(2)) == [2]
    following.settle()
    assert following.after(append, tmp_path / "kern.log", xid(3)) == [3]


def test_a_file_and_its_folder_that_come_later_are_heard(tmp_path: Path, no_second_look: None) -> None:
    """Where there is no folder there is nothing to hear: it is looked for, then heard."""
    folder = tmp_path / "later"
    following = Following(f"file:{folder}/kern.log:kernel")
    following.settle()
    folder.mkdir()
    following.settle()
    assert following.after(append, folder / "kern.log", xid(1)) == [1]
    following.settle()
    assert following.after(append, folder / "kern.log", xid(2)) == [2]
    (folder / "kern.log").unlink()
    folder.rmdir()
    following.settle()
    folder.mkdir()
    following.settle()
    assert isinstance(following.collector, follow.FileCollector)
    assert following.collector.look_in_s == LONG_S, "the new folder is heard as the first one was"
    following.collector.close()


def test_new_files_of_a_pattern_are_heard_and_quiet_ones_have_no_turn(
    tmp_path: Path, no_second_look: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All share one descriptor; a file's line costs the others nothing."""
    for number in (1, 2):
        append(tmp_path / f"run{number}.log", xid(number))
    following = Following(f"file:{tmp_path}/*.log:kernel")
    assert sorted(following.next()) == [1, 2]
    following.settle()
    turns: list[str] = []
    turn = file.FilesCollector._turn
    monkeypatch.setattr(file.FilesCollector, "_turn", lambda self, path: turns.append(path) or turn(self, path))
    assert following.after(append, tmp_path / "run3.log", xid(3)) == [3]
    following.settle()
    assert following.after(append, tmp_path / "run1.log", xid(4)) == [4]
    assert str(tmp_path / "run2.log") not in turns
    following.collector.close()


@pytest.mark.parametrize("call", ["inotify_init1", "inotify_add_watch"])
def test_without_a_watch_files_are_polled_and_that_is_said_once(
    call: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, no_second_look: None
) -> None:
    """The user's instances or watches are used up: another program has them all."""

    class Spent:
        """libc, where one call fails."""

        def __getattr__(self, name: str) -> Any:
            return getattr(ctypes.CDLL(None, use_errno=True), name)

    def refuse(*_arguments: object) -> int:
        ctypes.set_errno(28)
        return -1

    spent = Spent()
    setattr(spent, call, refuse)
    monkeypatch.setattr(changes, "_LIBC", spent)
    following = Following(f"file:{tmp_path}/kern.log:kernel")
    assert following.after(append, tmp_path / "kern.log", xid(1)) == [1]
    following.settle()
    assert following.after(append, tmp_path / "kern.log", xid(2)) == [2]
    following.collector.close()
    assert [record.getMessage() for record in caplog.records if "inotify" in record.getMessage()] == [
        "this user's inotify is used up (sysctl fs.inotify): files are looked at again and again"
    ]


def test_what_is_heard_is_looked_at_now_and_then_all_the_same(
    following: Following, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not every write is told (a mapping's is not): nothing is said of this one, and it is read."""
    monkeypatch.setattr(follow, "UNHEARD_S", 0.05)
    monkeypatch.setattr(Changes, "_touched", lambda _self, _data: set())
    assert following.after(append, tmp_path / "kern.log", xid(2)) == [2]


@pytest.mark.parametrize("pattern", ["kern.log", "*.log"])
def test_a_stop_ends_the_wait_of_a_quiet_source_at_once(tmp_path: Path, pattern: str, no_second_look: None) -> None:
    """And what was read is given with it."""
    append(tmp_path / "kern.log", xid(1))
    following = Following(f"file:{tmp_path}/{pattern}:kernel")
    assert following.next() == [1]
    turns: list[CollectorTurn] = []
    waiting = threading.Thread(target=lambda: turns.append(following.collector.collect(LONG_S)), daemon=True)
    waiting.start()
    following.collector.wake.set()
    waiting.join(patience(20))
    assert not waiting.is_alive()
    assert turns[0].events == ()
    assert turns[0].position is not None
    following.collector.close()


def test_closed_it_holds_nothing_open(tmp_path: Path) -> None:
    """Opened again and again, as after failures, it does not gather descriptors."""
    append(tmp_path / "kern.log", xid(1))
    following = Following(f"file:{tmp_path}/kern.log:kernel")
    counts = []
    for _ in range(3):
        following.next()
        following.collector.close()
        counts.append(sum(1 for _ in Path("/proc/self/fd").iterdir()))
        following.collector.open(None)
        append(tmp_path / "kern.log", xid(2))
    following.collector.close()
    assert len(set(counts)) == 1

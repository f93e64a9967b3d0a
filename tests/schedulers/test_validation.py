"""The operator's test of held nodes: real processes, real rows."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from real.patience import patience

from schedulers.lifecycle.release import next_step
from schedulers.lifecycle.tickets import close_ticket
from schedulers.lifecycle.validation import Validator
from schedulers.policy.settings import Release
from store.database.connections import writing
from store.hints.hint_log import audit_page, change_state, read_hint, save_hint
from store.hints.validations import (
    Validation,
    begin_validation,
    report_validation,
    unfinished,
    validations_of,
)
from store.records.hint import Evidence, Hint, ReleaseWait, RepairCase

from .cluster import HOUR, NOW, hint
from .receivers import Scripted, turn

PATIENCE_S = patience(60.0)


def waiting(engine: sa.Engine, node: str = "a", state: Any = "confirmed") -> Hint:
    """A held node that is to pass its test."""
    one = hint(node, state="approved", hours_ago=5, release=ReleaseWait(NOW, "for its test"))
    with writing(engine).begin() as connection:
        save_hint(connection, one, NOW - 5 * HOUR, {"change": "made"})
        taken = change_state(connection, one, "sent", NOW, "scheduler")
        return change_state(connection, taken, state, NOW, "scheduler") if state != "sent" else taken


def shell(script: str, **settings: Any) -> Release:
    """Settings whose test is a little script; the node is its first argument."""
    return Release(validate=("sh", "-c", script, "test", "{node}"), **settings)


class Bench:
    """A validator, and what became of its tests."""

    def __init__(self, engine: sa.Engine) -> None:
        self.engine = engine
        self.told: list[str] = []
        self.validator = Validator(engine, lambda: NOW, self.told.append)

    def run(self, release: Release | None, keep_on: Callable[[], bool] = lambda: True) -> list[Validation]:
        """One turn, to its end; all rows of node a's hint."""
        self.validator.turn(lambda: release, keep_on)
        return self.rows()

    def rows(self, node: str = "a") -> list[Validation]:
        """The tests of a node's hint."""
        with self.engine.connect() as connection:
            return validations_of(connection, [f"h-{node}"]).get(f"h-{node}", [])


@pytest.fixture
def bench(engine: sa.Engine) -> Bench:
    """Over SQLite."""
    return Bench(engine)


def until(met: Callable[[], bool]) -> None:
    """Wait for a condition, not for a time."""
    deadline = time.monotonic() + PATIENCE_S
    while not met():
        assert time.monotonic() < deadline, "it never came"
        time.sleep(0.02)


def alive(pid: int) -> bool:
    """Whether a process runs; a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_a_test_passes_by_its_exit_code(any_engine: sa.Engine) -> None:
    """The node is its argument; the row and the audit tell what it said."""
    waiting(any_engine)
    bench = Bench(any_engine)
    (row,) = bench.run(shell('echo "node $1"; echo fine >&2'))
    assert (row.passed, row.exit_code, row.output, row.started, row.ended) == (True, 0, "node a\nfine\n", NOW, NOW)
    assert row.command.endswith(" test a")
    assert bench.told == ["passed"]
    with any_engine.connect() as connection:
        entries = [entry for entry in audit_page(connection, 9, None, "h-a") if entry["actor"] == "validation"]
        assert [entry["detail"]["test"] for entry in entries] == ["passed", "begun"]
    assert bench.run(shell("exit 1")) == [row]


def test_a_test_that_fails_is_not_begun_again_at_once(bench: Bench) -> None:
    """Its exit code is kept."""
    waiting(bench.engine)
    assert [(row.passed, row.exit_code) for row in bench.run(shell("exit 3"))] == [(False, 3)]
    assert len(bench.run(shell("exit 3"))) == 1
    assert len(bench.run(shell("exit 3", retry_s=0.0, most_tries=3))) == 3
    assert bench.told == ["failed"] * 3


def test_only_the_end_of_what_a_test_says_is_kept(bench: Bench) -> None:
    """4 kB, however much it says; bytes that are no text harm nothing."""
    waiting(bench.engine)
    (row,) = bench.run(shell(r"head -c 3000000 /dev/zero | tr '\0' x; printf '\377\000the end'"))
    assert (row.passed, row.output.endswith("the end")) == (True, True)
    assert 4000 < len(row.output.encode()) <= 4096


def test_a_test_is_told_its_node_and_none_of_our_secrets(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """FORESHOCK_NODE, FORESHOCK_HINT; the rest of the environment as it is."""
    monkeypatch.setenv("FORESHOCK_TOKEN", "secret")
    monkeypatch.setenv("CLUSTER", "c1")
    waiting(bench.engine)
    (row,) = bench.run(shell("env | grep -e FORESHOCK -e CLUSTER | sort"))
    assert row.output.split() == ["CLUSTER=c1", "FORESHOCK_HINT=h-a", "FORESHOCK_NODE=a"]


def test_no_shell_reads_a_node_s_name(bench: Bench, tmp_path: Path) -> None:
    """And what looks like an option or a path is given to no command at all."""
    for node in ("a;touch x", "-rf", "../a", "$(id)", "a\n"):
        waiting(bench.engine, node)
        bench.run(Release(validate=("touch", str(tmp_path / "ran"), "{node}")))
        (row,) = bench.rows(node)
        assert (row.passed, row.exit_code) == (None, 127)
    assert not list(tmp_path.glob("ran"))
    assert set(bench.told) == {"not_started"}


def test_a_test_that_takes_too_long_is_killed_whole(bench: Bench, tmp_path: Path) -> None:
    """With its children; it has failed."""
    waiting(bench.engine)
    pids = tmp_path / "pids"
    (row,) = bench.run(
        shell(f"sleep 1000 & echo $! $$ > {pids}; trap '' TERM; echo begun; wait", timeout_s=patience(1.0))
    )
    assert (row.passed, "begun" in row.output, "its time was up" in row.output) == (False, True, True)
    assert bench.told == ["timed_out"]
    for pid in map(int, pids.read_text().split()):
        until(lambda pid=pid: not alive(pid))


def test_what_a_test_leaves_behind_is_killed(bench: Bench, tmp_path: Path) -> None:
    """It has passed once its first process has ended well; a child that keeps its output open is not waited for."""
    waiting(bench.engine)
    (row,) = bench.run(shell(f"sleep 1000 & echo $! > {tmp_path / 'pid'}; exit 0"))
    assert row.passed is True
    until(lambda: not alive(int((tmp_path / "pid").read_text())))


def test_a_program_that_is_not_there_says_nothing_of_the_node(bench: Bench) -> None:
    """Nor does a test that asks to be called again."""
    waiting(bench.engine)
    (row,) = bench.run(Release(validate=("/no/such/program", "{node}")))
    assert (row.passed, row.exit_code, "cannot be started" in row.output) == (None, 127, True)
    waiting(bench.engine, "b")
    bench.run(shell("echo busy; exit 75"))
    assert [(row.passed, row.exit_code) for row in bench.rows("b")] == [(None, 75)]
    assert bench.told == ["not_started", "put_off"]


@pytest.mark.parametrize("state", ["shadow", "proposed", "withdrawn"])
def test_nothing_is_tested_for_a_hint_that_holds_nothing(bench: Bench, state: Any) -> None:
    """Shadows above all."""
    one = hint("a", state=state, release=ReleaseWait(NOW))
    with writing(bench.engine).begin() as connection:
        save_hint(connection, one, NOW, {})
    assert bench.run(shell("exit 0")) == []


def test_nothing_is_tested_while_all_is_stopped_or_no_test_is_set(bench: Bench) -> None:
    """Nor before the ground of the hold has gone."""
    one = waiting(bench.engine)
    assert bench.run(None) == []
    assert bench.run(Release()) == []
    with writing(bench.engine).begin() as connection:
        save_hint(connection, replace(one, evidence=Evidence()), NOW, {})
    assert bench.run(shell("exit 0")) == []


def test_so_many_tests_run_at_a_time(bench: Bench, tmp_path: Path) -> None:
    """Each counts those beside it."""
    for node in "abcde":
        waiting(bench.engine, node)
    desk = tmp_path / "desk"
    desk.mkdir()
    script = f"touch {desk}/$1; ls {desk} | grep -c . ; sleep 0.3; rm {desk}/$1"
    bench.run(shell(script, at_once=2))
    seen = [int(bench.rows(node)[0].output) for node in "abcde"]
    assert (len(seen), max(seen) <= 2, bench.told) == (5, True, ["passed"] * 5)


class Aside:
    """A turn in a thread, which can be told to end."""

    def __init__(self, bench: Bench, release: Callable[[], Release | None]) -> None:
        self.over = threading.Event()
        turn = lambda: bench.validator.turn(release, lambda: not self.over.is_set())  # noqa: E731
        self.thread = threading.Thread(target=turn)
        self.thread.start()

    def join(self) -> None:
        """Wait for its end."""
        self.thread.join(PATIENCE_S)
        assert not self.thread.is_alive()


@pytest.fixture
def long_test(tmp_path: Path) -> Iterator[tuple[Release, Path]]:
    """A test that never ends by itself, and the file with its process id."""
    yield shell(f"echo $$ > {tmp_path}/p; mv {tmp_path}/p {tmp_path}/pid; exec sleep 1000"), tmp_path / "pid"


def test_who_loses_the_lease_kills_its_tests_and_the_next_one_begins_them_anew(
    bench: Bench, long_test: tuple[Release, Path]
) -> None:
    """A row without an end; then that it was cut off, which is no try, and a new one."""
    release, pid = long_test
    waiting(bench.engine)
    aside = Aside(bench, lambda: release)
    until(pid.exists)
    aside.over.set()
    aside.join()
    until(lambda: not alive(int(pid.read_text())))
    with bench.engine.connect() as connection:
        assert len(unfinished(connection)) == 1
    first, second = bench.run(shell("exit 0"))
    assert (first.passed, first.exit_code, "is gone" in first.output) == (None, None, True)
    assert second.passed is True


def test_a_person_s_release_ends_the_test(bench: Bench, long_test: tuple[Release, Path]) -> None:
    """Work may run there again: the test must not disturb it."""
    release, pid = long_test
    one = waiting(bench.engine)
    aside = Aside(bench, lambda: release)
    until(pid.exists)
    with writing(bench.engine).begin() as connection:
        change_state(connection, one, "released", NOW, "alice")
    aside.join()
    until(lambda: not alive(int(pid.read_text())))
    assert bench.told == ["dropped"]


def test_the_kill_switch_ends_the_tests(bench: Bench, long_test: tuple[Release, Path]) -> None:
    """Hands off, entirely; afterwards they are begun anew."""
    release, pid = long_test
    waiting(bench.engine)
    stopped = threading.Event()
    aside = Aside(bench, lambda: None if stopped.is_set() else release)
    until(pid.exists)
    stopped.set()
    aside.join()
    until(lambda: not alive(int(pid.read_text())))
    assert [row.passed for row in bench.run(shell("exit 0"))] == [None, True]


def test_a_server_that_is_killed_takes_its_tests_along(tmp_path: Path) -> None:
    """By SIGKILL: nobody is left to end them but their own watcher."""
    script = f"sleep 1000 & echo $! $$ > {tmp_path}/p; mv {tmp_path}/p {tmp_path}/pids; wait"
    program = (
        "import subprocess, sys, time\n"
        "words = ['-P', '-m', 'schedulers.lifecycle.validation_process', '1000', 'sh', '-c', sys.argv[1]]\n"
        "subprocess.Popen([sys.executable, *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE)\n"
        "time.sleep(1000)\n"
    )
    with subprocess.Popen([sys.executable, "-P", "-c", program, script]) as server:
        until((tmp_path / "pids").exists)
        pids = [int(pid) for pid in (tmp_path / "pids").read_text().split()]
        assert all(map(alive, pids))
        os.kill(server.pid, signal.SIGKILL)
    for pid in pids:
        until(lambda pid=pid: not alive(pid))


def test_the_watcher_tells_in_json() -> None:
    """As its docstring says."""
    done = _watched("60", "sh", "-c", "echo hi; exit 4")
    assert done == {"exit_code": 4, "timed_out": False, "output": "hi\n", "begun": True}


def _watched(*words: str) -> Any:
    """What the watcher prints of a test; its input stays open until it has."""
    with subprocess.Popen(
        [sys.executable, "-P", "-m", "schedulers.lifecycle.validation_process", *words],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as watcher:
        assert watcher.stdout is not None
        return json.loads(watcher.stdout.read())


def test_rows_of_another_test_system(any_engine: sa.Engine) -> None:
    """A report begins and ends at once; what cannot be text in PostgreSQL is left out; the end of a long one stays."""
    at = datetime(2025, 3, 1, tzinfo=UTC)
    with writing(any_engine).begin() as connection:
        report_validation(connection, replace(hint("a"), id="h1"), "token:ci", at, (False, "bad\x00" + "x" * 9000))
        begin_validation(connection, "h1", "a", "check a", at)
        first, second = validations_of(connection, ["h1", "h2"])["h1"]
        assert (first.command, first.passed, first.ended, len(first.output)) == (
            "reported by token:ci",
            False,
            at,
            4096,
        )
        assert [row.seq for row in unfinished(connection)] == [second.seq]
        assert read_hint(connection, "h1") is None


def test_a_closed_ticket_has_a_failed_node_tested_anew_and_only_a_pass_lets_it_go(bench: Bench) -> None:
    """From the case of repair over its ticket, the closing and the test to what the next step is."""
    one = waiting(bench.engine)
    broken, whole = shell("exit 1", most_tries=1), shell("exit 0", most_tries=1)
    bench.run(broken)
    with writing(bench.engine).begin() as connection:
        case = replace(one, evidence=replace(one.evidence, repair=RepairCase(NOW, 1)))
        save_hint(connection, case, NOW, {"change": "case for repair"}, one)
    desk = Scripted(states=("repair",))
    turn(bench.engine, desk)
    assert [row.passed for row in bench.run(whole)] == [False]  # nothing is run while it is a case
    bench.validator.clock = lambda: NOW + HOUR
    with writing(bench.engine).begin() as connection:
        ticket = desk.got[0].payload["data"]["ticket"]
        held = close_ticket(connection, ticket, ("HW-1", ""), NOW + HOUR, "desk", validates=True)
    rows = bench.rows()
    assert (held.state, next_step(held, rows, None, whole, NOW + HOUR)) == ("confirmed", "test")
    rows = bench.run(whole)
    assert [row.passed for row in rows] == [False, True]
    assert next_step(held, rows, None, whole, NOW + HOUR) == "release"

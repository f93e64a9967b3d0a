"""Runs the operator's test of held nodes that may be released, a few at a time, each in a process of its own.

    validator.turn(settings, keep_on)     # in a loop of its own: begins what is due, takes in what has ended

A test is what `release.validate` says, word by word, with {node} filled in: no shell, no variable of ours beside
FORESHOCK_NODE and FORESHOCK_HINT. Whoever loses the lease kills its tests and leaves their rows without an end; who has
it then begins them anew. A test whose hint has ended is killed: work may run there again.
"""

import json
import logging
import os
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal, TypeAlias

import sqlalchemy as sa

from schedulers.lifecycle.release import PUT_OFF, is_held, next_step
from schedulers.policy.settings import Release
from store.database.connections import writing
from store.hints.hint_log import note, read_hints
from store.hints.outcomes import sent_hints
from store.hints.validations import (
    Validation,
    begin_validation,
    end_validation,
    unfinished,
    validations_of,
)
from store.nodes.node_states import last_faults
from store.records.hint import LIVE_STATES, Hint

ACTOR = "validation"
GONE = "the server that ran it is gone: it is run again"
# A node's name comes from whoever reports of it: none shall be read as an option, or as a path.
NODE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,252}", re.ASCII)
_POLL_S = 0.2
_LOOK_S = 2.0  # how often it is looked whether running tests are still wanted, and others are due
GRACE_S = 10.0  # for the watcher, beyond the test's own time
_DROPPED = "the hint has ended, or all is stopped: the test was killed"
Outcome: TypeAlias = Literal["passed", "failed", "timed_out", "put_off", "not_started", "dropped"]
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ValidationResult:
    """How a test ended; `passed` is None where it says nothing of the node."""

    outcome: Outcome
    passed: bool | None
    exit_code: int | None
    output: str


@dataclass(slots=True)
class _RunningTest:
    """A test at work: its row, its hint, its watcher."""

    row: Validation
    hint: Hint
    child: "subprocess.Popen[bytes]"
    deadline: float


@dataclass(slots=True)
class Validator:
    """The tests of one server; `ended` is told each outcome."""

    engine: sa.Engine
    clock: Callable[[], datetime]
    ended: Callable[[Outcome], object] = lambda _outcome: None
    _running: dict[int, _RunningTest] = field(default_factory=dict)

    def turn(self, release: Callable[[], Release | None], keep_on: Callable[[], bool]) -> None:
        """Run what is due until nothing runs any more.

        Args:
            release: the settings as they are now; None while no test may begin (all is stopped).
            keep_on: False when the lease is lost or the server stops: then all tests are killed.
        """
        try:
            self._drop_strays()
            looked = float("-inf")
            while keep_on():
                if time.monotonic() - looked >= _LOOK_S:
                    looked = time.monotonic()
                    self._look(release())
                if not self._running:
                    return
                if self._take_in():
                    looked = float("-inf")  # there is room for others
                else:
                    time.sleep(_POLL_S)
        finally:
            for seq in list(self._running):
                end_watched(self._running.pop(seq).child)

    def _drop_strays(self) -> None:
        """End the rows of tests that nobody runs: only the holder of the lease comes here, and it runs none yet."""
        with writing(self.engine).begin() as connection:
            for row in unfinished(connection):
                end_validation(connection, row.seq, self.clock(), None, None, GONE)

    def _look(self, release: Release | None) -> None:
        """Kill the tests that nobody wants any more, and begin those that are due."""
        with self.engine.connect() as connection:
            waiting = {hint.id: hint for hint in _waiting(connection)}
            due = [] if release is None else _due(connection, list(waiting.values()), release, self.clock())
        for seq, run in list(self._running.items()):
            if run.hint.id not in waiting or release is None:
                del self._running[seq]
                end_watched(run.child)
                self._end(run.row, run.hint, ValidationResult("dropped", None, None, _DROPPED))
        if release is not None:
            for hint in due[: max(0, release.at_once - len(self._running))]:
                self._begin(hint, release)

    def _begin(self, hint: Hint, release: Release) -> None:
        words = [word.replace("{node}", hint.node) for word in release.validate]
        with writing(self.engine).begin() as connection:
            row = begin_validation(connection, hint.id, hint.node, shlex.join(words), self.clock())
            note(connection, self.clock(), ACTOR, hint, {"test": "begun", "command": row.command})
        if not NODE_NAME.fullmatch(hint.node):
            self._end(
                row,
                hint,
                ValidationResult("not_started", None, 127, f"{hint.node!r} is no host name: no test is begun"),
            )
            return
        told = {"FORESHOCK_NODE": hint.node, "FORESHOCK_HINT": hint.id}
        child = begin_watched(words, release.timeout_s, told)
        self._running[row.seq] = _RunningTest(row, hint, child, time.monotonic() + release.timeout_s + GRACE_S)

    def _take_in(self) -> int:
        """Note the tests that have ended; how many."""
        before = len(self._running)
        for seq, run in list(self._running.items()):
            if run.child.poll() is None and time.monotonic() < run.deadline:
                continue
            del self._running[seq]
            if run.child.poll() is None:
                end_watched(run.child)
                self._end(
                    run.row, run.hint, ValidationResult("timed_out", False, None, "its watcher did not answer in time")
                )
                continue
            self._end(run.row, run.hint, result_of(run.child))
        return before - len(self._running)

    def _end(self, row: Validation, hint: Hint, ended: ValidationResult) -> None:
        now = self.clock()
        with writing(self.engine).begin() as connection:
            end_validation(connection, row.seq, now, ended.passed, ended.exit_code, ended.output)
            output = ended.output.strip()[-200:]
            note(connection, now, ACTOR, hint, {"test": ended.outcome, "exit_code": ended.exit_code, "output": output})
        self.ended(ended.outcome)
        _log.info("the test of node %s: %s", hint.node, ended.outcome)


def begin_watched(words: Sequence[str], timeout_s: float, told: Mapping[str, str]) -> "subprocess.Popen[bytes]":
    """Begin an operator's command under a watcher, which ends it with all its children at its timeout, and with us.

    Args:
        told: variables for the command; our own settings and secrets are none of its business.
    """
    kept = {name: value for name, value in os.environ.items() if not name.startswith("FORESHOCK_")}
    return subprocess.Popen(  # noqa: S603  # our own program
        [sys.executable, "-P", "-m", "schedulers.lifecycle.validation_process", str(timeout_s), *words],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**kept, **told},
    )


def result_of(child: "subprocess.Popen[bytes]") -> ValidationResult:
    """What a watcher that has ended tells of its command."""
    printed = child.stdout.read() if child.stdout else b""
    _close(child)
    try:
        report = json.loads(printed)
        code, output = int(report["exit_code"]), str(report["output"])
        begun, late = report["begun"], report["timed_out"]
    except (ValueError, KeyError, TypeError):
        return ValidationResult("not_started", None, 1, "its watcher said nothing")
    if not begun:
        return ValidationResult("not_started", None, code, output)
    if late:
        return ValidationResult("timed_out", False, code, f"{output}\nkilled: its time was up")
    if code == PUT_OFF:
        return ValidationResult("put_off", None, code, output)
    return ValidationResult("passed" if code == 0 else "failed", code == 0, code, output)


def _waiting(connection: sa.Connection) -> list[Hint]:
    """Hints whose node is held, and whose ground has gone."""
    states = (*LIVE_STATES, "proposed")
    hints = [hint for hint in read_hints(connection, states=states) if hint.evidence.release is not None]
    taken = sent_hints(connection, [hint.id for hint in hints])
    return [hint for hint in hints if is_held(hint, taken)]


def _due(connection: sa.Connection, hints: Sequence[Hint], release: Release, now: datetime) -> list[Hint]:
    if not release.validate:
        return []
    tests = validations_of(connection, [hint.id for hint in hints])
    faults = last_faults(connection, [hint.node for hint in hints])
    steps = ((hint, next_step(hint, tests.get(hint.id, ()), faults.get(hint.node), release, now)) for hint in hints)
    return [hint for hint, step in steps if step == "test"]


def end_watched(child: "subprocess.Popen[bytes]") -> None:
    """End a test: its watcher sees its input end, kills the test's group, and ends itself."""
    if child.stdin is not None:
        child.stdin.close()
    try:
        child.wait(GRACE_S)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()
    _close(child)


def _close(child: "subprocess.Popen[bytes]") -> None:
    for pipe in (child.stdin, child.stdout):
        if pipe is not None:
            pipe.close()
    child.wait()

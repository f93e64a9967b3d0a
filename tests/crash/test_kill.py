"""Sidecar, server and PostgreSQL are killed at random moments under load; every line is in the store exactly once.

CRASH_ROUNDS=200 CRASH_SEED=7 pytest -n0 -s -m crash tests/crash/test_kill.py
"""

import os
import random
import secrets
import sqlite3
import time
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from crash.feeds import KMSG, Feed, KernelLog, KernelRing, Load, TrainingLog
from crash.proof import differences, wait_until_all_is_stored, wait_until_counted
from real.fleet import Fleet, Program, fleet
from real.fleet_postgres import FleetPostgres, fleet_postgres

pytestmark = [pytest.mark.crash, pytest.mark.integration, pytest.mark.xdist_group("crash")]

ROUNDS = int(os.environ.get("CRASH_ROUNDS", "6"))
SEED = int(os.environ.get("CRASH_SEED") or secrets.randbelow(10**6))
NODE = "gpu-017"


def feeds_in(folder: Path) -> list[Feed]:
    """A kernel log, a training log and, where it may be written, the kernel's ring."""
    run = f"run{secrets.token_hex(4)}"
    found: list[Feed] = [KernelLog(folder / "kern.log", "filefeed"), TrainingLog(folder / f"{run}.log")]
    if os.access(KMSG, os.R_OK | os.W_OK):
        # The ring keeps what other runs wrote: the name tells ours.
        found.append(KernelRing(f"ring{secrets.token_hex(4)}"))
    return found


def sources_of(feeds: list[Feed]) -> list[str]:
    """The sidecar's words for the feeds."""
    specs = [f"file:{feed.path}:kernel" for feed in feeds if isinstance(feed, KernelLog)]
    specs += [f"file:{feed.path}:training" for feed in feeds if isinstance(feed, TrainingLog)]
    specs += ["kmsg" for feed in feeds if isinstance(feed, KernelRing)]
    return [word for spec in specs for word in ("--source", spec)]


class Rounds:
    """Random misfortunes, one or two a round, from a seed."""

    def __init__(self, programs: Fleet, agents: list[Program], servers: list[Program], database: FleetPostgres) -> None:
        self._random = random.Random(SEED)
        self._programs = programs
        self._agents = agents
        self._servers = servers
        self._database = database
        self.done: Counter[str] = Counter()

    def play(self, rounds: int) -> None:
        """So many rounds; between them whatever ended is started again, as a service manager does."""
        for _ in range(rounds):
            self._work(self._random.uniform(0.3, 2.0))
            for _ in range(2 if self._random.random() < 0.2 else 1):
                self._one()
            time.sleep(self._random.uniform(0.0, 1.0))
            self._programs.revive()

    def _work(self, duration_s: float) -> None:
        until = time.monotonic() + duration_s
        while (left := until - time.monotonic()) > 0:
            time.sleep(min(left, 0.3))
            self._programs.revive()

    def _one(self) -> None:
        chosen = self._random.choices(("sidecar", "server", "postmaster", "backend", "freeze"), (35, 25, 12, 16, 12))[0]
        self.done[chosen] += 1
        if chosen == "sidecar":
            self._random.choice(self._agents).kill()
        elif chosen == "server":
            self._random.choice(self._servers).kill()
        elif chosen == "postmaster":
            self._database.kill()
        elif chosen == "backend":
            self._database.kill_backend(self._random.random())
        else:
            program = self._random.choice([*self._agents, *self._servers, self._database.program])
            program.freeze()
            time.sleep(self._random.uniform(0.3, 2.5))
            program.thaw()


def settle(programs: Fleet, feeds: list[Feed], rows: Callable[[str], list[tuple[object, ...]]]) -> None:
    """Wait for the rest and hold the store against what was written."""
    wait_until_all_is_stored(rows, feeds, programs.revive)
    left = wait_until_counted(rows)
    wrong = [*differences(rows, feeds), *([left] if left else [])]
    assert not wrong, "\n".join([f"seed {SEED}, logs in {programs.folder}", *wrong, programs.tail()])


def test_every_line_is_in_the_store_once_whatever_is_killed(tmp_path: Path) -> None:
    """kill -9 of sidecar, server, postmaster or a backend, at times two at once; now and then one hangs."""
    print(f"\nseed {SEED}, {ROUNDS} rounds, in {tmp_path}", flush=True)  # noqa: T201  # it is how to play the same again
    feeds = feeds_in(tmp_path)
    with fleet(tmp_path) as programs, fleet_postgres(programs) as database:
        servers = [programs.server(database.url, f"api-{number}") for number in (1, 2)]
        agents = [programs.sidecar([servers[0].url], NODE, *sources_of(feeds))]
        rounds = Rounds(programs, agents, servers, database)
        with Load(feeds, SEED):
            rounds.play(ROUNDS)
        programs.revive()
        settle(programs, feeds, database.rows)
        print({feed.name: len(feed.written) for feed in feeds}, dict(rounds.done), flush=True)  # noqa: T201


def test_every_line_is_in_a_sqlite_file_once_whatever_is_killed(tmp_path: Path) -> None:
    """The same with one server over a file, and only it is killed."""
    chance = random.Random(SEED)
    feeds = feeds_in(tmp_path)[:2]
    file = tmp_path / "foreshock.db"

    def rows(query: str) -> list[tuple[object, ...]]:
        with closing(sqlite3.connect(file, timeout=30)) as connection:
            return connection.execute(query).fetchall()

    with fleet(tmp_path) as programs:
        server = programs.server(f"sqlite:///{file}")
        programs.sidecar([server.url], NODE, *sources_of(feeds))
        with Load(feeds, SEED):
            for _ in range(min(10, max(2, ROUNDS // 3))):
                time.sleep(chance.uniform(1.0, 3.5))
                server.kill()
                time.sleep(chance.uniform(0.0, 0.5))
                programs.revive()
        settle(programs, feeds, rows)

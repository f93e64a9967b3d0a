"""Sidecar, server and PostgreSQL are killed at random moments under load; every line is in the store exactly once.

CRASH_ROUNDS=200 CRASH_SEED=7 pytest -n0 -s -m crash tests/crash/test_kill.py
"""

import random
import sqlite3
import time
from collections import Counter
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import pytest
from crash.feeds import Load
from crash.scene import NODE, ROUNDS, SEED, feeds_in, settle, sources_of
from real.fleet import Fleet, Program, fleet
from real.fleet_postgres import FleetPostgres, fleet_postgres
from real.patience import patience

pytestmark = [pytest.mark.crash, pytest.mark.integration, pytest.mark.xdist_group("kmsg")]


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
        with (self._programs.folder / "rounds.log").open("a") as log:
            log.write(f"{datetime.now(UTC):%H:%M:%S.%f} {chosen}\n")
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


def test_every_line_is_in_the_store_once_whatever_is_killed(tmp_path: Path) -> None:
    """kill -9 of sidecar, server, postmaster or a backend, at times two at once; now and then one hangs."""
    print(f"\nseed {SEED}, {ROUNDS} rounds, in {tmp_path}", flush=True)  # noqa: T201  # it is how to play the same again
    feeds = feeds_in(tmp_path)
    with fleet(tmp_path) as programs, fleet_postgres(programs) as database:
        servers = [programs.server(database.url, f"api-{number}") for number in (1, 2)]
        agents = [programs.sidecar([server.url for server in servers], NODE, *sources_of(feeds))]
        rounds = Rounds(programs, agents, servers, database)
        with Load(feeds, SEED):
            rounds.play(ROUNDS)
        programs.revive()
        settle(programs, feeds, database.rows, "two servers on one PostgreSQL: kill -9 of any, or a stop", ROUNDS)
        print({feed.name: len(feed.written) for feed in feeds}, dict(rounds.done), flush=True)  # noqa: T201


def test_every_line_is_in_a_sqlite_file_once_whatever_is_killed(tmp_path: Path) -> None:
    """The same with one server over a file, and only it is killed."""
    chance, rounds = random.Random(SEED), max(2, ROUNDS // 5)
    feeds = feeds_in(tmp_path)[:2]
    file = tmp_path / "foreshock.db"

    def rows(query: str) -> list[tuple[object, ...]]:
        with closing(sqlite3.connect(file, timeout=patience(30))) as connection:
            return connection.execute(query).fetchall()

    with fleet(tmp_path) as programs:
        server = programs.server(f"sqlite:///{file}")
        programs.sidecar([server.url], NODE, *sources_of(feeds))
        with Load(feeds, SEED):
            for _ in range(rounds):
                time.sleep(chance.uniform(1.0, 3.5))
                server.kill()
                time.sleep(chance.uniform(0.0, 0.5))
                programs.revive()
        settle(programs, feeds, rows, "kill -9 of a server over SQLite", rounds)

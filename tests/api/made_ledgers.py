"""What the loop that computes ledgers is tested with: runs that began a while ago, a clock that is told to go on."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest
import sqlalchemy as sa

from goodput.stored import refresh
from store.database.connections import writing
from store.events.append import append_events, append_jobs
from store.records.event import Event
from store.records.job import Job
from store.runs.ledgers import read_ledger

from .conftest import NOW, Ticks

HOUR = timedelta(hours=1)


def always() -> bool:
    """Nobody asks the loop to stop."""
    return True


def start(engine: sa.Engine, *runs: str, hours: float = 2, ended: bool = False) -> None:
    """Jobs that began a while ago."""
    begin = NOW - hours * HOUR
    end = NOW if ended else None
    with writing(engine).begin() as connection:
        jobs = [Job(run, run, "FAILED" if ended else "RUNNING", begin, begin, end, 1, "n1") for run in runs]
        append_jobs(connection, jobs)


def log(engine: sa.Engine, run: str, *minutes_ago: float) -> None:
    """Iteration lines of a run, of one minute each."""
    lines = []
    for m in minutes_ago:
        attributes = {"run": run, "iteration": int(10_000 - m), "iterations": 1, "elapsed_ms": 60_000.0}
        lines.append(Event(NOW - timedelta(minutes=m), "n1", "training", "iteration", attributes=attributes))
    with writing(engine).begin() as connection:
        append_events(connection, lines, NOW)


def slowly(ticks: Ticks, seconds: float, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Let each ledger cost some time; the list gets the runs as they are made."""
    made: list[str] = []
    make_all = refresh.make_all

    def slow(connection: sa.Connection, runs: Sequence[str], *more: Any) -> Any:
        made.extend(runs)
        ticks.now += seconds * len(runs)
        return make_all(connection, runs, *more)

    monkeypatch.setattr(refresh, "make_all", slow)
    return made


def stored(engine: sa.Engine, run: str) -> Any:
    """The stored ledger."""
    with engine.connect() as connection:
        return read_ledger(connection, run)

"""The runs' ledgers: a background loop computes those that have news and stores them; requests read what is stored.

A ledger is made from the run's folded log and what came in since, a few seconds after a line did; at most every `REST`
times what the last time cost, so that no run takes more than a twentieth of a processor.
"""

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime

import sqlalchemy as sa

from diagnosis.verdicts.run_stops import explain_stops
from goodput.reading.records import TOGETHER, NodeInventory, read_inventory
from goodput.stored.computation import compute, snapshot, store_in_subprocess
from goodput.stored.refresh import bring_up, stale_runs
from store.database.connections import writing
from store.events.ledger_intake import remove_news
from store.runs.jobs import run_names_of_jobs
from store.runs.ledgers import (
    StoredLedger,
    archives_taken,
    ledger_page,
    log_marks,
    read_ledger,
)
from store.runs.losses import mend_days
from store.runs.run_logs import folded_runs, is_folded

REST = 20.0
# What one turn may cost before it leaves the rest to the next, seconds.
_TURN_S = 3.0
# Lines that never were news are looked for this rarely, or when an archive was ingested.
_WHOLE_S = 3600.0
# The log of a run whose ledger nobody has computed yet: up to so many lines a request computes it by itself.
SMALL_LINES = 5_000
# A log of more lines is accounted in a process of its own.
LONG_LINES = 20_000
# How long a list computes such ledgers, seconds; the runs beyond are listed without one.
_SPOT_S = 0.1
_log = logging.getLogger(__name__)


class UnsavedError(RuntimeError):
    """Ledgers were made and could not be stored; the message says why."""


@dataclass(slots=True)
class LedgerTurns:
    """The loop's turns: which runs have news, and when each may be computed again."""

    engine: sa.Engine
    clock: Callable[[], datetime]
    monotonic: Callable[[], float] = time.monotonic
    _due: dict[str, float] = field(default_factory=dict)
    _news: set[str] = field(default_factory=set)
    _anew: set[str] = field(default_factory=set)  # whose log holds what never was news: another version wrote it
    _folded: set[str] = field(default_factory=set)
    _lines: dict[str, int] = field(default_factory=dict)
    _late: dict[int, set[str]] = field(default_factory=dict)  # rows of late faults, and whose ledgers lack them yet
    _whole: tuple[int, float] | None = None  # files of archives, and when the whole log was looked at

    def turn(self, keep_on: Callable[[], bool]) -> None:
        """Compute what has news and is due, the cheapest first."""
        if self._is_whole_due():
            mend_days(self.engine)
        with snapshot(self.engine) as connection:
            self._look(connection)
            machines = read_inventory(connection) if self._news else None
        self._forget()
        began = self.monotonic()
        for part in self._parts(began):
            now = self.monotonic()
            if now - began > _TURN_S or not keep_on():
                return
            self._make(part, machines, keep_on)
            if keep_on():  # else it may have been left undone
                self._forget()
            # Each of them cost its share.
            spent = (self.monotonic() - now) / len(part)
            self._due |= dict.fromkeys(part, self.monotonic() + REST * spent)

    def _parts(self, now: float) -> list[list[str]]:
        """The runs that have news and are due, as many at once as read no more than a long log does."""
        found: list[list[str]] = []
        read = 0
        for run in sorted(self._news, key=lambda run: (self._due.get(run, 0.0), self._lines.get(run, 0), run)):
            if self._due.get(run, now) > now:
                continue
            lines = self._to_read(run)
            if not found or len(found[-1]) >= TOGETHER or read + lines > LONG_LINES:
                found.append([])
                read = 0
            found[-1].append(run)
            read += lines
        return found

    def _to_read(self, run: str) -> int:
        """How many lines must be read for a run's ledger: of what is folded, next to none."""
        return 0 if run in self._folded and run not in self._anew else self._lines.get(run, 0)

    def _make(self, part: Sequence[str], machines: NodeInventory | None, keep_on: Callable[[], bool]) -> None:
        self._news.difference_update(part)
        long = len(part) == 1 and self._to_read(part[0]) > LONG_LINES
        try:
            explain_stops(self.engine, self.clock(), part)
            if long and self.engine.url.database not in (None, "", ":memory:"):
                store_in_subprocess(self.engine.url, part[0], self.clock(), keep_on, part[0] in self._anew)
            else:
                self._make_here(part, machines)
            self._anew.difference_update(part)
        except (sa.exc.SQLAlchemyError, UnsavedError):
            self._news.update(part)
            raise
        except Exception:  # noqa: BLE001  # one run that cannot be accounted keeps no other from it
            if len(part) == 1:
                _log.exception("the ledger of run %r could not be computed", part[0])
            else:
                for run in part:
                    self._make([run], machines, keep_on)

    def _make_here(self, part: Sequence[str], machines: NodeInventory | None) -> None:
        refreshed = bring_up(self.engine, self.clock(), part, self._anew, machines)
        if refreshed.reason is not None:
            raise UnsavedError(refreshed.reason)
        self._news |= refreshed.unsaved.keys()  # another process was quicker, with what it knew

    def _forget(self) -> None:
        """Delete the news of late faults that every ledger has: whoever is stopped before then finds them again."""
        for runs in self._late.values():
            runs &= self._news
        done = [seq for seq, runs in self._late.items() if not runs]
        if done:
            with writing(self.engine).begin() as connection:
                remove_news(connection, done)
            for seq in done:
                del self._late[seq]

    def _is_whole_due(self) -> bool:
        return self._whole is None or self.monotonic() - self._whole[1] > _WHOLE_S

    def _look(self, connection: sa.Connection) -> None:
        """Note the runs of which more is stored than went into their ledger."""
        files = archives_taken(connection)
        whole = self._is_whole_due() or (self._whole is not None and self._whole[0] != files)
        stale = stale_runs(connection, self.clock(), whole, self._late)
        if whole:
            self._whole = (files, self.monotonic())
        self._news |= set(stale.runs)
        self._anew |= stale.anew
        self._lines = dict(stale.runs) | {run: n for run, n in self._lines.items() if run not in stale.runs}
        self._folded = folded_runs(connection) if self._news else set()
        self._late |= {seq: set(stale.runs) for seq in stale.late}


def ledger_of(connection: sa.Connection, run: str, now: datetime) -> StoredLedger | None:
    """A run's ledger as it is stored; else made on the spot from a short log. None: not known, or not yet."""
    stored = read_ledger(connection, run)
    if stored is not None:
        return stored
    lines, _newest = log_marks(connection, run=run).get(run, (0, None))
    return compute(connection, run, now) if lines <= SMALL_LINES else None


def is_quickly_read(connection: sa.Connection, run: str) -> bool:
    """Whether a request may read a run's log by itself: it is kept folded, or short."""
    return is_folded(connection, run) or log_marks(connection, run=run).get(run, (0, None))[0] <= SMALL_LINES


def runs_after(
    connection: sa.Connection, after: str, limit: int, now: datetime
) -> list[tuple[str, StoredLedger | None]]:
    """Runs by name with their ledgers; of those that the loop has not come to, the first few are made on the spot."""
    found: dict[str, StoredLedger | None] = dict.fromkeys(run_names_of_jobs(connection, after, limit))
    found.update((ledger.run, ledger) for ledger in ledger_page(connection, after, limit))
    names = sorted(found)[:limit]
    began = time.monotonic()
    for name in names:
        if found[name] is None and time.monotonic() - began < _SPOT_S:
            found[name] = ledger_of(connection, name, now)
    return [(name, found[name]) for name in names]

"""The runs' stored ledgers brought up to date: only those of which more is stored than went into them are made again.

told = refresh(engine, now)           # every run, or run="llm-70b"
for ledger in read_all(engine, told): print(account_of(ledger))
"""

import os
from collections.abc import Collection, Container, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from heapq import merge
from itertools import groupby
from multiprocessing import get_context
from typing import Any

import sqlalchemy as sa

from goodput.reading.records import NodeInventory, parts, read_inventory
from goodput.stored.computation import FORM, ComputedLedger, keep_all, make_all, snapshot
from store.database.connections import open_database, writing
from store.events.ledger_intake import LATE, LateReport, read_late, read_news, remove_news, runs_with_news
from store.runs.jobs import job_marks, jobs_between, runs_of_job
from store.runs.ledgers import (
    StoredLedger,
    ledger_page,
    log_marks,
    read_ledger,
    records_of_all,
)
from store.runs.run_logs import folded_runs

# Which runs' ledgers a fault or outage may change that came long after: those that used its node at about that time.
#
# touched(connection, late, {"llm-70b": until}, with_jobs={"llm-70b"})

# What explains a stop lies between the attempt's start and this long after its end: a node is marked down within half
# an hour (goodput/wall_time/attempt_painter.py), an incident is looked for within minutes (goodput/cluster/losses.py),
# and clocks differ.
NEAR = timedelta(hours=1)


def affected_runs(
    connection: sa.Connection, late: Sequence[LateReport], until: Mapping[str, datetime], with_jobs: Container[str]
) -> set[str]:
    """The runs to be accounted again.

    Args:
        until: until when each stored ledger goes: one that ended before nobody's fault can change.
        with_jobs: the runs that jobs name. Of another nobody knows its nodes: it counts as touched.
    """
    if not late:
        return set()
    since = min(one.since for one in late)
    requested = {run for run, end in until.items() if end >= since - LATE}
    found = {run for run in requested if run not in with_jobs}
    by_node: dict[str, list[LateReport]] = {}
    for one in late:
        by_node.setdefault(one.node, []).append(one)
    for run, start, end, nodes in jobs_between(connection, since - NEAR, max(x.until for x in late) + NEAR):
        if run not in requested or run in found:
            continue
        near = (one for node in by_node.keys() & nodes for one in by_node[node])
        if not nodes or any(one.until >= start and (end is None or one.since <= end + NEAR) for one in near):
            found.add(run)
    return found


# More lines than these to read from the beginning are worth other processes, which take a second to start.
_ALONE_LINES = 200_000
_PAGE = 500


@dataclass(frozen=True, slots=True)
class StaleRuns:
    """Runs whose stored ledgers are behind, with how many events each has had at least.

    `anew` = their log holds what never was news, so all of it must be read; `late` = the rows of news that say that
    faults came late, for `remove_news` once the ledgers of these runs are stored.
    """

    runs: Mapping[str, int]
    anew: frozenset[str] = frozenset()
    late: Sequence[int] = ()


def stale_runs(
    connection: sa.Connection, now: datetime, whole: bool = True, under_way: Container[int] = ()
) -> StaleRuns:
    """The runs that are to be accounted again.

    Args:
        whole: count all runs' events, to find what was never told as news (another version or a copy wrote it).
        under_way: rows of late faults whose runs the caller knows already.
    """
    late_rows, late = read_late(connection, under_way)
    stored = records_of_all(connection)
    lines = {run: int(records.get("lines", 0)) for run, (_until, records) in stored.items()}
    found = runs_with_news(connection)
    marks = job_marks(connection)
    found |= {run for run, mark in marks.items() if run not in stored or stored[run][1].get("jobs") != mark}
    found |= {run for run, (until, records) in stored.items() if _again(until, records, now)}
    found |= affected_runs(connection, late, {run: until for run, (until, _records) in stored.items()}, marks)
    anew: set[str] = set()
    if whole:
        counted = {run: count for run, (count, _newest) in log_marks(connection).items()}
        # Fewer than there were have been pruned: the stored ledger knows more. Those that wait are no surprise.
        anew = {run for run, count in counted.items() if count > lines.get(run, 0) and run not in found}
        lines = {**counted, **lines}
    return StaleRuns({run: lines.get(run, 0) for run in found | anew}, frozenset(anew), late_rows)


def _again(until: datetime, records: Mapping[str, Any], now: datetime) -> bool:
    """Whether a run is to be accounted again although nothing came in: by another form, or once all faults are in."""
    return records.get("form") != FORM or (not records.get("settled", True) and now - until > LATE)


@dataclass(slots=True)
class RefreshReport:
    """What was made: how many ledgers, those that could not be stored, and why the first of them could not."""

    made: int = 0
    unsaved: dict[str, StoredLedger] = field(default_factory=dict)
    reason: str | None = None


def refresh(engine: sa.Engine, now: datetime, run: str | None = None, workers: int | None = None) -> RefreshReport:
    """Bring the stored ledgers up to date, with several processes where much is to be read.

    Args:
        workers: processes; None: as many as there are processors.
    """
    with snapshot(engine) as connection:
        stale = stale_runs(connection, now)
        whole = stale.anew | (set(stale.runs) - folded_runs(connection))
    runs = [name for name in stale.runs if run is None or name == run]
    count = workers or len(os.sched_getaffinity(0))
    # What is folded is read and written in a moment, however long the log.
    weight = {name: stale.runs[name] if name in whole else 0 for name in runs}
    if count < 2 or sum(weight.values()) < _ALONE_LINES or engine.url.database in (None, "", ":memory:"):
        reported = bring_up(engine, now, runs, stale.anew)
    else:
        shares = _shares(weight, count)
        url = engine.url.render_as_string(hide_password=False)
        with ProcessPoolExecutor(count, mp_context=get_context("spawn")) as pool:
            shared = [pool.submit(_in_subprocess, url, now, share, stale.anew) for share in shares]
            reported = _joined([one.result() for one in shared])
    # Only now: whoever is stopped on the way finds again that faults came late.
    if run is None and not reported.unsaved and reported.reason is None:
        reported.reason = _forget(engine, stale.late)
    return reported


def _shares(weight: Mapping[str, int], count: int) -> list[list[str]]:
    """The runs in shares of about equal weight, the heaviest first in each."""
    shares: list[list[str]] = [[] for _ in range(count)]
    sums = [0] * count
    for name in sorted(weight, key=lambda name: (-weight[name], name)):
        place = sums.index(min(sums))
        shares[place].append(name)
        sums[place] += weight[name] + 500
    return [share for share in shares if share]


def _in_subprocess(url: str, now: datetime, runs: Sequence[str], anew: frozenset[str]) -> RefreshReport:
    engine = open_database(url)
    try:
        return bring_up(engine, now, runs, anew)
    finally:
        engine.dispose()


def bring_up(
    engine: sa.Engine,
    now: datetime,
    runs: Sequence[str],
    anew: Collection[str] = (),
    machines: NodeInventory | None = None,
) -> RefreshReport:
    """Make and store the ledgers of some runs, a part of them at a time.

    Args:
        anew: of these all of the log is read.
        machines: as they were read before, by a caller that comes again and again.
    """
    done = RefreshReport()
    if not runs:
        return done
    if machines is None:
        with snapshot(engine) as connection:
            machines = read_inventory(connection)
    # A log that is read whole is read by itself.
    waiting = [[run] for run in runs if run in anew] + [*parts([run for run in runs if run not in anew])]
    known = set(runs)
    while waiting:
        part = waiting.pop()
        with snapshot(engine) as connection:
            made = make_all(connection, part, now, machines, anew)
            unknown = [run for run in part if run not in made]
            # A launcher knows the number of its job, not the run.
            named = {name for run in unknown for name in runs_of_job(connection, run)} - known
            nameless = [one.seq for news in read_news(connection, unknown).values() for one in news]
        waiting += parts(sorted(named))
        known |= named
        done.reason = done.reason or _forget(engine, nameless)
        _keep(engine, list(made.values()), done)
    return done


def _keep(engine: sa.Engine, made: Sequence[ComputedLedger], done: RefreshReport) -> None:
    """Store what was made, and note what could not be."""
    done.made += len(made)
    try:
        with writing(engine).begin() as connection:
            slower = keep_all(connection, made)
    except sa.exc.DBAPIError as error:
        slower, done.reason = {one.ledger.run for one in made}, done.reason or _words(error)
    done.unsaved |= {one.ledger.run: one.ledger for one in made if one.ledger.run in slower}


def _forget(engine: sa.Engine, seqs: Sequence[int]) -> str | None:
    """Delete rows of news; returns why it could not be done."""
    if seqs:
        try:
            with writing(engine).begin() as connection:
                remove_news(connection, seqs)
        except sa.exc.DBAPIError as error:
            return _words(error)
    return None


def _words(error: sa.exc.DBAPIError) -> str:
    return str(error.orig).strip().splitlines()[0]


def _joined(reported: Sequence[RefreshReport]) -> RefreshReport:
    unsaved = {run: ledger for one in reported for run, ledger in one.unsaved.items()}
    reason = next((one.reason for one in reported if one.reason is not None), None)
    return RefreshReport(sum(one.made for one in reported), unsaved, reason)


def read_all(engine: sa.Engine, reported: RefreshReport, run: str | None = None) -> Iterator[StoredLedger]:
    """The ledgers by run, as they are stored or, where they could not be, as they were made."""
    with engine.connect() as connection:
        stored = _pages(connection) if run is None else iter([one] if (one := read_ledger(connection, run)) else [])
        made = (one for name, one in sorted(reported.unsaved.items()) if run is None or name == run)
        # What could not be stored is newer than what is.
        for _name, same in groupby(merge(made, stored, key=lambda one: one.run), key=lambda one: one.run):
            yield next(same)


def _pages(connection: sa.Connection) -> Iterator[StoredLedger]:
    after = ""
    while page := ledger_page(connection, after, _PAGE):
        yield from page
        after = page[-1].run

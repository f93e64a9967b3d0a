"""Reading runs' records from the store: jobs, log, the faults that may have ended an attempt, outages.

Many runs are read at once: a statement for each run and attempt costs more than what it brings.
"""

from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import groupby
from typing import Any

import sqlalchemy as sa

from goodput.ledger import RunRecords
from goodput.log.training_log import sessions
from goodput.reading.log import RunLog, read_kept_logs, read_log, starts_of
from goodput.timeline import from_ms, to_ms
from goodput.wall_time.attempts import FAULT_CAUSES, FAULT_SEVERITIES, LOST_LINKS, RunAttempt, attempts_of, fault_window
from goodput.wall_time.cycles import cycles_of, with_cycles
from store.events.event_pages import event_of
from store.nodes.inventory import read_nodes, read_outages
from store.records.event import Event
from store.records.event_sources import NO_FAULT
from store.records.job import Job
from store.records.outage import Outage
from store.runs.jobs import jobs_of_runs
from store.tables import schema
from store.verdicts.run_stops import stops_of

# The faults that may have ended attempts, of many runs at once: a short window each, one statement for a day's.
#
# faults = read_faults(connection, {"llm-70b": attempts})["llm-70b"]

# Faults of one attempt that are kept: the first decides, and a flood must not fill the memory.
MAX_FAULTS = 5_000
# Windows of one statement: the database seeks each by itself, and plans for longer the more there are.
_WINDOWS = 50
_PAGE = 5_000
# Milliseconds are rounded down: what was stored within the last one still lies in the window.
_REST = timedelta(microseconds=999)


@dataclass(slots=True)
class _FaultWindow:
    """Between an attempt's last iteration and its end, both included."""

    run: str
    since: datetime
    until: datetime
    nodes: frozenset[str]
    found: list[Event] = field(default_factory=list)

    def take(self, row: Any) -> None:
        """Keep an event within it that is the attempt's: of its nodes, or told by its run."""
        ours = row.run == self.run if row.kind == "training_error" else row.node in self.nodes
        if ours and len(self.found) < MAX_FAULTS:
            self.found.append(event_of(row))


def read_faults(connection: sa.Connection, attempts: Mapping[str, Sequence[RunAttempt]]) -> dict[str, list[Event]]:
    """Of each run the faults between each attempt's last iteration and its end, on its nodes; attempt by attempt."""
    windows = {run: _windows(run, some) for run, some in attempts.items()}
    ordered = sorted((one for some in windows.values() for one in some), key=lambda one: (one.since, one.until))
    # A statement asks for windows of one day: of the partitions it opens one or two.
    for _day, some in groupby(ordered, key=lambda one: one.since.date()):
        listed = list(some)
        for first in range(0, len(listed), _WINDOWS):
            _fill(connection, listed[first : first + _WINDOWS])
    return {run: [event for one in some for event in one.found] for run, some in windows.items()}


def _windows(run: str, attempts: Sequence[RunAttempt]) -> list[_FaultWindow]:
    found = []
    for attempt in attempts:
        end = attempt.end_ms if attempt.end_ms is not None else attempt.last_data_ms
        if end is not None:
            since, until = fault_window(attempt, end)
            found.append(_FaultWindow(run, from_ms(since), from_ms(until) + _REST, attempt.nodes))
    return found


def _fill(connection: sa.Connection, windows: Sequence[_FaultWindow]) -> None:
    """Give each window its events. They come by time, so that few windows are open at a time."""
    waiting = list(reversed(windows))
    current: list[_FaultWindow] = []
    for row in _rows(connection, windows):
        while waiting and waiting[-1].since <= row.time:
            current.append(waiting.pop())
        current = [one for one in current if one.until >= row.time]
        for one in current:
            one.take(row)


def _rows(connection: sa.Connection, windows: Sequence[_FaultWindow]) -> Iterator[Any]:
    """Fault events of any node, and the runs' reported errors, within the windows, by time and id."""
    table = schema.events
    severe = table.c.severity.in_(FAULT_SEVERITIES) & table.c.cause.in_(FAULT_CAUSES)
    lost = table.c.kind.in_(LOST_LINKS) & (table.c.severity != "info")
    machine = table.c.source.not_in(NO_FAULT) & (table.c.kind != "training_error") & (severe | lost)
    # A line that bears no time was stored with the moment of its receipt: that is no time of a fault.
    dated = table.c.time != table.c.received
    reported = (table.c.kind == "training_error") & table.c.run.in_(sorted({one.run for one in windows})) & dated
    query = sa.select(table).where(machine | reported).order_by(table.c.time, table.c.id).limit(_PAGE)
    spans = _joined(windows)
    bounds = table.c.time.between(spans[0][0], spans[-1][1])
    within = sa.or_(*(table.c.time.between(since, until) for since, until in spans))
    after: sa.ColumnElement[bool] = sa.true()
    while True:
        rows = connection.execute(query.where(bounds, within, after)).all()
        yield from rows
        if len(rows) < _PAGE:
            return
        last = rows[-1]
        after = (table.c.time > last.time) | ((table.c.time == last.time) & (table.c.id > last.id))


def _joined(windows: Sequence[_FaultWindow]) -> list[tuple[datetime, datetime]]:
    """Since and until of the windows, those that overlap as one. They are sorted by their beginning."""
    spans: list[tuple[datetime, datetime]] = []
    for one in windows:
        if spans and one.since <= spans[-1][1]:
            spans[-1] = (spans[-1][0], max(spans[-1][1], one.until))
        else:
            spans.append((one.since, one.until))
    return spans


# What NVRx writes of a job: it knows the job's number, not the run's name.
_CYCLES = ("cycle_start", "cycle_end")
# Names in one statement.
_BATCH = 1_000
# Runs that are read at once: their logs lie in the memory together.
TOGETHER = 50


def run_names(connection: sa.Connection) -> list[str]:
    """Every run that a job or a training log names, sorted."""
    jobs = sa.select(schema.jobs.c.run).distinct()
    logs = sa.select(schema.events.c.run).where(schema.events.c.run.is_not(None)).distinct()
    numbers = set(connection.scalars(logs.where(_numbered())))
    return sorted({*connection.scalars(jobs), *(set(connection.scalars(logs)) - numbers)} - {""})


def is_run(connection: sa.Connection, run: str) -> bool:
    """Whether a job or a training log names the run."""
    jobs = sa.select(sa.literal(1)).where(schema.jobs.c.run == run)
    logs = sa.select(sa.literal(1)).where(schema.events.c.run == run, ~_numbered())
    return bool(run) and any(connection.scalar(query.limit(1)) is not None for query in (jobs, logs))


def _numbered() -> sa.ColumnElement[bool]:
    """Whether an event names its run by the number of a job that we know by its name."""
    table = schema.events
    known = sa.exists(sa.select(sa.literal(1)).where(schema.jobs.c.job_id == table.c.run))
    return table.c.kind.in_(_CYCLES) & known


@dataclass(frozen=True, slots=True)
class NodeInventory:
    """What the node table tells of each node: how many GPUs of which model, under which leaf switch."""

    gpus: Mapping[str, int]
    leaves: Mapping[str, str]
    models: Mapping[str, str | None]


def read_inventory(connection: sa.Connection) -> NodeInventory:
    """The GPUs and the leaf of each node, where known."""
    nodes = read_nodes(connection)
    return NodeInventory(
        {node.node: node.gpus for node in nodes if node.gpus is not None},
        {node.node: node.leaf for node in nodes if node.leaf is not None},
        {node.node: node.gpu_model for node in nodes},
    )


def read_records(connection: sa.Connection, run: str, until: datetime | None, machines: NodeInventory) -> RunRecords:
    """All that is known of a run at `until`."""
    jobs = read_run_jobs(connection, [run], until)[run]
    log = RunLog(read_log(connection, run, until, starts_of(jobs)))
    return _records(connection, {run: jobs}, {run: log}, until, machines)[run]


def read_kept_records(
    connection: sa.Connection, runs: Sequence[str], machines: NodeInventory, anew: Container[str] = ()
) -> dict[str, tuple[RunRecords, RunLog]]:
    """All that is known of some runs, their logs as they were kept folded with what came in since (or read `anew`)."""
    jobs = read_run_jobs(connection, runs)
    logs = read_kept_logs(connection, jobs, anew)
    records = _records(connection, jobs, logs, None, machines)
    return {run: (records[run], logs[run]) for run in runs}


def parts(runs: Sequence[str]) -> list[Sequence[str]]:
    """The runs in parts that `read_kept_records` may read at once."""
    return [runs[i : i + TOGETHER] for i in range(0, len(runs), TOGETHER)]


def _records(
    connection: sa.Connection,
    jobs: Mapping[str, list[Job]],
    logs: Mapping[str, RunLog],
    until: datetime | None,
    machines: NodeInventory,
) -> dict[str, RunRecords]:
    until_ms = None if until is None else to_ms(until)
    attempts = {run: attempts_of(own, sessions(logs[run].lines), until_ms) for run, own in jobs.items()}
    faults = read_faults(connection, attempts)
    outages = _outages(connection, attempts, until)
    stops = stops_of(connection, sorted(jobs))
    return {
        run: RunRecords(
            run=run,
            jobs=own,
            log=logs[run].lines,
            faults=faults[run],
            outages=outages[run],
            leaves=machines.leaves,
            gpus=machines.gpus,
            pace=logs[run].pace,
            verdicts={to_ms(end): stop.verdict for end, stop in stops.get(run, {}).items()},
        )
        for run, own in jobs.items()
    }


def read_run_jobs(
    connection: sa.Connection, runs: Sequence[str], until: datetime | None = None
) -> dict[str, list[Job]]:
    """The runs' jobs, cut where NVRx started their processes anew. It names its cycles by the job, or by the run."""
    jobs = jobs_of_runs(connection, runs)
    named = {run: {run, *(job.job_id for job in jobs.get(run, ()))} for run in runs}
    report_words = _cycle_events(connection, sorted(frozenset[str]().union(*named.values())), until)
    return {
        run: with_cycles(jobs.get(run, []), cycles_of([event for name in own for event in report_words.get(name, ())]))
        for run, own in named.items()
    }


def _cycle_events(connection: sa.Connection, names: Sequence[str], until: datetime | None) -> dict[str, list[Event]]:
    """What NVRx tells under each name."""
    table = schema.events
    found: dict[str, list[Event]] = {}
    for first in range(0, len(names), _BATCH):
        query = sa.select(table).where(table.c.kind.in_(_CYCLES), table.c.run.in_(names[first : first + _BATCH]))
        if until is not None:
            query = query.where(table.c.time <= until)
        for row in connection.execute(query):
            found.setdefault(row.run, []).append(event_of(row))
    return found


def _outages(
    connection: sa.Connection, attempts: Mapping[str, Sequence[RunAttempt]], until: datetime | None
) -> dict[str, list[Outage]]:
    """Unplanned outages of each run's nodes since its first start, in order of their start."""
    starts = {run: _first_start(some) for run, some in attempts.items()}
    known = [start for start in starts.values() if start is not None]
    by_node: dict[str, list[Outage]] = {}
    for one in read_outages(connection, until, since=min(known)) if known else ():
        if not one.planned:
            by_node.setdefault(one.node, []).append(one)
    found: dict[str, list[Outage]] = {}
    for run, start in starts.items():
        nodes = by_node.keys() & frozenset[str]().union(*(attempt.nodes for attempt in attempts[run]))
        own = [one for node in nodes for one in by_node[node] if start is not None and one.start >= start]
        found[run] = sorted(own, key=lambda one: (one.start, one.node))
    return found


def _first_start(attempts: Sequence[RunAttempt]) -> datetime | None:
    starts = [attempt.start_ms for attempt in attempts if attempt.start_ms is not None]
    return from_ms(min(starts)) if starts else None

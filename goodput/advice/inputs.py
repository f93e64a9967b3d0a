"""Reading the store for advice: what the ledgers, nodes and outages measured, and the advice that follows from it.

with engine.connect() as connection:
    checkpoint_advice(connection, "llm-70b")["interval_s"]
"""

import math
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from goodput.advice import checkpoint, spares
from goodput.advice.run_history import RunHistory, history_of
from goodput.formulas.foretold import Predictor
from goodput.formulas.sampling import mean_interval
from goodput.ledger import Ledger
from goodput.reading.ledgers import NoRecordsError, no_such_run, read_ledgers
from goodput.timeline import DAY_S
from store import schema
from store.read import newest_time, read_jobs

_NODES, _OUTAGES = schema.nodes, schema.outages
_SIGMAS = 1.96


def checkpoint_advice(
    connection: sa.Connection, run: str | None = None, predictor: Predictor | None = None
) -> dict[str, Any]:
    """The advised checkpoint interval of a run (default: the one that ended last) as plain values.

    Raises:
        NoRecordsError: the run is not known, or its log tells of no finished save.
    """
    ledger = max(read_ledgers(connection, run), key=lambda one: one.end_ms, default=None)
    if ledger is None:
        raise NoRecordsError(no_such_run(connection, run))
    return advice_of(ledger.run, checkpoint_inputs(ledger, history_of(ledger)), predictor)


def advice_of(
    run: str, inputs: checkpoint.CheckpointInputs | None, predictor: Predictor | None = None
) -> dict[str, Any]:
    """The advised checkpoint interval of a run from what its ledger measured, as plain values.

    Raises:
        NoRecordsError: it tells of no finished save.
    """
    if inputs is None:
        raise NoRecordsError(
            f"run {run!r} shows no finished checkpoint save with its duration: "
            "ingest its training log with save timings first"
        )
    return {"run": run, **checkpoint.advise(inputs, predictor=predictor).to_json()}


def checkpoint_inputs(ledger: Ledger, history: RunHistory | None) -> checkpoint.CheckpointInputs | None:
    """What a ledger and its history measured of saves and stops; None where they tell of no finished save.

    The figures are those that gains and what-ifs go by: `run_model.model_of`.
    """
    if history is None or not history.save_s:
        return None
    ways_back = [stop.back_s for stop in history.stops] or [_first_startup_ms(ledger) / 1000]
    save_low, save_high = mean_interval(history.saves_s) or (None, None)
    restart_low, restart_high = mean_interval(ways_back) or (None, None)
    return checkpoint.CheckpointInputs(
        nodes=history.nodes,
        failures=len(history.stops),
        node_days=history.node_days,
        save_s=history.save_s,
        restart_s=sum(ways_back) / len(ways_back),
        interval_s=history.interval_s,
        save_low_s=save_low,
        save_high_s=save_high,
        restart_low_s=restart_low,
        restart_high_s=restart_high,
        memory_share=_memory_share(ledger),
    )


def _memory_share(ledger: Ledger) -> float | None:
    """The share of stops that took one node at most: a copy in another's memory outlives them; None of none known."""
    known = [cut for cut in ledger.interruptions if cut.culprit is not None]
    one_node = [cut for cut in known if cut.culprit is not None and cut.culprit.device.type != "switch"]
    # As many of as many: never quite all (Jeffreys).
    return (len(one_node) + 0.5) / (len(known) + 1) if known else None


def _first_startup_ms(ledger: Ledger) -> int:
    """What a start costs, of a run that was never interrupted."""
    buckets = ledger.buckets_ms
    return (buckets["startup"] + buckets["checkpoint_load"]) // max(1, ledger.attempts)


@dataclass(frozen=True, slots=True)
class Service:
    """The cluster over the time observed: nodes, their days in service, unplanned outages and how long they last."""

    nodes: int
    node_days: float
    outages: int
    mttr_s: float
    mttr_low_s: float | None
    mttr_high_s: float | None


def read_service(connection: sa.Connection) -> Service | None:
    """What nodes and outages tell of the cluster; None where no node or no time is known."""
    spans = connection.execute(
        sa.select(_NODES.c.in_service_since, _NODES.c.in_service_until, sa.func.count()).group_by(
            _NODES.c.in_service_since, _NODES.c.in_service_until
        )
    ).all()
    outages = _unplanned(connection)
    since, until = _observed(connection, outages)
    if not spans or since is None or until is None or until <= since:
        return None
    days = sum(nodes * _service_s(begin, end, (since, until)) for begin, end, nodes in spans) / DAY_S
    count = sum(nodes for *_span, nodes in spans)
    return Service(count, days, outages.outages, _repair_s(connection, outages, until), *_repair_limits(outages))


def spares_advice(connection: sa.Connection, confidence: float = 0.99, run: str | None = None) -> dict[str, Any]:
    """The advised number of spare nodes, for the cluster or for one run's size, as plain values.

    Raises:
        NoRecordsError: no node or no time is known, or not the run.
    """
    service = read_service(connection)
    if service is None:
        raise NoRecordsError("the database knows no nodes over any time: ingest nodes.csv and outages.csv first")
    inputs = spares.SparesInputs(
        nodes=service.nodes if run is None else _nodes_of_run(connection, run),
        outages=service.outages,
        node_days=service.node_days,
        mttr_s=service.mttr_s,
        mttr_low_s=service.mttr_low_s,
        mttr_high_s=service.mttr_high_s,
    )
    return {"run": run, **spares.advise(inputs, confidence).to_json()}


def _repair_limits(outages: Any) -> tuple[float | None, float | None]:
    """The 95 % interval of the mean outage, by its standard error; None of fewer than two that have ended."""
    count = int(outages.ended or 0)
    if count < 2:
        return None, None
    mean = float(outages.length_s) / count
    variance = max(0.0, float(outages.squares_s2) / count - mean**2) * count / (count - 1)
    half = _SIGMAS * math.sqrt(variance / count)
    return max(0.0, mean - half), mean + half


def _unplanned(connection: sa.Connection) -> Any:
    """The unplanned outages in one row: `outages first last ended length_s squares_s2` (sums of those that ended)."""
    start, end = _OUTAGES.c.start, _OUTAGES.c.end
    length = _seconds(connection, end) - _seconds(connection, start)
    moment = schema.UtcTime()
    return connection.execute(
        sa.select(
            sa.func.count().label("outages"),
            sa.func.min(start, type_=moment).label("first"),
            sa.func.max(sa.func.coalesce(end, start), type_=moment).label("last"),
            sa.func.count(end).label("ended"),
            sa.func.sum(length).label("length_s"),
            sa.func.sum(length * length).label("squares_s2"),
        ).where(~_OUTAGES.c.planned)
    ).one()


def _seconds(connection: sa.Connection, column: sa.ColumnElement[Any]) -> sa.ColumnElement[Any]:
    """A moment as seconds since 1970, for arithmetic in the database."""
    if connection.dialect.name == "postgresql":
        return sa.func.extract("epoch", column)
    return sa.type_coerce(column, sa.BigInteger) / sa.literal(1e6)


def _repair_s(connection: sa.Connection, outages: Any, until: datetime) -> float:
    """The mean length of an outage. Open ones have none yet; without any other, they last at least until now."""
    if outages.ended:
        return float(outages.length_s) / int(outages.ended)
    starts = connection.scalars(sa.select(_OUTAGES.c.start).where(~_OUTAGES.c.planned))
    lengths = [(until - start).total_seconds() for start in starts]
    return sum(lengths) / len(lengths) if lengths else 0.0


def _observed(connection: sa.Connection, outages: Any) -> tuple[datetime | None, datetime | None]:
    """From the first to the last thing known of the cluster."""
    column = schema.events.c.time
    earliest = sa.select(sa.func.min(column, type_=schema.UtcTime()))
    # Only what lies before the first outage can be earlier: the days after need no look.
    first = connection.scalar(earliest.where(column < outages.first) if outages.first else earliest)
    begins = [moment for moment in (first, outages.first) if moment is not None]
    ends = [moment for moment in (newest_time(connection), outages.last) if moment is not None]
    return min(begins, default=None), max(ends, default=None)


def _service_s(begin: datetime | None, end: datetime | None, observed: tuple[datetime, datetime]) -> float:
    """Seconds that a node was in service within the time observed; None is a side that nobody knows."""
    since, until = observed
    return max(0.0, (min(until, end or until) - max(since, begin or since)).total_seconds())


def _nodes_of_run(connection: sa.Connection, run: str) -> int:
    jobs = read_jobs(connection, run)
    counts = [job.nodes for job in jobs if job.nodes is not None]
    if not jobs:
        raise NoRecordsError(no_such_run(connection, run))
    if not counts:
        raise NoRecordsError(f"nobody knows how many nodes run {run!r} has: ingest its jobs.csv first")
    return max(counts)

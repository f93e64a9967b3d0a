"""Reading the store for budgets, gains, times between failures and what-ifs; each as plain values.

with engine.connect() as connection:
    history = read_history(connection, "llm-70b")
    gains_advice(connection, history)["gains"][0]["says"]
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import sqlalchemy as sa

from goodput.advice import checkpoint, spares
from goodput.advice.budget import budget
from goodput.advice.checkpoint import CheckpointInputs
from goodput.advice.gains import FORMULA, SOURCE, gains
from goodput.advice.mtbf import RunCount, by_component, component_of, component_of_outage, scale_law
from goodput.advice.run_history import RunHistory, checkpoint_inputs, from_json, goodput, history_of, model_of
from goodput.advice.what_if import RunChange, avoided_by_scores, what_if
from goodput.formulas.checkpoint_interval import Aims, Predictor
from goodput.reading.ledgers import NoRecordsError, no_such_run, read_ledgers
from goodput.timeline import DAY_S
from store.database.known_nodes import is_counted
from store.events.event_pages import newest_time
from store.models.registry import newest_champion
from store.runs.jobs import read_jobs
from store.runs.ledgers import StoredLedger, ledger_page, read_ledger
from store.tables import schema
from wire.money.price import GpuHourPrice, per_day

# Reading the store for advice: what the ledgers, nodes and outages measured, and the advice that follows from it.
#
# with engine.connect() as connection:
#     checkpoint_advice(connection, "llm-70b")["interval_s"]

_NODES = schema.nodes
_OUTAGES = schema.outages
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
    return {
        **advice_of(ledger.run, checkpoint_inputs(ledger, history_of(ledger)), predictor),
        "gpus": ledger.gpus,
    }


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
        sa.select(_NODES.c.in_service_since, _NODES.c.in_service_until, sa.func.count())
        .where(is_counted(_NODES.c.node))
        .group_by(_NODES.c.in_service_since, _NODES.c.in_service_until)
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

    Without any outage nobody knows how long a repair takes: a day is assumed, or no rate would call for a spare.

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
        mttr_s=service.mttr_s if service.outages else spares.ASSUMED_REPAIR_S,
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


def checkpoint_advice_of(ledger: StoredLedger, predictor: Predictor | None = None) -> dict[str, Any]:
    """The advised checkpoint interval of a run, as plain values.

    Raises:
        NoRecordsError: its log tells of no finished save.
    """
    inputs = ledger.content["checkpoint"]
    advice = advice_of(ledger.run, None if inputs is None else CheckpointInputs(**inputs), predictor)
    return {**advice, "gpus": ledger.content["account"]["gpus"]}


MTBF_FORMULA = "failures / node-days; the law: failures = c N^b t, b by maximum likelihood, tested against b = 1"
MTBF_SOURCE = "exact Poisson intervals (Garwood 1936); likelihood ratio (Wilks 1938)"

_PAGE = 500
# A node that stopped a run is marked down by the scheduler within this time, or a little before its job ends.
_BEFORE, _AFTER = timedelta(minutes=5), timedelta(minutes=30)
_TOP = "0.05"


def read_history(connection: sa.Connection, run: str | None = None) -> RunHistory:
    """What a run went through (default: the run whose records end last).

    Raises:
        NoRecordsError: the run is not known, or nothing tells what it did.
    """
    stored = read_ledger(connection, run)
    kept = None if stored is None else from_json(stored.content.get("history"))
    if kept is not None:
        return kept
    name = stored.run if stored is not None and run is None else run
    ledger = max(read_ledgers(connection, name), key=lambda one: one.end_ms, default=None)
    if ledger is None:
        raise NoRecordsError(no_such_run(connection, run))
    history = history_of(ledger)
    if history is None:
        raise NoRecordsError(
            f"nothing tells what run {ledger.run!r} got done: ingest its training log and its jobs first"
        )
    return history


def budget_advice(history: RunHistory, target: float) -> dict[str, Any]:
    """The minutes that a failure may cost, and what it costs."""
    return budget(history, target).to_json()


def gains_advice(
    connection: sa.Connection, history: RunHistory, aims: Aims | None = None, predictor: Predictor | None = None
) -> dict[str, Any]:
    """The ranked gains; without a predictor that of the registered model, where there is one."""
    foretold = predictor or predictor_of(connection)
    found = gains(history, aims, foretold)
    return {
        "run": history.run,
        "gpus": history.gpus,
        "inputs": {
            "nodes": history.nodes,
            "failures": len(history.stops),
            "node_days": history.node_days,
            "goodput_measured": history.goodput,
            "goodput_model": float(goodput(model_of(history))),
            "predictor": None if foretold is None else {"recall": foretold.recall, "precision": foretold.precision},
        },
        "gains": [gain.to_json() for gain in found],
        "formula": FORMULA,
        "source": SOURCE,
    }


def predictor_of(connection: sa.Connection) -> Predictor | None:
    """What the newest champion reached on the quarter that it did not learn from, at 5 % of the nodes flagged."""
    model = newest_champion(connection)
    held_out = None if model is None else (model.metrics or {}).get("holdout")
    if model is None or not held_out:
        return None
    recall = (held_out.get("recall_at_top") or {}).get(_TOP)
    precision = (held_out.get("precision_at_top") or {}).get(_TOP)
    if not recall or not precision:
        return None
    return Predictor(float(recall), float(precision), window_s=model.horizon_h * 3600.0)


def mtbf_advice(connection: sa.Connection) -> dict[str, Any]:
    """Times between failures by component, of the runs' stops and of the cluster's outages; their law with scale.

    Raises:
        NoRecordsError: no run and no outage is known over any time.
    """
    stops: Counter[str] = Counter()
    counts: list[RunCount] = []
    for account in _accounts(connection):
        if account["nodes"] and account["wall_s"]:
            stops.update(_component(cut) for cut in account["interruptions"])
            counts.append(RunCount(account["nodes"], len(account["interruptions"]), account["wall_s"] / DAY_S))
    days = sum(one.nodes * one.days for one in counts)
    law = scale_law(counts)
    service = read_service(connection)
    if not days and service is None:
        raise NoRecordsError("the database knows no run and no node over any time: ingest jobs.csv and nodes.csv first")
    widest = max((one.nodes for one in counts), default=0)
    return {
        "runs": None
        if not days
        else {
            "runs": len(counts),
            "node_days": days,
            "nodes": widest,
            "components": [rate.to_json() for rate in by_component(stops, days, widest)],
        },
        "cluster": None
        if service is None
        else {
            "node_days": service.node_days,
            "nodes": service.nodes,
            "components": [
                rate.to_json() for rate in by_component(_outages(connection), service.node_days, service.nodes)
            ],
        },
        "scale_law": None if law is None else law.to_json(),
        "formula": MTBF_FORMULA,
        "source": MTBF_SOURCE,
    }


def what_if_advice(
    connection: sa.Connection, history: RunHistory, change: RunChange, hold_top: float | None = None
) -> dict[str, Any]:
    """The run's history lived again with a change, and by the formula.

    Args:
        hold_top: leave this share of the nodes, those with the highest stored scores, out of each start.

    Raises:
        ValueError: the change asks for what is not stored: repairs, scores, saves.
    """
    repairs = {} if change.spares is None else repairs_of(connection, history)
    if hold_top is not None:
        # A node that is left out before the start costs the run nothing.
        free = 0.0 if change.move_s is None else change.move_s
        change = replace(change, avoided=avoided_by_scores(connection, history, hold_top), move_s=free)
    told, model = what_if(history, change, repairs).to_json(), model_of(history)
    inputs = {
        "interval_s": model.interval_s,
        "save_s": model.save_s,
        "detection_s": model.detection,
        "waiting_s": model.waiting,
        "restart_s": model.startup + model.checkpoint_load,
    }
    return {**told, "gpus": history.gpus, "inputs": inputs}


def priced(advice: dict[str, Any], price: GpuHourPrice | None) -> dict[str, Any]:
    """Advice with what each gain is worth in a day of the run's GPUs (`money_per_day`); without a price as it was."""
    if price is None:
        return advice

    def worth(one: Mapping[str, Any]) -> dict[str, Any]:
        return {**one, "money_per_day": per_day(one["gain"], advice["gpus"], price)}

    if "gains" in advice:
        return {**advice, "gains": [worth(one) for one in advice["gains"]]}
    if "replayed" in advice:
        return {**advice, **{way: worth(advice[way]) for way in ("replayed", "analytic")}}
    now = advice["goodput_now"]
    return worth({**advice, "gain": None if now is None else advice["goodput_advised"] - now})


def repairs_of(connection: sa.Connection, history: RunHistory) -> dict[int, float]:
    """How long the node of each stop was out, seconds, by the stop's place; only of those that an outage followed."""
    if history.start_s is None:
        return {}
    found = {}
    for place, stop in enumerate(history.stops):
        moment = datetime.fromtimestamp(history.start_s + stop.time_s, UTC)
        if stop.node is None:
            continue
        near = (_OUTAGES.c.start >= moment - _BEFORE) & (_OUTAGES.c.start <= moment + _AFTER)
        query = sa.select(_OUTAGES.c.start, _OUTAGES.c.end).where(_OUTAGES.c.node == stop.node, near)
        row = connection.execute(query.where(~_OUTAGES.c.planned).order_by(_OUTAGES.c.start).limit(1)).first()
        if row is not None:
            # One that lasts still lasts at least until the run's end.
            end = row.end or datetime.fromtimestamp(history.start_s + history.wall_s, UTC)
            found[place] = max(0.0, (end - moment).total_seconds())
    return found


def _accounts(connection: sa.Connection) -> Iterable[Mapping[str, Any]]:
    """The account of every run: as stored, else made now."""
    page = ledger_page(connection, "", _PAGE)
    if not page:
        yield from (ledger.to_json() for ledger in read_ledgers(connection))
    while page:
        yield from (ledger.content["account"] for ledger in page)
        page = ledger_page(connection, page[-1].run, _PAGE)


def _component(cut: Mapping[str, Any]) -> str:
    culprit = cut["culprit"] or {}
    return component_of(culprit.get("type"), culprit.get("kind"), culprit.get("code"), cut["cause"])


def _outages(connection: sa.Connection) -> Counter[str]:
    """Unplanned outages by component."""
    query = sa.select(_OUTAGES.c.reason, _OUTAGES.c.cause, sa.func.count()).where(~_OUTAGES.c.planned)
    found: Counter[str] = Counter()
    for reason, cause, count in connection.execute(query.group_by(_OUTAGES.c.reason, _OUTAGES.c.cause)):
        found[component_of_outage(reason, cause)] += count
    return found

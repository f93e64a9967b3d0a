"""Reading the store for budgets, gains, times between failures and what-ifs; each as plain values.

with engine.connect() as connection:
    history = read_history(connection, "llm-70b")
    gains_advice(connection, history)["gains"][0]["says"]
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import sqlalchemy as sa

from goodput.advice.budget import budget
from goodput.advice.components import component_of, component_of_outage
from goodput.advice.gains import FORMULA, SOURCE, Aims, gains
from goodput.advice.hint_policy import avoided_by_scores
from goodput.advice.inputs import read_service
from goodput.advice.mtbf import RunCount, by_component, scale_law
from goodput.advice.run_history import RunHistory, from_json, history_of
from goodput.advice.run_model import goodput, model_of
from goodput.advice.what_if import Change, what_if
from goodput.formulas.foretold import Predictor
from goodput.reading.ledgers import NoRecordsError, no_such_run, read_ledgers
from goodput.timeline import DAY_S
from store import schema
from store.ledgers import ledger_page, read_ledger
from store.read_models import newest_champion

MTBF_FORMULA = "failures / node-days; the law: failures = c N^b t, b by maximum likelihood, tested against b = 1"
MTBF_SOURCE = "exact Poisson intervals (Garwood 1936); likelihood ratio (Wilks 1938)"

_OUTAGES = schema.outages
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
    connection: sa.Connection, history: RunHistory, change: Change, hold_top: float | None = None
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
    return what_if(history, change, repairs).to_json()


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

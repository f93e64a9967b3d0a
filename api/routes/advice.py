"""`GET /advice/...`: how often to save, how many spares, what a failure may cost, what each change would gain."""

from typing import Annotated, Any

import sqlalchemy as sa
from fastapi import APIRouter, Query, Response
from pydantic import BaseModel

from api.answers.paging import Name
from api.answers.reply import reply
from api.edge.auth import Reader
from api.edge.openapi import PREFIX
from api.edge.problem import Problem
from api.loops.ledgers import ledger_of
from api.server.state import Server, State
from goodput.advice.reading import (
    budget_advice,
    checkpoint_advice_of,
    gains_advice,
    mtbf_advice,
    priced,
    read_history,
    spares_advice,
)
from goodput.advice.run_history import RunHistory, from_json
from goodput.formulas.checkpoint_interval import Aims, Predictor
from goodput.reading.ledgers import NoRecordsError, no_such_run
from store.nodes.inventory import newest_run
from store.runs.ledgers import StoredLedger, read_ledger

router = APIRouter(prefix=PREFIX, tags=["advice"])

MISSING: dict[int | str, dict[str, Any]] = {404: {"description": "Not enough is known for an advice."}}
Share = Annotated[float | None, Query(ge=0.0, le=1.0)]
Seconds = Annotated[float | None, Query(ge=0.0, le=1e9)]


def predictor_from(recall: float | None, precision: float | None, lead_s: float | None = None) -> Predictor | None:
    """The predictor that a request describes; None where it says nothing of one."""
    if (recall is None) != (precision is None) or precision == 0:
        raise Problem(422, "recall and precision belong together, and a precision is above zero")
    if recall is None and lead_s is not None:
        raise Problem(422, "lead_s tells more of a predictor: give its recall and precision too")
    return None if recall is None or precision is None else Predictor(recall, precision, lead_s)


@router.get(
    "/advice/checkpoint",
    operation_id="get_checkpoint_advice",
    summary="How often to save",
    response_model=dict[str, Any],
    responses=MISSING,
)
def get_checkpoint_advice(
    _who: Reader,
    server: Server,
    run: Name | None = None,
    recall: Share = None,
    precision: Share = None,
    lead_s: Seconds = None,
) -> Response:
    """The interval between checkpoints that loses least, with the measured inputs and the formula.

    With the recall and precision of a predictor of failures, the interval that goes with its warnings too.
    """
    predictor = predictor_from(recall, precision, lead_s)
    with server.engine.connect() as connection:
        ledger = _ledger(connection, run, server)
    try:
        return reply(priced(checkpoint_advice_of(ledger, predictor), server.settings.gpu_hour_price))
    except NoRecordsError as error:
        raise Problem(404, str(error)) from error


def _ledger(connection: sa.Connection, run: str | None, server: State) -> StoredLedger:
    """A run's ledger as stored, or made now where the background loop has not come to it: the newest by default."""
    stored = read_ledger(connection, run)
    if stored is None:
        name = run or newest_run(connection)
        stored = None if name is None else ledger_of(connection, name, server.clock())
    if stored is None:
        raise Problem(404, no_such_run(connection, run))
    return stored


def history_for(connection: sa.Connection, run: str | None, server: State) -> RunHistory:
    """What a run went through, from its ledger; made now where an older server stored the ledger."""
    ledger = _ledger(connection, run, server)
    kept = from_json(ledger.content.get("history"))
    if kept is not None:
        return kept
    try:
        return read_history(connection, ledger.run)
    except NoRecordsError as error:
        raise Problem(404, str(error)) from error


@router.get(
    "/advice/spares",
    operation_id="get_spares_advice",
    summary="How many spare nodes",
    response_model=dict[str, Any],
    responses=MISSING,
)
def get_spares_advice(
    _who: Reader,
    server: Server,
    confidence: Annotated[float, Query(gt=0.0, lt=1.0)] = 0.99,
    run: Name | None = None,
) -> Response:
    """The spare nodes that suffice with a probability, for the cluster or one run's size, with the measured inputs."""
    try:
        with server.engine.connect() as connection:
            return reply(spares_advice(connection, confidence, run))
    except NoRecordsError as error:
        raise Problem(404, str(error)) from error


@router.get(
    "/advice/budget",
    operation_id="get_failure_budget",
    summary="What a failure may cost",
    response_model=dict[str, Any],
    responses=MISSING,
)
def get_failure_budget(
    _who: Reader,
    server: Server,
    target: Annotated[float, Query(ge=0.0, lt=1.0)] = 0.95,
    run: Name | None = None,
) -> Response:
    """The seconds that one failure may cost if the run is to reach a target goodput, and what it costs now."""
    with server.engine.connect() as connection:
        history = history_for(connection, run, server)
    try:
        return reply(budget_advice(history, target))
    except ValueError as error:
        raise Problem(404, str(error)) from error


class GainsQuery(BaseModel):
    """Whose gains, the detection aimed at, and a predictor; without one that of the registered model."""

    run: Name | None = None
    detection_s: Seconds = None
    recall: Share = None
    precision: Share = None
    lead_s: Seconds = None


@router.get(
    "/advice/gains",
    operation_id="get_gains",
    summary="What each change would gain",
    response_model=dict[str, Any],
    responses=MISSING,
)
def get_gains(_who: Reader, server: Server, query: Annotated[GainsQuery, Query()]) -> Response:
    """Detection, waiting, restart, saves, worst nodes, prediction: what each would gain, ranked, with intervals."""
    predictor = predictor_from(query.recall, query.precision, query.lead_s)
    aims = Aims() if query.detection_s is None else Aims(detection_s=query.detection_s)
    with server.engine.connect() as connection:
        try:
            return reply(
                priced(
                    gains_advice(connection, history_for(connection, query.run, server), aims, predictor),
                    server.settings.gpu_hour_price,
                )
            )
        except ValueError as error:
            raise Problem(404, str(error)) from error


@router.get(
    "/advice/mtbf",
    operation_id="get_mtbf",
    summary="Time between failures by component",
    response_model=dict[str, Any],
    responses=MISSING,
)
def get_mtbf(_who: Reader, server: Server) -> Response:
    """The time between failures by component, with exact intervals, and whether it falls with the nodes as 1 / N."""
    try:
        with server.engine.connect() as connection:
            return reply(mtbf_advice(connection))
    except NoRecordsError as error:
        raise Problem(404, str(error)) from error

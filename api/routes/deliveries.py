"""Messages to schedulers: `GET /hints/{id}/deliveries`, `POST /deliveries/{id}/replay`, `POST /hints/{id}/ack`."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Path, Response

from api.answers.reply import listing, reply
from api.edge.auth import Approver, Reader, Reporter
from api.edge.body import described, json_of
from api.edge.openapi import PREFIX, answer
from api.edge.problem import Problem
from api.routes.hints import HintId, check_own_hint
from api.server.state import Server
from schedulers.lifecycle.approval import RequestRefusedError
from schedulers.lifecycle.operator_actions import acknowledge, redeliver
from schedulers.reconcile.delivery import action_of
from store.database.connections import writing
from store.hints.hint_log import read_hint
from store.hints.outbox import Delivery, DeliveryAttempt, attempts_of, delivery_history, read_delivery
from wire.hints import AckJson, DeliveryJson, HintJson
from wire.message import Page

router = APIRouter(prefix=PREFIX, tags=["hints"])
DeliveryId = Annotated[str, Path(min_length=1, max_length=600, pattern=r"^[^\x00]*$")]


@router.get(
    "/hints/{hint}/deliveries",
    operation_id="get_deliveries",
    summary="List a hint's deliveries",
    responses=answer(Page[DeliveryJson]) | {404: {"description": "No such hint."}},
)
def get_deliveries(_who: Reader, server: Server, hint: HintId) -> Response:
    """What each receiver was sent or is owed, with every attempt, the oldest first (the last thousand attempts)."""
    with server.engine.connect() as connection:
        if read_hint(connection, hint) is None:
            raise Problem(404, f"no hint has the id {hint!r}")
        return listing([_object(delivery, log) for delivery, log in delivery_history(connection, hint)])


@router.post(
    "/deliveries/{delivery}/replay",
    operation_id="replay_delivery",
    summary="Deliver once more",
    responses=answer(DeliveryJson)
    | {404: {"description": "No such delivery."}, 409: {"description": "Its hint has ended or was raised."}},
)
def replay_delivery(who: Approver, server: Server, delivery: DeliveryId) -> Response:
    """Owe a delivery again, under the same webhook-id: it is made within seconds. A release may always be."""
    try:
        with writing(server.engine).begin() as connection:
            owed = read_delivery(connection, delivery)
            if owed is not None:
                check_own_hint(connection, who, owed.hint)
            made = redeliver(connection, delivery, server.clock(), who.name, server.settings.mode)
            log = [one for one in attempts_of(connection, made.hint) if one.delivery == made.id]
    except RequestRefusedError as error:
        raise Problem(409 if error.known else 404, str(error)) from error
    return reply(_object(made, log))


@router.post(
    "/hints/{hint}/ack",
    operation_id="ack_hint",
    summary="Say what became of a hint",
    responses=answer(HintJson)
    | {404: {"description": "No such hint."}, 409: {"description": "It is not to be acted upon."}},
    openapi_extra=described(AckJson, {"scheduler": "volcano", "result": "confirmed"}),
)
def ack_hint(
    who: Reporter, server: Server, hint: HintId, said: Annotated[AckJson, Depends(json_of(AckJson))]
) -> Response:
    """For a scheduler that pulls: it took the hint, did it, let go of the node, or will not. Twice is once."""
    try:
        with writing(server.engine).begin() as connection:
            check_own_hint(connection, who, hint)
            words = (said.result, said.scheduler, said.detail)
            moved = acknowledge(connection, hint, words, server.clock(), who.name)
    except RequestRefusedError as error:
        raise Problem(409 if error.known else 404, str(error)) from error
    return reply(asdict(moved))


def _object(delivery: Delivery, log: Sequence[DeliveryAttempt]) -> dict[str, Any]:
    found = asdict(delivery)
    del found["payload"]
    names = ("time", "outcome", "status", "duration_s", "detail")
    attempts = [{name: getattr(one, name) for name in names} for one in log]
    return {**found, "action": action_of(delivery), "log": attempts}

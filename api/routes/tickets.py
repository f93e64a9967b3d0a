"""`POST /tickets/{ticket}/close`: a ticket system says that the repair of a held node is done."""

from typing import Annotated

from fastapi import APIRouter, Depends, Path, Response

from api.answers.reply import reply
from api.edge.auth import TicketSystem
from api.edge.body import described, json_of
from api.edge.openapi import PREFIX, answer
from api.edge.problem import Problem
from api.routes.hints import check_own_hint
from api.server.state import Server
from schedulers.lifecycle.approval import RequestRefusedError
from schedulers.lifecycle.tickets import close_ticket, hint_of_ticket
from store.database.connections import in_turn
from wire.hints import TicketClosingJson, TicketJson

router = APIRouter(prefix=PREFIX, tags=["hints"])
TicketId = Annotated[str, Path(min_length=1, max_length=300, pattern=r"^[^\x00]*$")]
Said = Annotated[TicketClosingJson, Depends(json_of(TicketClosingJson))]


@router.post(
    "/tickets/{ticket}/close",
    operation_id="close_ticket",
    summary="Say that a ticket is closed",
    responses=answer(TicketJson)
    | {404: {"description": "No such ticket was opened."}, 409: {"description": "Its hint has ended."}},
    openapi_extra=described(TicketClosingJson, {"reference": "HW-1234", "text": "GPU 3 replaced"}),
)
def post_closing(who: TicketSystem, server: Server, ticket: TicketId, said: Said) -> Response:
    """The tests of its node begin anew. It releases nothing: that takes a test that is passed. Twice is once."""
    validates = bool(server.settings.policy.release.validate)
    try:
        # A turn of the policy that read the hint before does not write over this (`save_hint`).
        with in_turn(server.engine) as connection:
            check_own_hint(connection, who, hint_of_ticket(ticket)[0])
            words = (said.reference, said.text)
            hint = close_ticket(connection, ticket, words, server.clock(), who.name, validates=validates)
    except RequestRefusedError as error:
        raise Problem(409 if error.known else 404, str(error)) from error
    closing = hint.evidence.ticket
    waits = "begins" if hint.evidence.release is not None else "waits"
    return reply(
        {
            "ticket": ticket,
            "hint": hint.id,
            "node": hint.node,
            "state": hint.state,
            "closed": closing and closing.time,
            "by": closing and closing.by,
            "reference": closing and closing.reference,
            "validation": waits if validates else "none",
        }
    )

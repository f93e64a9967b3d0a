"""`GET /whoami`: who the server takes the caller for, and what it may do."""

from fastapi import APIRouter, Response

from api.answers.reply import reply
from api.edge.auth import Reader
from api.edge.openapi import PREFIX, answer
from api.server.settings import SCOPES
from api.server.state import Server
from wire.hints import CallerJson

router = APIRouter(prefix=PREFIX, tags=["health"])


@router.get("/whoami", operation_id="get_whoami", summary="Tell who calls", responses=answer(CallerJson))
def get_whoami(who: Reader, server: Server) -> Response:
    """The name that the audit shows, the person behind it where one signed in, and the scopes of both together."""
    person = who.person
    return reply(
        {
            "name": who.name,
            "person": None if person is None else person.name,
            "role": None if person is None else person.role,
            "scopes": [scope for scope in SCOPES if scope in who.scopes],
            "two_people_above_nodes": server.settings.policy.approval.two_people_above_nodes,
        }
    )

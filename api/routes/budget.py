"""`GET /budget`: how many nodes are held at our request, and how many may be."""

from dataclasses import asdict

from fastapi import APIRouter, Response

from api.answers.reply import reply
from api.edge.auth import Reader
from api.edge.openapi import PREFIX, answer
from api.server.state import Server
from schedulers.policy.budget import holdings
from wire.policy import BudgetJson

router = APIRouter(prefix=PREFIX, tags=["hints"])


@router.get("/budget", operation_id="get_budget", summary="Tell how many nodes are held", responses=answer(BudgetJson))
def get_budget(_who: Reader, server: Server) -> Response:
    """Our own cordons and drains alone; racks, leaves and NVLink domains have limits of their own besides."""
    with server.engine.connect() as connection:
        return reply(asdict(holdings(connection, server.settings.policy, server.clock())))

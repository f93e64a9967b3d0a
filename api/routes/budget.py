"""`GET /budget`: how many nodes are held at our request, and how many may be."""

from dataclasses import asdict

from fastapi import APIRouter, Response
from pydantic import BaseModel

from api.answers.reply import reply
from api.edge.auth import Reader
from api.server.state import Server
from schedulers.policy.budget import holdings

router = APIRouter(tags=["hints"])


class BudgetOut(BaseModel):
    """Nodes that we hold (in shadow mode: would hold) and how many we may; in all, and taken within the hour."""

    held: int
    most: int
    held_within_hour: int
    most_per_hour: int
    nodes: int


@router.get("/budget", operation_id="get_budget", summary="Tell how many nodes are held", response_model=BudgetOut)
def get_budget(_who: Reader, server: Server) -> Response:
    """Our own cordons and drains alone; racks, leaves and NVLink domains have limits of their own besides."""
    with server.engine.connect() as connection:
        return reply(asdict(holdings(connection, server.settings.policy, server.clock())))

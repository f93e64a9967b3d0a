"""`GET /hints/outcomes`: whether hints were right, what they cost and saved, or would have."""

from dataclasses import asdict
from datetime import datetime, timedelta
from typing import Annotated

from fastapi import APIRouter, Query, Response
from pydantic import BaseModel, Field

from api.answers.reply import reply
from api.edge.auth import Reader
from api.server.state import Server
from schedulers.lifecycle.hindsight import Basis, hindsight
from store.records.hint import HintAction

router = APIRouter(tags=["hints"])


class TallyOut(BaseModel):
    """Judged hints of one action and basis. `precision` and its 95 % interval are null for what was acted on.

    GPU-hours are sums of what is known; `unknown_held` and `unknown_saved` count the hints that are no part of them.
    """

    action: HintAction
    basis: Basis
    judged: int
    right: int
    precision: float | None
    low: float | None
    high: float | None
    lead_s: float | None
    held_gpu_h: float
    saved_gpu_h: float
    unknown_held: int
    unknown_saved: int


class HindsightOut(BaseModel):
    """What came of the hints made within a window."""

    since: datetime
    until: datetime
    node_days: float
    false_holds_per_1000_node_days: float | None
    tallies: list[TallyOut]


class HindsightQuery(BaseModel):
    """Over how many days up to now."""

    days: float = Field(default=30.0, gt=0.0, le=3650.0)


@router.get(
    "/hints/outcomes", operation_id="get_hint_outcomes", summary="Tell what came of hints", response_model=HindsightOut
)
def get_hint_outcomes(_who: Reader, server: Server, asked: Annotated[HindsightQuery, Query()]) -> Response:
    """Judged 24 h after each hint was made, holds when they have ended: those of shadow mode above all."""
    now = server.clock()
    with server.engine.connect() as connection:
        return reply(asdict(hindsight(connection, now - timedelta(days=asked.days), now)))

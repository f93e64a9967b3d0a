"""`GET /hints/outcomes`: whether hints were right, what they cost and saved, or would have."""

from dataclasses import asdict
from datetime import timedelta
from typing import Annotated

from fastapi import APIRouter, Query, Response
from pydantic import BaseModel, Field

from api.answers.reply import reply
from api.edge.auth import Reader
from api.edge.openapi import PREFIX, answer
from api.server.state import Server
from schedulers.lifecycle.hindsight import hindsight
from wire.hints import HindsightJson
from wire.money.price import with_money

router = APIRouter(prefix=PREFIX, tags=["hints"])


class HindsightQuery(BaseModel):
    """Over how many days up to now."""

    days: float = Field(default=30.0, gt=0.0, le=3650.0)


@router.get(
    "/hints/outcomes",
    operation_id="get_hint_outcomes",
    summary="Tell what came of hints",
    responses=answer(HindsightJson),
)
def get_hint_outcomes(_who: Reader, server: Server, query: Annotated[HindsightQuery, Query()]) -> Response:
    """Judged 24 h after each hint was made, holds when they have ended: those of shadow mode above all."""
    now = server.clock()
    with server.engine.connect() as connection:
        told = asdict(hindsight(connection, now - timedelta(days=query.days), now))
    price = server.settings.gpu_hour_price
    return reply(told | {"tallies": [with_money(one, price) for one in told["tallies"]]})

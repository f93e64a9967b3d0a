"""`GET /what-if`: a run's stored history lived again with other settings."""

from typing import Annotated

from fastapi import APIRouter, Query, Response
from pydantic import BaseModel, Field

from api.answers.paging import Name
from api.answers.reply import reply
from api.edge.auth import Reader
from api.edge.openapi import PREFIX, answer
from api.edge.problem import Problem
from api.routes.advice import MISSING, Seconds, Share, history_for, predictor_from
from api.server.state import Server
from goodput.advice.reading import priced, what_if_advice
from goodput.advice.what_if import RunChange
from wire.advice import WhatIfJson

router = APIRouter(prefix=PREFIX, tags=["advice"])


class WhatIfQuery(BaseModel):
    """What would be otherwise; what is not said stays as it was."""

    run: Name | None = None
    interval_s: float | None = Field(default=None, gt=0, le=1e9, description="Work between two saves.")
    save_s: Seconds = None
    write_s: Seconds = None
    detection_s: Seconds = None
    restart_s: Seconds = None
    move_s: Seconds = None
    spares: int | None = Field(default=None, ge=0, le=1_000_000)
    recall: Share = None
    precision: Share = None
    lead_s: Seconds = None
    hold_top: float | None = Field(default=None, gt=0, le=1, description="The share of the nodes left out of a start.")


@router.get(
    "/what-if",
    operation_id="get_what_if",
    summary="A run's history lived again",
    responses=answer(WhatIfJson) | MISSING,
)
def get_what_if(_who: Reader, server: Server, query: Annotated[WhatIfQuery, Query()]) -> Response:
    """The stored failures of a run, replayed with other settings; the gain with its interval, and by the formula."""
    change = RunChange(
        interval_s=query.interval_s,
        save_s=query.save_s,
        write_s=query.write_s,
        detection_s=query.detection_s,
        restart_s=query.restart_s,
        spares=query.spares,
        predictor=predictor_from(query.recall, query.precision, query.lead_s),
        move_s=query.move_s,
    )
    with server.engine.connect() as connection:
        history = history_for(connection, query.run, server)
        try:
            return reply(
                priced(what_if_advice(connection, history, change, query.hold_top), server.settings.gpu_hour_price)
            )
        except ValueError as error:
            raise Problem(404, str(error)) from error

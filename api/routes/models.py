"""`GET /models`: which model serves, which are on trial, what they were made of, and how the last training went."""

from typing import Annotated, Any

from fastapi import APIRouter, Query, Response
from pydantic import BaseModel

from api.answers.reply import reply
from api.edge.auth import Reader
from api.edge.openapi import PREFIX, answer
from api.server.state import Server
from store.models.registry import LastTraining, last_training, list_models
from store.records.score import ModelRole
from wire.models import ModelsJson

router = APIRouter(prefix=PREFIX, tags=["scores"])


class ModelQuery(BaseModel):
    """Which models."""

    role: ModelRole | None = None


@router.get("/models", operation_id="get_models", summary="List models", responses=answer(ModelsJson))
def get_models(_who: Reader, server: Server, query: Annotated[ModelQuery, Query()]) -> Response:
    """Those that serve first, by horizon, then those on trial, then the newest of the others; all in one page."""
    control = server.settings.policy.control
    with server.engine.connect() as connection:
        found, last = list_models(connection, query.role), last_training(connection)
    return reply(
        {
            "items": found,
            "next_cursor": None,
            "training": None if last is None else _last_training(last),
            "control": {"percent": control.percent, "period_days": control.period_days},
        }
    )


def _last_training(last: LastTraining) -> dict[str, Any]:
    return {"time": last.time, "outcome": last.outcome, "by": last.by, "why": last.detail.get("why")}

"""`GET /checks`: what each check said of nodes within a year, what came of it, and what it weighs by that."""

from dataclasses import asdict
from datetime import timedelta
from typing import Annotated, Any

from fastapi import APIRouter, Query, Response
from pydantic import BaseModel, Field

from api.answers.reply import reply
from api.edge.auth import Reader
from api.edge.openapi import PREFIX, answer
from api.server.state import Server
from schedulers.checks.check_weights import weight_of
from store.hints.check_log import HORIZON, CheckRecord, check_records
from wire.models import ChecksJson

router = APIRouter(prefix=PREFIX, tags=["scores"])
_HIDDEN = ("right", "wrong")


class ChecksQuery(BaseModel):
    """Of which source: kernel, dcgm, nhc, model ..."""

    source: str | None = Field(default=None, max_length=200)


@router.get("/checks", operation_id="get_checks", summary="List the record of each check", responses=answer(ChecksJson))
def get_checks(_who: Reader, server: Server, query: Annotated[ChecksQuery, Query()]) -> Response:
    """Those of the most nodes first, at most 1,000, all in one page; made anew every few minutes."""
    enough = server.settings.policy.corroborate_precision
    with server.engine.connect() as connection:
        found = [one for one in check_records(connection) if query.source in (None, one.tally.source)]
    return reply(
        {
            "items": [_item(one, enough) for one in found],
            "next_cursor": None,
            "horizon_h": HORIZON // timedelta(hours=1),
            "enough": enough,
        }
    )


def _item(record: CheckRecord, enough: float) -> dict[str, Any]:
    tally = {name: value for name, value in asdict(record.tally).items() if name not in _HIDDEN}
    share = {"precision": record.precision, "low": record.low, "high": record.high}
    return {**tally, **share, "weight": weight_of(record, enough)}

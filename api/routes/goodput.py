"""`GET /goodput/...`: what interruptions cost by their cause, and the whole cluster's GPU-hours, of stored ledgers."""

from typing import Annotated

from fastapi import APIRouter, Query, Response
from pydantic import BaseModel, Field

from api.answers.node_states import NO_TIME
from api.answers.paging import MAX_LIMIT, CursorText, Moment, PageCursor, decode_seq
from api.answers.reply import listing, reply
from api.edge.auth import Reader
from api.edge.openapi import PREFIX, answer
from api.edge.problem import Problem
from api.server.state import Server
from goodput.cluster.account import PeriodError, cluster_json, period, priced_levels, stored_runs
from goodput.cluster.losses import group_json, loss_json, total_json
from store.runs.losses import LossKey, read_groups, read_losses, read_total
from wire.goodput import CausesJson, ClusterGoodputJson, LossJson
from wire.message import Page
from wire.money.price import with_money

router = APIRouter(prefix=f"{PREFIX}/goodput", tags=["runs"])
# What can be answered at once; `foreshock goodput --cluster` takes its time for a year.
MOST_DAYS = 100


class CausesQuery(BaseModel):
    """By what, and the interruptions of which time: since <= time < until."""

    by: LossKey = Field(default="cause", description="What the losses are put down to.")
    since: Moment | None = None
    until: Moment | None = None
    limit: int = Field(default=100, ge=1, le=MAX_LIMIT)
    cursor: CursorText = None


@router.get("/causes", operation_id="get_goodput_causes", summary="Losses by cause", responses=answer(CausesJson))
def get_causes(_who: Reader, server: Server, query: Annotated[CausesQuery, Query()]) -> Response:
    """What the interruptions of runs cost, by what they are put down to, the costliest first."""
    place = decode_seq(query.cursor) or 0
    window = (query.since, query.until)
    with server.engine.connect() as connection:
        groups = read_groups(connection, query.by, window, query.limit + 1, place)
        total = read_total(connection, window)
    more = len(groups) > query.limit
    price = server.settings.gpu_hour_price
    return reply(
        {
            "by": query.by,
            "since": query.since,
            "until": query.until,
            "total": with_money(total_json([total]), price),
            "items": [with_money(group_json(group, query.by), price) for group in groups[: query.limit]],
            "next_cursor": PageCursor(NO_TIME, str(place + query.limit)).encode() if more else None,
        }
    )


class LossQuery(BaseModel):
    """The interruptions of which time, and how many of the newest."""

    since: Moment | None = None
    until: Moment | None = None
    limit: int = Field(default=100, ge=1, le=MAX_LIMIT)
    cursor: CursorText = None


@router.get(
    "/interruptions",
    operation_id="get_goodput_interruptions",
    summary="Interruptions of all runs",
    responses=answer(Page[LossJson]),
)
def get_interruptions(_who: Reader, server: Server, query: Annotated[LossQuery, Query()]) -> Response:
    """Every run's interruptions, newest first, each with its incident."""
    place = decode_seq(query.cursor) or 0
    with server.engine.connect() as connection:
        found = read_losses(connection, query.since, query.until, query.limit + 1, place)
    more = len(found) > query.limit
    cursor = PageCursor(NO_TIME, str(place + query.limit)).encode() if more else None
    price = server.settings.gpu_hour_price
    return listing([with_money(loss_json(loss), price) for loss in found[: query.limit]], cursor)


class ClusterQuery(BaseModel):
    """Which days (UTC): the last seven, unless said."""

    since: Moment | None = None
    until: Moment | None = None


@router.get(
    "/cluster",
    operation_id="get_goodput_cluster",
    summary="The cluster's GPU-hours by level",
    responses=answer(ClusterGoodputJson),
)
def get_cluster_goodput(_who: Reader, server: Server, query: Annotated[ClusterQuery, Query()]) -> Response:
    """From the GPU-hours that existed to those that were productive, day by day; whole UTC days, the last up to now."""
    try:
        window = period(query.since, query.until, server.clock(), MOST_DAYS)
    except PeriodError as error:
        raise Problem(422, str(error)) from error
    with server.engine.connect() as connection:
        told = cluster_json(connection, window, stored_runs(connection, window, server.settings.shapes))
    return reply(priced_levels(told, server.settings.gpu_hour_price))

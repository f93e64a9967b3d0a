"""`GET /nodes/{node}/days`: a node's days over a long time, of which the older ones may be left as counts alone."""

from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Response
from pydantic import BaseModel

from api.answers.paging import Moment
from api.answers.reply import reply
from api.edge.auth import Reader
from api.edge.openapi import PREFIX, answer
from api.edge.problem import Problem
from api.server.state import Server
from store.nodes.node_history import event_days, telemetry_days
from wire.nodes import DaysJson

router = APIRouter(prefix=PREFIX, tags=["nodes"])

MAX_DAYS = 400
_DAY = timedelta(days=1)


class DaysQuery(BaseModel):
    """Which days (UTC): those that since and until fall on, `until` itself left out; at most 400."""

    since: Moment | None = None  # default: 30 days before until
    until: Moment | None = None  # default: the end of today


@router.get("/nodes/{node}/days", operation_id="get_node_days", summary="A node by the day", responses=answer(DaysJson))
def get_node_days(
    _who: Reader, server: Server, node: Annotated[str, Path(max_length=255)], query: Annotated[DaysQuery, Query()]
) -> Response:
    """How many events of each kind a node had on each day, and its telemetry; also of days that were pruned."""
    try:
        until = _midnight(query.until or server.clock(), is_end=True)
        since = until - 30 * _DAY if query.since is None else _midnight(query.since)
    except OverflowError as error:
        raise Problem(422, "since and until lie beyond the calendar") from error
    if not _DAY <= until - since <= MAX_DAYS * _DAY:
        raise Problem(422, f"since must be before until, and no more than {MAX_DAYS} days")
    if "\x00" in node:
        raise Problem(404, f"no node {node!r} has been heard of")
    with server.engine.connect() as connection:
        events = event_days(connection, node, since, until)
        telemetry = telemetry_days(connection, node, since, until)
    items: list[dict[str, Any]] = [
        {"day": day, "events": dict(sorted(events.get(day, {}).items())), "telemetry": telemetry.get(day)}
        for day in sorted(events.keys() | telemetry.keys())
    ]
    return reply({"node": node, "items": items})


def _midnight(moment: datetime, is_end: bool = False) -> datetime:
    """The midnight that the moment's day began with; of an end, the next one unless it is one itself."""
    day = moment.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    return day + _DAY if is_end and day != moment else day

"""`GET /runs` and `GET /runs/{run}/goodput`: where each training run's hours went."""

from typing import Annotated, Any

import sqlalchemy as sa
from fastapi import APIRouter, Path, Query, Response
from pydantic import BaseModel, Field

from api.auth import Reader
from api.nodes import NO_TIME
from api.paging import MAX_LIMIT, Cursor, CursorText, decode
from api.problem import Problem
from api.reply import listing, reply
from api.state import Server, State
from api.wire import LedgerOut, Page, RunOut
from goodput.reading_records import run_names
from store.read import read_jobs

router = APIRouter(tags=["runs"])


class RunQuery(BaseModel):
    """How many runs."""

    limit: int = Field(default=100, ge=1, le=MAX_LIMIT)
    cursor: CursorText = None


@router.get("/runs", operation_id="get_runs", summary="List training runs", response_model=Page[RunOut])
def get_runs(_who: Reader, server: Server, asked: Annotated[RunQuery, Query()]) -> Response:
    """Training runs by name, each with its goodput so far."""
    after = decode(asked.cursor).id if asked.cursor else ""
    with server.engine.connect() as connection:
        names = sorted(name for name in run_names(connection) if name > after)
        kept = names[: asked.limit]
        items = [_shown(connection, server, name) for name in kept]
    more = len(names) > asked.limit
    return listing([item for item in items if item], Cursor(NO_TIME, kept[-1]).encode() if more else None)


def _shown(connection: sa.Connection, server: State, run: str) -> dict[str, Any] | None:
    ledger = server.ledgers.get(connection, run)
    if ledger is None:
        return None
    account = ledger.to_json()
    jobs = read_jobs(connection, run)
    return {
        "run": run,
        "state": jobs[-1].state if jobs else None,
        **{key: account[key] for key in ("nodes", "gpus", "start", "end", "wall_s", "goodput")},
        "attempts": ledger.attempts,
        "interruptions": len(ledger.interruptions),
    }


@router.get(
    "/runs/{run}/goodput", operation_id="get_goodput", summary="Where a run's hours went", response_model=LedgerOut
)
def get_goodput(_who: Reader, server: Server, run: Annotated[str, Path(max_length=255)]) -> Response:
    """The ledger of a run: its buckets, in seconds, sum to `wall_s` exactly."""
    with server.engine.connect() as connection:
        ledger = server.ledgers.get(connection, run) if "\x00" not in run else None
    if ledger is None:
        raise Problem(404, f"no run {run!r} is known")
    return reply(ledger.to_json())

"""`GET /runs`, `GET /runs/{run}/goodput` and `GET /runs/{run}/attempts`: where each training run's hours went."""

from collections.abc import Mapping
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Response
from pydantic import BaseModel, Field

from api.answers.node_states import NO_TIME
from api.answers.paging import MAX_LIMIT, CursorText, PageCursor, decode
from api.answers.reply import listing, reply
from api.edge.auth import Reader
from api.edge.openapi import PREFIX, answer
from api.edge.problem import Problem
from api.loops.ledgers import is_quickly_read, ledger_of, runs_after
from api.server.state import Server
from goodput.ledger import Ledger
from goodput.reading.ledgers import read_ledgers
from goodput.stored.computation import account_of
from goodput.timeline import Segment, from_ms
from store.nodes.inventory import newest_states
from store.runs.ledgers import StoredLedger, log_marks
from store.verdicts.gpu_index import named_culprits
from wire.goodput import AttemptsJson, LedgerJson, RunJson
from wire.message import Page
from wire.money.price import with_money

# What a drawing can show: of more parts the longest.
MOST_PARTS = 1_500
router = APIRouter(prefix=PREFIX, tags=["runs"])


class RunQuery(BaseModel):
    """How many runs."""

    limit: int = Field(default=100, ge=1, le=MAX_LIMIT)
    cursor: CursorText = None


@router.get("/runs", operation_id="get_runs", summary="List training runs", responses=answer(Page[RunJson]))
def get_runs(_who: Reader, server: Server, query: Annotated[RunQuery, Query()]) -> Response:
    """Training runs by name, each with its goodput so far; one whose ledger is not computed yet has nulls."""
    after = decode(query.cursor).id if query.cursor else ""
    with server.engine.connect() as connection:
        found = runs_after(connection, after, query.limit + 1, server.clock())
        kept = found[: query.limit]
        states = newest_states(connection, [run for run, _ledger in kept])
        items = [_item(run, ledger, states.get(run)) for run, ledger in kept]
    return listing(items, PageCursor(NO_TIME, kept[-1][0]).encode() if len(found) > query.limit else None)


def _item(run: str, ledger: StoredLedger | None, state: str | None) -> dict[str, Any]:
    account: Mapping[str, Any] = {} if ledger is None else account_of(ledger)
    stops = account.get("interruptions")
    return {
        "run": run,
        "state": state,
        **{key: account.get(key) for key in ("nodes", "gpus", "start", "end", "wall_s", "goodput", "as_of")},
        "attempts": None if ledger is None else ledger.content["attempts"],
        "interruptions": None if stops is None else len(stops),
    }


@router.get(
    "/runs/{run}/goodput",
    operation_id="get_goodput",
    summary="Where a run's hours went",
    responses=answer(LedgerJson) | {503: {"description": "Its ledger is being computed for the first time."}},
)
def get_goodput(_who: Reader, server: Server, run: Annotated[str, Path(max_length=255)]) -> Response:
    """The ledger of a run as of `as_of`: its buckets, in seconds, sum to `wall_s` exactly."""
    if "\x00" in run:
        raise _unknown(run)
    with server.engine.connect() as connection:
        ledger = ledger_of(connection, run, server.clock())
        if ledger is None and log_marks(connection, run=run):
            raise _computed(run)
        if ledger is None:
            raise _unknown(run)
        account = account_of(ledger)
        account["interruptions"] = named_culprits(connection, run, account["interruptions"])
    return reply(with_money(account, server.settings.gpu_hour_price))


def _unknown(run: str) -> Problem:
    return Problem(404, f"no run {run!r} is known")


def _computed(run: str) -> Problem:
    return Problem(503, f"the ledger of run {run!r} is being computed", headers={"Retry-After": "15"})


class AttemptQuery(BaseModel):
    """How many of the newest attempts."""

    limit: int = Field(default=50, ge=1, le=MAX_LIMIT)


@router.get(
    "/runs/{run}/attempts",
    operation_id="get_attempts",
    summary="A run attempt by attempt",
    responses=answer(AttemptsJson) | {503: {"description": "Its ledger is being computed for the first time."}},
)
def get_attempts(
    _who: Reader,
    server: Server,
    run: Annotated[str, Path(max_length=255)],
    query: Annotated[AttemptQuery, Query()],
) -> Response:
    """What each attempt did and how it ended: its starts, saves, loads and losses, at most 1,500 parts of all."""
    if "\x00" in run:
        raise _unknown(run)
    with server.engine.connect() as connection:
        if not is_quickly_read(connection, run):
            raise _computed(run)
        found = read_ledgers(connection, run)
        if not found:
            raise _unknown(run)
        told = _attempts(found[0], query.limit)
        stopped = [one for one in told["items"] if one["interruption"] is not None]
        stops = named_culprits(connection, run, [one["interruption"] for one in stopped])
        for one, stop in zip(stopped, stops, strict=True):
            one["interruption"] = stop
    return reply(told)


def _attempts(ledger: Ledger, limit: int) -> dict[str, Any]:
    first = max(0, ledger.attempts - limit)
    spans = ledger.spans[first:]
    parts = _lost(ledger)[first:]
    lengths = sorted((part.length_ms for lost in parts for part in lost), reverse=True)
    least = lengths[MOST_PARTS - 1] if len(lengths) > MOST_PARTS else 0
    return {
        "run": ledger.run,
        "start": from_ms(ledger.start_ms) if ledger.dated else None,
        "wall_s": ledger.wall_ms / 1000,
        "attempts": ledger.attempts,
        "shortest_s": least / 1000,
        "items": [
            {
                "number": number,
                "start": from_ms(span.start_ms) if ledger.dated else None,
                "end": from_ms(span.end_ms) if ledger.dated and not span.is_open else None,
                "start_s": (span.start_ms - ledger.start_ms) / 1000,
                "length_s": (span.end_ms - span.start_ms) / 1000,
                "state": span.state,
                "nodes": span.nodes,
                "gpus": span.gpus,
                "parts": [
                    (part.bucket, (part.start_ms - ledger.start_ms) / 1000, part.length_ms / 1000)
                    for part in lost
                    if part.length_ms >= least
                ],
                "interruption": None if span.interruption is None else span.interruption.to_json(),
            }
            for number, (span, lost) in enumerate(zip(spans, parts, strict=True), first + 1)
        ],
    }


def _lost(ledger: Ledger) -> list[list[Segment]]:
    """What of each attempt was not productive, from the wait before it on: the ledger's own, attempt by attempt."""
    found, until = list[list[Segment]](), ledger.start_ms
    for span in ledger.spans:
        waited = [Segment(until, span.start_ms, "waiting")] if span.start_ms > until else []
        found.append([*waited, *(part for part in span.segments if part.bucket != "productive")])
        until = max(until, span.end_ms)
    return found

"""`GET /verdicts`, `/verdicts/{id}`, `/verdicts/stream`: the causes of what is seen, each as it is held now.

`POST /verdicts/{id}/check` tries the top suspects of one by the site's own command.
"""

import asyncio
import logging
import threading
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from typing import Annotated, Any

import sqlalchemy as sa
from fastapi import APIRouter, Header, Path, Query, Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, Field
from starlette.types import Receive, Scope, Send

from api.answers.paging import MAX_LIMIT, CursorText, Moment, Name, decode, page_of
from api.answers.reply import dump, listing, reply, thread_json
from api.edge.auth import Approver, Reader
from api.edge.openapi import PREFIX, answer
from api.edge.problem import Problem
from api.server.state import Server, State
from api.server.verdict_feed import DROP_S, HEARTBEAT_S, MOST_STREAMS, FeedListener
from diagnosis.incidents.intake import keep_found
from diagnosis.verdicts.stake import with_stakes_now
from schedulers.lifecycle.active_check import (
    CheckPlan,
    CheckRefusedError,
    begin_checks,
    end_check,
    run_checks,
    suspects_of,
)
from schedulers.policy.settings import CheckName
from store.database.connections import transact
from store.events.incident_thread import lives_of
from store.records.incident import verdict_subject
from store.records.verdict import CauseClass, Verdict, VerdictState
from store.verdicts.verdict_log import (
    STANDING_STATES,
    StoredVerdict,
    VerdictRevision,
    VerdictWindow,
    newest_seq,
    open_verdicts,
    revisions_after,
    revisions_of,
    standing_ranks,
    stored_verdict,
    verdict_page,
)
from wire.message import Page
from wire.money.price import with_money
from wire.verdicts import VerdictCheckJson, VerdictJson, verdict_object

router = APIRouter(prefix=PREFIX, tags=["verdicts"])
VerdictId = Annotated[str, Path(min_length=1, max_length=255, pattern=r"^[^\x00]*$")]
_PAGE = 100
_EVENT_STREAM = "text/event-stream"
_log = logging.getLogger(__name__)


class VerdictQuery(BaseModel):
    """Which verdicts; `state=open` means all that stand, revised ones too."""

    state: VerdictState | None = None
    of_class: CauseClass | None = Field(default=None, alias="class")
    node: Name | None = None
    run: Name | None = None
    since: Moment | None = None
    until: Moment | None = None
    limit: int = Field(default=100, ge=1, le=MAX_LIMIT)
    cursor: CursorText = None


@router.get("/verdicts", operation_id="get_verdicts", summary="List verdicts", responses=answer(Page[VerdictJson]))
def get_verdicts(_who: Reader, server: Server, query: Annotated[VerdictQuery, Query()]) -> Response:
    """Verdicts by their first sign, newest last. Without `since` the newest, and the cursor leads to older ones.

    `rank` says which of those that stand is the likeliest, wherever it is on the page.
    """
    cursor = decode(query.cursor) if query.cursor else None
    newest = cursor.backwards if cursor else query.since is None
    states = None if query.state is None else STANDING_STATES if query.state == "open" else (query.state,)
    window = VerdictWindow(states, query.of_class, query.node, query.run, query.since, query.until)
    mark = (cursor.time, cursor.id) if cursor else None
    with server.engine.connect() as connection:
        found = _as_of_now(connection, verdict_page(connection, window, mark, (query.limit + 1, newest)), server)
        ranks = standing_ranks(connection)
        lives = lives_of(connection, [verdict_subject(one.verdict) for one in found], server.clock())
    price = server.settings.gpu_hour_price
    shown = [with_money(_item(one, ranks), price) | {"life": lives[one.verdict.id][0]} for one in found]
    items, following = page_of(shown, query.limit, newest, "since")
    return listing(items, following)


@router.get(
    "/verdicts/stream",
    operation_id="stream_verdicts",
    summary="Listen to verdicts",
    response_class=Response,
    responses={200: {"content": {_EVENT_STREAM: {"schema": {"type": "string"}}}}},
)
async def stream_verdicts(
    _who: Reader,
    server: Server,
    request: Request,
    last_event_id: Annotated[str | None, Header(max_length=40)] = None,
) -> Response:
    """Server-sent events: first the verdicts that stand, then each change as it is written.

    `event` is the state (`open`, `revised`, `explained`, `closed`), `id` the number of the change, `data` the verdict
    with `what` has changed. With `Last-Event-ID` it goes on behind that number: none is lost, over restarts too.
    """
    after = _seq_of(last_event_id)
    listener = server.feed.listen()
    if listener is None:
        detail = f"{MOST_STREAMS} streams are open already: close one, or ask GET /verdicts"
        raise Problem(503, detail, {"Retry-After": "10"})
    return EventStream(server, listener, _events(server, listener, after, request))


@router.get(
    "/verdicts/{verdict}",
    operation_id="get_verdict",
    summary="Show a verdict",
    responses=answer(VerdictJson) | {404: {"description": "No such verdict."}},
)
def get_verdict(_who: Reader, server: Server, verdict: VerdictId) -> Response:
    """One verdict, whatever became of it, with every change of it."""
    with server.engine.connect() as connection:
        found = stored_verdict(connection, verdict)
        if found is None:
            raise Problem(404, f"there is no verdict {verdict[:80]!r}")
        (found,) = _as_of_now(connection, [found], server)
        changes = revisions_of(connection, verdict)
        ranks = standing_ranks(connection)
        life, thread = lives_of(connection, [verdict_subject(found.verdict)], server.clock())[verdict]
    people = {"life": life, "thread": thread_json(thread)}
    told = with_money(_item(found, ranks), server.settings.gpu_hour_price)
    return reply(told | {"revisions": [_revision(one) for one in changes]} | people)


@router.post(
    "/verdicts/{verdict}/check",
    operation_id="check_verdict",
    summary="Try the top suspects of a verdict",
    responses=answer(VerdictCheckJson)
    | {404: {"description": "No such verdict."}, 409: {"description": "No check may begin; `detail` says why."}},
)
def check_verdict(who: Approver, server: Server, verdict: VerdictId, check: CheckName | None = None) -> Response:
    """Begin the site's own command (`checks` of the configuration) on its first suspects, within the hour's budget.

    It is answered at once; what a check says is evidence, so that the verdict is revised. Each has two rows in the
    audit. `check`: which command; by default what tells most of such a suspect. Nodes on which a job runs are left out
    unless `checks.with_jobs`.
    """
    settings = server.settings.checks

    def begin(connection: sa.Connection) -> CheckPlan | None:
        found = stored_verdict(connection, verdict)
        if found is None:
            return None
        others = [node for node in suspects_of(found.verdict) if not who.nodes.matches(node)]
        if others:
            raise Problem(403, f"token {who.name!r} is for {who.nodes.text!r}: it may not have {others[0]} checked")
        return begin_checks(connection, found.verdict, settings, server.clock(), (who.name, check), who.nodes)

    try:
        plan = transact(server.engine, begin)
    except CheckRefusedError as error:
        raise Problem(409, str(error)) from error
    if plan is None:
        raise Problem(404, f"there is no verdict {verdict[:80]!r}")
    threading.Thread(target=_try_suspects, args=(server, plan, who.name), name="active-checks", daemon=True).start()
    begun = [{"node": one.node, "check": one.name, "peer": one.peer} for one in plan.requests]
    return reply({"begun": begun, "left_out": [{"node": node, "reason": why} for node, why in plan.left_out]})


def _try_suspects(server: State, plan: CheckPlan, actor: str) -> None:
    """Run what was begun, and keep what each check says. They end with this process, however it ends."""
    with server.checking:
        for result in run_checks(plan.requests, server.settings.checks, server.clock):
            try:
                event = end_check(server.engine, actor, result)
                keep_found(server.engine, [] if event is None else [event], result.ended)
            except sa.exc.SQLAlchemyError:
                _log.exception("what the check %s said of %s is lost", result.request.name, result.request.node)
            server.faults.set()


def _as_of_now(connection: sa.Connection, found: Sequence[StoredVerdict], server: State) -> list[StoredVerdict]:
    """What is at stake changes by the minute, and no revision tells it."""
    held = with_stakes_now(connection, [one.verdict for one in found], server.clock())
    return [replace(one, verdict=verdict) for one, verdict in zip(found, held, strict=True)]


def _item(found: StoredVerdict, ranks: dict[str, int]) -> dict[str, Any]:
    times = {"opened": found.opened, "changed": found.changed, "ended": found.ended, "why": found.why}
    return verdict_object(found.verdict, ranks.get(found.verdict.id, 0)) | times


def _revision(one: VerdictRevision) -> dict[str, Any]:
    held = one.verdict
    return {
        "revision": held.revision,
        "time": one.time,
        "state": held.state,
        "what": one.what,
        "probability": held.probability,
        "class": held.cause_class,
        "name": held.name,
        "reason": held.reason,
        "nodes": len(held.nodes),
    }


def _seq_of(text: str | None) -> int | None:
    """The number of a `Last-Event-ID`.

    Raises:
        Problem: 422, it is none of ours.
    """
    if text is None or not text:
        return None
    if not (text.isascii() and text.isdigit() and len(text) < 18):
        raise Problem(422, "Last-Event-ID is none of this stream's: leave it out, and it begins with what stands")
    return int(text)


class EventStream(StreamingResponse):
    """A stream that gives its place back at its end, and lets a listener go that takes nothing."""

    media_type = _EVENT_STREAM

    def __init__(self, server: State, listener: FeedListener, content: AsyncIterator[bytes]) -> None:
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        super().__init__(content, headers=headers, media_type=_EVENT_STREAM)
        self._server, self._listener = server, listener

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve until either side ends it."""

        async def patient(message: Any) -> None:
            await asyncio.wait_for(send(message), DROP_S)

        try:
            await super().__call__(scope, receive, patient)
        except TimeoutError:
            self._server.metrics.shed.labels("slow_stream").inc()
        finally:
            self._server.feed.leave(self._listener)


async def _events(server: State, listener: FeedListener, after: int | None, request: Request) -> AsyncIterator[bytes]:
    """The text of the stream."""
    yield b": foreshock verdicts\nretry: 2000\n\n"
    at, first = await run_in_threadpool(_beginning, server, after)
    for part in first:
        yield part
    while not await request.is_disconnected():
        at, parts = await run_in_threadpool(_news, server, at)
        for part in parts:
            yield part
        if parts:
            continue
        try:
            await asyncio.wait_for(listener.news.wait(), HEARTBEAT_S)
        except TimeoutError:
            yield b": heartbeat\n\n"
        listener.news.clear()


def _beginning(server: State, after: int | None) -> tuple[int, Sequence[bytes]]:
    """Where a stream begins: behind a number, or with what stands (also where the number is beyond all that is)."""
    with server.engine.connect() as connection:
        newest = newest_seq(connection)
        if after is not None and after <= newest:
            return after, ()
        ranks = standing_ranks(connection)
        standing = with_stakes_now(connection, open_verdicts(connection), server.clock())
    return newest, [_event(newest, _object(server, one, ranks), "it stands") for one in standing]


def _news(server: State, after: int) -> tuple[int, Sequence[bytes]]:
    with server.engine.connect() as connection:
        changes = revisions_after(connection, after, _PAGE)
        if not changes:
            return after, ()
        ranks = standing_ranks(connection)
    parts = [_event(one.seq, _object(server, one.verdict, ranks), one.what) for one in changes]
    return changes[-1].seq, parts


def _object(server: State, verdict: Verdict, ranks: dict[str, int]) -> dict[str, Any]:
    return with_money(verdict_object(verdict, ranks.get(verdict.id, 0)), server.settings.gpu_hour_price)


def _event(seq: int, found: dict[str, Any], what: str) -> bytes:
    return b"id: %d\nevent: %s\ndata: %s\n\n" % (seq, str(found["state"]).encode(), dump(found | {"what": what}))

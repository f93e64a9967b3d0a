"""`GET /hints`, `POST /hints/{id}/approve|withdraw`: hints to schedulers, and operator actions on them."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Annotated, Any, Literal

import sqlalchemy as sa
from fastapi import APIRouter, Path, Query, Response
from pydantic import BaseModel, Field

from api.answers.node_states import NO_TIME, risks_now
from api.answers.paging import (
    MAX_LIMIT,
    CursorText,
    Name,
    PageCursor,
    decode,
    decode_seq,
    page_of,
    time_of,
)
from api.answers.remedies import hint_remedies
from api.answers.reply import listing, reply
from api.edge.auth import Approver, Caller, Reader
from api.edge.openapi import PREFIX, answer
from api.edge.problem import Problem
from api.server.state import Server, State
from schedulers.lifecycle.approval import WINDOW, HintApprover, RequestRefusedError, approve, given_of, needed
from schedulers.lifecycle.hindsight import Basis, judged_as
from schedulers.lifecycle.operator_actions import withdraw
from schedulers.policy.settings import ApprovalRule
from store.database.connections import writing
from store.hints.hint_log import changed_hints, hint_page, read_hint, recent_hints, seq_before
from store.hints.holds import with_holds
from store.hints.outcomes import HintOutcome
from store.records.hint import OPEN_STATES, Hint, HintState, hint_of
from store.tables.pages import document_of, moment_of
from wire.hints import HintJson
from wire.message import Page
from wire.money.price import GpuHourPrice, with_money

router = APIRouter(prefix=PREFIX, tags=["hints"])
HintId = Annotated[str, Path(min_length=1, max_length=255, pattern=r"^[^\x00]*$")]


class HintQuery(BaseModel):
    """Which hints; `state=open` means all that have not ended."""

    state: HintState | Literal["open"] | None = None
    node: Name | None = None
    limit: int = Field(default=100, ge=1, le=MAX_LIMIT)
    cursor: CursorText = None
    since: Annotated[
        str | None, Query(max_length=500, description="A time, or `next_cursor` of the answer before.")
    ] = None


@router.get("/hints", operation_id="get_hints", summary="List hints", responses=answer(Page[HintJson]))
def get_hints(_who: Reader, server: Server, query: Annotated[HintQuery, Query()]) -> Response:
    """The newest hints, newest last; the cursor leads to older ones.

    With `since`: those that changed since then, ended ones too, each as it is now, in the order of the changes;
    `next_cursor` is always there, and is the `since` of the next question. A change may come twice, none is lost.
    """
    if query.since is not None:
        return _changes(server, query, query.since)
    cursor = decode(query.cursor) if query.cursor else None
    mark = (cursor.time, cursor.id) if cursor else None
    states = None if query.state is None else OPEN_STATES if query.state == "open" else (query.state,)
    with server.engine.connect() as connection:
        node = query.node and server.names.node_of(query.node)
        rows = hint_page(connection, states, node, mark, query.limit + 1)
        items, following = page_of(rows, query.limit, newest=True, time="created")
        items = _items(server, connection, items)
    return listing(items, following)


def _changes(server: State, query: HintQuery, since: str) -> Response:
    if query.state is not None or query.node is not None or query.cursor is not None:
        raise Problem(422, "since tells every change, ends and all: leave state, node and cursor out")
    with server.engine.connect() as connection:
        moment = time_of(since)
        after = seq_before(connection, moment) if moment is not None else decode_seq(since)
        page = changed_hints(connection, after or 0, query.limit)
        items = _items(server, connection, [hint.to_row() for hint in page.hints])
    return listing(items, PageCursor(NO_TIME, str(page.seq)).encode())


@router.post(
    "/hints/{hint}/approve",
    operation_id="approve_hint",
    summary="Approve a hint",
    responses=answer(HintJson)
    | {404: {"description": "No such hint."}, 409: {"description": "It cannot be approved any more."}},
)
def approve_hint(who: Approver, server: Server, hint: HintId) -> Response:
    """Let a proposed hint be sent. Approving it again changes nothing.

    A large approval needs two people (`approval` in the configuration): after the first the hint is still proposed,
    with `approvals`.
    """
    try:
        with writing(server.engine).begin() as connection:
            check_own_hint(connection, who, hint)
            approved = approve(connection, hint, server.clock(), _approver(who, server), server.settings.policy)
            return reply(_items(server, connection, [approved.to_row()])[0])
    except RequestRefusedError as error:
        raise _problem(error) from error


@router.post(
    "/hints/{hint}/withdraw",
    operation_id="withdraw_hint",
    summary="Withdraw a hint",
    responses=answer(HintJson) | {404: {"description": "No such hint."}, 409: {"description": "It has ended already."}},
)
def withdraw_hint(who: Approver, server: Server, hint: HintId) -> Response:
    """End a hint; a scheduler that took it is ordered to release the node. Withdrawing it again changes nothing."""
    try:
        with writing(server.engine).begin() as connection:
            check_own_hint(connection, who, hint)
            withdrawn = withdraw(connection, hint, server.clock(), who.name)
            return reply(_items(server, connection, [withdrawn.to_row()])[0])
    except RequestRefusedError as error:
        raise _problem(error) from error


def _approver(who: Caller, server: State) -> HintApprover:
    """Where people sign in, a program is nobody's second person."""
    if who.person is not None:
        return HintApprover(who.name, f"person:{who.person.name}")
    return HintApprover(who.name, None if server.settings.people is not None else f"token:{who.name}")


def _items(server: State, connection: sa.Connection, rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows with what schedulers hold, what came of them, and the approvals of those that need two people."""
    rule = server.settings.policy.approval
    came = judged_as(connection, {row["id"]: document_of(row, "evidence").get("control") is True for row in rows})
    price, now = server.settings.gpu_hour_price, server.clock()
    remedies = hint_remedies(connection, rows, now)
    risks = risks_now(connection, server.settings, now, {row["node"] for row in rows if row["state"] in OPEN_STATES})
    found = [
        row
        | {"remedy": remedies.get(row["id"]), "risk_now": _risk(row, risks)}
        | _money(row, price)
        | (_outcome(*came[row["id"]], price) if row["id"] in came else {})
        for row in with_holds(connection, rows)
    ]
    if rule.two_people_above_nodes is None or all(row["state"] != "proposed" for row in found):
        return found
    recent = recent_hints(connection, now, WINDOW)
    return [row | _approvals(row, recent, rule, now) if row["state"] == "proposed" else row for row in found]


def _hint(row: Mapping[str, Any]) -> Hint:
    """The hint of a row, whichever way it was read: PostgreSQL writes an answer's times and documents itself."""
    times = {name: moment_of(row, name) for name in ("created", "valid_until")}
    return hint_of({**row, **times, "evidence": document_of(row, "evidence")})


def _risk(row: Mapping[str, Any], risks: Mapping[str, tuple[float, datetime]]) -> dict[str, Any] | None:
    if row["state"] not in OPEN_STATES or row["node"] not in risks:
        return None
    score, moment = risks[row["node"]]
    return {"score": score, "time": moment}


def _money(row: Mapping[str, Any], price: GpuHourPrice | None) -> dict[str, Any]:
    cost = None if price is None else document_of(row, "evidence").get("cost")
    if not isinstance(cost, Mapping):
        return {}
    return {name: one for name, one in with_money(cost, price).items() if name in ("held_money", "failure_money")}


def _outcome(basis: Basis, came: HintOutcome, price: GpuHourPrice | None) -> dict[str, Any]:
    kept = {name: getattr(came, name) for name in ("judged", "lead_s", "held_gpu_h", "saved_gpu_h")}
    return {"outcome": with_money(kept, price) | {"basis": basis, "right": None if basis == "acted" else came.right}}


def _approvals(row: dict[str, Any], recent: Sequence[Hint], rule: ApprovalRule, now: datetime) -> dict[str, Any]:
    hint = _hint(row)
    given = [{"by": each.by, "person": each.person, "time": each.time} for each in given_of(hint)]
    return {"approvals": given, "approvals_needed": needed(hint, recent, rule, now)}


def check_own_hint(connection: sa.Connection, caller: Caller, hint: str) -> None:
    """Refuse a hint on a node that the caller may not decide about.

    Raises:
        Problem: 403.
    """
    found = read_hint(connection, hint)
    if found is not None and not caller.nodes.matches(found.node):
        text = f"token {caller.name!r} is for {caller.nodes.text!r} alone: hint {hint!r} is about {found.node[:80]!r}"
        raise Problem(403, text)


def _problem(error: RequestRefusedError) -> Problem:
    return Problem(409 if error.known else 404, str(error))

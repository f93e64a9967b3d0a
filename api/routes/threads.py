"""`POST /incidents/{id}/ack|note|silence|...` and `/verdicts/{id}/...`: what people do about a fault, and its life.

What is done to a verdict is done to its incidents, but for notes; who silences an incident silences the verdicts that
stand because of it. A silence keeps receivers of verdicts from being told; hints go on.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from datetime import timedelta
from typing import Annotated, Any

import sqlalchemy as sa
from fastapi import APIRouter, Depends, Path, Response

from api.answers.reply import reply
from api.edge.auth import Approver, Caller
from api.edge.body import described, json_of
from api.edge.openapi import PREFIX, answer
from api.edge.problem import Problem
from api.server.state import Server, State
from store.database.audit_chain import AuditEntry, append_audit
from store.database.connections import transact
from store.events.incident_thread import (
    MOST_ENTRIES,
    add_entries,
    incident_known_by,
    incident_subject,
    incidents_known_by,
    threads_of,
)
from store.records.event import format_time
from store.records.incident import ThreadEntry, ThreadStep, ThreadSubject, ThreadWord, life_of, verdict_subject
from store.records.verdict import Verdict
from store.verdicts.verdict_log import open_verdicts, stored_verdict
from wire.events import MOST_SILENCE_H, LifeJson, ThreadRequestJson

router = APIRouter(prefix=PREFIX, tags=["incidents"])
SubjectId = Annotated[str, Path(min_length=1, max_length=255, pattern=r"^[^\x00]*$")]
Said = Annotated[ThreadRequestJson, Depends(json_of(ThreadRequestJson))]
_SILENCE_H = 4.0
_EXAMPLE = {"text": "optic ordered", "hours": 4}
_REFUSED: dict[int | str, Any] = {404: {"description": "There is none of this id."}}


@router.post(
    "/incidents/{incident}/{step}",
    operation_id="step_incident",
    summary="Acknowledge, note, silence or close an incident",
    responses=answer(LifeJson) | _REFUSED,
    openapi_extra=described(ThreadRequestJson, _EXAMPLE),
)
def step_incident(who: Approver, server: Server, incident: SubjectId, step: ThreadStep, body: Said) -> Response:
    """Write a step into its thread, and into the audit; answers its life then. Saying the same again changes nothing.

    The body may be left out, but for a note. A `silence` silences the verdicts that stand because of it, too: those
    whose every node the caller may decide about.
    """
    word = _word(who, server, step, body)

    def write(connection: sa.Connection) -> dict[str, Any]:
        row = incident_known_by(connection, incident)
        if row is None:
            raise Problem(404, f"there is no incident {incident[:80]!r}")
        subject = incident_subject(row)
        _check_own(who, "incident", _nodes_of_incident(row))
        others: list[ThreadSubject] = []
        if step in ("silence", "unsilence"):
            its = {row["id"], incident}
            standing = [one for one in open_verdicts(connection) if its & one.incident_ids()]
            others = [verdict_subject(one) for one in standing if _is_own(who, _nodes_of(one))]
        return _written(connection, server, subject, others, word)

    return reply(transact(server.engine, write))


@router.post(
    "/verdicts/{verdict}/{step}",
    operation_id="step_verdict",
    summary="Acknowledge, note, silence or close a verdict",
    responses=answer(LifeJson) | _REFUSED,
    openapi_extra=described(ThreadRequestJson, _EXAMPLE),
)
def step_verdict(who: Approver, server: Server, verdict: SubjectId, step: ThreadStep, body: Said) -> Response:
    """The same with a verdict and, but for a note, its incidents: those whose every node the caller may decide about.

    A verdict that stands stays so, whatever is said.
    """
    word = _word(who, server, step, body)

    def write(connection: sa.Connection) -> dict[str, Any]:
        found = _verdict(connection, verdict)
        _check_own(who, "verdict", _nodes_of(found))
        incidents = () if step == "note" else incidents_known_by(connection, found.incident_ids())
        own = [incident_subject(one) for one in incidents if _is_own(who, _nodes_of_incident(one))]
        return _written(connection, server, verdict_subject(found), own, word)

    return reply(transact(server.engine, write))


def _verdict(connection: sa.Connection, ident: str) -> Verdict:
    found = stored_verdict(connection, ident)
    if found is None:
        raise Problem(404, f"there is no verdict {ident[:80]!r}")
    return found.verdict


def _nodes_of(found: Verdict) -> set[str | None]:
    return {*found.nodes, found.node} if found.node is not None else {*found.nodes} or {None}


def _nodes_of_incident(row: Mapping[str, Any]) -> set[str | None]:
    return {row["node"], *(row["nodes"] or ())}


def _is_own(who: Caller, nodes: Iterable[str | None]) -> bool:
    """Whether the caller may decide about each; what is of no node is the whole cluster's."""
    return who.nodes.is_every or all(node is not None and who.nodes.matches(node) for node in nodes)


def _check_own(who: Caller, what: str, nodes: set[str | None]) -> None:
    """Refuse what concerns nodes that the caller may not decide about.

    Raises:
        Problem: 403.
    """
    if not _is_own(who, nodes):
        raise Problem(403, f"token {who.name!r} is for {who.nodes.text!r} alone: this {what} concerns other nodes")


def _word(who: Caller, server: State, step: ThreadStep, body: ThreadRequestJson) -> ThreadWord:
    """What the caller says.

    Raises:
        Problem: 422, a note says nothing, or a silence has no such end.
    """
    text, now = body.text.strip(), server.clock()
    if step == "note" and not text:
        raise Problem(422, 'a note says something: send {"text": "..."}')
    until = None
    if step == "silence":
        until = body.until or now + timedelta(hours=body.hours or _SILENCE_H)
        if not now < until <= now + timedelta(hours=MOST_SILENCE_H):
            raise Problem(422, f"a silence ends within {MOST_SILENCE_H:g} hours from now: give `hours` or `until`")
    return ThreadWord(step, who.name, text, body.owner, until)


def _written(
    connection: sa.Connection, server: State, subject: ThreadSubject, others: Sequence[ThreadSubject], word: ThreadWord
) -> dict[str, Any]:
    """Write what is new of it, with its audit row; the life of the subject then."""
    now = server.clock()
    threads = threads_of(connection, [subject, *others])
    if len(threads.get(subject.id, ())) >= MOST_ENTRIES:
        raise Problem(409, f"its thread has {MOST_ENTRIES} entries: write on in a ticket, and note its address")
    before = life_of(threads.get(subject.id, ()), subject, now)
    news = [ThreadEntry(now, word, one) for one in (subject, *others) if len(threads.get(one.id, ())) < MOST_ENTRIES]
    after = life_of([*threads.get(subject.id, ()), news[0]], subject, now)
    changes = ("state", "owner", "silenced_until", "again")
    if not word.text and all(getattr(before, name) == getattr(after, name) for name in changes):
        return asdict(before)
    add_entries(connection, news)
    until = word.until and format_time(word.until)
    detail = {"node": subject.node, "reason": word.text, "owner": word.owner, "until": until}
    told = {name: value for name, value in detail.items() if value}
    append_audit(connection, [AuditEntry(now, word.actor, word.step, one.seen.id, told) for one in news])
    return asdict(after)

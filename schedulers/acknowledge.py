"""What a scheduler that pulls its hints says it did with one: `POST /hints/{id}/ack`.

Its word counts as what another scheduler's node list shows: `taken` makes a hint `sent`, `confirmed` makes it
confirmed, and each is kept as a placement under the scheduler's name, marked `pull:`.
"""

from datetime import datetime
from typing import Literal, TypeAlias

import sqlalchemy as sa

from schedulers.verdict import VerdictError
from store.hint import LIVE_STATES, OPEN_STATES, Hint, HintAction
from store.hint_log import change_state, close_hint, note, read_hint
from store.placements import PULLS, Placement, PlacementState, placements_of, save_placements

Word: TypeAlias = Literal["taken", "confirmed", "released", "refused"]
_PLACEMENT: dict[Word, PlacementState] = {
    "taken": "asked",
    "confirmed": "confirmed",
    "released": "released",
    "refused": "refused",
}
_TRIES = 5
# What has gone further already: a word that comes late, or again, takes nothing back.
_BEYOND: dict[Word, tuple[PlacementState, ...]] = {"taken": ("confirmed",), "released": ("undone",)}


def acknowledge(
    connection: sa.Connection, ident: str, word: Word, scheduler: str, now: datetime, detail: str = ""
) -> Hint:
    """Write down what a scheduler says. Saying it again changes nothing.

    `released` while the hint still stands is a person's undoing there: the hint is withdrawn, and not asked again until
    something new happens.

    Raises:
        VerdictError: there is no such hint, or it is not, or no longer, to be acted upon.
    """
    hint = read_hint(connection, ident)
    if hint is None:
        raise VerdictError(f"no hint has the id {ident!r}", known=False)
    name = f"{PULLS}{scheduler}"
    before = {one.scheduler: one for one in placements_of(connection, [ident]).get(ident, [])}.get(name)
    released = word == "released"
    if not released and (hint.state not in LIVE_STATES or hint.valid_until <= now):
        waits = hint.state in OPEN_STATES and hint.valid_until > now
        said = "is not approved: leave the node" if waits else "has ended: release the node"
        raise VerdictError(f"hint {ident} ({hint.state}) {said}", known=True)
    state: PlacementState = "undone" if released and hint.state in LIVE_STATES else _PLACEMENT[word]
    action: HintAction = "release" if released else hint.action
    if before is not None and before.action == action and before.state in (state, *_BEYOND.get(word, ())):
        return hint
    moved = _move(connection, hint, word, now, name)
    row = Placement(
        *(ident, name, hint.node, action, state, 0, now),
        asked=before.asked if before is not None else now,
        observed=now,
        detail=detail or None,
    )
    save_placements(connection, [row])
    note(connection, now, f"scheduler:{name}", moved, {"ack": word, "detail": detail} if detail else {"ack": word})
    return moved


def _move(connection: sa.Connection, hint: Hint, word: Word, now: datetime, name: str) -> Hint:
    actor = f"scheduler:{name}"
    if word == "released" and hint.state in LIVE_STATES:
        for _ in range(_TRIES):  # the policy may renew it at the same moment
            if hint.state in OPEN_STATES:
                hint = close_hint(connection, hint, "withdrawn", now, actor)
        return hint
    if word == "taken" and hint.state == "approved":
        return change_state(connection, hint, "sent", now, actor)
    if word == "confirmed" and hint.state != "confirmed":
        return change_state(connection, hint, "confirmed", now, actor)
    return hint

"""One turn of the policy: expire what has lapsed, decide, write hints and audit."""

from dataclasses import replace
from datetime import datetime

import sqlalchemy as sa

from schedulers.aftercare import carry, lapse, look
from schedulers.facts import Inputs
from schedulers.gather import SILENT_AFTER_S, gather
from schedulers.policy import Decision, decide
from schedulers.settings import Policy
from store.control import ControlGroup, control_key
from store.hint import OPEN_STATES, Hint
from store.hint_log import ACTOR_POLICY, save_hint
from store.marks import HINTS, bump
from store.transaction import in_turn
from store.trips import note_trip


def run_policy(
    engine: sa.Engine,
    policy: Policy,
    now: datetime,
    silent_after_s: float = SILENT_AFTER_S,
    *,
    is_news: bool = False,
) -> Decision:
    """Bring the hints up to a moment, in one transaction; returns what changed. A sidecar that has not reported for
    `silent_after_s` is silent.

    Nearly every turn changes nothing: that is found out by reading, without holding up those who write. After a grave
    fault (`is_news`) something nearly always does, so it is not looked twice.
    """
    group = ControlGroup.of(control_key(engine), policy.control.percent, policy.control.period_days)
    if not is_news:
        with engine.connect() as connection:
            inputs = gather(connection, policy, now, group, silent_after_s)
            decision = decide(inputs, policy)
            asks = bool(decision.changed or decision.tripped or _lapsed(inputs))
            if not asks and look(connection, inputs, decision, policy).is_nothing:
                return Decision()
    with in_turn(engine) as connection:
        inputs = gather(connection, policy, now, group, silent_after_s)
        if lapsed := _lapsed(inputs):
            lapse(connection, lapsed, policy, now)
            inputs = gather(connection, policy, now, group, silent_after_s)
        decision = decide(inputs, policy)
        seen = look(connection, inputs, decision, policy)
        before = {hint.id: hint for hint in inputs.hints}
        carry(connection, seen, now, before)
        wanted = (change for change in decision.changed if change[0].id not in seen.handled)
        changed = tuple(change for change in wanted if _save(connection, change, now, before.get(change[0].id)))
        for trip in decision.tripped:
            note_trip(connection, trip.group, trip.why, trip.count, now, ACTOR_POLICY)
        made = tuple((hint, "made") for hint in seen.jobs.made)
        gone = tuple(hint for hint, _why in (*seen.dropped, *seen.jobs.over))
        decision = replace(decision, changed=changed + made, released=seen.release.released + gone)
        if decision == Decision() and (lapsed or not seen.is_nothing):
            # What has changed beside it, as a lapse: who acts on that sees it by the mark.
            bump(connection, HINTS)
    return decision


def _save(connection: sa.Connection, change: tuple[Hint, str], now: datetime, was: Hint | None) -> bool:
    """Write a change; not where a person was faster, whom the next turn heeds."""
    hint, word = change
    control = {"control": True} if hint.evidence.get("control") else {}
    return save_hint(connection, hint, now, {"change": word, **control, **_held(hint.evidence.get("held"))}, was)


def _lapsed(inputs: Inputs) -> list[Hint]:
    return [hint for hint in inputs.hints if hint.state in OPEN_STATES and hint.valid_until <= inputs.now]


def _held(why: object) -> dict[str, object]:
    return {} if why is None else {"held": why}

"""One turn of the policy: expire what has lapsed, decide, write hints and audit."""

from dataclasses import replace
from datetime import datetime

import sqlalchemy as sa

from schedulers.aftercare import carry, lapse, look
from schedulers.gather import SILENT_AFTER_S, gather
from schedulers.policy import Decision, decide
from schedulers.settings import Policy
from store.control import ControlGroup, control_key
from store.database import writing
from store.hint import OPEN_STATES, Hint
from store.hint_log import ACTOR_POLICY, read_hints, save_hint
from store.marks import HINTS, bump
from store.trips import note_trip


def run_policy(engine: sa.Engine, policy: Policy, now: datetime, silent_after_s: float = SILENT_AFTER_S) -> Decision:
    """Bring the hints up to a moment, in one transaction; returns what changed. A sidecar that has not reported for
    `silent_after_s` is silent.

    Nearly every turn changes nothing: that is found out by reading, without holding up those who write.
    """
    group = ControlGroup.of(control_key(engine), policy.control.percent, policy.control.period_days)
    with engine.connect() as connection:
        inputs = gather(connection, policy, now, group, silent_after_s)
        decision = decide(inputs, policy)
        asks = bool(decision.changed or decision.tripped or _lapsed(connection, now))
        if not asks and look(connection, inputs, decision, policy).is_nothing:
            return Decision()
    with writing(engine).begin() as connection:
        lapse(connection, _lapsed(connection, now), policy, now)
        inputs = gather(connection, policy, now, group, silent_after_s)
        decision = decide(inputs, policy)
        seen = look(connection, inputs, decision, policy)
        carry(connection, seen, now)
        changed = tuple(change for change in decision.changed if change[0].id not in seen.handled)
        for hint, word in changed:
            control = {"control": True} if hint.evidence.get("control") else {}
            save_hint(connection, hint, now, {"change": word, **control, **_held(hint.evidence.get("held"))})
        for trip in decision.tripped:
            note_trip(connection, trip.group, trip.why, trip.count, now, ACTOR_POLICY)
        made = tuple((hint, "made") for hint in seen.jobs.made)
        gone = tuple(hint for hint, _why in (*seen.dropped, *seen.jobs.over))
        decision = replace(decision, changed=changed + made, released=seen.release.released + gone)
        if decision == Decision():  # what has changed beside it, as a lapse: who acts on that sees it by the mark
            bump(connection, HINTS)
    return decision


def _lapsed(connection: sa.Connection, now: datetime) -> list[Hint]:
    return [hint for hint in read_hints(connection, states=OPEN_STATES) if hint.valid_until <= now]


def _held(why: object) -> dict[str, object]:
    return {} if why is None else {"held": why}

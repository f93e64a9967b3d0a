"""One turn of the policy: expire what has lapsed, decide, write hints and audit."""

from datetime import datetime

import sqlalchemy as sa

from schedulers.gather import gather
from schedulers.policy import Decision, decide
from schedulers.settings import Policy
from store.control import ControlGroup, control_key
from store.database import writing
from store.hint import OPEN_STATES, Hint
from store.hint_log import ACTOR_POLICY, close_hint, read_hints, save_hint


def run_policy(engine: sa.Engine, policy: Policy, now: datetime) -> Decision:
    """Bring the hints up to a moment, in one transaction; returns what changed.

    Nearly every turn changes nothing: that is found out by reading, without holding up those who write.
    """
    group = ControlGroup.of(control_key(engine), policy.control.percent, policy.control.period_days)
    with engine.connect() as connection:
        if not _lapsed(connection, now) and decide(gather(connection, policy, now, group), policy) == Decision():
            return Decision()
    with writing(engine).begin() as connection:
        for hint in _lapsed(connection, now):
            close_hint(connection, hint, "expired", now, ACTOR_POLICY)
        decision = decide(gather(connection, policy, now, group), policy)
        for hint in decision.released:
            close_hint(connection, hint, "released", now, ACTOR_POLICY)
        for hint, word in decision.changed:
            control = {"control": True} if hint.evidence.get("control") else {}
            save_hint(connection, hint, now, {"change": word, **control, **_held(hint.evidence.get("held"))})
    return decision


def _lapsed(connection: sa.Connection, now: datetime) -> list[Hint]:
    return [hint for hint in read_hints(connection, states=OPEN_STATES) if hint.valid_until <= now]


def _held(why: object) -> dict[str, object]:
    return {} if why is None else {"held": why}

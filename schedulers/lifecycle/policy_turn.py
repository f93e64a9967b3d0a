"""One turn of the policy: ends hints that lapsed, decides, releases nodes, hints at jobs, writes hints and audit.

    run_policy(engine, policy, now, ...)     # Decision: what changed

Beside the decision on nodes: hints on replaced machines end, held nodes are released once they have passed their test
or were vouched for, and running jobs get hints about culprits.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

import sqlalchemy as sa

from schedulers.lifecycle.release import ReleaseInputs, ReleasePlan, is_held, plan
from schedulers.lifecycle.replacement import read_machines, replaced
from schedulers.policy.decision import Decision, decide
from schedulers.policy.fact_queries import SILENT_AFTER_S, gather
from schedulers.policy.facts import HOLDING, Inputs, NodeFacts
from schedulers.policy.job_hints import JobDecision, ask_jobs
from schedulers.policy.settings import Policy
from store.database.connections import in_turn
from store.database.coordination import HINTS, move_mark
from store.hints.control_group import ControlGroup, control_key
from store.hints.hint_log import ACTOR_POLICY, close_hint, read_job_hints, save_hint
from store.hints.outcomes import sent_hints
from store.hints.stops import note_trip
from store.hints.validations import validations_of
from store.nodes.node_states import last_faults
from store.nodes.shown_nodes import shown_up
from store.nodes.sidecars import heard_since
from store.records.hint import OPEN_STATES, Hint

# Not plainly the policy: what it dropped is not asked again for what the old machine did.
ACTOR_REPLACED = "policy:replaced"
_DAY = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class FollowUp:
    """What is to be written. `handled`: hints that the decision itself must leave as they are.

    `replaced`: held hints whose machine is another now, with how that is known.
    """

    dropped: tuple[tuple[Hint, str], ...] = ()
    release: ReleasePlan = field(default_factory=ReleasePlan)
    jobs: JobDecision = field(default_factory=JobDecision)
    replaced: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_nothing(self) -> bool:
        """Whether nothing changes."""
        return replace(self, replaced={}) == FollowUp()

    @property
    def handled(self) -> frozenset[str]:
        """Ids of the hints that the decision's own changes and releases are not to touch."""
        kept = {hint.id for hint, _word in self.release.kept}
        return frozenset({hint.id for hint, _why in self.dropped} | kept)


def lapse(connection: sa.Connection, lapsed: Sequence[Hint], policy: Policy, now: datetime) -> None:
    """End the hints whose time is over; one that holds a node goes on until that has passed its test, or is vouched."""
    found = plan(_inputs(connection, lapsed, {}, (now, policy), lapsed=lapsed), policy)
    _carry_release(connection, found, now, {hint.id: hint for hint in lapsed})


def look(connection: sa.Connection, inputs: Inputs, decision: Decision, policy: Policy) -> FollowUp:
    """What is to be done beside a decision."""
    well = decision.released
    now, facts = inputs.now, {one.node: one for one in inputs.nodes}
    open_hints = [hint for hint in inputs.hints if hint.state in OPEN_STATES and hint.job is None]
    gone = replaced(open_hints, read_machines(connection, open_hints), now) if open_hints else {}
    # A message may name another serial number: a node that is held for us is tested, or waits, all the same.
    taken = sent_hints(connection, list(gone)) if gone else frozenset()
    kept = {hint.id for hint in open_hints if hint.id in gone and is_held(hint, taken)}
    ended = gone.keys() - kept
    left = [
        hint
        for hint in open_hints
        if hint.id not in ended and (hint in well or hint.id in kept or hint.evidence.release is not None)
    ]
    release = ReleasePlan()
    if left:
        well_now = [hint for hint in left if hint in well or hint.id in kept]
        release = plan(_inputs(connection, left, facts, (now, policy), well=well_now), policy)
    dropped = tuple((hint, gone[hint.id]) for hint in open_hints if hint.id in ended)
    stands = {**inputs.open_by_node(), **{hint.node: hint for hint, _word in decision.changed}}
    for hint in (*well, *(hint for hint, _why in dropped)):
        stands.pop(hint.node, None)
    return FollowUp(dropped, release, _jobs(connection, inputs, stands, policy), {ident: gone[ident] for ident in kept})


def _inputs(
    connection: sa.Connection,
    hints: Sequence[Hint],
    facts: dict[str, NodeFacts],
    by: tuple[datetime, Policy],
    *,
    well: Sequence[Hint] = (),
    lapsed: Sequence[Hint] = (),
) -> ReleaseInputs:
    (now, policy), held = by, [hint for hint in hints if hint.action in HOLDING]
    taken = sent_hints(connection, [hint.id for hint in held])
    tests = validations_of(connection, [hint.id for hint in held]) if held else {}
    faults = last_faults(connection, [hint.node for hint in held]) if held else {}
    vouched = frozenset[str]()
    if held and not policy.release.validate:
        since, nodes = now - timedelta(seconds=policy.healthy_s), [hint.node for hint in held]
        vouched = heard_since(connection, nodes, since, now) | shown_up(connection, nodes, since, now)
    return ReleaseInputs(now, facts, hints, well, lapsed, taken, tests, faults, vouched)


def _jobs(connection: sa.Connection, inputs: Inputs, stands: dict[str, Hint], policy: Policy) -> JobDecision:
    """The job hints, by the facts and the hints of nodes, without those that the kill switch stops."""
    found = ask_jobs(connection, inputs, stands, read_job_hints(connection, inputs.now - _DAY), policy)
    if inputs.stop == "none":
        return found
    return JobDecision(tuple(hint for hint in found.made if hint.state == "shadow"), found.over)


def carry(connection: sa.Connection, seen: FollowUp, now: datetime, before: Mapping[str, Hint]) -> None:
    """Write what was seen, each change with its audit row. `before`: the hints as they were read, by id."""
    for hint, why in seen.dropped:
        close_hint(connection, hint, "withdrawn", now, ACTOR_REPLACED, {"why": why})
    _carry_release(connection, seen.release, now, before, seen.replaced)
    for hint, why in seen.jobs.over:
        close_hint(connection, hint, "released", now, ACTOR_POLICY, {"why": why})
    for hint in seen.jobs.made:
        save_hint(connection, hint, now, {"change": "made", "job": hint.job})


def _carry_release(
    connection: sa.Connection,
    found: ReleasePlan,
    now: datetime,
    before: Mapping[str, Hint],
    machines: Mapping[str, str] | None = None,
) -> None:
    for hint in found.released:
        why = (machines or {}).get(hint.id)
        if why is None:
            close_hint(connection, hint, "released", now, ACTOR_POLICY)
        else:
            close_hint(connection, hint, "withdrawn", now, ACTOR_REPLACED, {"why": why})
    for hint in found.expired:
        close_hint(connection, hint, "expired", now, ACTOR_POLICY)
    for hint, word in found.kept:
        save_hint(connection, hint, now, {"change": word}, before[hint.id])


def run_policy(
    engine: sa.Engine,
    policy: Policy,
    now: datetime,
    silent_after_s: float = SILENT_AFTER_S,
    *,
    takers: Collection[str] = (),
    is_news: bool = False,
) -> Decision:
    """Bring the hints up to a moment, in one transaction; returns what changed. A sidecar that has not reported for
    `silent_after_s` is silent; `takers` are the schedulers that take a node out of use for an `avoid`.

    Nearly every turn changes nothing: that is found out by reading, without holding up those who write. After a grave
    fault (`is_news`) something nearly always does, so it is not looked twice.
    """
    group = ControlGroup.of(control_key(engine), policy.control.percent, policy.control.period_days)
    if not is_news:
        with engine.connect() as connection:
            inputs = gather(connection, policy, now, group, silent_after_s, takers)
            decision = decide(inputs, policy)
            asks = bool(decision.changed or decision.tripped or _lapsed(inputs))
            if not asks and look(connection, inputs, decision, policy).is_nothing:
                return Decision()
    with in_turn(engine) as connection:
        inputs = gather(connection, policy, now, group, silent_after_s, takers)
        if lapsed := _lapsed(inputs):
            lapse(connection, lapsed, policy, now)
            inputs = gather(connection, policy, now, group, silent_after_s, takers)
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
            move_mark(connection, HINTS)
    return decision


def _save(connection: sa.Connection, change: tuple[Hint, str], now: datetime, was: Hint | None) -> bool:
    """Write a change; not where a person was faster, whom the next turn heeds."""
    hint, word = change
    control = {"control": True} if hint.is_control else {}
    return save_hint(connection, hint, now, {"change": word, **control, **_hold_detail(hint.evidence.held)}, was)


def _lapsed(inputs: Inputs) -> list[Hint]:
    return [hint for hint in inputs.hints if hint.state in OPEN_STATES and hint.valid_until <= inputs.now]


def _hold_detail(why: object) -> dict[str, object]:
    return {} if why is None else {"held": why}

"""What a turn does beside deciding on nodes: hints of replaced machines are dropped, held nodes are let go once they
have passed their test, and running jobs are told of culprits.

    seen = look(connection, ground, policy)      # reads; changes nothing
    carry(connection, seen, now, before)         # writes hints and their audit
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

import sqlalchemy as sa

from schedulers.facts import HOLDING, Inputs, NodeFacts
from schedulers.job_watch import JobDecision, JobInputs, RunningJob, watch
from schedulers.policy import Decision
from schedulers.release import ReleaseInputs, ReleasePlan, plan
from schedulers.replaced import read_machines, replaced
from schedulers.settings import Policy
from schedulers.wish import steps_for
from store.hint import OPEN_STATES, Hint
from store.hint_log import ACTOR_POLICY, close_hint, read_job_hints, save_hint
from store.hint_outcomes import taken_hints
from store.read_states import last_faults, out_of_service
from store.running_jobs import running_jobs
from store.validations import validations_of

# Not plainly the policy: what it dropped is not asked again for what the old machine did.
ACTOR_REPLACED = "policy:replaced"
_DAY = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class Aftercare:
    """What is to be written. `handled`: hints that the decision itself must leave as they are."""

    dropped: tuple[tuple[Hint, str], ...] = ()
    release: ReleasePlan = field(default_factory=ReleasePlan)
    jobs: JobDecision = field(default_factory=JobDecision)

    @property
    def is_nothing(self) -> bool:
        """Whether nothing changes."""
        return self == Aftercare()

    @property
    def handled(self) -> frozenset[str]:
        """Ids of the hints that the decision's own changes and releases are not to touch."""
        kept = {hint.id for hint, _word in self.release.kept}
        return frozenset({hint.id for hint, _why in self.dropped} | kept)


def lapse(connection: sa.Connection, lapsed: Sequence[Hint], policy: Policy, now: datetime) -> None:
    """End the hints whose time is over; one that holds a node goes on until that has passed its test."""
    found = plan(_inputs(connection, lapsed, {}, now, lapsed=lapsed), policy)
    _carry_release(connection, found, now, {hint.id: hint for hint in lapsed})


def look(connection: sa.Connection, inputs: Inputs, decision: Decision, policy: Policy) -> Aftercare:
    """What is to be done beside a decision."""
    well = decision.released
    now, facts = inputs.now, {one.node: one for one in inputs.nodes}
    standing = [hint for hint in inputs.hints if hint.state in OPEN_STATES and hint.job is None]
    gone = replaced(standing, read_machines(connection, standing), now) if standing else {}
    left = [hint for hint in standing if hint.id not in gone and (hint in well or "release" in hint.evidence)]
    release = ReleasePlan()
    if left:
        release = plan(
            _inputs(connection, left, facts, now, well=[hint for hint in well if hint.id not in gone]), policy
        )
    dropped = tuple((hint, gone[hint.id]) for hint in standing if hint.id in gone)
    stands = {**inputs.open_by_node(), **{hint.node: hint for hint, _word in decision.changed}}
    for hint in (*well, *(hint for hint, _why in dropped)):
        stands.pop(hint.node, None)
    return Aftercare(dropped, release, _jobs(connection, inputs, stands, policy))


def _inputs(
    connection: sa.Connection,
    hints: Sequence[Hint],
    facts: dict[str, NodeFacts],
    now: datetime,
    *,
    well: Sequence[Hint] = (),
    lapsed: Sequence[Hint] = (),
) -> ReleaseInputs:
    held = [hint for hint in hints if hint.action in HOLDING]
    taken = taken_hints(connection, [hint.id for hint in held])
    tests = validations_of(connection, [hint.id for hint in held]) if held else {}
    faults = last_faults(connection, [hint.node for hint in held]) if held else {}
    return ReleaseInputs(now, facts, hints, well, lapsed, taken, tests, faults)


def _jobs(connection: sa.Connection, inputs: Inputs, stands: dict[str, Hint], policy: Policy) -> JobDecision:
    """The job hints, by the facts and the hints of nodes, without those that the kill switch stops."""
    found = ask_jobs(connection, inputs, stands, read_job_hints(connection, inputs.now - _DAY), policy)
    if inputs.stop == "none":
        return found
    return JobDecision(tuple(hint for hint in found.made if hint.state == "shadow"), found.over)


def ask_jobs(
    connection: sa.Connection, inputs: Inputs, stands: dict[str, Hint], past: Sequence[Hint], policy: Policy
) -> JobDecision:
    """What is asked of the jobs that run; nothing is read of spares where nobody calls for one.

    Args:
        stands: each node's own open hint, as this turn leaves it.
        past: hints of jobs that are open, still valid, or made within a day.
    """
    now, limits = inputs.now, policy.job_watch
    calls = any(one.is_confirmed or (one.score or 0.0) >= policy.thresholds.watch for one in inputs.nodes)
    if not (calls and (limits.swap or limits.requeue or limits.checkpoint)) and not past:
        return JobDecision()
    jobs = [RunningJob(*one) for one in running_jobs(connection, now)]
    facts = {one.node: one for one in inputs.nodes}
    return watch(
        JobInputs(now, jobs, facts, past, stands, inputs.still_held, out_of_service(connection, now)),
        policy,
        lambda one: steps_for(one, inputs, policy).checkpoint,
    )


def carry(connection: sa.Connection, seen: Aftercare, now: datetime, before: Mapping[str, Hint]) -> None:
    """Write what was seen, each change with its audit row. `before`: the hints as they were read, by id."""
    for hint, why in seen.dropped:
        close_hint(connection, hint, "withdrawn", now, ACTOR_REPLACED, {"why": why})
    _carry_release(connection, seen.release, now, before)
    for hint, why in seen.jobs.over:
        close_hint(connection, hint, "released", now, ACTOR_POLICY, {"why": why})
    for hint in seen.jobs.made:
        save_hint(connection, hint, now, {"change": "made", "job": hint.job})


def _carry_release(connection: sa.Connection, found: ReleasePlan, now: datetime, before: Mapping[str, Hint]) -> None:
    for hint in found.released:
        close_hint(connection, hint, "released", now, ACTOR_POLICY)
    for hint in found.expired:
        close_hint(connection, hint, "expired", now, ACTOR_POLICY)
    for hint, word in found.kept:
        save_hint(connection, hint, now, {"change": word}, before[hint.id])

"""Hints on running jobs whose node is a confirmed culprit, or likely to fail. Pure, except `ask_jobs`.

    watch(JobInputs(now, jobs, nodes, hints), policy, save_from)    # hints made, and hints whose time is over

For a confirmed culprit: `swap`, which names a spare, else `requeue` where that is allowed, so often a day for a run.
For a node that is likely to fail and still works: `checkpoint`, where the risk is past the break-even. A job is asked
once about a culprit, and only where the node's own hint calls it one; what it does is its owner's. That hint keeps the
node from the next job, and pays the budgets.
"""

import hashlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

import sqlalchemy as sa

from schedulers.policy.decision import OWNER
from schedulers.policy.facts import HOLDING, Inputs, NodeFacts
from schedulers.policy.proposal import is_opted_out, risk_words, steps_for
from schedulers.policy.settings import Mode, Policy, version_of
from store.nodes.node_states import out_of_service
from store.records.event import format_time
from store.records.fault_catalog import named_kind
from store.records.hint import OPEN_STATES, Evidence, Hint, HintAction, HintState
from store.runs.jobs import running_jobs

_DAY = timedelta(days=1)
_HOUR = timedelta(hours=1)
_STATE: Mapping[Mode, HintState] = {"shadow": "shadow", "approve": "proposed", "act": "approved"}


@dataclass(frozen=True, slots=True)
class RunningJob:
    """A job that runs: its nodes by name, in its own order."""

    job: str
    run: str
    nodes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class JobInputs:
    """What the decision looks at. `hints`: those of jobs that are open, still valid, or made within a day.

    `open_hints`: each node's own open hint, as this turn leaves it; `held`: nodes that a scheduler may hold for us yet;
    `unfit`: those that are not in service.
    """

    now: datetime
    jobs: Sequence[RunningJob]
    nodes: Mapping[str, NodeFacts]
    hints: Sequence[Hint] = ()
    open_hints: Mapping[str, Hint] = field(default_factory=dict)
    held: Collection[str] = frozenset()
    unfit: Collection[str] = frozenset()


@dataclass(frozen=True, slots=True)
class JobDecision:
    """Hints that are made, and those that end with the reason why."""

    made: tuple[Hint, ...] = ()
    over: tuple[tuple[Hint, str], ...] = ()


@dataclass(slots=True)
class _SpareNodes:
    """Nodes that may take a culprit's place; each is named once."""

    inputs: JobInputs
    policy: Policy
    _gone: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._gone = {node for job in self.inputs.jobs for node in job.nodes} | {*self.inputs.held, *self.inputs.unfit}
        self._gone |= self.inputs.open_hints.keys()
        named = (hint for hint in self.inputs.hints if hint.valid_until > self.inputs.now)
        self._gone |= {hint.evidence.spare for hint in named if hint.evidence.spare is not None}

    def take(self, culprit: NodeFacts) -> NodeFacts | None:
        """The best spare for a culprit: of its leaf, else of its rack, else any; the one of the least risk."""
        free = [facts for facts in self.inputs.nodes.values() if self._fits(facts, culprit)]
        if not free:
            return None
        best = min(free, key=lambda facts: (_distance(facts, culprit), _risk(facts), facts.node))
        self._gone.add(best.node)
        return best

    def _fits(self, facts: NodeFacts, culprit: NodeFacts) -> bool:
        is_well = not (facts.out or facts.is_confirmed or facts.silent or is_opted_out(facts.node, self.policy))
        is_well = is_well and (facts.score or 0.0) < self.policy.thresholds.watch
        is_like = facts.gpus is None or culprit.gpus is None or facts.gpus == culprit.gpus
        return facts.node not in self._gone and is_well and is_like and facts.idle is not False


def _risk(facts: NodeFacts) -> float:
    """A node of unknown risk comes after all of known risk."""
    return 1.0 if facts.score is None else facts.score


def _distance(facts: NodeFacts, culprit: NodeFacts) -> int:
    if culprit.leaf is not None and facts.leaf == culprit.leaf:
        return 0
    return 1 if culprit.rack is not None and facts.rack == culprit.rack else 2


def watch(inputs: JobInputs, policy: Policy, save_from: Callable[[NodeFacts], float]) -> JobDecision:
    """The job hints of this moment.

    Args:
        save_from: the risk from which a checkpoint pays for the job of a node.
    """
    turn = _JobHintMaker(inputs, policy, _SpareNodes(inputs, policy), save_from)
    for job in inputs.jobs:
        for node in job.nodes:
            facts = inputs.nodes.get(node)
            if facts is None or (facts.out and facts.is_shown_out):
                continue
            if facts.is_confirmed:
                turn.ask_for_culprit(job, facts)
            elif facts.score is not None and facts.score >= policy.thresholds.watch:
                turn.ask_for_risk(job, facts, facts.score)
    return JobDecision(tuple(turn.made), tuple(_over(inputs)))


@dataclass(slots=True)
class _JobHintMaker:
    """One decision: what was asked before, and what is made."""

    inputs: JobInputs
    policy: Policy
    spares: _SpareNodes
    save_from: Callable[[NodeFacts], float]
    made: list[Hint] = field(default_factory=list)

    def ask_for_culprit(self, job: RunningJob, facts: NodeFacts) -> None:
        """A swap where there is a spare, else a requeue; once for each fault of a node."""
        backing = self.inputs.open_hints.get(facts.node)
        if backing is None or not _backs(backing):
            return
        fault, limits = _fault_of(facts), self.policy.job_watch
        requested = [hint for hint in self._hints_of(job.job) if hint.action in ("swap", "requeue")]
        if any((hint.node, hint.evidence.incident) == (facts.node, fault.incident) for hint in requested):
            return
        hour = self.inputs.now - _HOUR
        if sum(1 for hint in requested if hint.action == "swap" and hint.created > hour) >= limits.most_swaps:
            return
        spare = self.spares.take(facts) if limits.swap else None
        if spare is not None:
            evidence = replace(fault, spare=spare.node, spare_leaf=spare.leaf, spare_score=spare.score)
            text = f"foreshock: {fault.what}: go on with {spare.node} instead of {facts.node}"
            self._make(job, facts, "swap", text, evidence)
        elif limits.requeue and not any(hint.action == "requeue" and _stands(hint) for hint in requested):
            requeues = [hint for hint in self._recent() if self._is_requeue_of(hint, job.run)]
            if len(requeues) < limits.most_requeues:
                exclude = tuple(node for node in job.nodes if self._is_culprit(node))
                text = f"foreshock: {fault.what}: start again without {facts.node}"
                self._make(job, facts, "requeue", text, replace(fault, exclude=exclude))

    def ask_for_risk(self, job: RunningJob, facts: NodeFacts, score: float) -> None:
        """A checkpoint, where the risk is past the break-even; one a job at a time, one a node and day."""
        line = self.save_from(facts)
        if not self.policy.job_watch.checkpoint or score < line or is_opted_out(facts.node, self.policy):
            return
        requested = [hint for hint in self._hints_of(job.job) if hint.action == "checkpoint"]
        if any(hint.node == facts.node or _stands(hint) for hint in requested):
            return
        evidence = Evidence(score, 24, facts.reasons, threshold=line, control=facts.control, scored=facts.scored)
        text = f"foreshock: {risk_words(score, facts.scored)}, on {facts.node}: save now"
        self._make(job, facts, "checkpoint", text, evidence)

    def _hints_of(self, job: str) -> list[Hint]:
        """What a job was asked; a shadow counts while shadows are all that is made."""
        return [hint for hint in self._recent() if hint.job == job and (self._shadows or hint.state != "shadow")]

    def _recent(self) -> list[Hint]:
        day = self.inputs.now - _DAY
        return [*(hint for hint in self.inputs.hints if hint.created > day or _stands(hint)), *self.made]

    @property
    def _shadows(self) -> bool:
        return self.policy.mode == "shadow"

    def _is_requeue_of(self, hint: Hint, run: str) -> bool:
        return hint.action == "requeue" and hint.evidence.run == run

    def _is_culprit(self, node: str) -> bool:
        facts = self.inputs.nodes.get(node)
        return facts is not None and facts.is_confirmed

    def _make(self, job: RunningJob, facts: NodeFacts, action: HintAction, reason: str, evidence: Evidence) -> None:
        now = self.inputs.now
        ident = hashlib.blake2b(f"{job.job} {facts.node} {action} {format_time(now)}".encode(), digest_size=8)
        hint = Hint(
            ident.hexdigest(),
            facts.node,
            action,
            self._state(facts.node, evidence),
            reason,
            OWNER,
            now,
            now + timedelta(seconds=self.policy.validity.job_s),
            replace(evidence, run=job.run, job_nodes=len(job.nodes), acted=now),
            job.job,
            version_of(self.policy),
        )
        self.made.append(hint)

    def _state(self, node: str, evidence: Evidence) -> HintState:
        """By the mode; where the node's own hint waits for a person, the job's does, too."""
        if evidence.control:
            return "shadow"
        backing = self.inputs.open_hints.get(node)
        waits = backing is not None and backing.state == "proposed"
        return "proposed" if waits and not self._shadows else _STATE[self.policy.mode]


def _backs(hint: Hint) -> bool:
    """Whether a node's own hint says that it is the culprit: not where breaker or quorum hold it back.

    Then many nodes fail at once, or little is seen, and moving jobs off them would do more harm than the faults.
    """
    return hint.action in HOLDING or (hint.evidence.held or "").startswith("budget")


def _stands(hint: Hint) -> bool:
    return hint.state in OPEN_STATES


def _fault_of(facts: NodeFacts) -> Evidence:
    """What is wrong with a culprit, in words, and the incident that says so."""
    if facts.fault is not None:
        fault = facts.fault
        what = named_kind(fault.kind, fault.code)
        verdict = None if facts.verdict is None else facts.verdict.id
        return Evidence(incident=fault.id, what=f"{what} on {fault.device.words(fault.name)}", verdict=verdict)
    if facts.witnesses is None and facts.verdict is not None:
        return Evidence(verdict=facts.verdict.id, what=facts.verdict.reason[:200])
    if facts.witnesses is None:
        raise ValueError(f"nothing speaks against {facts.node}")
    one, other = facts.witnesses
    return Evidence(incident=other.incident, what=f"{one.source} and {other.source} both saw it fail")


def _over(inputs: JobInputs) -> Iterator[tuple[Hint, str]]:
    """Open hints whose job has ended, or runs on the node no more."""
    running = {job.job: frozenset(job.nodes) for job in inputs.jobs}
    for hint in inputs.hints:
        if hint.state not in OPEN_STATES or hint.job is None:
            continue
        if hint.job not in running:
            yield hint, f"job {hint.job} has ended"
        elif hint.node not in running[hint.job]:
            yield hint, f"job {hint.job} runs on {hint.node} no more"


def ask_jobs(
    connection: sa.Connection, inputs: Inputs, stands: dict[str, Hint], past: Sequence[Hint], policy: Policy
) -> JobDecision:
    """The hints on the jobs that run; spares are read only where a node calls for one.

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

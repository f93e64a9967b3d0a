"""When a held node may take work again: once its ground is gone and, where a test is set, that was passed. Pure.

    next_step(hint, tests, last_fault, release, now)   # release, test, wait, repair

A node is held until its hint's ground has gone: for a fault, `release.healthy_s` without another, or an outage that
ended since, as a scheduler shows it, too. Then `release.validate` is run (`schedulers/lifecycle/validation.py`), or
another test system reports. What counts is the newest result since the hint was made and since the node's last fault.
A node that fails its test again and again stays held and is a case for repair: a person decides, or the ticket about it
is closed (`schedulers/lifecycle/tickets.py`): then it is tested anew.

Without a test the healthy time must be vouched for: by the node's own heartbeats, or by its scheduler, which showed it
up, over all of it. No single message can forge that. A node that nobody vouches for waits for a person.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Literal, TypeAlias

from schedulers.policy.facts import HOLDING, NodeFacts, acted
from schedulers.policy.proposal import is_opted_out, validity_of
from schedulers.policy.settings import Policy, Release
from store.hints.validations import Validation
from store.records.hint import Hint, ReleaseWait, RepairCase

Step: TypeAlias = Literal["release", "test", "wait", "repair"]
# The test asks to be called again later, as sysexits.h says it: the node is busy, a licence is out.
PUT_OFF = 75
# What a held node waits for whose ground has gone.
FOR_ITS_TEST, FOR_HEALTH = "for its test", "for its healthy time with heartbeats, or a person"
_PUT_OFF_S = 300.0


@dataclass(frozen=True, slots=True)
class ReleaseInputs:
    """What a turn knows.

    `well`: hints whose ground has gone; `lapsed`: those that nobody renewed; `taken`: ids of those that a scheduler has
    ever taken; `tests` by hint; `last_fault` by node; `vouched`: nodes of which is known that they were up over all of
    the healthy time.
    """

    now: datetime
    facts: Mapping[str, NodeFacts]
    hints: Sequence[Hint]
    well: Sequence[Hint] = ()
    lapsed: Sequence[Hint] = ()
    taken: Collection[str] = frozenset()
    tests: Mapping[str, Sequence[Validation]] = field(default_factory=dict)
    last_fault: Mapping[str, datetime] = field(default_factory=dict)
    vouched: Collection[str] = frozenset()


@dataclass(frozen=True, slots=True)
class ReleasePlan:
    """`released` and `expired` end now; `kept` are changed, with the audit's word, and go on holding their nodes."""

    released: tuple[Hint, ...] = ()
    expired: tuple[Hint, ...] = ()
    kept: tuple[tuple[Hint, str], ...] = ()


def is_held(hint: Hint, taken: Collection[str]) -> bool:
    """Whether a scheduler holds a node for a hint, or may: one that none has taken holds nothing."""
    if hint.is_control or hint.action not in HOLDING or hint.job is not None:
        return False
    # One that is to become a graver hold waits for a person's yes, and holds its node meanwhile.
    return hint.state in ("sent", "confirmed") or (hint.state in ("approved", "proposed") and hint.id in taken)


def next_step(
    hint: Hint, tests: Sequence[Validation], last_fault: datetime | None, release: Release, now: datetime
) -> Step:
    """What is to be done about a held node whose ground has gone."""
    counted = [test for test in tests if test.started >= _sound_since(hint, last_fault, release)]
    results = [test for test in counted if test.passed is not None]
    if results and results[-1].passed:
        return "release"
    if not release.validate:  # what failed another's test is not let go because we have none
        return "repair" if results or hint.evidence.repair is not None else "release"
    if any(test.ended is None for test in counted):
        return "wait"
    if len(results) - _last_pass(results) >= release.most_tries:
        return "repair"
    return "wait" if counted and now < _again(counted[-1], release) else "test"


def _sound_since(hint: Hint, last_fault: datetime | None, release: Release) -> datetime:
    """From when on a test speaks of the node as it is; one of before a repair does not, where we test it again."""
    made, ticket = acted(hint), hint.evidence.ticket
    if ticket is not None and release.validate:
        made = max(made, ticket.time)
    return made if last_fault is None else max(made, last_fault)


def _last_pass(results: Sequence[Validation]) -> int:
    """How many of the results lie up to the last pass."""
    return max((i + 1 for i, test in enumerate(results) if test.passed), default=0)


def _again(last: Validation, release: Release) -> datetime:
    """When the next test may begin: at once after one that was cut off with its server."""
    if last.passed is None and last.exit_code is None:
        return last.started
    wait_s = release.retry_s if last.passed is not None else min(release.retry_s, _PUT_OFF_S)
    return (last.ended or last.started) + timedelta(seconds=wait_s)


def plan(inputs: ReleaseInputs, policy: Policy) -> ReleasePlan:
    """Which hints end, and which go on holding until their node has passed."""
    well = {hint.id for hint in inputs.well}
    lapsed = {hint.id for hint in inputs.lapsed}
    released, expired = list[Hint](), list[Hint]()
    kept = list[tuple[Hint, str]]()
    for hint in inputs.hints:
        held = is_held(hint, inputs.taken)
        waits = hint.evidence.release is not None and not _is_needed(inputs.facts.get(hint.node))
        if not held or not (hint.id in well or hint.id in lapsed or waits):
            released += [hint] if hint.id in well else []
            expired += [hint] if hint.id in lapsed and hint.id not in well else []
            if hint.evidence.release is not None and hint.id not in well | lapsed:
                kept.append((_without(hint), "needed again"))
            continue
        tests = inputs.tests.get(hint.id, ())
        step = next_step(hint, tests, inputs.last_fault.get(hint.node), policy.release, inputs.now)
        if step == "release" and not _passed(tests) and not _is_vouched(hint, inputs, policy):
            step = "wait"
        if step == "release":
            (expired if hint.id in lapsed and not _passed(tests) else released).append(hint)
        elif (change := _renewal(hint, step, tests, policy, inputs.now)) is not None:
            kept.append(change)
    return ReleasePlan(tuple(released), tuple(expired), tuple(kept))


def _is_vouched(hint: Hint, inputs: ReleaseInputs, policy: Policy) -> bool:
    """Whether a node is known to have been up, without a fault, for all of the healthy time, or was opted out."""
    if is_opted_out(hint.node, policy):
        return True
    last = [witness.time for witness in hint.evidence.witnesses or ()]
    if hint.node in inputs.last_fault:
        last.append(inputs.last_fault[hint.node])
    is_over = all(moment <= inputs.now - timedelta(seconds=policy.healthy_s) for moment in last)
    return is_over and hint.node in inputs.vouched


def _passed(tests: Sequence[Validation]) -> bool:
    return any(test.passed for test in tests)


def _is_needed(facts: NodeFacts | None) -> bool:
    """Whether the ground of a hold is back."""
    return facts is not None and (facts.is_confirmed or facts.out)


def _without(hint: Hint) -> Hint:
    """The hint as it was before its node seemed well."""
    return replace(hint, evidence=replace(hint.evidence, release=None))


def _renewal(
    hint: Hint, step: Step, tests: Sequence[Validation], policy: Policy, now: datetime
) -> tuple[Hint, str] | None:
    """The hint that waits, renewed where its time is running out; None where nothing changes."""
    evidence, word = hint.evidence, None
    what = FOR_ITS_TEST if policy.release.validate else FOR_HEALTH
    if evidence.release is None or evidence.release.waits not in (what, ""):
        since = now if evidence.release is None else evidence.release.since
        evidence, word = replace(evidence, release=ReleaseWait(since, what)), f"waits {what}"
    if step == "repair" and evidence.repair is None:
        begun = evidence.ticket.time if evidence.ticket is not None else None
        failed = [test for test in tests if test.passed is False and (begun is None or test.started >= begun)]
        said = failed[-1].output.strip().splitlines()[-1:] if failed else []
        evidence = replace(evidence, repair=RepairCase(now, len(failed), "".join(said)[:200]))
        word = "case for repair"
    lasts = validity_of(hint.action, policy.validity)
    if hint.valid_until - now >= lasts / 2:
        return None if word is None else (replace(hint, evidence=evidence), word)
    state = "approved" if hint.state == "sent" else hint.state  # a receiver that cannot be read back is told anew
    return replace(hint, evidence=evidence, state=state, valid_until=now + lasts), word or "renewed"

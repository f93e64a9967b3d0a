"""Active checks: an operator's own command on the suspects of a verdict, a few at a time; what it says is evidence.

    plan = begin_checks(connection, verdict, settings, now, ("ann", None))     # in the audit, and of the hour's budget
    for result in run_checks(plan.requests, settings, clock):  # each in a process, ended with us or at its time
        event = end_check(engine, "ann", result)

`checks.pair` is, say, `srun -w {node},{peer} -n 2 all_reduce_perf -b 1G -e 1G`, `checks.dcgmi` `ssh {node} dcgmi diag
-r 1`. No shell reads it: words as a shell would part them, with {node}, {peer} and {device} filled in.
"""

import hashlib
import shlex
import subprocess
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

import sqlalchemy as sa

from schedulers.lifecycle.validation import GRACE_S, NODE_NAME, ValidationResult, begin_watched, end_watched, result_of
from schedulers.policy.settings import CHECK_NAMES, CheckName, CheckSettings
from store.database.audit_chain import AuditEntry, append_audit
from store.database.connections import writing
from store.nodes.node_states import node_places, nodes_out
from store.records.event import Device, Event
from store.records.fault_catalog import with_kind_meaning
from store.records.hostlist import EVERY_NODE, NodePattern
from store.records.verdict import CauseClass, Verdict
from store.runs.jobs import running_jobs
from store.tables import schema
from store.verdicts.verdict_log import open_verdicts

# What tells most of a suspect; the next where the site has no such command.
_FIRST: Mapping[CauseClass, CheckName] = {
    **dict.fromkeys(("gpu", "nvlink", "nvswitch", "cooling", "driver", "firmware"), "dcgmi"),
    **dict.fromkeys(("nic", "cable", "optic", "port", "switch"), "pair"),
    **dict.fromkeys(("node", "rack", "power", "storage"), "ping"),
}
# The events of which cause a failure is, by the device that was tried.
_VARIANTS = {**dict.fromkeys(("gpu", "npu", "mlu", "hpu"), "gpu"), "hca": "fabric", "nic": "fabric", "port": "fabric"}
_MOST_SAID = 400
_BEGUN = "check begun"
# Rows of the audit in which an hour's checks are looked for, the newest.
_MOST_ROWS = 20_000
_POLL_S = 0.05
_HOUR = timedelta(hours=1)


class CheckRefusedError(ValueError):
    """A check that is not begun; the message says why, and the remedy."""


@dataclass(frozen=True, slots=True)
class CheckRequest:
    """One check of one node. `peer` is a well node for a test of two, where the command names one."""

    name: CheckName
    node: str
    words: tuple[str, ...]
    device: Device = field(default_factory=Device)
    peer: str | None = None
    verdict: str | None = None


@dataclass(frozen=True, slots=True)
class CheckResult:
    """How a check ended, and when."""

    request: CheckRequest
    result: ValidationResult
    ended: datetime


@dataclass(frozen=True, slots=True)
class CheckPlan:
    """The checks that may begin, and why others may not: node and reason."""

    requests: tuple[CheckRequest, ...]
    left_out: tuple[tuple[str, str], ...] = ()


def plan_checks(
    connection: sa.Connection,
    suspect: Verdict | str,
    settings: CheckSettings,
    now: datetime,
    name: str | None = None,
    peers: NodePattern = EVERY_NODE,
) -> CheckPlan:
    """The checks of a verdict's top suspects, or of one node.

    Args:
        name: of the check; None: what tells most of such a suspect.
        peers: the nodes that may be had for a test of two.

    Raises:
        CheckRefusedError: there is no such check or suspect, or the hour's budget is spent.
    """
    chosen = _chosen(settings, suspect, name)
    nodes = suspects_of(suspect) if isinstance(suspect, Verdict) else (suspect,)
    known = {row[0]: row[2] for row in node_places(connection)}
    strange = [node for node in nodes if node not in known or not NODE_NAME.fullmatch(node)]
    if strange or not nodes:
        raise CheckRefusedError(f"no node is called {', '.join(strange[:3]) or suspect}: name a node or a verdict's id")
    left = settings.per_hour - begun_since(connection, now - _HOUR)
    if left <= 0:
        raise CheckRefusedError(f"{settings.per_hour} checks began within the hour: wait, or raise checks.per_hour")
    busy = {node for _job, _run, job_nodes in running_jobs(connection, now) for node in job_nodes}
    spares = [] if "{peer}" not in settings.commands()[chosen] else _peers(connection, known, busy, now)
    requests: list[CheckRequest] = []
    left_out: list[tuple[str, str]] = []
    for node in nodes:
        near = sorted(spares, key=lambda one: known[one] != known[node])
        peer = next((one for one in near if one not in nodes and peers.matches(one)), None)
        if node in busy and not settings.with_jobs:
            left_out.append((node, "a job runs on it: checks.with_jobs, or --with-jobs, allows it"))
        elif len(requests) >= min(left, settings.suspects):
            left_out.append((node, "the budget of checks is spent: checks.suspects, checks.per_hour"))
        elif "{peer}" in settings.commands()[chosen] and peer is None:
            left_out.append((node, "no well node without a job is there to test it with"))
        else:
            requests.append(_request(chosen, node, peer, suspect, settings))
            spares = [one for one in spares if one != peer]
    return CheckPlan(tuple(requests), tuple(left_out))


def suspects_of(verdict: Verdict) -> tuple[str, ...]:
    """The nodes by which a verdict can be tried: its own, else those that hang below it, in order."""
    return (verdict.node,) if verdict.node is not None else verdict.nodes


def begin_checks(
    connection: sa.Connection,
    suspect: Verdict | str,
    settings: CheckSettings,
    now: datetime,
    who: tuple[str, str | None],
    peers: NodePattern = EVERY_NODE,
) -> CheckPlan:
    """Plan checks and write down that they begin: from here on they are of the hour's budget, whatever comes of them.

    Args:
        who: the actor of the audit, and the name of the check that was asked for, if any.
        peers: as of `plan_checks`.

    Raises:
        CheckRefusedError: as `plan_checks`.
    """
    actor, name = who
    plan = plan_checks(connection, suspect, settings, now, name, peers)
    said = [(one, {"command": " ".join(one.words)}) for one in plan.requests]
    append_audit(connection, [_entry(now, actor, "begun", one, detail) for one, detail in said])
    return plan


def end_check(engine: sa.Engine, actor: str, result: CheckResult) -> Event | None:
    """Write in the audit what came of a check; returns what it says of its node, for incidents and verdicts."""
    detail = {"exit_code": result.result.exit_code, "output": result.result.output.strip()[-200:]}
    with writing(engine).begin() as connection:
        append_audit(connection, [_entry(result.ended, actor, result.result.outcome, result.request, detail)])
    return event_of(result)


def _entry(now: datetime, actor: str, word: str, one: CheckRequest, detail: Mapping[str, Any]) -> AuditEntry:
    said = {"node": one.node, "check": one.name, "peer": one.peer, **detail}
    return AuditEntry(now, actor, f"check {word}", one.verdict or one.node, said)


def event_of(result: CheckResult) -> Event | None:
    """What a check says of its node; nothing where it could not be made, or was put off."""
    asked, passed = result.request, result.result.passed
    if passed is None:
        return None
    attributes: dict[str, Any] = {"check": asked.name, "exit_code": result.result.exit_code}
    attributes |= {"peer": asked.peer, "verdict": asked.verdict}
    ident = f"{asked.name} {asked.node} {asked.device.key()} {result.ended.isoformat()}"
    event = Event(
        time=result.ended,
        node=asked.node,
        source="check",
        kind="check_passed" if passed else "check_failed",
        device=asked.device,
        message=f"{asked.name}: {result.result.outcome}: {last_line(result)}"[:_MOST_SAID],
        attributes={key: value for key, value in attributes.items() if value is not None},
        id=hashlib.blake2b(ident.encode(), digest_size=12).hexdigest(),
    )
    return with_kind_meaning(event, "" if passed else _VARIANTS.get(asked.device.type, ""))


def last_line(result: CheckResult) -> str:
    """The last line of what a check said."""
    return (result.result.output.strip().splitlines()[-1:] or [""])[0][-_MOST_SAID:]


def begun_since(connection: sa.Connection, since: datetime) -> int:
    """How many checks of the site began since a moment, by the audit."""
    table = schema.audit.c
    newest = connection.scalar(sa.select(sa.func.max(table.seq))) or 0
    query = sa.select(sa.func.count()).select_from(schema.audit).where(table.seq > newest - _MOST_ROWS)
    return connection.scalar(query.where(table.action == _BEGUN, table.time > since)) or 0


def _chosen(settings: CheckSettings, suspect: Verdict | str, name: str | None) -> CheckName:
    commands = settings.commands()
    if not commands:
        raise CheckRefusedError(
            f"no check is configured: set `checks: {{{CHECK_NAMES[0]}: ...}}` ({', '.join(CHECK_NAMES)})"
        )
    if name is not None:
        found = next((one for one in commands if one == name), None)
        if found is None:
            raise CheckRefusedError(f"no check {name!r} is configured: there is {', '.join(commands)}")
        return found
    wanted = _FIRST.get(suspect.cause_class, "site") if isinstance(suspect, Verdict) else "site"
    return wanted if wanted in commands else next(iter(commands))


def _peers(connection: sa.Connection, known: Collection[str], busy: Collection[str], now: datetime) -> list[str]:
    """Nodes against which nothing speaks and on which no job runs."""
    suspected = {node for one in open_verdicts(connection) for node in (*suspects_of(one), *one.nodes)}
    out = nodes_out(connection, now)
    well = (node for node in sorted(known) if node not in busy and node not in suspected and node not in out)
    return [node for node in well if NODE_NAME.fullmatch(node)]


def _request(
    name: CheckName, node: str, peer: str | None, suspect: Verdict | str, settings: CheckSettings
) -> CheckRequest:
    verdict = suspect if isinstance(suspect, Verdict) else None
    own = verdict is not None and verdict.node == node
    device = verdict.device if verdict is not None and own else Device()
    part = device.pci or device.uuid or ""
    # As a node's name: none shall be read as an option, or as a path.
    filled = {"{node}": node, "{peer}": peer or "", "{device}": part if NODE_NAME.fullmatch(part) else ""}
    words = []
    for word in shlex.split(settings.commands()[name]):
        for mark, value in filled.items():
            word = word.replace(mark, value)
        words.append(word)
    used = peer if "{peer}" in settings.commands()[name] else None
    return CheckRequest(name, node, tuple(words), device, used, None if verdict is None else verdict.id or None)


def run_checks(
    requests: Sequence[CheckRequest], settings: CheckSettings, clock: Callable[[], datetime]
) -> Iterator[CheckResult]:
    """Run checks, `at_once` at a time, and give each result as it comes. Whoever stops early ends those that run."""
    waiting = list(requests)
    running: list[tuple[CheckRequest, subprocess.Popen[bytes], float]] = []
    try:
        while waiting or running:
            while waiting and len(running) < settings.at_once:
                one = waiting.pop(0)
                told = {"FORESHOCK_NODE": one.node, "FORESHOCK_VERDICT": one.verdict or ""}
                deadline = time.monotonic() + settings.timeout_s + GRACE_S
                running.append((one, begin_watched(one.words, settings.timeout_s, told), deadline))
            for entry in list(running):
                one, child, deadline = entry
                if child.poll() is not None:
                    running.remove(entry)
                    yield CheckResult(one, result_of(child), clock())
                elif time.monotonic() >= deadline:
                    running.remove(entry)
                    end_watched(child)
                    late = ValidationResult("timed_out", False, None, "its watcher did not answer in time")
                    yield CheckResult(one, late, clock())
            time.sleep(_POLL_S)
    finally:
        for _one, child, _deadline in running:
            end_watched(child)

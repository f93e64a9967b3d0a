"""A policy over stored history, beside no action, a cordon at every fatal Xid, and itself without limits."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from typing import Any

import sqlalchemy as sa

from cli.errors import Failure
from schedulers.baselines import cordon_on_fatal_xid, no_action, without_limits
from schedulers.policy_replay import Contender, Lived, Span, acting, ask_by, held_back, replay_side_by_side
from schedulers.policy_version import version_of
from schedulers.replay_measures import Kind, Measures, Serving, measure
from schedulers.replay_savings import Ground, Placed, Savings, account
from schedulers.score_history import ScoreHistory
from schedulers.settings import Policy
from store.event import format_time
from store.ledgers import ledger_page
from store.losses import read_losses
from store.outage import Outage
from store.read import newest_time, read_nodes, read_outages
from store.running_jobs import jobs_between

_DAYS = timedelta(days=28)
_STALE = timedelta(hours=24)  # older scores ask for nothing
THIS = "this policy"


@dataclass(frozen=True, slots=True)
class Trial:
    """What of the history is lived through; None: the newest four weeks, or since the first of the `scores`.

    `scores`: in place of those stored.
    """

    since: datetime | None
    until: datetime | None
    step: timedelta
    scores: ScoreHistory | None = None


def try_policy(connection: sa.Connection, policy: Policy, asked: Trial) -> dict[str, Any]:
    """The report, as JSON.

    Raises:
        Failure: the database has no records, or the span is empty.
    """
    span = _span(connection, asked)
    fleet = [
        Serving(node.node, node.gpus or policy.costs.node_gpus, node.in_service_since, node.in_service_until)
        for node in read_nodes(connection)
    ]
    _check_scores(asked.scores, span, fleet)
    outages = read_outages(connection, span.until)
    contenders = _contenders(policy)
    found = replay_side_by_side(connection, list(contenders.values()), policy, span, scores=asked.scores)
    lived = dict(zip(contenders, found, strict=True))
    measures = {name: measure(one, outages, fleet) for name, one in lived.items()}
    mine, asked_by_it = measures[THIS], lived[THIS]
    return {
        "version": version_of(policy),
        "since": format_time(span.since),
        "until": format_time(span.until),
        "moments": asked_by_it.moments,
        "nodes": len(fleet),
        "node_days": mine.node_days,
        "outages": mine.outages,
        "by_action": dict(mine.by_action),
        "table": [row for name in contenders for row in _rows(name, measures[name])],
        "savings": _savings(connection, lived, (outages, fleet), measures, policy),
        "held_back": _held_back(asked_by_it),
        "trips": [{"time": format_time(trip.time), "why": trip.why} for trip in asked_by_it.trips],
        "episodes": [_episode(one) for one in asked_by_it.episodes],
    }


def _contenders(policy: Policy) -> dict[str, Contender]:
    """By name: what is lived through side by side."""
    wide = without_limits(policy)
    return {
        "no action": Contender(no_action),
        "cordon on fatal xid": Contender(cordon_on_fatal_xid),
        THIS: Contender(ask_by(policy), acting(policy)),
        "this without limits": Contender(ask_by(wide), acting(wide)),
    }


def _savings(
    connection: sa.Connection,
    lived: Mapping[str, Lived],
    told: tuple[Sequence[Outage], Sequence[Serving]],
    measures: Mapping[str, Measures],
    policy: Policy,
) -> list[dict[str, Any]] | None:
    """What each would have saved and taken; None where no ledger tells what was lost."""
    if not ledger_page(connection, "", 1):
        return None
    span = next(iter(lived.values())).span
    jobs = [
        Placed(run, start, end, frozenset(nodes))
        for run, start, end, nodes in jobs_between(connection, span.since, span.until)
    ]
    outages, fleet = told
    ground = Ground(read_losses(connection, span.since, span.until), jobs, outages, fleet)
    return [
        {
            "policy": name,
            **_told(account(one, ground, policy.costs)),
            "false_holds_per_1000_node_days": measures[name].holds.false_per_1000_node_days,
        }
        for name, one in lived.items()
    ]


def _told(found: Savings) -> dict[str, Any]:
    sums = {"saved_gpu_h": found.saved_gpu_h, "net_gpu_h": found.net_gpu_h}
    return {**asdict(found), **sums, "net_at_worst_gpu_h": found.net_at_worst_gpu_h}


def _check_scores(scores: ScoreHistory | None, span: Span, fleet: Sequence[Serving]) -> None:
    """Scores of another cluster or time would say nothing, and look as though nothing had to be said.

    Raises:
        Failure: none of them is of a node of the database, or speaks of the span.
    """
    if scores is None:
        return
    if scores.nodes.isdisjoint(node.node for node in fleet):
        raise Failure("--scores: not one of its nodes is in the database: are they of another cluster?")
    if scores.moments[0] >= span.until or scores.moments[-1] + _STALE <= span.since:
        first, last = format_time(scores.moments[0]), format_time(scores.moments[-1])
        raise Failure(f"--scores: they go from {first} to {last}, outside of the span: name --since and --until")


def _span(connection: sa.Connection, asked: Trial) -> Span:
    until = asked.until
    if until is None:
        until = newest_time(connection)
        if until is None:
            raise Failure("the database has no records: load some with `foreshock ingest`, or name --until")
    since = asked.since
    if since is None:
        since = until - _DAYS if asked.scores is None else asked.scores.moments[0]
    if since >= until:
        raise Failure(f"--since {format_time(since)} is not before --until {format_time(until)}")
    return Span(since, until, asked.step)


def _rows(name: str, found: Measures) -> list[dict[str, Any]]:
    """A row for soft hints that change where work goes, and one for holds."""
    return [
        {"policy": name, "asked": asked, **_kind(kind)}
        for asked, kind in (("avoid", found.avoids), ("cordon, drain", found.holds))
    ]


def _kind(kind: Kind) -> dict[str, Any]:
    return {
        "count": kind.episodes,
        "right": kind.right,
        "false": kind.false,
        "undecided": kind.undecided,
        "caught": kind.caught,
        "held_gpu_h": kind.held_gpu_h,
        "false_per_1000_node_days": kind.false_per_1000_node_days,
        **{f"lead_h_p{share}": _share(kind.lead_h, share) for share in (10, 50, 90)},
    }


def _share(sorted_hours: tuple[float, ...], percent: int) -> float | None:
    """The nearest value at a share of a sorted list; None of an empty one."""
    return sorted_hours[round((len(sorted_hours) - 1) * percent / 100)] if sorted_hours else None


def _held_back(lived: Lived) -> list[dict[str, Any]]:
    """What was turned down, by the kind of limit that did it, the most frequent first, with one's words."""
    example: dict[str, str] = {}
    for one in lived.episodes:
        if one.held_back is not None:
            example.setdefault(one.held_back.partition(":")[0], one.held_back)
    return [
        {"limit": limit, "count": count, "example": example[limit]} for limit, count in held_back(lived).most_common()
    ]


def _episode(one: Any) -> dict[str, Any]:
    until = None if one.until is None else format_time(one.until)
    return {
        "node": one.node,
        "action": one.action,
        "since": format_time(one.since),
        "until": until,
        "run": one.run,
        "reason": one.reason,
        "held_back": one.held_back,
    }

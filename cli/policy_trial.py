"""A policy over stored history, beside the habit of a cordon at every fatal Xid: what `policy dry-run` prints."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import sqlalchemy as sa

from cli.errors import Failure
from schedulers.baselines import cordon_on_fatal_xid
from schedulers.policy_replay import Lived, Span, ask_by, held_back, replay_policy
from schedulers.policy_version import version_of
from schedulers.replay_measures import Kind, Measures, Serving, measure
from schedulers.settings import Policy
from store.event import format_time
from store.read import newest_time, read_nodes, read_outages

_DAYS = timedelta(days=28)


@dataclass(frozen=True, slots=True)
class Trial:
    """What of the history is lived through; None: the newest four weeks."""

    since: datetime | None
    until: datetime | None
    step: timedelta


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
    outages = read_outages(connection, span.until)
    lived = replay_policy(connection, ask_by(policy), policy, span)
    found = measure(lived, outages, fleet)
    habit = measure(replay_policy(connection, cordon_on_fatal_xid, policy, span), outages, fleet)
    return {
        "version": version_of(policy),
        "since": format_time(span.since),
        "until": format_time(span.until),
        "moments": lived.moments,
        "nodes": len(fleet),
        "node_days": found.node_days,
        "outages": found.outages,
        "by_action": dict(found.by_action),
        "table": _rows("this policy", found) + _rows("cordon on fatal xid", habit),
        "held_back": _held_back(lived),
        "trips": [{"time": format_time(trip.time), "why": trip.why} for trip in lived.trips],
        "episodes": [_episode(one) for one in lived.episodes],
    }


def _span(connection: sa.Connection, asked: Trial) -> Span:
    until = asked.until
    if until is None:
        until = newest_time(connection)
        if until is None:
            raise Failure("the database has no records: load some with `foreshock ingest`, or name --until")
    since = asked.since if asked.since is not None else until - _DAYS
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
        "reason": one.reason,
        "held_back": one.held_back,
    }

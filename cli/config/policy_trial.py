"""A policy over stored history, beside no action, a cordon at every fatal Xid, and itself without limits."""

import csv
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from cli.console.errors import Failure
from schedulers.backtest.episode import ReplayResult, ReplaySpan
from schedulers.backtest.measures import HintMeasures, NodeService, PolicyMeasures, measure
from schedulers.backtest.replay import (
    Contender,
    acting,
    ask_by,
    cordon_on_fatal_xid,
    held_back,
    no_action,
    replay_side_by_side,
    without_limits,
)
from schedulers.backtest.savings import JobPlacement, ReplayHistory, Savings, account
from schedulers.policy.fact_queries import ScoreHistory
from schedulers.policy.settings import Policy, version_of
from store.events.event_pages import newest_time
from store.nodes.inventory import read_nodes, read_outages
from store.records.event import RecordError, format_time, parse_time
from store.records.outage import Outage
from store.runs.jobs import jobs_between
from store.runs.ledgers import ledger_page
from store.runs.losses import read_losses

_DAYS = timedelta(days=28)
_STALE = timedelta(hours=24)  # older scores ask for nothing
THIS = "this policy"


@dataclass(frozen=True, slots=True)
class TrialSpan:
    """What of the history is lived through; None: the newest four weeks that have records, or since the first `scores`.

    `scores`: in place of those stored. `avoid_takes`: whether a scheduler takes a node out of use for an `avoid`.
    """

    since: datetime | None
    until: datetime | None
    step: timedelta
    scores: ScoreHistory | None = None
    avoid_takes: bool = False


def try_policy(connection: sa.Connection, policy: Policy, requested: TrialSpan) -> dict[str, Any]:
    """The report, as JSON.

    Raises:
        Failure: the database has no records, or the span is empty.
    """
    span = _span(connection, requested)
    first = _first_record(connection) or span.since
    fleet = [
        NodeService(
            node.node,
            node.gpus or policy.costs.node_gpus,
            max(node.in_service_since or first, first),  # of what was before nobody tells whether it failed
            node.in_service_until,
        )
        for node in read_nodes(connection)
    ]
    _check_scores(requested.scores, span, fleet)
    outages = read_outages(connection, span.until)
    contenders = _contenders(policy, requested.avoid_takes)
    found = replay_side_by_side(connection, list(contenders.values()), policy, span, scores=requested.scores)
    lived = dict(zip(contenders, found, strict=True))
    measures = {name: measure(one, outages, fleet) for name, one in lived.items()}
    mine, requested_by_it = measures[THIS], lived[THIS]
    return {
        "version": version_of(policy),
        "since": format_time(span.since),
        "until": format_time(span.until),
        "moments": requested_by_it.moments,
        "nodes": len(fleet),
        "node_days": mine.node_days,
        "outages": mine.outages,
        "by_action": dict(mine.by_action),
        "table": [row for name in contenders for row in _trial_rows(name, measures[name])],
        "savings": _savings(connection, lived, (outages, fleet), measures, policy),
        "held_back": _refused_holds(requested_by_it),
        "trips": [{"time": format_time(trip.time), "why": trip.why} for trip in requested_by_it.trips],
        "episodes": [_episode(one) for one in requested_by_it.episodes],
    }


def _contenders(policy: Policy, avoid_takes: bool) -> dict[str, Contender]:
    """By name: what is lived through side by side."""
    wide = without_limits(policy)
    return {
        "no action": Contender(no_action),
        "cordon on fatal xid": Contender(cordon_on_fatal_xid),
        THIS: Contender(ask_by(policy), acting(policy), avoid_takes),
        "this without limits": Contender(ask_by(wide), acting(wide), avoid_takes),
    }


def _savings(
    connection: sa.Connection,
    lived: Mapping[str, ReplayResult],
    reported: tuple[Sequence[Outage], Sequence[NodeService]],
    measures: Mapping[str, PolicyMeasures],
    policy: Policy,
) -> list[dict[str, Any]] | None:
    """What each would have saved and taken; None where no ledger tells what was lost."""
    if not ledger_page(connection, "", 1):
        return None
    span = next(iter(lived.values())).span
    jobs = [
        JobPlacement(run, start, end, frozenset(nodes))
        for run, start, end, nodes in jobs_between(connection, span.since, span.until)
    ]
    outages, fleet = reported
    ground = ReplayHistory(read_losses(connection, span.since, span.until), jobs, outages, fleet)
    return [
        {
            "policy": name,
            **_savings_json(account(one, ground, policy.costs)),
            "false_holds_per_1000_node_days": measures[name].holds.false_per_1000_node_days,
        }
        for name, one in lived.items()
    ]


def _savings_json(found: Savings) -> dict[str, Any]:
    sums = {"saved_gpu_h": found.saved_gpu_h, "net_gpu_h": found.net_gpu_h}
    return {**asdict(found), **sums, "net_at_worst_gpu_h": found.net_at_worst_gpu_h}


def _check_scores(scores: ScoreHistory | None, span: ReplaySpan, fleet: Sequence[NodeService]) -> None:
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


def _first_record(connection: sa.Connection) -> datetime | None:
    """Where the records begin; what one node alone tells of long ago does not count."""
    from predictor.history.store_reader import data_span

    known = data_span(connection)
    return None if known is None else known[0]


def _span(connection: sa.Connection, requested: TrialSpan) -> ReplaySpan:
    until = requested.until
    if until is None:
        until = newest_time(connection)
        if until is None:
            raise Failure("the database has no records: load some with `foreshock ingest`, or name --until")
    since = requested.since
    if since is None:
        if requested.scores is not None:
            since = requested.scores.moments[0]
        else:
            first = _first_record(connection)
            since = max(until - _DAYS, first) if first is not None and first < until else until - _DAYS
    if since >= until:
        raise Failure(f"--since {format_time(since)} is not before --until {format_time(until)}")
    return ReplaySpan(since, until, requested.step)


def _trial_rows(name: str, found: PolicyMeasures) -> list[dict[str, Any]]:
    """A row for soft hints that change where work goes, and one for holds."""
    return [
        {"policy": name, "asked": requested, **_kind(kind)}
        for requested, kind in (("avoid", found.avoids), ("cordon, drain", found.holds))
    ]


def _kind(kind: HintMeasures) -> dict[str, Any]:
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


def _refused_holds(lived: ReplayResult) -> list[dict[str, Any]]:
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


# The scores that `foreshock backtest --scores` writes, read back: `time,node,score`, a line a node and moment.

_HEADER = ["time", "node", "score"]
_HOW = "write it with `foreshock backtest --horizon-h 24 --scores FILE`"


def read_scores(path: Path) -> ScoreHistory:
    """The scores of a file.

    Raises:
        Failure: it cannot be read, is none, or has a line that does not hold; names file, line and remedy.
    """
    try:
        with path.open(newline="", encoding="utf-8") as stream:
            found = ScoreHistory.of(_rows(path, csv.reader(stream)))
    except OSError as error:
        raise Failure(f"cannot read {path}: {error.strerror}") from error
    except (UnicodeDecodeError, csv.Error) as error:
        raise Failure(f"{path} is no CSV of scores ({error}): {_HOW}") from error
    if not found.moments:
        raise Failure(f"{path} has no scores: {_HOW}")
    return found


def _rows(path: Path, lines: Iterator[list[str]]) -> Iterator[tuple[datetime, str, float]]:
    if next(lines, None) != _HEADER:
        raise Failure(f"{path} line 1: the header must be {','.join(_HEADER)}: {_HOW}")
    for number, cells in enumerate(lines, 2):
        place = f"{path} line {number}"
        if len(cells) != len(_HEADER):
            raise Failure(f"{place}: {len(cells)} cells instead of 3 (cut off?): {_HOW}")
        moment, node, score = cells
        if not node:
            raise Failure(f"{place}: no node: {_HOW}")
        try:
            yield _moment(moment), node, _probability(score)
        except (RecordError, ValueError) as error:
            raise Failure(f"{place}: {error}: {_HOW}") from error


@lru_cache(maxsize=16)
def _moment(text: str) -> datetime:
    return parse_time(text).astimezone(UTC)


def _probability(text: str) -> float:
    try:
        score = float(text)
    except ValueError:
        score = math.nan
    if not 0.0 <= score <= 1.0:
        raise ValueError(f"score {text[:40]!r} is no number from 0 to 1")
    return score

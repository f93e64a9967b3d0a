"""What a replayed policy saved and cost, against the outages that came. Pure.

    measures = measure(lived, outages, fleet)

An episode is right where an unplanned outage of its node began while it lasted, or within a day of its beginning (the
score speaks of a day); too young to tell, where less than that was lived. A hold costs its node's GPU-hours while the
node is not out anyway: an upper bound, for a job that runs goes on under a cordon.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from schedulers.backtest.episode import Episode, ReplayResult, ReplaySpan
from store.records.outage import Outage

HORIZON = timedelta(hours=24)


@dataclass(frozen=True, slots=True)
class NodeService:
    """A node's time in service (None: as far as is known) and its GPUs."""

    node: str
    gpus: int
    since: datetime | None = None
    until: datetime | None = None


@dataclass(frozen=True, slots=True)
class HintMeasures:
    """The measures of soft hints (avoid), or of holds. Leads are hours from the asking to the outage.

    `caught`: unplanned outages that an episode came before; `held_gpu_h` and `false_per_1000_node_days` are of holds.
    """

    episodes: int
    right: int
    false: int
    undecided: int
    caught: int
    lead_h: tuple[float, ...]
    held_gpu_h: float
    false_per_1000_node_days: float | None


@dataclass(frozen=True, slots=True)
class PolicyMeasures:
    """All of it; `by_action` counts episodes."""

    node_days: float
    outages: int
    by_action: Mapping[str, int]
    holds: HintMeasures
    avoids: HintMeasures


def measure(lived: ReplayResult, outages: Iterable[Outage], fleet: Iterable[NodeService]) -> PolicyMeasures:
    """Judge each episode, and count.

    Args:
        outages: those that began before the span's end; planned ones save GPU-hours of holds, and are no failures.
    """
    by_node: dict[str, list[Outage]] = defaultdict(list)
    for outage in outages:
        by_node[outage.node].append(outage)
    serving = {node.node: node for node in fleet}
    days = sum((_served(node, lived.span) for node in serving.values()), timedelta()) / timedelta(days=1)
    failures = [
        outage
        for node in serving
        for outage in by_node.get(node, ())
        if not outage.planned and lived.span.since <= outage.start < lived.span.until
    ]
    asked = [one for one in lived.episodes if one.held_back is None and one.node in serving]
    holds = [one for one in asked if one.is_hold]
    avoids = [one for one in asked if one.action == "avoid"]
    return PolicyMeasures(
        days,
        len(failures),
        Counter(one.action for one in asked),
        _kind(holds, by_node, lived.span, days, serving),
        _kind(avoids, by_node, lived.span, days, serving),
    )


def _kind(
    episodes: Sequence[Episode],
    outages: Mapping[str, Sequence[Outage]],
    span: ReplaySpan,
    days: float,
    serving: Mapping[str, NodeService],
) -> HintMeasures:
    verdicts: Counter[str] = Counter()
    first: dict[tuple[str, datetime], float] = {}
    cost = timedelta()
    for one in episodes:
        mine = outages.get(one.node, ())
        met = _met(one, mine, span)
        verdicts["right" if met else "undecided" if _is_young(one, span) else "false"] += 1
        for outage in met:
            key = outage.node, outage.start
            lead = (outage.start - one.since) / timedelta(hours=1)
            first[key] = max(first.get(key, lead), lead)
        cost += working(one, mine, span) * serving[one.node].gpus
    return HintMeasures(
        len(episodes),
        verdicts["right"],
        verdicts["false"],
        verdicts["undecided"],
        len(first),
        tuple(sorted(first.values())),
        cost / timedelta(hours=1),
        1000 * verdicts["false"] / days if days else None,
    )


def _met(one: Episode, outages: Sequence[Outage], span: ReplaySpan) -> list[Outage]:
    """The unplanned outages that an episode came before."""
    last = min(max(_end(one, span), one.since + HORIZON), span.until)
    return [outage for outage in outages if not outage.planned and one.since <= outage.start < last]


def _is_young(one: Episode, span: ReplaySpan) -> bool:
    """Whether the span ended before an outage would have had to come."""
    return one.since + HORIZON > span.until


def working(one: Episode, outages: Sequence[Outage], span: ReplaySpan) -> timedelta:
    """For how long of an episode its node was kept from work that was not out anyway."""
    end = _end(one, span)
    spent, at = timedelta(), one.since
    for outage in sorted(outages, key=lambda outage: outage.start):
        begin, back = max(outage.start, at), min(outage.end or end, end)
        if back > begin and begin < end:
            spent += max(begin - at, timedelta())
            at = back
    return spent + max(end - at, timedelta())


def _end(one: Episode, span: ReplaySpan) -> datetime:
    return min(one.until or span.until, span.until)


def _served(node: NodeService, span: ReplaySpan) -> timedelta:
    begin, end = max(node.since or span.since, span.since), min(node.until or span.until, span.until)
    return max(end - begin, timedelta())

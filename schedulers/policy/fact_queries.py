"""The facts of a decision, from the store: a few queries over present state, none over history."""

from bisect import bisect_right
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Any

import sqlalchemy as sa

from schedulers.checks.check_weights import check_weights
from schedulers.policy.facts import Inputs, JobFacts, NodeFacts, Pair, Reporting, check_of, corroborated
from schedulers.policy.kill_switch import effective_stop
from schedulers.policy.settings import Policy
from schedulers.policy.shared_causes import SharedCauses, read_causes
from store.database.known_nodes import is_given
from store.hints.control_group import ControlGroup
from store.hints.hint_log import recent_hints
from store.hints.holds import costless_hints, nodes_still_avoided, nodes_still_held
from store.hints.stops import newest_trips
from store.models.scores import LinkScore, link_scores_of, links_at_risk
from store.nodes.node_states import (
    FaultSign,
    fault_signs,
    is_of_prior,
    last_repairs,
    newest_scores,
    node_places,
    nodes_out,
    oldest_shown,
    score_reasons,
    unrepaired_faults,
    watched_links,
)
from store.nodes.shown_nodes import shown_out, shown_repairs
from store.nodes.sidecars import silent_nodes
from store.records.hint import OPEN_STATES, Hint
from store.records.incident import Incident
from store.records.verdict import Verdict
from store.runs.jobs import running_jobs
from store.verdicts.remedy import decide, place_of

# Scores that are not in the store: those of a backtest, which each were made by a model of what came before. Pure.
#
# ScoreHistory.of([(moment, "gpu-017", 0.04), ...]).newest(now)       # (moment, {"gpu-017": 0.04})


@dataclass(frozen=True, slots=True)
class ScoreHistory:
    """The 24 h probabilities (0-1) of nodes by the moment that they speak from; `moments` in order."""

    moments: tuple[datetime, ...]
    scores: Mapping[datetime, Mapping[str, float]]

    @classmethod
    def of(cls, rows: Iterable[tuple[datetime, str, float]]) -> "ScoreHistory":
        """From rows of moment, node and score, in any order; of two for the same the later row."""
        found: dict[datetime, dict[str, float]] = {}
        for moment, node, score in rows:
            found.setdefault(moment, {})[node] = score
        return cls(tuple(sorted(found)), found)

    @property
    def nodes(self) -> frozenset[str]:
        """All nodes that were ever scored."""
        return frozenset(node for scores in self.scores.values() for node in scores)

    def newest(self, at: datetime) -> tuple[datetime | None, Mapping[str, float]]:
        """The newest moment no later than `at` and its scores, as `store/nodes/node_states.py` reads those stored."""
        place = bisect_right(self.moments, at)
        if not place:
            return None, {}
        moment = self.moments[place - 1]
        return moment, self.scores[moment]


_HORIZON_H = 24
# A score that is older than this says nothing of now.
_STALE = timedelta(hours=24)
SILENT_AFTER_S = 900.0
# A link that stands out is told once a day.
_WATCHED = timedelta(hours=30)
# Hosts that may be asked something for their links, whatever the share; links that are read of each, and those that
# one node may invent: it must not hide the others.
_LEAST_HOSTS, _LINKS_OF_HOST, _INVENTED = 8, 2, 64
_NO_REASONS: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _NodeRecords:
    """What is known of some nodes, by name."""

    scores: Mapping[str, float]
    reasons: Mapping[str, list[Any]]
    faults: Mapping[str, Incident]
    pairs: Mapping[str, Pair]
    out: set[str]
    jobs: Mapping[str, JobFacts]
    silent: frozenset[str]
    control: ControlGroup | None
    shown_out: Collection[str]
    watched: Mapping[str, Incident]
    victims: Mapping[str, Verdict]
    causes: Mapping[str, Verdict]
    links: Mapping[str, tuple[LinkScore, ...]]
    scored: datetime | None


def gather(
    connection: sa.Connection,
    policy: Policy,
    now: datetime,
    group: ControlGroup | None = None,
    silent_after_s: float = SILENT_AFTER_S,
    takers: Collection[str] = (),
) -> Inputs:
    """What the policy looks at, as of a moment. Without a `group` no node is left alone for control.

    Args:
        takers: the schedulers that take a node out of use for an `avoid`.
    """
    places = node_places(connection)
    expected, silent = silent_nodes(connection, now, now - timedelta(seconds=silent_after_s))
    scored = newest_scores(connection, _HORIZON_H, now, since=now - _STALE)
    window = timedelta(seconds=max(3600.0, policy.breaker.window_s))
    hints = tuple(recent_hints(connection, now, window))
    links = _links(connection, policy, now, hints, len(places))
    seen = _look(connection, policy, now, (places, silent, group, None), scored, links)
    return Inputs(
        now,
        _nodes(places, seen, now),
        hints,
        still_held=nodes_still_held(connection, now),
        stop=effective_stop(connection, policy),
        trips=newest_trips(connection),
        largest_job_gpus=_largest(seen.jobs),
        reporting=Reporting(expected, expected - len(silent)) if expected else None,
        is_claimed=not is_given(connection),
        costless=costless_hints(connection, now - window),
        avoid_takes=bool(takers),
        still_avoided=nodes_still_avoided(connection, takers),
        of_prior=is_of_prior(connection, _HORIZON_H, scored[0]),
    )


def look_back(connection: sa.Connection, policy: Policy, at: datetime, scores: ScoreHistory | None = None) -> Inputs:
    """What a policy would have looked at then, as far as the store still tells: without hints, trips and silence.

    Whether an incident was as grave when it began as it became is not kept; nor when a node was heard of, nor what a
    scheduler showed: the stored outages, which come from its own history, are taken for its word.

    Args:
        scores: in place of those stored, which a model may have made that had learned from what came later.
    """
    places = node_places(connection)
    scored = newest_scores(connection, _HORIZON_H, at) if scores is None else scores.newest(at)
    seen = _look(connection, policy, at, (places, frozenset(), None, at), scored)
    return Inputs(at, _nodes(places, seen, at), largest_job_gpus=_largest(seen.jobs))


def _look(
    connection: sa.Connection,
    policy: Policy,
    now: datetime,
    shared: tuple[Sequence[Any], frozenset[str], ControlGroup | None, datetime | None],
    scored: tuple[datetime | None, Mapping[str, float]],
    links: Mapping[str, tuple[LinkScore, ...]] = MappingProxyType({}),
) -> _NodeRecords:
    places, silent, group, until = shared
    moment, scores = scored
    if moment is None or moment <= now - _STALE:
        scores = {}
    risky = [(node, moment) for node, score in scores.items() if moment and score >= policy.thresholds.watch]
    since, out = now - timedelta(seconds=policy.healthy_s), nodes_out(connection, now)
    repaired, shown = last_repairs(connection, oldest_shown(connection, since), now), frozenset(out)
    if until is None:  # now: an outage, and its end, are only told as long as no scheduler shows them
        repaired, shown = shown_repairs(connection, repaired), shown_out(connection, out, now)
    causes = read_causes(connection, policy, since, now)
    faults = unrepaired_faults(connection, since, now, until, repaired)
    pairs = _pairs(connection, policy, (now, until), repaired)
    held = {*faults, *pairs}
    if not causes.behind.keys().isdisjoint(held):
        faults = unrepaired_faults(connection, since, now, until, repaired, causes.is_own)
        pairs = _pairs(connection, policy, (now, until), repaired, causes)
    faults = _decided(connection, faults)
    excused = ((node, causes.standing(node)) for node in held if node not in faults and node not in pairs)
    return _NodeRecords(
        scores,
        score_reasons(connection, _HORIZON_H, risky),
        faults,
        pairs,
        out,
        jobs_on_nodes(connection, now, policy.costs.node_gpus, {place[0]: place[5] for place in places if place[5]}),
        silent,
        group,
        shown,
        watched_links(connection, now - _WATCHED, now, until),
        {node: verdict for node, verdict in excused if verdict is not None},
        causes.own,
        {node: found for node, found in links.items() if not causes.takes_links(node)},
        moment,
    )


def _decided(connection: sa.Connection, faults: Mapping[str, Incident]) -> dict[str, Incident]:
    """The faults with what is to be done about each, by the verdict on a part of that node that decides it.

    So nobody is told to drain a node of which a scheduler is asked for less. Whatever a verdict says, they are faults.
    """
    decided = decide(connection, [place_of(fault) for fault in faults.values()])
    own = {node: decided[fault.id] for node, fault in faults.items() if fault.id in decided}
    return {
        node: replace(fault, action=own[node].action) if node in own and own[node].node == node else fault
        for node, fault in faults.items()
    }


def _links(
    connection: sa.Connection, policy: Policy, now: datetime, hints: Iterable[Hint], nodes: int
) -> dict[str, tuple[LinkScore, ...]]:
    """Each host's links that something of their own speaks against, and those that open hints are of, by risk.

    Of `budgets.avoid_percent` of the nodes at the most, or eight, the riskiest: where more links fall, none of them is
    to blame, or somebody makes it up. As of nodes, a score that is older than its horizon says nothing of now.
    """
    open_links = {
        hint.evidence.link.name: hint.node
        for hint in hints
        if hint.state in OPEN_STATES and hint.evidence.link is not None
    }
    window, asked = (now - _STALE, now), set(open_links.values())
    most = max(_LEAST_HOSTS, int(nodes * policy.budgets.avoid_percent / 100))
    least = policy.thresholds.watch * policy.thresholds.release_ratio
    told = links_at_risk(connection, _HORIZON_H, window, least, _LINKS_OF_HOST * most + _INVENTED)
    by_link = {one.link: one for one in (*told, *link_scores_of(connection, _HORIZON_H, window, sorted(open_links)))}
    found: dict[str, list[LinkScore]] = {}
    room = most - len(asked)
    for one in sorted(by_link.values(), key=lambda one: (-(one.own_risk or 0.0), one.link)):
        if one.node is None or not (one.own_reasons or one.link in open_links):
            continue
        if one.node not in found and one.node not in asked:
            if room <= 0:
                continue
            room -= 1
        found.setdefault(one.node, []).append(one)
    return {node: tuple(links) for node, links in found.items()}


def _nodes(places: Sequence[Any], seen: _NodeRecords, now: datetime) -> list[NodeFacts]:
    """The facts of each node."""
    group, reasons, jobs, links = seen.control, seen.reasons, seen.jobs, seen.links
    # By place, for there are as many as nodes.
    return [
        NodeFacts(
            node,
            rack,
            leaf,
            driver,
            # Of one that has failed, or tells nothing, no score is told: it speaks of nodes that work.
            None if node in seen.out or node in seen.faults or node in seen.silent else seen.scores.get(node),
            tuple(str(reason.get("text", "")) for reason in reasons[node][:5]) if node in reasons else _NO_REASONS,
            seen.faults.get(node),
            node in seen.out,
            # Drawn among those alone of which their score asks something: a draw costs, and nodes are many.
            group is not None and (node in reasons or node in links) and group.holds(node, now),
            domain,
            # Where no job is known at all, nothing tells who is idle.
            node not in jobs if jobs else None,
            gpus,
            jobs.get(node),
            seen.pairs.get(node),
            node in seen.silent,
            is_shown_out=node in seen.shown_out,
            watched=seen.watched.get(node),
            victim_of=seen.victims.get(node),
            verdict=seen.causes.get(node),
            links=() if node in seen.out or node in seen.faults or node in seen.silent else links.get(node, ()),
            scored=seen.scored,
        )
        for node, rack, leaf, driver, domain, gpus in places
    ]


def _pairs(
    connection: sa.Connection,
    policy: Policy,
    moments: tuple[datetime, datetime | None],
    repaired: Mapping[str, datetime],
    shared: SharedCauses | None = None,
) -> dict[str, Pair]:
    """The nodes that two independent detectors saw fail, within the healthy time and since their last repair.

    `moments`: now, and the moment after which nothing was known. What another's failure explains is no failure.
    """
    if policy.corroborate_s <= 0:
        return {}
    now, until = moments
    since = now - timedelta(seconds=policy.healthy_s)
    near: dict[str, list[FaultSign]] = {}
    for node, signs in fault_signs(connection, since, now, until).items():
        if node in repaired:
            signs = [sign for sign in signs if sign.end > repaired[node]]
        if shared is not None:
            signs = [sign for sign in signs if shared.explains(node, sign) is None]
        if len(signs) > 1 and corroborated(signs, policy.corroborate_s) is not None:
            near[node] = signs
    # Such nodes are few: the records of what they are told of are asked for, and of nothing else.
    checks = {check_of(sign) for signs in near.values() for sign in signs}
    weights = check_weights(connection, checks, policy.corroborate_precision, until)
    pairs = {node: corroborated(signs, policy.corroborate_s, weights) for node, signs in near.items()}
    return {node: pair for node, pair in pairs.items() if pair is not None}


def jobs_on_nodes(
    connection: sa.Connection, now: datetime, usual: int, gpus_of: Mapping[str, int]
) -> dict[str, JobFacts]:
    """The job of each node that one runs on; the largest, should there be several.

    Args:
        usual: the GPUs of a node of which `gpus_of` knows none.
    """
    found = [
        (nodes, JobFacts(job, run, len(nodes), sum(gpus_of.get(node, usual) for node in nodes)))
        for job, run, nodes in running_jobs(connection, now)
    ]
    found.sort(key=lambda one: one[1].gpus)
    return {node: job for nodes, job in found for node in nodes}


def _largest(jobs: Mapping[str, JobFacts]) -> int | None:
    return max((job.gpus for job in jobs.values()), default=None)

"""The smallest set of causes that explains what is seen, the likeliest first, with what speaks for and against each.

    for verdict in explain(scene): print(verdict.probability, verdict.name, verdict.reason)

The suspect that explains most is taken, what it explains is taken away, and what is left is explained in turn: a second
cause (a greedy cover under a noisy-or: docs/diagnosis.md). Its probability is its share among all suspects of the same
effects, "unknown" among them. Pure: of the scene alone, and the same for the same symptoms in any order.
"""

import heapq
import math
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from diagnosis.causes.effects import Effect, SceneEffects, domain_key, effects_of
from diagnosis.causes.relevance import relevance
from diagnosis.causes.scene import Scene
from diagnosis.causes.suspects import Hit, ReachIndex, Suspect, hits_at_nodes, hits_of
from diagnosis.causes.verdict_words import planned_verdicts, unknown_verdict, verdict_of
from diagnosis.causes.weighing import Account, SuspectFinding, weigh
from diagnosis.graph.place import Place
from store.records.verdict import Verdict

# Verdicts that are returned, and suspects of the same effects that are named beside a cause.
MOST = 20
_BESIDE = 4
# Causes that are looked for, and effects of one whose other suspects are weighed.
_MOST_CAUSES = 200
_MOST_RIVALS = 40
# Below this a suspect is not worth a line: it would be wrong 49 times of 50.
_LEAST = -4.0


@dataclass(slots=True)
class Search:
    """The suspects of a scene and what is left to explain."""

    reach: ReachIndex
    hits: dict[Suspect, list[Hit]] = field(default_factory=lambda: defaultdict(list))
    of_effect: dict[int, list[Suspect]] = field(default_factory=lambda: defaultdict(list))
    jobs: dict[str, list[Effect]] = field(default_factory=lambda: defaultdict(list))
    runs_of: dict[Suspect, set[str]] = field(default_factory=lambda: defaultdict(set))
    done: set[int] = field(default_factory=set)

    def account(self, suspect: Suspect) -> Account | None:
        """What a suspect explains of what is left."""
        hits = [hit for hit in self.hits.get(suspect, ()) if id(hit.effect) not in self.done]
        runs = sorted(self.runs_of.get(suspect, ()))
        jobs = [effect for run in runs for effect in self.jobs[run] if id(effect) not in self.done]
        return weigh(suspect, hits, jobs, self.reach)

    def rivals(self, account: Account) -> list[Suspect]:
        """Whoever else may have caused what a suspect explains."""
        found: dict[Suspect, None] = {}
        for effect in account.effects()[:_MOST_RIVALS]:
            found.update(dict.fromkeys(self.of_effect.get(id(effect), ())))
        found.pop(account.suspect, None)
        return list(found)


def explain(scene: Scene, most: int = MOST, reach: ReachIndex | None = None) -> list[Verdict]:
    """The causes of what is seen, the likeliest first; "unknown" is always one of them where anything is seen.

    Args:
        most: causes that are returned, at most.
        reach: of the same graph, from the call before: then it need not be found out again.
    """
    seen = effects_of(scene)
    search = search_of(scene, seen, reach)
    findings = list(_findings(search, max(most, _MOST_CAUSES)))
    planned = planned_verdicts(seen, scene)
    weighted = relevance(findings, scene, max((verdict.probability for verdict in planned), default=0.0))
    verdicts = [verdict_of(finding, probability, scene) for finding, probability in weighted[:most]]
    verdicts += planned
    if seen.effects or scene.stop is not None or scene.incidents:
        verdicts.append(unknown_verdict(scene, seen, weighted, planned))
    return sorted(verdicts, key=lambda one: (-one.probability, one.since, one.cause_class, one.name))


def search_of(scene: Scene, seen: SceneEffects, known: ReachIndex | None = None) -> Search:
    """Every suspect of every effect."""
    reach = ReachIndex(scene.graph) if known is None else known.anew()
    search = Search(reach)
    runs = _runs_by_node(scene)
    for effect in seen.effects:
        reach.signs.setdefault(effect.sign(), set()).update(effect.nodes)
    for effect in seen.effects:
        if effect.domain is not None:
            search.jobs[domain_key(effect.domain)].append(effect)
        if effect.run is not None:
            search.jobs[effect.run].append(effect)
            _add(search, Suspect("application", Place("job", effect.run)), None, effect)
            search.runs_of[Suspect("application", Place("job", effect.run))].add(effect.run)
        for suspect, hit in hits_of(effect, reach):
            _add(search, suspect, hit, effect)
            node = hit.unit.name if hit.unit.kind == "node" else (effect.node or reach.node_of(hit.unit))
            search.runs_of[suspect] |= runs.get(node or "", frozenset()) if node else runs.get("", frozenset())
    of_nodes = list(hits_at_nodes(seen.effects, reach, list(search.hits.items())))
    for suspect, hit in of_nodes:
        _add(search, suspect, hit, hit.effect)
    for suspect, runs_of in search.runs_of.items():
        for run in runs_of:
            for effect in search.jobs.get(run, ()):
                search.of_effect[id(effect)].append(suspect)
    return search


def _add(search: Search, suspect: Suspect, hit: Hit | None, effect: Effect) -> None:
    if hit is not None:
        search.hits[suspect].append(hit)
    search.of_effect[id(effect)].append(suspect)


def _runs_by_node(scene: Scene) -> dict[str, frozenset[str]]:
    """The runs of each node; under "" all of them: what is of no node may be between any."""
    found: dict[str, set[str]] = defaultdict(set)
    for job in scene.jobs:
        for node in (*job.nodes, ""):
            found[node].add(job.run)
    for domain in scene.graph.places("nvswitch"):
        for node in scene.graph.nodes_below(domain):
            found[node].add(domain_key(domain.name))
    return {node: frozenset(runs) for node, runs in found.items()}


def _findings(search: Search, most: int) -> Iterable[SuspectFinding]:
    """The causes one after the other, each followed by its nearest rivals."""
    heap: list[tuple[float, str, str, Suspect]] = []
    for suspect in {*search.hits, *search.runs_of}:
        account = search.account(suspect)
        if account is not None:
            heapq.heappush(heap, (-account.gain, suspect.kind, suspect.place.name, suspect))
    found = 0
    while heap and found < most:
        old, *_, suspect = heapq.heappop(heap)
        account = search.account(suspect)
        if account is None:
            continue
        if account.gain < -old - 1e-9:  # others have explained some of it
            heapq.heappush(heap, (-account.gain, suspect.kind, suspect.place.name, suspect))
            continue
        if account.gain < _LEAST:
            continue
        yield from _beside(account, search)
        search.done.update(id(effect) for effect in account.effects())
        found += 1


def _alone(account: Account, search: Search) -> float:
    """The share of a suspect of its own signs, whoever else may have stopped the jobs."""
    if not account.parts or not account.jobs:
        return 0.0
    own = {id(hit.effect) for hit, _ in account.parts}
    gain = account.gain - sum(odds - search.reach.base_of(effect) for effect, odds in account.jobs)
    odds = [gain, -sum(search.reach.base_of(hit.effect) for hit, _ in account.parts)]
    if account.struck > 1:
        odds.append(0.0)
    for suspect in search.rivals(account):
        hits = [hit for hit in search.hits.get(suspect, ()) if id(hit.effect) in own]
        rival = weigh(suspect, hits, [], search.reach) if hits else None
        if rival is not None:
            odds.append(rival.gain)
    most = max(odds)
    return math.exp(gain - most) / sum(math.exp(one - most) for one in odds)


def _beside(account: Account, search: Search) -> Iterable[SuspectFinding]:
    rivals = [rival for suspect in search.rivals(account) if (rival := search.account(suspect)) is not None]
    rivals.sort(key=lambda one: (-one.gain, one.suspect))
    apart = [0.0] if account.struck > 1 else []  # each of its parts for a reason of its own
    odds = [account.gain, -account.own, *(rival.gain for rival in rivals), *apart]
    most = max(odds)
    whole = sum(math.exp(one - most) for one in odds)
    share = max(math.exp(odds[0] - most) / whole, _alone(account, search))
    yield SuspectFinding(account, share, True)
    for rival, odd in list(zip(rivals, odds[2:], strict=False))[:_BESIDE]:
        yield SuspectFinding(rival, math.exp(odd - most) / whole, False)

"""How well a suspect explains its effects: the sum of logarithms of odds, with what speaks for it and against it.

gain = log prior
     + for each effect: log (chance that the suspect shows it / chance that it shows by itself)
     + for each further part below that shows it at the same time: log (a day / the spread)
     + the chance that just these of its parts show it and the others are fine (beta-binomial: faults take a part of
       what hangs below, too)
     + for each job on its nodes: log (chance that it stops or hangs / chance that it does by itself)
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from diagnosis.causes.release_test import release_gain
from diagnosis.symptoms.gpu_names import is_by_pci
from store.records.verdict import RELEASE_CLASSES

if TYPE_CHECKING:
    from diagnosis.causes.cause_catalog import CauseTables
    from diagnosis.causes.effects import Effect
    from diagnosis.causes.suspects import Hit, ReachIndex, Suspect
    from diagnosis.graph.place import Place
    from store.records.verdict import CauseClass

_DAY_S = 86_400.0
# Clocks that nobody compares may differ by this much; what comes later than that is of something else.
_LOOSE_S = 600.0
_WRONG_CLOCK = math.log(0.005 * 86_400.0 / 1_200.0)
# How evenly a shared fault takes what hangs below it (a, b of a beta distribution): all or nearly all of it.
_COVER: dict[CauseClass, tuple[float, float]] = {
    "switch": (6.0, 0.4),
    "node": (4.0, 0.4),
    "power": (8.0, 0.5),
    "rack": (4.0, 0.5),
    "cooling": (2.0, 0.8),
    "nvswitch": (3.0, 0.6),
    "storage": (1.0, 1.0),
}
# Together means within so many times the spread; and so many parts are several.
_TIGHT, _SEVERAL = 3.0, 3
# GPUs and adapters of a node whose inventory nobody told. Of a few GPUs' names nobody knows that they are all.
_PARTS_OF_NODE, _ALL_GPUS = 8, 4
# A file server of which nobody says whom it serves, serves at least one node of so many.
_CLIENTS = 4
# What is over at once, or only warns, seldom ends a job.
_FLEETING, _MILD = math.log(0.03), math.log(0.15)
# A fault that the work survived for a while explains its end less; one that came minutes after it, hardly.
_SURVIVED = math.log(0.2)
_STOP_LAG_S = 600.0
# What a job shows so much later is seldom of the fault before; and what cannot follow.
_LONG_AGO_S = 3_600.0
_NEVER = -1e6
_MINUTE, _AT_ONCE = timedelta(minutes=1), math.log(86_400.0 / 120.0)
# A job's nodes beyond these prove no more.
_MOST_ALONE = 16
# What the work goes on under for a while.
_LASTING = frozenset({"slow", "corruption", "heat_sign", "optic_sign", "pause_storm", "storage_complaint"})

# What the fabric's manager tells by one clock, and of which it tells the end.
_OF_LINKS = frozenset({"link_down", "switch_gone", "switch_notice"})


@dataclass(slots=True)
class Account:
    """What a suspect explains, and how well. `struck` of its `units` parts show it; `is_told`: these were counted, and
    are not what such a thing usually has.
    """

    suspect: Suspect
    gain: float  # over every effect explained by a cause of its own
    own: float = 0.0  # what those causes of their own would come to: no cause at all is that much less likely
    parts: list[tuple[Hit, float]] = field(default_factory=list)
    jobs: list[tuple[Effect, float]] = field(default_factory=list)
    units: int = 0
    struck: int = 0
    is_told: bool = True
    cover: float = 0.0
    prior: float = 0.0
    since: datetime | None = None
    spread_s: float = 0.0
    p_value: float | None = None
    others: tuple[int, int] = (0, 0)

    def effects(self) -> list[Effect]:
        """Everything that it explains."""
        return [hit.effect for hit, _ in self.parts] + [effect for effect, _ in self.jobs]


@dataclass(slots=True)
class SuspectFinding:
    """A suspect with its share among all that may have caused the same. `is_cause`: it was the best of them."""

    account: Account
    share: float
    is_cause: bool


def weigh(suspect: Suspect, hits: Sequence[Hit], jobs: Sequence[Effect], reach: ReachIndex) -> Account | None:
    """The account of a suspect over the effects that are left to explain; None where it explains none."""
    if suspect.kind in RELEASE_CLASSES:
        return release_account(suspect, hits, jobs, reach)
    found = (_weigh(suspect, one, jobs, reach) for one in _apart(hits))
    return max((one for one in found if one is not None), key=lambda one: one.gain, default=None)


def _weigh(suspect: Suspect, hits: Sequence[Hit], jobs: Sequence[Effect], reach: ReachIndex) -> Account | None:
    account = Account(suspect, 0.0)
    account.prior = math.log(reach.tables.prior.get(suspect.kind, 1e-5))
    shared = [hit for hit in hits if hit.where in ("below", "named")]
    if suspect.kind in ("power", "rack"):
        shared = _of_dark_nodes(suspect, shared, reach)
    if not reach.graph.knows(suspect.place) or suspect.kind == "node":
        shared = _of_several_gpus(shared)
    near = _window(shared)
    near, more = _one_of_each(near) if suspect.kind == "rack" else (near, [])
    units = {hit.unit for hit in near}
    if suspect.kind == "rack" and (len(units) < _SEVERAL or 2 * len(units) < len(reach.units(suspect))):
        return None  # some nodes of many are that by chance, or because one of them lies
    account.parts = [(hit, _log_odds(hit)) for hit in near]
    _simultaneous(account, near)
    account.parts += [(hit, reach.base_of(hit.effect)) for hit in more]
    account.parts += _own_parts([hit for hit in hits if hit.where not in ("below", "named")])
    if not account.parts and suspect.kind != "application":
        return None
    if units:
        told = _units(suspect, near, reach)
        account.struck = len(units)
        account.is_told = told is not None and told >= account.struck
        account.units = max(account.struck, _usual_units(suspect, near, reach) if told is None else told)
        account.cover = cover(suspect.kind, account.struck, account.units)
    account.since = min((hit.effect.first for hit, _ in account.parts), default=None)
    _add_jobs(account, jobs, reach.tables)
    if not account.parts and not account.jobs:
        return None
    account.own = sum(reach.base_of(effect) for effect in account.effects())
    odds = sum(odds for _, odds in account.parts) + sum(odds for _, odds in account.jobs)
    account.gain = account.prior + account.cover + odds - account.own
    return account


def _of_dark_nodes(suspect: Suspect, hits: Sequence[Hit], reach: ReachIndex) -> list[Hit]:
    """The signs of nodes that are dark: a node that lost one of its rails, and no other, has power.

    One that lost a GPU and nothing else has power, too; for a rack that is hit by something else it counts.
    """
    rails: dict[Place, set[Place]] = defaultdict(set)
    dark: set[Place] = set()
    for hit in hits:
        if hit.effect.kind == "link_down" and hit.effect.place.kind in ("nic", "port"):
            rails[hit.unit].add(hit.effect.place)
        elif suspect.kind == "rack" or hit.effect.kind != "gpu_lost":
            dark.add(hit.unit)
    for unit, lost in rails.items():
        known = len(reach.graph.children(unit, "nic")) or (1 if reach.is_first_rail(lost) else _PARTS_OF_NODE)
        if 2 * len(lost) >= known:
            dark.add(unit)
    return [hit for hit in hits if hit.unit in dark]


def _of_several_gpus(hits: Sequence[Hit]) -> list[Hit]:
    """The signs of parts, without NVLink faults of a GPU or two: there it is the link between them."""
    struck = {hit.unit for hit in hits if hit.effect.kind == "nvlink_fault"}
    by_pci = sum(map(is_by_pci, struck))  # one that is told by its index may be one of these
    are_several = max(by_pci, len(struck) - by_pci) >= _SEVERAL
    return [hit for hit in hits if hit.effect.kind != "nvlink_fault" or are_several]


def _one_of_each(hits: Sequence[Hit]) -> tuple[list[Hit], list[Hit]]:
    """The first sign of each part, and all others: what else a node shows that a rack took with it proves no more."""
    first: dict[Place, Hit] = {}
    for hit in hits:
        first.setdefault(hit.unit, hit)
    kept = {id(hit) for hit in first.values()}
    return list(first.values()), [hit for hit in hits if id(hit) not in kept]


def _own_parts(hits: Sequence[Hit]) -> list[tuple[Hit, float]]:
    """What the suspect shows itself; what comes within a minute of its gravest sign is hardly there by chance."""
    found = [(hit, odds) for hit in hits if (odds := _log_odds(hit)) > 0]
    lead = max(found, key=lambda part: part[1], default=None)
    if lead is None:
        return found
    since = lead[0].effect.first
    return [(hit, odds + (_AT_ONCE if hit is not lead[0] and _is_at_once(hit, since) else 0.0)) for hit, odds in found]


def _is_at_once(hit: Hit, since: datetime) -> bool:
    return hit.effect.run is None and abs(hit.effect.first - since) <= _MINUTE


def _log_odds(hit: Hit) -> float:
    # A program fails on any node of its job alike: that it is this GPU's, one of so many, speaks for the GPU.
    alone = min(hit.effect.alone_of, _MOST_ALONE) if hit.where == "own" else 1
    return math.log(hit.row.chance * alone / hit.effect.leak)


def _window(hits: Sequence[Hit]) -> list[Hit]:
    """Of the effects of parts below, those that came together: the fullest stretch of time."""
    if len(hits) < 2:
        return list(hits)
    ordered = sorted(hits, key=lambda hit: hit.effect.first)
    times = [hit.effect.first.timestamp() for hit in ordered]
    best: tuple[int, int, int] = (0, 0, 0)
    for start, time in enumerate(times):
        end = bisect_right(times, time + _TIGHT * _spread_s(ordered[start]))
        if end - start > best[0]:
            best = (end - start, start, end)
    _, start, end = best
    near = ordered[start:end]
    if len({hit.unit for hit in near}) < _SEVERAL:
        return near
    # Where several agree, a few others may have clocks that nobody set right: no more of them than of those.
    far = [
        hit
        for hit in (*ordered[:start], *ordered[end:])
        if min(abs(hit.effect.first.timestamp() - times[place]) for place in (start, end - 1)) <= _LOOSE_S
    ]
    return sorted((*near, *far), key=lambda hit: hit.effect.first) if len(far) <= len(near) else near


def _apart(hits: Sequence[Hit]) -> list[list[Hit]]:
    """Links that were up again before others went down were of something else: those of each time, and the rest.

    So were those that were up for an hour before the rest came.
    """
    if len(hits) == 1:
        return [list(hits)]
    rest = [hit for hit in hits if hit.effect.kind not in _OF_LINKS]
    links = sorted((hit for hit in hits if hit.effect.kind in _OF_LINKS), key=lambda hit: hit.effect.first)
    groups: list[list[Hit]] = []
    over: datetime | None = None  # when all of the last group was up again
    for hit in links:
        if not groups or (over is not None and hit.effect.first > over):
            groups.append([])
            over = hit.effect.cured
        elif over is not None:
            over = None if hit.effect.cured is None else max(over, hit.effect.cured)
        groups[-1].append(hit)
    found = [[*group, *(hit for hit in rest if not _is_long_over(group, hit))] for group in groups]
    is_whole = all(len(hits) == len(group) + len(rest) for hits, group in zip(found, groups, strict=True))
    return found if found and is_whole else [*found, rest]


def _is_long_over(links: Sequence[Hit], hit: Hit) -> bool:
    """Whether links were all up again long before something else came."""
    ends = [link.effect.cured for link in links]
    over = max((end for end in ends if end is not None), default=None)
    return None not in ends and over is not None and (hit.effect.first - over).total_seconds() > _LONG_AGO_S


def _spread_s(hit: Hit) -> float:
    return max(hit.row.spread_s or 60.0, hit.effect.uncertainty_s)


def _simultaneous(account: Account, near: Sequence[Hit]) -> None:
    """What comes together with others speaks for what they share: the middle one is where most of them are."""
    if len({hit.unit for hit in near}) < 2:
        return
    times = [hit.effect.first.timestamp() for hit in near]
    account.spread_s = times[-1] - times[0]
    middle = times[len(times) // 2]
    bonus = []
    for place, (hit, odds) in enumerate(account.parts):
        spread = _spread_s(hit)
        away = abs(times[place] - middle)
        bonus.append((hit, odds + (math.log(_DAY_S / max(spread, away)) if away <= _TIGHT * spread else _WRONG_CLOCK)))
    # The first one has no other to come together with.
    bonus[len(times) // 2] = account.parts[len(times) // 2]
    account.parts[:] = bonus


def _units(suspect: Suspect, hits: Sequence[Hit], reach: ReachIndex) -> int | None:
    """How many parts a suspect has of the kinds that were hit; None where nobody told."""
    if suspect.kind == "node":
        named = [_named_parts(suspect.place, kind, reach) for kind in {hit.unit.kind for hit in hits}]
        return sum(named) if all(named) else None
    return len(reach.units(suspect)) or None


def _usual_units(suspect: Suspect, hits: Sequence[Hit], reach: ReachIndex) -> int:
    """The same where nobody told: as many as such a thing usually has."""
    if suspect.kind == "storage":
        return reach.known_nodes() // _CLIENTS
    kinds = {hit.unit.kind for hit in hits} if suspect.kind == "node" else set()
    return sum(_named_parts(suspect.place, kind, reach) or _PARTS_OF_NODE for kind in kinds)


def _named_parts(node: Place, kind: CauseClass, reach: ReachIndex) -> int:
    counted = reach.graph.gpus.get(node.name, 0) if kind == "gpu" else 0
    if counted:
        return counted
    named = len(reach.graph.children(node, kind))
    return named if named >= (_ALL_GPUS if kind == "gpu" else 1) else 0


def cover(kind: CauseClass, struck: int, units: int) -> float:
    """The logarithm of the chance that a fault takes just these of its parts."""
    a, b = _COVER.get(kind, (2.0, 0.5))
    return _log_beta(struck + a, units - struck + b) - _log_beta(a, b)


def _log_beta(a: float, b: float) -> float:
    return math.lgamma(a) + math.lgamma(b) - math.lgamma(a + b)


def _add_jobs(account: Account, jobs: Sequence[Effect], tables: CauseTables) -> None:
    """The jobs that stopped or hang on the suspect's nodes: after its signs, as far as clocks can tell."""
    own = {id(hit.effect) for hit, _ in account.parts if hit.where == "own"}
    for effect in jobs:
        if id(effect) in own:
            continue  # it is of one place: counted there
        kind = account.suspect.kind
        row = tables.for_job(kind, effect.kind) if effect.domain is None else tables.row(kind, effect.kind, "domain")
        if row is None:
            continue
        odds = math.log(row.chance / effect.leak)
        if account.parts:
            lag = max((_order(hit.effect, effect) + _force(hit.effect) for hit, _ in account.parts), default=0.0)
            if lag <= _NEVER:
                continue
            odds += lag
        if odds > 0:
            account.jobs.append((effect, odds))


def _force(sign: Effect) -> float:
    """How far a fault of such a sign is able to end a job."""
    if sign.is_fleeting():
        return _FLEETING
    return _MILD if sign.is_mild() and sign.kind not in _LASTING else 0.0


def _order(sign: Effect, effect: Effect) -> float:
    """What the order in time takes away."""
    since = sign.first
    if effect.kind == "stop":
        if since > effect.last + timedelta(minutes=30):
            return _NEVER
        lag = (since - effect.first).total_seconds()
        if sign.kind in _LASTING:
            return 0.0
        return _SURVIVED if lag < -60.0 else -min(2.0, max(0.0, lag) / _STOP_LAG_S)
    lag = (effect.first - since).total_seconds()
    slack = effect.uncertainty_s + sign.uncertainty_s
    if lag >= -slack:
        return _SURVIVED if lag > _LONG_AGO_S else 0.0
    return _NEVER if lag < -_LOOSE_S - slack else -1.0


def release_account(suspect: Suspect, hits: Sequence[Hit], jobs: Sequence[Effect], reach: ReachIndex) -> Account | None:
    """The account of a driver's or firmware's version: the share of its nodes that fail, against that of the others."""
    found = release_gain(suspect, hits, reach)
    if found is None:
        return None
    prior = math.log(reach.tables.prior.get(suspect.kind, 1e-5))
    account = Account(suspect, prior + found.gain, prior=prior)
    share = found.gain / max(1, len(found.hits))
    account.parts = [(hit, share) for hit in found.hits]
    account.struck, account.units, account.others, account.p_value = (
        found.struck,
        found.units,
        found.others,
        found.p_value,
    )
    account.since = min(hit.effect.first for hit in found.hits)
    account.spread_s = (max(hit.effect.first for hit in found.hits) - account.since).total_seconds()
    _add_jobs(account, jobs, reach.tables)
    account.own = sum(reach.base_of(effect) for effect in account.effects())
    account.gain += sum(odds for _, odds in account.jobs) - account.own
    return account

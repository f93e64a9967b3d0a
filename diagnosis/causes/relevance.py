"""How much a cause matters to what is asked: is it of the job that stopped, does it stand, how long is it past?

A true fault that was cured hours ago is no answer to what is wrong now; beside nothing else, it is the best there is.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from functools import cache
from typing import TYPE_CHECKING

from diagnosis.causes.stop import ENDED_WELL, Stoppage, is_untold
from store.catalog_rows import rows

if TYPE_CHECKING:
    from diagnosis.causes.scene import Scene
    from diagnosis.causes.weighing import Account, SuspectFinding

# Cured; of another job than the one that stopped; survived before the last progress; not what the stop is put down to.
CURED, _ELSEWHERE, SURVIVED, _BESIDE_THE_STOP = 0.15, 0.05, 0.3, 0.5
# Clocks differ: what was last seen longer before the last progress is of an earlier stop of the run.
_LATELY = timedelta(minutes=10)
# A program that met an error and worked on, or ended well.
_WORKED_ON = 0.2
# A program whose job the scheduler ended for a node that went down.
OF_NODE = 0.1
# A program's fault on a node whose job nobody tells: any program of the node may have met it, so that what else is
# seen goes before it, and it is never sure.
_OF_UNTOLD_JOB, _MOST_OF_UNTOLD_JOB = 0.3, 0.85
SURVIVABLE = frozenset({"gpu_program", "gpu_follow_on"})
_HALF_LIFE_S = {False: 6 * 3600.0, True: 1800.0}
# Where nobody asks what ended the work, the newest of what is over is meant; each older one matters so much less.
_OLDER = 0.5
# The best of what is long past is at most this likely where a stop is to be explained.
_LEAST_WITH_STOP = 0.6


def relevance(findings: Iterable[SuspectFinding], scene: Scene, planned: float) -> list[tuple[SuspectFinding, float]]:
    """Findings with their probability, each suspect once, likeliest first. `planned`: how much such work matters."""
    best: dict[object, tuple[SuspectFinding, float]] = {}
    weighted = [(finding, matters(finding.account, scene)) for finding in findings]
    if scene.stop is None or scene.stop.run is None:
        weighted = _newest_first(weighted)
    most = max((weight for finding, weight in weighted if finding.share >= 0.5), default=0.0)
    most = max(most, planned) or 1.0
    if scene.stop is not None and scene.stop.run is not None:
        most = max(most, _LEAST_WITH_STOP)
    causes = {finding.account.suspect for finding, _ in weighted if finding.is_cause}
    for finding, weight in weighted:
        if not finding.is_cause and finding.account.suspect in causes:
            continue
        share = finding.share * min(1.0, weight / most)
        if is_untold(finding.account.suspect.place.name):
            share = min(share, _MOST_OF_UNTOLD_JOB)
        probability = calibrated(share)
        known = best.get(finding.account.suspect)
        if known is None or known[1] < probability:
            best[finding.account.suspect] = (finding, probability)
    return sorted(
        best.values(),
        key=lambda one: (-one[1], not one[0].is_cause, -one[0].account.gain, one[0].account.suspect),
    )


def _newest_first(weighted: Sequence[tuple[SuspectFinding, float]]) -> list[tuple[SuspectFinding, float]]:
    """The same, where what is over matters less with each cause that was over later."""
    ends = {id(finding): end for finding, _ in weighted if (end := _end(finding.account)) is not None}
    order = sorted(
        {end for finding, _ in weighted if finding.is_cause and (end := ends.get(id(finding)))}, reverse=True
    )
    older = {end: place for place, end in enumerate(order)}
    return [
        (finding, weight * _OLDER ** older.get(ends[id(finding)], len(older)) if id(finding) in ends else weight)
        for finding, weight in weighted
    ]


def _end(account: Account) -> datetime | None:
    """When all that a cause shows was over; None while some of it stands. Of a mere warning nobody tells the end."""
    effects = [hit.effect for hit, _ in account.parts]
    if any(effect.cured is None and not effect.is_mild() for effect in effects):
        return None
    return max((effect.cured for effect in effects if effect.cured is not None), default=None)


def matters(account: Account, scene: Scene) -> float:
    """How much a cause matters, 0 to 1."""
    effects = [hit.effect for hit, _ in account.parts] or [effect for effect, _ in account.jobs]
    stop = scene.stop
    stopped_it = stop is not None and _stopped(account, stop)
    # What stopped the work was no less its cause because it was put right afterwards.
    end = None if stopped_it else _end(account)
    is_cured = end is not None
    weight = CURED if is_cured else 1.0
    last = max((effect.cured if is_cured and effect.cured else effect.last) for effect in effects)
    age = max(0.0, (scene.now - last).total_seconds())
    # Where no end of work is to be explained, what broke is broken until somebody sees to it.
    if stop is not None or is_cured or all(effect.is_mild() for effect in effects):
        weight *= math.exp2(-age / _HALF_LIFE_S[is_cured])
    if is_untold(account.suspect.place.name):
        weight *= _OF_UNTOLD_JOB
    if account.suspect.kind == "application" and stopped_it and scene.failed_node() is not None:
        weight *= OF_NODE
    if account.suspect.kind == "application" and not stopped_it and _worked_on(account, scene):
        weight *= _WORKED_ON
    if stop is None or stop.run is None or stopped_it:
        return weight
    nodes = {node for effect in effects for node in effect.nodes}
    if nodes and stop.nodes is not None and not nodes & stop.nodes:
        return weight * _ELSEWHERE
    since = max(effect.first for effect in effects)
    if (stop.last_work - since).total_seconds() > 60.0:
        return weight * SURVIVED
    return weight * _BESIDE_THE_STOP


def _stopped(account: Account, stop: Stoppage) -> bool:
    """Whether a cause explains how the run ended, and showed itself of late: one from before ended another attempt."""
    if not stop.run or all(effect.run != stop.run for effect, _ in account.jobs):
        return False
    own = [hit.effect for hit, _ in account.parts]
    return not own or any(effect.last >= stop.last_work - _LATELY for effect in own)


def _worked_on(account: Account, scene: Scene) -> bool:
    """Whether a program met an error on a GPU and no other, and its job ended well or still runs."""
    if any(effect.kind not in SURVIVABLE for effect, _ in account.jobs):
        return False
    states = [job.state for job in scene.jobs if job.run == account.suspect.place.name]
    return bool(states) and states[-1].startswith(ENDED_WELL)


# From the share of a suspect to a probability that means what it says: `store/catalogs/calibration.csv`.

_LEAST_SAID, _MOST_SAID = 0.001, 0.999


def calibrated(share: float) -> float:
    """The probability that a suspect of this share is the cause: between the points of the table, on a line."""
    points = _points()
    share = min(1.0, max(0.0, share))
    if not points:
        return min(_MOST_SAID, max(_LEAST_SAID, share))
    place = bisect_right(points, (share, 2.0))
    left = points[place - 1] if place else (0.0, 0.0)
    right = points[place] if place < len(points) else (1.0, points[-1][1])
    width = right[0] - left[0]
    value = left[1] if width <= 0 else left[1] + (right[1] - left[1]) * (share - left[0]) / width
    return min(_MOST_SAID, max(_LEAST_SAID, value))


@cache
def _points() -> list[tuple[float, float]]:
    return sorted((float(row["share"]), float(row["probability"])) for row in rows("calibration"))

"""What was lost of each attempt, settled by the attempts that followed it.

An attempt depends on later ones: the next one that tells with which iteration it began decides what was kept of those
before it, back to the one that itself began with no later iteration; one that begins anew never takes from one that
completed (it is another piece of work). A ledger that is kept up need look back no further than that.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from goodput.timeline import Segment, doubted, repainted, sums
from goodput.wall_time.attempts import SUCCESSFUL
from goodput.wall_time.saved_work import ALWAYS_MS, NEVER_MS
from goodput.wall_time.walk import AT_RISK, Walked


@dataclass(slots=True)
class _Kept:
    """Of one attempt: until when its work was kept, and what a later, older checkpoint took from it."""

    until_ms: int
    settled: bool = False  # a later attempt told with which iteration it began
    doubtful: bool = False  # one that nobody knows anything of came between
    charged_ms: int = 0  # what of its work a later interruption pays for


def settle(walked: Sequence[Walked], tells_saves: bool) -> None:
    """Move the work that was lost into `lost_work`, and put on each interruption what it cost.

    Args:
        walked: the attempts in the order of their starts; changed in place.
        tells_saves: the log tells when a save is finished.
    """
    kept = [_Kept(_kept_by_saves(one)) for one in walked]
    taken = [0] * len(walked)
    for place, later in enumerate(walked):
        if later.blind and later.started:
            _doubt(walked, kept, place)
        elif later.resumed is not None:
            _look_back(walked, kept, taken, place)
    for place, (one, state) in enumerate(zip(walked, kept, strict=True)):
        sure = state.settled or tells_saves or (state.until_ms == NEVER_MS and one.progress.first == 0)
        if state.doubtful:
            one.segments = doubted(one.segments, NEVER_MS, AT_RISK, "lost_work")
        one.segments = repainted(one.segments, state.until_ms, AT_RISK, "lost_work", sure)
        if one.interruption is not None:
            lost = sums(one.segments)
            own = lost["lost_work"] - state.charged_ms + taken[place]
            one.interruption = replace(one.interruption, lost_work_ms=own, restart_ms=lost["detection"])


def _kept_by_saves(one: Walked) -> int:
    if one.interruption is None:
        return ALWAYS_MS
    return NEVER_MS if one.progress.saved_ms is None else one.progress.saved_ms


def _before(walked: Sequence[Walked], place: int) -> Iterator[int]:
    """The places before one, the nearest first; for one that began anew, back to an attempt that completed."""
    anew = walked[place].resumed == 0
    for at in range(place - 1, -1, -1):
        if anew and walked[at].attempt.state in SUCCESSFUL:
            return
        yield at


def _doubt(walked: Sequence[Walked], kept: Sequence[_Kept], place: int) -> None:
    """An attempt without a log may have loaded any checkpoint of the one before it that worked."""
    for at in _before(walked, place):
        if walked[at].progress.last is not None:
            kept[at].doubtful = True
            return


def _look_back(walked: Sequence[Walked], kept: Sequence[_Kept], taken: list[int], place: int) -> None:
    """An attempt tells with which iteration it began: what lies behind it in those before it was lost."""
    resumed = walked[place].resumed or 0
    for at in _before(walked, place):
        one, state = walked[at], kept[at]
        if one.progress.last is None:
            continue
        moment = one.progress.kept_ms(_snapped(walked[place], one, resumed))
        if not state.settled and not state.doubtful and one.interruption is not None:
            state.until_ms = moment
        elif moment < state.until_ms:
            if state.settled or one.interruption is None:
                lost = _at_risk_ms(one.segments, moment, state.until_ms)
                state.charged_ms += lost
                _charge(walked, taken, place, lost)
            state.until_ms = moment
        state.settled = True
        if one.resumed is not None and one.resumed <= resumed:
            return


def _snapped(later: Walked, one: Walked, resumed: int) -> int:
    """The iteration loaded. Of a first line nobody knows exactly how many it covers: the save just before it counts."""
    saved = one.progress.last_saved
    if not later.loaded and saved is not None and 0 < resumed - saved < one.progress.printed:
        return saved
    return resumed


def _charge(walked: Sequence[Walked], taken: list[int], place: int, lost_ms: int) -> None:
    """What an older checkpoint costs belongs to the interruption that made the run load it, if there was one."""
    for at in _before(walked, place):
        if walked[at].interruption is not None:
            taken[at] += lost_ms
            return


def _at_risk_ms(segments: Sequence[Segment], since_ms: int, until_ms: int) -> int:
    return sum(max(0, min(x.end_ms, until_ms) - max(x.start_ms, since_ms)) for x in segments if x.bucket in AT_RISK)

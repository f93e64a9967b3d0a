"""The run's wall time: each attempt's own time laid onto one line, each moment once.

Between two attempts the run waits. Where two overlap (the next was started before the first had ended, or clocks
differ), the moment is the earlier one's while its log tells of work, then the later one's; where they disagree about
the bucket, the bounds hold both. An attempt's place depends on those that overlap it, and on where they end alone.
"""

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from goodput.log.training_log import TrainingLine
from goodput.timeline import BETWEEN, CERTAIN, STARTING, Bucket, Segment, doubted, merged, repainted, sums
from goodput.wall_time.attempts import AT_RISK, SUCCESSFUL, Interruption, KeptSave, PaintedAttempt, RunAttempt
from goodput.wall_time.saves import ALWAYS_MS, NEVER_MS

# What a run's log tells beside the buckets: the parts of its starts, and who was slow.
#
# The startup of an attempt is told in parts as far as its log dates them: `launch` until the processes are up and
# connected (the scheduler's start, the containers, the rendezvous), `build` until the first iteration begins (model,
# data, compilation), `first_iteration` = how much longer than usual the first line's iterations took: startup too.

# The phase with which all processes are connected.
CONNECTED = ("after megatron is initialized", "rendezvous")


def details_of(walked: Sequence[PaintedAttempt], log: Sequence[TrainingLine]) -> dict[str, Any]:
    """The details of a ledger as plain values: `startup` in seconds by part, `stragglers` with how often named.

    A part that no log tells is missing.
    """
    phases = [(x.time_ms, x.words) for x in log if x.kind == "training_phase" and x.time_ms is not None]
    phases.sort()
    parts: dict[str, int] = {}
    for one in walked:
        for name, length in _parts_of(one, phases).items():
            parts[name] = parts.get(name, 0) + length
    named: dict[str, int] = {}
    for line in log:
        if line.kind == "straggler" and line.words:
            named[line.words] = named.get(line.words, 0) + 1
    found: dict[str, Any] = {"startup": {name: length / 1000 for name, length in parts.items()}}
    if named:
        ranked = sorted(named.items(), key=lambda pair: (-pair[1], pair[0]))
        found["stragglers"] = [{"who": who, "times": times} for who, times in ranked]
    return found


def _parts_of(one: PaintedAttempt, phases: Sequence[tuple[int, str]]) -> dict[str, int]:
    """The parts of one attempt's startup, in milliseconds."""
    if one.first_ms is None or not one.started:
        return {}
    starting = [(s.start_ms, s.end_ms) for s in one.segments if s.bucket == "startup"]
    parts: dict[str, int] = {}
    late = sum(end - max(start, one.first_ms) for start, end in starting if end > one.first_ms)
    if late:
        parts["first_iteration"] = late
    before = sum(min(end, one.first_ms) - start for start, end in starting if start < one.first_ms)
    connected = _connected_ms(one, phases)
    if connected is None or not before:
        return parts | ({"other": before} if before else {})
    launch = sum(min(end, connected) - start for start, end in starting if start < connected)
    return parts | ({"launch": launch} if launch else {}) | {"build": before - launch}


def _connected_ms(one: PaintedAttempt, phases: Sequence[tuple[int, str]]) -> int | None:
    """When an attempt's processes were connected, as its log dates it."""
    first = one.first_ms
    found = None
    for time, words in phases[bisect_left(phases, (one.start_ms, "")) :]:
        if first is None or time > first:
            break
        if words in CONNECTED:
            found = time
    return found


# What was lost of each attempt, settled by the attempts that followed it.
#
# An attempt depends on later ones: the next one that tells with which iteration it began decides what was kept of those
# before it, back to the one that itself began with no later iteration; one that begins anew never takes from one that
# completed (it is another piece of work). A ledger that is kept up need look back no further than that.


@dataclass(slots=True)
class _KeptWork:
    """Of one attempt: until when its work was kept, and what a later, older checkpoint took from it."""

    until_ms: int
    settled: bool = False  # a later attempt told with which iteration it began
    doubtful: bool = False  # one that nobody knows anything of came between
    charged_ms: int = 0  # what of its work a later interruption pays for


def settle(walked: Sequence[PaintedAttempt], tells_saves: bool) -> None:
    """Move the work that was lost into `lost_work`, and put on each interruption what it cost.

    Args:
        walked: the attempts in the order of their starts; changed in place.
        tells_saves: the log tells when a save is finished.
    """
    kept = [_KeptWork(_kept_by_saves(one)) for one in walked]
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


def _kept_by_saves(one: PaintedAttempt) -> int:
    if one.interruption is None:
        return ALWAYS_MS
    return NEVER_MS if one.progress.saved_ms is None else one.progress.saved_ms


def _before(walked: Sequence[PaintedAttempt], place: int) -> Iterator[int]:
    """The places before one, the nearest first; for one that began anew, back to an attempt that completed."""
    anew = walked[place].resumed == 0
    for at in range(place - 1, -1, -1):
        if anew and walked[at].attempt.state in SUCCESSFUL:
            return
        yield at


def _doubt(walked: Sequence[PaintedAttempt], kept: Sequence[_KeptWork], place: int) -> None:
    """An attempt without a log may have loaded any checkpoint of the one before it that worked."""
    for at in _before(walked, place):
        if walked[at].progress.last is not None:
            kept[at].doubtful = True
            return


def _look_back(walked: Sequence[PaintedAttempt], kept: Sequence[_KeptWork], taken: list[int], place: int) -> None:
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


def _snapped(later: PaintedAttempt, one: PaintedAttempt, resumed: int) -> int:
    """The iteration loaded. Of a first line nobody knows exactly how many it covers: the save just before it counts."""
    saved = one.progress.last_saved
    if not later.loaded and saved is not None and 0 < resumed - saved < one.progress.printed:
        return saved
    return resumed


def _charge(walked: Sequence[PaintedAttempt], taken: list[int], place: int, lost_ms: int) -> None:
    """What an older checkpoint costs belongs to the interruption that made the run load it, if there was one."""
    for at in _before(walked, place):
        if walked[at].interruption is not None:
            taken[at] += lost_ms
            return


def _at_risk_ms(segments: Sequence[Segment], since_ms: int, until_ms: int) -> int:
    return sum(max(0, min(x.end_ms, until_ms) - max(x.start_ms, since_ms)) for x in segments if x.bucket in AT_RISK)


_BEGINNING: frozenset[Bucket] = STARTING | {"waiting"}


@dataclass(frozen=True, slots=True)
class WallPiece:
    """A stretch of the wall time and the attempt that it belongs to, by its place."""

    segment: Segment
    owner: int


def lay(walked: Sequence[PaintedAttempt], start_ms: int) -> list[WallPiece]:
    """The wall time from `start_ms` to the end of the last attempt, without hole or overlap.

    Args:
        walked: the attempts in the order of their starts.
    """
    wall: list[WallPiece] = []
    cursor, worked = start_ms, start_ms
    for place, one in enumerate(walked):
        begin, end = one.start_ms, one.end_ms
        if one.attempt.from_log and place > 0:  # nobody tells its start: the one before may not have been gone yet
            over = _take_off(wall, worked)
            wall += [*_cut(over, NEVER_MS, worked), *_doubted(over, (worked, cursor), _BEGINNING)]
        if begin > cursor:
            unsure = one.attempt.from_log and place > 0
            maybe = BETWEEN - {"waiting"} if unsure else CERTAIN
            wall.append(WallPiece(Segment(cursor, begin, "waiting", maybe), place))
            cursor = begin
        own = [WallPiece(segment, place) for segment in one.segments]
        if begin >= cursor:
            wall += own
        elif end > begin:
            turn = min(max(worked, begin), cursor)
            wall += _woven(_take_off(wall, begin), own, (begin, turn), one.started)
        cursor = max(cursor, end)
        worked = max(worked, one.worked_ms)
    return wall


def _woven(over: Sequence[WallPiece], own: Sequence[WallPiece], times: tuple[int, int], doubt: bool) -> list[WallPiece]:
    """The wall from where an attempt begins within it, which has the time from its turn on; `times` = begin, turn."""
    begin, turn = times
    end = own[-1].segment.end_ms
    laid = [
        *_cut(over, NEVER_MS, turn),
        *_cut(own, turn, end),
        *_cut(over, max(turn, end), over[-1].segment.end_ms),
    ]
    if not doubt:
        return laid
    until = min(end, over[-1].segment.end_ms)
    both: frozenset[Bucket] = frozenset()
    for piece in (*_cut(over, begin, until), *_cut(own, begin, until)):
        both |= {piece.segment.bucket} | piece.segment.maybe
    return [
        *_cut(laid, NEVER_MS, begin),
        *_doubted(laid, (begin, until), both),
        *_cut(laid, until, ALWAYS_MS),
    ]


def _take_off(wall: list[WallPiece], moment_ms: int) -> list[WallPiece]:
    """The pieces that end after a moment, which the wall then lacks."""
    first = len(wall)
    while first and wall[first - 1].segment.end_ms > moment_ms:
        first -= 1
    over = wall[first:]
    del wall[first:]
    return over


def _cut(pieces: Sequence[WallPiece], since_ms: int, until_ms: int) -> list[WallPiece]:
    """What of the pieces lies within two moments."""
    found = []
    for piece in pieces:
        start, end = max(piece.segment.start_ms, since_ms), min(piece.segment.end_ms, until_ms)
        if start < end:
            found.append(WallPiece(replace(piece.segment, start_ms=start, end_ms=end), piece.owner))
    return found


def _doubted(pieces: Sequence[WallPiece], times: tuple[int, int], buckets: frozenset[Bucket]) -> list[WallPiece]:
    return [
        WallPiece(replace(piece.segment, maybe=(piece.segment.maybe | buckets) - {piece.segment.bucket}), piece.owner)
        for piece in _cut(pieces, *times)
    ]


def interruptions_of(walked: Sequence[PaintedAttempt], wall: Sequence[WallPiece]) -> tuple[Interruption, ...]:
    """The interruptions with the way back added: waiting, startup and load up to the next attempt that started."""
    own: list[list[Segment]] = [[] for _ in walked]
    for piece in wall:
        own[piece.owner].append(piece.segment)
    found = []
    kept: KeptSave | None = None
    for place, one in enumerate(walked):
        if (saved := one.progress.newest_save) is not None:
            kept = KeptSave(saved[0] or None, saved[1])
        if one.interruption is None:
            continue
        restart = one.interruption.restart_ms
        for after in range(place + 1, len(walked)):
            spent = sums(own[after])
            restart += spent["waiting"] + spent["startup"] + spent["checkpoint_load"]
            if walked[after].started:
                break
        torn = max((save.iteration for save in one.unfinished if save.iteration is not None), default=None)
        if torn is not None and kept is not None and torn <= (kept.iteration or 0):
            torn = None
        found.append(replace(one.interruption, restart_ms=restart, kept=kept, torn=torn))
    return tuple(found)


# GPU time: each bucket once more, counted in GPUs held times milliseconds held, exact over every change of size.
#
# A wait counts with the size that was asked for. Attempts that overlap hold their GPUs each: the GPU time of both
# counts, though the wall time counts once.


def nodes_in(attempt: RunAttempt) -> int:
    """How many nodes an attempt held or asked for; 0 where nobody tells."""
    return attempt.node_count or len(attempt.nodes)


def gpus_of(attempt: RunAttempt, gpus: Mapping[str, int]) -> int | None:
    """The GPUs that an attempt held or asked for; None where a node's are unknown.

    Of an attempt that names no nodes, its number of nodes counts if all nodes known have as many GPUs each.
    """
    counts = [gpus.get(node) for node in attempt.nodes]
    if counts:
        known = [count for count in counts if count is not None]
        return sum(known) if len(known) == len(counts) else None
    sizes = set(gpus.values())
    return None if attempt.node_count is None or len(sizes) != 1 else attempt.node_count * sizes.pop()


def held_gpus(
    walked: Sequence[PaintedAttempt], wall: Sequence[WallPiece], gpus: Mapping[str, int]
) -> tuple[tuple[Segment, int], ...] | None:
    """Each stretch of time with the GPUs that were held or waited for; None where an attempt's size is unknown."""
    sizes = [gpus_of(one.attempt, gpus) for one in walked]
    found: list[tuple[Segment, int]] = []
    for one, size in zip(walked, sizes, strict=True):
        if size is None:
            return None
        if one.started:
            found += [(segment, size) for segment in one.segments]
    for piece in wall:
        size = sizes[piece.owner]
        own = walked[piece.owner]
        waited = not own.started or piece.segment.start_ms < own.start_ms
        if waited and size is not None:
            found.append((piece.segment, size))
    return tuple(found) if walked else None


def sized(
    interruptions: Sequence[Interruption], walked: Sequence[PaintedAttempt], gpus: Mapping[str, int]
) -> tuple[Interruption, ...]:
    """The interruptions with the GPUs that each one cost: those of the attempt that it ended."""
    sizes = [gpus_of(one.attempt, gpus) for one in walked if one.interruption is not None]
    return tuple(replace(one, gpus=size) for one, size in zip(interruptions, sizes, strict=True))


# The attempts one by one: what a run page draws.


@dataclass(frozen=True, slots=True)
class AttemptSpan:
    """One attempt's own time, from its start (of one that never started: its submit) to its end or its last data.

    `state` = the scheduler's word. `segments` = its time by bucket, without hole or overlap. `interruption` = its bad
    end; None where it completed, goes on, or ended as planned. `nodes`, `gpus`: None = not known.
    """

    start_ms: int
    end_ms: int
    is_open: bool
    state: str
    nodes: int | None
    gpus: int | None
    segments: tuple[Segment, ...]
    interruption: Interruption | None


def spans_of(
    walked: Sequence[PaintedAttempt], interruptions: Sequence[Interruption], gpus: Mapping[str, int]
) -> tuple[AttemptSpan, ...]:
    """The attempts in the order of their starts; `interruptions` = those of the ledger, in the same order."""
    ended = iter(interruptions)
    return tuple(
        AttemptSpan(
            one.start_ms,
            one.end_ms,
            one.attempt.end_ms is None,
            one.attempt.state,
            nodes_in(one.attempt) or None,
            gpus_of(one.attempt, gpus),
            merged(one.segments),
            None if one.interruption is None else next(ended),
        )
        for one in walked
    )

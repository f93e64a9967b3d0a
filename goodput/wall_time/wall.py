"""The run's wall time: each attempt's own time laid onto one line, each moment once.

Between two attempts the run waits. Where two overlap (the next was started before the first had ended, or clocks
differ), the moment is the earlier one's while its log tells of work, then the later one's; where they disagree about
the bucket, the bounds hold both. An attempt's place depends on those that overlap it, and on where they end alone.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from goodput.timeline import CERTAIN, Bucket, Segment, sums
from goodput.wall_time.bounds import BETWEEN, STARTING
from goodput.wall_time.interruption import Interruption
from goodput.wall_time.saved_work import ALWAYS_MS, NEVER_MS
from goodput.wall_time.walk import Walked

_BEGINNING: frozenset[Bucket] = STARTING | {"waiting"}


@dataclass(frozen=True, slots=True)
class Piece:
    """A stretch of the wall time and the attempt that it belongs to, by its place."""

    segment: Segment
    owner: int


def lay(walked: Sequence[Walked], start_ms: int) -> list[Piece]:
    """The wall time from `start_ms` to the end of the last attempt, without hole or overlap.

    Args:
        walked: the attempts in the order of their starts.
    """
    wall: list[Piece] = []
    cursor, worked = start_ms, start_ms
    for place, one in enumerate(walked):
        begin, end = one.start_ms, one.end_ms
        if one.attempt.from_log and place > 0:  # nobody tells its start: the one before may not have been gone yet
            over = _take_off(wall, worked)
            wall += [*_cut(over, NEVER_MS, worked), *_doubted(over, (worked, cursor), _BEGINNING)]
        if begin > cursor:
            unsure = one.attempt.from_log and place > 0
            maybe = BETWEEN - {"waiting"} if unsure else CERTAIN
            wall.append(Piece(Segment(cursor, begin, "waiting", maybe), place))
            cursor = begin
        own = [Piece(segment, place) for segment in one.segments]
        if begin >= cursor:
            wall += own
        elif end > begin:
            turn = min(max(worked, begin), cursor)
            wall += _woven(_take_off(wall, begin), own, (begin, turn), one.started)
        cursor = max(cursor, end)
        worked = max(worked, one.worked_ms)
    return wall


def _woven(over: Sequence[Piece], own: Sequence[Piece], times: tuple[int, int], doubt: bool) -> list[Piece]:
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


def _take_off(wall: list[Piece], moment_ms: int) -> list[Piece]:
    """The pieces that end after a moment, which the wall then lacks."""
    first = len(wall)
    while first and wall[first - 1].segment.end_ms > moment_ms:
        first -= 1
    over = wall[first:]
    del wall[first:]
    return over


def _cut(pieces: Sequence[Piece], since_ms: int, until_ms: int) -> list[Piece]:
    """What of the pieces lies within two moments."""
    found = []
    for piece in pieces:
        start, end = max(piece.segment.start_ms, since_ms), min(piece.segment.end_ms, until_ms)
        if start < end:
            found.append(Piece(replace(piece.segment, start_ms=start, end_ms=end), piece.owner))
    return found


def _doubted(pieces: Sequence[Piece], times: tuple[int, int], buckets: frozenset[Bucket]) -> list[Piece]:
    return [
        Piece(replace(piece.segment, maybe=(piece.segment.maybe | buckets) - {piece.segment.bucket}), piece.owner)
        for piece in _cut(pieces, *times)
    ]


def interruptions_of(walked: Sequence[Walked], wall: Sequence[Piece]) -> tuple[Interruption, ...]:
    """The interruptions with the way back added: waiting, startup and load up to the next attempt that started."""
    own: list[list[Segment]] = [[] for _ in walked]
    for piece in wall:
        own[piece.owner].append(piece.segment)
    found = []
    for place, one in enumerate(walked):
        if one.interruption is None:
            continue
        restart = one.interruption.restart_ms
        for after in range(place + 1, len(walked)):
            spent = sums(own[after])
            restart += spent["waiting"] + spent["startup"] + spent["checkpoint_load"]
            if walked[after].started:
                break
        found.append(replace(one.interruption, restart_ms=restart))
    return tuple(found)

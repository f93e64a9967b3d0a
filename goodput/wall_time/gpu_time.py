"""GPU time: each bucket once more, counted in GPUs held times milliseconds held, exact over every change of size.

A wait counts with the size that was asked for. Attempts that overlap hold their GPUs each: the GPU time of both counts,
though the wall time counts once.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from goodput.timeline import BUCKETS, Bucket, Segment
from goodput.wall_time.attempts import Attempt
from goodput.wall_time.interruption import Interruption
from goodput.wall_time.walk import Walked
from goodput.wall_time.wall import Piece


def nodes_in(attempt: Attempt) -> int:
    """How many nodes an attempt held or asked for; 0 where nobody tells."""
    return attempt.node_count or len(attempt.nodes)


def gpus_of(attempt: Attempt, gpus: Mapping[str, int]) -> int | None:
    """The GPUs that an attempt held or asked for; None where a node's are unknown.

    Of an attempt that names no nodes, its number of nodes counts if all nodes known have as many GPUs each.
    """
    counts = [gpus.get(node) for node in attempt.nodes]
    if counts:
        known = [count for count in counts if count is not None]
        return sum(known) if len(known) == len(counts) else None
    sizes = set(gpus.values())
    return None if attempt.node_count is None or len(sizes) != 1 else attempt.node_count * sizes.pop()


def held(
    walked: Sequence[Walked], wall: Sequence[Piece], gpus: Mapping[str, int]
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


def gpu_ms(stretches: Iterable[tuple[Segment, int]] | None) -> dict[Bucket, int] | None:
    """GPU-milliseconds in each bucket; None where the size of an attempt is unknown, or there is none."""
    if stretches is None:
        return None
    totals: dict[Bucket, int] = dict.fromkeys(BUCKETS, 0)
    for segment, size in stretches:
        totals[segment.bucket] += segment.length_ms * size
    return totals


def sized(
    interruptions: Sequence[Interruption], walked: Sequence[Walked], gpus: Mapping[str, int]
) -> tuple[Interruption, ...]:
    """The interruptions with the GPUs that each one cost: those of the attempt that it ended."""
    sizes = [gpus_of(one.attempt, gpus) for one in walked if one.interruption is not None]
    return tuple(replace(one, gpus=size) for one, size in zip(interruptions, sizes, strict=True))

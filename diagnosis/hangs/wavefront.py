"""The wavefront over process groups: of all ranks that others wait for, those that wait for nobody themselves.

A stopped rank stops its tensor group, that its pipeline, that every replica: a thousand ranks are late in some group.
A rank that is late in one group because it waits in another is a victim. What remains, when every victim is taken away,
is where the hang begins. Where each of them waits for another, the ranks do not agree on the order of their
collectives: that is the program's fault, and no rank's. So MegaScale and Meta's flight recorder analysis go about it
(docs/hangs.md names them).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from diagnosis.hangs.group_state import GroupState

# How one is known to be missing, the surest first.
How = Literal["stopped", "not_entered", "silent"]
# Where more ranks than this share of a group are silent, it is not known who hangs: most reports have not come yet.
_MOST_SILENT = 0.5


@dataclass(frozen=True, slots=True)
class Missing:
    """A rank that others wait for in `group`, and that waits for nobody."""

    rank: int
    how: How
    group: GroupState


@dataclass(frozen=True, slots=True)
class Wavefront:
    """What a run's groups show: who is missing; or groups whose ranks call different collectives."""

    missing: tuple[Missing, ...] = ()
    mismatched: tuple[GroupState, ...] = ()


def wavefront(groups: Iterable[GroupState], world: int | None) -> Wavefront:
    """The earliest blocked of a run. The surest kind of finding alone is told.

    Args:
        world: how many ranks the run has, where known.
    """
    stuck = [group for group in groups if group.waiters()]
    mismatched = tuple(group for group in stuck if _mismatch(group))
    clear = sorted((group for group in stuck if not _mismatch(group)), key=lambda group: (group.first, group.name))
    stopped = {rank: group for group in reversed(clear) for rank in group.stopped}
    if stopped:
        return Wavefront(tuple(Missing(rank, "stopped", stopped[rank]) for rank in sorted(stopped)), mismatched)
    waits = set().union(*(group.waiters() for group in clear)) if clear else set()
    late = {rank: group for group in reversed(clear) for rank in group.behind()}
    silent = _silent(clear, waits, world)
    # One that nobody heard of may hold up a rank that is late; one that waits elsewhere is held up itself.
    roots = {rank: group for rank, group in late.items() if rank not in waits}
    if silent and not any(rank in roots for rank in late):
        return Wavefront(tuple(Missing(rank, "silent", silent[rank]) for rank in sorted(silent)), mismatched)
    if roots:
        return Wavefront(tuple(Missing(rank, "not_entered", roots[rank]) for rank in sorted(roots)), mismatched)
    if late:  # each waits for another
        circle = {id(group): group for group in late.values()}
        return Wavefront((), (*mismatched, *circle.values()))
    return Wavefront((), mismatched)


def _silent(clear: Sequence[GroupState], waits: set[int], world: int | None) -> dict[int, GroupState]:
    """Ranks that no group has heard of, each with the first group that misses it."""
    found: dict[int, GroupState] = {}
    if any(group.is_cut for group in clear):
        return found  # one that this group does not hear of may be among those that the other did not name
    heard = waits.union(*(group.reported for group in clear)) if clear else waits
    for group in clear:
        gone = group.silent(world, heard) - heard
        everyone = group.all_ranks(world) or group.reported
        if gone and len(gone) <= _MOST_SILENT * len(everyone):
            for rank in gone:
                found.setdefault(rank, group)
    return found


def _mismatch(group: GroupState) -> bool:
    """Whether ranks at the same number call different collectives."""
    front = group.front()
    inside = (rank for rank in group.operations if rank in group.enqueued and group.stands_at(rank) == front)
    called = {group.operations[rank] for rank in inside}
    # The watchdog says ALLREDUCE where the recorder says all_reduce: names of one of them are compared.
    return any(len([name for name in called if name.isupper() is by_watchdog]) > 1 for by_watchdog in (True, False))

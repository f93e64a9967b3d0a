"""Which ranks a job waits for, and which slow it down, as events: the wavefront of each run, and its slow ranks.

    stuck_ranks(events, placements)       # [Event(kind="rank_missing", node="gpu-065", device=gpu 0, ...)]

A class keeps what was reported so far: a report costs the same however many came before. The events are computed when
they are read, since a dump that comes late takes a rank off the list of those that are missing.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from diagnosis.hangs.group_state import MOST_GROUPS, WAIT, GroupState
from diagnosis.hangs.placement import RankPlacements
from diagnosis.hangs.slow_ranks import RankWork
from diagnosis.hangs.wavefront import Missing, Wavefront, wavefront
from store.plural import many
from store.records.event import Attribute, Device, Event, with_id
from store.records.fault_catalog import with_kind_meaning
from store.runs.rank_set import numbers_of, ranks_of, text_of_numbers, text_of_ranks

SOURCE = "hangs"
MISSING, SLOW, MISMATCH = "rank_missing", "rank_slow", "collective_mismatch"
PROGRESS = "rank_progress"
# Events that tell of ranks.
KINDS = frozenset({WAIT, PROGRESS, "straggler"})
# Work that goes on: what was stuck is over.
WORK = "iteration"  # very many: of each run the newest is enough
_ANEW = frozenset({"training_start", "cycle_start", WORK})
# Events that tell of ranks, or that a run begins anew; iterations are too many to be looked at for it.
TELLING = KINDS | {"training_start", "cycle_start"}
MOST_RUNS = 256
# Missing ranks of a run that are told.
MOST_TOLD = 16
# So long no more reports must have come before silence means anything.
_REST = timedelta(seconds=3)
# Where so few are silent of many, there is no need to wait for the rest.
_FEW = 0.02
# Nodes whose word of another node's rank is more than a report.
_ENOUGH = 3
# Such a share of the ranks up to the highest tells how many there are.
_DENSE = 0.75
# A node that has its ranks tells of them once a minute at least.
_HEARD = timedelta(seconds=150)
_NO_PLACEMENTS = RankPlacements()


@dataclass(slots=True)
class _RunState:
    last: datetime
    groups: dict[str, GroupState] = field(default_factory=dict)
    work: RankWork = field(default_factory=RankWork)
    named: dict[int, Event] = field(default_factory=dict)  # stragglers that a detector named
    places: dict[int, tuple[str, int | None, datetime]] = field(default_factory=dict)  # and when its node said so
    claimed: set[int] = field(default_factory=set)  # ranks that two nodes say are theirs
    world: int | None = None
    front: Wavefront | None = None  # as computed from the last report


class StuckRanks:
    """What ranks report, run by run. Memory is bounded: the runs that were quiet for longest go first."""

    def __init__(self) -> None:
        self._runs: dict[str, _RunState] = {}
        self.placements = _NO_PLACEMENTS

    def take(self, event: Event) -> bool:
        """One event; whether it tells anything of ranks."""
        time = event.time
        if time is None or (event.kind not in KINDS and event.kind not in _ANEW):
            return False
        run = event.run() or self.placements.run_of(event.node) or ""
        if event.kind in _ANEW:
            known = self._runs.get(run)
            if known is not None and event.kind == "training_start":
                known.places, known.claimed = {}, set()
            if known is not None and known.groups:
                known.groups = {name: group for name, group in known.groups.items() if group.last > time}
                known.front = None
            return False
        sender = event.attributes.get("sender")
        if self.placements.is_foreign(event.node or (sender if isinstance(sender, str) else None), run):
            return False  # a node of another job says nothing of this one's ranks
        state = self._runs.get(run)
        if state is None:
            self._make_room()
            state = self._runs[run] = _RunState(time)
        state.last, state.front = max(state.last, time), None
        self._note_places(state, event, time)
        if event.kind == WAIT:
            self._wait(state, event, time)
        elif event.kind == PROGRESS:
            state.work.take(_measures(event), time)
        else:
            rank = event.attributes.get("rank")
            if isinstance(rank, int) and (rank in state.named or len(state.named) < 4 * MOST_TOLD):
                state.named.setdefault(rank, event)
        return True

    def events(self, now: datetime | None = None) -> list[Event]:
        """What is stuck and slow as of now; `now` None: all reports have come."""
        found: list[Event] = []
        for run, state in self._runs.items():
            front = state.front
            if front is None:
                front = state.front = wavefront(state.groups.values(), state.world)
            found += self._missing_events(run, state, front, now)
            found += [self._mismatch_event(run, group) for group in front.mismatched]
            found += self._slow_events(run, state, {one.rank for one in front.missing})
        return found

    def _wait(self, state: _RunState, event: Event, time: datetime) -> None:
        name = event.attributes.get("group")
        key = name[:120] if isinstance(name, str) else ""
        group = state.groups.get(key)
        if group is None:
            if len(state.groups) >= MOST_GROUPS:
                del state.groups[next(iter(state.groups))]
            group = state.groups[key] = GroupState(key, time, time)
        group.take(event, time, self._others(state, event, time))
        if group.world is not None:
            state.world = max(group.world, state.world or 0)

    @staticmethod
    def _others(state: _RunState, event: Event, time: datetime) -> set[int]:
        """Ranks of a report that another node says are its own: of these that node alone is heard."""
        if event.node is None or not state.places:
            return set()
        ranks = ranks_of(event.attributes.get("ranks"))
        places = ((rank, state.places[rank]) for rank in ranks if rank in state.places)
        return {rank for rank, (node, _, said) in places if node != event.node and time - said < _HEARD}

    def _note_places(self, state: _RunState, event: Event, time: datetime) -> None:
        """Ranks that a node says are its own. Where two say so of one, neither is believed."""
        if event.node is None or "local_ranks" not in event.attributes:
            return
        ranks = ranks_of(event.attributes.get("ranks"))
        for rank, local in numbers_of(event.attributes["local_ranks"], ranks).items():
            known = state.places.get(rank)
            if known is None or known[0] == event.node:
                state.places[rank] = (event.node, local, time)
            elif time - known[2] < _HEARD:
                state.claimed.add(rank)
            else:  # it has moved
                state.places[rank] = (event.node, local, time)
                state.claimed.discard(rank)

    def _place(self, run: str, state: _RunState, rank: int) -> tuple[str | None, int | None]:
        if rank in state.places and rank not in state.claimed:
            return state.places[rank][:2]
        placement = self.placements.of(run)
        if placement is None:
            return None, None
        world = state.world
        if world is None:
            world = max((len(group.members) for group in state.groups.values()), default=0) or None
        return placement.place_of(rank, world or _dense_world(state, len(placement.nodes)))

    def _missing_events(self, run: str, state: _RunState, front: Wavefront, now: datetime | None) -> Iterator[Event]:
        if not front.missing:
            return
        last = max(one.group.last for one in front.missing)
        everyone = max(len(one.group.all_ranks(state.world)) for one in front.missing)
        silent = front.missing[0].how == "silent"
        if silent and now is not None and now - last < _REST and len(front.missing) > max(1, _FEW * everyone):
            return
        for one in front.missing[:MOST_TOLD]:
            yield self._missing_event(run, state, one, len(front.missing))

    def _missing_event(self, run: str, state: _RunState, one: Missing, count: int) -> Event:
        group, rank = one.group, one.rank
        waiting = group.waiters() - {rank}
        number = group.front()
        node, local = self._place(run, state, rank)
        told: dict[str, Attribute] = {
            "run": run or None,
            "rank": rank,
            "local_rank": local,
            "group": group.name,
            "collective": number,
            "operation": next(iter(group.operations.values()), None),
            "how": one.how,
            "waiting": text_of_ranks(waiting),
            "missing": count,
            "reported": len(group.reported),
            "members": len(group.all_ranks(state.world)) or None,
            "last_enqueued": text_of_numbers({rank: group.enqueued[rank]} if rank in group.enqueued else {}),
            "last_completed": text_of_numbers({rank: group.completed[rank]} if rank in group.completed else {}),
            "witnesses": len(group.witnesses - {node}),
            "reporter": _reporter(group, node),
            "peer": group.hosts[rank][0] if node is None and rank in group.hosts else None,
        }
        where = f" (local rank {local} of {node})" if node is not None and local is not None else ""
        how = {
            "stopped": f"its process does not run{where}",
            "not_entered": f"it has not entered collective {number}",
            "silent": "nothing is heard of it",
        }[one.how]
        whose = f" of {run}" if run else ""
        words = (
            f"rank {rank}{whose} is missing: {how}, and {many(len(waiting), 'rank')} of group {group.name or '?'} wait"
        )
        # A process that does not run says nothing of its GPU; where its own node says so, the node is well.
        event = _event(MISSING, group.first, node, None if one.how == "stopped" else local, words, told)
        if one.how == "stopped" and rank in state.places and node in group.witnesses:
            event = with_kind_meaning(event, "stopped")
        return replace(event, id=group.events[0]) if group.events and count == 1 else event

    def _mismatch_event(self, run: str, group: GroupState) -> Event:
        names = sorted(set(group.operations.values()))[:4]
        words = (
            f"the ranks of group {group.name or '?'} wait for each other in different collectives: "
            f"{', '.join(names) or 'their order differs'}"
        )
        told: dict[str, Attribute] = {
            "run": run or None,
            "group": group.name,
            "collective": group.front(),
            "waiting": text_of_ranks(group.waiters()),
            "operations": ", ".join(names),
        }
        return _event(MISMATCH, group.first, None, None, words, told)

    def _slow_events(self, run: str, state: _RunState, missing: set[int]) -> Iterator[Event]:
        work = state.work
        for rank in work.slow()[:MOST_TOLD]:
            if rank in missing:
                continue
            node, local = self._place(run, state, rank)
            usual, own = work.usual_ms(), work.work_ms[rank]
            told: dict[str, Attribute] = {
                "run": run or None,
                "rank": rank,
                "work_ms": round(own, 3),
                "usual_ms": round(usual, 3),
                "ranks": len(work.work_ms),
                "lost_share": round(1 - usual / own, 4),
            }
            words = f"rank {rank} works {own:.0f} ms a step, the others of its job {usual:.0f} ms: they wait for it"
            yield _event(SLOW, work.since[rank], node, local, words, told)
        for rank, event in state.named.items():
            if event.node is not None or event.time is None:
                continue  # the event itself names the node
            node, local = self._place(run, state, rank)
            if node is not None:
                named: dict[str, Attribute] = {"run": run or None, "rank": rank}
                yield _event(SLOW, event.time, node, local, f"rank {rank} is named as a straggler", named)

    def _make_room(self) -> None:
        if len(self._runs) >= MOST_RUNS:
            del self._runs[min(self._runs, key=lambda run: self._runs[run].last)]


def stuck_ranks(events: Iterable[Event], placements: RankPlacements = _NO_PLACEMENTS) -> list[Event]:
    """The ranks that jobs wait for (`rank_missing`), and those that slow them down (`rank_slow`), in these events."""
    state = StuckRanks()
    state.placements = placements
    for event in sorted((one for one in events if one.time is not None), key=lambda one: (one.time, one.id or "")):
        state.take(event)
    return state.events()


def _reporter(group: GroupState, node: str | None) -> str | None:
    """Whose word it is alone that a rank of another node is missing; None for three nodes' word, or an archive's."""
    if node is None or node in group.witnesses or len(group.witnesses) >= _ENOUGH:
        return None
    return min(group.witnesses, default=None)


def _dense_world(state: _RunState, nodes: int) -> int | None:
    """How many ranks there are where nobody says: by the highest that reports, if nearly all below it do."""
    heard = set().union(*(group.reported | group.absent | group.stopped for group in state.groups.values()))
    if not heard or not nodes or len(heard) < _DENSE * (max(heard) + 1):
        return None
    per_node = -(-(max(heard) + 1) // nodes)
    return per_node * nodes if per_node * nodes - max(heard) - 1 < per_node else None


def _measures(event: Event) -> dict[int, float]:
    """Each rank's work a step in milliseconds, as a node's summary tells it in the order of its ranks."""
    text = event.attributes.get("work_ms")
    if not isinstance(text, str):
        return {}
    found: dict[int, float] = {}
    for rank, word in zip(sorted(ranks_of(event.attributes.get("ranks"))), text[:4000].split(","), strict=False):
        try:
            value = float(word)
        except ValueError:
            continue
        if 0.0 < value < 1e9:
            found[rank] = value
    return found


def _event(
    kind: str, time: datetime, node: str | None, local: int | None, words: str, told: dict[str, Attribute]
) -> Event:
    device = Device() if local is None else Device("gpu", index=local)
    event = Event(time, node, SOURCE, kind, device=device, message=words, attributes=told)
    origin = f"{kind}|{told.get('run')}|{told.get('group')}|{told.get('rank')}|{told.get('collective')}"
    return with_id(with_kind_meaning(event), origin)

"""What the training hook shares of each rank (`hook/foreshock_hook/rank_state.py`), compared from look to look.

    reading = rank_reading(data)                 # RankReading(rank=5, state="waiting", groups={"dp": (21, 20)}, ...)
    for event in RunOnNode("run-7", "gpu-017").look(readings, now): ...

A node sends what has changed: a summary of its ranks' own work, and, when no rank goes on though some wait in a
collective, who is in which collective and whose process does not run. What the whole job waits for, the server finds.
"""

import struct
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from statistics import median

from store.plural import many
from store.records.event import Attribute, Event
from store.records.fault_catalog import with_kind_meaning
from store.runs.rank_set import text_of_numbers, text_of_ranks

SIZE = 1024
MAGIC, VERSION = b"FSRS", 1
HEAD = struct.Struct("<4sIQ iQiii B B 2x")
BODY, BODY_AT = struct.Struct("<Qqqqq"), 64
RUN_AT, RUN_BYTES = 128, 64
GROUP, GROUPS_AT = struct.Struct("<48sqq"), 192
STATES = ("starting", "working", "waiting", "paused", "ended")
SOURCE = "ranks"
# No step for so long, and for so many usual steps, is no progress.
LEAST_STALL_S = 10.0
STALL_STEPS = 10.0
_MOST_STALL_S = 120.0
# A rank with a thread stamps its file once a second.
_STALE_S = 3.5
# A summary is sent when a rank's work has changed so much, and then again; at least once in so long.
_CHANGED = 0.1
_AT_LEAST_S = 60.0
_AGAIN = 3
_SUMMARY_S = 5.0
_STALLED_AGAIN_S = 30.0


@dataclass(frozen=True, slots=True)
class RankReading:
    """One rank's file. `groups` are (collectives entered, left); times in seconds since 1970, or of work."""

    run: str
    rank: int
    local_rank: int | None
    world: int | None
    state: str
    pid: int
    namespace: int
    threaded: bool
    stamp_s: float
    step: int
    step_s: float
    own_s: float
    groups: Mapping[str, tuple[int, int]]
    runs: bool = True  # whether its process does


def rank_reading(data: bytes, whole: bool = True) -> RankReading | None:
    """What a file says; None where it is none of the hook's, or (`whole`) is being written."""
    if len(data) < SIZE:
        return None
    magic, version, changes, pid, namespace, rank, local, world, state, flags = HEAD.unpack_from(data)
    if (
        magic != MAGIC
        or version != VERSION
        or (whole and changes % 2)
        or state >= len(STATES)
        or not 0 <= rank < 10_000_000
    ):
        return None
    stamp, step, step_ns, own_ns, _waited_ns = BODY.unpack_from(data, BODY_AT)
    groups: dict[str, tuple[int, int]] = {}
    for place in range((SIZE - GROUPS_AT) // GROUP.size):
        name, entered, left = GROUP.unpack_from(data, GROUPS_AT + place * GROUP.size)
        if entered > 0:
            groups[_text(name)] = (entered, left)
    return RankReading(
        run=_text(data[RUN_AT : RUN_AT + RUN_BYTES]),
        rank=rank,
        local_rank=local if 0 <= local < 1024 else None,
        world=world if 0 < world < 10_000_000 else None,
        state=STATES[state],
        pid=pid,
        namespace=namespace,
        threaded=bool(flags & 1),
        stamp_s=stamp / 1e9,
        step=step,
        step_s=step_ns / 1e9,
        own_s=own_ns / 1e9,
        groups=groups,
    )


def process_runs(reading: RankReading, uid: int, namespace: int, now_s: float) -> bool:
    """Whether a rank's process is there and not stopped, as far as that can be seen from here.

    The process is looked at only where its number means the same here (one PID namespace) and it is its file's owner's.
    """
    if reading.namespace == namespace and reading.pid > 0:
        folder = Path("/proc") / str(reading.pid)
        try:
            if folder.stat().st_uid != uid:
                return False  # the number is another's by now
            state = (folder / "stat").read_text(errors="replace").rpartition(")")[2].split()[:1]
        except OSError:
            return False
        return bool(state) and state[0] not in ("T", "t", "Z", "X")
    return not reading.threaded or now_s - reading.stamp_s < _STALE_S


def _text(data: bytes) -> str:
    return data.split(b"\x00", 1)[0].decode("utf-8", "replace")


@dataclass(slots=True)
class _Rank:
    """What is remembered of a rank."""

    reading: RankReading
    step_at_s: float  # when its step was seen to change
    each_s: float | None = None  # a step's usual length
    base: tuple[int, float] = (0, 0.0)  # step and own work at the last summary
    work_ms: float | None = None
    sent_ms: float | None = None


@dataclass(slots=True)
class RunOnNode:
    """The ranks of one run on one node."""

    run: str
    node: str
    stall_s: float = LEAST_STALL_S
    _ranks: dict[int, _Rank] = field(default_factory=dict)
    _stalled: str = ""
    _stalled_at_s: float = 0.0
    _summary_at_s: float = 0.0
    _sent_at_s: float = 0.0
    _again: int = 0

    def look(self, readings: Sequence[RankReading], now: datetime) -> list[Event]:
        """One look at all of them: what is to be sent."""
        now_s = now.timestamp()
        for reading in readings:
            self._note(reading, now_s)
        gone = self._ranks.keys() - {reading.rank for reading in readings}
        for rank in gone:
            del self._ranks[rank]
        return [*self._stall(now, now_s), *self._summary(now, now_s)]

    def _note(self, reading: RankReading, now_s: float) -> None:
        known = self._ranks.get(reading.rank)
        if known is None or known.reading.pid != reading.pid or reading.step < known.reading.step:
            self._ranks[reading.rank] = _Rank(reading, now_s, base=(reading.step, reading.own_s))
            return
        steps = reading.step - known.reading.step
        if steps > 0:
            if known.reading.step_s > 0:  # it had made one
                passed = max(reading.step_s - known.reading.step_s, 0.0) / steps
                known.each_s = passed if known.each_s is None else 0.7 * known.each_s + 0.3 * passed
            known.step_at_s = now_s
        known.reading = reading

    def _stall(self, now: datetime, now_s: float) -> list[Event]:
        """Who is where, while nobody goes on; once more when somebody does."""
        ranks = {number: one for number, one in self._ranks.items() if one.reading.state != "ended"}
        stalled = bool(ranks) and all(self._is_still(one, now_s) for one in ranks.values())
        waiting = any(one.reading.state == "waiting" for one in ranks.values())
        dead = {number for number, one in ranks.items() if not one.reading.runs}
        if not stalled or not (waiting or dead):
            if not self._stalled:
                return []
            self._stalled = ""
            return self._waits(ranks, now, set(), is_over=True)
        events = self._waits(ranks, now, dead)
        told = repr([sorted(event.attributes.items(), key=str) for event in events])
        again = waiting and now_s - self._stalled_at_s >= _STALLED_AGAIN_S
        if told == self._stalled and not again:
            return []
        self._stalled, self._stalled_at_s = told, now_s
        return events

    def _is_still(self, one: _Rank, now_s: float) -> bool:
        """Whether a rank has made no step for long; one that saves, loads or evaluates is at work."""
        if one.reading.state in ("paused", "starting") and one.reading.runs:
            return False
        if one.each_s is None and one.reading.runs:  # the first steps are compiled
            return now_s - one.step_at_s >= _MOST_STALL_S
        limit_s = max(self.stall_s, min(STALL_STEPS * (one.each_s or 0.0), _MOST_STALL_S))
        return now_s - one.step_at_s >= limit_s

    def _waits(
        self, ranks: Mapping[int, _Rank], now: datetime, dead: set[int], *, is_over: bool = False
    ) -> list[Event]:
        """One event a group. When it is over nobody waits, wherever in its step a rank is seen."""
        groups = sorted({name for one in ranks.values() for name in one.reading.groups}) or ["default"]
        found = []
        for name in groups:
            own = {number: one.reading.groups[name] for number, one in ranks.items() if name in one.reading.groups}
            own = own or dict.fromkeys(ranks, (0, 0))
            if is_over:
                own = {number: (entered, entered) for number, (entered, _) in own.items()}
            told: dict[str, Attribute] = {
                "run": self.run,
                "group": name,
                "ranks": text_of_ranks(own),
                "local_ranks": _locals(ranks, own),
                "world": next((one.reading.world for one in ranks.values() if one.reading.world), None),
                "last_enqueued": text_of_numbers({number: entered for number, (entered, _) in own.items()}),
                "last_completed": text_of_numbers({number: left for number, (_, left) in own.items()}),
                "stopped": text_of_ranks(dead & own.keys()) or None,
                "over": True if is_over else None,
            }
            inside = sum(entered > left for entered, left in own.values())
            words = f"{inside} of {many(len(own), 'rank')} of this node are in a collective of group {name}"
            found.append(self._event("collective_wait", words, told, now))
        return found

    def _summary(self, now: datetime, now_s: float) -> list[Event]:
        """Each rank's own work a step since the last summary, where it has changed or none was sent for long."""
        if now_s - self._summary_at_s < _SUMMARY_S:
            return []
        self._summary_at_s = now_s
        changed = False
        for one in self._ranks.values():
            steps = one.reading.step - one.base[0]
            if steps <= 0 or not one.reading.groups:
                continue
            one.work_ms = max(one.reading.own_s - one.base[1], 0.0) * 1000 / steps
            one.base = (one.reading.step, one.reading.own_s)
            before = one.sent_ms
            changed = changed or before is None or abs(one.work_ms - before) > _CHANGED * before
        if changed:
            self._again = _AGAIN
        known = {number: one for number, one in self._ranks.items() if one.work_ms is not None}
        if not known or not (self._again > 0 or now_s - self._sent_at_s >= _AT_LEAST_S):
            return []
        self._again -= 1
        self._sent_at_s = now_s
        for one in known.values():
            one.sent_ms = one.work_ms
        lengths = [one.each_s for one in known.values() if one.each_s is not None]
        told: dict[str, Attribute] = {
            "run": self.run,
            "ranks": text_of_ranks(known),
            "local_ranks": _locals(self._ranks, known),
            "step": max(one.reading.step for one in known.values()),
            "step_ms": round(1000 * median(lengths), 3) if lengths else None,
            "work_ms": ",".join(f"{known[number].work_ms:.2f}" for number in sorted(known)),
        }
        return [self._event("rank_progress", many(len(known), "rank works", "ranks work"), told, now)]

    def _event(self, kind: str, words: str, told: Mapping[str, Attribute], now: datetime) -> Event:
        kept = {key: value for key, value in told.items() if value is not None}
        return with_kind_meaning(Event(now, self.node, SOURCE, kind, message=words, attributes=kept))


def _locals(ranks: Mapping[int, _Rank], own: Mapping[int, object]) -> int | str | None:
    """Each rank's local rank, which is its GPU: by its word, else its place among the node's ranks."""
    least = min(ranks, default=0)
    found: dict[int, int] = {}
    for number in own:
        told = None
        with suppress(KeyError):
            told = ranks[number].reading.local_rank
        found[number] = number - least if told is None else told
    return text_of_numbers(found)

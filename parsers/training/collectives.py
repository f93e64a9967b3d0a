"""Who waits in a collective: the watchdog lines of each process group, kept as sets of ranks.

    [rank5]:[E1218 20:11:38.426 ProcessGroupNCCL.cpp:629] [Rank 5] Watchdog caught collective operation timeout:
      WorkNCCL(SeqNum=99, OpType=ALLREDUCE, ..., Timeout(ms)=600000) ran for 600080 milliseconds before timing out.
    [rank5]:[E... ProcessGroupNCCL.cpp:2168] [PG ID 0 PG GUID 0(default_pg) Rank 5]  failure detected by watchdog at
      work sequence id: 99 PG status: last enqueued work: 101, last completed work: 98
    -> {"kind": "collective_wait", "attributes": {"group": "0(default_pg)", "ranks": "0-511,513-1023", "world": 1024,
        "operation": "ALLREDUCE", "last_enqueued": 101, "last_completed": 98, ...}}

A thousand ranks say the same; the one that does not is the one that is looked for. Gloo's errors bear no number:
`Timed out waiting 1800000ms for recv operation to complete`, `Connection closed by peer [10.0.0.4]:36104`. What does
not fit in the bounds is counted in `ranks_left_out`. Sources: ProcessGroupNCCL.cpp of PyTorch from 2.1 to 2.9 (the
group was `[PG 0 (default_pg) Rank 5]`, the numbers `last enqueued NCCL work`), gloo/transport/tcp, real logs in issues.
"""

import re
from dataclasses import dataclass, field, replace
from datetime import datetime

from parsers.training.launchers import ProgramLine
from store.records.event import Attribute, Event
from store.records.fault_catalog import with_kind_meaning
from store.runs.rank_set import text_of_numbers, text_of_ranks

SIGNS = ("atchdog", "last enqueued", "for recv operation", "for send operation", "closed by peer", "orld size: ")
# Process groups of one log, and ranks of them all, that are held between two iterations.
MOST_GROUPS = 512
MOST_RANKS = 400_000

_GROUP = re.compile(
    r"\[PG (?:ID \d{1,7} PG GUID )?(?P<guid>[\w:.-]{1,80}?) ?(?:\((?P<name>[^)]{0,80})\))? Rank (?P<rank>\d{1,7})\]",
    re.ASCII,
)
_RANK = re.compile(r"\[Rank (?P<rank>\d{1,7})\]", re.ASCII)
_WORK = re.compile(r"Work\w{1,8}\(SeqNum=(?P<sequence>\d{1,15}), OpType=(?P<operation>\w{1,40})", re.ASCII)
_STATUS = re.compile(
    r"last enqueued (?:NCCL )?work: (?P<enqueued>-?\d{1,15}), last completed (?:NCCL )?work: (?P<completed>-?\d{1,15})",
    re.ASCII,
)
_GLOO = re.compile(
    r"Timed out waiting \d{1,12}ms for (?P<what>recv|send) operation to complete"
    r"|Connection closed by peer \[(?P<peer>[\w.:%-]{1,80})\]",
    re.ASCII,
)
_WORLD = re.compile(r"\b[Ww]orld size: (?P<world>\d{1,7})\b", re.ASCII)
_DEFAULT = ("", "0", "default_pg")


@dataclass(slots=True)
class _Wait:
    """One group's reports."""

    time: datetime | None
    line: int
    operation: str | None = None
    enqueued: dict[int, int] = field(default_factory=dict)
    completed: dict[int, int] = field(default_factory=dict)
    waiting: set[int] = field(default_factory=set)
    left_out: int = 0

    def ranks(self) -> set[int]:
        return self.waiting | self.enqueued.keys()


class CollectiveWaits:
    """The reports since the last iteration, group by group."""

    def __init__(self) -> None:
        self._groups: dict[str, _Wait] = {}
        self._works: dict[int, tuple[int, str]] = {}  # of each rank the work that timed out, until its group is named
        self._held = 0
        self._world: int | None = None
        self._begun: tuple[datetime | None, int] = (None, 0)

    def read(self, found: ProgramLine, time: datetime | None, line: int) -> None:
        """One line of a program, without prefix and time."""
        text = found.text
        if match := _WORLD.search(text):
            self._world = int(match["world"]) or None
        group, own = _GROUP.search(text), _RANK.search(text)
        rank = found.rank
        if rank is None and own is not None:
            rank = int(own["rank"])
        if rank is None and group is not None and _is_default(group):
            rank = int(group["rank"])
        if rank is None:
            return
        if match := _STATUS.search(text):
            wait = self._wait(_name(group), time, line)
            self._note(wait, rank, int(match["enqueued"]), int(match["completed"]))
            if (work := self._works.pop(rank, None)) is not None and wait is not None:
                wait.operation = wait.operation or work[1]
        elif match := _WORK.search(text):
            if rank in self._works or len(self._works) < MOST_RANKS:
                self._works[rank] = (int(match["sequence"]), match["operation"])
                self._first(time, line)
        elif match := _GLOO.search(text):
            wait = self._wait("", time, line)
            if wait is not None and self._room(wait, rank):
                wait.waiting.add(rank)

    def release(self, base: Event) -> list[Event]:
        """What was reported, one event a group; `base` is the log's own event. Begins anew."""
        for rank, (sequence, operation) in self._works.items():  # an old release names no group
            wait = self._wait("", self._begun[0], self._begun[1])
            if wait is not None:
                wait.operation = wait.operation or operation
            self._note(wait, rank, sequence, sequence - 1)
        events = [self._event(base, name, wait) for name, wait in self._groups.items()]
        self._groups, self._works, self._held = {}, {}, 0
        self._begun = (None, 0)
        return events

    def _first(self, time: datetime | None, line: int) -> None:
        if not self._begun[1]:
            self._begun = (time, line)

    def _wait(self, name: str, time: datetime | None, line: int) -> _Wait | None:
        wait = self._groups.get(name)
        if wait is None:
            if len(self._groups) >= MOST_GROUPS:
                next(iter(self._groups.values())).left_out += 1
                return None
            wait = self._groups[name] = _Wait(time, line)
        wait.time = wait.time or time
        return wait

    def _note(self, wait: _Wait | None, rank: int, enqueued: int, completed: int) -> None:
        if wait is not None and self._room(wait, rank):
            wait.enqueued[rank], wait.completed[rank] = enqueued, completed

    def _room(self, wait: _Wait, rank: int) -> bool:
        if rank in wait.enqueued or rank in wait.waiting:
            return True
        if self._held >= MOST_RANKS:
            wait.left_out += 1
            return False
        self._held += 1
        return True

    def _event(self, base: Event, name: str, wait: _Wait) -> Event:
        ranks = wait.ranks()
        world = self._world if name in ("", "0(default_pg)") else None
        missing = None if world is None or not ranks else text_of_ranks(set(range(min(world, MOST_RANKS))) - ranks)
        told: dict[str, Attribute] = {
            "group": name,
            "operation": wait.operation,
            "ranks": text_of_ranks(ranks),
            "reported": len(ranks),
            "missing": missing,
            "waiting": text_of_ranks(wait.waiting) or None,
            "last_enqueued": text_of_numbers(wait.enqueued),
            "last_completed": text_of_numbers(wait.completed),
            "world": world,
            "ranks_left_out": wait.left_out or None,
        }
        told = {key: value for key, value in told.items() if value is not None}
        words = f"{len(ranks)} rank{'s wait' if len(ranks) != 1 else ' waits'} in a collective of group {name or '?'}"
        event = replace(
            base,
            time=wait.time,
            kind="collective_wait",
            message=words,
            line=wait.line,
            attributes={**base.attributes, **told},
        )
        return with_kind_meaning(event)


def _is_default(group: re.Match[str]) -> bool:
    return (group["name"] or "") == "default_pg" or (group["name"] is None and group["guid"] in _DEFAULT)


def _name(group: re.Match[str] | None) -> str:
    """A group's name as PyTorch writes it: `0(default_pg)`."""
    if group is None:
        return ""
    return f"{group['guid']}({group['name']})" if group["name"] else group["guid"]

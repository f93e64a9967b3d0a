"""Dumps of PyTorch's flight recorder: where one rank stands in each of its process groups, binary or JSON.

    nccl_trace_rank_5:  {"version": "2.10", "pg_config": {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, ..."}},
                         "pg_status": {"0": {"last_enqueued_collective": 21, "last_completed_collective": 20, ...}},
                         "entries": [{"process_group": ("0", "default_pg"), "collective_seq_id": 21, ...}, ...]}
    -> {"kind": "collective_wait", "attributes": {"group": "0(default_pg)", "ranks": "5", "members": "0-1023",
        "operation": "all_reduce", "last_enqueued": 21, "last_started": 21, "last_completed": 20}}

A file's name ends with its rank, as PyTorch writes it (TORCH_FR_DUMP_TEMP_FILE, TORCH_NCCL_DEBUG_INFO_TEMP_FILE). A
receive that waits names its sender: `nccl:recv 3<-2` is a group of the two, in which 2 is absent until it says
otherwise. Dumps before version 2.4 have no `pg_status`: the entries tell. How a dump is read without being executed:
`parsers/dumps/flight_dump.py`.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from parsers.dumps.flight_dump import MOST_GROUPS
from parsers.text.documents import Document, DocumentParser
from parsers.text.parser import Context, Format, ParseError
from store.records.event import Attribute, Event, from_us
from store.runs.rank_set import ranks_of, text_of_ranks

# The rank at the end of a file's name.
_RANK = re.compile(r"(?:^|[^0-9])(?P<rank>\d{1,7})(?:\.[a-z]\w{0,7})*$", re.ASCII)
_LISTED = re.compile(r"\d{1,8}", re.ASCII)
_POINT = re.compile(r"(?P<what>send|recv) (?P<own>\d{1,7})(?:->|<-)(?P<other>\d{1,7})", re.ASCII)
# Operations between two ranks that wait, of one dump.
_MOST_POINTS = 64
_MOST_RANKS_TEXT = 1_000_000


@dataclass(frozen=True, slots=True)
class _Dump:
    """One rank's. `members` are a group's ranks as a text, and in the group's order."""

    rank: int
    groups: Mapping[tuple[str, str], Sequence[Mapping[str, Any]]]
    members: Mapping[str, tuple[str, Sequence[int]]]
    line: int


class FlightParser(DocumentParser):
    """Decodes dumps. The rank and the run come from the file's name (`Context.run`): RUN/nccl_trace_rank_5."""

    def __init__(self, context: Context) -> None:
        super().__init__(self._dump)
        self._context = context
        run, slash, name = (context.run or "").rpartition("/")
        match = _RANK.search(name)
        self._rank = None if match is None else int(match["rank"])
        self._run = run if slash else (None if match else context.run)

    def _dump(self, document: Document) -> Iterable[Event]:
        value = document.value
        if "entries" not in value and "pg_status" not in value:
            return []
        rank = value.get("rank")
        rank = rank if isinstance(rank, int) and not isinstance(rank, bool) else self._rank
        if rank is None:
            raise ParseError("a dump's rank stands at the end of its file's name: nccl_trace_rank_5")
        entries = [entry for entry in value.get("entries") or () if isinstance(entry, dict)]
        configs = value.get("pg_config")
        members = _members(configs if isinstance(configs, dict) else {})
        return list(self._events(_Dump(rank, _by_group(entries), members, document.line), value))

    def _events(self, dump: _Dump, value: Mapping[str, Any]) -> Iterable[Event]:
        status = value.get("pg_status")
        ids = {str(own[-1].get("pg_id")): name for name, own in dump.groups.items()}
        if isinstance(status, dict):
            for ident, one in list(status.items())[:MOST_GROUPS]:
                if isinstance(one, dict):
                    yield from self._group(dump, ids.get(ident, (ident, "")), one)
        else:
            for name, own in dump.groups.items():
                yield from self._group(dump, name, _status_of(own))
        yield from self._points(dump)

    def _group(self, dump: _Dump, name: tuple[str, str], status: Mapping[str, Any]) -> Iterable[Event]:
        rank = dump.rank
        entered, began, done = (_number(status.get(f"last_{what}_collective")) for what in _STAGES)
        own = [entry for entry in dump.groups.get(name, ()) if not entry.get("is_p2p")]
        if entered is None or entered < 0:
            return
        inside = (done or 0) + 1
        at = next((entry for entry in own if _number(entry.get("collective_seq_id")) == inside), None)
        at = at or (own[-1] if own else {})
        told = _told(
            run=self._run,
            group=_group_name(name),
            ranks=str(rank),
            members=dump.members.get(name[0], ("", ()))[0] or None,
            operation=_operation(at),
            last_enqueued=entered,
            last_started=None if began is None or began < 0 else began,
            last_completed=done,
        )
        waits = done is not None and entered > done
        words = f"rank {rank} {'waits in' if waits else 'has left'} collective {entered if not waits else inside}"
        yield self._event(f"{words} of group {_group_name(name)}", at, told, dump.line)

    def _points(self, dump: _Dump) -> Iterable[Event]:
        """Sends and receives that are not done."""
        rank, found = dump.rank, 0
        for name, own in dump.groups.items():
            order = dump.members.get(name[0], ("", ()))[1]
            for entry in own:
                match = _POINT.search(str(entry.get("profiling_name") or ""))
                if match is None or entry.get("state") == "completed" or entry.get("retired") is True:
                    continue
                found += 1
                if found > _MOST_POINTS:
                    return
                other = _placed(int(match["other"]), order)
                first, then = (rank, other) if match["what"] == "send" else (other, rank)
                told = _told(
                    run=self._run,
                    group=f"{_group_name(name)} {first}->{then}",
                    ranks=str(rank),
                    members=",".join(map(str, sorted({first, then}))),
                    operation=match["what"],
                    waiting=str(rank),
                    absent=str(other) if match["what"] == "recv" else None,
                )
                yield self._event(f"rank {rank} waits for rank {other}: {match['what']}", entry, told, dump.line)

    def _event(self, message: str, entry: Mapping[str, Any], told: Mapping[str, Attribute], line: int) -> Event:
        return Event(
            time=_time(entry),
            node=self._context.node,
            source="flight",
            kind="collective_wait",
            message=message,
            attributes=told,
            line=line,
        )


def _told(**values: Attribute) -> dict[str, Attribute]:
    """What is known of them."""
    return {key: value for key, value in values.items() if value is not None}


_STAGES = ("enqueued", "started", "completed")


def _by_group(entries: Sequence[Mapping[str, Any]]) -> dict[tuple[str, str], list[Mapping[str, Any]]]:
    found: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for entry in entries:
        group = entry.get("process_group")
        parts = [str(part)[:120] for part in group[:2]] if isinstance(group, list) else [str(group)[:120]]
        name = (parts[0], parts[1] if len(parts) > 1 else "")
        if name in found or len(found) < MOST_GROUPS:
            found.setdefault(name, []).append(entry)
    return found


def _status_of(entries: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """What the entries tell, where no status does."""
    found: dict[str, int] = {}
    for entry in entries:
        number = _number(entry.get("collective_seq_id"))
        if number is None or entry.get("is_p2p"):
            continue
        state = entry.get("state")
        done = state == "completed" or entry.get("retired") is True
        for what, holds in (("enqueued", True), ("started", done or state == "started"), ("completed", done)):
            if holds:
                key = f"last_{what}_collective"
                found[key] = max(found.get(key, 0), number)
    if found:
        found.setdefault("last_completed_collective", found["last_enqueued_collective"] - 1)
    return found


def _members(configs: Mapping[str, Any]) -> dict[str, tuple[str, Sequence[int]]]:
    """Each group's ranks, as a text and in the group's order; PyTorch writes them as `[0, 1]`, we as `0-1`."""
    found: dict[str, tuple[str, Sequence[int]]] = {}
    for key, config in list(configs.items())[:MOST_GROUPS]:
        ranks = config.get("ranks") if isinstance(config, dict) else None
        if isinstance(ranks, str) and ranks and not ranks.startswith("["):
            order = config.get("order")
            numbers = order if isinstance(order, list) else sorted(ranks_of(ranks))
            found[key] = (ranks[:8000], [number for number in numbers if isinstance(number, int)])
        elif isinstance(ranks, str):
            listed = [int(one) for one in _LISTED.findall(ranks[:_MOST_RANKS_TEXT])]
            found[key] = (text_of_ranks(listed), listed)
    return found


def _placed(number: int, order: Sequence[int]) -> int:
    """The rank that a group counts as its n-th."""
    return order[number] if number < len(order) else number


def _group_name(name: tuple[str, str]) -> str:
    return f"{name[0]}({name[1]})" if name[1] and name[1] != "undefined" else name[0]


def _operation(entry: Mapping[str, Any]) -> str | None:
    name = entry.get("profiling_name")
    return name.partition(":")[2][:40] or name[:40] if isinstance(name, str) and name else None


def _number(value: object) -> int | None:
    """JSON dumps write the numbers of a status as texts."""
    if isinstance(value, str) and value.removeprefix("-").isdecimal() and len(value) < 19:
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _time(entry: Mapping[str, Any]) -> datetime | None:
    """When the collective was entered."""
    created = _number(entry.get("time_created_ns"))
    if created is None or not 0 < created < 253_402_300_000 * 10**9:
        return None
    return from_us(created // 1000)


FORMAT = Format(
    name="flight",
    description="Dumps of PyTorch's flight recorder, binary or JSON",
    sample='{"flight_recorder": "2.10", "rank": 5, "pg_status": {"0": {"last_enqueued_collective": 21, '
    '"last_started_collective": 21, "last_completed_collective": 20}}, "entries": []}',
    make=FlightParser,
    testimony="starts",
    recognises=re.compile(r'"flight_recorder" ?:|"pg_status" ?:|"last_enqueued_collective" ?:'),
    shape="document",
)

"""Answers of NCCL's RAS (`ncclras`, port 28028), text or JSON: processes that do not answer, ranks that launched less.

    #0-0 (7d3aab9a7aee0aa4) INCOMPLETE
      Missing communicator data from 1 rank
      Rank 5 -- GPU 5 managed by process 4711 on node 10.0.0.4
    -> {"kind": "collective_wait", "attributes": {"group": "7d3aab9a7aee0aa4", "world": 16, "stopped": "5",
        "waiting": "0-4,6-15", "hosts": "5=10.0.0.4/5"}}

A process that is dead or does not answer RAS is `stopped`. Counts of collectives that differ mean a hang only where
they stand still: of a communicator whose counts are the same in two answers, the ranks that launched fewer are late.
Sends and receives do not count. Ranks are those of the largest communicator; other ones' processes are found in it by
host, process and GPU. Rebuilt from NCCL's documentation and sources (src/ras/client_support.cc of
NVIDIA/nccl 2.24 to 2.28; JSON since 2.28), not from a run on GPUs.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from parsers.text.documents import Document, DocumentReader
from parsers.text.json_fields import record_of, records_of, text_of, whole_of
from parsers.text.parser import Context, Format
from parsers.text.stamp import Stamps
from store.records.event import Attribute, Event
from store.records.fault_catalog import with_kind_meaning
from store.runs.rank_set import text_of_numbers, text_of_ranks

# Communicators and ranks of one answer; ranks whose host is told.
MOST_COMMUNICATORS = 1_024
MOST_RANKS = 200_000
_MOST_HOSTS = 64
_ONE_SIDED = ("send", "recv", "put", "signal", "wait")

_RANK = re.compile(
    r"^\s{1,8}Rank (?P<rank>\d{1,7})(?: has (?:launched up to operation (?P<count>\d{1,18})|not launched any operations"
    r"|status \w{1,20}))?(?: reported .{1,60}?)? -- (?:GPU (?P<gpu>\d{1,4})(?: \(NVML (?P<nvml>\d{1,4})\))? managed by "
    r"process (?P<pid>\d{1,10}) on node (?P<host>[\w.:%-]{1,80})|\[)",
    re.ASCII,
)
_HEAD = re.compile(
    r"^#(?P<group>\d{1,7})-(?P<number>\d{1,7}) \((?P<hash>[0-9a-f]{1,16})\) (?P<what>[A-Z]{4,12})", re.ASCII
)
_ROW = re.compile(
    r"^ {0,8}(?P<group>\d{1,7}) +(?P<comms>\d{1,9}) +\d{1,9} +[\d-]{1,20} +(?P<size>\d{1,9}) +\d{1,9} +[A-Z/,]{2,30} ",
    re.ASCII,
)
_LAUNCHED = re.compile(r"^\s{1,8}(?P<ranks>\d{1,9}) ranks have launched up to operation (?P<count>\d{1,18})", re.ASCII)
_COUNTS = re.compile(r"^\s{1,8}Communicator ranks have different (?P<what>\w{1,40}) operation counts", re.ASCII)


@dataclass(slots=True)
class _Communicator:
    """What one answer tells of one communicator. `counts` is None where it tells none."""

    name: str
    size: int | None
    line: int
    missing: set[int] = field(default_factory=set)
    present: set[int] = field(default_factory=set)
    counts: dict[int, int] | None = None
    most: int = 0
    hosts: dict[int, str] = field(default_factory=dict)

    def late(self) -> set[int]:
        return {rank for rank, count in (self.counts or {}).items() if count < self.most}


class NcclrasParser:
    """Decodes answers one after another; remembers the counts of the one before."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._stamps = Stamps(context)
        self._reader = DocumentReader()
        self._sizes: dict[int, int] = {}
        self._open: _Communicator | None = None
        self._what = ""
        self._collective = True
        self._before: dict[str, dict[int, int]] = {}
        self._now: datetime | None = None

    def feed(self, text: str, line: int) -> Iterable[Event]:
        """The events that a line completes.

        Raises:
            ParseError: the JSON of an answer is broken.
        """
        documents, errors = self._reader.feed(text, line)
        found = [*(event for one in documents for event in self._document(one)), *self._line(text, line)]
        if errors and not found:
            raise errors[0]
        return found

    def flush(self) -> Iterable[Event]:
        """The last communicator of a text.

        Raises:
            ParseError: the last answer is cut short.
        """
        found = list(self._close())
        documents, errors = self._reader.flush()
        found += [event for one in documents for event in self._document(one)]
        if errors and not found:
            raise errors[0]
        return found

    def _line(self, text: str, line: int) -> Iterator[Event]:
        if match := _ROW.match(text):
            if len(self._sizes) < MOST_COMMUNICATORS:
                self._sizes[int(match["group"])] = int(match["size"])
        elif text.startswith("Job summary"):
            yield from self._close()
            self._sizes = {}
        elif match := _HEAD.match(text):
            if self._open is None or self._open.name != match["hash"]:
                yield from self._close()
                self._open = _Communicator(match["hash"], self._sizes.get(int(match["group"])), line)
            self._what, self._collective = match["what"], True
        elif self._open is None:
            return
        elif match := _COUNTS.match(text):
            self._collective = not match["what"].lower().startswith(_ONE_SIDED)
        elif (match := _LAUNCHED.match(text)) and self._collective:
            self._open.most = max(self._open.most, int(match["count"]))
        elif match := _RANK.match(text):
            self._rank(self._open, match)

    def _rank(self, one: _Communicator, match: re.Match[str]) -> None:
        rank = int(match["rank"])
        if self._what == "INCOMPLETE":
            one.missing.add(rank)
        elif self._what == "MISMATCH" and self._collective and " launched " in match[0]:
            one.counts = {**(one.counts or {}), rank: int(match["count"] or 0)}
        else:
            return
        if match["host"] and len(one.hosts) < _MOST_HOSTS:
            one.hosts[rank] = f"{match['host']}/{match['nvml'] or match['gpu']}"

    def _close(self) -> Iterator[Event]:
        """A text names outliers alone: whoever is not named is where most are."""
        one, self._open = self._open, None
        if one is None or one.size is None or one.size != max(self._sizes.values(), default=0):
            return
        one.present = set(range(min(one.size, MOST_RANKS))) - one.missing
        if one.counts is not None:
            one.counts = {**dict.fromkeys(one.present, one.most), **one.counts}
        yield from self._event(one)

    def _document(self, document: Document) -> Iterator[Event]:
        value = document.value
        if "communicators" not in value or "nccl_version" not in value:
            return
        stamp = text_of(value, "timestamp")
        self._now = None if stamp is None else self._stamps.iso(stamp)
        communicators = records_of(value, "communicators")[:MOST_COMMUNICATORS]
        if not communicators:
            return
        largest = max(communicators, key=lambda one: whole_of(one.get("size")) or 0)
        places = {_process(one): rank for one in _members(largest) if (rank := whole_of(one.get("rank"))) is not None}
        for one in communicators:
            yield from self._communicator(one, places, document.line)

    def _communicator(self, record: Mapping[str, Any], places: Mapping[Any, int], line: int) -> Iterator[Event]:
        name = (text_of(record, "hash") or "").removeprefix("0x")[:40]
        one = _Communicator(name, whole_of(record.get("size")), line, counts={})
        members = _placed(records_of(record, "ranks"), places)
        gone = _placed(records_of(record, "missing_ranks"), places)
        one.counts = {rank: _launched(member) for rank, member in members.items()}
        one.present, one.most = set(members), max(one.counts.values(), default=0)
        one.missing = {rank for rank, member in gone.items() if _is_gone(member)}
        for rank in sorted(one.missing | one.late())[:_MOST_HOSTS]:
            member = gone.get(rank) or members[rank]
            one.hosts[rank] = f"{text_of(member, 'host') or ''}/{whole_of(member.get('nvml_dev'))}"
        yield from self._event(one)

    def _event(self, one: _Communicator) -> Iterator[Event]:
        late = one.late()
        if one.counts is not None:
            if self._before.get(one.name) != one.counts:
                late = set()
            if one.name in self._before or len(self._before) < MOST_COMMUNICATORS:
                self._before[one.name] = one.counts
        if not late and not one.missing:
            return
        told: dict[str, Attribute] = {
            "run": self._context.run,
            "group": one.name,
            "world": one.size,
            "members": text_of_ranks(one.present | one.missing),
            "ranks": text_of_ranks(one.present),
            "waiting": text_of_ranks(one.present - late - one.missing),
            "stopped": text_of_ranks(one.missing) or None,
            "absent": text_of_ranks(late) or None,
            "last_enqueued": text_of_numbers(one.counts or {}) if late else None,
            "hosts": ";".join(f"{rank}={host}" for rank, host in one.hosts.items()) or None,
        }
        words = (
            f"{len(one.missing)} processes of communicator {one.name} do not answer, {len(late)} ranks launched less"
        )
        event = Event(
            self._now,
            self._context.node,
            "ncclras",
            "collective_wait",
            message=words,
            attributes={key: value for key, value in told.items() if value is not None},
            line=one.line,
        )
        yield with_kind_meaning(event)


def _placed(records: Sequence[Mapping[str, Any]], places: Mapping[Any, int]) -> dict[int, Mapping[str, Any]]:
    """Each record by its rank of the whole job."""
    found = ((places.get(_process(record)), record) for record in records[:MOST_RANKS])
    return {rank: record for rank, record in found if rank is not None}


def _is_gone(record: Mapping[str, Any]) -> bool:
    status = record_of(record, "status")
    return status.get("unresponsive") is True or status.get("considered_dead") is True


def _members(one: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [*records_of(one, "ranks"), *records_of(one, "missing_ranks")][:MOST_RANKS]


def _process(record: Mapping[str, Any]) -> tuple[str | None, int | None, int | None]:
    """What tells a rank apart in every communicator: its host, its process, its GPU."""
    return text_of(record, "host"), whole_of(record.get("pid")), whole_of(record.get("nvml_dev"))


def _launched(record: Mapping[str, Any]) -> int:
    """How many collectives a rank has launched."""
    counts = record.get("collective_counts")
    if not isinstance(counts, dict):
        return 0
    return sum(whole_of(count) or 0 for name, count in counts.items() if not str(name).lower().startswith(_ONE_SIDED))


FORMAT = Format(
    name="ncclras",
    description="Answers of NCCL's RAS: ncclras -v, ncclras -f json",
    sample='{"nccl_version": "2.28.3", "timestamp": "2026-03-01 04:02:00", '
    '"communicators": [{"hash": "0x5f", "size": 2, '
    '"ranks": [{"rank": 0, "host": "10.0.0.1", "pid": 4711, "nvml_dev": 0, "collective_counts": {"AllReduce": 41}}], '
    '"missing_ranks_count": 1, "missing_ranks": [{"rank": 1, "host": "10.0.0.2", "pid": 4712, "nvml_dev": 0, '
    '"status": {"unresponsive": true, "considered_dead": false}}]}]}',
    make=NcclrasParser,
    testimony="starts",
    recognises=re.compile(
        r"^#\d+-\d+ \([0-9a-f]{1,16}\) (?:INCOMPLETE|MISMATCH|ERROR)|\"communicators_count\" ?:"
        r"|\"missing_ranks_count\" ?:|Missing communicator data from \d",
        re.ASCII,
    ),
    shape="document",
)

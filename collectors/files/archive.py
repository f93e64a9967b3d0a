"""A cluster archive: a directory in the formats that the real tools write. Every part is optional.

    nodes.csv      kernel/NODE.log[.gz]        telemetry/*.parquet   jobs.csv
    outages.csv    fabric/opensm.log           training/RUN.log      fabric/ibnetdiscover.txt
    nhc.log        health/NODE.log             switches/SWITCH.log   fabricmanager/NODE.log
    fabric/iblinkinfo.txt   fabric/topology.conf (.yaml)    fabric/lldp/NODE.json   fabric/ufm_links.json
    fabric/ufm.log          nvrx/cycle_info.*         checkpoints/RUN.txt     squeue.txt   kubernetes/*.json
    flight/RUN/nccl_trace_rank_N                      stacks/RUN/*            ncclras/RUN.txt
    fabric/opensm-subnet.lst

    parts = find_parts(Path("archive"))
    newest, file = newest_dated(parts, datetime.now(UTC)) or (None, None)
    for part in parts:
        records = read_part(part, context_of(part, newest))

Telemetry is found here and read by `store.telemetry.archive_table`: a node that runs the sidecar has no Parquet.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta, tzinfo
from itertools import islice
from pathlib import Path
from typing import TypeVar

from parsers.registry import PARSERS, detect, make_parser, misread
from parsers.site_rules.rules import NO_RULES, SiteRules
from parsers.text.lines import ByteSource, ReadError, blocks, lines
from parsers.text.parser import Context, FormatSigns, OnError, ParseError, Parser, clean, decode
from parsers.text.scan import numbered, select_lines
from parsers.text.table import nodes
from parsers.topology.topology_sources import read_topology
from store.plural import many
from store.records.event import Attribute, Event, with_id
from store.records.node import Node, TopologyReport

# The text files of an archive: plain, .gz or .zst, line by line in bounded memory, and the dates that they bear.

_HEAD = 4096
_TAIL = 64 * 1024
# Bytes that text does not have: below space, but for tab, line ends, escape and the NULs of a crashed host's log.
_CONTROL = bytes(set(range(1, 32)) - {9, 10, 11, 12, 13, 27})
_BINARY_SHARE = 0.05
NO_TEXT = "it is no text: replace it with the log itself"
_DATE = re.compile(rb"\b(20\d\d-[01]\d-[0-3]\d)[T ]([0-2]\d:[0-5]\d:[0-5]\d)")


def lines_of(path: Path) -> Iterator[str]:
    """The file's lines as text; of one longer than MAX_LINE the beginning.

    Raises:
        ReadError, OSError: it cannot be read further; what came before was given.
    """
    with path.open("rb") as file:
        yield from map(clean, lines(file, path.name))


def texts_of(path: Path, signs: FormatSigns | None) -> Iterator[tuple[int, str]]:
    """The file's lines with their 1-based numbers: where there are signs, those alone that a parser must be fed.

    Raises:
        ReadError, OSError: as of `lines_of`.
    """
    if signs is None:
        yield from enumerate(lines_of(path), start=1)
        return
    with path.open("rb") as file:
        yield from numbered(select_lines(blocks(file, path.name), signs))


def looks_binary(file: ByteSource, name: str) -> bool:
    """Whether the file's beginning is no text in any encoding that logs have.

    Raises:
        ReadError, OSError: it cannot be read at all.
    """
    head = b""
    try:
        for line in lines(file, name):
            head += line[: _HEAD - len(head)]
            if len(head) >= _HEAD:
                break
    except ReadError:
        if not head:  # else what came before the break is judged: it is kept
            raise
    return len(head.translate(None, _CONTROL)) < len(head) * (1 - _BINARY_SHARE)


def newest_in(path: Path) -> datetime | None:
    """The latest date and time that the end of an uncompressed file bears; None where it bears none."""
    if path.suffix in (".gz", ".zst"):
        return None
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - _TAIL))
        found = _DATE.findall(file.read(_TAIL))
    moments = [moment for day, time in found if (moment := _moment(f"{day.decode()}T{time.decode()}"))]
    return max(moments, default=None)


def _moment(text: str) -> datetime | None:
    try:
        return datetime.fromisoformat(text).replace(tzinfo=UTC)
    except ValueError:  # 2025-02-31 has the shape of a date
        return None


_PACKED = ("", ".gz", ".zst")


def _logs(*paths: str) -> tuple[str, ...]:
    """The patterns of logs, packed or not."""
    return tuple(path + ending for path in paths for ending in _PACKED)


# part: (patterns, the format of parsers.registry whose lines are events). In the order of reading.
PARTS: dict[str, tuple[tuple[str, ...], str | None]] = {
    "nodes": (("nodes.csv",), None),
    "topology": (
        (
            *_logs("fabric/ibnetdiscover.txt", "fabric/iblinkinfo.txt", "fabric/ufm_links.json"),
            *_logs(
                "fabric/opensm-subnet.lst",
                "fabric/topology.conf",
                "fabric/topology.yaml",
                "fabric/kubernetes_nodes.json",
            ),
            *("fabric/lldp/*.json", "fabric/lldp/*.txt", "fabric/lldp/*.log"),
        ),
        None,
    ),
    "outages": (("outages.csv",), "sacctmgr"),
    "queue": (("squeue*.txt", "scontrol_jobs*.txt"), "squeue"),
    "kubernetes": (_logs("kubernetes/*.json", "kubernetes/*.jsonl"), "kubernetes"),
    "jobs": (("jobs.csv",), "sacct"),
    "cycles": (("nvrx/cycle_info.*",), "nvrx"),
    "nvlink": (_logs("nvlink/*.log", "nvlink/*.txt"), "nvidia_smi"),
    "kernel": (("kernel/*.log", "kernel/*.json", "kernel/*.gz", "kernel/*.zst"), "kernel"),
    "fabricmanager": (_logs("fabricmanager/*.log"), "fabricmanager"),
    "fabric": (_logs("fabric/opensm*.log"), "opensm"),
    "ufm": (_logs("fabric/ufm*.log"), "ufm"),
    "switches": (_logs("switches/*.log"), "switch"),
    "health": (_logs("nhc*.log", "health/*.log"), "nhc"),
    "training": (
        ("training/*.log", "training/*.json", "training/*.jsonl", "training/*.gz", "training/*.zst"),
        "training",
    ),
    "checkpoints": (_logs("checkpoints/*.txt"), "checkpoints"),
    "flight": (("flight/*", "flight/*/*"), "flight"),
    "ras": (_logs("ncclras/*.txt", "ncclras/*.json"), "ncclras"),
    "stacks": (_logs("stacks/*/*.txt", "stacks/*/*.json"), "pyspy"),
    "telemetry": (("telemetry/*.parquet",), None),
}
# Parts whose files are named for the node (or switch) that wrote them; nhc.log itself may be of many.
_NAMED_FOR_NODE = frozenset({"kernel", "nvlink", "fabricmanager", "switches"})
# Parts whose lines bear dates with years.
_DATED = frozenset({"outages", "kubernetes", "jobs", "cycles", "kernel", "health", "training", "ufm"})
# Files of the topology: the source of each by the beginning of its name; those of LLDP are named for their node.
_TOPOLOGY_SOURCES = {
    "ibnetdiscover": "ibnetdiscover",
    "iblinkinfo": "iblinkinfo",
    "opensm-subnet": "opensm",
    "ufm_links": "ufm",
    "topology.conf": "slurm",
    "topology.yaml": "slurm_yaml",
    "kubernetes_nodes": "kubernetes",
}
# Parts whose files are named for their run.
_NAMED_FOR_RUN = frozenset({"training", "checkpoints", "ras"})
# Parts whose files are named for a rank, in a folder that is named for their run.
_NAMED_FOR_RANK = frozenset({"flight", "stacks"})
# What a file under training/ may be beside a trainer's log: its first lines tell.
_OF_RUNS = frozenset({"hook", "otel", "mlgoodput", "dlrover"})
# Parts whose tools print the local time, and no zone.
_ZONELESS = frozenset({"outages", "queue", "jobs", "fabric"})
# Parts of machines, whose lines all bear a time.
_OF_MACHINES = frozenset({"kernel", "fabricmanager", "fabric", "ufm", "switches", "health"})
# Parts whose lines may bear a date without a year.
_YEARLESS = frozenset({"fabric", "switches"})
# A date further ahead of the present than the zones differ is a broken clock's.
_AHEAD = timedelta(days=1)
# What nobody but the driver says, unless the line is a quotation.
_XID, _MOST_XIDS, _SHOWN = "NVRM: Xid", 1000, 80
_ANEW = "journalctl _TRANSPORT=kernel -o short-iso-precise"
# Lines of a file under training/ that tell its format.
_SAMPLE_LINES = 20
T = TypeVar("T")


class ArchiveError(ValueError):
    """A folder that is no archive; the message says what one looks like."""


@dataclass(frozen=True, slots=True)
class ArchivePart:
    """One file of an archive. `name` is a key of PARTS, `relative` its path within the archive."""

    name: str
    path: Path
    relative: str
    size: int

    def stem(self) -> str:
        """The node or run that the file is named for: gpu-017 of kernel/gpu-017.log.gz."""
        name = self.path.name
        for suffix in (".gz", ".zst", ".log", ".jsonl", ".json", ".txt"):
            name = name.removesuffix(suffix)
        return name

    def is_named_for_node(self) -> bool:
        """Whether the file's name is that of the node (or switch) that its lines speak of."""
        return self.name in _NAMED_FOR_NODE or self.relative.startswith("health/")


@dataclass(frozen=True, slots=True)
class PartRecords:
    """What a file said. `skipped` counts broken lines; `broken` says why the file could not be read to its end,
    `misread` why it is hardly what its name says, and `doubt` what of it is hardly meant so."""

    events: tuple[Event, ...] = ()
    nodes: tuple[Node, ...] = ()
    topology: TopologyReport = field(default_factory=TopologyReport)
    skipped: int = 0
    first_skip: str | None = None
    broken: str | None = None
    misread: str | None = None
    doubt: str | None = None


def find_parts(root: Path) -> list[ArchivePart]:
    """The files of an archive, in the order of PARTS and by name.

    Raises:
        ArchiveError: there is none: the folder is no archive.
    """
    if not root.is_dir():
        raise ArchiveError(f"{root} is no folder: give the directory that holds nodes.csv, kernel/, telemetry/ ...")
    found = []
    for name, (patterns, _) in PARTS.items():
        paths = sorted({path for pattern in patterns for path in root.glob(pattern) if _is_log(path)})
        found += [ArchivePart(name, path, path.relative_to(root).as_posix(), path.stat().st_size) for path in paths]
    if not found:
        if (root / "archive").is_dir():  # `foreshock simulate` lays it there, beside what is true
            raise ArchiveError(f"{root} is no archive: give {root / 'archive'}")
        raise ArchiveError(
            f"{root} is no archive: none of {', '.join(patterns[0] for patterns, _ in PARTS.values())} is there"
        )
    return found


def unread_files(root: Path, parts: Sequence[ArchivePart]) -> list[str]:
    """Files in the folders of PARTS, and logs and tables at the root, that no part takes, by name; a hidden one, or a
    README, is none."""
    patterns = [pattern for patterns, _ in PARTS.values() for pattern in patterns]
    endings = {Path(pattern).suffix for pattern in patterns if "/" not in pattern}
    folders = {pattern.split("/")[0] for pattern in patterns if "/" in pattern}
    found = [path for path in root.iterdir() if path.suffix in endings]
    found += [path for folder in folders for path in (root / folder).rglob("*")]
    read = {part.path for part in parts}
    unread = [path.relative_to(root).as_posix() for path in found if _is_log(path) and path not in read]
    return sorted(name for name in unread if not Path(name).name.startswith((".", "README")))


def _is_log(path: Path) -> bool:
    """Whether a file is one of its own: NVRx's link to the present cycle, and what it was about to write, are none."""
    return path.is_file() and not (path.name.endswith(".tmp") or (path.name.endswith(".current") and path.is_symlink()))


def newest_dated(parts: Sequence[ArchivePart], now: datetime) -> tuple[datetime, str] | None:
    """The newest date that the archive's own files bear, and the file; None where none does.

    A broken clock's, ahead of `now`, counts only where no other date is.
    """
    seen = []
    for part in parts:
        if part.name in _DATED:
            moment = _newest_or_none(part.path)
        elif part.name == "telemetry":
            moment = _day(part.stem().removesuffix(".parquet"))
        else:
            continue
        if moment is not None:
            seen.append((moment, part.relative))
    return max([one for one in seen if one[0] <= now + _AHEAD] or seen, key=lambda one: one[0], default=None)


def told_year(parts: Sequence[ArchivePart], newest: tuple[datetime, str] | None) -> str | None:
    """Which year the dates without one are taken to be of, and from where; None where no file has such dates."""
    first = next((part for part in parts if part.name in _YEARLESS), None)
    if first is None:
        return None
    moment, source = newest or (None, "")
    origin = f"the newest date, which {source} bears" if newest else "when it was last written"
    year = context_of(first, moment).year
    return f"{first.relative} may bear dates without a year: {year} is taken, by {origin} (--year says another)"


def told_zone(parts: Sequence[ArchivePart]) -> str | None:
    """Of which zone times without one are taken to be; None where no file has such times."""
    found = [part.relative for part in parts if part.name in _ZONELESS]
    if not found:
        return None
    return f"{' and '.join(found[:2])} may bear times without a zone: UTC is taken (--tz says another)"


def _newest_or_none(path: Path) -> datetime | None:
    try:
        return newest_in(path)
    except OSError:  # it is reported when the file is read
        return None


def _day(text: str) -> datetime | None:
    try:
        return datetime.fromisoformat(text[:10]).replace(tzinfo=UTC) + timedelta(days=1)
    except ValueError:
        return None


def context_of(part: ArchivePart, newest: datetime | None, year: int | None = None, zone: tzinfo = UTC) -> Context:
    """What the file's lines do not say of themselves.

    Args:
        newest: the newest moment of the archive; the file's modification time where it is None.
        year: the year of timestamps without one; that of `newest` where it is None.
        zone: the zone of timestamps without one.
    """
    until = newest or datetime.fromtimestamp(part.path.stat().st_mtime, UTC)
    if year is not None:
        # A month ahead of `until` would be taken for last year's: the year that was asked for holds for all.
        until = datetime(year, 12, 31, 23, 59, 59, tzinfo=UTC)
    run = part.stem() if part.name in _NAMED_FOR_RUN else None
    if part.name in _NAMED_FOR_RANK:
        run = part.relative.partition("/")[2]
    return Context(
        node=part.stem() if part.is_named_for_node() else None,
        run=run,
        year=until.year,
        zone=zone,
        until=until,
    )


def read_part(part: ArchivePart, context: Context, rules: SiteRules = NO_RULES) -> PartRecords:
    """What a text file of an archive says. Never fails: the result reports what cannot be read."""
    skips: list[str] = []

    def skip(line: int, error: ParseError) -> None:
        skips.append(f"line {line}: {error}" if not skips else "")

    events: list[Event] = []
    found_nodes: list[Node] = []
    topology = TopologyReport()
    broken = unlike = jobless = None
    xids: list[str] = []
    try:
        with part.path.open("rb") as file:
            if looks_binary(file, part.path.name):
                return PartRecords(broken=NO_TEXT)
        if part.name == "nodes":
            _take(found_nodes, nodes(lines_of(part.path), skip))
        elif part.name == "topology":
            topology = _topology_of(part, skip)
        elif (form := _format_of(part)) is not None:
            parser = make_parser(form, context, None if rules is NO_RULES else lambda: rules)
            signs = None if rules.patterns else PARSERS[form].signs  # a site's patterns may be in any line
            _take(events, _events(part, _noting(texts_of(part.path, signs), xids), parser, skip))
            if not events and not skips:
                unlike, jobless = misread(form, lines_of(part.path)), _jobless(part)
    except ParseError as error:
        broken = str(error)
    except (ReadError, OSError) as error:
        broken = f"{error}: copy it anew"
    first_skip = skips[0] if skips else None
    doubt = jobless or _undated(part, events, context.until) or _unread(part, events, xids) or _backward(part, events)
    timed = _timed(events, context.until)
    return PartRecords(timed, tuple(found_nodes), topology, len(skips), first_skip, broken, unlike, doubt)


def _topology_of(part: ArchivePart, skip: OnError) -> TopologyReport:
    """What a file of the topology tells.

    Raises:
        ParseError: it is not of the form that its name says; ReadError, OSError: as of `lines_of`.
    """
    text = "\n".join(lines_of(part.path))
    if part.relative.startswith("fabric/lldp/"):
        return read_topology("lldp", text, node=part.stem())
    named = (form for name, form in _TOPOLOGY_SOURCES.items() if part.path.name.startswith(name))
    form = next(named, "ibnetdiscover")
    return read_topology(form, text, on_error=skip)


def _format_of(part: ArchivePart) -> str | None:
    """The format of a part's lines; a run's own records may be of several, each file of one."""
    form = PARTS[part.name][1]
    if part.name != "training":
        return form
    found = detect(list(islice(lines_of(part.path), _SAMPLE_LINES)))
    return found if found in _OF_RUNS else form


def _take(found: list[T], records: Iterable[T]) -> None:
    """Keep what came before a failure."""
    for record in records:
        found.append(record)  # extend() does not promise to keep them


def _events(part: ArchivePart, texts: Iterable[tuple[int, str]], parser: Parser, skip: OnError) -> Iterator[Event]:
    """The events of a log, each with the id that the same line of the same file always has."""
    for event in decode(parser, texts, skip, file=part.relative):
        yield with_id(event, f"{part.relative}:{event.line}")


def _timed(events: Sequence[Event], otherwise: datetime | None) -> tuple[Event, ...]:
    """Events that bear no time, given that of the timed one before them in the file (or else of the first one).

    They are marked by the attribute `time_assumed`: without a time they would seem to have happened today.
    """
    moment = next((event.time for event in events if event.time is not None), otherwise)
    timed = []
    for event in events:
        if event.time is None:
            assumed: dict[str, Attribute] = {**event.attributes, "time_assumed": True}
            timed.append(replace(event, time=moment, attributes=assumed))
        else:
            moment = event.time
            timed.append(event)
    return tuple(timed)


def _noting(texts: Iterable[tuple[int, str]], xids: list[str]) -> Iterator[tuple[int, str]]:
    """The lines as they are; some of those that hold an Xid are noted on the way."""
    for number, text in texts:
        if _XID in text and len(xids) < _MOST_XIDS:
            xids.append(text[:_SHOWN])
        yield number, text


def _unread(part: ArchivePart, events: Sequence[Event], xids: Sequence[str]) -> str | None:
    """What to say of a kernel log that holds Xids of which none is read: its lines are of a form that is not known."""
    if part.name != "kernel" or not xids or any(event.kind.endswith("xid") for event in events):
        return None
    return (
        f"{len(xids)}{'' if len(xids) < _MOST_XIDS else ' or more'} of its lines hold {_XID!r} and none is read as the "
        f"kernel's, the first is {xids[0]!r}: write it anew with `{_ANEW}`"
    )


def _undated(part: ArchivePart, events: Sequence[Event], otherwise: datetime | None) -> str | None:
    """What to say of a machine's log in which nothing bears a time, as `dmesg` prints it."""
    if part.name not in _OF_MACHINES or not events or any(event.time is not None for event in events):
        return None
    return (
        f"none of its lines bears a time: its {many(len(events), 'event counts', 'events count')} as of "
        f"{otherwise:%Y-%m-%d %H:%M:%S}Z, the archive's newest: write it anew with `{_ANEW}` or "
        "`dmesg --time-format iso`"
    )


def _jobless(part: ArchivePart) -> str | None:
    """What to say of a table of jobs whose rows tell of none: they are steps."""
    if part.name != "jobs" or len(list(islice(filter(str.strip, lines_of(part.path)), 2))) < 2:
        return None
    return "it has rows, and none is of a job: steps are not read: write it anew with `sacct -a -X -P`"


def _backward(part: ArchivePart, events: Sequence[Event]) -> str | None:
    """What to say of outages that end before they begin: whoever wrote them took the columns for each other, or two
    clocks."""
    if part.name != "outages":
        return None
    spans = ((event, event.attributes.get("start"), event.attributes.get("end")) for event in events)
    found = [event for event, start, end in spans if start and end and str(end) < str(start)]  # as `format_time` writes
    if not found:
        return None
    return (
        f"{len(found)} of its {many(len(events), 'outage')} end before they begin, the first in line {found[0].line}: "
        "they count as outages without any length: look whether the two columns are the right way round"
    )

r"""A listing of a checkpoint directory, `find DIR -printf '%T@ %s %y %p\n'`: which saves it holds, and which are whole.

    1740801907.1230000000 1073741824 f /ckpt/run-7/iter_0001000/mp_rank_00/model_optim_rng.pt
    1740801920.5000000000 4 f /ckpt/run-7/latest_checkpointed_iteration.txt
    -> {"kind": "checkpoint_save", "time": "2025-03-01T04:05:07.123Z",
        "attributes": {"run": "run-7", "iteration": 1000, "bytes": 1073741824, "files": 1, ...}, ...}

One event a save, at the time of its last file; `duration_ms` is how much earlier its first file was written.
A save that is not whole, or of which nothing shows that it is, is a `checkpoint_save_start` at the time of its first
file (`saves_of`).
"""

import re
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from parsers.dumps.checkpoint_files import METADATA, FileContent
from parsers.text.parser import Context, Format, ParseError
from store.records.event import Attribute, Event

# What the files of a checkpoint directory tell: which saves there are, when they were written, and which are whole.
#
#     saves_of([Entry("/ckpt/run-7/iter_0001000/model.pt", mtime_s=1740801907.1, size=10), ...], root="/ckpt/run-7")
#
# Names: Megatron-LM (iter_0001000), DeepSpeed (global_step100), Hugging Face (checkpoint-500), torchtitan (step-500),
# Lightning and NeMo (epoch=1-step=500.ckpt), Composer (ep0-ba500), Orbax (500, 500.orbax-checkpoint-tmp-17).
# A save is whole if its format says so: `.metadata` of torch's distributed checkpoints, `trainer_state.json`, a tracker
# (`latest_checkpointed_iteration.txt`, `latest`) written after it. Else by comparison: as large as the others, and not
# the newest. A lone save without any such mark may be whole or not: it is not called so. Where files were opened, what
# they tell by themselves goes first (`parsers/dumps/checkpoint_files.py`): one that is cut short, or names others that
# are missing or too small, makes the save torn whatever else says; a save that is one file, and whole, is a whole save.

_NAMED = re.compile(
    r"^(?:tmp[-_])?(?:iter|iteration|global_?step|checkpoint|ckpt|step)[-_=]?0*(?P<named>\d{1,12})(?![\d.]\d)"
    r"|(?:^|[-_])step=0*(?P<keyed>\d{1,12})|^ep\d{1,9}-ba0*(?P<batch>\d{1,12})"
    r"|^(?P<bare>\d{1,12})(?:\.orbax-checkpoint-tmp.*)?$",
    re.ASCII,
)
_INCOMPLETE = re.compile(
    r"(?:^|[._-])(?:tmp|temp|partial|incomplete|unfinished|writing|saving|in_?progress)(?=$|[._-]|\d)",
    re.ASCII | re.IGNORECASE,
)
TRACKERS = frozenset({"latest_checkpointed_iteration.txt", "latest", "latest_checkpoint.txt", "last_checkpoint"})
_WHOLE = "trainer_state.json"
# Folders that hold the checkpoints of one run and do not bear its name.
_PLAIN = frozenset({"checkpoints", "checkpoint", "ckpt", "ckpts", "output", "outputs", "weights", "model", "models"})
# A save as large as this share of the others' median is whole, where nothing else tells.
_SHARE = 0.9
# A tracker is written after the last file, on a file server whose times are as coarse as this, seconds.
_COARSE_S = 2.0


@dataclass(frozen=True, slots=True)
class CheckpointEntry:
    """A file or folder: `mtime_s` since 1970, `size` in bytes, a tracker's `text`, `content` of what was opened."""

    path: str
    mtime_s: float
    size: int
    is_folder: bool = False
    text: str | None = None
    content: FileContent | None = None


@dataclass(frozen=True, slots=True)
class CheckpointSave:
    """A save: `begin_s` and `end_s` are its first and last file's times.

    `whole` is None where nothing tells; `marked` = its format says so, no comparison. `lack` = in words what its files
    show to be missing, empty where they show nothing.
    """

    run: str
    folder: str
    name: str
    iteration: int
    begin_s: float
    end_s: float
    size: int
    files: int
    whole: bool | None
    marked: bool
    lack: str = ""


@dataclass(slots=True)
class _SaveGroup:
    """The files of one save, as they are gathered."""

    parent: str
    name: str
    iteration: int
    incomplete: bool
    begin_s: float = float("inf")
    end_s: float = float("-inf")
    size: int = 0
    files: int = 0
    names: set[str] = field(default_factory=set)
    sizes: dict[str, int] = field(default_factory=dict)
    named: dict[str, int] = field(default_factory=dict)  # by path the bytes that it must have at least
    cut: int = 0
    uncut: int = 0

    def add(self, entry: CheckpointEntry) -> None:
        """Take in a file."""
        base = entry.path.rpartition("/")[2]
        self.begin_s, self.end_s = min(self.begin_s, entry.mtime_s), max(self.end_s, entry.mtime_s)
        self.size, self.files = self.size + entry.size, self.files + 1
        self.incomplete |= _INCOMPLETE.search(base) is not None
        self.sizes[entry.path] = entry.size
        if base in (_WHOLE, METADATA):
            self.names.add(base)
        elif base.endswith(".distcp"):
            self.names.add(".distcp")
        if entry.content is not None:
            self.cut += entry.content.cut is True
            self.uncut += entry.content.cut is False
            beside = entry.path.rpartition("/")[0]
            self.named.update({f"{beside}/{name}": least for name, least in entry.content.named.items()})

    def lack(self) -> str:
        """What is missing, as its own files show."""
        there = sum(self.sizes.get(path, -1) >= least for path, least in self.named.items())
        if there < len(self.named):
            return f"{there} of {len(self.named)} files"
        if self.cut:
            return f"{self.cut} of {self.files} files cut short" if self.files > 1 else "it is cut short"
        without = ".distcp" in self.names and METADATA not in self.names
        return f"no {METADATA}" if without else ""


def iteration_in(name: str, is_folder: bool = True) -> int | None:
    """The iteration that a file's or folder's name tells; None for a name of something else."""
    match = _NAMED.search(name)
    if match is None or (match["bare"] and not is_folder):
        return None
    return int(next(text for text in match.groups() if text is not None))


def is_tracker(name: str) -> bool:
    """Whether a file names the newest whole save."""
    return name in TRACKERS


def saves_of(entries: Iterable[CheckpointEntry], root: str = "") -> list[CheckpointSave]:
    """Every save, by its end.

    Args:
        root: the folder that was listed: the names above it say nothing.
    """
    groups: dict[tuple[str, str], _SaveGroup] = {}
    trackers: dict[str, CheckpointEntry] = {}
    unfinished: set[tuple[str, int]] = set()
    for entry in entries:
        parent, name, inner = place_of(entry, root)
        if name is None:
            base = entry.path.rpartition("/")[2]
            if is_tracker(base) and not entry.is_folder:
                trackers[entry.path.rpartition("/")[0]] = entry
            continue
        iteration = iteration_in(name) or 0
        if not inner and not entry.is_folder and "unfinished" in name:
            unfinished.add((parent, iteration))
        elif not entry.is_folder:
            incomplete = _INCOMPLETE.search(name) is not None
            groups.setdefault((parent, name), _SaveGroup(parent, name, iteration, incomplete)).add(entry)
    for group in groups.values():
        group.incomplete |= (group.parent, group.iteration) in unfinished
    return _judged(list(groups.values()), trackers)


def place_of(entry: CheckpointEntry, root: str) -> tuple[str, str | None, bool]:
    """The folder that a save lies in, the save's name, and whether the entry lies within it."""
    above = root.rstrip("/")
    inside = above and (entry.path == above or entry.path.startswith(above + "/"))
    rest = entry.path[len(above) :] if inside else entry.path
    parts = rest.strip("/").split("/")
    for place, part in enumerate(parts):
        last = place + 1 == len(parts)
        if iteration_in(part, is_folder=not last or entry.is_folder) is not None:
            before = "/".join(parts[:place])
            return f"{above if inside else ''}/{before}".rstrip("/"), part, not last
    return "", None, False


def _judged(groups: Sequence[_SaveGroup], trackers: dict[str, CheckpointEntry]) -> list[CheckpointSave]:
    found = []
    sizes: dict[str, list[int]] = {}
    for group in groups:
        sizes.setdefault(group.parent, []).append(group.size)
    for of_parent in sizes.values():
        of_parent.sort()
    for group in groups:
        marked = _marked(group, trackers.get(group.parent))
        others = _median_without(sizes[group.parent], group.size)
        compared = (bool(group.named) or None) if others is None else group.size >= _SHARE * others
        found.append(
            CheckpointSave(
                run=run_of(group.parent),
                folder=group.parent,
                name=group.name,
                iteration=group.iteration,
                begin_s=group.begin_s,
                end_s=group.end_s,
                size=group.size,
                files=group.files,
                whole=compared if marked is None else marked,
                marked=marked is not None,
                lack=group.lack(),
            )
        )
    return sorted(found, key=lambda save: (save.end_s, save.iteration))


def _median_without(ordered: Sequence[int], value: int) -> float | None:
    """The median of sorted sizes but for one that is this; None where there is no other."""
    count, left_out = len(ordered) - 1, bisect_left(ordered, value)
    if not count:
        return None
    upper, lower = (ordered[place + (place >= left_out)] for place in (count // 2, (count - 1) // 2))
    return (upper + lower) / 2


def _marked(group: _SaveGroup, tracker: CheckpointEntry | None) -> bool | None:
    """Whether a save's format says that it is whole; None where it does not say."""
    if group.incomplete or group.lack():
        return False
    if group.names:  # those of torch and of the trainers are written last; an index of shards is not
        return True
    if group.uncut == 1 and set(group.sizes) == {f"{group.parent}/{group.name}"}:
        return True  # of a folder's files the first may be whole before the others begin
    if tracker is None:
        return None
    words = (tracker.text or "").strip()
    fields = int(words[:20]) if words.isascii() and words.isdigit() else iteration_in(words)
    if fields is not None and fields <= group.iteration:
        return fields == group.iteration
    return tracker.mtime_s >= group.end_s - _COARSE_S


def run_of(folder: str) -> str:
    """The run whose saves a folder holds: its name, or that of the one above where it is called `checkpoints`."""
    parts = [part for part in folder.split("/") if part]
    return next((part for part in reversed(parts) if part.lower() not in _PLAIN), "")


# A listing of more files than this is read to here: the store of a cluster holds millions.
MAX_ENTRIES = 500_000
_LINE = re.compile(
    r"(?P<time>\d{9,11}(?:\.\d{1,10})?) (?P<size>\d{1,16}) (?P<kind>[fdlcbpsD]) (?P<path>\S.*)", re.ASCII | re.DOTALL
)


class CheckpointsParser:
    """Decodes a listing. Holds every entry to its end."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._root: str | None = None
        self._entries: list[CheckpointEntry] = []
        self._lines: dict[tuple[str, str], int] = {}

    def feed(self, text: str, line: int) -> Iterable[Event]:
        """Take in a line; the events come at the end.

        Raises:
            ParseError: the line is of no such listing, or there are too many.
        """
        if not text.strip():
            return ()
        match = _LINE.fullmatch(text.rstrip())
        if match is None:
            raise ParseError(r"no line of a listing: write it with find DIR -printf '%T@ %s %y %p\n'")
        if len(self._entries) >= MAX_ENTRIES:
            raise ParseError(f"more than {MAX_ENTRIES} entries: list one run's folder alone")
        path = match["path"]
        if self._root is None:
            self._root = path if match["kind"] == "d" else ""
        if match["kind"] in "fd":
            entry = CheckpointEntry(path, float(match["time"]), int(match["size"]), match["kind"] == "d")
            self._entries.append(entry)
            parent, name, _inner = place_of(entry, self._root)
            if name is not None:
                self._lines.setdefault((parent, name), line)
        return ()

    def flush(self) -> Iterable[Event]:
        """The saves of the listing."""
        entries, self._entries = self._entries, []
        root, self._root = self._root or "", None
        lines, self._lines = self._lines, {}
        return [
            event_of(save, self._context.run, self._context.node, lines.get((save.folder, save.name)))
            for save in saves_of(entries, root)
        ]


def event_of(save: CheckpointSave, run: str | None, node: str | None, line: int | None) -> Event:
    """The event of a save; its `run` counts only where nobody reported another."""
    whole = save.whole is True
    fields: dict[str, Attribute] = {
        "run": run or save.run or None,
        "iteration": save.iteration,
        "bytes": save.size,
        "files": save.files,
        "path": save.name[:200],
    }
    if whole:
        fields["duration_ms"] = round((save.end_s - save.begin_s) * 1000, 3)
    if save.whole is None:
        fields["unsure"] = True
    lack = f", {save.lack}" if save.lack else ""
    state = "is whole" if whole else "is not whole" if save.whole is False else "may be whole or not"
    return Event(
        time=datetime.fromtimestamp(save.end_s if whole else save.begin_s, UTC),
        node=node,
        source="checkpoints",
        kind="checkpoint_save" if whole else "checkpoint_save_start",
        message=f"{save.name} {state}: {save.files} files, {save.size} bytes{lack}"[:300],
        attributes=fields,
        line=line,
    )


FORMAT = Format(
    name="checkpoints",
    description=r"Listing of a checkpoint directory: find DIR -printf '%T@ %s %y %p\n'",
    sample="1740801907.1230000000 1073741824 f /ckpt/run-7/iter_0001000/mp_rank_00/model_optim_rng.pt",
    make=CheckpointsParser,
    testimony="saves",
    recognises=re.compile(r"^\d{10}\.\d{6,10} \d{1,16} [fd] \S"),
    shape="log",
)

"""Stacks of a training process as `py-spy dump` prints them, text or `--json`: where its main thread stands.

    Process 4711: python train.py
    Python v3.11.7 (/usr/bin/python3.11)
    Thread 4711 (idle): "MainThread"
        all_reduce (torch/distributed/distributed_c10d.py:2501)
        main (train.py:12)
    -> {"kind": "rank_stack", "attributes": {"pid": 4711, "thread": "MainThread", "state": "idle",
        "collective": "all_reduce", "stack": "all_reduce distributed_c10d.py:2501 < main train.py:12"}}

A dump halts the process for some milliseconds and needs ptrace: it is taken only where an operator says so
(`exec:pyspy:py-spy dump --pid PID`, or files in an archive's stacks/RUN/rank_5.txt). Source: src/dump.rs of
benfred/py-spy.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from parsers.text.documents import Document, DocumentReader
from parsers.text.json_fields import records_of, text_of, whole_of
from parsers.text.parser import Context, Format
from store.records.event import Attribute, Event
from store.records.fault_catalog import with_kind_meaning

# Frames of a stack that are kept, the innermost first, and read at all.
KEPT_FRAMES = 12
MOST_FRAMES = 2_000
_NAME = 80
_MAIN = "MainThread"
# The calls of torch.distributed in which a rank waits for others.
_COLLECTIVE = re.compile(
    r"all_reduce|all_gather\w{0,20}|reduce_scatter\w{0,20}|all_to_all\w{0,20}|broadcast\w{0,20}|barrier"
    r"|monitored_barrier|gather|scatter|reduce|recv|send|batch_isend_irecv",
    re.ASCII,
)
_DISTRIBUTED = ("distributed_c10d.py", "distributed/nn/functional.py")
_PROCESS = re.compile(r"Process (?P<pid>\d{1,10}): ", re.ASCII)
_THREAD = re.compile(
    r'Thread (?P<thread>0x[0-9A-Fa-f]{1,16}|\d{1,20}) \((?P<state>[a-z+]{1,20})\)(?:: "(?P<name>[^"]{0,200})")?',
    re.ASCII,
)
_FRAME = re.compile(r"\s{2,8}(?P<name>\S{1,200}) \((?P<file>[^():]{1,300}):(?P<line>\d{1,7})\)\s*$", re.ASCII)
_RANK = re.compile(r"rank[_-]?(?P<rank>\d{1,7})", re.ASCII)


@dataclass(slots=True)
class _Thread:
    pid: int | None
    name: str
    state: str
    line: int
    frames: list[tuple[str, str]] = field(default_factory=list)


class PyspyParser:
    """Decodes dumps. Holds one thread."""

    def __init__(self, context: Context) -> None:
        run, slash, name = (context.run or "").rpartition("/")
        match = _RANK.search(name)
        self._rank = None if match is None else int(match["rank"])
        self._run = run if slash else (None if match else context.run)
        self._node = context.node
        self._reader = DocumentReader()
        self._pid: int | None = None
        self._open: _Thread | None = None

    def feed(self, text: str, line: int) -> Iterable[Event]:
        """The events that a line completes.

        Raises:
            ParseError: the JSON is broken.
        """
        documents, errors = self._reader.feed(text, line)
        found = [*(event for one in documents for event in self._document(one)), *self._line(text, line)]
        if errors and not found:
            raise errors[0]
        return found

    def flush(self) -> Iterable[Event]:
        """The last thread.

        Raises:
            ParseError: the JSON is cut short.
        """
        documents, errors = self._reader.flush()
        found = [*(event for one in documents for event in self._document(one)), *self._closed()]
        if errors and not found:
            raise errors[0]
        return found

    def _line(self, text: str, line: int) -> Iterator[Event]:
        if match := _PROCESS.match(text):
            yield from self._closed()
            self._pid = int(match["pid"])
        elif match := _THREAD.match(text):
            yield from self._closed()
            self._open = _Thread(self._pid, match["name"] or "", match["state"], line)
        elif self._open is not None and (match := _FRAME.match(text)) and len(self._open.frames) < MOST_FRAMES:
            self._open.frames.append((match["name"], f"{match['file']}:{match['line']}"))

    def _document(self, document: Document) -> Iterator[Event]:
        value = document.value
        frames = records_of(value, "frames")[:MOST_FRAMES]
        if "thread_id" not in value or not frames:
            return
        state = "active" if value.get("active") is True else "idle"
        thread = _Thread(whole_of(value.get("pid")), text_of(value, "thread_name") or "", state, document.line)
        thread.frames = [(text_of(frame, "name") or "?", _place(frame)) for frame in frames]
        yield from self._event(thread)

    def _closed(self) -> Iterator[Event]:
        thread, self._open = self._open, None
        if thread is not None:
            yield from self._event(thread)

    def _event(self, thread: _Thread) -> Iterator[Event]:
        """The main thread's; where others stand is no matter of the rank's work."""
        if thread.name != _MAIN or not thread.frames:
            return
        calls = [name for name, place in thread.frames if any(part in place for part in _DISTRIBUTED)]
        collective = next((name for name in calls if _COLLECTIVE.fullmatch(name)), None)
        shown = [f"{name[:_NAME]} {place.rpartition('/')[2][:_NAME]}" for name, place in thread.frames[:KEPT_FRAMES]]
        told: dict[str, Attribute] = {
            "run": self._run,
            "rank": self._rank,
            "pid": thread.pid,
            "thread": thread.name,
            "state": thread.state,
            "collective": collective,
            "stack": " < ".join(shown),
        }
        where = f"in {collective}" if collective else f"in {shown[0]}"
        event = Event(
            None,
            self._node,
            "pyspy",
            "rank_stack",
            message=f"process {thread.pid if thread.pid is not None else '?'} is {where}",
            attributes={key: value for key, value in told.items() if value is not None},
            line=thread.line,
        )
        yield with_kind_meaning(event)


def _place(frame: Mapping[str, Any]) -> str:
    return f"{text_of(frame, 'filename', 'short_filename') or '?'}:{whole_of(frame.get('line')) or 0}"


FORMAT = Format(
    name="pyspy",
    description="Stacks of training processes: py-spy dump, text or --json",
    sample='[{"pid": 4711, "thread_id": 139788, "thread_name": "MainThread", "os_thread_id": 4711, "active": false, '
    '"owns_gil": false, "frames": [{"name": "all_reduce", "filename": "/venv/torch/distributed/distributed_c10d.py", '
    '"line": 2501}, {"name": "main", "filename": "/train.py", "line": 12}]}]',
    make=PyspyParser,
    testimony="starts",
    recognises=re.compile(
        r'^Thread (?:0x[0-9A-Fa-f]+|\d+) \((?:active|idle)[a-z+]*\)|"owns_gil" ?:|"os_thread_id" ?:', re.ASCII
    ),
    shape="document",
)

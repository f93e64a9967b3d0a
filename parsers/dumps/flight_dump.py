"""A flight recorder's dump as lines of JSON: what tells where a rank stands, out of a pickle or a JSON of any size.

PyTorch writes one file a rank, binary (a pickle) or JSON in a single line, with thousands of entries and the stack of
each. Of every process group its configuration, its status and its newest entries are kept:

    {"flight_recorder": "2.10", "pg_config": {"0": {"name": "0", "desc": "default_pg", "ranks": "0-1023"}},
     "pg_status": {"0": {"last_enqueued_collective": 21, ...}},
     "entries": [{"process_group": ["0", "default_pg"], "collective_seq_id": 21, "state": "started", ...}]}

The source is never executed (`parsers/dumps/pickled.py`). Source of the form: torch/csrc/distributed/c10d/
FlightRecorder.hpp and torch/distributed/flight_recorder of PyTorch 2.5 to 2.13 (versions 2.0 to 2.10 of the dump).
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import orjson

from parsers.dumps.pickled import MOST_BYTES, PICKLE, PickleRefusedError, plain_value
from store.runs.rank_set import text_of_ranks

# Process groups of one rank; the newest entries of each.
MOST_GROUPS = 1_024
MOST_ENTRIES = 16
_TEXT = 200
# A list of a hundred thousand ranks, as PyTorch writes it.
_LIST_TEXT = 1_000_000
_NUMBER = re.compile(r"\d{1,8}", re.ASCII)
_ENTRY_KEYS = (
    "pg_id",
    "record_id",
    "collective_seq_id",
    "p2p_seq_id",
    "is_p2p",
    "profiling_name",
    "state",
    "retired",
    "time_created_ns",
    "time_discovered_started_ns",
    "time_discovered_completed_ns",
    "timeout_ms",
)
_STATUS_KEYS = ("last_enqueued_collective", "last_started_collective", "last_completed_collective")


class DumpError(ValueError):
    """A dump that cannot be read; the message says why."""


def is_dump(first: bytes) -> bool:
    """Whether a file's first bytes are those of a pickle, or of a flight recorder's JSON in one line."""
    if first.startswith(PICKLE):
        return True
    head = first[:4096].lstrip()
    return (head.startswith(b"{") and b"\n" not in head and b'"comm_lib_version"' in head[:200]) or (
        head.startswith((b'{"entries":[{"collective_seq_id"', b'{"entries":[{"frames"'))
    )


def dump_lines(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """The dump as lines of JSON.

    Raises:
        DumpError: it is too large, broken, or no dump.
    """
    parts, size = [], 0
    for chunk in chunks:
        size += len(chunk)
        if size > MOST_BYTES:
            raise DumpError(f"it is larger than {MOST_BYTES} bytes: no flight recorder writes so much")
        parts.append(chunk)
    data = b"".join(parts)
    try:
        value = plain_value(data) if data.startswith(PICKLE) else orjson.loads(data)
    except (PickleRefusedError, orjson.JSONDecodeError) as error:
        raise DumpError(str(error)) from error
    if not isinstance(value, dict) or not isinstance(value.get("entries", []), list | tuple):
        raise DumpError("it is no dump of a flight recorder: it holds no entries")
    yield from _written(value)


def _written(value: Mapping[Any, Any]) -> Iterator[bytes]:
    version = _plain(value.get("version"))
    rank = value.get("rank")
    own = b', "rank": %d' % rank if isinstance(rank, int) and not isinstance(rank, bool) else b""
    yield b'{"flight_recorder": ' + orjson.dumps(version) + own + b',\n"pg_config": {\n'
    yield from _joined(_groups(value.get("pg_config"), _config))
    yield b'},\n"pg_status": {\n'
    yield from _joined(_groups(value.get("pg_status"), _status))
    yield b'},\n"entries": [\n'
    yield from _joined(orjson.dumps(entry) for entry in _entries(value.get("entries") or ()))
    yield b"]}\n"


def _joined(parts: Iterable[bytes]) -> Iterator[bytes]:
    between = b""
    for part in parts:
        yield between + part
        between = b",\n"
    yield b"\n"


def _groups(value: Any, reduced: Any) -> Iterator[bytes]:
    if not isinstance(value, dict):
        return
    for place, (key, one) in enumerate(value.items()):
        if place >= MOST_GROUPS:
            return
        if isinstance(one, dict):
            yield orjson.dumps(str(key)[:_TEXT]) + b": " + orjson.dumps(reduced(one))


def _config(one: Mapping[Any, Any]) -> dict[str, Any]:
    ranks = one.get("ranks")
    if isinstance(ranks, list | tuple):
        numbers = [rank for rank in ranks[:_LIST_TEXT] if isinstance(rank, int)]
    else:
        numbers = [int(found) for found in _NUMBER.findall(str(ranks)[:_LIST_TEXT])] if isinstance(ranks, str) else []
    ordered = numbers == sorted(numbers)
    kept = {"name": _plain(one.get("name")), "desc": _plain(one.get("desc")), "ranks": text_of_ranks(numbers)}
    return kept if ordered else {**kept, "order": numbers[:MOST_GROUPS]}


def _status(one: Mapping[Any, Any]) -> dict[str, Any]:
    return {key: _plain(one.get(key)) for key in _STATUS_KEYS}


def _entries(entries: Any) -> Iterator[dict[str, Any]]:
    """The newest entries of each group, in their order."""
    kept: dict[str, list[dict[str, Any]]] = {}
    for entry in entries:
        if not isinstance(entry, dict):
            continue
        group = entry.get("process_group")
        name = [_plain(part) for part in group[:2]] if isinstance(group, list | tuple) else [_plain(group)]
        own = kept.setdefault(repr(name), [])
        if len(kept) > MOST_GROUPS:
            del kept[repr(name)]
            continue
        own.append({"process_group": name, **{key: _plain(entry.get(key)) for key in _ENTRY_KEYS}})
        if len(own) > 2 * MOST_ENTRIES:
            del own[:-MOST_ENTRIES]
    for own in kept.values():
        yield from own[-MOST_ENTRIES:]


def _plain(value: Any) -> Any:
    if isinstance(value, str):
        return value[:_TEXT]
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        return None
    return value if isinstance(value, int | float | None) else None

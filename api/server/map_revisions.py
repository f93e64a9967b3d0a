"""The map's last revisions, so that a page reads what has changed since the one that it holds.

    revisions.answer(tag, body, since=None)       # the whole body
    revisions.answer(tag, body, since=older)      # the rows that differ from that revision's; else the whole body

Rows are compared, not kept: a difference is made from two whole bodies when somebody first wants it. A server that
does not know a revision (it began anew, or another one gave it) answers the whole.
"""

import threading
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Any

import orjson

# Columns with a value for each node, and what must be alike for a difference to make sense.
VALUES = ("state", "risk", "temperature_c", "link_errors", "run")
_FRAME = ("blocks_by", "blocks", "spines", "states", "node", "block")
MOST_REVISIONS = 8  # of 12,500 nodes each is some 400 kB
MOST_DIFFERENCES = 16
# A difference of more rows than this share is no smaller than the whole.
_MOST_CHANGED = 0.25


@dataclass(slots=True)
class MapRevisions:
    """The bodies of the last revisions by their tags, and the differences between them that were asked for."""

    _bodies: OrderedDict[str, bytes] = field(default_factory=OrderedDict)
    _differences: OrderedDict[tuple[str, str], bytes] = field(default_factory=OrderedDict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def answer(self, tag: str, body: bytes, since: str | None) -> bytes:
        """The body of a revision, or its difference to another one where that is known and much smaller."""
        with self._lock:
            self._bodies[tag] = body
            self._bodies.move_to_end(tag)
            while len(self._bodies) > MOST_REVISIONS:
                self._bodies.popitem(last=False)
            older = self._bodies.get(since) if since is not None else None
            if since is None or older is None:
                return body
            key = (since, tag)
            if key not in self._differences:
                self._differences[key] = _difference(since, older, body) or body
                while len(self._differences) > MOST_DIFFERENCES:
                    self._differences.popitem(last=False)
            return self._differences[key]


def _difference(since: str, older: bytes, body: bytes) -> bytes | None:
    """The rows of a body that differ from an older one's; None where the whole is better."""
    old, new = orjson.loads(older), orjson.loads(body)
    if any(old[name] != new[name] for name in _FRAME):
        return None
    before, after = _rows(old), _rows(new)
    rows = [number for number, (was, now) in enumerate(zip(before, after, strict=True)) if was != now]
    if len(rows) > len(after) * _MOST_CHANGED:
        return None
    columns = {name: [new[name][row] for row in rows] for name in VALUES}
    frame: dict[str, Any] = {"blocks": [], "spines": [], "node": [], "block": []}
    return orjson.dumps(new | frame | columns | {"since": since, "rows": rows})


def _rows(body: dict[str, Any]) -> list[tuple[Any, ...]]:
    """Each node's values; its run by name, since runs are numbered anew in each revision."""
    runs = body["runs"]
    columns = [body[name] for name in VALUES[:-1]]
    return list(zip(*columns, (None if run is None else runs[run] for run in body["run"]), strict=True))

"""Requests of the subnet manager that nobody answers: one event of the three or four records that tell of each.

    log_send_error: ERR 5411: DR SMP Send completed with error (IB_TIMEOUT) -- dropping
                Method 0x1, Attr 0x11, TID 0x4f90
    Received SMP on a 3 hop path: Initial path = 0,1,39,3, Return path  = 0,0,0,0
    sm_mad_ctrl_send_err_cb: ERR 3113: MAD completed in error (IB_TIMEOUT): SubnGet(NodeInfo), attr_mod 0x0, TID 0x4f90
    sm_mad_ctrl_send_err_cb: ERR 3120: Timeout while getting attribute 0x11 (NodeInfo); Possible mis-set mkey?
    -> {"kind": "smp_timeout", "device": {"type": "switch", "uuid": "0xb83fd20300100080"},
        "attributes": {"error": "5411", "status": "IB_TIMEOUT", "path": "0,1,39,3", "request": "NodeInfo",
        "method": "SubnGet", "switch": "leaf03"}, ...}

The node is named by its directed route (the port numbers from the manager's own port on), by its LID where the request
was routed, and by GUID where the log has told which switch stands at the end of that route. A silent node may be
well and a link on the way to it not.
"""

import re
from dataclasses import replace
from datetime import datetime

from parsers.opensm_messages.names import Names
from store.catalog import judged
from store.event import Attribute, Device, Event

# The records of one timeout come within microseconds of each other, from one thread.
WITHIN_S = 0.2
WITHIN_LINES = 40

_DROPPED = re.compile(
    r"(?:\w{1,64}: )?ERR (?P<error>54\d\d): (?:DR SMP )?[Ss]end completed with error[^\n]{0,80}", re.ASCII
)
_DETAIL = re.compile(
    r"\((?P<status>IB_\w{1,32})\)|[,( ]LID:? ?(?P<lid>\d{1,5})|\b(?:Attr |attr=)(?P<attr>0x[0-9A-Fa-f]{1,4})", re.ASCII
)
_PATH = re.compile(
    r"Received SMP on a \d{1,3} hop path:\s{1,40}Initial path(?: =|:) {1,3}(?P<path>\d[\d,]{0,256})", re.ASCII
)
_COMPLETED = re.compile(
    r"(?:\w{1,64}: )?ERR (?P<error>3113): MAD completed in error \((?P<status>\w{1,32})\)"
    r"(?:: (?P<method>\w{1,24})\((?P<request>\w{1,40})\)(?:, attr_mod (?P<modifier>0x[0-9a-f]{1,8}))?)?",
    re.ASCII,
)
_AFTER = re.compile(r"(?:\w{1,64}: )?ERR (?:3120: |3119: |54\d\d: DR SMP Hop Ptr)", re.ASCII)


class Timeouts:
    """Gathers the records of one timed-out request. Holds one request at a time."""

    def __init__(self, names: Names) -> None:
        self._names = names
        self._held: Event | None = None
        self._thread = ""

    def read(self, text: str, time: datetime | None, line: int, thread: str) -> list[Event] | None:
        """The events of a message about a request without an answer; None for another message."""
        if match := _DROPPED.match(text):
            before = self.flush()
            self._open(match["error"], _detail(text), time, line, thread)
            return before
        held = self._held if thread == self._thread else None
        if match := _PATH.match(text):
            if held is not None:
                self._add({"path": match["path"].rstrip(",")})
            return []
        if match := _COMPLETED.match(text):
            return self._completed(match, held, time, line, thread)
        return [] if held is not None and _AFTER.match(text) else None

    def late(self, time: datetime | None, line: int) -> list[Event]:
        """The request that no more records are awaited of, as of a line."""
        held = self._held
        if held is None:
            return []
        if held.time is None or time is None:
            over = line - (held.line or 0) > WITHIN_LINES
        else:
            over = not 0 <= (time - held.time).total_seconds() <= WITHIN_S
        return self.flush() if over else []

    def flush(self) -> list[Event]:
        """What is held, as far as it is known."""
        held, self._held = self._held, None
        return [] if held is None else [self._named(held)]

    def _open(self, error: str, detail: dict[str, Attribute], time: datetime | None, line: int, thread: str) -> None:
        attributes: dict[str, Attribute] = {"error": error, **detail}
        self._held = judged(Event(time, None, "opensm", "smp_timeout", attributes=attributes, line=line))
        self._thread = thread

    def _add(self, attributes: dict[str, Attribute]) -> None:
        if self._held is not None:
            self._held = replace(self._held, attributes={**self._held.attributes, **attributes})

    def _completed(
        self, match: re.Match[str], held: Event | None, time: datetime | None, line: int, thread: str
    ) -> list[Event]:
        detail: dict[str, Attribute] = {
            name: match[name] for name in ("status", "method", "request") if match[name] is not None
        }
        before: list[Event] = []
        if held is None or "request" in held.attributes:  # its first records were not logged
            before = self.flush()
            self._open(match["error"], {}, time, line, thread)
        self._add(detail)
        return before

    def _named(self, event: Event) -> Event:
        attributes = dict(event.attributes)
        path, lid = attributes.get("path"), attributes.get("lid")
        guid = self._names.at_end_of(path) if isinstance(path, str) else None
        kind = "switch" if guid else "node"
        if guid is None and isinstance(lid, int):
            guid = self._names.guid_of(lid)
            kind = "node" if guid is None else "switch" if self._names.is_switch(guid) else "port"
        where = self._names.place_of(guid)
        target = where.text or guid or (f"LID {lid}" if lid else f"the end of route {path}" if path else "a node")
        what = attributes.get("request") or "a request"
        return replace(
            event,
            node=where.host,
            device=Device(type=kind, uuid=guid),
            message=f"No answer from {target} to {what} ({attributes.get('status', 'error')})",
            attributes={**attributes, **where.attributes()},
        )


def _detail(text: str) -> dict[str, Attribute]:
    """Status, LID and attribute number, wherever a version prints them."""
    found: dict[str, Attribute] = {}
    for match in _DETAIL.finditer(text, 0, 600):
        if match["status"]:
            found.setdefault("status", match["status"])
        elif match["lid"]:
            found.setdefault("lid", int(match["lid"]))
        else:
            found.setdefault("attr", match["attr"].lower())
    return found

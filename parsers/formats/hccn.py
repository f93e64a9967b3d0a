"""What Huawei's `hccn_tool` shows of an NPU's own network port: `-link_stat -g` with the port's history, `-link -g`.

    hccn_tool -i 0 -link_stat -g
    [devid 0]current time        : Tue Oct 28 21:46:46 2025
    [devid 0]link up count       : 2
    [devid 0]link change records :
    [devid 0]    Sun Oct  5 10:13:51 2025    LINK UP
    [devid 0]    Sun Oct  5 10:13:50 2025    LINK DOWN
    -> {"kind": "link_up", "time": "2025-10-05T10:13:51Z", "device": {"type": "npu", "index": 0}, ...}
       {"kind": "link_down", "time": "2025-10-05T10:13:50Z", "severity": "error", ...}

Older releases write `[device 0]`. The times are the host's, in the context's zone. A page of `-link -g` names no NPU
(`link status: DOWN`): the command above it does, as a shell shows it; its time is not known. Sources: logs in CANN's
guide of HCCL faults and in mind-cluster's guide of what to collect; ascend-common's devmanager/hccn (all public).
"""

import re
from collections.abc import Iterable
from dataclasses import replace

from parsers.text.parser import Context, Format
from parsers.text.stamp import Stamps
from store.records.event import Device, Event
from store.records.fault_catalog import with_kind_meaning

_NAME = "hccn"
_HEAD = r"\[dev(?:id|ice) (?P<index>\d{1,4})\]"
_RECORD = re.compile(
    rf"\s{{0,8}}{_HEAD}\s{{1,12}}[A-Z][a-z]{{2}} (?P<month>[A-Z][a-z]{{2}}) {{1,2}}(?P<day>\d{{1,2}}) "
    r"(?P<clock>\d{2}:\d{2}:\d{2}) (?P<year>\d{4})\s{1,12}LINK (?P<state>UP|DOWN)\s*",
    re.ASCII,
)
_ASKED = re.compile(r"\bhccn_tool (?=[^|]{0,60}-link -g\b)[^|]{0,60}?-i (?P<index>\d{1,4})\b", re.ASCII)
_NOW = re.compile(r"\s{0,8}link status: (?P<state>UP|DOWN)\s*", re.ASCII)


class HccnParser:
    """Decodes pages of one node. Holds of which NPU the next page is."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._stamps = Stamps(context)
        self._asked: int | None = None

    def feed(self, text: str, line: int) -> Iterable[Event]:
        """The event of a record of the port's history, and of a port that is down."""
        if match := _RECORD.fullmatch(text[:120]):
            time = self._stamps.dated(match["month"], match["day"], match["clock"], match["year"])
            event = self._event(int(match["index"]), match["state"], line)
            return [] if time is None else [replace(event, time=time)]
        if match := _ASKED.search(text[:200]):
            self._asked = int(match["index"])
        elif (match := _NOW.fullmatch(text[:80])) and self._asked is not None:
            index, self._asked = self._asked, None
            return [self._event(index, match["state"], line)] if match["state"] == "DOWN" else []
        return []

    def flush(self) -> Iterable[Event]:
        """Nothing is held that is an event."""
        return ()

    def _event(self, index: int, state: str, line: int) -> Event:
        event = Event(
            None, self._context.node, _NAME, f"link_{state.lower()}", device=Device("npu", index=index), line=line
        )
        return with_kind_meaning(event, "npu")


FORMAT = Format(
    name=_NAME,
    description="What Huawei's `hccn_tool` shows of an NPU's network port: `-link_stat -g`, `-link -g`",
    sample="[devid 0]    Sun Oct  5 10:13:50 2025    LINK DOWN",
    make=HccnParser,
    testimony="machine",
    recognises=re.compile(
        r"^\s{0,8}\[dev(?:id|ice) \d{1,4}\]\s*(?:link (?:up|down) count|link change records|current time)\s*:"
        r"|^\s{0,8}\[dev(?:id|ice) \d{1,4}\]\s.{20,40}LINK (?:UP|DOWN)\s*$|\bhccn_tool -i \d{1,4} -link",
        re.ASCII,
    ),
)

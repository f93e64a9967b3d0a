"""Logs of Huawei Ascend NPUs: plog and device logs of CANN, and those of mind-cluster's agents with fault codes.

    [ERROR] RUNTIME(10972,python):2023-06-08-04:41:08.266.505 [device_error_proc.cc:652]10972 ProcessSdmaErrorInfo:The error from device(0), ...
    -> {"kind": "npu_sdma_error", "time": "2023-06-08T04:41:08.266505Z", "device": {"type": "npu", "index": 0},
        "attributes": {"pid": 10972, "process": "python", "module": "RUNTIME"}, ...}

Device logs repeat the NPU's own kernel log (module KERNEL): its messages are read as a kernel's. Agents tell a fault's
start (Assertion 0x1) and its end (0x0). Logs are often trimmed by hand: a record may begin within a line, after another.
A box of failed connections spans lines: each of its rows is an event. A time far ahead comes from a clock that is not
set (one agent's log is dated 2999): such a time is not known.
"""  # noqa: E501  # one real line

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import datetime

from parsers.ascend_agents import decode_agent
from parsers.ascend_cann import decode_cann
from parsers.kernel_messages.decoder import MessageDecoder
from parsers.parser import Context, Format
from parsers.prefix import Record
from parsers.stamp import Stamps
from store.catalog import judged
from store.event import Attribute, Event

# Records that one line may hold; more is no log.
MAX_RECORDS = 32
# No log of ours is from later: the clock that stamped it was not set.
LAST_YEAR = 2100
MAX_MESSAGE = 500

_CANN = re.compile(
    r"\[(?P<level>[A-Z]{4,8})\] ?(?P<module>[A-Z][A-Z0-9_]{1,31})\((?P<pid>-?\d{1,10}),(?P<process>[^()]{0,64})\): ?"
    r"(?P<day>\d{4}-\d{2}-\d{2})-(?P<clock>\d{2}:\d{2}:\d{2}\.\d{3})\.(?P<micros>\d{3}) ?",
    re.ASCII,
)
_AGENT = re.compile(
    r"\[(?P<level>[A-Z]{4,8})\] {1,16}(?P<day>\d{4}/\d{2}/\d{2}) (?P<clock>\d{2}:\d{2}:\d{2}\.\d{1,6}) {1,8}"
    r"\d{1,10} {1,16}(?P<source>[\w./-]{1,160}\.go:\d{1,6}) {1,8}",
    re.ASCII,
)
_SERVICE = re.compile(
    r"\[(?P<time>\d{4}-\d{2}-\d{2} \d{2}:\d{2}:\d{2}\.\d{1,6})\] (?:\[\w{1,20}\] ){2,6}\[ERROR\] : "
    r"\[(?P<code>MIE[0-9A-F]{6,12})\] (?:\[(?P<name>\w{1,64})\] ?)?",
    re.ASCII,
)
_KERNEL_TEXT = re.compile(r"\[klogd\.c:\d{1,6}\] ?\[ *\d{1,12}\.\d{1,9}\] ?")
_NOBODY = frozenset({"null", "None", ""})


class AscendParser:
    """Decodes lines of Ascend logs. Holds the fault whose details the NPU's own kernel has yet to tell."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._stamps = Stamps(context)
        self._kernel = MessageDecoder(context.node)

    def feed(self, text: str, line: int) -> Iterable[Event]:
        """The events of one line; it may hold several records."""
        return [replace(event, source="ascend") for event in self._events(text, line)]

    def flush(self) -> Iterable[Event]:
        """The fault that is held."""
        return [replace(event, source="ascend") for event in self._kernel.flush()]

    def _events(self, text: str, line: int) -> Iterator[Event]:
        if not text.startswith("["):
            head = _CANN.search(text) or _AGENT.search(text)
            if head is None:
                return
            text = text[head.start() :]
        if agent := _AGENT.match(text):
            time = self._moment(agent["day"].replace("/", "-"), agent["clock"])
            yield from self._placed(decode_agent(text[agent.end() :]), time, line)
        elif service := _SERVICE.match(text):
            time = _known(self._stamps.iso(service["time"]))
            yield from self._placed(_service_error(service, text[service.end() :]), time, line)
        else:
            yield from self._records(text, line)

    def _records(self, text: str, line: int) -> Iterator[Event]:
        """CANN's records: each begins with its level."""
        heads = [head for _, head in zip(range(MAX_RECORDS), _CANN.finditer(text), strict=False)]
        ends = [*(head.start() for head in heads), len(text)][1:]
        for head, end in zip(heads, ends, strict=False):
            time = self._moment(head["day"], head["clock"] + head["micros"])
            rest = text[head.end() : end]
            if head["module"] == "KERNEL":
                message = rest[match.end() :] if (match := _KERNEL_TEXT.match(rest)) else rest
                yield from self._kernel.decode(Record(time=time, node=None, tag="kernel", message=message), line)
            elif head["level"] in ("ERROR", "EVENT"):
                yield from self._placed(decode_cann(head["module"], rest, _process(head)), time, line)

    def _placed(self, event: Event | None, time: datetime | None, line: int) -> Iterator[Event]:
        if event is not None:
            yield replace(event, time=time, node=self._context.node, line=line, message=event.message[:MAX_MESSAGE])

    def _moment(self, day: str, clock: str) -> datetime | None:
        return _known(self._stamps.iso(f"{day}T{clock}"))


def _known(moment: datetime | None) -> datetime | None:
    """The moment, unless it comes from a clock that is not set."""
    return None if moment is None or moment.year >= LAST_YEAR else moment


def _process(head: re.Match[str]) -> dict[str, Attribute]:
    """Who wrote a record: firmware has no process."""
    attributes: dict[str, Attribute] = {"module": head["module"]}
    if int(head["pid"]) > 0:
        attributes["pid"] = int(head["pid"])
        if head["process"] not in _NOBODY:
            attributes["process"] = head["process"]
    return attributes


def _service_error(head: re.Match[str], message: str) -> Event:
    """An error of the inference server, by its code."""
    attributes: dict[str, Attribute] = {"error_code": head["code"]}
    if head["name"]:
        attributes["name"] = head["name"]
    return judged(Event(None, None, "ascend", "mindie_error", message=message.strip(), attributes=attributes))


FORMAT = Format(
    name="ascend",
    description="Logs of Huawei Ascend NPUs: plog, device logs, mind-cluster's agents",
    sample="[ERROR] RUNTIME(10972,python):2023-06-08-04:41:08.266.505 [device_error_proc.cc:652]10972 "
    "ProcessSdmaErrorInfo:The error from device(0), serial number is 1. there is a sdma error, sdma channel is 0",
    make=AscendParser,
    recognises=re.compile(
        r"^\[[A-Z]{4,8}\] ?[A-Z][A-Z0-9_]{1,31}\(-?\d{1,10},[^()]{0,64}\): ?\d{4}-\d{2}-\d{2}-\d{2}:"
        r"|^\[[A-Z]{4,8}\] {1,16}\d{4}/\d{2}/\d{2} \d{2}:\d{2}:\d{2}\.\d{1,6} {1,8}\d{1,10} {1,16}[\w./-]{1,160}\.go:"
        r"|\] : \[MIE[0-9A-F]{6,12}\]",
        re.ASCII,
    ),
)

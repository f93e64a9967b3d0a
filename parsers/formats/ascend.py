"""Logs of Huawei Ascend NPUs: plog and device logs of CANN, and those of mind-cluster's agents with fault codes.

    [ERROR] RUNTIME(10972,python):2023-06-08-04:41:08.266.505 [device_error_proc.cc:652]10972 ProcessSdmaErrorInfo:The
    error from device(0), ...
    -> {"kind": "npu_sdma_error", "time": "2023-06-08T04:41:08.266505Z", "device": {"type": "npu", "index": 0},
        "attributes": {"pid": 10972, "process": "python", "module": "RUNTIME"}, ...}

Device logs repeat the NPU's own kernel log (module KERNEL): its messages are read as a kernel's. Agents tell a fault's
start (Assertion 0x1) and its end (0x0). Logs are often trimmed by hand: a record may begin within a line, after
another.
A box of failed connections spans lines: each of its rows is an event. A time far ahead comes from a clock that is not
set (one agent's log is dated 2999): such a time is not known.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import datetime

from parsers.kernel_messages.decoder import MessageDecoder
from parsers.text.parser import Context, Format
from parsers.text.prefix import LogRecord
from parsers.text.stamp import Stamps
from store.records.event import Attribute, Device, Event
from store.records.fault_catalog import with_ascend_code, with_kind_meaning

# What mind-cluster's agents say of faults: the device plugin of NPUs and switches, the node's agent of its BMC.
#
#     receive devFaultInfo: {2162167813 3 5 0 0 0 4 1 1709267106000}, hex code: 80e01805
#     switch subscribe got fault:...{..., AssembledFaultCode:"[0x00f1fef5,155914,L2,na]", SwitchChipId:0x0, ...,
# Assertion:0x1, ...}, faultCode:...
#     get fault event, [device type: NPU]-[device id: 15]-[error code: 56000005]
#
# A fault is raised with Assertion 1 (or 2, for one that has no end) and over with Assertion 0.

_CHIP = re.compile(
    r"receive devFaultInfo: \{(?P<fields>[^{}]{1,400})\}, hex (?:fault )?code: (?P<code>[0-9a-fA-F]{1,9})\b"
)
_SWITCH = re.compile(r"switch subscribe got fault: ?(?P<fields>.{1,2000})", re.ASCII | re.DOTALL)
_SWITCH_CODE = re.compile(
    r"AssembledFaultCode: ?\"?\[(?P<code>0x[0-9a-fA-F]{1,8},\s?\w{1,12},\s?\w{1,12},\s?\w{1,12})\]"
)
_NODE = re.compile(
    r"get fault event, \[device type: (?P<name>[^\]]{1,64})\]-\[device id: (?P<unit>\d{1,5})\]-"
    r"\[error code: (?P<code>[0-9a-fA-F]{8})\]",
    re.ASCII,
)
_FIELD = re.compile(r"(\w{1,40}): ?(0x[0-9a-fA-F]{1,16}|-?\d{1,20})\b", re.ASCII)
# A struct printed without names: event, logic id, module and submodule with their ids, severity, assertion, time.
_CHIP_FIELDS = ("EventID", "LogicID", "ModuleType", "ModuleID", "SubModuleType", "SubModuleID", "Severity", "Assertion")
_SWITCH_ATTRIBUTES = {"PeerPortDevice": "peer_device", "PeerPortId": "peer_port"}
# The agent's number for a part that has none.
_NO_UNIT = 255


def decode_agent(message: str) -> Event | None:
    """The fault of an agent's message, without time, node and line; None where it tells none."""
    if match := _CHIP.match(message):
        return _chip(match)
    if match := _SWITCH.match(message):
        return _switch(match["fields"])
    if match := _NODE.match(message):
        return _node(match)
    return None


def _chip(match: re.Match[str]) -> Event | None:
    fields = _numbers(match["fields"])
    if not fields:
        words = match["fields"].split()
        fields = {
            name: int(word)
            for name, word in zip(_CHIP_FIELDS, words, strict=False)
            if word.removeprefix("-").isdecimal() and len(word) < 19
        }
    index = fields.get("LogicID")
    if int(match["code"], 16) == 0 or index is None:
        return None
    device = Device(type="npu", index=index if index >= 0 else None)
    event = Event(None, None, "ascend", "", device=device)
    return with_ascend_code(event, match["code"].upper().rjust(8, "0"), over=fields.get("Assertion") == 0)


def _switch(text: str) -> Event | None:
    code = _SWITCH_CODE.search(text)
    if code is None:
        return None
    fields = _numbers(text)
    attributes: dict[str, Attribute] = {
        name: fields[field] for field, name in _SWITCH_ATTRIBUTES.items() if field in fields
    }
    device = Device(type="switch", index=fields.get("SwitchChipId"), port=fields.get("SwitchPortId"))
    event = Event(None, None, "ascend", "", device=device, attributes=attributes)
    return with_ascend_code(event, code["code"], "switch", over=fields.get("Assertion") == 0)


def _node(match: re.Match[str]) -> Event:
    unit = int(match["unit"])
    is_npu = match["name"] == "NPU"
    attributes: dict[str, Attribute] = {"name": match["name"]}
    if unit != _NO_UNIT and not is_npu:
        attributes["unit"] = unit
    device = Device(type="npu", index=unit if unit != _NO_UNIT else None) if is_npu else Device(type="node")
    return with_ascend_code(
        Event(None, None, "ascend", "", device=device, attributes=attributes), match["code"], "node"
    )


def _numbers(text: str) -> dict[str, int]:
    """The fields that a record can hold: whole numbers of 63 bits, decimal or, after 0x, hexadecimal."""
    read = ((name, int(number, 16 if number.startswith("0x") else 10)) for name, number in _FIELD.findall(text))
    return {name: number for name, number in read if abs(number) < 2**63}


# What CANN's modules say of faults: tasks and cores of an NPU, its memory, its links, the ranks that it talks to.
#
#     RUNTIME: [stars_engine.cc:1551]6219 ProcLogicCqReport:[FINAL][FINAL]Task run failed, device_id=3, stream_id=2, ...
#     HCCL: [comm_base.cc:1018][42715]   |  124.0.0.21(0)   |   124.0.0.11(1)   |  client  | no connect |
#     -> kinds npu_task_failed, hccl_link_timeout
#
# In a box of failed connections the other end stands first.
# An error is reported in many lines; those that only add registers, addresses or table heads give nothing.
# Forms: the log lines in the tests of mind-cluster's fault diagnosis (Apache-2.0), public issue threads.

_PLACE = re.compile(
    r"(?:\[[^\[\]]{1,300}\] ?){1,8}(?:\d{1,10} )?|\d{1,10} \(dieid:\d{1,4},cpuid:\d{1,4}\) \S{1,80}:\d{1,6} "
)
_INDEX = re.compile(
    r"\b(?:device_id[=:] ?|dev_id=|device\((?:chipId:)?|device\[|devId: ?|devid[=-]|devicePhyId\[|logicDevid:)"
    r"(?P<index>\d{1,4})\b",
    re.ASCII,
)
_DETAIL = re.compile(r"The extend info|Some NPU|\w{1,80}: ?The extend info", re.ASCII)
# Whom HCCL's heartbeats accuse: the address of its host and its NPU there.
_ACCUSED = (
    r"Cluster Exception Location\[IP/ID\]:\[(?P<peer>[\w.:%-]{1,80})/(?P<peer_device>\d{1,4})\].{0,160}?"
    r"(?:Discoverer:\[(?P<ip>[\w.:%-]{1,80})/\d{1,4}\].{0,40}?)?"
)
# Kind, the modules that tell it (empty: any), and what its text holds.
_FORMS: tuple[tuple[str, str, re.Pattern[str]], ...] = tuple(
    (kind, module, re.compile(pattern, re.ASCII))
    for kind, module, pattern in (
        (
            "hccl_heartbeat_lost",
            "HCCL",
            r"server:(?P<peer>[\w.:-]{1,80})(?:/(?P<peer_device>\d{1,4}))?, .{0,120}Heartbeat Lost Occurred",
        ),
        ("hccl_heartbeat_lost", "HCCL", rf"{_ACCUSED}ExceptionType:\[Heartbeat Lost Occurred"),
        ("hccl_rank_stuck", "HCCL", rf"{_ACCUSED}ExceptionType:\[Stuck Occurred"),
        ("hccl_heartbeat_lost", "HCCL", r"Heartbeat Lost Occurred"),
        (
            "hccl_cqe_error",
            "HCCL",
            r"cqe err(?:or)? status ?\[(?P<status>\d{1,6})\](?:.{0,120}?(?:\bip|remoteIP):\["
            r"(?P<peer>[\w.:/]{1,80})\])?",
        ),
        (
            "hccl_link_timeout",
            "HCCL",
            r"\| {1,8}(?P<peer>[\w.:]{1,45})\((?P<peer_rank>\d{1,9})\) {1,8}\|(?: {1,8}\d{1,12} {1,8}\|)? {1,8}"
            r"(?P<ip>[\w.:]{1,45})"
            r"\((?P<rank>\d{1,9})\) {1,8}\|(?: {1,8}\d{1,12} {1,8}\|)? {1,8}(?P<role>client|server) {1,8}\| {1,8}"
            r"(?P<state>[a-z ]{1,40}?) {1,8}\|",
        ),
        ("hccl_link_timeout", "HCCL", r"get (?:socket|sokcet) timeout|wait socket establish timeout"),
        ("hccl_link_timeout", "HCCL", r"Wait timeout for sockets|connected p2p timeout|Wait Enable P2P Failed"),
        ("hccl_link_timeout", "HCCL", r"failed to recv exchangeData"),
        ("hccl_link_timeout", "HCCL", r"Transport init error!.{0,200}remoteIpAddr\[(?P<peer>[\w.:/]{1,80})\]"),
        (
            "npu_core_error",
            "",
            r"there is an? (?:exception of )?(?:fftsplus )?(?P<unit>aicore|aivec|aicpu|vector core)[\w ]{0,20}error"
            r"(?:, core id is (?P<core>\d{1,4}), error code = (?P<error_code>0x[0-9a-fA-F]{1,16}|\d{1,20}))?",
        ),
        (
            "npu_sdma_error",
            "",
            r"there is an? (?:exception of )?(?:fftsplus )?sdma error|\[fftsplus sdma error\]",
        ),
        ("npu_out_of_memory", "", r"halMemAlloc failed"),
        ("npu_lost", "", r"DEV_RUNNING_DOWN"),
        ("npu_channel_failed", "", r"hdc send msg fail"),
        ("npu_task_failed", "", r"Task run failed,|Task \{.{1,300}\} run failed of exception"),
        ("npu_task_failed", "", r"Task exception! device_id=|Task fail infos task_id: "),
        ("npu_task_failed", "", r"(?P<error_code>E\d{5})Memory async copy failed"),
        ("npu_task_timeout", "TSCH", r"hwts timeout exception bitmap=(?P<bitmap>0x[0-9a-fA-F]{1,16})"),
    )
)
_NUMBERS = frozenset({"status", "rank", "peer_rank", "peer_device", "core"})
# What the firmware says of its own port: a status, and a fault only where the link is gone.
_PORT = re.compile(
    r"\(device_id:(?P<index>\d{1,4}) die_id:\d{1,4}\) \[IMP\] present (?P<present>[01]), mac_link (?P<mac>[01]), "
    r"pcs_link (?P<pcs>[01])",
    re.ASCII,
)


def decode_cann(module: str, text: str, about: Mapping[str, Attribute]) -> Event | None:
    """The event of a module's record, without time, node and line; None where it tells none. `about`: who wrote it."""
    place = _PLACE.match(text)
    message = text[place.end() if place else 0 :].strip()
    if module == "IMP":
        return _port(text, about)
    if _DETAIL.match(message):
        return None
    for kind, of, pattern in _FORMS:
        if of in ("", module) and (match := pattern.search(message)):
            found = {name: value for name, value in match.groupdict().items() if value}
            attributes = dict(about) | {
                name: int(value) if name in _NUMBERS else value for name, value in found.items()
            }
            index = _INDEX.search(message)
            device = Device(type="npu", index=int(index["index"]) if index else None)
            return with_kind_meaning(
                Event(None, None, "ascend", kind, device=device, message=message, attributes=attributes)
            )
    return None


def _port(text: str, about: Mapping[str, Attribute]) -> Event | None:
    match = _PORT.search(text)
    if match is None or (match["mac"] == "1" and match["pcs"] == "1"):
        return None
    attributes: dict[str, Attribute] = {**about, "present": int(match["present"])}
    device = Device(type="npu", index=int(match["index"]))
    event = Event(None, None, "ascend", "link_down", device=device, message=text.strip(), attributes=attributes)
    return with_kind_meaning(event, "npu")


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
                yield from self._kernel.decode(LogRecord(time=time, node=None, tag="kernel", message=message), line)
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
    return with_kind_meaning(
        Event(None, None, "ascend", "mindie_error", message=message.strip(), attributes=attributes)
    )


FORMAT = Format(
    name="ascend",
    description="Logs of Huawei Ascend NPUs: plog, device logs, mind-cluster's agents",
    sample="[ERROR] RUNTIME(10972,python):2023-06-08-04:41:08.266.505 [device_error_proc.cc:652]10972 "
    "ProcessSdmaErrorInfo:The error from device(0), serial number is 1. there is a sdma error, sdma channel is 0",
    make=AscendParser,
    testimony="machine",
    recognises=re.compile(
        r"^\[[A-Z]{4,8}\] ?[A-Z][A-Z0-9_]{1,31}\(-?\d{1,10},[^()]{0,64}\): ?\d{4}-\d{2}-\d{2}-\d{2}:"
        r"|^\[[A-Z]{4,8}\] {1,16}\d{4}/\d{2}/\d{2} \d{2}:\d{2}:\d{2}\.\d{1,6} {1,8}\d{1,10} {1,16}[\w./-]{1,160}\.go:"
        r"|\] : \[MIE[0-9A-F]{6,12}\]",
        re.ASCII,
    ),
)

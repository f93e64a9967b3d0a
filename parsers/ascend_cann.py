"""What CANN's modules say of faults: tasks and cores of an NPU, its memory, its links, the ranks that it talks to.

    RUNTIME: [stars_engine.cc:1551]6219 ProcLogicCqReport:[FINAL][FINAL]Task run failed, device_id=3, stream_id=2, ...
    HCCL: [comm_base.cc:1018][42715]   |  124.0.0.21(0)   |   124.0.0.11(1)   |  client  | no connect |
    -> kinds npu_task_failed, hccl_link_timeout

In a box of failed connections the other end stands first.
An error is told in many lines; those that only add registers, addresses or table heads give nothing.
Forms: the log lines in the tests of mind-cluster's fault diagnosis (Apache-2.0), public issue threads.
"""

import re
from collections.abc import Mapping

from store.catalog import judged
from store.event import Attribute, Device, Event

_PLACE = re.compile(
    r"(?:\[[^\[\]]{1,300}\] ?){1,8}(?:\d{1,10} )?|\d{1,10} \(dieid:\d{1,4},cpuid:\d{1,4}\) \S{1,80}:\d{1,6} "
)
_INDEX = re.compile(
    r"\b(?:device_id[=:] ?|device\((?:chipId:)?|device\[|devId: ?|devid[=-]|devicePhyId\[|logicDevid:)"
    r"(?P<index>\d{1,4})\b",
    re.ASCII,
)
_DETAIL = re.compile(r"The extend info|Some NPU|\w{1,80}: ?The extend info", re.ASCII)
# Kind, the modules that tell it (empty: any), and what its text holds.
_FORMS: tuple[tuple[str, str, re.Pattern[str]], ...] = tuple(
    (kind, module, re.compile(pattern, re.ASCII))
    for kind, module, pattern in (
        ("hccl_heartbeat_lost", "HCCL", r"server:(?P<peer>[\w.:/-]{1,80}), .{0,120}Heartbeat Lost Occurred"),
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
        ("npu_sdma_error", "", r"there is an? (?:exception of )?(?:fftsplus )?sdma error"),
        ("npu_out_of_memory", "", r"halMemAlloc failed"),
        ("npu_lost", "", r"DEV_RUNNING_DOWN"),
        ("npu_channel_failed", "", r"hdc send msg fail"),
        ("npu_task_failed", "", r"Task run failed,|Task \{.{1,300}\} run failed of exception"),
        ("npu_task_failed", "", r"(?P<error_code>E\d{5})Memory async copy failed"),
        ("npu_task_timeout", "TSCH", r"hwts timeout exception bitmap=(?P<bitmap>0x[0-9a-fA-F]{1,16})"),
    )
)
_NUMBERS = frozenset({"status", "rank", "peer_rank", "core"})
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
            return judged(Event(None, None, "ascend", kind, device=device, message=message, attributes=attributes))
    return None


def _port(text: str, about: Mapping[str, Attribute]) -> Event | None:
    match = _PORT.search(text)
    if match is None or (match["mac"] == "1" and match["pcs"] == "1"):
        return None
    attributes: dict[str, Attribute] = {**about, "present": int(match["present"])}
    device = Device(type="npu", index=int(match["index"]))
    event = Event(None, None, "ascend", "link_down", device=device, message=text.strip(), attributes=attributes)
    return judged(event, "npu")

"""The Ascend driver: exceptions of an NPU's task scheduler by code, NPUs that the driver cannot talk to.

    [ascend] [ERROR] [tsdrv] [tsdrv_hb_cq_callback 319] <swapper/30:0> receive ts exception msg, call excep_code=0xb4060007, ... devid=1 tsid=0
    -> Event(kind="ascend_fault", code=0xB4060007, severity="error", action="restart_app", device=Device("npu", index=1),
             attributes={"fault_code": "B4060007"})

Forms: the driver's messages in the tests of Ascend mind-cluster's fault diagnosis, and public write-ups.
Most of the driver's messages are steps of one fault (pointers, registers): they give nothing.
"""  # noqa: E501  # one real line

import re

from parsers.kernel_messages.family import Family
from store.ascend_codes import coded
from store.catalog import judged
from store.event import Device, Event

_HEAD = re.compile(
    r"\[ascend\] (?:\[(?:ERROR|WARN|WARNING|EVENT|INFO)\] ?)?\[\w{1,40}\] ?\[\w{1,120} \d{1,6}\] ?(?:<[^>]{0,80}> ?)?",
    re.ASCII,
)
_CODE = re.compile(r"(?:excep_code=|call mntn_system_error: )0x(?P<code>[0-9a-fA-F]{1,9})\b", re.ASCII)
_DEVICE = re.compile(r"\bdev(?:_|ice_)?id[-=: ]{1,2}(?P<index>\d{1,4})\b", re.ASCII)


def decode(message: str) -> Event | None:
    """The event of the driver's message, without time and node; None where it tells no fault."""
    head = _HEAD.match(message)
    if not head:
        return None
    text = message[head.end() :].strip()
    device = _DEVICE.search(text)
    event = Event(
        time=None,
        node=None,
        source="kernel",
        kind="npu_abnormal",
        device=Device(type="npu", index=int(device["index"]) if device else None),
        message=text,
    )
    if code := _CODE.search(text):
        return coded(event, code["code"])
    return judged(event) if text.startswith("Device is abnormal") else None


FAMILY = Family(
    name="ascend",
    signs=("call excep_code=0x", "call mntn_system_error: 0x", "> Device is abnormal"),
    decode=decode,
)

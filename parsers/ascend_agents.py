"""What mind-cluster's agents say of faults: the device plugin of NPUs and switches, the node's agent of its BMC.

    receive devFaultInfo: {2162167813 3 5 0 0 0 4 1 1709267106000}, hex code: 80e01805
    switch subscribe got fault:...{..., AssembledFaultCode:"[0x00f1fef5,155914,L2,na]", SwitchChipId:0x0, ..., Assertion:0x1, ...}, faultCode:...
    get fault event, [device type: NPU]-[device id: 15]-[error code: 56000005]

A fault is raised with Assertion 1 (or 2, for one that has no end) and over with Assertion 0.
"""  # noqa: E501  # real lines

import re

from store.ascend_codes import coded
from store.event import Attribute, Device, Event

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
            if word.lstrip("-").isdigit() and len(word) < 19
        }
    index = fields.get("LogicID")
    if int(match["code"], 16) == 0 or index is None:
        return None
    device = Device(type="npu", index=index if index >= 0 else None)
    event = Event(None, None, "ascend", "", device=device)
    return coded(event, match["code"].upper().rjust(8, "0"), over=fields.get("Assertion") == 0)


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
    return coded(event, code["code"], "switch", over=fields.get("Assertion") == 0)


def _node(match: re.Match[str]) -> Event:
    unit = int(match["unit"])
    is_npu = match["name"] == "NPU"
    attributes: dict[str, Attribute] = {"name": match["name"]}
    if unit != _NO_UNIT and not is_npu:
        attributes["unit"] = unit
    device = Device(type="npu", index=unit if unit != _NO_UNIT else None) if is_npu else Device(type="node")
    return coded(Event(None, None, "ascend", "", device=device, attributes=attributes), match["code"], "node")


def _numbers(text: str) -> dict[str, int]:
    """The fields that a record can hold: whole numbers of 63 bits, decimal or, after 0x, hexadecimal."""
    read = ((name, int(number, 16 if number.startswith("0x") else 10)) for name, number in _FIELD.findall(text))
    return {name: number for name, number in read if abs(number) < 2**63}

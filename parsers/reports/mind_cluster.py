"""ConfigMaps of Huawei's MindCluster: what its device plugin says of a node's NPUs and switches, NodeD of its host.

    {"kind": "ConfigMap", "metadata": {"name": "mindx-dl-deviceinfo-npu-01"}, "data": {"DeviceInfoCfg":
     "{\\"DeviceInfo\\": {\\"DeviceList\\": {\\"huawei.com/Ascend910-Fault\\": ...
    -> {"kind": "ascend_fault", "node": "npu-01", "device": {"type": "npu", "index": 5}, "attributes": {"fault_code":
        "80E01801", "level": "RestartBusiness"}, ...}

Each value is JSON within JSON. A fault is told once, its end where the map no longer lists it. How grave it is says the
level in the map: a site may set its own; where it is none that we know, our table does. Fault times are milliseconds.
Sources: mind-cluster's ascend-device-plugin pkg/common (DeviceInfoCfg, SwitchInfoCfg, DeviceFault, FaultTimeAndLevel),
noded and clusterd pkg/common/constant (NodeInfo, FaultDev), all Apache-2.0. ClusterD's own maps repeat these.
"""

import re
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import orjson

from parsers.reports.reported_states import MAX_STATES
from parsers.text.json_fields import attributes, moment_of, record_of, records_of, text_of, whole_of
from store.records.event import Device, Event
from store.records.fault_catalog import AscendPart, with_ascend_code, with_kind_meaning

KIND = "ConfigMap"
_NAME = re.compile(r"mindx-dl-(?:device|node|switch)info-(?P<node>[a-z0-9][a-z0-9.-]{0,252})", re.ASCII)
_NPU = re.compile(r"Ascend\w{1,16}-(?P<index>\d{1,4})", re.ASCII)
_CODE = re.compile(r"[0-9A-Fa-f]{4,9}", re.ASCII)
_SWITCH = re.compile(r"\[?(?P<code>0x[0-9a-fA-F]{1,8}, ?\w{1,12}, ?\w{1,12}, ?\w{1,12})\]?", re.ASCII)
# Levels of a fault, of an NPU, a switch and a host, and the form of the kind that each is.
_LEVELS: Mapping[AscendPart, Mapping[str, str]] = {
    "npu": {
        "NotHandleFault": "not_handled",
        "SubHealthFault": "sub_health",
        "RestartRequest": "restart_request",
        "RestartBusiness": "restart_business",
        "FreeRestartNPU": "free_restart",
        "RestartNPU": "restart_npu",
        "PreSeparateNPU": "pre_separate",
        "SeparateNPU": "separate",
    },
    "switch": {
        "NotHandle": "switch_not_handled",
        "NotHandleFault": "switch_not_handled",
        "SubHealth": "switch_sub_health",
        "SubHealthFault": "switch_sub_health",
        "RestartRequest": "switch_restart_request",
        "RestartRequestFault": "switch_restart_request",
        "Separate": "switch_separate",
        "SeparateFault": "switch_separate",
    },
    "node": {
        "NotHandleFault": "node_not_handled",
        "PreSeparateFault": "node_pre_separate",
        "SeparateFault": "node_separate",
    },
}
# NPUs of one node, faults of one NPU or node, and characters of one value.
_MOST_DEVICES, _MOST_FAULTS, _MOST_CHARS = 128, 128, 1_048_576

_Faults = dict[tuple[AscendPart, Device, str], Event]


class MindClusterReader:
    """Reads ConfigMaps. Remembers the faults that each lists."""

    def __init__(self) -> None:
        self._listed: OrderedDict[str, _Faults] = OrderedDict()

    def read(self, record: Mapping[str, Any], line: int) -> list[Event]:
        """The events of a map: the faults that are new, and the ends of those that it no longer lists."""
        name = text_of(record_of(record, "metadata"), "name") or ""
        match = _NAME.fullmatch(name)
        data = record_of(record, "data")
        if match is None or not data.keys() & {"DeviceInfoCfg", "NodeInfo", "SwitchInfoCfg"}:
            return []
        bare = Event(None, match["node"], "kubernetes", "ascend_fault", line=line)
        now = {**_of_npus(data, bare), **_of_switches(data, bare), **_of_host(data, bare)}
        before = self._listed.pop(name, {})
        if now:
            self._listed[name] = now
            if len(self._listed) > MAX_STATES:
                self._listed.popitem(last=False)
        over = [
            with_ascend_code(replace(bare, device=device), code, part, over=True)
            for part, device, code in before.keys() - now.keys()
        ]
        return [event for key, event in now.items() if key not in before] + sorted(over, key=repr)


def _of_npus(data: Mapping[str, Any], bare: Event) -> _Faults:
    listed = record_of(record_of(_inner(data, "DeviceInfoCfg"), "DeviceInfo"), "DeviceList")
    found: _Faults = {}
    for key, text in listed.items():
        faults = _json(text) if key.endswith("-Fault") else None
        for one in faults[:_MOST_DEVICES] if isinstance(faults, list) else ():
            npu = _NPU.fullmatch(text_of(one, "npu_name") or "") if isinstance(one, dict) else None
            if npu is not None:
                device = Device("npu", index=int(npu["index"]))
                found.update(_of_npu(one, replace(bare, device=device)))
    return found


def _of_npu(one: Mapping[str, Any], bare: Event) -> _Faults:
    """The codes of one NPU: each with its time and level, else with the level of them all."""
    dated = record_of(one, "fault_time_and_level_map")
    codes = list(dated) or [code.strip() for code in (text_of(one, "fault_code") or "").split(",")]
    found: _Faults = {}
    for code in codes[:_MOST_FAULTS]:
        if not _CODE.fullmatch(code):
            continue
        own = record_of(dated, code)
        level = text_of(own, "fault_level") or text_of(one, "fault_level")
        seconds, ms = divmod(whole_of(own.get("fault_time")) or 0, 1000)
        time = moment_of({"told": {"seconds": seconds, "nanos": ms * 1_000_000}}, "told")
        event = replace(bare, time=time, attributes=attributes(level=level, fault_type=text_of(one, "fault_type")))
        found["npu", bare.device, code.upper()] = _graded(event, code.upper(), "npu", level)
    return found


def _of_switches(data: Mapping[str, Any], bare: Event) -> _Faults:
    told = _inner(data, "SwitchInfoCfg")
    level = text_of(told, "FaultLevel")
    codes = told.get("FaultCode")
    found: _Faults = {}
    for text in codes[:_MOST_FAULTS] if isinstance(codes, list) else ():
        if isinstance(text, str) and (match := _SWITCH.search(text[:200])):
            event = replace(bare, device=Device("switch"), attributes=attributes(level=level))
            found["switch", event.device, match["code"]] = _graded(event, match["code"], "switch", level)
    return found


def _of_host(data: Mapping[str, Any], bare: Event) -> _Faults:
    found: _Faults = {}
    for one in records_of(record_of(_inner(data, "NodeInfo"), "NodeInfo"), "FaultDevList")[:_MOST_DEVICES]:
        level, codes = text_of(one, "FaultLevel"), one.get("FaultCode")
        said = attributes(level=level, name=text_of(one, "DeviceType"), unit=whole_of(one.get("DeviceId")))
        for code in codes[:_MOST_FAULTS] if isinstance(codes, list) else ():
            if isinstance(code, str) and _CODE.fullmatch(code):
                event = replace(bare, device=Device(), attributes=said)
                found["node", event.device, code.upper()] = _graded(event, code.upper(), "node", level)
    return found


def _graded(event: Event, code: str, part: AscendPart, level: str | None) -> Event:
    coded = with_ascend_code(event, code, part)
    form = _LEVELS[part].get(level or "")
    return coded if form is None else with_kind_meaning(replace(coded, message=""), form)


def _inner(data: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    found = _json(data.get(key))
    return found if isinstance(found, dict) else {}


def _json(text: object) -> Any:
    if not isinstance(text, str) or len(text) > _MOST_CHARS:
        return None
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return None

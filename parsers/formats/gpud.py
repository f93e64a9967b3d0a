"""gpud: the events and the health states of its components (`/v1/events`, `/v1/states`, `/v1/info`).

    [{"component": "accelerator-nvidia-error-xid", "events": [{"time": "2025-03-01T04:05:06Z", "name": "error_xid",
      "type": "Fatal", "message": "XID 79 (GPU has fallen off the bus) detected on GPU PCI:0000:0f:00 UUID:GPU-..."}]}]
    -> {"kind": "xid", "code": 79, "device": {"type": "gpu", "pci": "0000:0f:00.0", "uuid": "GPU-..."}, ...}

Schema: api/v1/types.go of leptonai/gpud. Its pages name no node: that comes from the reader.
A state is reported when it changes: a healthy one only after another.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any

import orjson

from parsers.reports.detector_report import DetectorReport, event_of, kernel_fault, xid_in
from parsers.reports.reported_states import ReportedStates
from parsers.text.documents import Document, DocumentParser
from parsers.text.json_fields import attributes, moment_of, record_of, text_of
from parsers.text.parser import Context, Format
from store.records.event import Action, Device, Event, Severity, canonical_pci

_SEVERITY: Mapping[str, Severity] = {"Info": "info", "Warning": "warning", "Critical": "error", "Fatal": "fatal"}
_HEALTH: Mapping[str, Severity] = {"Unhealthy": "error", "Degraded": "warning", "Healthy": "info"}
_ACTION: Mapping[str, Action] = {
    "IGNORE_NO_ACTION_REQUIRED": "none",
    "REBOOT_SYSTEM": "reboot_node",
    "HARDWARE_INSPECTION": "run_diagnostics",
    "CHECK_USER_APP_AND_GPU": "restart_app",
}
_DETECTOR = "gpud"
_HEALED = "SetHealthy"
_FAMILY = {"accelerator-nvidia-error-xid": "xid", "accelerator-nvidia-error-sxid": "sxid"}
_UUID = re.compile(r"\bGPU-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b", re.ASCII)
_PCI = re.compile(
    r"\b(?:PCI:)?(?:[0-9a-f]{4}|[0-9a-f]{8}):[0-9a-f]{2}:[0-9a-f]{2}(?:\.[0-7])?\b", re.IGNORECASE | re.ASCII
)
_SXID = re.compile(r"\bSXID[ :#]{0,3}(?P<code>\d{1,5})\b", re.IGNORECASE | re.ASCII)
_HCA = re.compile(r"\b(?P<name>mlx5_(?:bond_)?\d{1,3})(?: port (?P<port>\d{1,3}))?\b", re.ASCII)
# Names that its components bear; others (plugins, cpu, disk) are distinguished by the fields beside them.
_COMPONENT = r"accelerator-[\w-]+|network-(?:latency|ethernet)|kernel-module|tailscale|containerd|nfs|fuse|library"


class GpudParser(DocumentParser):
    """Decodes events and states. Remembers the states that were not healthy."""

    def __init__(self, context: Context) -> None:
        super().__init__(self._read, lists=("events", "states"))
        self._node = context.node
        self._states = ReportedStates()

    def _read(self, document: Document) -> Iterable[Event]:
        record = document.value
        component = text_of(record, "component") or text_of(document.header, "component")
        name = text_of(record, "name") or component
        if name is None:
            return []
        if text_of(record, "health") in _HEALTH:
            return self._state(record, component or name, name, document.line)
        if component is None or text_of(record, "type") is None or "time" not in record:
            return []
        return self._event(record, component, name, document.line)

    def _event(self, record: Mapping[str, Any], component: str, name: str, line: int) -> list[Event]:
        extra = record_of(record, "extra_info")
        data = _data(extra)
        message = text_of(record, "message") or ""
        actions = record_of(data, "suggested_actions_by_gpud") or record_of(record, "suggested_actions")
        report = DetectorReport(
            source=_DETECTOR,
            detector=_DETECTOR,
            check=f"{component}/{name}",
            severity=_SEVERITY.get(text_of(record, "type") or "", "warning"),
            line=line,
            message=message,
            healthy=name == _HEALED,
            names=(name,),
            codes=_codes(component, data, message),
            family=_FAMILY.get(component),
            action=_action_of(actions),
            quoted=text_of(extra, "log_line"),
            time=moment_of(record, "time"),
            node=self._node,
            device=_device_of(extra, data, message),
            attributes=attributes(
                data_source=data.get("data_source"),
                name=_hca(message),
            ),
        )
        return [event_of(report)]

    def _state(self, record: Mapping[str, Any], component: str, name: str, line: int) -> list[Event]:
        health = text_of(record, "health") or ""
        reason = text_of(record, "reason") or text_of(record, "error") or f"{component} is {health.lower()}"
        healthy = health == "Healthy"
        if not self._states.changed((component, name), None if healthy else (health, reason)):
            return []
        report = DetectorReport(
            source=_DETECTOR,
            detector=_DETECTOR,
            check=component,
            severity=_HEALTH[health],
            line=line,
            message=reason,
            healthy=healthy,
            codes=_codes(component, {}, reason),
            family=_FAMILY.get(component),
            action=_action_of(record_of(record, "suggested_actions")),
            time=moment_of(record, "time"),
            node=self._node,
            device=_device_of(record_of(record, "extra_info"), {}, reason),
            attributes=attributes(state=health.lower(), error=record.get("error"), name=_hca(reason)),
        )
        return [event_of(report)]


def _data(extra: Mapping[str, Any]) -> Mapping[str, Any]:
    """The record that gpud puts as text into an event's extra_info; the bare code of older releases."""
    raw = text_of(extra, "data")
    if raw is None:
        return {}
    try:
        value = orjson.loads(raw)
    except orjson.JSONDecodeError:
        fault = kernel_fault(raw)
        return {"xid": fault.code} if fault is not None and fault.kind == "xid" else {}
    if isinstance(value, int):
        return {"xid": value, "sxid": value}
    return value if isinstance(value, dict) else {}


def _codes(component: str, data: Mapping[str, Any], message: str) -> tuple[str, ...]:
    family = _FAMILY.get(component)
    if family is None:
        return ()
    if family in data:
        return (str(data[family]),)
    if family == "xid":
        return (str(xid_in(message) or ""),)
    match = _SXID.search(message)
    return (match["code"],) if match else ()


def _device_of(extra: Mapping[str, Any], data: Mapping[str, Any], message: str) -> Device:
    """The GPU, switch or adapter that an event speaks of; gpud calls a PCI address `device_uuid` too."""
    words = " ".join(
        text
        for text in (text_of(data, "device_uuid"), text_of(extra, "device_uuid", "gpu_uuid", "gpu_id"), message)
        if text
    )
    uuid, pci = _UUID.search(words), _PCI.search(words)
    if uuid or pci:
        return Device("gpu", pci=canonical_pci(pci[0]) if pci else None, uuid=uuid[0] if uuid else None)
    if match := _HCA.search(words):
        return Device("hca", port=int(match["port"]) if match["port"] else None)
    return Device()


def _hca(message: str) -> str | None:
    match = _HCA.search(message)
    return match["name"] if match else None


def _action_of(suggested: Mapping[str, Any]) -> Action | None:
    """The first action that gpud suggests."""
    actions = suggested.get("repair_actions")
    words = actions if isinstance(actions, list) else []
    return next((_ACTION[word] for word in words if isinstance(word, str) and word in _ACTION), None)


FORMAT = Format(
    name="gpud",
    description="Events and health states of gpud",
    sample='[{"component": "accelerator-nvidia-error-xid", "events": [{"component": "accelerator-nvidia-error-xid", '
    '"time": "2025-03-01T04:05:06Z", "name": "error_xid", "type": "Fatal", "message": "XID 79 (GPU has fallen off the '
    'bus) detected on GPU PCI:0000:0f:00 UUID:GPU-8c1b4a5e-9f0d-4c2e-b3a7-1d6e5f4c3b2a"}]}]',
    make=GpudParser,
    testimony="detector",
    recognises=re.compile(
        rf'"component" ?: ?"(?:{_COMPONENT})"|"(?:repair_actions|suggested_actions)" ?:'
        r'|"health" ?: ?"(?:Healthy|Unhealthy|Degraded|Initializing)"'
    ),
    shape="document",
)

"""Taints of Kubernetes' Dynamic Resource Allocation (resource.k8s.io): what drivers and people say of single devices.

    {"kind": "ResourceSlice", "spec": {"driver": "gpu.nvidia.com", "nodeName": "gpu-017", "devices": [{"name": "gpu-0",
     "attributes": {"uuid": {"string": "GPU-5fd4..."}}, "taints": [{"key": "gpu.nvidia.com/xid", "value": "79", ...
    -> {"kind": "xid", "code": 79, "node": "gpu-017", "device": {"type": "gpu", "uuid": "GPU-5fd4..."}, ...}

A taint is told once, and again after it was gone; of an Xid and a lost GPU the end is told, too, where the device is
still listed. NVIDIA's keys count in the slices of NVIDIA's driver for GPUs alone: it publishes others, too.
`gpu-lost` stands on every GPU of a node where the driver cannot tell which one it is: it is told of its GPUs once.
`unmonitored` tells of no fault. The rule of a person (DeviceTaintRule) is told for information. Sources:
resource.k8s.io/v1, v1beta1 (fields under `basic`) and v1beta2; taint keys of cmd/gpu-kubelet-plugin/device_health.go
of kubernetes-sigs/dra-driver-nvidia-gpu.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from parsers.reports.detector_report import DetectorReport, event_of
from parsers.reports.reported_states import MAX_STATES, ReportedStates
from parsers.text.json_fields import attributes, moment_of, record_of, records_of, text_of
from store.records.event import Device, Event, canonical_pci

KINDS = frozenset({"ResourceSlice", "DeviceTaintRule"})
_SOURCE, _NVIDIA = "kubernetes", "gpu.nvidia.com"
_XID, _LOST, _UNWATCHED = f"{_NVIDIA}/xid", f"{_NVIDIA}/gpu-lost", f"{_NVIDIA}/unmonitored"
# The effects that keep work off; what else there may be counts as none.
_HOLDING = frozenset({"NoSchedule", "NoExecute"})
# Devices of one slice, by the API's own limit, and taints of one device.
_MOST_DEVICES, _MOST_TAINTS = 128, 16


@dataclass(frozen=True, slots=True)
class _DeviceTaints:
    """One device of a slice."""

    node: str
    driver: str
    pool: str
    name: str
    device: Device
    taints: Mapping[str, Mapping[str, Any]]


class DeviceTaintReader:
    """Reads slices and rules. Remembers what was told."""

    def __init__(self) -> None:
        self._states = ReportedStates()
        self._keys: dict[tuple[str, ...], frozenset[str]] = {}  # of each device with taints of others than NVIDIA's

    def read(self, kind: str, record: Mapping[str, Any], line: int) -> list[Event]:
        """The events of an object: what is news since it was read before."""
        spec = record_of(record, "spec")
        if kind == "DeviceTaintRule":
            return list(self._rule(spec, text_of(record_of(record, "metadata"), "name") or "", line))
        node = text_of(spec, "nodeName")
        if node is None:
            return []
        driver, pool = text_of(spec, "driver") or "", text_of(record_of(spec, "pool"), "name") or ""
        devices = [_device_taints(node, driver, pool, one) for one in records_of(spec, "devices")[:_MOST_DEVICES]]
        found = [event for one in devices for event in self._device(one, line)]
        name = text_of(record_of(record, "metadata"), "name") or pool  # a pool may be in several slices
        return [*found, *(self._lost(node, name, devices, line) if driver == _NVIDIA else ())]

    def _device(self, one: _DeviceTaints, line: int) -> Iterator[Event]:
        xid = one.taints.get(_XID) if one.driver == _NVIDIA else None
        code = None if xid is None else text_of(xid, "value")
        place = (one.node, one.driver, one.pool, one.name)
        if self._states.changed((*place, _XID), None if code is None else (code,)):
            holds = xid is not None and xid.get("effect") in _HOLDING
            words = f"{one.name}: Xid {code}" if code else f"{one.name}: no Xid any more"
            report = self._report(one.node, _XID, words, line, one.device, xid or {})
            yield event_of(
                replace(
                    report,
                    severity="error" if holds else "warning",
                    healthy=code is None,
                    codes=(code or "",),
                    family="xid",
                    attributes={**report.attributes, "name": one.name},
                )
            )
        held = {
            key: taint
            for key, taint in one.taints.items()
            if key not in (_XID, _LOST, _UNWATCHED) and taint.get("effect") in _HOLDING
        }
        for key in self._keys.pop(place, frozenset()) - held.keys():
            self._states.changed((*place, key), None)
        if held:
            self._keys[place] = frozenset(held)
            if len(self._keys) > MAX_STATES:  # a driver may name its devices anew for ever
                del self._keys[next(iter(self._keys))]
        for key, taint in held.items():
            state = (str(taint.get("value")), str(taint.get("effect")))
            if self._states.changed((*place, key), state):
                yield event_of(self._report(one.node, key, f"{one.name} is tainted {key}", line, one.device, taint))

    def _lost(self, node: str, name: str, devices: list[_DeviceTaints], line: int) -> Iterator[Event]:
        lost = [one.taints[_LOST] for one in devices if _LOST in one.taints]
        if self._states.changed((node, name, _LOST), ("lost",) if lost else None):
            words = f"A GPU is lost: {len(lost)} devices are tainted" if lost else "No GPU is lost any more"
            report = self._report(node, _LOST, words, line, Device("gpu"), lost[0] if lost else {})
            yield event_of(replace(report, severity="error", healthy=not lost))

    def _rule(self, spec: Mapping[str, Any], name: str, line: int) -> Iterator[Event]:
        """A rule names a pool; NVIDIA's driver and others with devices of one node call it by the node's name."""
        selector, taint = record_of(spec, "deviceSelector"), record_of(spec, "taint")
        node, key = text_of(selector, "pool"), text_of(taint, "key")
        if node is None or key is None or taint.get("effect") not in _HOLDING:
            return
        about = text_of(selector, "device") or "all devices"
        if self._states.changed((node, "rule", name), (about, key, str(taint.get("effect")))):
            words = f"{about} of {node}: tainted {key} by the rule {name}"
            yield event_of(self._report(node, key, words, line, Device("gpu"), taint))

    @staticmethod
    def _report(node: str, key: str, words: str, line: int, device: Device, taint: Mapping[str, Any]) -> DetectorReport:
        detector = "dra-driver-nvidia-gpu" if key.startswith(f"{_NVIDIA}/") else _SOURCE
        check = key if detector != _SOURCE else "DeviceTainted"
        said = attributes(taint=key, value=taint.get("value"), effect=taint.get("effect"))
        report = DetectorReport(_SOURCE, detector, check, "info", line, words, node=node, device=device)
        return replace(report, time=moment_of(taint, "timeAdded"), attributes=said)


def _device_taints(node: str, driver: str, pool: str, record: Mapping[str, Any]) -> _DeviceTaints:
    name, inner = text_of(record, "name") or "", record_of(record, "basic") or record
    known = record_of(inner, "attributes")
    uuid, bus = (text_of(record_of(known, key), "string") for key in ("uuid", "resource.kubernetes.io/pciBusID"))
    taints = {
        key: taint for taint in records_of(inner, "taints")[:_MOST_TAINTS] if (key := text_of(taint, "key")) is not None
    }
    device = Device("gpu", pci=canonical_pci(bus or ""), uuid=uuid) if driver.startswith("gpu.") else Device()
    return _DeviceTaints(node, driver, pool, name, device, taints)

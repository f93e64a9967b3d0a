r"""Alerts as Alertmanager's webhook (version 4) posts them, or as its API (`/api/v2/alerts`) lists them.

    {"version": "4", "groupKey": "{}:{alertname=\"GpuXid\"}", "alerts": [{"status": "firing", "labels": {"alertname":
     "GpuXid", "node": "gpu-017", "gpu": "3", "severity": "critical", "xid": "79"}, "startsAt": ...
    -> {"kind": "alert", "code": 79, "severity": "error", "node": "gpu-017", "device": {"type": "gpu", "index": 3}, ...}

One alert is known by its fingerprint and start: it is told when it fires and when it ends, however often it is sent.
It is never `fatal`: only the node's own log confirms a fault.
"""

import hashlib
import ipaddress
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from parsers.reports.detector_report import xid_in
from parsers.reports.reported_states import ReportedStates
from parsers.text.documents import Document, DocumentParser
from parsers.text.json_fields import MAX_MESSAGE, whole_of
from parsers.text.parser import Context, Format
from store.records.event import (
    CAUSES,
    Action,
    Attribute,
    Cause,
    Device,
    Event,
    RecordError,
    Severity,
    canonical_pci,
    parse_time,
)
from store.records.fault_catalog import xid
from store.records.hostlist import is_node_name

MAX_LABELS = 64
# Prometheus' customary severities.
_SEVERITY: Mapping[str, Severity] = {
    "critical": "error",
    "page": "error",
    "error": "error",
    "info": "info",
    "none": "info",
}
_CAUSES: Mapping[str, Cause] = dict(zip(CAUSES, CAUSES, strict=True))
_NODE_LABELS = ("node", "Hostname", "hostname", "host", "nodename", "kubernetes_node", "exported_node")
_LOCAL = ("localhost", "localhost4", "localhost6", "ip6-localhost", "ip6-loopback")
_PORT = re.compile(r"(?<=[^:]):\d{1,5}$", re.ASCII)  # of a name or of an address in brackets
_UUID_LABELS = ("UUID", "uuid", "gpu_uuid", "gpu_UUID")
_PCI_LABELS = ("pci_bus_id", "pciBusId", "pci", "bus_id")
_NVIDIA = re.compile(r"nvidia(?P<index>\d{1,4})", re.ASCII)
_HCA = re.compile(r"(?:mlx[45]|hfi1|irdma|bnxt_re|efa|rdmap)_?[\w-]{1,30}", re.ASCII)


class AlertmanagerParser(DocumentParser):
    """Decodes alerts. Remembers which were reported."""

    def __init__(self, context: Context) -> None:
        super().__init__(self._alert, lists=("alerts",))
        self._node = context.node
        self._reported = ReportedStates()

    def _alert(self, document: Document) -> Iterable[Event]:
        try:
            event = alert_event(document.value)
        except RecordError:  # it lies among alerts and is none
            return []
        fingerprint, start = document.value["fingerprint"], document.value["startsAt"]
        if not self._reported.changed((fingerprint, start), (event.kind,)):
            return []
        return [replace(event, node=event.node or self._node, line=document.line)]


def is_host(name: str) -> bool:
    """Whether a target's host may be a node: a name, not an address, which anything may have that is scraped."""
    return is_node_name(name) and not _is_address(name)


def alert_event(alert: Any, is_node: Callable[[str], bool] = is_host) -> Event:
    """The event of one alert; its id comes from fingerprint, start and status.

    `is_node` judges the host of the label `instance`, which is that of any target: a node, a database, Prometheus.

    Raises:
        RecordError: it lacks labels or a start.
    """
    labels, annotations = _texts(alert, "labels"), _texts(alert, "annotations")
    starts, fingerprint = alert.get("startsAt"), alert.get("fingerprint")
    name = labels.get("alertname")
    if not name or not isinstance(starts, str) or not isinstance(fingerprint, str):
        raise RecordError("an alert needs 'labels.alertname', 'startsAt' and 'fingerprint'")
    began = parse_time(starts)
    resolved = alert.get("status") == "resolved"
    ended = alert.get("endsAt")  # 0001-01-01 while it is open; in the API a moment to come
    over = parse_time(ended) if resolved and isinstance(ended, str) else began
    message = annotations.get("summary") or annotations.get("description") or name
    code = _code(labels, name, message)
    cause, action = _judged(labels, code)
    content = f"{fingerprint} {starts} {'resolved' if resolved else 'firing'}"
    return Event(
        time=max(began, over),  # one that bears no end yet has not ended before it began
        node=_node(labels, is_node),
        source="alertmanager",
        kind="alert_resolved" if resolved else "alert",
        code=code,
        severity="info" if resolved else _SEVERITY.get(labels.get("severity", "").lower(), "warning"),
        cause=cause,
        action="none" if resolved else action,
        device=_device(labels),
        message=message[:MAX_MESSAGE],
        attributes=_attributes(labels, name, fingerprint),
        id=hashlib.blake2b(content.encode(), digest_size=16).hexdigest(),
    )


def _texts(value: Any, key: str) -> dict[str, str]:
    found = value.get(key) if isinstance(value, dict) else None
    if found is None and isinstance(value, dict):
        return {}
    if not isinstance(found, dict) or len(found) > MAX_LABELS:
        raise RecordError(f"{key!r} must be an object of at most {MAX_LABELS} texts")
    return {str(name): str(text) for name, text in found.items()}


def _first(labels: Mapping[str, str], names: Iterable[str]) -> str | None:
    return next((labels[name] for name in names if labels.get(name)), None)


def _node(labels: Mapping[str, str], is_node: Callable[[str], bool]) -> str | None:
    """The node that an alert speaks of; no machine speaks of itself as `localhost` to others."""
    named = (labels[name] for name in _NODE_LABELS if labels.get(name))
    found = next((name for name in named if not _is_local(name)), None)
    if found is not None:
        return found
    host = _PORT.sub("", labels.get("instance", "")).strip("[]")
    return host if host and not _is_local(host) and is_node(host) else None


def _is_local(name: str) -> bool:
    """Whether it is this machine, whichever that is: a loopback or unspecified address, localhost."""
    if name.lower().rstrip(".").split(".")[0] in _LOCAL:
        return True
    try:
        address = ipaddress.ip_address(_PORT.sub("", name).strip("[]"))
    except ValueError:
        return _PORT.sub("", name).lower() in _LOCAL
    return address.is_loopback or address.is_unspecified


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _device(labels: Mapping[str, str]) -> Device:
    device = labels.get("device", "")
    index = _integer(labels.get("gpu"))
    if index is None and (match := _NVIDIA.fullmatch(device)):
        index = int(match["index"])
    uuid, pci = _first(labels, _UUID_LABELS), canonical_pci(_first(labels, _PCI_LABELS) or "")
    if index is not None or uuid or (pci and "gpu" in labels):
        return Device("gpu", pci=pci, index=index, uuid=uuid)
    if _HCA.fullmatch(device):
        return Device("hca", port=_integer(labels.get("port")))
    return Device()


def _integer(text: str | None) -> int | None:
    return whole_of(text) if text and len(text) < 10 else None


def _code(labels: Mapping[str, str], name: str, message: str) -> int | None:
    """The Xid that an alert is about: a label of it, dcgm-exporter's `err_code`, or the words of an Xid's alert."""
    code = _integer(labels.get("xid") or labels.get("XID"))
    if code is None and "xid" in name.lower():
        code = _integer(labels.get("err_code"))
        code = xid_in(message) if code is None else code
    return code or None


def _judged(labels: Mapping[str, str], code: int | None) -> tuple[Cause, Action]:
    """Cause and action: a label's, else the Xid's."""
    fault = xid(code) if code is not None else None
    cause = _CAUSES.get(labels.get("cause", ""), fault.cause if fault else "unknown")
    return cause, fault.action if fault and fault.action != "none" else "watch"


def _attributes(labels: Mapping[str, str], name: str, fingerprint: str) -> dict[str, Attribute]:
    own = {"detector": "alertmanager", "check": name, "fingerprint": fingerprint}
    return {**own, **{label: text for label, text in labels.items() if label != "run"}}


FORMAT = Format(
    name="alertmanager",
    description="Alerts of Prometheus' Alertmanager: webhook of version 4, API",
    sample='{"version": "4", "groupKey": "{}:{alertname=\\"GpuXid\\"}", "status": "firing", "alerts": [{"status": '
    '"firing", "labels": {"alertname": "GpuXid", "node": "gpu-017", "gpu": "3", "severity": "critical", "xid": "79"}, '
    '"annotations": {"summary": "Xid 79 on gpu-017 GPU 3"}, "startsAt": "2025-03-01T04:05:06Z", '
    '"endsAt": "0001-01-01T00:00:00Z", "fingerprint": "37036cd9ece3543d"}]}',
    make=AlertmanagerParser,
    testimony="alerts",
    recognises=re.compile(
        r'"(?:groupKey|groupLabels|truncatedAlerts|generatorURL)" ?:|"fingerprint" ?: ?"[0-9a-f]{16}"', re.ASCII
    ),
    shape="document",
)

"""Health events of NVIDIA NVSentinel: as CloudEvents, as protobuf's JSON, as its store exports them.

    {"version": 1, "agent": "syslog-health-monitor", "componentClass": "GPU", "checkName": "SysLogsXIDError",
     "errorCode": ["79"], "entitiesImpacted": [{"entityType": "PCI", "entityValue": "0000:0f:00.0"}], ...
    -> {"kind": "xid", "code": 79, "device": {"type": "gpu", "pci": "0000:0f:00.0"}, "node": "gpu-017", ...}

Schema: data-models/protobufs/health_event.proto and event-exporter/pkg/transformer/cloudevents.go of NVIDIA/NVSentinel.
A healthy event tells that a check passes (again).
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any

from parsers.reports.detector_report import NVSENTINEL_ACTIONS, DetectorReport, event_of, family_of, place_of
from parsers.text.documents import Document, DocumentParser
from parsers.text.json_fields import attributes, moment_of, record_of, records_of, text_of, whole_of
from parsers.text.parser import Context, Format
from store.records.event import Action, Attribute, Device, Event

# RecommendedAction of health_event.proto, by number and by name.
_ACTION_NAMES: Mapping[int, str] = {
    0: "NONE",
    2: "COMPONENT_RESET",
    5: "CONTACT_SUPPORT",
    6: "RUN_FIELDDIAG",
    15: "RESTART_VM",
    24: "RESTART_BM",
    25: "REPLACE_VM",
    26: "RUN_DCGMEUD",
    39: "RESTART_APP",
    99: "UNKNOWN",
}
# What an exporter may wrap a health event in, and the lower-case names of its database.
_WRAPPERS = ("data", "healthevent", "fulldocument", "health_event")
_DETECTOR = "nvsentinel"


class NvsentinelParser(DocumentParser):
    """Decodes health events."""

    def __init__(self, context: Context) -> None:
        super().__init__(self._health_event, lists=("events",))
        self._node = context.node

    def _health_event(self, document: Document) -> Iterable[Event]:
        record = _unwrapped(document.value)
        check = text_of(record, "checkname")
        if check is None or not (record.keys() & {"isfatal", "ishealthy", "entitiesimpacted", "errorcode", "agent"}):
            return []
        fatal, healthy = record.get("isfatal") is True, record.get("ishealthy") is True
        codes = record.get("errorcode")
        metadata = record_of(record, "metadata")
        device, more = device_of(records_of(record, "entitiesimpacted"), text_of(record, "componentclass"))
        report = DetectorReport(
            source=_DETECTOR,
            detector=_DETECTOR,
            check=check,
            severity="info" if healthy else "fatal" if fatal else "warning",
            line=document.line,
            message=text_of(record, "message") or "",
            healthy=healthy,
            names=tuple(code for code in codes if isinstance(code, str)) if isinstance(codes, list) else (),
            codes=tuple(str(code) for code in codes) if isinstance(codes, list) else (),
            family=family_of(check),
            action=action_of(record.get("recommendedaction")),
            quoted=text_of(metadata, "journal_message"),
            time=moment_of(record, "generatedtimestamp") or moment_of(_lowered(document.value), "time"),
            node=text_of(record, "nodename") or self._node,
            device=device,
            attributes={**attributes(agent=record.get("agent"), error_code=codes), **more},
        )
        return [event_of(report)]


def action_of(value: object) -> Action | None:
    """What NVSentinel recommends, by number or name; None where it says nothing."""
    name = value if isinstance(value, str) else _ACTION_NAMES.get(whole_of(value) or 0)
    return NVSENTINEL_ACTIONS.get(name) if name and name != "NONE" else None


def device_of(entities: Iterable[Mapping[str, Any]], component: str | None) -> tuple[Device, dict[str, Attribute]]:
    """Where the impacted entities are, and what else they tell."""
    found: dict[str, str] = {}
    for entity in entities:
        lowered = _lowered(entity)
        name, value = text_of(lowered, "entitytype"), text_of(lowered, "entityvalue")
        if name and value:
            found.setdefault(name.upper(), value)
    return place_of(found, component)


def _lowered(record: Mapping[str, Any]) -> dict[str, Any]:
    return {key.lower(): value for key, value in record.items()}


def _unwrapped(record: Mapping[str, Any]) -> dict[str, Any]:
    """The health event inside what an exporter put around it."""
    lowered = _lowered(record)
    for _ in range(len(_WRAPPERS)):
        inner = record_of(lowered, *_WRAPPERS)
        if "checkname" in lowered or not inner:
            break
        lowered = _lowered(inner)
    if metadata := record_of(lowered, "metadata"):
        lowered["metadata"] = _lowered(metadata)
    return lowered


FORMAT = Format(
    name="nvsentinel",
    description="Health events of NVIDIA NVSentinel: CloudEvents, protobuf JSON, database export",
    sample='{"version": 1, "agent": "syslog-health-monitor", "componentClass": "GPU", "checkName": "SysLogsXIDError", '
    '"isFatal": true, "isHealthy": false, "message": "ROBUST_CHANNEL_GPU_HAS_FALLEN_OFF_THE_BUS", '
    '"recommendedAction": "RESTART_BM", "errorCode": ["79"], "entitiesImpacted": [{"entityType": "PCI", '
    '"entityValue": "0000:0f:00.0"}], "generatedTimestamp": "2025-03-01T04:05:06Z", "nodeName": "gpu-017"}',
    make=NvsentinelParser,
    testimony="detector",
    recognises=re.compile(r'"(?:check[Nn]ame|entities[Ii]mpacted|component[Cc]lass)" ?:'),
    shape="document",
)

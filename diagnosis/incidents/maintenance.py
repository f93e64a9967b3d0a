"""Nodes that reboot or fall silent within minutes of each other: one incident of them all, not one fault of each.

    node-1 booted 09:38, node-2 booted 09:40, node-3 booted 09:41
    -> nodes_rebooted: 3 nodes were booted within 10 min (node-1, node-2, node-3): it looks like planned maintenance

A watch tells reboots and silence by telemetry, with the node as the name of what it speaks of; such events join across
nodes. One node alone keeps its own incident. Of a reboot that ends a fault the incident is information.
"""

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta

from diagnosis.incidents.root import IncidentHead
from store.records.event import Action, Cause, Device, Event, Severity
from store.records.incident import Incident

# Hosts of one rack come back minutes apart, and a telemetry of each ten minutes shows them one look apart.
TOGETHER_GAP = timedelta(minutes=15)
REBOOT = "node_reboot"
_SILENT = "node_silent"
ALONE = (REBOOT, _SILENT)
# What several are called: kind, severity, cause and action. Silence of many is watched; a reboot of many is over.
_REBOOTED: tuple[str, Severity, Cause, Action] = ("nodes_rebooted", "info", "host", "none")
_FELL_SILENT: tuple[str, Severity, Cause, Action] = ("nodes_silent", "warning", "unknown", "watch")
# From this many nodes on it looks planned.
_PLANNED = 3
_FEW_NAMES = 8


def is_of_many(event: Event) -> bool:
    """Whether an event may be one of several nodes': told by a watch of telemetry, and no later sign of a fault."""
    if event.kind not in ALONE or event.node is None:
        return False
    return event.attributes.get("name") == event.node and "follows" not in event.attributes


def is_head_of_many(head: IncidentHead) -> bool:
    """The same of what such an event left."""
    return head.kind in ALONE and head.name is not None and head.device.type == "node" and head.sign_since is None


def of_many(incident: Incident, heads: Sequence[IncidentHead]) -> Incident:
    """The incident of such events: of one node, or of several."""
    ends = [head for head in heads if head.kind == REBOOT and head.follows]
    names = sorted({head.name for head in heads if head.name is not None})
    if len(names) < 2:
        return replace(incident, severity="info") if ends and incident.kind == REBOOT else incident
    rebooted = {head.name for head in heads if head.kind == REBOOT}
    several = len(rebooted) > 1
    kind, severity, cause, action = _REBOOTED if several else _FELL_SILENT
    minutes = max(1, round((incident.end - incident.start) / timedelta(minutes=1)))
    some = ", ".join(names[:_FEW_NAMES]) + (" ..." if len(names) > _FEW_NAMES else "")
    verb = "were booted" if several else "fell silent"
    guess = "planned maintenance" if several else "their network, power or monitoring"
    looks = f": it looks like {guess}" if len(names) >= _PLANNED else ""
    message = f"{len(names)} nodes {verb} within {minutes} min ({some}){looks}"
    return replace(
        incident,
        node=None,
        kind=kind,
        code=None,
        severity=severity,
        cause=cause,
        action=action,
        device=Device(),
        message=message,
        name=None,
        nodes=tuple(names),
    )

"""A node: one host of the cluster, and when it counts.

One row of an archive's `nodes.csv`:

    node,rack,leaf,gpu_model,gpus,driver,in_service_since,in_service_until
    gpu-017,r03,leaf-02,H100-SXM,8,550.90.07,2025-01-01T00:00:00Z,

Further columns say what nodes share and what they are called: docs/topology.md.
"""

from dataclasses import dataclass, fields
from datetime import datetime
from typing import Literal, TypeAlias

NodeState: TypeAlias = Literal["ok", "at_risk", "faulty", "out", "cordoned", "silent", "unknown"]
SidecarState: TypeAlias = Literal["ok", "troubled", "silent"]


@dataclass(frozen=True, slots=True)
class Node:
    """A host; a column that is missing is unknown. A node is at risk only while in service."""

    node: str
    rack: str | None = None
    leaf: str | None = None
    gpu_model: str | None = None
    gpus: int | None = None
    driver: str | None = None
    in_service_since: datetime | None = None
    in_service_until: datetime | None = None
    nvlink_domain: str | None = None  # nodes that share NVLink switches, as an NVL72's do
    groups: tuple[tuple[str, str], ...] = ()  # what else it shares: ("power", "r03-pdua")
    names: tuple[tuple[str, str, str, str], ...] = ()  # of its devices: class, device, kind, name (`DeviceName`)


# The fields that are columns of the table `nodes`.
NODE_COLUMNS = tuple(field.name for field in fields(Node) if field.name not in ("groups", "names"))

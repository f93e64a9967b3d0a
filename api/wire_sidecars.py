"""What answers about sidecars look like, for the published description."""

from datetime import datetime
from typing import Any

from pydantic import BaseModel, Field

from store.nodes.sidecars import SidecarState


class SidecarOut(BaseModel):
    """A node's sidecar, by its last heartbeat; `report` is that heartbeat, whose counts are totals since `started`."""

    node: str = Field(examples=["gpu-017"])
    received: datetime
    time: datetime
    version: str
    started: datetime
    state: SidecarState
    report: dict[str, Any]


class SidecarCounts(BaseModel):
    """How many sidecars ever reported, are silent now, or are troubled."""

    known: int
    silent: int
    troubled: int

"""Hints as the API tells them, with what each scheduler holds for them."""

from datetime import datetime
from typing import Any

from pydantic import BaseModel, Field

from store.hints.holds import HoldState
from store.records.hint import HintAction, HintState


class PlacementOut(BaseModel):
    """What one scheduler that is read back holds for a hint.

    `asked`: when it was last ordered; `observed`: when it was first seen as it is. `action` is what it was last brought
    to; `release` while it is being taken off.
    """

    scheduler: str = Field(examples=["slurm"])
    state: HoldState
    action: HintAction
    detail: str | None
    asked: datetime | None
    observed: datetime | None


class HintOut(BaseModel):
    """What is asked of a scheduler. `evidence.control`: it is only written down, to see what comes of the node.

    `job`: that it concerns, beside the node. `policy`: the version that asked for it last.
    """

    id: str
    node: str
    action: HintAction
    state: HintState
    reason: str = Field(examples=["foreshock: Xid 79 GPU has fallen off the bus."])
    evidence: dict[str, Any]
    owner: str = Field(examples=["foreshock"])
    created: datetime
    valid_until: datetime
    job: str | None = None
    policy: str | None = None
    placements: list[PlacementOut] = []

"""What answers about models look like, for the published description."""

from datetime import datetime
from typing import Any

from pydantic import BaseModel, Field

from store.models.registry import ModelKind, ModelRole


class RegisteredOut(BaseModel):
    """A model: its making, its role and what was found of it. `checks` is empty before it was judged."""

    id: str = Field(examples=["gbt-24h-3f2a0c5a9b8e"])
    horizon_h: int
    kind: ModelKind
    role: ModelRole
    why: str = Field(examples=["41 outages in 14 days: average precision 0.21, the champion's 0.17; ..."])
    by: str = Field(examples=["trial"])
    since: datetime | None
    created: datetime
    trained_until: datetime
    data: dict[str, Any]
    code: str = Field(examples=["0.1.0+5a9b8e4d1f8a"])
    metrics: dict[str, Any]
    checks: dict[str, Any]
    sha256: str
    bytes: int


class LastTrainingOut(BaseModel):
    """How the server's last training went: `started`, `trained`, `failed` or `put off`."""

    time: datetime
    outcome: str
    by: str
    why: str | None


class ControlOut(BaseModel):
    """How many of the nodes are left alone, drawn anew each period, to see what hints prevent."""

    percent: float
    period_days: float


class ModelsOut(BaseModel):
    """Every model, and how they come about."""

    items: list[RegisteredOut]
    next_cursor: None = None
    training: LastTrainingOut | None
    control: ControlOut

"""What `GET /models` answers, as typed records."""

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any


@dataclass(frozen=True, slots=True)
class RegisteredModel:
    """One item of `GET /models`. `checks` holds what was found of it: `trial`, `calibration`, `drift`."""

    id: str
    horizon_h: int
    role: str
    kind: str = "gbt"
    why: str = ""
    by: str = ""
    since: datetime | None = None
    trained_until: datetime | None = None
    data: dict[str, Any] = field(default_factory=dict)
    metrics: dict[str, Any] = field(default_factory=dict)
    checks: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class LastTraining:
    """How the server's last training went: started, trained, failed, put off."""

    time: datetime
    outcome: str
    why: str | None = None


@dataclass(frozen=True, slots=True)
class Models:
    """`GET /models`."""

    items: tuple[RegisteredModel, ...] = ()
    training: LastTraining | None = None

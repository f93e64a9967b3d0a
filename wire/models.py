"""Models and the last training: `GET /models`; the record of each check: `GET /checks`."""

from typing import Annotated, Any

from store.records.score import ModelKind, ModelRole
from wire.message import Always, JsonObject, Sometimes, Time, example, one_of


class ModelJson(JsonObject, frozen=True, kw_only=True):
    """A model: its making, its role and its checks. `checks` is empty before it was judged."""

    id: Annotated[str, example("gbt-24h-3f2a0c5a9b8e")]
    horizon_h: int
    kind: Annotated[str, one_of(ModelKind)] = "gbt"
    role: Annotated[str, one_of(ModelRole)]
    why: Annotated[str, example("41 outages in 14 days: average precision 0.21, the champion's 0.17; ...")] = ""
    by: Annotated[str, example("trial")] = ""
    since: Time | None = None
    created: Always[Time] = None
    trained_until: Always[Time] = None
    data: dict[str, Any] = {}
    code: Annotated[str, example("0.1.0+5a9b8e4d1f8a")] = ""
    metrics: dict[str, Any] = {}
    checks: dict[str, Any] = {}
    sha256: str = ""
    bytes: int = 0


class LastTrainingJson(JsonObject, frozen=True, kw_only=True):
    """The server's last training: `started`, `trained`, `failed` or `put off`."""

    time: Time
    outcome: str
    by: str = ""
    why: str | None = None


class ControlGroupJson(JsonObject, frozen=True, kw_only=True):
    """The share of the nodes in the control group, drawn anew each period, to measure what hints prevent."""

    percent: float = 0.0
    period_days: float = 0.0


class ModelsJson(JsonObject, frozen=True, kw_only=True):
    """Every model, and the training of models."""

    items: tuple[ModelJson, ...] = ()
    next_cursor: Sometimes[None] = None
    training: LastTrainingJson | None = None
    control: ControlGroupJson = ControlGroupJson()


class CheckRecordJson(JsonObject, frozen=True, kw_only=True):
    """What a check said of nodes within a year, and what came of it.

    `precision` is the share of nodes of which it was right, each counted once, `low` to `high` its 95 % interval.
    `weight` is what it weighs where two detectors confirm a hold.
    """

    source: Annotated[str, example("dcgm")]
    name: Annotated[str, example("row_remap_failure")]
    said: int
    waiting: int = 0
    followed: int = 0
    cleared: int = 0
    contradicted: int = 0
    unknown: int = 0
    nodes: int = 0
    precision: float
    low: float
    high: float
    weight: float = 1.0
    last: Always[Time] = None


class ChecksJson(JsonObject, frozen=True, kw_only=True):
    """Every check's record, those of the most nodes first. `enough`: the share under which a check weighs less."""

    items: tuple[CheckRecordJson, ...] = ()
    next_cursor: Sometimes[None] = None
    horizon_h: int = 168
    enough: float = 0.0

"""The repair list: `GET /lemons`."""

from typing import Any

from wire.message import Always, JsonObject, Page, Sometimes, Time


class PartJson(JsonObject, frozen=True, kw_only=True):
    """The device that is the culprit; `words` names it for people."""

    words: str
    type: Sometimes[str] = "unknown"
    pci: Sometimes[str | None] = None
    uuid: Sometimes[str | None] = None
    serial: Sometimes[str | None] = None
    far_end: Sometimes[str | None] = None
    days: Sometimes[int | None] = None
    of_days: Sometimes[int | None] = None


class RepairEvidenceJson(JsonObject, frozen=True, kw_only=True):
    """One signal in a sentence, with the ids behind it."""

    signal: str = ""
    text: str
    events: tuple[str, ...] = ()
    incidents: tuple[str, ...] = ()
    jobs: tuple[str, ...] = ()


class RepairJson(JsonObject, frozen=True, kw_only=True):
    """One time out of service; `came_back`: the same fault of the same device showed again."""

    start: Time
    end: Sometimes[Time | None] = None
    reason: Sometimes[str] = ""
    planned: Sometimes[bool] = False
    came_back: Sometimes[bool] = False


class LemonJson(JsonObject, frozen=True, kw_only=True):
    """A node for repair: `probability` is that it fails at `times_fleet` of the list's head or more."""

    node: str
    rack: str | None = None
    leaf: str | None = None
    gpu_model: str | None = None
    driver: str | None = None
    probability: float
    times_fleet: float
    signals: dict[str, int | None] = {}
    part: PartJson | None = None
    codes: dict[str, int] = {}
    first_seen: Always[Time] = None
    last_seen: Always[Time] = None
    evidence: tuple[RepairEvidenceJson, ...] = ()
    repairs: tuple[RepairJson, ...] = ()
    next_step: str = ""


class RepairListJson(Page[LemonJson], frozen=True, kw_only=True):
    """The list, the worst first, and the fleet that it was compared with. `found` counts nodes beyond the list too."""

    at: Time
    window_days: int = 28
    memory_days: int = 0
    nodes: int = 0
    times_fleet: Always[float] = None
    false_share: Always[float] = None
    found: int = 0
    fleet: dict[str, dict[str, Any]] = {}
    unknown: tuple[str, ...] = ()

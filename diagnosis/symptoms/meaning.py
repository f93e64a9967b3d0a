"""What an event is a symptom of, and what it cures: by the first row of `store/catalogs/symptoms.csv` that fits."""

from dataclasses import dataclass
from datetime import datetime
from functools import cache, lru_cache

from diagnosis.hangs.stuck_ranks import TELLING
from diagnosis.symptoms.symptom import SYMPTOM_KINDS, SymptomKind
from store.catalog_rows import rows
from store.records.event import Event, is_datable
from store.records.event_sources import NO_FAULT

_KINDS: dict[str, SymptomKind] = {kind: kind for kind in SYMPTOM_KINDS}
# Work and plans, not faults; what these tell of nodes comes as outages and jobs.
_NO_SYMPTOM = frozenset({"telemetry", "job", "outage", "iteration", "node_state", "pod_failed", "alert_resolved"})
# More than any log repeats: whoever says so lies.
_MOST_REPEATS = 10**9
# Errors of a program that its own end or a person brings about.
_ENDED = frozenset(
    {"cancelled", "preempted", "stopped", "time_limit", "SIGTERM", "SignalException", "KeyboardInterrupt"}
)


@dataclass(frozen=True, slots=True)
class EventMeaning:
    """The symptom that an event is, or the symptoms of its place that it ends."""

    symptom: SymptomKind | None = None
    cures: tuple[SymptomKind, ...] = ()


@dataclass(frozen=True, slots=True)
class _SymptomRow:
    code: int | None
    error: str
    severity: str
    cause: str
    meaning: EventMeaning

    def fits(self, code: object, severity: object, cause: object, error: object) -> bool:
        """Whether it decides of an event of its kind."""
        return (
            (self.severity == severity if self.severity else severity != "info")
            and self.code in (None, code)
            and self.cause in ("", cause)
            and self.error in ("", error)
        )


NOTHING = EventMeaning()
# Events that name one device in two ways: faults that tell of either are then of one.
NAMES = frozenset({"gpu_map"})
# CUDA's words where an NVLink or a peer's memory does not answer: the link or the peer, and not the GPU that asked.
_OVER_NVLINK = ("peer GPU memory over nvlink", "uncorrectable NVLink error")


def meaning_of(event: Event) -> EventMeaning:
    """What an event is a symptom of; nothing for work, plans and what is only for information."""
    if event.kind == "training_error" and any(words in event.message for words in _OVER_NVLINK):
        return NOTHING if event.attributes.get("error") in _ENDED else EventMeaning("nvlink_fault")
    error = event.attributes.get("error")
    return _meaning(event.kind, event.code, event.severity, event.cause, event.source, error)


# A storm says few different things, each a thousand times.
@lru_cache(maxsize=4096)
def _meaning(*said: str | int | float | bool | None) -> EventMeaning:
    kind, code, severity, cause, source, error = said
    if kind in _NO_SYMPTOM or (kind == "training_error" and error in _ENDED):
        return NOTHING
    by_kind = _table()
    for row in by_kind.get(str(kind), ()):
        if row.fits(code, severity, cause, error):
            return row.meaning
    if severity == "info" or source in NO_FAULT:
        return NOTHING
    return next((row.meaning for row in by_kind[""] if row.fits(code, severity, cause, error)), NOTHING)


def lines_of(event: Event) -> int:
    """How many lines an event stands for: itself, and those that it `repeats`."""
    repeats = event.attributes.get("repeats")
    return repeats + 1 if type(repeats) is int and 0 <= repeats < _MOST_REPEATS else 1


def shown_since(event: Event) -> datetime | None:
    """Since when what an exporter shows may have been so: it looks now and then. None: the event is of its own time."""
    since = event.attributes.get("since" if "follows" in event.attributes else "after")
    try:
        moment = datetime.fromisoformat(since) if isinstance(since, str) else None
    except ValueError:
        return None
    is_told = moment is not None and moment.tzinfo is not None and is_datable(moment)
    return moment if is_told else None


def kinds_that_matter() -> frozenset[str]:
    """Kinds of events that are looked at though they may be for information only: they cure, tell of ranks, or name."""
    return TELLING | NAMES | {kind for kind, found in _table().items() if any(row.meaning.cures for row in found)}


@cache
def _table() -> dict[str, tuple[_SymptomRow, ...]]:
    found: dict[str, list[_SymptomRow]] = {"": []}
    for row in rows("symptoms"):
        meaning = EventMeaning(
            _KINDS[row["symptom"]] if row["symptom"] else None,
            tuple(_KINDS[name] for name in row["cures"].split("+") if name),
        )
        code = int(row["code"]) if row["code"] else None
        found.setdefault(row["kind"], []).append(
            _SymptomRow(code, row["error"], row["severity"], row["cause"], meaning)
        )
    return {kind: tuple(rows_of_kind) for kind, rows_of_kind in found.items()}

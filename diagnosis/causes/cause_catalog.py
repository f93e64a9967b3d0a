"""What each cause shows, where, with what chance: `store/catalogs/causes.csv` as tables."""

from dataclasses import dataclass, field
from functools import cache

from diagnosis.symptoms.symptom import SYMPTOM_KINDS, SymptomKind
from store.catalog_rows import rows
from store.records.verdict import CAUSE_CLASSES, CauseClass

# Where a cause shows a symptom; the catalogue's head says what each means.
WHERE = ("own", "node", "below", "far", "named", "job", "domain", "rate")
# What the end of a job's work is called in the catalogue: no symptom of a device.
STOP = "stop"
# A class that stands for every fault of the machine.
_ANY = "*"


@dataclass(frozen=True, slots=True)
class CauseRow:
    """One sign of a cause. `spread_s`: all parts below show it within that time."""

    chance: float
    spread_s: float | None = None


@dataclass(frozen=True, slots=True)
class CauseTables:
    """`prior` of each class, `leak` of each symptom (`mild`: of one that warns), `shows` by (class, symptom, where)."""

    prior: dict[str, float] = field(default_factory=dict)
    leak: dict[str, float] = field(default_factory=dict)
    mild: dict[str, float] = field(default_factory=dict)
    shows: dict[tuple[str, str, str], CauseRow] = field(default_factory=dict)

    def row(self, kind: CauseClass, symptom: str, where: str) -> CauseRow | None:
        """How a class shows a symptom somewhere; None where it does not."""
        return self.shows.get((kind, symptom, where))

    def for_job(self, kind: CauseClass, symptom: str) -> CauseRow | None:
        """How a class shows in the jobs on its nodes: its own row, else that of every fault of the machine."""
        if kind in ("application", "planned", "unknown"):
            return self.shows.get((kind, symptom, "job"))
        return self.shows.get((kind, symptom, "job")) or self.shows.get((_ANY, symptom, "job"))


@cache
def cause_tables() -> CauseTables:
    """The shipped catalogue.

    Raises:
        ValueError: a row names a class, a symptom or a place that does not exist: the table's own test.
    """
    found = CauseTables()
    symptoms: frozenset[SymptomKind | str] = frozenset((*SYMPTOM_KINDS, STOP, ""))
    for row in rows("causes"):
        kind, symptom, where, chance = row["class"], row["symptom"], row["where"], float(row["chance"])
        if kind not in (*CAUSE_CLASSES, _ANY, "") or symptom not in symptoms:
            raise ValueError(f"causes.csv: class {kind!r}, symptom {symptom!r}: use those of verdict.py and symptom.py")
        if where == "prior":
            found.prior[kind] = chance
        elif where == "leak":
            found.leak[symptom] = chance
        elif where == "mild":
            found.mild[symptom] = chance
        elif where in WHERE:
            found.shows[kind, symptom, where] = CauseRow(chance, float(row["spread_s"]) if row["spread_s"] else None)
        else:
            raise ValueError(f"causes.csv: where {where!r}: use prior, leak, mild or one of {', '.join(WHERE)}")
    return found

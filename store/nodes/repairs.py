"""What was done to a node while it was out: a reset, a reboot, a swap of a part, or nothing but its return.

The words of an outage's reason tell it; where they say nothing, how long it took (`catalogs/repairs.csv`).

    repair_of("GPU 3 replaced", hours=2.0)                  # "swap"
    repair_of("Xid 79: GPU 3 has fallen off the bus", 2.0)  # "reboot": by its length
"""

import re
from dataclasses import dataclass
from functools import cache, lru_cache

from store.catalog_rows import rows

# What comes behind the first thousand characters of a reason is not searched: whoever tells it must not stall us.
_MOST_SEARCHED = 1000


@dataclass(frozen=True, slots=True)
class RepairKind:
    """One row of the table. `least_h` is None where a length alone never tells it; `cured`: 0 to 1."""

    name: str
    pattern: re.Pattern[str] | None
    least_h: float | None
    cured: float


@cache
def repair_kinds() -> tuple[RepairKind, ...]:
    """The table of repairs, in order; its last is a planned change of the driver."""
    return tuple(
        RepairKind(
            row["kind"],
            re.compile(row["pattern"], re.IGNORECASE) if row["pattern"] else None,
            float(row["least_h"]) if row["least_h"] else None,
            float(row["cured"]),
        )
        for row in rows("repairs")
    )


def repair_told(reason: str) -> str | None:
    """The repair that a reason names; None where it names none."""
    text = reason[:_MOST_SEARCHED]
    return next((kind.name for kind in repair_kinds() if kind.pattern is not None and kind.pattern.search(text)), None)


@lru_cache(maxsize=8192)
def repair_place(reason: str) -> int:
    """The place of the repair that a reason names among `repair_kinds()`; -1 where it names none."""
    told = repair_told(reason)
    return next((at for at, kind in enumerate(repair_kinds()) if kind.name == told), -1)


def repair_of(reason: str, hours: float, driver: bool = False) -> str:
    """What was done in an outage that lasted so many hours.

    Args:
        driver: it was planned, and changed the driver.
    """
    return "driver" if driver else repair_told(reason) or repair_by_length(hours)


def repair_by_length(hours: float) -> str:
    """The repair that usually takes so long (FIELD D6)."""
    lengths = ((kind.name, kind.least_h) for kind in repair_kinds())
    return next((name for name, least_h in lengths if least_h is not None and hours >= least_h), "returned")

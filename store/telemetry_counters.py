"""Which measures are counters, and what it means when one rises: the table `catalogs/counters.csv`.

counter("nvlink_crc_l3", "gpu") -> Counter(kind="nvlink_crc", severity="warning", cause="hardware")
counter("gpu_temp_c", "gpu")    -> None
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache, lru_cache

from store.catalog import rows
from store.event import Cause, Event, Severity, from_wire

# Names remembered; a page may hold any.
_REMEMBERED = 8192
_LINK = re.compile(r"(.+)_l[0-9a-z]{1,4}")


@dataclass(frozen=True, slots=True)
class Counter:
    """What a rise means."""

    kind: str
    severity: Severity
    cause: Cause


@lru_cache(maxsize=_REMEMBERED)
def counter(name: str, device: str) -> Counter | None:
    """What the rise of a measure of a type of device means; None for a measure that is no counter of ours."""
    exact, patterns = _table()
    found = exact.get((name, device)) or exact.get((name, ""))
    return found or next((known for pattern, known in patterns if pattern.fullmatch(name)), None)


def told_by_their_links(names: Iterable[str]) -> set[str]:
    """Totals among names of counters that rose, of which a link's own counter rose as well."""
    return {match[1] for match in map(_LINK.fullmatch, names) if match}


@cache
def _table() -> tuple[dict[tuple[str, str], Counter], list[tuple[re.Pattern[str], Counter]]]:
    exact: dict[tuple[str, str], Counter] = {}
    patterns: list[tuple[re.Pattern[str], Counter]] = []
    for row in rows("counters"):
        words: Event = from_wire({**row, "source": "table"})  # refuses words that are none of ours
        known = Counter(words.kind, words.severity, words.cause)
        if "*" in row["name"]:
            patterns.append((re.compile(re.escape(row["name"]).replace(r"\*", "[0-9a-z]+")), known))
        else:
            exact[row["name"], row["devices"]] = known
    return exact, patterns

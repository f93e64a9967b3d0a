"""The simulator's figures by a name: `published` ones, or those that were fitted to the records of real sites.

    calibration("real").parameters

`calibration.csv` holds the real ones, each with the set and the number of records that it was fitted to. `make
calibration` fits them anew; `figure` rows are what the sets show, with the bounds that a simulated cluster keeps.
"""

import csv
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from simulator.site import Parameters

TABLE = Path(__file__).with_name("calibration.csv")
# A row of the table that is no parameter but an option.
_RATE = "rate_per_1000_node_days"


@dataclass(frozen=True, slots=True)
class Calibration:
    """Parameters, and where those that are not the published ones come from."""

    parameters: Parameters
    sources: Mapping[str, str] = field(default_factory=dict)


def rows(kind: str) -> dict[str, dict[str, str]]:
    """The rows of the table of a kind (`parameter`, `figure`), by their names."""
    with TABLE.open(encoding="utf-8", newline="") as file:
        table = csv.DictReader(line for line in file if not line.startswith("#"))
        return {row["name"]: row for row in table if row["kind"] == kind}


def calibration(name: str) -> Calibration:
    """The figures of a calibration; what the table does not have is as published."""
    published = Parameters()
    if name == "published":
        return Calibration(published)
    found = {each: row for each, row in rows("parameter").items() if each != _RATE}
    fitted: dict[str, Any] = {}
    for each, row in found.items():
        kind = type(getattr(published, each))
        fitted[each] = tuple(map(float, row["value"].split())) if kind is tuple else kind(row["value"])
    sources = {each: f"{row['source']}, n = {row['n']}: {row['how']}" for each, row in found.items()}
    return Calibration(replace(published, **fitted), sources)


def real_rate() -> float:
    """Unplanned failures per 1000 node-days of the real sites."""
    return float(rows("parameter")[_RATE]["value"])


def described(chosen: Calibration) -> dict[str, dict[str, Any]]:
    """Each parameter's value and source, for `truth/parameters.json`."""
    return {
        f.name: {
            "value": getattr(chosen.parameters, f.name),
            "source": chosen.sources.get(f.name, f.metadata["source"]),
        }
        for f in fields(chosen.parameters)
    }

"""The real tapes of fixtures/real/gwdg as samples, and what is known of them."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from math import isnan
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from store.records.telemetry import Sample
from store.telemetry.measures import find_metric, measure_of

TAPES = Path(__file__).parents[2] / "fixtures" / "real" / "gwdg" / "tapes"
_KEYS = ("time", "node", "gpu")


@dataclass(frozen=True, slots=True)
class Facts:
    """What a person found in a tape."""

    tape: str
    first_xid: dict[int, datetime]
    first_fewer: datetime | None
    reboots: list[datetime]


def facts() -> list[Facts]:
    """Of every tape."""
    found: list[dict[str, Any]] = json.loads((TAPES.parent / "facts.json").read_text(encoding="utf-8"))
    return [
        Facts(
            one["tape"],
            {int(code): datetime.fromisoformat(moment) for code, moment in one["first_xid"].items()},
            datetime.fromisoformat(fewer) if (fewer := one["first_time_fewer_than_4_gpus"]) else None,
            [datetime.fromisoformat(moment) for moment in one["reboots"]],
        )
        for one in found
    ]


@cache
def samples(tape: str) -> list[Sample]:
    """Everything that a tape holds, in no order."""
    folder = TAPES / tape / "telemetry"
    return [*_gpu_samples(folder / "gpu.parquet"), *_node_samples(folder / "host.parquet")]


def _rows(path: Path) -> Iterator[dict[str, Any]]:
    for row in pq.read_table(path).to_pylist():
        yield {name: value for name, value in row.items() if not (isinstance(value, float) and isnan(value))}


def _gpu_samples(path: Path) -> Iterator[Sample]:
    for row in _rows(path):
        values = {}
        for name, value in row.items():
            known = None if name in _KEYS or value is None else measure_of(name)
            if known is not None:
                values[known[0]] = value * known[1]
        yield Sample(row["time"], row["node"], row["gpu"], values)


def _node_samples(path: Path) -> Iterator[Sample]:
    for row in _rows(path):
        parts: dict[tuple[str, str, str | None], dict[str, float]] = {}
        for name, value in row.items():
            if name in _KEYS or value is None or name.startswith("scrape_"):
                continue
            source = "ipmi" if name.startswith("ipmi_") else "node_exporter"
            place: tuple[str, str, str | None] = ("bmc", source, None) if source == "ipmi" else ("node", source, None)
            if name.startswith("node_infiniband_"):
                place = ("hca", source, "infiniband")
            elif name.startswith("node_edac_"):
                place = ("dimm", source, "mc/csrow" if "csrow" in name else "mc")
            known = find_metric(source, name)
            measure = known.named({}) if known else None
            parts.setdefault(place, {})[measure or name] = value
        for (kind, source, device), values in parts.items():
            yield Sample(row["time"], row["node"], 0, values, type=kind, name=device, source=source)

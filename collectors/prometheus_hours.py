"""Recorded five minutes to node-hour roll-ups: the question for an hour so far, and what its answers add up to."""

import re
from collections.abc import Sequence
from datetime import UTC, datetime

from collectors.device_hours import rounded
from collectors.prometheus_rules import Recorded, record_name
from store.telemetry import ACCELERATORS, MAX_DEVICES, MAX_MEASURES, Rollup

_ORDER = ("min", "max", "avg", "last", "changes")


def hour_query(one: Recorded, node_label: str, nodes: Sequence[str], elapsed_s: int) -> str:
    """Every statistic of a measure over the last `elapsed_s` of some nodes, told apart by the label `stat`.

    A mean is weighted by how many values went into each five minutes.
    """
    names = "|".join(map(re.escape, nodes)).replace("\\", "\\\\")
    where = f'{{exporter="{one.exporter}",{node_label}=~"{names}"}}'

    def of(stat: str) -> str:
        return record_name(one.measure, stat) + where

    window = f"{elapsed_s}s"
    parts = {
        "min": f"min_over_time({of('min')}[{window}])",
        "max": f"max_over_time({of('max')}[{window}])",
        "avg": f"sum_over_time({of('sum')}[{window}]) / sum_over_time({of('count')}[{window}])",
        "last": f"last_over_time({of('last')}[{window}])",
        "changes": f"sum_over_time({of('changes')}[{window}])",
        "count": f"sum_over_time({of('count')}[{window}])",
    }
    return " or ".join(f'label_replace({part}, "stat", "{stat}", "", "")' for stat, part in parts.items())


class Hour:
    """One hour of some nodes, being filled with statistics."""

    def __init__(self, start_s: int) -> None:
        self._start_s = start_s
        self._nodes: dict[str, dict[str, dict[str, dict[str, float]]]] = {}

    def add(self, node: str, of: tuple[str, str], stat: str, value: float) -> None:
        """One statistic of a device's measure."""
        device, measure = of
        if value == value and abs(value) != float("inf"):
            self._nodes.setdefault(node, {}).setdefault(device, {}).setdefault(measure, {})[stat] = value

    def rollups(self) -> list[Rollup]:
        """A roll-up a node."""
        return [self._rollup(node, devices) for node, devices in sorted(self._nodes.items())]

    def _rollup(self, node: str, devices: dict[str, dict[str, dict[str, float]]]) -> Rollup:
        kept: dict[str, dict[str, list[float | None]]] = {}
        room = MAX_MEASURES
        for device, measures in sorted(devices.items())[:MAX_DEVICES]:
            chosen = sorted(measures.items())[:room]
            room -= len(chosen)
            if chosen:
                kept[device] = {name: [_rounded(stats.get(stat)) for stat in _ORDER] for name, stats in chosen}
        gpus = {name: found for name, found in devices.items() if name.partition(":")[0] in ACCELERATORS}
        counts = [max(stats.get("count", 0.0) for stats in found.values()) for found in gpus.values()]
        means = _of(gpus, "gpu_temp_c", "avg")
        return Rollup(
            node=node,
            time=datetime.fromtimestamp(self._start_s, UTC),
            samples=int(sum(counts)),
            gpus_seen=len(gpus),
            gpu_temp_mean_c=_mean(gpus, "gpu_temp_c"),
            gpu_temp_max_c=max(_of(gpus, "gpu_temp_c", "max"), default=None),
            gpu_temp_spread_c=max(means) - min(means) if means else None,
            memory_temp_max_c=max(_of(gpus, "memory_temp_c", "max"), default=None),
            power_mean_w=_mean(gpus, "power_w"),
            power_max_w=max(_of(gpus, "power_w", "max"), default=None),
            gpu_util_mean=_mean(gpus, "gpu_util_ratio"),
            sm_clock_min_mhz=min(_of(gpus, "sm_clock_mhz", "min"), default=None),
            devices=kept,
        )


def _of(gpus: dict[str, dict[str, dict[str, float]]], measure: str, stat: str) -> list[float]:
    return [found[measure][stat] for found in gpus.values() if stat in found.get(measure, {})]


def _mean(gpus: dict[str, dict[str, dict[str, float]]], measure: str) -> float | None:
    """Over samples: a GPU that was seen for half of the hour counts half."""
    found = [stats[measure] for stats in gpus.values() if {"avg", "count"} <= stats.get(measure, {}).keys()]
    count = sum(stats["count"] for stats in found)
    return sum(stats["avg"] * stats["count"] for stats in found) / count if count else None


def _rounded(value: float | None) -> float | None:
    return None if value is None else rounded(value)

"""Real tapes of nodes that failed (`fixtures/real/gwdg`): each node's samples in order of time, and its tickets.

    tapes = read_tapes(Path("fixtures/real/gwdg"))       # [NodeTape("node_6a5e...", times, ...)]
    tickets = read_tickets(Path("fixtures/real/gwdg"))   # [Ticket("node_6a5e...", day, gpu_lost)]

Tapes of one node that overlap are one; a gap of more than a day makes two of them.
"""

import json
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

_DAY = timedelta(days=1)
_BOOT = "node_boot_time_seconds"
# A clock that is set moves the boot time that is reckoned from it.
_BOOT_SLACK_S = 300.0


@dataclass(frozen=True, slots=True)
class NodeTape:
    """One node's samples: `times` in order, a column a GPU (or one for the node) of each metric, NaN where none is."""

    node: str
    times: npt.NDArray[np.datetime64]
    gpu: dict[str, npt.NDArray[np.float64]]
    host: dict[str, npt.NDArray[np.float64]]

    def values(self, metric: str) -> npt.NDArray[np.float64] | None:
        """A metric's columns; None where no sample has it."""
        found = self.gpu.get(metric, self.host.get(metric))
        return None if found is None or np.all(np.isnan(found)) else found

    def gpus_present(self) -> npt.NDArray[np.int64]:
        """How many GPUs have a row, as of each sample."""
        if not self.gpu:
            return np.zeros(len(self.times), dtype=np.int64)
        there = np.zeros(next(iter(self.gpu.values())).shape, dtype=np.bool_)
        for values in self.gpu.values():
            there |= ~np.isnan(values)
        count: npt.NDArray[np.int64] = np.sum(there, axis=1, dtype=np.int64)
        return count

    def up(self) -> npt.NDArray[np.bool_]:
        """Whether the node's own exporter answers, as of each sample."""
        values = self.values(_BOOT)
        return np.zeros(len(self.times), dtype=np.bool_) if values is None else ~np.isnan(values[:, 0])

    def boots(self) -> list[int]:
        """The samples that are the first of another boot."""
        values = self.values(_BOOT)
        if values is None:
            return []
        known = np.flatnonzero(~np.isnan(values[:, 0]))
        later = np.diff(values[known, 0]) > _BOOT_SLACK_S
        return [int(place) for place in known[1:][later]]

    def moment(self, place: int) -> datetime:
        """When a sample was taken."""
        return datetime.fromtimestamp(self.times[place].astype("datetime64[us]").astype(np.int64) / 1e6, UTC)

    def until(self, place: int) -> "NodeTape":
        """The tape as it was when a sample was its last."""
        cut = slice(0, place + 1)
        return NodeTape(
            self.node,
            self.times[cut],
            {name: values[cut] for name, values in self.gpu.items()},
            {name: values[cut] for name, values in self.host.items()},
        )

    @property
    def days(self) -> float:
        """How long it is."""
        return (self.moment(len(self.times) - 1) - self.moment(0)) / _DAY


@dataclass(frozen=True, slots=True)
class Ticket:
    """What the operators wrote down of a node: the day alone is known. `gpu_lost`: when its GPUs were first gone."""

    tape: str
    node: str
    day: datetime
    gpu_lost: datetime | None

    @property
    def over(self) -> datetime:
        """The end of its day."""
        return self.day + _DAY


def read_tickets(folder: Path) -> list[Ticket]:
    """The tickets that the tapes of a folder are about, in order of time."""
    facts: list[dict[str, Any]] = json.loads((folder / "facts.json").read_text(encoding="utf-8"))
    found = [
        Ticket(one["tape"], one["node"], _utc(one["operator_incident"]), _lost(one["first_time_fewer_than_4_gpus"]))
        for one in facts
    ]
    return sorted(found, key=lambda one: (one.node, one.day))


def _utc(text: str) -> datetime:
    moment = datetime.fromisoformat(text)
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _lost(text: str | None) -> datetime | None:
    return None if text is None else _utc(text)


def read_tapes(folder: Path) -> list[NodeTape]:
    """The tapes of a folder, one for each node and unbroken stretch of time."""
    import pandas as pd

    gpus, hosts = [], []
    for path in sorted((folder / "tapes").iterdir()):
        gpus.append(pd.read_parquet(path / "telemetry" / "gpu.parquet"))
        hosts.append(pd.read_parquet(path / "telemetry" / "host.parquet"))
    gpu = pd.concat(gpus).drop_duplicates(["node", "time", "gpu"])
    host = pd.concat(hosts).drop_duplicates(["node", "time"])
    found = []
    for node in sorted(host["node"].unique()):
        mine = host[host["node"] == node].drop(columns="node").set_index("time").sort_index()
        devices = gpu[gpu["node"] == node].drop(columns="node").set_index(["time", "gpu"]).sort_index()
        times = mine.index.union(devices.index.get_level_values("time").unique()).sort_values()
        breaks = np.flatnonzero(np.diff(times.to_numpy()) > np.timedelta64(1, "D")) + 1
        for stretch in np.split(np.arange(len(times)), breaks):
            found.append(_tape(node, times[stretch], mine, devices))
    return found


def _tape(node: str, times: Any, host: Any, devices: Any) -> NodeTape:
    rows = host.reindex(times)
    wide = devices.unstack("gpu").reindex(times)  # a column a metric and GPU, as the samples are
    gpu = {name: wide[name].to_numpy(dtype=np.float64) for name in wide.columns.get_level_values(0).unique()}
    columns = {name: rows[[name]].to_numpy(dtype=np.float64) for name in rows.columns}
    return NodeTape(node, times.tz_convert(None).to_numpy(), gpu, columns)

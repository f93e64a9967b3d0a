"""The state of each device of rows: what the filter makes of the signs, outages and repairs of 28 days before each.

A sign counts once an hour of its device and family: a burst is one. An hour that began before the window is left out: a
row's states depend on its own 28 days alone, whoever else is asked, and whenever.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from predictor.devices.filter import (
    Vectors,
    after_outage,
    after_quiet,
    after_repair,
    after_sign,
    figures,
    survival,
)
from predictor.history.arrays import (
    EVENT_WINDOW_MS,
    FAR_FUTURE_MS,
    HOUR_MS,
    Floats,
    Ints,
    OutageLog,
    Precursors,
    Rows,
    WindowIndex,
    distinct,
)
from predictor.history.families import FAMILIES
from store.nodes.repairs import repair_by_length, repair_kinds

# An hour is whole, or left out.
WINDOW_MS = EVENT_WINDOW_MS - HOUR_MS
# What came before so many signs and repairs of a node no longer matters.
MOST_STEPS = 96
_PART = 50_000
_TYPES = {
    "GPU": "gpu",
    "NPU": "gpu",
    "MLU": "gpu",
    "HPU": "gpu",
    "port": "link",
    "link": "link",
    "interface": "link",
    "net": "link",
    "cable": "link",
    "HCA": "nic",
    "nic": "nic",
    "dimm": "dimm",
    "memory": "dimm",
}
# Figures of a node of eight GPUs with as many links, of which none stands out.
_REST = {"gpu": 8, "link": 8, "nic": 8, "dimm": 16, "node": 1}
SIGN, OUT, BACK = range(3)


@dataclass(frozen=True, slots=True)
class _Steps:
    """What moves states, by node and time: a sign of a device (rank by name), an outage, a return.

    `told` is the sign's family, or the return's place among `repair_kinds()`.
    """

    line: WindowIndex
    time_ms: Ints
    what: Ints
    device: Ints
    told: Ints
    serious: Ints


@dataclass(frozen=True, slots=True)
class DeviceStates:
    """One entry a device that a row knows anything of, in order of row and of the device's name.

    `since_ms` is the sign, outage or repair that brought it to its likeliest state; 0 for none.
    """

    rows: int
    row: Ints
    device: Ints  # position in `names`
    kind: Ints  # position in `figures().types`
    state: Vectors
    since_ms: Ints
    names: tuple[str, ...]

    def sign_risk(self, hours: float) -> Floats:
        """Of each row: 1 - the product of its devices' survivals, each over that of a device that has been quiet."""
        usual = survival(figures().start, np.arange(len(figures().types)), hours)
        gained = np.log(survival(self.state, self.kind, hours)) - np.log(usual)[self.kind]
        return np.maximum(-np.expm1(np.bincount(self.row, gained, minlength=self.rows)), 0.0)

    def highest(self, *states: int) -> Floats:
        """Of each row: by how much its worst device is likelier than a quiet one to be in any of some states."""
        quiet = np.stack([figures().start[:, state] for state in states]).sum(axis=0).max()
        found = np.zeros(self.rows)
        np.maximum.at(found, self.row, np.stack([self.state[:, state] for state in states]).sum(axis=0) - quiet)
        return found


def device_states(events: Precursors, outages: OutageLog, rows: Rows) -> DeviceStates:
    """The states of all devices of rows that showed a sign, and of nodes that were out, in 28 days."""
    names, rank = np.unique(np.array([*events.devices, ""], dtype=np.str_), return_inverse=True)
    steps = _steps(events, outages, rank.astype(np.int64))
    types = np.array([figures().types.index(_TYPES.get(name.split(" ")[0], "node")) for name in names.tolist()])
    made = [_run(steps, part, len(names), types) for part in _parts(rows)]
    shift = np.arange(len(made)) * _PART
    row, device, state, since = (
        np.concatenate([one[at] + by if at == 0 else one[at] for one, by in zip(made, shift, strict=True)])
        for at in range(4)
    )
    return DeviceStates(len(rows), row, device, types[device], state, since, tuple(names.tolist()))


def _parts(rows: Rows) -> Iterator[Rows]:
    for begin in range(0, max(len(rows), 1), _PART):
        yield rows.only(np.arange(begin, min(begin + _PART, len(rows))))


def _steps(events: Precursors, outages: OutageLog, rank: Ints) -> _Steps:
    """All signs, once an hour, and all outages."""
    said = np.flatnonzero(events.family >= 0)
    hour = events.time_ms[said] // HOUR_MS
    since, hours = (int(hour.min()), int(np.ptp(hour)) + 1) if len(hour) else (0, 1)
    where = events.node[said] * len(rank) + rank[events.device[said]]
    # The first of each: events stand in order of time within their node.
    _, first = np.unique((where * len(FAMILIES) + events.family[said]) * hours + hour - since, return_index=True)
    kept = np.zeros(len(said), dtype=np.bool_)
    kept[first] = True
    signs = said[kept]
    ended = np.flatnonzero(outages.end_ms < FAR_FUTURE_MS)
    empty = int(rank[-1])
    sizes = (len(signs), len(outages.node), len(ended))
    node = np.concatenate([events.node[signs], outages.node, outages.node[ended]])
    time_ms = np.concatenate([events.time_ms[signs], outages.start_ms, outages.end_ms[ended]])
    what = np.repeat([SIGN, OUT, BACK], sizes)
    device = np.concatenate([rank[events.device[signs]], np.full(sizes[1] + sizes[2], empty, dtype=np.int64)])
    # A planned outage blames nobody; its end may cure.
    told = np.concatenate([events.family[signs], outages.planned.astype(np.int64), _repairs(outages)[ended]])
    serious = np.concatenate([events.serious[signs], np.zeros(sizes[1] + sizes[2], dtype=np.bool_)]).astype(np.int64)
    line = WindowIndex.of(node, time_ms)
    order = _one_by_one(line, what, device, told)
    return _Steps(line, time_ms[order], what[order], device[order], told[order], serious[order])


def _one_by_one(line: WindowIndex, what: Ints, device: Ints, told: Ints) -> Ints:
    """The order of entries by node and time; of one moment, which few share, by what they are."""
    order, same = line.order.copy(), np.zeros(len(line.order), dtype=np.bool_)
    shared = line.keys[1:] == line.keys[:-1]
    same[1:] |= shared
    same[:-1] |= shared
    at = order[same]
    order[same] = at[np.lexsort((told[at], device[at], what[at], line.keys[same]))]
    return order


def _repairs(outages: OutageLog) -> Ints:
    """What was done in each outage, as a place among `repair_kinds()`: by its reason, or by its length."""
    names = [kind.name for kind in repair_kinds()]
    hours = (outages.end_ms - outages.start_ms) / HOUR_MS
    lengths = {kind.least_h for kind in repair_kinds() if kind.least_h is not None}
    found = np.zeros(len(hours), dtype=np.int64)
    for least_h in sorted(lengths):
        found[hours >= least_h] = names.index(repair_by_length(least_h))
    if outages.repair is not None:
        found = np.where(outages.repair >= 0, outages.repair, found)
    return np.where(outages.driver, names.index("driver"), found)


def _run(steps: _Steps, rows: Rows, names: int, types: Ints) -> tuple[Ints, Ints, Vectors, Ints]:
    """Row, device, state and since when, of each device of rows."""
    first, end = steps.line.within(rows.node, rows.time_ms, WINDOW_MS)
    first = np.maximum(first, end - MOST_STEPS)
    count = np.maximum(end - first, 0)
    row = np.repeat(np.arange(len(rows)), count)
    turn = np.arange(len(row)) - np.repeat(np.cumsum(count) - count, count)
    step = first[row] + turn
    pair, its = distinct(row * names + steps.device[step], len(rows) * names)
    of_row, device = np.divmod(pair, names)
    run = _Run(of_row, types[device])
    # All rows' first steps, then their second ones; the rows stand in order, and of turns there are few.
    order = np.argsort(turn.astype(np.uint8), kind="stable")
    bounds = np.searchsorted(turn[order], np.arange(int(count.max(initial=0)) + 1))
    for begin, until in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
        at = order[begin:until]
        run.take(steps, step[at], its[at], row[at])
    run.quieten(np.arange(len(of_row)), rows.time_ms[of_row])
    return of_row, device, run.state, run.since_ms


class _Run:
    """The states of devices, each as of its last step."""

    def __init__(self, row: Ints, kind: Ints) -> None:
        self.row, self.kind = row, kind
        self.state = figures().start[kind]
        self.since_ms = np.zeros(len(row), dtype=np.int64)
        self._last_ms = np.zeros(len(row), dtype=np.int64)
        self._out = np.zeros(len(row), dtype=np.bool_)
        self._rest = _rest_per_h(row, kind)

    def take(self, steps: _Steps, step: Ints, device: Ints, row: Ints) -> None:
        """One step of each of some rows: of the device that it names, or of all devices of the row."""
        what, time_ms = steps.what[step], steps.time_ms[step]
        signs = what == SIGN
        if signs.any():
            at, mine = device[signs], step[signs]
            self.quieten(at, time_ms[signs])
            self._move(at, after_sign(self.state[at], steps.told[mine], steps.serious[mine]), time_ms[signs])
        for kind in (OUT, BACK):
            if (moved := what == kind).any():
                self._whole(steps, kind, step[moved], row[moved])

    def _whole(self, steps: _Steps, kind: int, step: Ints, row: Ints) -> None:
        """All devices of rows go out, or come back."""
        first, end = np.searchsorted(self.row, row), np.searchsorted(self.row, row, side="right")
        group = np.repeat(np.arange(len(row)), end - first)
        at = np.arange(len(group)) + np.repeat(first - (np.cumsum(end - first) - (end - first)), end - first)
        time_ms, told = steps.time_ms[step][group], steps.told[step][group]
        self.quieten(at, time_ms)
        if kind == OUT:
            found = after_outage(self.state[at], self.kind[at], group, self._rest[row])
            found = np.where((told == 1)[:, None], self.state[at], found)
        else:
            found = after_repair(self.state[at], told)
        self._out[at] = kind == OUT
        self._move(at, found, time_ms)

    def quieten(self, at: Ints, time_ms: Ints) -> None:
        """Devices until a moment: while their node is out, silence says nothing."""
        known = self._last_ms[at] > 0
        hours = np.where(known & ~self._out[at], (time_ms - self._last_ms[at]) / HOUR_MS, 0.0)
        changed = at[hours > 0]
        self.state[changed] = after_quiet(self.state[changed], self.kind[changed], hours[hours > 0])
        self._last_ms[at] = time_ms

    def _move(self, at: Ints, state: Vectors, time_ms: Ints) -> None:
        likeliest = np.argmax(state, axis=1)
        self.since_ms[at] = np.where(likeliest == np.argmax(self.state[at], axis=1), self.since_ms[at], time_ms)
        self.state[at] = state


def _rest_per_h(row: Ints, kind: Ints) -> Floats:
    """Of each row: the hazard of those devices of its node that have shown nothing, failures per hour."""
    own = figures()
    usual = (own.start * own.hazard).sum(axis=1)
    count = np.array([_REST[name] for name in own.types])
    rows = int(row.max(initial=-1)) + 1
    held = np.bincount(row * len(count) + kind, minlength=rows * len(count)).reshape(rows, len(count))
    rest: NDArray[np.float64] = (np.maximum(count - held, 0) * usual).cumsum(axis=1)[:, -1]
    return rest

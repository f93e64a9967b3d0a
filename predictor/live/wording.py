"""Reasons in an operator's words: what a group of features says about a node, and the events behind it.

412 corrected ECC errors on GPU 3 in 7 days
2 unplanned outages in 28 days
GPU 5 missing from telemetry since 3 h
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from predictor.features.device_measures import suffixes_of
from predictor.features.precursors import WINDOWS_D, incidents
from predictor.history.arrays import DAY_MS, HOUR_MS, Floats, Ints, Precursors, distinct, sum_within
from predictor.history.families import FAMILIES, FAMILY_INDEX, INCIDENT, PrecursorFamily
from store.plural import many

# The precursors of 28 days by family and node, and what they come to: what reasons are worded from.
#
# signs = PrecursorIndex.of(events, nodes=12_500, at_ms=...)
# signs.told(family=[1, INCIDENTS], node=[7, 7])      # of node 7, its memory errors and its serious incidents

# Serious incidents, as one more family.
INCIDENTS = len(FAMILIES)
NUMBERED: tuple[PrecursorFamily, ...] = (*FAMILIES, INCIDENT)
MAX_EVENTS = 20
_COUNTED = np.array([family.counted for family in NUMBERED])


class FamilySummary(NamedTuple):
    """What the events of one family come to, of one node.

    Attributes:
        window_d: the shortest window that holds at least half of those of 28 days.
        amount: how many this window holds; errors, where events carry a count.
        device: the one that gave most of them, "" for the node itself; of several the last by name.
        share: of them that this device gave.
        named: how many devices they name.
        ids: of the newest of them, newest last.
    """

    window_d: int
    amount: int
    device: str
    share: float
    named: int
    ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PrecursorIndex:
    """Events sorted by (family, node, time); one that opens a serious incident stands there once more.

    `first` says where the events of each family's nodes begin; `device` numbers `devices`, which are in order of name.
    `recent` says of each of WINDOWS_D how many events before each one lie in it, (windows, events + 1).
    """

    at_ms: int
    nodes: int
    first: Ints
    time_ms: Ints
    weight: Floats
    device: Ints
    devices: tuple[str, ...]
    ids: Sequence[str]
    recent: NDArray[np.int32]

    @classmethod
    def of(cls, events: Precursors, nodes: int, at_ms: int) -> "PrecursorIndex":
        """Those of the 28 days before a moment."""
        recent = events.time_ms >= at_ms - WINDOWS_D[-1] * DAY_MS
        reported = np.flatnonzero(recent & (events.family >= 0))
        opens = np.flatnonzero(recent & incidents(events))
        at = np.concatenate([reported, opens])
        family = np.concatenate([events.family[reported], np.full(len(opens), INCIDENTS, dtype=np.int64)])
        # By family, of which there are few: events stand by node and time already.
        order = np.argsort(family.astype(np.uint8), kind="stable")
        at, family = at[order], family[order]
        devices, number = np.unique(np.array(events.devices, dtype=np.str_), return_inverse=True)
        counted = np.zeros((len(WINDOWS_D), len(at) + 1), dtype=np.int32)
        for window, running in zip(WINDOWS_D, counted, strict=True):
            np.cumsum(events.time_ms[at] >= at_ms - window * DAY_MS, out=running[1:])
        return cls(
            at_ms=at_ms,
            nodes=nodes,
            first=np.searchsorted(family * nodes + events.node[at], np.arange(len(NUMBERED) * nodes + 1)),
            time_ms=events.time_ms[at],
            weight=np.where(_COUNTED[family], events.weight[at], 1.0),
            device=number.astype(np.int64)[events.device[at]],
            devices=tuple(devices.tolist()),
            ids=events.ids[at].tolist(),
            recent=counted,
        )

    def of_node(self, family: int, node: int) -> slice:
        """A node's events of a family."""
        at = family * self.nodes + node
        return slice(int(self.first[at]), int(self.first[at + 1]))

    def told(self, family: Ints, node: Ints) -> list[FamilySummary | None]:
        """What each family's events say of each node, one entry a pair; None where there are none."""
        found: list[FamilySummary | None] = [None] * len(node)
        at = family * self.nodes + node
        some = np.flatnonzero(self.first[at] < self.first[at + 1])
        begin, end = self.first[at[some]], self.first[at[some] + 1]
        window, begin = self._telling(begin, end)
        device, most, named = self._devices(begin, end)
        amount = sum_within(self.weight, begin, end)
        figures = (window, amount.round(), device, most / amount, named, np.maximum(begin, end - MAX_EVENTS), end)
        columns = [column.tolist() for column in (some, *figures)]
        for place, window_d, errors, which, share, names, first, last in zip(*columns, strict=True):
            told = tuple(self.ids[first:last])
            found[place] = FamilySummary(window_d, int(errors), self.devices[which], share, names, told)
        return found

    def _telling(self, begin: Ints, end: Ints) -> tuple[Ints, Ints]:
        """The window that tells most of entries [begin, end), in days, and where it begins."""
        held: Ints = (self.recent[:, end] - self.recent[:, begin]).astype(np.int64)
        window = summary_window(held)
        first: Ints = end - held[window, np.arange(len(end))]
        return np.array(WINDOWS_D)[window], first

    def _devices(self, begin: Ints, end: Ints) -> tuple[Ints, Floats, Ints]:
        """Of each row's entries [begin, end): the device that gave most, how much, how many devices are named."""
        count = end - begin
        row = np.repeat(np.arange(len(begin)), count)
        entry = np.arange(len(row)) - np.repeat(np.cumsum(count) - count - begin, count)
        pair, which = distinct(row * len(self.devices) + self.device[entry], len(begin) * len(self.devices))
        gave: Floats = np.bincount(which, self.weight[entry], minlength=len(pair)).astype(np.float64)
        row, device = np.divmod(pair, max(len(self.devices), 1))
        order = np.lexsort((device, gave, row))
        last = order[np.searchsorted(row, np.arange(len(begin)), side="right") - 1]
        named = np.array([name != "" for name in self.devices], dtype=np.bool_)[device]
        devices: Ints = np.bincount(row[named], minlength=len(begin))
        return device[last], gave[last], devices


def summary_window(held: Ints) -> Ints:
    """Which of WINDOWS_D is the shortest that holds at least half of the events that the longest holds.

    Args:
        held: how many each window holds; of many rows at once, (windows, rows).
    """
    shortest: Ints = np.argmax(2 * held >= held[-1], axis=0)
    return shortest


# A device is named when it gave at least this share of the events.
_DOMINANT = 0.8


# A reason's text, and the ids of the events behind it, newest last.
Sentence: TypeAlias = tuple[str, tuple[str, ...]]
_NUMBER: Mapping[str, int] = {**FAMILY_INDEX, INCIDENT.name: INCIDENTS}


class ExplainedNode(NamedTuple):
    """One node at the moment of its signs, and its features by name."""

    signs: PrecursorIndex
    node: int
    outage_events: tuple[str, ...]  # ids of the node's outage events, newest last
    features: Mapping[str, float]


def describe_all(
    wanted: Collection[tuple[int, str]], signs: PrecursorIndex, subject: Callable[[int], ExplainedNode], nodes: Ints
) -> dict[tuple[int, str], Sentence]:
    """What groups of features say of rows, whose nodes are given; events are counted for all of them at once."""
    reported = [(row, group) for row, group in wanted if group in _NUMBER and group not in _WORDS]
    number = np.array([_NUMBER[group] for _, group in reported], dtype=np.int64)
    at = nodes[np.array([row for row, _ in reported], dtype=np.int64)]
    found = dict(zip(reported, map(_precursors, number.tolist(), signs.told(number, at)), strict=True))
    return found | {one: describe(one[1], subject(one[0])) for one in wanted if one not in found}


def describe(group: str, subject: ExplainedNode) -> Sentence:
    """What one group of features says of a node."""
    if group in _WORDS:
        return _WORDS[group](subject)
    return _of_events(_NUMBER[group], subject) if group in _NUMBER else _measure(group, subject)


def _of_events(number: int, subject: ExplainedNode) -> Sentence:
    return _precursors(number, subject.signs.told(np.array([number]), np.array([subject.node]))[0])


def _precursors(number: int, reported: FamilySummary | None) -> Sentence:
    noun = NUMBERED[number].noun
    if reported is None:
        return f"no {noun} in 28 days", ()
    if reported.device and reported.share >= _DOMINANT:
        place = f" on {reported.device}"
    else:
        place = f" on {reported.named} devices" if reported.named > 1 else ""
    text = f"{many(reported.amount, noun)}{place} in {span(reported.window_d)}"
    return text, reported.ids


def span(window_d: int) -> str:
    """A window in words."""
    return "24 h" if window_d == 1 else f"{window_d} days"


def _outages(subject: ExplainedNode) -> Sentence:
    features = subject.features
    ids = subject.outage_events[-MAX_EVENTS:]
    for window in (7, 28, 90):
        count = int(features[f"outages_{window}d"])
        if count and count >= features["outages_all"] / 2:
            return f"{many(count, 'unplanned outage')} in {window} days", ids
    count = int(features["outages_all"])
    if count:
        text = f"{many(count, 'unplanned outage')}, the last {features['outage_age_d']:.0f} days ago"
        return text, ids
    return f"out of service {features['out_share_28d']:.0%} of the last 28 days", ids


def _gpu_missing(subject: ExplainedNode) -> Sentence:
    signs, number = subject.signs, FAMILY_INDEX["gpu_missing"]
    mine = signs.of_node(number, subject.node)
    missing_now = subject.features["gpus_missing"]
    if mine.start < mine.stop and missing_now > 0:
        hours = (signs.at_ms - int(signs.time_ms[mine][-1])) / HOUR_MS
        device = signs.devices[signs.device[mine][-1]] or "a GPU"
        since = f"{hours:.0f} h" if hours < 48 else f"{hours / 24:.0f} days"
        return f"{device} missing from telemetry since {since}", tuple(signs.ids[mine][-MAX_EVENTS:])
    if missing_now > 0:
        return f"{many(round(missing_now), 'GPU')} missing from telemetry", ()
    return _of_events(number, subject)


def _telemetry_gap(subject: ExplainedNode) -> Sentence:
    gap, lost = subject.features["telemetry_gap_24h"], subject.features["samples_lost_24h"]
    if gap * 24 >= 1:
        return f"no telemetry for {gap * 24:.0f} of the last 24 h, while others reported", ()
    if lost > 0.005:
        return f"{lost:.0%} of telemetry samples lost in 24 h", ()
    return f"telemetry gaps of {subject.features['telemetry_gap_7d'] * 168:.0f} h in 7 days", ()


def _measure(name: str, subject: ExplainedNode) -> Sentence:
    """What a numeric measure without words of its own says: its value, and how it rose."""
    value = {suffix: subject.features.get(f"{name}.{suffix}", float("nan")) for suffix in suffixes_of(name)}
    if np.isnan(value["last"]):
        return f"{name} was never told", ()
    if value["untold_d"] >= 2:
        return f"{name} not told for {value['untold_d']:.0f} days", ()
    if value.get("boots_28d", 0.0) > 0:
        count = value["boots_28d"]
        return (
            f"booted {many(round(count), 'time')} in 28 days, the last {value['boot_age_d']:.1f} ago",
            (),
        )
    text = f"{name} at {value['last']:.6g}"
    for window in (1, 7, 28):
        if value[f"up_{window}d"] > 0:
            return f"{text}, up by {value[f'up_{window}d']:.6g} in {span(window)}", ()
    if not np.isnan(value["rise_age_d"]):
        return f"{text}, last rose {value['rise_age_d']:.0f} days ago", ()
    return text, ()


def _measured(subject: ExplainedNode, parts: Sequence[tuple[str, str]], nothing: str) -> Sentence:
    """What was measured, in words; a feature that nobody measured is not spoken of."""
    values = [(words, subject.features[name]) for words, name in parts]
    return ", ".join(words.format(value) for words, value in values if not np.isnan(value)) or nothing, ()


def _temperature(subject: ExplainedNode) -> Sentence:
    parts = (
        ("hottest GPU {:.0f} °C in 24 h", "gpu_temp_max_c"),
        ("mean {:+.0f} °C against the leaf's other nodes", "gpu_temp_above_leaf_c"),
        ("{:.0f} °C between GPUs", "gpu_temp_spread_c"),
    )
    return _measured(subject, parts, "no GPU temperature in 24 h")


def _power(subject: ExplainedNode) -> Sentence:
    parts = (("GPU power {:.0f} W in 24 h", "power_mean_w"), ("{:+.0f} W against the week before", "power_trend_w"))
    return _measured(subject, parts, "no GPU power in 24 h")


def _load(subject: ExplainedNode) -> Sentence:
    parts = (("GPU load {:.0%} in 24 h", "gpu_util_mean"), ("lowest clock {:.0f} MHz in 24 h", "sm_clock_min_mhz"))
    return _measured(subject, parts, "no GPU load in 24 h")


def _neighbours(subject: ExplainedNode) -> Sentence:
    parts = [
        f"{many(round(subject.features[name]), noun)} {where}"
        for name, noun, where in (
            ("leaf_outages_24h", "outage", "on the same leaf"),
            ("leaf_flaps_24h", "node", "of the same leaf that lost a link"),
            ("rack_outages_24h", "outage", "in the same rack"),
        )
        if subject.features[name] > 0
    ]
    return " and ".join(parts or ["quiet neighbours"]) + " in 24 h", ()


def _maintenance(subject: ExplainedNode) -> Sentence:
    age = subject.features["driver_age_d"]
    if not np.isnan(age):
        return f"driver changed {many(round(age), 'day')} ago", ()
    return f"{many(round(subject.features['planned_28d']), 'planned outage')} in 28 days", ()


def _age(subject: ExplainedNode) -> Sentence:
    return f"in service for {subject.features['service_age_d']:.0f} days", ()


def _model(subject: ExplainedNode) -> Sentence:
    hazard = subject.features["model_hazard"]
    return f"nodes of its model have {1000 * hazard:.2g} unplanned outages in 1000 days", ()


def _devices(subject: ExplainedNode) -> Sentence:
    worse, failing = (subject.features[f"device_{state}"] for state in ("degraded", "failing"))
    if worse < 0.01:
        return "no device that stands out", ()
    return f"a device is degraded or worse with {worse:.0%}, failing with {failing:.0%}", ()


_WORDS: Mapping[str, Callable[[ExplainedNode], Sentence]] = {
    "outages": _outages,
    "gpu_missing": _gpu_missing,
    "telemetry_gap": _telemetry_gap,
    "temperature": _temperature,
    "power": _power,
    "load": _load,
    "neighbours": _neighbours,
    "devices": _devices,
    "maintenance": _maintenance,
    "age": _age,
    "model": _model,
}

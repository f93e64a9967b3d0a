"""Reasons in an operator's words: what a group of features says about a node, and the events behind it.

412 corrected ECC errors on GPU 3 in 7 days
2 unplanned outages in 28 days
GPU 5 missing from telemetry since 3 h
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from predictor.families import FAMILIES, FAMILY_INDEX, INCIDENT, Family
from predictor.history import DAY_MS, HOUR_MS, Bools, History, Ints
from predictor.measure_features import SUFFIXES
from predictor.precursor_features import WINDOWS_D

MAX_EVENTS = 20
# A device is named when it gave at least this share of the events.
_DOMINANT = 0.8


@dataclass(frozen=True, slots=True)
class Subject:
    """One node at one moment: its features by name, its events, and what is known of the fleet."""

    history: History
    incident: Bools  # which events open a serious incident
    outage_events: tuple[str, ...]  # ids of the node's outage events, newest last
    moment_ms: int
    mine: Ints  # the node's events of the last 28 days, newest last
    features: Mapping[str, float]


def describe(group: str, subject: Subject) -> tuple[str, tuple[str, ...]]:
    """What a group of features says of a node, and the ids of the events behind it, newest last."""
    if group in _WORDS:
        return _WORDS[group](subject)
    if group not in FAMILY_INDEX and group != INCIDENT.name:
        return _measure(group, subject)
    family = INCIDENT if group == INCIDENT.name else FAMILIES[FAMILY_INDEX[group]]
    return _precursors(family, subject)


def _precursors(family: Family, subject: Subject) -> tuple[str, tuple[str, ...]]:
    events = subject.history.precursors
    mine = subject.mine
    kept = subject.incident[mine] if family is INCIDENT else events.family[mine] == FAMILY_INDEX[family.name]
    mine = mine[kept]
    if not len(mine):
        return f"no {family.noun} in 28 days", ()
    window_d = telling_window(subject.moment_ms - events.time_ms[mine])
    shown = mine[events.time_ms[mine] >= subject.moment_ms - window_d * DAY_MS]
    amount = round(float(events.weight[shown].sum())) if family.counted else len(shown)
    weights: dict[str, float] = {}
    for at in shown:
        name = events.devices[events.device[at]]
        weights[name] = weights.get(name, 0.0) + (float(events.weight[at]) if family.counted else 1.0)
    device, most = max(weights.items(), key=lambda item: (item[1], item[0]))
    if not device or most < _DOMINANT * sum(weights.values()):
        named = [name for name in weights if name]
        place = f" on {len(named)} devices" if len(named) > 1 else ""
    else:
        place = f" on {device}"
    text = f"{amount} {family.noun}{'' if amount == 1 else 's'}{place} in {span(window_d)}"
    return text, tuple(events.ids[at] for at in shown[-MAX_EVENTS:]) if len(events.ids) else ()


def telling_window(age_ms: Ints) -> int:
    """The shortest window that holds at least half of the events of 28 days, in days."""
    for window in WINDOWS_D:
        if (age_ms <= window * DAY_MS).mean() >= 0.5:
            return window
    return WINDOWS_D[-1]


def span(window_d: int) -> str:
    """A window in words."""
    return "24 h" if window_d == 1 else f"{window_d} days"


def _outages(subject: Subject) -> tuple[str, tuple[str, ...]]:
    features = subject.features
    ids = subject.outage_events[-MAX_EVENTS:]
    for window in (7, 28, 90):
        count = int(features[f"outages_{window}d"])
        if count and count >= features["outages_all"] / 2:
            return f"{count} unplanned outage{'' if count == 1 else 's'} in {window} days", ids
    count = int(features["outages_all"])
    if count:
        text = f"{count} unplanned outage{'' if count == 1 else 's'}, the last {features['outage_age_d']:.0f} days ago"
        return text, ids
    return f"out of service {features['out_share_28d']:.0%} of the last 28 days", ids


def _gpu_missing(subject: Subject) -> tuple[str, tuple[str, ...]]:
    events = subject.history.precursors
    mine = subject.mine[events.family[subject.mine] == FAMILY_INDEX["gpu_missing"]]
    missing_now = subject.features["gpus_missing"]
    if len(mine) and missing_now > 0:
        last = mine[-1]
        hours = (subject.moment_ms - int(events.time_ms[last])) / HOUR_MS
        device = events.devices[events.device[last]] or "a GPU"
        since = f"{hours:.0f} h" if hours < 48 else f"{hours / 24:.0f} days"
        return f"{device} missing from telemetry since {since}", _ids(subject, mine)
    if missing_now > 0:
        return f"{missing_now:.0f} GPU{'' if missing_now == 1 else 's'} missing from telemetry", _ids(subject, mine)
    return _precursors(FAMILIES[FAMILY_INDEX["gpu_missing"]], subject)


def _ids(subject: Subject, mine: Ints) -> tuple[str, ...]:
    events = subject.history.precursors
    return tuple(events.ids[at] for at in mine[-MAX_EVENTS:]) if len(events.ids) else ()


def _telemetry_gap(subject: Subject) -> tuple[str, tuple[str, ...]]:
    gap, lost = subject.features["telemetry_gap_24h"], subject.features["samples_lost_24h"]
    if gap * 24 >= 1:
        return f"no telemetry for {gap * 24:.0f} of the last 24 h, while others reported", ()
    if lost > 0.005:
        return f"{lost:.0%} of telemetry samples lost in 24 h", ()
    return f"telemetry gaps of {subject.features['telemetry_gap_7d'] * 168:.0f} h in 7 days", ()


def _measure(name: str, subject: Subject) -> tuple[str, tuple[str, ...]]:
    """What a numeric measure without words of its own says: its value, and how it rose."""
    value = {suffix: subject.features.get(f"{name}.{suffix}", float("nan")) for suffix in SUFFIXES}
    if np.isnan(value["last"]):
        return f"{name} was never told", ()
    text = f"{name} at {value['last']:.6g}"
    for window in (1, 7, 28):
        if value[f"up_{window}d"] > 0:
            return f"{text}, up by {value[f'up_{window}d']:.6g} in {span(window)}", ()
    if not np.isnan(value["rise_age_d"]):
        return f"{text}, last rose {value['rise_age_d']:.0f} days ago", ()
    return text, ()


def _measured(subject: Subject, parts: Sequence[tuple[str, str]], nothing: str) -> tuple[str, tuple[str, ...]]:
    """What was measured, in words; a feature that nobody measured is not spoken of."""
    values = [(words, subject.features[name]) for words, name in parts]
    return ", ".join(words.format(value) for words, value in values if not np.isnan(value)) or nothing, ()


def _temperature(subject: Subject) -> tuple[str, tuple[str, ...]]:
    parts = (
        ("hottest GPU {:.0f} °C in 24 h", "gpu_temp_max_c"),
        ("mean {:+.0f} °C against the leaf's other nodes", "gpu_temp_above_leaf_c"),
        ("{:.0f} °C between GPUs", "gpu_temp_spread_c"),
    )
    return _measured(subject, parts, "no GPU temperature in 24 h")


def _power(subject: Subject) -> tuple[str, tuple[str, ...]]:
    parts = (("GPU power {:.0f} W in 24 h", "power_mean_w"), ("{:+.0f} W against the week before", "power_trend_w"))
    return _measured(subject, parts, "no GPU power in 24 h")


def _load(subject: Subject) -> tuple[str, tuple[str, ...]]:
    parts = (("GPU load {:.0%} in 24 h", "gpu_util_mean"), ("lowest clock {:.0f} MHz in 24 h", "sm_clock_min_mhz"))
    return _measured(subject, parts, "no GPU load in 24 h")


def _neighbours(subject: Subject) -> tuple[str, tuple[str, ...]]:
    parts = [
        f"{subject.features[name]:.0f} {noun}"
        for name, noun in (
            ("leaf_outages_24h", "outages on the same leaf"),
            ("leaf_flaps_24h", "link flaps on the same leaf"),
            ("rack_outages_24h", "outages in the same rack"),
        )
        if subject.features[name] > 0
    ]
    return " and ".join(parts or ["quiet neighbours"]) + " in 24 h", ()


def _maintenance(subject: Subject) -> tuple[str, tuple[str, ...]]:
    age = subject.features["driver_age_d"]
    if not np.isnan(age):
        return f"driver changed {age:.0f} days ago", ()
    return f"{subject.features['planned_28d']:.0f} planned outages in 28 days", ()


def _age(subject: Subject) -> tuple[str, tuple[str, ...]]:
    return f"in service for {subject.features['service_age_d']:.0f} days", ()


def _model(subject: Subject) -> tuple[str, tuple[str, ...]]:
    hazard = subject.features["model_hazard"]
    return f"nodes of its model have {1000 * hazard:.2g} unplanned outages in 1000 days", ()


_WORDS: Mapping[str, Callable[[Subject], tuple[str, tuple[str, ...]]]] = {
    "outages": _outages,
    "gpu_missing": _gpu_missing,
    "telemetry_gap": _telemetry_gap,
    "temperature": _temperature,
    "power": _power,
    "load": _load,
    "neighbours": _neighbours,
    "maintenance": _maintenance,
    "age": _age,
    "model": _model,
}

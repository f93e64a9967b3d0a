"""Reasons in an operator's words: every group, every branch."""

from collections.abc import Mapping

import pytest
import sqlalchemy as sa
from fleet_store import day, node, outage, put, rollup, sbe, xid

from predictor.dataset.matrix import FIXED, features_of, matrix
from predictor.history.arrays import every, to_ms
from predictor.history.store_reader import read_history
from predictor.live.wording import MAX_EVENTS, ExplainedNode, PrecursorIndex, describe
from store.records.event import Device, Event


def subject(engine: sa.Engine, moment_d: float, name: str = "a", **changed: float) -> ExplainedNode:
    """A node at a moment, as scoring sees it; `changed` overrides features."""
    moment = day(moment_d)
    with engine.connect() as connection:
        history = read_history(connection, moment, moment)
    position = history.fleet.index[name]
    names = [feature.name for feature in features_of(history)]
    row = matrix(history, every(len(history.fleet.names), [moment]))[position]
    features = dict(zip(names, row.tolist(), strict=True))
    signs = PrecursorIndex.of(history.precursors, len(history.fleet.names), to_ms(moment))
    return ExplainedNode(signs, position, ("o1", "o2"), features | changed)


def said(engine: sa.Engine, group: str, moment_d: float = 30, **changed: float) -> str:
    """What is said of node `a`."""
    return describe(group, subject(engine, moment_d, **changed))[0]


def test_every_group_has_words(engine: sa.Engine) -> None:
    """Even of a node of which nothing is known."""
    put(engine, [node("a", leaf=None, rack=None, gpus=None, in_service_since=None)])
    for group in dict.fromkeys(feature.group for feature in FIXED):
        text, events = describe(group, subject(engine, 30))
        assert text
        assert events == (("o1", "o2") if group == "outages" else ())


@pytest.mark.parametrize(
    ("ages_d", "text"),
    [
        ([0.5], "1 GPU hardware fault on GPU 0000:0f:00.0 in 24 h"),
        ([0.5, 0.6, 9], "2 GPU hardware faults on GPU 0000:0f:00.0 in 24 h"),
        ([0.5, 3, 4], "3 GPU hardware faults on GPU 0000:0f:00.0 in 7 days"),
        ([3, 10, 12, 14], "4 GPU hardware faults on GPU 0000:0f:00.0 in 28 days"),
    ],
)
def test_the_shortest_telling_window_is_named(engine: sa.Engine, ages_d: list[float], text: str) -> None:
    """The one that holds at least half of the last 28 days' events."""
    put(engine, [node("a")], events=[xid("a", 30 - age, 79) for age in ages_d])
    assert said(engine, "hardware_xid") == text


def test_errors_are_summed_and_the_guilty_device_named(engine: sa.Engine) -> None:
    """One GPU has nearly all; the ids are those of the events shown, newest last."""
    events = [sbe("a", 29 + i / 100, 3, 20) for i in range(20)] + [sbe("a", 29.5, 1, 12)]
    put(engine, [node("a")], events=events)
    text, ids = describe("ecc_sbe", subject(engine, 30))
    assert text == "412 corrected ECC errors on GPU 3 in 24 h"
    assert len(ids) == MAX_EVENTS


def test_a_spread_over_devices_names_none(engine: sa.Engine) -> None:
    """It says over how many."""
    put(engine, [node("a")], events=[sbe("a", 29.5, gpu, 5) for gpu in range(4)])
    assert said(engine, "ecc_sbe") == "20 corrected ECC errors on 4 devices in 24 h"


def test_an_event_of_the_node_itself_names_no_device(engine: sa.Engine) -> None:
    """Only how many and since when."""
    event = Event(day(29.5), "a", "kernel", "kernel_panic", severity="fatal", cause="host", device=Device())
    put(engine, [node("a")], events=[event])
    assert said(engine, "host") == "1 host fault in 24 h"


@pytest.mark.parametrize(
    ("starts_d", "text"),
    [
        ([99], "1 unplanned outage in 7 days"),
        ([80, 90], "2 unplanned outages in 28 days"),
        ([40, 50, 60], "3 unplanned outages in 90 days"),
        ([1, 2, 3, 70], "4 unplanned outages, the last 30 days ago"),
    ],
)
def test_outages_are_told_by_the_window_that_holds_most(engine: sa.Engine, starts_d: list[float], text: str) -> None:
    """With the ids of their events."""
    put(engine, [node("a")], outages=[outage("a", start) for start in starts_d])
    found = describe("outages", subject(engine, 100))
    assert found == (text, ("o1", "o2"))


def test_time_out_of_service_is_told_where_no_outage_was_unplanned(engine: sa.Engine) -> None:
    """Long maintenance."""
    put(engine, [node("a")], outages=[outage("a", 20, 168, planned=True)])
    assert said(engine, "outages") == "out of service 25% of the last 28 days"


def test_missing_gpus_without_an_event_are_counted(engine: sa.Engine) -> None:
    """Telemetry alone shows it; one that has come back is a disappearance."""
    put(engine, [node("a")], rollups=[rollup("a", 29 + h / 24, gpus_seen=6) for h in range(24)])
    assert said(engine, "gpu_missing") == "2 GPUs missing from telemetry"
    assert said(engine, "gpu_missing", gpus_missing=1.0) == "1 GPU missing from telemetry"
    gone = Event(day(25), "a", "dcgm", "gpu_missing", severity="warning", device=Device("gpu", index=5))
    put(engine, events=[gone])
    assert said(engine, "gpu_missing") == "GPU 5 missing from telemetry since 5 days"
    assert said(engine, "gpu_missing", gpus_missing=0.0) == "1 GPU disappearance on GPU 5 in 7 days"


CASES: Mapping[str, tuple[str, dict[str, float], str]] = {
    "gap": ("telemetry_gap", {"telemetry_gap_24h": 0.25}, "no telemetry for 6 of the last 24 h, while others reported"),
    "lost": (
        "telemetry_gap",
        {"telemetry_gap_24h": 0, "samples_lost_24h": 0.2},
        "20% of telemetry samples lost in 24 h",
    ),
    "week": (
        "telemetry_gap",
        {"telemetry_gap_24h": 0, "samples_lost_24h": 0, "telemetry_gap_7d": 0.05},
        "telemetry gaps of 8 h in 7 days",
    ),
    "heat": (
        "temperature",
        {"gpu_temp_max_c": 84.2, "gpu_temp_above_leaf_c": 6, "gpu_temp_spread_c": 11},
        "hottest GPU 84 °C in 24 h, mean +6 °C against the leaf's other nodes, 11 °C between GPUs",
    ),
    "power": (
        "power",
        {"power_mean_w": 412, "power_trend_w": -30},
        "GPU power 412 W in 24 h, -30 W against the week before",
    ),
    "load": (
        "load",
        {"gpu_util_mean": 0.93, "sm_clock_min_mhz": 1410},
        "GPU load 93% in 24 h, lowest clock 1410 MHz in 24 h",
    ),
    "leaf": (
        "neighbours",
        {"leaf_outages_24h": 2, "leaf_flaps_24h": 0, "rack_outages_24h": 1},
        "2 outages on the same leaf and 1 outage in the same rack in 24 h",
    ),
    "quiet": (
        "neighbours",
        {"leaf_outages_24h": 0, "leaf_flaps_24h": 0, "rack_outages_24h": 0},
        "quiet neighbours in 24 h",
    ),
    "no temperature": (
        "temperature",
        {"gpu_temp_max_c": float("nan"), "gpu_temp_above_leaf_c": float("nan"), "gpu_temp_spread_c": float("nan")},
        "no GPU temperature in 24 h",
    ),
    "no week before": (
        "power",
        {"power_mean_w": 412.0, "power_trend_w": float("nan")},
        "GPU power 412 W in 24 h",
    ),
    "driver": ("maintenance", {"driver_age_d": 2.2}, "driver changed 2 days ago"),
    "planned": ("maintenance", {"driver_age_d": float("nan"), "planned_28d": 3}, "3 planned outages in 28 days"),
    "age": ("age", {"service_age_d": 12}, "in service for 12 days"),
    "device": (
        "devices",
        {"device_degraded": 0.97, "device_failing": 0.31},
        "a device is degraded or worse with 97%, failing with 31%",
    ),
    "no device": ("devices", {"device_degraded": 0.001, "device_failing": 0.0}, "no device that stands out"),
}


@pytest.mark.parametrize("case", CASES)
def test_levels_are_told_with_their_units(engine: sa.Engine, case: str) -> None:
    """Celsius, watts, hours: what the feature's name carries."""
    group, changed, text = CASES[case]
    put(engine, [node("a")])
    assert said(engine, group, **changed) == text

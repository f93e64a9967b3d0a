"""What each family of features says of a small, known history."""

from datetime import timedelta

import numpy as np
import pandas as pd
import pytest
import sqlalchemy as sa
from fleet_store import day, node, outage, put, rollup, sbe, xid

from predictor.dataset.dataset import build
from predictor.dataset.matrix import FIXED
from predictor.history.families import FAMILIES, family_of, is_serious
from store.records.event import Device, Event


def at(engine: sa.Engine, moment_d: float) -> pd.DataFrame:
    """The features of a day, by node."""
    with engine.connect() as connection:
        return build(connection, [day(moment_d)]).droplevel("time")


def test_every_feature_has_one_name_and_one_column(engine: sa.Engine) -> None:
    """Names are unique, and the dataset has exactly these."""
    names = [feature.name for feature in FIXED]
    assert len(set(names)) == len(names)
    put(engine, [node("a")])
    frame = at(engine, 3)
    assert list(frame.columns) == names
    assert frame.index.tolist() == ["a"]


def test_a_quiet_node_has_the_reference_of_every_feature(engine: sa.Engine) -> None:
    """Where nothing has happened, features are what the reasons compare with."""
    put(engine, [node("a")])
    row = at(engine, 3).loc["a"]
    for name, feature in ((feature.name, feature) for feature in FIXED):
        if feature.reference is not None and feature.group not in ("telemetry_gap", "gpu_missing", "neighbours"):
            assert row[name] == pytest.approx(feature.reference, nan_ok=True), name


def test_precursors_are_counted_in_their_windows(engine: sa.Engine) -> None:
    """1, 7 and 28 days; errors where events carry a count; the most of one GPU."""
    events = [sbe("a", 29.5, 3, 100), sbe("a", 29.6, 3, 50), sbe("a", 25, 1, 7), sbe("a", 10, 2, 1), sbe("a", 1, 2, 1)]
    put(engine, [node("a")], events=events)
    row = at(engine, 30).loc["a"]
    assert [row[f"ecc_sbe_{w}d"] for w in (1, 7, 28)] == [2, 3, 4]
    assert (row["ecc_sbe_sum_7d"], row["ecc_sbe_sum_28d"], row["ecc_sbe_device_7d"]) == (157, 158, 150)
    assert row["ecc_sbe_age_d"] == pytest.approx(0.4, abs=1e-4)


def test_events_of_a_minute_are_one_incident(engine: sa.Engine) -> None:
    """Serious ones only: an application's Xid opens none."""
    minute = 1 / 1440
    events = [xid("a", 10 + i * 0.5 * minute, 79) for i in range(5)] + [xid("a", 10 + 5 * minute, 48)]
    events += [xid("a", 9, 31, "application", "error"), xid("b", 10, 79)]
    put(engine, [node("a"), node("b")], events=events)
    frame = at(engine, 11)
    assert frame["incident_7d"].tolist() == [2, 1]
    assert frame.loc["a", "app_xid_7d"] == 1
    assert frame.loc["a", ["hardware_xid_7d", "memory_7d"]].tolist() == [5, 1]


def test_history_counts_unplanned_outages_only(engine: sa.Engine) -> None:
    """Counts by window, age of the last one and of its repair; maintenance apart."""
    outages = [outage("a", 5, 10), outage("a", 80, 24), outage("a", 99, 12, planned=True, cause="driver")]
    put(engine, [node("a"), node("b")], outages=outages)
    frame = at(engine, 100)
    row = frame.loc["a"]
    assert [row[f"outages_{w}"] for w in ("7d", "28d", "90d", "all")] == [0, 1, 1, 2]
    assert row["outage_age_d"] == pytest.approx(20)
    assert row["repair_age_d"] == pytest.approx(19)
    assert row["out_share_28d"] == pytest.approx(1.5 / 28)
    assert (row["planned_28d"], row["driver_age_d"]) == (1, 1)
    assert row["outage_hazard"] == pytest.approx((0.12 + 2) / (0.12 / (3 / (1 / 3.8e-3 + 190)) + 95), rel=1e-3)
    assert row["outage_hazard"] > frame.loc["b", "outage_hazard"]


def test_age_is_unknown_where_nobody_says_since_when(engine: sa.Engine) -> None:
    """No in_service_since, no age; in_service_until is no feature at all."""
    put(engine, [node("a", in_service_since=None, in_service_until=day(50)), node("b")])
    frame = at(engine, 30)
    assert np.isnan(frame.loc["a", "service_age_d"])
    assert frame.loc["b", "service_age_d"] == 30
    assert not any("until" in name for name in frame.columns)


def test_telemetry_levels_and_trends(engine: sa.Engine) -> None:
    """The last day against the week before, and against the others of the leaf."""
    hours = [d + h / 24 for d in range(20, 30) for h in range(24)]
    warm = [rollup("a", h, 50.0 if h < 29 else 58.0) for h in hours]
    put(engine, [node("a"), node("b"), node("c")], rollups=warm + [rollup(n, h) for h in hours for n in ("b", "c")])
    frame = at(engine, 30)
    assert frame.loc["a", ["gpu_temp_mean_c", "gpu_temp_max_c", "gpu_temp_trend_c"]].tolist() == [58, 63, 8]
    assert frame["gpu_temp_above_leaf_c"].tolist() == [8, -4, -4]
    assert frame["telemetry_gap_24h"].tolist() == [0, 0, 0]


def test_an_hour_that_has_not_ended_is_not_seen(engine: sa.Engine) -> None:
    """At 10:20 the newest hour is 09:00."""
    put(engine, [node("a")], rollups=[rollup("a", 10 + 9 / 24, 50.0), rollup("a", 10 + 10 / 24, 90.0)])
    with engine.connect() as connection:
        frame = build(connection, [day(10) + timedelta(hours=10, minutes=20)])
    assert frame["gpu_temp_max_c"].tolist() == [55.0]


def test_vanished_telemetry_is_a_gap_and_stays_unknown(engine: sa.Engine) -> None:
    """The node's own gap, not the fleet's; levels are unknown, never 0; a node that never reported has no gap."""
    hours = [20 + h / 24 for h in range(10 * 24)]
    scraped = [h for h in hours if not 29.5 <= h < 29.75]  # the collector was down for all
    put(engine, [node("a"), node("b"), node("c"), node("d")])
    put(
        engine,
        rollups=[rollup("a", h) for h in scraped if h < 29] + [rollup(n, h) for h in scraped for n in ("b", "c")],
    )
    frame = at(engine, 30)
    assert frame["telemetry_gap_24h"].tolist() == pytest.approx([0.75, 0, 0, np.nan], nan_ok=True)
    assert np.isnan(frame.loc["a", "gpu_temp_mean_c"])
    assert np.isnan(frame.loc["d", "gpus_missing"])


def test_missing_gpus_are_counted_against_what_the_node_has(engine: sa.Engine) -> None:
    """Eight by its record, seven in the newest hour; without a record, the most that was seen."""
    for name, gpus in (("a", 8), ("b", None)):
        put(engine, [node(name, gpus=gpus)])
        put(engine, rollups=[rollup(name, 9 + h / 24, gpus_seen=8 if h < 20 else 7) for h in range(24)])
    frame = at(engine, 10)
    assert frame["gpus_missing"].tolist() == [1, 1]
    assert frame["gpus_missing_24h"].tolist() == pytest.approx([4 / 24] * 2)


@pytest.mark.parametrize(
    ("lost", "expected"),
    [
        ({}, [0, 0, 0, 0]),
        ({"a": 900}, [0, 0, 0, 0]),
        ({"a": 1, "b": 40}, [0, 0, 2, 0]),
        ({"a": 1, "c": 1}, [0, 2, 0, 0]),
    ],
    ids=["none", "one that shouts", "two", "two others"],
)
def test_links_of_a_leaf_are_lost_where_two_of_its_other_nodes_say_so(
    engine: sa.Engine, lost: dict[str, int], expected: list[int]
) -> None:
    """Each node counts once, however often it says so: one that makes it up raises nobody's risk."""
    put(engine, [node("a"), node("b"), node("c"), node("d", leaf="leaf-2")])
    port = {"severity": "error", "cause": "fabric", "device": Device("port", uuid="0x1", port=3)}
    flaps = [
        Event(day(9.1 + turn / 2000), name, "opensm", "link_down", **port)
        for name in lost
        for turn in range(lost[name])
    ]  # type: ignore[arg-type]
    put(engine, events=flaps)
    assert at(engine, 10)["leaf_flaps_24h"].tolist() == expected


def test_neighbours_are_the_others_of_the_leaf(engine: sa.Engine) -> None:
    """A node's own outage is not its neighbour's; an unknown leaf has unknown neighbours."""
    put(engine, [node("a"), node("b"), node("c", leaf="leaf-2"), node("d", leaf=None, rack=None)])
    put(engine, outages=[outage("a", 9.5, 1)])
    frame = at(engine, 10)
    assert frame["leaf_outages_24h"].tolist() == pytest.approx([0, 1, 0, np.nan], nan_ok=True)
    assert frame["leaf_flaps_24h"].tolist() == pytest.approx([0, 0, 0, np.nan], nan_ok=True)
    assert frame["rack_outages_24h"].tolist() == pytest.approx([0, 1, 1, np.nan], nan_ok=True)


@pytest.mark.parametrize(
    ("what", "family"),
    [
        (("ecc_sbe", None, "info", "hardware"), "ecc_sbe"),
        (("xid", 63, "warning", "hardware"), "row_remap"),
        (("xid", 48, "fatal", "hardware"), "memory"),
        (("xid", 74, "fatal", "hardware"), "nvlink"),
        (("xid", 79, "fatal", "hardware"), "hardware_xid"),
        (("xid", 119, "fatal", "driver"), "driver_xid"),
        (("xid", 31, "error", "application"), "app_xid"),
        (("xid", 999, "warning", "unknown"), "driver_xid"),
        (("link_down", None, "warning", "fabric"), "link_flap"),
        (("kernel_panic", None, "fatal", "host"), "host"),
        (("hung_task", None, "warning", "host"), None),
        (("edac", None, "warning", "hardware"), "host_memory"),
        (("mce", None, "error", "hardware"), "host_memory"),
        (("ghes", None, "info", "hardware"), None),
        (("pcie_aer", None, "warning", "hardware"), "pcie"),
        (("pcie_aer_detail", None, "info", "hardware"), None),
        (("pcie_recovery", None, "info", "hardware"), None),
        (("gpu_ras", None, "info", "hardware"), "ecc_sbe"),
        (("gpu_ras", None, "error", "hardware"), "memory"),
        (("gpu_bad_pages", None, "warning", "hardware"), "row_remap"),
        (("xgmi_error", None, "error", "hardware"), "nvlink"),
        (("gpu_throttled", None, "warning", "hardware"), "thermal"),
        (("cpu_throttled", None, "info", "hardware"), None),
        (("ib_port", None, "error", "fabric"), "link_flap"),
        (("ib_port", None, "info", "fabric"), None),
        (("net_link", None, "info", "fabric"), None),
        (("link_down", None, "info", "fabric"), None),
        (("optics_alarm", None, "error", "fabric"), "link_error"),
        (("optics_alarm", None, "info", "fabric"), None),
        (("mlx5_cqe_error", None, "warning", "fabric"), "link_error"),
        (("counter", None, "info", "fabric"), None),
        (("ascend_fault", None, "fatal", "hardware"), "hardware_xid"),
        (("ascend_fault", None, "warning", "fabric"), "host"),
        (("gpu_reset", None, "warning", "driver"), "driver_xid"),
        (("gpu_reset", None, "info", "driver"), None),
        (("gpu_page_fault", None, "error", "application"), "app_xid"),
        (("nvme_lost", None, "error", "hardware"), "host"),
        (("fs_read_only", None, "fatal", "storage"), "host"),
        (("xid_hint", 79, "info", "unknown"), None),
        (("alert", 79, "error", "hardware"), None),
        (("sxid_detail", 20034, "fatal", "hardware"), None),
        (("some_new_kind", None, "error", "hardware"), "host"),
        (("some_new_kind", None, "error", "application"), None),
        (("link_up", None, "info", "fabric"), None),
    ],
)
def test_an_event_belongs_to_one_family(what: tuple[str, int | None, str, str], family: str | None) -> None:
    """The families' table."""
    assert family_of(*what) == family
    assert family is None or family in {one.name for one in FAMILIES}


def test_a_users_bug_is_not_serious() -> None:
    """However loud it is."""
    assert not is_serious("fatal", "application")
    assert is_serious("error", "fabric")

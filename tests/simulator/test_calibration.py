"""The calibration to real sites: its table is what the records show, and a simulated cluster shows it too."""

from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from calibration import GAP_SHARE, SEEDS, TableRow, fault_rows, fleet_rows, repeats, tape_rows

from simulator.calibration import calibration, real_rate, rows
from simulator.faults.fault import NodeFailure
from simulator.faults.hazard import draw_failures
from simulator.output.telemetry import COUNTER_FIELDS, advance, counter_changes, present
from simulator.simulation import SimulatedCluster, simulate
from simulator.site import DAY_MS, GPUS, HOUR_MS, SimulationSettings, lay_out

# Sets that are not in the repository lie beside it, where they lie at all.
DATA = Path(__file__).parents[3] / "shared" / "data"
XID = COUNTER_FIELDS.index("DCGM_FI_DEV_XID_ERRORS")


def within(name: str, shown: float) -> None:
    """A simulated figure lies within the table's bounds."""
    row = rows("figure")[name]
    assert float(row["low"]) <= shown <= float(row["high"]), (name, shown, row["value"])


@cache
def failures() -> tuple[NodeFailure, ...]:
    """Those of some fleets, at the rate of the real sites."""
    found: list[NodeFailure] = []
    for seed in SEEDS:
        settings = SimulationSettings(400, 348, seed, rate_per_1000_node_days=real_rate(), calibration="real")
        parameters, rng = calibration("real").parameters, np.random.default_rng(seed)
        found += draw_failures(settings, parameters, lay_out(settings, parameters, rng), rng).failures
    return tuple(found)


@pytest.fixture(scope="module")
def cluster() -> SimulatedCluster:
    """A whole simulated cluster of the real calibration."""
    return simulate(SimulationSettings(64, 120, 3, rate_per_1000_node_days=real_rate(), calibration="real"))


@pytest.mark.parametrize(
    ("source", "made"),
    [
        ("gwdg", lambda _folder: tape_rows()),
        ("faults", lambda folder: fault_rows(folder)),
        ("m100", lambda folder: fleet_rows(folder)),
    ],
)
def test_the_table_is_what_the_records_show(source: str, made: Callable[[Path], Iterable[TableRow]]) -> None:
    """Every figure of it, computed anew from the set; `make calibration` writes it."""
    if source != "gwdg" and not (DATA / source).exists():
        pytest.skip(f"{DATA / source} is not there: its licence or size keeps it out of the repository")
    written = {**rows("figure"), **rows("parameter")}
    found = list(made(DATA / source))
    assert len(found) >= 6
    for row in found:
        assert written[row.name] == {name: str(getattr(row, name)) for name in TableRow.__slots__}, row.name


def test_repeat_offenders_are_as_many() -> None:
    """The worst twelfth of the nodes that fail at all, and how often a repaired node fails again within a week."""
    shown = repeats(calibration("real").parameters, real_rate(), SEEDS)
    for name in ("top_twelfth_share", "gwdg_top_twelfth_share", "m100_top_twelfth_share"):
        within(name, shown.top)
    within("again_within_7_days_share", shown.again)
    within("outages_per_1000_node_days", shown.rate)


def test_published_figures_have_fewer_that_fail_again_within_a_week() -> None:
    """What the real calibration is for: the published one is outside its bounds."""
    shown = repeats(calibration("published").parameters, real_rate(), range(2))
    assert shown.again < float(rows("figure")["again_within_7_days_share"]["low"])


@pytest.mark.parametrize(("name", "place"), [("p25", 0.25), ("p50", 0.5), ("p75", 0.75)])
def test_lags_and_repairs_are_as_long(name: str, place: float) -> None:
    """From Xid 79 until the GPU is gone; and from the outage's start to its end, where nothing lagged."""
    lags = [one.lag_ms / HOUR_MS for one in failures() if one.falls_off_bus]
    repairs = [(one.repair_ms - one.lag_ms) / HOUR_MS for one in failures()]
    assert len(lags) > 500
    within(f"loss_lag_{name}_h", float(np.quantile(lags, place)))
    within(f"repair_{name}_h", float(np.quantile(repairs, place)))


def test_the_last_xid_stays_on_the_exporter_until_the_board_is_gone(cluster: SimulatedCluster) -> None:
    """All GPUs show Xid 79 for the whole lag, then none is sampled until the node has returned."""
    end = cluster.settings.length_ms
    shown = [one for one in cluster.outages if one.falls_off_bus and one.lag_ms > HOUR_MS and one.end_ms < end]
    assert len(shown) >= 3
    for failure in shown:
        state = np.zeros((cluster.layout.nodes, GPUS, len(COUNTER_FIELDS)), dtype=np.float32)
        gone_ms = failure.fault_ms + failure.lag_ms
        advance(state, counter_changes(cluster), -1, gone_ms - 1000)
        assert set(state[failure.node, :, XID].tolist()) == {79.0}
        assert not present(cluster, gone_ms)[failure.node].any()
        assert not present(cluster, failure.end_ms - 1000)[failure.node].any()


def test_gaps_of_telemetry_are_as_many(cluster: SimulatedCluster) -> None:
    """Days on which the whole fleet lacks an hour, and node-days that lack one beyond that, outages apart."""
    nodes, days = cluster.layout.nodes, cluster.settings.days
    lost = np.zeros((days * 24 * 12, nodes), dtype=bool)  # of each five minutes
    for gap in cluster.trace.gaps:
        if gap.gpu is None:
            lost[gap.start_ms // 300_000 : gap.end_ms // 300_000, gap.node] = True
    fleet = lost.mean(axis=1) > 0.9
    for failure in cluster.outages:
        lost[failure.fault_ms // 300_000 : failure.end_ms // 300_000 + 1, failure.node] = False
    whole = fleet.reshape(days, -1).mean(axis=1) >= GAP_SHARE
    own = (lost & ~fleet[:, None]).reshape(days, -1, nodes).mean(axis=1) >= GAP_SHARE
    within("fleet_gap_day_share", float(whole.mean()))
    within("node_gap_day_share", float(own.mean()))


def test_the_archive_is_sampled_as_the_tapes_were(cluster: SimulatedCluster) -> None:
    """Every ten minutes."""
    assert cluster.parameters.sample_s == int(rows("parameter")["sample_s"]["value"]) == 600
    assert DAY_MS % (cluster.parameters.sample_s * 1000) == 0


def test_the_published_calibration_is_untouched() -> None:
    """Nothing of the table is in it: the same options give the same bytes as ever."""
    published = calibration("published")
    assert published.sources == {}
    assert (published.parameters.loss_lag_h, published.parameters.sample_s) == ((), 3600)
    assert real_rate() > 4

"""The figures and sentences of the goodput page."""

from datetime import UTC, datetime

import pytest
from msgspec.structs import replace

from dashboard.charts import ledger_charts
from dashboard.charts.ledger_charts import saving_curve
from dashboard.text import words
from dashboard.text.advice import checkpoint_lines, mtbf_rows, spares_lines
from dashboard.views.goodput import headline
from wire.advice import (
    CheckpointAdviceJson,
    CheckpointInputsJson,
    ComponentRateJson,
    ComponentRatesJson,
    CurvePointJson,
    SparesAdviceJson,
    SparesInputsJson,
)
from wire.goodput import InterruptionJson, LedgerJson

NOW = datetime(2025, 3, 29, tzinfo=UTC)
BUCKETS = {"lost_work": 4_000.0, "productive": 93_100.0, "waiting": 2_900.0, "unknown": 0.0, "prayer": 0.0}
LEDGER = LedgerJson(run="llm-70b", wall_s=100_000.0, buckets=BUCKETS, nodes=2, gpus=16, goodput=0.931)


def test_the_parts_of_the_bar_fill_it_exactly() -> None:
    """In the order of the words, without the empty ones."""
    figure = ledger_charts.wall_time(LEDGER)
    assert [trace.name for trace in figure.data] == ["Useful training", "Waiting for nodes", "Work lost"]
    assert sum(trace.x[0] for trace in figure.data) == pytest.approx(100.0)
    assert [trace.text[0] for trace in figure.data] == ["93.1 %", "", "4.0 %"]


def test_every_bucket_of_the_contract_has_plain_words() -> None:
    """And one that a newer server adds shows under its own name."""
    contract = (
        "productive checkpoint_save checkpoint_load startup detection waiting lost_work degraded evaluation unknown "
        "data_stall"
    )
    assert ledger_charts.BUCKETS.keys() == set(contract.split())
    assert ledger_charts.bucket("solar_flare").name == "solar flare"
    assert ledger_charts.in_order({"solar_flare": 1.0, "productive": 2.0}) == [
        ("productive", 2.0),
        ("solar_flare", 1.0),
    ]


def test_losses_are_in_gpu_hours_where_the_gpus_are_known() -> None:
    """The largest on top; useful work is no loss."""
    figure = ledger_charts.losses(LEDGER, 16)
    assert figure is not None
    assert list(figure.data[0].y) == ["Waiting for nodes", "Work lost"]
    assert figure.data[0].x[1] == pytest.approx(4_000 / 3600 * 16)
    assert figure.layout.xaxis.title.text == "GPU-hours"
    alone = ledger_charts.losses(LEDGER, None)
    assert alone is not None
    assert alone.layout.xaxis.title.text == "hours"
    assert ledger_charts.losses(replace(LEDGER, buckets={"productive": 1.0}), 16) is None


def test_interruptions_are_summed_by_cause() -> None:
    """Without interruptions there is no chart."""
    stops = [
        InterruptionJson(time=NOW, lost_s=3600.0, cause="hardware"),
        InterruptionJson(time=NOW, lost_s=7200.0, cause="fabric"),
        InterruptionJson(time=NOW, lost_s=3600.0, cause="moon"),
    ]
    figure = ledger_charts.by_cause([*stops, stops[0]], None)
    assert figure is not None
    assert dict(zip(figure.data[0].y, figure.data[0].x, strict=True)) == {
        "moon": 1.0,
        "hardware": 2.0,
        "network links and switches": 2.0,
    }
    assert ledger_charts.by_cause([], 16) is None


def test_the_headline_gives_goodput_target_and_the_largest_loss() -> None:
    """A warning below the target."""
    level, text = headline(LEDGER, 0.95)
    assert level == "warning"
    assert text.replace("\\", "") == (
        "llm-70b did useful training in 93.1 % of 28 h; target 95 %. The largest loss: work lost, 1.1 h."
    )
    assert headline(LEDGER, 0.9)[0] == "success"
    assert headline(LEDGER, None)[0] == "success"


def test_a_run_that_has_not_begun_says_so() -> None:
    """No wall time, no goodput."""
    level, text = headline(LedgerJson(run="r", wall_s=0.0, buckets={}), 0.95)
    assert (level, "has done nothing yet" in text) == ("info", True)


CHECKPOINT = CheckpointAdviceJson(
    run="r",
    inputs=CheckpointInputsJson(
        nodes=60, failures=4, node_days=650.2, save_s=41.2, restart_s=1500.0, interval_s=3600.0
    ),
    interval_s=2040.0,
    mttf_s=230_000.0,
    rate_is_measured=True,
    interval_shortest_s=1500.0,
    interval_longest_s=4000.0,
    goodput_now=0.95,
    goodput_advised=0.962,
)


def test_checkpoint_advice_begins_with_what_to_do_and_names_its_inputs() -> None:
    """Interval, gain, failures, costs, certainty."""
    lines = checkpoint_lines(CHECKPOINT)
    assert lines[0] == "**Save every 34 min; now it is every 1.0 h.**"
    assert lines[1] == "Expected goodput 96.2 % instead of 95.0 %."
    assert "4 interruptions in 650 node-days, so on 60 nodes one every 2.7 d" in lines[2]
    assert lines[3] == "A save stops training for 41 s; coming back after a failure takes 25 min."
    assert "from 25 min to 1.1 h" in lines[4]


def test_the_time_between_failures_has_its_interval() -> None:
    """From the ends of the rate; without them nothing is said of it."""
    lines = checkpoint_lines(replace(CHECKPOINT, rate_low=0.001, rate_high=0.02))
    assert "one every 2.7 d (95 % certainty: 20 h to 16.7 d)." in lines[2]


def test_the_curve_marks_the_advised_interval_and_that_of_now() -> None:
    """In hours and percent, with the band of what the measured inputs allow."""
    curve = tuple(CurvePointJson(interval_s=s, goodput=0.9, low=0.8, high=0.95) for s in (1800.0, 3600.0))
    figure = saving_curve(replace(CHECKPOINT, curve=curve))
    assert figure is not None
    low, high, line, advised, now = figure.data
    assert (list(low.y), list(high.y), list(line.x)) == ([80.0, 80.0], [95.0, 95.0], [0.5, 1.0])
    assert (advised.name, list(advised.y)) == ("advised: every 34 min", [96.2])
    assert (now.name, list(now.x), list(now.y)) == ("now: every 1.0 h", [1.0], [95.0])
    assert figure.layout.legend.yanchor == "bottom", "above the curve, however many lines it takes"
    assert saving_curve(CHECKPOINT) is None


def test_a_component_that_never_failed_has_a_least_time() -> None:
    """The sum is first; what is not known has a dash."""
    some = ComponentRateJson(component="all", failures=2, mtbf_h=120.0, mtbf_low_h=48.0, mtbf_high_h=600.0)
    none = ComponentRateJson(component="storage", failures=0, mtbf_low_h=48.0)
    rows = mtbf_rows(ComponentRatesJson(node_days=100.0, nodes=10, components=(some, none)))
    assert rows[0] == {"component": "all together", "failures": "2", "every": "5.0 d", "interval": "2.0 d to 25.0 d"}
    assert (rows[1]["every"], rows[1]["interval"]) == (words.DASH, "more than 2.0 d")


def test_checkpoint_advice_without_a_failure_says_that_it_borrows_a_rate() -> None:
    """What was not measured is not claimed."""
    inputs = replace(CHECKPOINT.inputs, failures=0, interval_s=None)
    lines = checkpoint_lines(
        replace(CHECKPOINT, inputs=inputs, rate_is_measured=False, goodput_now=None, interval_shortest_s=None)
    )
    assert lines[0] == "**Save every 34 min.**"
    assert "published failure rate stands in" in lines[1]
    assert len(lines) == 3


def test_spares_advice_begins_with_the_number() -> None:
    """Then what is down, what was measured, how certain it is."""
    advice = SparesAdviceJson(
        inputs=SparesInputsJson(nodes=64, outages=9, node_days=1920.0, mttr_s=90_000.0),
        spares=2,
        confidence=0.99,
        expected_down=0.31,
        spares_low=1,
        spares_high=3,
    )
    lines = spares_lines(advice)
    assert lines[0] == "**Keep 2 nodes spare: enough 99 % of the time.**"
    assert lines[1] == "On average 0.3 of 64 nodes are down."
    assert "9 unplanned outages in 1,920 node-days, each 25 h long" in lines[2]
    assert "from 1 to 3" in lines[3]
    assert len(spares_lines(replace(advice, spares_low=None))) == 3

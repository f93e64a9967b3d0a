"""The whole cluster on the goodput page: the way down from what existed, and the losses by what caused them."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from drawn_page import Opened, failing, seen
from msgspec.structs import replace

from dashboard.charts import cluster_charts
from dashboard.panels.goodput import BY, headline
from wire.goodput import CausesJson, ClusterGoodputJson, LossGroupJson, RangeJson

from .conftest import CLUSTER

NOW = datetime(2025, 3, 29, tzinfo=UTC)
HOURS = {"existing": 1000.0, "out_planned": 0.0, "out_unplanned": 100.0, "schedulable": 900.0, "idle": 300.0}
HOURS |= {"allocated": 600.0, "running": 570.0, "productive": 500.0}
BUCKETS = {"productive": 500.0, "startup": 30.0, "lost_work": 60.0, "checkpoint_save": 10.0, "waiting": 40.0}
TOLD = ClusterGoodputJson(
    since=NOW,
    until=NOW,
    gpu_hours=HOURS,
    buckets=BUCKETS,
    scheduling_goodput=0.6,
    runtime_goodput=0.83,
    program_goodput=None,
    productive_of_existing=0.5,
    ettr=RangeJson(least=0.8, most=0.8),
)


def test_the_way_down_adds_up() -> None:
    """From level to level what lies between is their difference; what is nothing is not drawn."""
    parts = cluster_charts.steps(TOLD)
    assert [name for name, _, _ in parts] == [
        "Existed",
        "Out, unplanned",
        "No job",
        "Held by jobs",
        "Starting up",
        "Saving checkpoints",
        "Work lost",
        "Counts",
    ]
    level = 0.0
    for _, kind, value in parts:
        if kind == "relative":
            level += value
        elif level:
            assert level == pytest.approx(value)
        level = value if kind == "total" else level


def test_without_known_nodes_the_way_begins_with_what_jobs_held() -> None:
    """Nothing is made up."""
    parts = cluster_charts.steps(replace(TOLD, gpu_hours={"allocated": 600.0, "productive": 500.0}))
    assert parts[0] == ("Held by jobs", "total", 600.0)
    assert cluster_charts.waterfall(replace(TOLD, gpu_hours={}, buckets={})).data[0].y[0] == 0.0


def test_the_headline_names_the_share_and_the_largest_step() -> None:
    """Of what existed; else of what was held; else nothing ran."""
    assert headline(TOLD) == (
        "50.0 % of the GPU-hours that existed became training that counts. The largest loss: no job, 300 GPU-hours."
    )
    assert headline(replace(TOLD, productive_of_existing=None)).startswith("83.0 % of the GPU-hours that were held")
    assert headline(replace(TOLD, productive_of_existing=None, runtime_goodput=None)).startswith("No run held")


def test_losses_are_drawn_in_gpu_hours_or_in_the_runs_own() -> None:
    """The costliest on top; a name that is a tag stays text; what nobody can explain is grey."""
    items = [
        LossGroupJson(name="<b>n1</b>", lost_s=3600.0, lost_gpu_hours=8.0),
        LossGroupJson(name="unexplained", lost_s=1800.0, unexplained=True),
    ]
    figure = cluster_charts.losses(items, True)
    assert list(figure.data[0].y) == ["unexplained", "&lt;b&gt;n1&lt;/b&gt;"]
    assert list(figure.data[0].x) == [0.0, 8.0]
    assert list(cluster_charts.losses(items, False).data[0].x) == [0.5, 1.0]
    assert figure.data[0].marker.color[0] != figure.data[0].marker.color[1]
    assert (
        len(cluster_charts.losses([LossGroupJson(name=f"n{i}", lost_s=1.0) for i in range(40)], False).data[0].y)
        == cluster_charts.MOST_BARS
    )


def test_the_section_shows_levels_ratios_doubts_and_causes(drawn: Opened, api: Any) -> None:
    """Below the run's ledger; the table sums to the whole."""
    shown = drawn("goodput")
    said = seen(shown)
    assert failing(shown) == []
    assert "50.0 % of the GPU-hours that existed became training that counts" in said
    assert "2 nodes have no known number of GPUs" in said.replace("\\", "")
    assert list(shown.dataframe[-1].value["Cause"]) == ["hardware", "unexplained"]
    assert list(shown.dataframe[-1].value["Share"]) == ["75.0 %", "25.0 %"]
    assert {metric.label: metric.value for metric in shown.metric}["Runtime goodput"] == "83.3 %"
    asked = [params for _, path, params, _ in api.asked if path == "goodput/causes"]
    assert asked[-1]["by"] == "cause"
    assert asked[-1]["since"].startswith("2025-03-23")


def test_an_older_server_has_no_such_section(drawn: Opened, api: Any) -> None:
    """The rest of the page stands."""
    del api.answers["goodput/cluster"]
    shown = drawn("goodput")
    assert failing(shown) == []
    assert "Not known." in seen(shown)
    assert "did useful training in" in seen(shown)


def test_a_week_without_interruptions_says_so(drawn: Opened, api: Any) -> None:
    """No empty chart."""
    api.answers["goodput/causes"] = {"items": [], "total": {"lost_s": 0.0}, "next_cursor": None}
    assert "No run was interrupted in this time." in seen(drawn("goodput"))


def test_losses_can_be_told_apart_by_all_that_the_server_knows() -> None:
    """The words of the page are the server's."""
    assert set(BY) == {"device", "node", "leaf", "code", "driver", "run", "cause"}


def test_losses_are_told_in_money_where_the_server_has_a_price(drawn: Opened, api: Any) -> None:
    """In the headline, the run's figures and the tables."""
    api.answers["cluster"] = CLUSTER | {"gpu_hour_price": {"currency": "EUR", "amount": "2.50"}}
    worth = {"lost_money": {"currency": "EUR", "amount": "80.0"}}
    causes = api.answers["goodput/causes"]
    items = [one | worth for one in causes["items"]]
    api.answers["goodput/causes"] = causes | {"total": causes["total"] | worth, "items": items}
    shown = drawn("goodput")
    assert failing(shown) == []
    assert "300 GPU-hours (EUR 750.00)" in seen(shown)
    assert list(shown.dataframe[-1].value["Money"]) == ["EUR 80.00", "EUR 80.00"]


def test_the_losses_of_each_day_are_stacked_by_cause() -> None:
    """The costliest cause first, a day without it as nothing; hours of the runs where nobody knows the GPUs."""
    days = [NOW - timedelta(days=1), NOW]

    def lost(name: str, hours: float | None) -> LossGroupJson:
        return LossGroupJson(name=name, unexplained=name == "?", lost_s=7_200.0, lost_gpu_hours=hours)

    told = [CausesJson(items=(lost("fabric", 5.0), lost("?", 2.0))), CausesJson(items=(lost("?", 6.0),))]
    figure = cluster_charts.by_cause_and_day(list(zip(days, told, strict=True)))
    assert figure is not None
    assert [(bar.name, list(bar.y)) for bar in figure.data] == [
        ("unexplained", [2.0, 6.0]),
        ("network links and switches", [5.0, 0.0]),
    ]
    assert figure.layout.yaxis.title.text == "GPU-hours"
    figure = cluster_charts.by_cause_and_day([(NOW, CausesJson(items=(lost("fabric", None),)))])
    assert figure is not None
    assert (list(figure.data[0].y), figure.layout.yaxis.title.text) == ([2.0], "hours of the runs")
    assert cluster_charts.by_cause_and_day([(NOW, CausesJson(items=()))]) is None


def test_a_number_that_is_not_known_is_a_dash(drawn: Opened, api: Any) -> None:
    """Python's None stood in the column of GPU-hours."""
    api.answers["runs/llm-70b/goodput"] |= {"gpus": None}
    tables = drawn("goodput").dataframe
    assert any(table.value.get("GPU-hours", table.value).isna().any().any() for table in tables if len(table.value))
    assert {table.proto.placeholder for table in tables} == {"\N{EN DASH}"}

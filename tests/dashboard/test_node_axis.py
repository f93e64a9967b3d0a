"""The charts of a node over one time axis, and the cards of its GPUs."""

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from dashboard.charts.node_axis import NodeAnswers, axis, lanes_of
from dashboard.panels.node_history import cards_of
from wire.nodes import NodeDetailJson, NodeGpuJson, NodeTimelineJson

from .conftest import DETAIL, NODE_GPUS, TIMELINE

NOW = datetime(2025, 3, 29, 3, 12, tzinfo=UTC)
WEEK = timedelta(days=7)


def past(**changes: Any) -> NodeAnswers:
    """What the canned API tells of gpu-017."""
    detail = msgspec.convert(DETAIL | changes, NodeDetailJson)
    return NodeAnswers(detail, msgspec.convert(TIMELINE, NodeTimelineJson), NOW)


def titles(figure: Any) -> list[str]:
    """The charts from above to below, without the names of their lines."""
    return [note.text.partition(":")[0] for note in figure.layout.annotations]


def test_all_charts_have_one_time_axis() -> None:
    """So that who looks closer at one sees the same stretch of all; upwards nothing is zoomed."""
    figure = axis(past(), NOW - WEEK, NOW)
    assert figure is not None
    assert titles(figure) == [
        "Runs",
        "Out of service, and hints",
        "Incidents, by device",
        "Risk, %",
        "GPU temperature, °C",
        "Memory errors (ECC) each hour",
        "Link errors each hour",
    ]
    axes = [figure.layout[name] for name in figure.to_dict()["layout"] if name.startswith("xaxis")]
    assert len(axes) == 7
    assert {(one.type, one.matches, one.range, one.fixedrange) for one in axes} == {
        ("date", "x", (NOW - WEEK, NOW + WEEK / 80), None)
    }
    assert [one.title.text for one in axes] == [None] * 6 + ["UTC"], "in which zone, below the last"
    assert figure.layout.dragmode == "zoom"
    assert all(figure.layout[name].fixedrange for name in figure.to_dict()["layout"] if name.startswith("yaxis"))


def test_what_began_before_is_cut_at_the_edge_and_a_gap_stays_a_gap() -> None:
    """The axis is not stretched; an hour that nobody measured breaks the line of the temperature."""
    figure = axis(past(), NOW - timedelta(days=2), NOW)
    assert figure is not None
    (run, *_), lines = figure.data, [trace for trace in figure.data if trace.type == "scatter"]
    assert (run.base, run.x) == ((NOW - timedelta(days=2),), (2 * 86_400_000.0,))
    assert "job 901 on 2 nodes" in run.customdata[0]
    heat = next(trace for trace in lines if "hottest" in trace.hovertemplate)
    assert list(heat.y) == [71.0, 72.0, 73.0, None, 77.0, 78.0]


def test_a_withheld_score_is_not_drawn() -> None:
    """Of a node that has failed, until an outage has ended that; the line breaks there."""
    fault = {"id": "i", "kind": "xid", "severity": "fatal", "cause": "hardware", "node": "gpu-017"}
    hours = [f"2025-03-28T{hour:02}:00:00Z" for hour in range(10, 16)]
    changes: dict[str, Any] = {
        "scores": [{"time": time, "score_24h": 0.1, "score_7d": 0.2} for time in hours],
        "incidents": [fault | {"start": "2025-03-28T11:30:00Z", "end": "2025-03-28T11:31:00Z"}],
        "outages": [],
    }

    def drawn(**more: Any) -> list[float | None]:
        figure = axis(past(**changes | more), NOW - timedelta(days=2), NOW)
        assert figure is not None
        return list(next(trace for trace in figure.data if "within 24 h" in (trace.hovertemplate or "")).y)

    assert drawn() == [10.0, 10.0, None, None, None, None]
    repaired = {"start": "2025-03-28T12:30:00Z", "end": "2025-03-28T13:30:00Z", "planned": False}
    assert drawn(outages=[repaired]) == [10.0, 10.0, None, None, 10.0, 10.0]
    assert "Risk, %" not in titles(axis(past(**changes | {"scores": changes["scores"][2:]}), NOW - WEEK, NOW))


def test_what_is_not_there_has_no_empty_chart() -> None:
    """Nor has a node without any past."""
    nothing: dict[str, Any] = {name: [] for name in ("incidents", "outages", "hints", "telemetry", "scores")}
    figure = axis(past(**nothing), NOW - WEEK, NOW)
    assert figure is not None
    assert titles(figure) == ["Runs", "Memory errors (ECC) each hour", "Link errors each hour"]
    bare = NodeAnswers(msgspec.convert(DETAIL | nothing, NodeDetailJson), None, NOW)
    assert axis(bare, NOW - WEEK, NOW) is None
    assert lanes_of(list("abcabcd"), 3) == ["a", "b", "others"]


def test_no_tag_of_a_run_or_reason_lives_in_the_axis() -> None:
    """Plotly reads some in names of ticks and in hover text."""
    tag = "<a href='http://evil'>x</a>"
    spoilt = msgspec.convert(TIMELINE | {"jobs": [TIMELINE["jobs"][0] | {"run": tag, "state": tag}]}, NodeTimelineJson)
    outage = DETAIL["outages"][0] | {"reason": tag}
    detail = msgspec.convert(DETAIL | {"outages": [outage]}, NodeDetailJson)
    figure = axis(NodeAnswers(detail, spoilt, NOW), NOW - WEEK, NOW)
    assert figure is not None
    assert "<a" not in str([(trace.y, trace.customdata) for trace in figure.data if trace.type == "bar"])


def test_each_gpu_has_a_card_with_its_serial_number_and_what_it_showed() -> None:
    """Those that nobody names too; what lies outside of the node's number stands last."""
    detail = msgspec.convert(DETAIL, NodeDetailJson)
    told = [msgspec.convert(one, NodeGpuJson) for one in NODE_GPUS] + [NodeGpuJson(pci="0000:ff:00.0", serial="9")]
    cards = cards_of(detail, told, NOW)
    names = [lines[0] for _, lines in cards]
    assert names == [f"GPU {n}" if n != 3 else "GPU 3 · failed" for n in range(8)] + ["GPU, number not told"]
    assert cards[0][1][1] == "serial number not told"
    assert cards[3][1][1:3] == ["serial number 1650523000011", "0000:0f:00.0"]
    assert cards[3][1][3].startswith("4 min ago: Xid 79, driver can no longer reach the GPU over PCIe")

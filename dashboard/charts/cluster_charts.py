"""The figures of the whole cluster's goodput: from the GPU-hours that existed to those that counted, and the losses."""

from collections.abc import Sequence
from datetime import datetime

import plotly.graph_objects as go

from dashboard.charts import ledger_charts
from dashboard.text import words
from wire.goodput import CausesJson, GoodputLevelJson, LossGroupJson

_GREEN, _RED, _GREY = "#3a9d74", "#d6403b", "#8d949c"
_NOT_RUNNING = ("startup", "checkpoint_load", "detection", "unknown")
DAY_MS = 86_400_000
# Told apart by those who do not tell red from green, too.
CAUSE_COLOURS = {
    ledger_charts.CAUSES["hardware"]: _RED,
    ledger_charts.CAUSES["fabric"]: "#3b7dd8",
    ledger_charts.CAUSES["host"]: "#e9a11a",
    ledger_charts.CAUSES["driver"]: "#8659b5",
    ledger_charts.CAUSES["storage"]: _GREEN,
    ledger_charts.CAUSES["application"]: "#4bb3c3",
}
# What is shown of a long list; the table has the rest.
MOST_BARS = 12


def known_hours(level: GoodputLevelJson) -> dict[str, float]:
    """The GPU-hours of the levels that are known."""
    return {name: hours for name, hours in level.gpu_hours.items() if hours is not None}


def steps(level: GoodputLevelJson) -> list[tuple[str, str, float]]:
    """The way down: (what, `total` or `relative`, GPU-hours), from what existed, where that is known."""
    hours = known_hours(level)
    found: list[tuple[str, str, float]] = []
    if "existing" in hours:
        found.append(("Existed", "total", hours["existing"]))
        found.append(("Out, planned", "relative", -hours.get("out_planned", 0.0)))
        found.append(("Out, unplanned", "relative", -hours.get("out_unplanned", 0.0)))
        found.append(("No job", "relative", -hours.get("idle", 0.0)))
    found.append(("Held by jobs", "total", hours.get("allocated", 0.0)))
    lost = {name: hours for name, hours in level.buckets.items() if name not in ("productive", "waiting") and hours > 0}
    order = [*_NOT_RUNNING, *(name for name in ledger_charts.BUCKETS if name not in _NOT_RUNNING)]
    for name in [*(n for n in order if n in lost), *(n for n in lost if n not in order)]:
        found.append((ledger_charts.bucket(name).name, "relative", -lost[name]))
    found.append(("Counts", "total", hours.get("productive", 0.0)))
    return [step for step in found if step[1] == "total" or step[2]]


def waterfall(level: GoodputLevelJson) -> go.Figure:
    """Each step down from the GPU-hours that existed to those of training that counts."""
    parts = steps(level)
    whole = next((value for _, kind, value in parts if kind == "total" and value > 0), 1.0)
    figure = go.Figure(
        go.Waterfall(
            x=[words.drawn(name) for name, _, _ in parts],
            measure=["absolute" if kind == "total" else "relative" for _, kind, _ in parts],
            y=[value for _, _, value in parts],
            text=[words.share(abs(value) / whole) for _, _, value in parts],
            textposition="outside",
            totals_marker_color=_GREEN,
            decreasing_marker_color=_RED,
            increasing_marker_color=_GREY,
            connector_line_color=_GREY,
            hovertemplate="%{x}: %{y:,.1f} GPU-hours<extra></extra>",
        )
    )
    figure.update_yaxes(title="GPU-hours", fixedrange=True, range=[0, whole * 1.12])
    figure.update_xaxes(fixedrange=True)
    figure.update_layout(height=360, margin={"l": 0, "r": 0, "t": 10, "b": 0}, showlegend=False)
    return figure


def by_day(days: Sequence[GoodputLevelJson]) -> go.Figure:
    """Of each day, what share of the GPU-hours that existed (else of those held) was which."""
    shown = ("productive", "allocated", "schedulable")
    names = {"productive": "Counts", "allocated": "Held by jobs", "schedulable": "Ready for jobs"}
    colours = {"productive": _GREEN, "allocated": "#3b7dd8", "schedulable": _GREY}
    figure = go.Figure()
    for level in shown:
        known = [known_hours(day) for day in days]
        whole = [hours.get("existing") or hours.get("allocated") or 0.0 for hours in known]
        values = [
            hours[level] / of * 100 if level in hours and of else None for hours, of in zip(known, whole, strict=True)
        ]
        figure.add_trace(
            go.Scatter(
                x=[day.since for day in days],
                y=values,
                name=names[level],
                mode="lines+markers",
                line_color=colours[level],
                hovertemplate=f"%{{x|%d %b}}: %{{y:.1f}} %, {names[level].lower()}<extra></extra>",
            )
        )
    figure.update_yaxes(ticksuffix=" %", fixedrange=True, rangemode="tozero")
    figure.update_xaxes(fixedrange=True, tickformat="%d %b")
    figure.update_layout(height=240, margin={"l": 0, "r": 0, "t": 10, "b": 0}, legend={"orientation": "h", "y": -0.2})
    return figure


def losses(items: Sequence[LossGroupJson], in_gpus: bool) -> go.Figure:
    """The costliest first from the top; what nobody can explain is grey."""
    shown = list(items[:MOST_BARS])[::-1]
    values = [(item.lost_gpu_hours or 0.0) if in_gpus else item.lost_s / 3600 for item in shown]
    unit = "GPU-hours" if in_gpus else "hours of the runs"
    figure = go.Figure(
        go.Bar(
            x=values,
            y=[words.drawn(name_of(item)) for item in shown],
            orientation="h",
            marker_color=[_GREY if item.unexplained else _RED for item in shown],
            text=[f"{value:,.1f}" for value in values],
            textposition="auto",
            hovertemplate=f"%{{y}}: %{{x:,.2f}} {unit}<extra></extra>",
        )
    )
    figure.update_xaxes(title=unit, fixedrange=True)
    figure.update_yaxes(automargin=True, fixedrange=True, type="category")
    figure.update_layout(height=80 + 30 * len(shown), margin={"l": 0, "r": 0, "t": 0, "b": 0}, bargap=0.3)
    return figure


def by_cause_and_day(days: Sequence[tuple[datetime, CausesJson]]) -> go.Figure | None:
    """What the stops of each day cost, by cause; hours of the runs where of none the GPUs are known; None: no stop."""
    items = [(day, item) for day, causes in days for item in causes.items if item.lost_s > 0]
    if not items:
        return None
    in_gpus = any(item.lost_gpu_hours is not None for _, item in items)
    unit = "GPU-hours" if in_gpus else "hours of the runs"
    lost: dict[str, dict[datetime, float]] = {}
    for day, item in items:
        hours = (item.lost_gpu_hours or 0.0) if in_gpus else item.lost_s / 3600
        lost.setdefault(name_of(item), {})[day] = hours
    figure = go.Figure()
    for name in sorted(lost, key=lambda name: -sum(lost[name].values())):
        figure.add_trace(
            go.Bar(
                x=[day for day, _ in days],
                y=[lost[name].get(day, 0.0) for day, _ in days],
                name=words.drawn(name),
                marker_color=CAUSE_COLOURS.get(name, _GREY),
                hovertemplate=f"{words.drawn(name)}, %{{x|%d %b}}: %{{y:,.1f}} {unit}<extra></extra>",
            )
        )
    figure.update_xaxes(fixedrange=True, tickformat="%d %b", dtick=DAY_MS)
    figure.update_yaxes(title=unit, fixedrange=True)
    figure.update_layout(
        barmode="stack",
        height=300,
        margin={"l": 0, "r": 0, "t": 10, "b": 0},
        legend={"orientation": "h", "y": -0.2},
        showlegend=True,
    )
    return figure


def name_of(item: LossGroupJson) -> str:
    """The cause of a loss, in plain words."""
    if item.unexplained:
        return "unexplained"
    return ledger_charts.CAUSES.get(item.name, item.name)

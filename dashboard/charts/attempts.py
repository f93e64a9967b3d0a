"""The attempts of a run on one time axis: what each spent its time on, and where and by what it was stopped."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import plotly.graph_objects as go

from dashboard.charts import ledger_charts
from dashboard.text import words
from wire.goodput import AttemptJson, AttemptsJson

ROW_PX = 26
# Plotly widens a thin bar to a whole pixel, unless its colour is a little transparent: saves would hide the training.
_ALPHA = "fe"
# What is free at the right of the newest attempt, for its cause: a share of the axis.
_ROOM = 0.18


def gantt(told: AttemptsJson, causes: Sequence[str]) -> go.Figure:
    """A bar for each attempt, the newest on top; a cross where it was stopped, with its cause.

    Args:
        causes: of each attempt, by what it was stopped; empty where it was not.
    """
    figure = go.Figure()
    rows = [_label(one) for one in told.items]
    base = ledger_charts.bucket("productive")
    figure.add_trace(
        _bars(told, base.name, base.colour, [(at, one.start_s, one.length_s) for at, one in enumerate(told.items)])
    )
    parts: dict[str, list[tuple[int, float, float]]] = {}
    for at, one in enumerate(told.items):
        for name, start_s, length_s in one.parts:
            parts.setdefault(name, []).append((at, start_s, length_s))
    for name in [
        *(n for n in ledger_charts.BUCKETS if n in parts),
        *(n for n in parts if n not in ledger_charts.BUCKETS),
    ]:
        bucket = ledger_charts.bucket(name)
        figure.add_trace(_bars(told, words.drawn(bucket.name), bucket.colour, parts[name]))
    figure.add_traces(_stops(told, causes))
    last = max((one.start_s + one.length_s for one in told.items), default=0.0)
    first = min((at for one in told.items for at in (one.start_s, *(s for _, s, _ in one.parts))), default=0.0)
    ends = (first, last + _ROOM * max(last - first, 1.0))
    figure.update_xaxes(
        type="linear" if told.start is None else "date",  # of bars with a base Plotly takes lengths for places
        range=[_place(told, second) for second in ends],
        title="hours since its start" if told.start is None else words.zone_name(told.start),
    )
    figure.update_yaxes(categoryorder="array", categoryarray=rows, fixedrange=True, automargin=True)
    figure.update_layout(
        barmode="overlay",
        bargap=0.35,
        height=110 + ROW_PX * max(len(rows), 2),
        margin={"l": 0, "r": 0, "t": 0, "b": 0},
        legend={"orientation": "h", "y": -(60 / (ROW_PX * max(len(rows), 2) + 40)), "x": 0, "traceorder": "normal"},
        dragmode="zoom",
        uirevision=told.run,
    )
    return figure


def _stops(told: AttemptsJson, causes: Sequence[str]) -> list[go.Scatter]:
    """The crosses, with what stopped each attempt beside it."""
    stopped = [(at, one) for at, one in enumerate(told.items) if one.interruption is not None]
    if not stopped:
        return []
    return [
        go.Scatter(
            x=[_place(told, one.start_s + one.length_s) for _, one in stopped],
            y=[_label(one) for _, one in stopped],
            mode="markers+text",
            marker={"symbol": "x", "size": 9, "color": "#d6403b", "line": {"width": 1, "color": "white"}},
            text=[f" {words.drawn(causes[at])}" for at, _ in stopped],
            textposition="middle right",
            name="Stopped",
            hovertemplate="%{text}<extra></extra>",
        )
    ]


def _label(one: AttemptJson) -> str:
    return f"attempt {one.number}"


def _place(told: AttemptsJson, second: float) -> Any:
    """A moment of the run on the axis: hours, where no date is known."""
    return second / 3600 if told.start is None else words.local(told.start + timedelta(seconds=second))


def _bars(told: AttemptsJson, name: str, colour: str, parts: Sequence[tuple[int, float, float]]) -> go.Bar:
    """The parts of one bucket: the attempt's place, start and length in seconds."""
    return go.Bar(
        base=[_place(told, start_s) for _, start_s, _ in parts],
        x=[length_s / 3600 if told.start is None else length_s * 1000 for _, _, length_s in parts],
        y=[_label(told.items[at]) for at, _, _ in parts],
        orientation="h",
        name=name,
        marker={"color": colour + _ALPHA, "line": {"width": 0}},
        customdata=[words.duration(length_s) for _, _, length_s in parts],
        hovertemplate=f"{name}: %{{customdata}}<extra>%{{y}}</extra>",
    )

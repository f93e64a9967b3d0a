"""The figures of the goodput page: where the hours of a run went, and what took them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import plotly.graph_objects as go

from dashboard.text import words
from wire.advice import CheckpointAdviceJson
from wire.goodput import InterruptionJson, LedgerJson


@dataclass(frozen=True, slots=True)
class Bucket:
    """One part of the wall time: its plain name, what it means and its colour."""

    name: str
    meaning: str
    colour: str


# DESIGN's buckets in the order in which they are stacked.
BUCKETS: Mapping[str, Bucket] = {
    "productive": Bucket("Useful training", "steps whose result was kept", "#3a9d74"),
    "evaluation": Bucket("Evaluation", "measuring the model instead of training it", "#57b8c9"),
    "degraded": Bucket("Slow steps", "the extra time of steps slower than this run's usual pace", "#c9b33b"),
    "data_stall": Bucket("Waiting for data", "steps that stood still until their data came", "#a8743a"),
    "checkpoint_save": Bucket("Saving checkpoints", "training stood still while the state was written", "#3b7dd8"),
    "checkpoint_load": Bucket("Loading checkpoints", "reading the state back after a start", "#7aa5e6"),
    "startup": Bucket("Starting up", "from the scheduler's start to the first step", "#b58be0"),
    "waiting": Bucket("Waiting for nodes", "queued: nothing ran", "#8d949c"),
    "detection": Bucket("Noticing the failure", "from the fault until the job was ended", "#e9a11a"),
    "lost_work": Bucket("Work lost", "steps since the last checkpoint: done again, or never kept", "#d6403b"),
    "unknown": Bucket("Not accounted for", "the log does not say", "#5c6470"),
}
CAUSES = {
    "hardware": "hardware",
    "fabric": "network links and switches",
    "host": "host",
    "driver": "driver",
    "storage": "storage",
    "application": "the training program",
    "unknown": "cause not known",
}


def bucket(name: str) -> Bucket:
    """A bucket's words; one that a newer server adds shows under its own name."""
    return BUCKETS.get(name, Bucket(name.replace("_", " "), "", "#5c6470"))


def in_order(buckets: Mapping[str, float]) -> list[tuple[str, float]]:
    """The buckets that hold time, in the stacking order."""
    known = [name for name in BUCKETS if name in buckets]
    return [(name, buckets[name]) for name in [*known, *(n for n in buckets if n not in BUCKETS)] if buckets[name] > 0]


def wall_time(ledger: LedgerJson) -> go.Figure:
    """The run's whole wall time as one bar, split into its buckets."""
    figure = go.Figure()
    for name, seconds in in_order(ledger.buckets):
        part, drawn = seconds / ledger.wall_s, words.drawn(bucket(name).name)
        figure.add_trace(
            go.Bar(
                x=[part * 100],
                y=[""],
                orientation="h",
                name=drawn,
                marker_color=bucket(name).colour,
                text=[f"{part * 100:.1f} %" if part >= 0.04 else ""],
                textposition="inside",
                insidetextanchor="middle",
                textfont_color="white",
                hovertemplate=f"{drawn}: {words.duration(seconds)}, {part * 100:.2f} %<extra></extra>",
            )
        )
    figure.update_xaxes(range=[0, 100], ticksuffix=" %", fixedrange=True)
    figure.update_yaxes(fixedrange=True)
    figure.update_layout(
        barmode="stack",
        height=170,
        margin={"l": 0, "r": 0, "t": 0, "b": 0},
        legend={"orientation": "h", "y": -0.35, "x": 0, "traceorder": "normal"},
    )
    return figure


def losses(ledger: LedgerJson, gpus: int | None) -> go.Figure | None:
    """The hours that were not useful training, the largest on top; GPU-hours where the GPUs are known."""
    rows = sorted(((s, n) for n, s in in_order(ledger.buckets) if n != "productive"), reverse=False)
    if not rows:
        return None
    factor, unit = (gpus, "GPU-hours") if gpus else (1, "hours")
    return _bars(
        [bucket(n).name for _, n in rows],
        [s / 3600 * factor for s, _ in rows],
        [bucket(n).colour for _, n in rows],
        unit,
    )


def by_cause(interruptions: Sequence[InterruptionJson], gpus: int | None) -> go.Figure | None:
    """What the interruptions cost, by cause."""
    lost: dict[str, float] = {}
    for stop in interruptions:
        lost[stop.cause] = lost.get(stop.cause, 0.0) + stop.lost_s
    rows = sorted((s, cause) for cause, s in lost.items())
    if not rows:
        return None
    factor, unit = (gpus, "GPU-hours") if gpus else (1, "hours")
    names = [CAUSES.get(cause, cause) for _, cause in rows]
    return _bars(names, [s / 3600 * factor for s, _ in rows], ["#d6403b"] * len(rows), unit)


_TICKS_S = (10, 30, 60, 120, 300, 600, 1200, 2400, 3600, 7200, 14_400, 28_800, 57_600, 86_400, 172_800, 604_800)


def saving_curve(advice: CheckpointAdviceJson) -> go.Figure | None:
    """The goodput expected of each interval between saves, in %, with what the measured inputs allow; None: no curve.

    The advised interval, and that of now, are marked.
    """
    curve = [point for point in advice.curve if point.interval_s > 0]
    if not curve:
        return None
    hours = [point.interval_s / 3600 for point in curve]
    figure = go.Figure()
    for name, values in (("low", [p.low for p in curve]), ("high", [p.high for p in curve])):
        figure.add_trace(
            go.Scatter(
                x=hours,
                y=[value * 100 for value in values],
                line_width=0,
                fill=None if name == "low" else "tonexty",
                fillcolor="rgba(59, 125, 216, 0.2)",
                hoverinfo="skip",
                showlegend=False,
            )
        )
    said = [
        f"{words.duration(p.interval_s)}: {words.share(p.goodput)} ({words.share(p.low)} to {words.share(p.high)})"
        for p in curve
    ]
    figure.add_trace(
        go.Scatter(
            x=hours,
            y=[point.goodput * 100 for point in curve],
            line_color="#3b7dd8",
            text=said,
            hovertemplate="every %{text}<extra></extra>",
            showlegend=False,
        )
    )
    figure.add_traces(_marks(advice))
    ticks = [s for s in _TICKS_S if curve[0].interval_s <= s <= curve[-1].interval_s]
    figure.update_xaxes(
        type="log",
        title="between two saves",
        fixedrange=True,
        tickvals=[s / 3600 for s in ticks],
        ticktext=[words.duration(s) for s in ticks],
    )
    figure.update_yaxes(title="goodput", ticksuffix=" %", fixedrange=True)
    above = {"orientation": "h", "y": 1.02, "yanchor": "bottom"}  # of two lines, as on a phone, none lies on the curve
    figure.update_layout(height=260, margin={"l": 0, "r": 0, "t": 10, "b": 0}, legend=above)
    return figure


def _marks(advice: CheckpointAdviceJson) -> list[go.Scatter]:
    """The advised interval, and that of now, where their goodput is known."""
    marks = [("advised", advice.interval_s, advice.goodput_advised, "#3a9d74", "circle")]
    if advice.inputs.interval_s:
        marks.append(("now", advice.inputs.interval_s, advice.goodput_now, "#d6403b", "diamond"))
    return [
        go.Scatter(
            x=[interval_s / 3600],
            y=[goodput * 100],
            mode="markers",
            name=f"{name}: every {words.duration(interval_s)}",
            marker={"color": colour, "size": 11, "symbol": symbol},
            hovertemplate=f"{name}, every {words.duration(interval_s)}: {words.share(goodput)}<extra></extra>",
        )
        for name, interval_s, goodput, colour, symbol in marks
        if goodput is not None
    ]


def _bars(names: list[str], values: list[float], colours: list[str], unit: str) -> go.Figure:
    figure = go.Figure(
        go.Bar(
            x=values,
            y=[words.drawn(name) for name in names],
            orientation="h",
            marker_color=colours,
            text=[f"{value:,.1f}" for value in values],
            textposition="auto",
            hovertemplate=f"%{{y}}: %{{x:,.2f}} {unit}<extra></extra>",
        )
    )
    figure.update_xaxes(title=unit, fixedrange=True)
    figure.update_yaxes(automargin=True, fixedrange=True)
    figure.update_layout(height=80 + 30 * len(names), margin={"l": 0, "r": 0, "t": 0, "b": 0}, bargap=0.3)
    return figure

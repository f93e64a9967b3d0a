"""The figures: pure functions from answers to Plotly figures.

Text and background colours are left to Streamlit's theme, so that each figure works in light and dark.
A gap in the data stays a gap in the line.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from html import escape
from urllib.parse import quote

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from dashboard.text import words
from wire.nodes import NodeHourJson, NodeScoresJson, OutageJson, ReasonJson, RollupJson

CONFIG = {"displayModeBar": False, "scrollZoom": False}

RAISES, LOWERS = "#d6403b", "#3a9d74"
LINE, SECOND = "#3b7dd8", "#e9a11a"
HOUR, WEEK = timedelta(hours=1), timedelta(days=7)
# Charts of one device: more are no overview.
MOST_MEASURES = 24

# Plain name, columns of the roll-up (name -> legend), unit, factor.
PANELS: tuple[tuple[str, dict[str, str], float], ...] = (
    ("GPU temperature, °C", {"gpu_temp_max_c": "hottest", "gpu_temp_mean_c": "mean"}, 1),
    ("Hottest GPU less coolest, °C", {"gpu_temp_spread_c": "difference"}, 1),
    ("GPUs that answered", {"gpus_seen": "GPUs"}, 1),
    ("Slowest GPU clock, MHz", {"sm_clock_min_mhz": "lowest"}, 1),
    ("Power per GPU, W", {"power_max_w": "highest", "power_mean_w": "mean"}, 1),
    ("GPU use, %", {"gpu_util_mean": "mean"}, 100),
    ("Memory temperature, °C", {"memory_temp_max_c": "hottest"}, 1),
)
# Where a line that hugs its own range would make noise look like a fault.
FROM_ZERO = {"GPUs that answered", "GPU use, %"}


def reasons(found: Sequence[ReasonJson]) -> go.Figure:
    """What raises and what lowers a score, in percentage points, the strongest on top and what they leave below."""
    ranked = sorted(found, key=lambda reason: (not words.is_rest(reason), abs(reason.contribution)))
    figure = go.Figure(
        go.Bar(
            x=[reason.contribution * 100 for reason in ranked],
            y=[_wrap(reason.text) for reason in ranked],
            orientation="h",
            marker_color=[RAISES if reason.contribution > 0 else LOWERS for reason in ranked],
            text=[f"{reason.contribution * 100:+.1f}" for reason in ranked],
            textposition="auto",
            hovertemplate="%{y}: %{x:+.2f} points<extra></extra>",
        )
    )
    figure.update_xaxes(title="percentage points of risk", zeroline=True, fixedrange=True)
    figure.update_yaxes(automargin=True, fixedrange=True)
    figure.update_layout(height=70 + 44 * len(ranked), margin={"l": 0, "r": 0, "t": 10, "b": 0}, bargap=0.35)
    return figure


def _wrap(text: str, width: int = 44) -> str:
    """Lines of at most `width`, for an axis label; `<` would be read as a tag."""
    lines = [""]
    for word in words.shown(text).replace("&", "&amp;").replace("<", "&lt;").split():
        if lines[-1] and len(lines[-1]) + len(word) >= width:
            lines.append("")
        lines[-1] = f"{lines[-1]} {word}".strip()
    return "<br>".join(lines)


def _shade(figure: go.Figure, outages: Sequence[OutageJson], times: Sequence[datetime]) -> None:
    """Grey bands where the node was out, within the times that are drawn."""
    for outage in outages if times else ():
        begin, end = max(outage.start, times[0]), min(outage.end or times[-1], times[-1])
        if begin < end:
            figure.add_vrect(
                x0=words.local(begin),
                x1=words.local(end),
                fillcolor=words.STATE_COLOURS["out"],
                opacity=0.25,
                line_width=0,
                layer="below",
            )


def sparkline(scores: Sequence[NodeScoresJson], until: datetime) -> str | None:
    """The risk within 24 h over the last seven days as a small picture, from 0 up; None of fewer than two scores.

    An `img` with an SVG: Streamlit takes SVG elements out of HTML.
    """
    since = until - WEEK
    told = [(one.time, one.score_24h) for one in scores if one.score_24h is not None and since <= one.time <= until]
    if len(told) < 2:
        return None
    least, most = min(score for _, score in told), max(score for _, score in told)
    top = max(most, 0.01)
    points = " ".join(f"{100 * ((time - since) / WEEK):.1f},{22 - 20 * score / top:.1f}" for time, score in told)
    said = escape(f"risk in 24 h over seven days: {words.risk(least)} to {words.risk(most)}")
    drawn = (
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 100 24" width="100" height="24">'
        f'<polyline points="{points}" fill="none" stroke="{LINE}" stroke-width="1.5"/></svg>'
    )
    return f'<img src="data:image/svg+xml,{quote(drawn)}" alt="{said}" title="{said}">'


@dataclass(frozen=True, slots=True)
class ReliabilityPart:
    """Scores of about one height: their mean, the share that came true with its 95 % interval, their count."""

    score: float
    observed: float
    low: float
    high: float
    rows: int


def reliability(parts: Sequence[ReliabilityPart]) -> go.Figure | None:
    """What was said against what came, both in %, on logarithmic axes; None of fewer than two parts."""
    if len(parts) < 2:
        return None
    told = [100 * value for part in parts for value in (part.score, part.observed, part.high) if value > 0]
    least = max(min(told, default=0.01) / 2, 1e-3)
    most = min(max(2 * max(told, default=50.0), 10 * least), 100.0)
    came = [max(100 * part.observed, least) for part in parts]
    figure = go.Figure(
        go.Scatter(
            x=[least, most], y=[least, most], mode="lines", line={"color": "#8d949c", "dash": "dash"}, hoverinfo="skip"
        )
    )
    figure.add_trace(
        go.Scatter(
            x=[max(100 * part.score, least) for part in parts],
            y=came,
            mode="markers",
            marker={"color": LINE, "size": 9},
            error_y={
                "array": [max(100 * part.high - at, 0.0) for part, at in zip(parts, came, strict=True)],
                "arrayminus": [
                    at - max(100 * min(part.low, part.observed), least) for part, at in zip(parts, came, strict=True)
                ],
                "symmetric": False,
                "color": LINE,
            },
            text=[
                f"said {100 * p.score:.2g} %, came {100 * p.observed:.2g} % "
                f"({100 * p.low:.2g} to {100 * p.high:.2g} %), "
                f"{words.many(p.rows, 'score')}"
                for p in parts
            ],
            hovertemplate="%{text}<extra></extra>",
        )
    )
    reach = [math.log10(least), math.log10(most)]
    figure.update_xaxes(type="log", range=reach, title="said", ticksuffix=" %", fixedrange=True)
    figure.update_yaxes(type="log", range=reach, title="came", ticksuffix=" %", fixedrange=True)
    figure.update_layout(height=320, margin={"l": 0, "r": 0, "t": 10, "b": 0}, showlegend=False)
    return figure


def telemetry(rollups: Sequence[RollupJson], outages: Sequence[OutageJson]) -> list[go.Figure]:
    """Small charts of what was measured each hour, in two columns; none where nothing was.

    An hour without data breaks the line.
    """
    hours = with_gaps(rollups)
    shown = [panel for panel in PANELS if any(_measured(hours, name) for name in panel[1])]
    times = [words.local(time) for time, _ in hours]
    panels = []
    for title, columns, factor in shown:
        traces = [
            go.Scatter(
                x=times,
                y=[None if r is None or getattr(r, name) is None else getattr(r, name) * factor for _, r in hours],
                name=legend,
                mode="lines+markers",  # an hour between two gaps is a point, no line
                marker_size=2.5,
                line={"color": colour, "width": 1.6},
                connectgaps=False,
                hovertemplate=f"%{{y:.4~g}} {legend}<extra></extra>",
            )
            for colour, (name, legend) in zip((LINE, SECOND), columns.items(), strict=False)
        ]
        panels.append(_MeasurePlot(_title(title, columns), traces, title in FROM_ZERO))
    return _columns(panels, outages, times)


def measures(hours: Sequence[NodeHourJson], device: str, outages: Sequence[OutageJson]) -> list[go.Figure]:
    """Small charts of what a device measured each hour, of at most MOST_MEASURES that differ, in two columns."""
    series = {
        name: [
            (words.local(hour.time), hour.devices[device][name][2])
            for hour in hours
            if name in hour.devices.get(device, {})
        ]
        for name in sorted({name for hour in hours for name in hour.devices.get(device, {})})
    }
    shown = [name for name, values in series.items() if len({value for _, value in values}) > 1][:MOST_MEASURES]
    panels = []
    for name in shown:
        times, values = zip(*series[name], strict=True)
        line, title = {"color": LINE, "width": 1.6}, words.plain(name)
        trace = go.Scatter(x=times, y=values, mode="lines+markers", marker_size=2.5, line=line, name=title)
        panels.append(_MeasurePlot(title, [trace]))
    return _columns(panels, outages, sorted(words.local(hour.time) for hour in hours))


@dataclass(frozen=True, slots=True)
class _MeasurePlot:
    """One small chart."""

    title: str
    traces: list[go.Scatter]
    from_zero: bool = False


def _columns(
    panels: Sequence[_MeasurePlot], outages: Sequence[OutageJson], times: Sequence[datetime]
) -> list[go.Figure]:
    """The panels row by row, a figure for each of two columns: on a phone one stands below the other."""
    figures = []
    for own in (panels[::2], panels[1::2]):
        if not own:
            continue
        rows = len(own)
        titles = [panel.title for panel in own]
        figure = make_subplots(rows=rows, cols=1, subplot_titles=titles, vertical_spacing=0.28 / rows)
        for row, panel in enumerate(own, 1):
            figure.add_traces(panel.traces, rows=row, cols=1)
            if panel.from_zero:
                figure.update_yaxes(rangemode="tozero", row=row, col=1)
        _shade(figure, outages, times)
        _hour_axes(figure, times)
        figure.update_yaxes(fixedrange=True)
        margin = {"l": 0, "r": 0, "t": 40, "b": 0}
        figure.update_layout(height=60 + 190 * rows, margin=margin, showlegend=False, hovermode="x")
        figures.append(figure)
    return figures


def _hour_axes(figure: go.Figure, times: Sequence[datetime]) -> None:
    """Every time axis from the first hour to the last: days, or hours where many of them would bear one day's name."""
    ticks = "%b %d" if times[-1] - times[0] > timedelta(days=3) else "%b %d\n%H:%M"
    figure.update_xaxes(range=[times[0], times[-1] + HOUR], tickformat=ticks, nticks=6, fixedrange=True)


def with_gaps(rollups: Sequence[RollupJson]) -> list[tuple[datetime, RollupJson | None]]:
    """The hours in order, with one empty hour wherever some are missing: there the line breaks."""
    found: list[tuple[datetime, RollupJson | None]] = []
    for rollup in sorted(rollups, key=lambda r: r.time):
        if found and rollup.time - found[-1][0] > HOUR:
            found.append((found[-1][0] + HOUR, None))
        found.append((rollup.time, rollup))
    return found


def _measured(hours: Sequence[tuple[datetime, RollupJson | None]], name: str) -> bool:
    return any(r is not None and getattr(r, name) is not None for _, r in hours)


def _title(title: str, columns: Mapping[str, str]) -> str:
    """The panel's title; where it has two lines, their names in their colours."""
    if len(columns) == 1:
        return title
    names = [f'<span style="color:{c}">{n}</span>' for c, n in zip((LINE, SECOND), columns.values(), strict=True)]
    return f"{title}: {', '.join(names)}"

"""All that is known of a node on one time axis: charts below one another, which are zoomed together."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from dashboard.charts.charts import HOUR, LINE, RAISES, SECOND, with_gaps
from dashboard.text import words
from wire.events import IncidentJson
from wire.nodes import ErrorHourJson, NodeDetailJson, NodeJobJson, NodeScoresJson, NodeTimelineJson

FAULTY_FOR = timedelta(hours=24)  # after a fatal fault that no outage has ended, as the API counts it
MOST_LANES = 10  # rows of one chart: runs, or devices with incidents
_LANE_PX, _CHART_PX, _GAP_PX = 20, 90, 42
_OTHERS = "others"


@dataclass(frozen=True, slots=True)
class NodeAnswers:
    """What is drawn of a node: its answers; `timeline` None where the server does not tell.

    `view`: while it is the same, whoever has looked closer stays there when the charts are drawn again.
    """

    detail: NodeDetailJson
    timeline: NodeTimelineJson | None
    now: datetime
    view: str = ""


@dataclass(frozen=True, slots=True)
class _AxisRow:
    """One of the charts: its title, how many lanes it has (0: a scale), and its traces."""

    title: str
    lanes: int
    traces: Sequence[Any]
    range_mode: str = "tozero"


def axis(past: NodeAnswers, since: datetime, until: datetime) -> go.Figure | None:
    """The charts that hold anything within since <= time < until; None where none does."""
    made = (_jobs, _held, _incidents, _risk, _heat, _memory, _links)
    charts = [chart for chart in (make(past, since, until) for make in made) if chart is not None]
    if not charts:
        return None
    heights = [_LANE_PX * (chart.lanes + 1) if chart.lanes else _CHART_PX for chart in charts]
    whole = sum(heights) + _GAP_PX * len(charts)
    figure = make_subplots(
        rows=len(charts),
        cols=1,
        shared_xaxes=True,
        row_heights=heights,
        vertical_spacing=_GAP_PX / whole if len(charts) > 1 else 0,
        subplot_titles=[chart.title for chart in charts],
    )
    for row, chart in enumerate(charts, 1):
        for trace in chart.traces:
            figure.add_trace(trace, row=row, col=1)
        figure.update_yaxes(fixedrange=True, row=row, col=1)
        if not chart.lanes:
            figure.update_yaxes(rangemode=chart.range_mode, nticks=4, row=row, col=1)
    # What is of this moment is not cut in two by the edge. Of bars with a base Plotly takes lengths for places.
    ends = [words.local(since), words.local(until + (until - since) / 80)]
    figure.update_xaxes(type="date", range=ends, matches="x", tickformat="%b %d\n%H:%M", nticks=9)
    figure.update_xaxes(title_text=words.zone_name(until), title_standoff=4, row=len(charts), col=1)
    figure.update_annotations(x=0, xanchor="left", font_size=13)
    figure.update_layout(
        height=whole + 50,
        margin={"l": 0, "r": 0, "t": 26, "b": 0},
        barmode="overlay",
        bargap=0.25,
        showlegend=False,
        hovermode="closest",
        dragmode="zoom",
        uirevision=f"{past.detail.node} {past.view}",
    )
    return figure


def lanes_of(names: Sequence[str], most: int = MOST_LANES) -> list[str]:
    """The names in the order in which they come first, those beyond `most` as one lane, `others`."""
    ordered = list(dict.fromkeys(names))
    return ordered if len(ordered) <= most else [*ordered[: most - 1], _OTHERS]


def _spans(
    rows: Sequence[tuple[str, datetime, datetime, str]], colour: str | Sequence[str], since: datetime, until: datetime
) -> list[Any]:
    """Bars of (lane, start, end, words), cut at the window's ends so that the axis is not stretched."""
    lanes = lanes_of([lane for lane, *_ in rows])
    cut = [(lane, max(start, since), min(end, until), said) for lane, start, end, said in rows]
    return [
        go.Bar(
            base=[words.local(start) for _, start, _, _ in cut],
            x=[max((end - start).total_seconds(), 1.0) * 1000 for _, start, end, _ in cut],
            y=[words.drawn(lane if lane in lanes else _OTHERS)[:24] for lane, *_ in cut],
            orientation="h",
            marker={"color": colour, "line": {"width": 0}},
            customdata=[words.drawn(said) for *_, said in cut],
            hovertemplate="%{customdata}<extra></extra>",
        )
    ]


def _within(start: datetime | None, end: datetime | None, since: datetime, until: datetime) -> bool:
    return start is not None and start < until and (end is None or end >= since)


def _jobs(past: NodeAnswers, since: datetime, until: datetime) -> _AxisRow | None:
    told = () if past.timeline is None else past.timeline.jobs
    found = [job for job in told if _within(job.start, job.end, since, until)]
    if not found:
        return None
    rows = [(job.run, job.start, job.end or past.now, _job(job)) for job in found if job.start is not None]
    return _AxisRow("Runs", len(lanes_of([row[0] for row in rows])), _spans(rows, LINE, since, until))


def _job(job: NodeJobJson) -> str:
    nodes = "" if job.nodes is None else f" on {words.many(job.nodes, 'node')}"
    lasted = "runs" if job.end is None or job.start is None else words.duration((job.end - job.start).total_seconds())
    return f"{job.run}, job {job.job}{nodes}: {job.state.lower()}, {lasted}"


def _held(past: NodeAnswers, since: datetime, until: datetime) -> _AxisRow | None:
    """Outages and hints."""
    rows, colours = [], []
    for outage in past.detail.outages:
        if _within(outage.start, outage.end, since, until):
            said = f"out of service: {outage.reason or outage.state or 'nobody says why'}"
            rows.append(("outages", outage.start, outage.end or past.now, said))
            colours.append(words.STATE_COLOURS["out"])
    for hint in past.detail.hints:
        end = min(hint.valid_until or past.now, past.now)
        if hint.created is not None and _within(hint.created, end, since, until):
            rows.append(("hints", hint.created, end, f"{hint.action} ({hint.state}): {hint.reason}"))
            colours.append(SECOND)
    if not rows:
        return None
    return _AxisRow("Out of service, and hints", len({row[0] for row in rows}), _spans(rows, colours, since, until))


def _incidents(past: NodeAnswers, since: datetime, until: datetime) -> _AxisRow | None:
    found = [one for one in past.detail.incidents if _within(one.start, one.end, since, until)]
    if not found:
        return None
    lanes = lanes_of([_device(one) for one in sorted(found, key=_device)])
    return _AxisRow(
        "Incidents, by device",
        len(lanes),
        [
            go.Scatter(
                x=[words.local(max(one.start, since)) for one in found],
                y=[words.drawn(_device(one) if _device(one) in lanes else _OTHERS)[:24] for one in found],
                mode="markers",
                marker={
                    "symbol": "diamond",
                    "size": 9,
                    "color": [words.SEVERITY_COLOURS.get(one.severity, "#8d949c") for one in found],
                },
                customdata=[
                    words.drawn(f"{words.what(one)} ({one.severity}, {words.utc(one.start)})") for one in found
                ],
                hovertemplate="%{customdata}<extra></extra>",
            )
        ],
    )


def _device(incident: IncidentJson) -> str:
    return words.device(incident.device, brief=True, name=incident.name) or "node"


def _risk(past: NodeAnswers, since: datetime, until: datetime) -> _AxisRow | None:
    """The scores; the line breaks where they are withheld, as they are everywhere else."""
    scores = [one for one in past.detail.scores if since <= one.time < until]
    told = [NodeScoresJson(time=one.time) if is_withheld(past.detail, one.time) else one for one in scores]
    if all(one.score_24h is None and one.score_7d is None for one in told):
        return None
    traces = [
        go.Scatter(
            x=[words.local(one.time) for one in told],
            y=[None if value is None else value * 100 for value in values],
            mode="lines+markers" if len(told) < 60 else "lines",
            marker_size=5,
            line={"color": colour, "shape": "hv"},
            hovertemplate=f"%{{y:.1f}} % {name}<extra></extra>",
        )
        for name, colour, values in (
            ("within 24 h", RAISES, [one.score_24h for one in told]),
            ("within 7 days", SECOND, [one.score_7d for one in told]),
        )
    ]
    return _AxisRow(_named("Risk, %", ("within 24 h", RAISES), ("within 7 days", SECOND)), 0, traces)


def is_withheld(node: NodeDetailJson, moment: datetime) -> bool:
    """Whether a node was out then, or had failed within a day and no outage had ended that: scores are of others."""
    if any(one.start <= moment and (one.end is None or moment < one.end) for one in node.outages):
        return True
    fatal = [one for one in node.incidents if (one.severity, one.cause) == ("fatal", "hardware")]
    failed = [one.end for one in fatal if one.start <= moment < (one.shown or one.end) + FAULTY_FOR]
    repaired = max((one.end for one in node.outages if one.end is not None and one.end <= moment), default=None)
    return any(repaired is None or repaired < min(end, moment) for end in failed)


def _heat(past: NodeAnswers, since: datetime, until: datetime) -> _AxisRow | None:
    hours = with_gaps([one for one in past.detail.telemetry if since - HOUR < one.time < until])
    lines: tuple[tuple[str, str, Callable[[Any], float | None]], ...] = (
        ("hottest", LINE, lambda hour: hour.gpu_temp_max_c),
        ("mean", SECOND, lambda hour: hour.gpu_temp_mean_c),
    )
    if all(hour is None or hour.gpu_temp_max_c is None for _, hour in hours):
        return None
    traces = [
        go.Scatter(
            x=[words.local(time) for time, _ in hours],
            y=[None if hour is None else value(hour) for _, hour in hours],
            mode="lines+markers",
            marker_size=3,
            line={"color": colour, "width": 1.6},
            connectgaps=False,
            hovertemplate=f"%{{y:.0f}} °C {name}<extra></extra>",
        )
        for name, colour, value in lines
    ]
    return _AxisRow(_named("GPU temperature, °C", ("hottest", LINE), ("mean", SECOND)), 0, traces, "normal")


def _memory(past: NodeAnswers, since: datetime, until: datetime) -> _AxisRow | None:
    names = (("corrected", SECOND), ("not corrected", RAISES))
    values: tuple[Callable[[ErrorHourJson], int], ...] = (lambda hour: hour.corrected, lambda hour: hour.uncorrected)
    return _counted(past, (since, until), "Memory errors (ECC) each hour", list(zip(names, values, strict=True)))


def _links(past: NodeAnswers, since: datetime, until: datetime) -> _AxisRow | None:
    return _counted(past, (since, until), "Link errors each hour", [(("links", LINE), lambda hour: hour.links)])


def _counted(
    past: NodeAnswers,
    window: tuple[datetime, datetime],
    title: str,
    lines: Sequence[tuple[tuple[str, str], Callable[[ErrorHourJson], int]]],
) -> _AxisRow | None:
    told = () if past.timeline is None else past.timeline.errors
    traces = []
    for (name, colour), value in lines:
        hours = [one for one in told if window[0] - HOUR < one.time < window[1] and value(one)]
        if hours:
            traces.append(
                go.Bar(
                    x=[words.local(one.time + HOUR / 2) for one in hours],
                    y=[value(one) for one in hours],
                    width=HOUR.total_seconds() * 1000,
                    marker={"color": colour, "line": {"width": 0}},
                    hovertemplate=f"%{{y:,}} {name}<extra></extra>",
                )
            )
    if not traces:
        return None
    return _AxisRow(_named(title, *(one for one, _ in lines)) if len(lines) > 1 else title, 0, traces)


def _named(title: str, *names: tuple[str, str]) -> str:
    """A chart's title with the names of its lines in their colours."""
    said = [f'<span style="color:{colour}">{name}</span>' for name, colour in names]
    return f"{title}: {', '.join(said)}"

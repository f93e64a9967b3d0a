"""The study as one HTML page: each tape's moments on a line, the backtests, every sentence of the page on real data."""

from collections.abc import Mapping
from typing import Any

from cli.study.backtests import SETS
from cli.study.page import clock, lead_hours, verdict
from cli.study.timelines import HOUR, TicketTimeline, Timelines
from store.html_page import page, section, table
from store.svg_plot import Axis, Plot, legend

_MARKS = (
    ("first sign", "first_sign", "c2"),
    ("hint", "hint", "c0"),
    ("GPU gone", "gpu_gone", "c4"),
    ("reboot", "reboot", "c3"),
    ("ticket's day", "ticket", "c1"),
)
_HEADER = ("tape", "first sign to hint, h", "hint to ticket, h", "to its end, h", "to GPU gone, h", "to reboot, h")


def study_html(lines: Timelines | None, reports: Mapping[str, Any]) -> str:
    """A page that stands alone."""
    parts = ["<h1>Real clusters</h1>"]
    if lines is not None and lines.lines:
        rows = [(one.tape, *lead_hours(one)) for one in lines.lines]
        said = "Hours before and after the ticket's day begins (0). To the left of it is early."
        key = legend([(name, colour) for name, _, colour in _MARKS])
        parts.append(section("Real tapes of failing nodes", said, _plot(lines), key, table(_HEADER, rows)))
        for one in lines.lines:
            told = [(clock(each.time), each.severity, each.words) for each in one.told]
            said = f"What a site would have been told of {one.node}."
            parts.append(section(one.tape, said, table(("time", "kind", "words"), told)))
    for name, report in reports.items():
        if isinstance(report, str):
            parts.append(section(SETS[name].title, report))
            continue
        rankings = [
            (ranking.replace("_", " "), _sure(found, "average_precision"), _sure(found, "roc_auc"))
            for ranking, found in {"the model": report, **report["baselines"]}.items()
        ]
        parts.append(
            section(SETS[name].title, verdict(report), table(("ranking", "average precision", "ROC-AUC"), rankings))
        )
    return page("Foreshock study", parts)


def _sure(found: Mapping[str, Any], figure: str) -> tuple[Any, Any]:
    """A figure and its interval."""
    return found[figure], (found["intervals"] or {}).get(figure)


def _plot(lines: Timelines) -> str:
    """A row a tape, newest below."""
    count = len(lines.lines)
    offsets = [hours for one in lines.lines for hours in _offsets(one).values()]
    plot = Plot(
        Axis("hours from the ticket's day", min(offsets) - 6, max(offsets) + 6),
        Axis("", 0, count + 1, write=lambda _value: ""),
        width=1000,
        height=60 + 34 * count,
        left=330,
    )
    marks = [plot.line([(0, 0), (0, count + 1)], "c1 dash")]
    for place, one in enumerate(lines.lines):
        up = count - place
        marks.append(plot.note((min(offsets) - 6, up), one.tape, "end", (-8, -4)))
        marks += [
            plot.dot((hours, up), colour, f"{name}: {clock(getattr(one, key))}")
            for name, key, colour in _MARKS
            if (hours := _offsets(one).get(key)) is not None
        ]
    return plot.drawn("moments of each tape", marks)


def _offsets(one: TicketTimeline) -> dict[str, float]:
    moments = {key: getattr(one, key) for _, key, _ in _MARKS}
    return {key: (moment - one.ticket) / HOUR for key, moment in moments.items() if moment is not None}

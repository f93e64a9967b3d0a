"""The report's plots: SVG of days, interruptions and saves; bars of HTML where names are long. All text is escaped."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from html import escape
from typing import Any

from goodput.cluster.report_data import Report, Save
from goodput.cluster.report_words import (
    BUCKETS,
    CAUSE_COLOURS,
    IDLE,
    OUT,
    bucket_colour,
    bucket_name,
    cause_name,
    hours,
    percent,
)
from goodput.timeline import DAY_MS, HOUR_MS, from_ms, to_ms
from store.event import parse_time
from store.losses import Loss
from store.svg_plot import Axis, Plot

WIDTH, LEFT = 980, 150
# More rows than this are summed up in words.
MOST_RUNS, MOST_DOTS = 12, 2_000


def keys(names: Iterable[tuple[str, str]]) -> str:
    """Names beside their colours."""
    parts = [f'<span><b style="background:{colour}"></b>{escape(name)}</span>' for name, colour in names]
    return f'<p class="keys">{"".join(parts)}</p>'


def bucket_keys(buckets: Iterable[str], *more: tuple[str, str]) -> str:
    """The buckets that are drawn, in their order, and others."""
    held = set(buckets)
    named = [name for name in BUCKETS if name in held] + sorted(held - set(BUCKETS))
    return keys([*((bucket_name(name), bucket_colour(name)) for name in named), *more])


def stacked(parts: Mapping[str, float], whole: float) -> str:
    """One bar of buckets, as wide as its share of `whole`."""
    order = [name for name in BUCKETS if name in parts] + sorted(set(parts) - set(BUCKETS))
    cells = [
        f'<i style="width:{100 * parts[name] / whole:.3f}%;background:{bucket_colour(name)}" '
        f'title="{escape(bucket_name(name))}: {hours(parts[name])}"></i>'
        for name in order
        if parts[name] > 0 and whole > 0
    ]
    return f'<div class="bar">{"".join(cells)}</div>'


def plain_bar(value: float, most: float, colour: str) -> str:
    """A bar of one colour, as long as its share of the longest."""
    width = 100 * value / most if most > 0 else 0.0
    return f'<div class="bar"><i style="width:{width:.3f}%;background:{colour}"></i></div>'


def _days(moment_ms: float, start_ms: int) -> float:
    return (moment_ms - start_ms) / DAY_MS


def _calendar(start_ms: int) -> Any:
    """Writes a day of the axis as its date, where it is a midnight."""

    def write(value: float) -> str:
        moment = from_ms(start_ms + round(value * DAY_MS))
        return f"{moment:%d %b}" if abs(value - round(value)) < 1e-9 else ""

    return write


def by_day(report: Report) -> str:
    """What became of each day's GPU-hours: buckets from below, then no job, then out of service."""
    days = report.now.account["days"]
    start_ms = to_ms(report.now.since)
    totals = [_stack(day) for day in days]
    top = max((sum(amount for _, amount in stack) for stack in totals), default=0.0) or 1.0
    last = _days(to_ms(report.now.until), start_ms)
    plot = Plot(
        Axis("day (UTC)", 0, max(last, 0.01), write=_calendar(start_ms)),
        Axis("GPU-hours", 0, top, write=hours),
        WIDTH,
        320,
        80,
    )
    marks = []
    for day, stack in zip(days, totals, strict=True):
        begin = _days(to_ms(parse_time(day["since"])), start_ms)
        end = _days(to_ms(parse_time(day["until"])), start_ms)
        low = 0.0
        for name, amount in stack:
            words = {"idle": IDLE[0], "out": OUT[0]}.get(name) or bucket_name(name)
            title = f"{day['since'][:10]} {words}: {hours(amount)} GPU-hours"
            marks.append(
                plot.box(
                    (begin + 0.03 * (end - begin), end - 0.03 * (end - begin)), (low, low + amount), f"b-{name}", title
                )
            )
            low += amount
    held = {name for stack in totals for name, _ in stack if name not in ("idle", "out")}
    more = [
        (words[0], words[2]) for name, words in (("idle", IDLE), ("out", OUT)) if any(name in dict(s) for s in totals)
    ]
    return plot.drawn("what became of each day's GPU-hours", marks) + bucket_keys(held, *more)


def _stack(day: Mapping[str, Any]) -> list[tuple[str, float]]:
    """A day from below: buckets of runs that held GPUs, then what nobody held, where it is known."""
    held = {name: amount for name, amount in day["buckets"].items() if amount > 0 and name != "waiting"}
    order = [name for name in BUCKETS if name in held] + sorted(set(held) - set(BUCKETS))
    stack = [(name, held[name]) for name in order]
    told = day["gpu_hours"]
    if told["idle"] is not None and told["idle"] > 0:
        stack.append(("idle", told["idle"]))
    out = (told["out_planned"] or 0) + (told["out_unplanned"] or 0)
    return [*stack, ("out", out)] if out > 0 else stack


def interruptions(report: Report) -> str:
    """When each run was interrupted, and by what; a larger dot cost more."""
    losses = report.now.losses
    start_ms = to_ms(report.now.since)
    rows = _rows(losses)
    last = _days(to_ms(report.now.until), start_ms)
    names = {len(rows) - i: run for i, run in enumerate(rows)}
    plot = Plot(
        Axis("day (UTC)", 0, max(last, 0.01), write=_calendar(start_ms)),
        Axis("", 0.4, len(rows) + 0.6, write=lambda _value: ""),
        WIDTH,
        max(90, 60 + 26 * len(rows)),
        LEFT,
    )
    marks = [plot.note((0, place), _short(run), "end", (-8, -4)) for place, run in names.items()]
    most = max((loss.lost_work_ms + loss.restart_ms for loss in losses), default=1) or 1
    for loss in losses[:MOST_DOTS]:
        place = len(rows) - rows.index(loss.run if loss.run in rows else rows[-1])
        cost_ms = loss.lost_work_ms + loss.restart_ms
        title = f"{loss.time:%Y-%m-%d %H:%M}Z {loss.run}: {_put_down(loss)}, {hours(cost_ms / HOUR_MS)} h of the run"
        colour = f"k-{loss.cause if loss.cause in CAUSE_COLOURS else 'unknown'}"
        point = (_days(to_ms(loss.time), start_ms), float(place))
        marks.append(_sized(plot.dot(point, colour, title), 3 + 6 * (cost_ms / most) ** 0.5))
    held = sorted({loss.cause for loss in losses})
    legend = keys([(cause_name(cause), CAUSE_COLOURS.get(cause, "#5c6470")) for cause in held])
    return plot.drawn("interruptions over time", marks) + legend


def _sized(dot: str, radius: float) -> str:
    return dot.replace('r="3.5"', f'r="{radius:.1f}"')


def _rows(losses: Sequence[Loss]) -> list[str]:
    """The runs that lost most, each a row; the others share the last."""
    lost: dict[str, int] = {}
    for loss in losses:
        lost[loss.run] = lost.get(loss.run, 0) + loss.lost_work_ms + loss.restart_ms
    rows = sorted(lost, key=lambda run: (-lost[run], run))
    return rows if len(rows) <= MOST_RUNS else [*rows[: MOST_RUNS - 1], f"{len(rows) - MOST_RUNS + 1} other runs"]


def _put_down(loss: Loss) -> str:
    """What an interruption is put down to, in a few words."""
    if loss.unexplained:
        return "unexplained"
    return " ".join(part for part in (cause_name(loss.cause), loss.node, loss.code) if part)


def _short(text: str, most: int = 20) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"


def saves(found: Sequence[Save], since: datetime, until: datetime) -> str:
    """How long training stood still for each save, over time."""
    start_ms = to_ms(since)
    top = max((save.stall_s for save in found), default=0.0) or 1.0
    plot = Plot(
        Axis("day (UTC)", 0, max(_days(to_ms(until), start_ms), 0.01), write=_calendar(start_ms)),
        Axis("stall, seconds", 0, top * 1.05),
        WIDTH,
        240,
        80,
    )
    shown = found if len(found) <= MOST_DOTS else found[:: len(found) // MOST_DOTS + 1]
    marks = [
        _sized(
            plot.dot(
                (_days(to_ms(save.time), start_ms), save.stall_s),
                "c1",
                f"{save.time:%Y-%m-%d %H:%M}Z {save.run}: {save.stall_s:.1f} s",
            ),
            2.0,
        )
        for save in shown
    ]
    return plot.drawn("the stall of each save", marks)


def change(now: float | None, before: float | None, good: int) -> str:
    """How a figure moved, coloured by whether that is good (1: more is better, -1: less is)."""
    if now is None or before is None:
        return "-"
    moved = now - before
    word = "up" if moved * good > 0 else "down"
    said = f"{moved * 100:+.1f} points"
    return f'<span class="{word}">{said}</span>' if abs(moved) >= 0.0005 else percent(0.0)

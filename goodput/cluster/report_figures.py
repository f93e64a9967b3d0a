"""The report's plots: SVG of days, interruptions and saves; bars of HTML where names are long. All text is escaped."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from goodput.cluster.account import RunTotals, cluster_json, fresh_runs
from goodput.cluster.losses import days_of, losses_of
from goodput.formulas.shape import Shape
from goodput.ledger import Ledger
from goodput.timeline import DAY_MS, HOUR_MS, from_ms, to_ms
from store.plural import plural
from store.records.event import parse_time
from store.runs.losses import Loss, LossGroup, grouped
from store.svg_plot import Axis, Plot
from store.visible_text import html_text
from wire.money.price import GpuHourPrice, aside

# What a report tells, gathered: a period and the one of the same length before it.


@dataclass(frozen=True, slots=True)
class Period:
    """One period: the cluster's account (`cluster_json`), the interruptions in it."""

    since: datetime
    until: datetime
    account: Mapping[str, Any]
    losses: Sequence[Loss]


@dataclass(frozen=True, slots=True)
class RunShare:
    """A run's part of the period, by bucket: GPU-hours where `sized`, else hours of wall time."""

    run: str
    sized: bool
    buckets: Mapping[str, float]

    @property
    def whole(self) -> float:
        """All of it."""
        return sum(self.buckets.values())


@dataclass(frozen=True, slots=True)
class SaveStall:
    """One save's stall, seconds."""

    run: str
    time: datetime
    stall_s: float


@dataclass(frozen=True, slots=True)
class PeriodReport:
    """All that the page draws. `in_gpus` = losses are counted in GPU-hours, else in hours of wall time."""

    now: Period
    before: Period
    runs: Sequence[RunShare]
    saves: Sequence[SaveStall]
    price: GpuHourPrice | None = None

    @property
    def in_gpus(self) -> bool:
        """Whether the size of any interrupted run is known."""
        return any(loss.lost_gpu_ms is not None for loss in self.now.losses) or not self.now.losses

    @property
    def unit(self) -> str:
        """What losses are counted in."""
        return "GPU-hours" if self.in_gpus else "hours"

    def cost(self, group: LossGroup) -> float:
        """What a group of interruptions cost, in `unit`."""
        return (group.lost_gpu_ms if self.in_gpus else group.lost_ms) / HOUR_MS

    def money(self, gpu_hours: float | None, *, always: bool = False) -> str:
        """What an amount in `unit` costs, in brackets behind it; nothing where no price is set or no GPU counted.

        `always`: the amount is one of GPU-hours, whatever losses are counted in.
        """
        found = self.price.of(gpu_hours) if self.price is not None and (always or self.in_gpus) else None
        return aside(found)

    def lost(self, period: Period) -> float:
        """What all interruptions of a period cost, in `unit`."""
        return sum(self.cost(group) for group in grouped(period.losses, "cause"))


def gather(
    connection: sa.Connection,
    ledgers: Sequence[Ledger],
    window: tuple[datetime, datetime],
    shapes: Mapping[str, Shape],
) -> PeriodReport:
    """The report of a window of whole days and of the time before it."""
    losses = losses_of(connection, *ledgers)
    since, until = window
    earlier = since - (until - since)

    def period(first: datetime, last: datetime) -> Period:
        # The period before begins within a day where this one ends within one: whole days have to be told apart.
        whole = (first.replace(hour=0, minute=0, second=0, microsecond=0), last)
        runs: RunTotals = fresh_runs(connection, ledgers, whole, shapes)
        within = [loss for loss in losses if whole[0] <= loss.time < last]
        return Period(whole[0], last, cluster_json(connection, whole, runs), within)

    return PeriodReport(
        now=period(since, until),
        before=period(earlier, since),
        runs=_shares(ledgers, window),
        saves=_saves(ledgers, window),
    )


def _shares(ledgers: Sequence[Ledger], window: tuple[datetime, datetime]) -> list[RunShare]:
    """The runs' parts of the period, the largest first; those of known size before the others."""
    found = []
    for ledger in ledgers:
        days = [day for day in days_of(ledger) if window[0] <= day.day < window[1]]
        sized = ledger.held is not None
        buckets: dict[str, float] = {}
        for day in days:
            amount = (day.gpu_ms or 0) if sized else day.wall_ms
            buckets[day.bucket] = buckets.get(day.bucket, 0.0) + amount / HOUR_MS
        if buckets:
            found.append(RunShare(ledger.run, sized, buckets))
    return sorted(found, key=lambda share: (not share.sized, -share.whole, share.run))


def _saves(ledgers: Sequence[Ledger], window: tuple[datetime, datetime]) -> list[SaveStall]:
    found = []
    for ledger in ledgers:
        for save in ledger.saves if ledger.dated else ():
            time = from_ms(save.start_ms)
            if window[0] <= time < window[1]:
                found.append(SaveStall(ledger.run, time, save.length_ms / 1000))
    return sorted(found, key=lambda save: (save.time, save.run))


# The report's plain words and colours: buckets, causes, levels; and figures as people write them.

# Bucket: its name, what it means, its colour. In the order in which they are stacked.
BUCKETS: Mapping[str, tuple[str, str, str]] = {
    "productive": ("Useful training", "steps whose result was kept", "#3a9d74"),
    "evaluation": ("Evaluation", "measuring the model instead of training it", "#57b8c9"),
    "degraded": ("Slow steps", "the extra time of steps slower than the run's usual pace", "#c9b33b"),
    "data_stall": ("Waiting for data", "steps that stood still until their data came", "#a8743a"),
    "checkpoint_save": ("Saving checkpoints", "training stood still while the state was written", "#3b7dd8"),
    "checkpoint_load": ("Loading checkpoints", "reading the state back after a start", "#7aa5e6"),
    "startup": ("Starting up", "from the scheduler's start to the first step", "#b58be0"),
    "waiting": ("Waiting for nodes", "queued: nothing ran", "#8d949c"),
    "detection": ("Noticing the failure", "from the fault until the job was ended", "#e9a11a"),
    "lost_work": ("Work lost", "steps since the last checkpoint: done again, or never kept", "#d6403b"),
    "unknown": ("Not accounted for", "no log says what happened", "#5c6470"),
}
# What of a day no run held.
IDLE = ("No job", "nodes that were ready and had nothing to do", "#d9dde2")
OUT = ("Out of service", "nodes that the scheduler had taken out", "#8454a6")

CAUSES = {
    "hardware": "hardware",
    "fabric": "network links and switches",
    "host": "host",
    "driver": "driver",
    "storage": "storage",
    "application": "the training program",
    "unknown": "cause not known",
}
CAUSE_COLOURS = {
    "hardware": "#d6403b",
    "fabric": "#3b7dd8",
    "host": "#e9a11a",
    "driver": "#8454a6",
    "storage": "#a8743a",
    "application": "#3a9d74",
    "unknown": "#5c6470",
}
LEVELS = {
    "existing": "GPU-hours that existed",
    "out_planned": "out of service, planned",
    "out_unplanned": "out of service, not planned",
    "schedulable": "ready for jobs",
    "idle": "no job on them",
    "allocated": "held by jobs",
    "running": "in the training loop",
    "productive": "training that counts",
}

STYLE = (
    ".bar{display:flex;height:1.35rem;border-radius:3px;overflow:hidden;background:var(--line);min-width:16rem}"
    ".bar i{display:block;height:100%}td.wide{width:60%}td.wide .bar{background:none}"
    "p.keys span{display:inline-flex;align-items:center;margin-right:1rem;font-size:12px;white-space:nowrap}"
    "p.keys b{width:.8rem;height:.8rem;border-radius:2px;margin-right:.35rem;display:inline-block}"
    ".up{color:var(--c3)}.down{color:var(--c0)}td.text,th.text{text-align:left}"
    "dl{display:grid;grid-template-columns:max-content 1fr;"
    "gap:.2rem 1rem;max-width:60rem;margin:.4rem 0}dt{font-weight:600}dd{margin:0;color:var(--dim)}"
    + "".join(f".b-{name}{{fill:{colour};stroke:none}}" for name, (_, _, colour) in BUCKETS.items())
    + f".b-idle{{fill:{IDLE[2]};stroke:none}}.b-out{{fill:{OUT[2]};stroke:none}}"
    + "".join(f".k-{name}{{fill:{colour};stroke:{colour}}}" for name, colour in CAUSE_COLOURS.items())
)


def bucket_name(bucket: str) -> str:
    """A bucket in words."""
    return BUCKETS[bucket][0] if bucket in BUCKETS else bucket.replace("_", " ")


def bucket_colour(bucket: str) -> str:
    """Its colour."""
    return BUCKETS[bucket][2] if bucket in BUCKETS else "#5c6470"


def cause_name(cause: str) -> str:
    """A cause in words."""
    return CAUSES.get(cause, cause)


def hours(value: float | None) -> str:
    """Hours with as many digits as help: 12,345 or 3.4; a dash for None."""
    if value is None:
        return "-"
    return f"{value:,.0f}" if abs(value) >= 100 or value == 0 else f"{value:,.1f}"


def percent(value: float | None) -> str:
    """A share; a dash for None."""
    return "-" if value is None else f"{value * 100:.1f} %"


def times(count: int, word: str) -> str:
    """A count with its word: 1 stop, 3 stops."""
    return f"{count:,} {plural(count, word)}"


WIDTH, LEFT = 980, 150
# More rows than this are summed up in words.
MOST_RUNS, MOST_DOTS = 12, 2_000


def keys(names: Iterable[tuple[str, str]]) -> str:
    """Names beside their colours."""
    parts = [f'<span><b style="background:{colour}"></b>{html_text(name)}</span>' for name, colour in names]
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
        f'title="{html_text(bucket_name(name))}: {hours(parts[name])}"></i>'
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


def by_day(report: PeriodReport) -> str:
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
    reported = day["gpu_hours"]
    if reported["idle"] is not None and reported["idle"] > 0:
        stack.append(("idle", reported["idle"]))
    out = (reported["out_planned"] or 0) + (reported["out_unplanned"] or 0)
    return [*stack, ("out", out)] if out > 0 else stack


def interruptions(report: PeriodReport) -> str:
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


def saves(found: Sequence[SaveStall], since: datetime, until: datetime) -> str:
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

"""The report of a period as one HTML page: what became of the GPU-hours, what took them, and how that compares.

For an operator and for an owner: plain words, plots, no scripts, nothing from elsewhere, every name escaped.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from goodput.cluster import report_figures as plots
from goodput.cluster.losses import name_of
from goodput.cluster.report_figures import (
    BUCKETS,
    CAUSE_COLOURS,
    LEVELS,
    STYLE,
    Period,
    PeriodReport,
    RunShare,
    cause_name,
    gather,
    hours,
    percent,
    times,
)
from goodput.formulas.shape import Shape
from goodput.ledger import Ledger
from goodput.log.median import median
from goodput.timeline import DAY_S
from store.html_page import page, section
from store.plural import many
from store.runs.losses import LossGroup, LossKey, grouped
from store.visible_text import html_text
from wire.money.price import GpuHourPrice

MOST_NODES, MOST_CODES = 15, 12


def report_html(
    connection: sa.Connection,
    ledgers: Sequence[Ledger],
    window: tuple[datetime, datetime],
    shapes: Mapping[str, Shape],
    price: GpuHourPrice | None = None,
) -> str:
    """The page of a window of whole days; `shapes` of runs' models give their MFU, `price` what GPU-hours cost."""
    report = replace(gather(connection, ledgers, window, shapes), price=price)
    sections = [
        _head(report),
        _levels(report),
        _days(report),
        _runs(report),
        _causes(report),
        _nodes(report),
        _timeline(report),
        _saves(report),
        _words(),
    ]
    return page("Foreshock: where the GPU-hours went", sections, STYLE)


def _table(header: Sequence[str], rows: Iterable[Sequence[str]], text: Sequence[int] = ()) -> str:
    """A table of cells that are HTML already; the columns in `text` are words, the others figures."""
    mark = ['class="text"' if place in text else "" for place in range(len(header))]
    head = "".join(f"<th {kind}>{name}</th>" for name, kind in zip(header, mark, strict=True))
    body = "\n".join(
        "<tr>" + "".join(f"<td {kind}>{cell}</td>" for cell, kind in zip(row, mark, strict=True)) + "</tr>"
        for row in rows
    )
    return f"<table><tr>{head}</tr>\n{body}</table>\n"


def _head(report: PeriodReport) -> str:
    now = report.now
    doubts = "".join(f'<p class="doubt">{html_text(doubt)}</p>' for doubt in now.account["doubts"])
    return (
        f"<h1>Where the GPU-hours went</h1><p>{_span(now)}; compared with {_span(report.before)}</p>"
        f'<p class="verdict">{html_text(verdict(report))}</p>{doubts}'
    )


def _span(period: Period) -> str:
    return f"{period.since:%d %B %Y} to {period.until:%d %B %Y %H:%M} UTC"


def verdict(report: PeriodReport) -> str:
    """Two or three sentences that an owner may take away."""
    account, before = report.now.account, report.before.account
    reported, was = account["productive_of_existing"], before["productive_of_existing"]
    if reported is not None:
        said = f"{percent(reported)} of the GPU-hours that existed became training that counts"
    else:
        reported, was = account["runtime_goodput"], before["runtime_goodput"]
        said = f"{percent(reported)} of the GPU-hours that jobs held became training that counts"
    said += "" if reported is None or was is None else f", against {percent(was)} in the time before"
    lost, groups = report.lost(report.now), grouped(report.now.losses, "cause")

    def worth(group: LossGroup) -> str:
        return report.money(report.cost(group))

    if not groups:
        return f"{said}. No run was interrupted."
    worst = max(groups, key=report.cost)
    share = (
        f", {percent(report.cost(worst) / lost)} of it put down to {cause_name(worst.key[0] or 'unknown')}"
        if lost
        else ""
    )
    named = [group for group in grouped(report.now.losses, "node") if None not in group.key]
    node = max(named, key=report.cost, default=None)
    tail = (
        ""
        if node is None
        else f" The costliest culprit was {node.key[0]}: {hours(report.cost(node))} {report.unit}{worth(node)}."
    )
    stops = times(len(report.now.losses), "interruption")
    return f"{said}. {stops} cost {hours(lost)} {report.unit}{report.money(lost)}{share}.{tail}"


def _levels(report: PeriodReport) -> str:
    now, before = report.now.account, report.before.account
    whole, earlier = (account["gpu_hours"]["existing"] for account in (now, before))
    rows = []
    for name, words in LEVELS.items():
        amount, was = now["gpu_hours"][name], before["gpu_hours"][name]
        share, had = (a / w if a is not None and w else None for a, w in ((amount, whole), (was, earlier)))
        good = -1 if name in ("out_planned", "out_unplanned", "idle") else 1
        indent = "&emsp;less " if good < 0 else ""
        bar = plots.plain_bar(
            amount or 0.0, whole or now["gpu_hours"]["allocated"] or 0.0, "#8d949c" if good < 0 else "#3a9d74"
        )
        moved = "-" if name == "existing" else plots.change(share, had, good)
        cost = hours(amount) + report.money(amount, always=True)
        rows.append([f"{indent}{html_text(words)}", bar, cost, percent(share), moved])
    said = (
        "From the GPU-hours that existed down to those that became training that counts. Each step down is a different "
        "person's to climb: out of service the hardware team's, no job the scheduler's, the rest the training team's."
    )
    header = ["", "", "GPU-hours", "of what existed", "against before"]
    return section("What there was and what became of it", said, _table(header, rows), _ratios(now, before))


def _ratios(now: Mapping[str, Any], before: Mapping[str, Any]) -> str:
    """Google's factors and Meta's ratio, now and before."""
    names = {
        "scheduling_goodput": "Scheduling goodput (Google): held by jobs, of what existed",
        "runtime_goodput": "Runtime goodput (Google): training that counts, of what jobs held",
        "program_goodput": "Program goodput: the model's arithmetic, of the GPUs' peak (MFU)",
        "ml_productivity_goodput": "ML productivity goodput (Google): the three multiplied",
    }
    rows = [[html_text(words), percent(now[name]), percent(before[name])] for name, words in names.items()]
    rows.append(["Effective training time ratio (Meta)", _ettr(now["ettr"]), _ettr(before["ettr"])])
    said = ""
    if now["program_goodput"] is None:
        said = "<p>Program goodput needs the shape of the runs' models: give it with --shape.</p>"
    elif now["program_covers"] < 0.995:
        said = f"<p>Program goodput is known for {percent(now['program_covers'])} of the training that counts.</p>"
    return _table(["", "now", "before"], rows) + said


def _ettr(reported: Mapping[str, float] | None) -> str:
    if reported is None:
        return "-"
    least, most = percent(reported["least"]), percent(reported["most"])
    return least if least == most else f"{least} to {most}"


def _days(report: PeriodReport) -> str:
    said = "Each bar is a day: green is training that counts, the rest is what took the other hours. Point at a part."
    return section("Day by day", said, plots.by_day(report))


def _runs(report: PeriodReport) -> str:
    if not report.runs:
        return section("Run by run", "No run did anything in this time.")
    shown = report.runs[: plots.MOST_RUNS]
    rows = [_run_row(share) for share in shown]
    more = len(report.runs) - len(shown)
    said = "The largest runs, each bar its whole time in the period." + (
        f" {many(more, 'smaller run is', 'smaller runs are')} left out." if more else ""
    )
    held = {bucket for share in shown for bucket in share.buckets}
    table = _table(["run", "", "GPU-hours", "useful", "largest loss"], rows, (4,))
    return section("Run by run", said, table, plots.bucket_keys(held))


def _run_row(share: RunShare) -> list[str]:
    losses = {bucket: amount for bucket, amount in share.buckets.items() if bucket != "productive" and amount > 0}
    worst = max(losses, key=lambda bucket: losses[bucket], default=None)
    named = "-" if worst is None else f"{BUCKETS.get(worst, (worst,))[0].lower()}, {hours(losses[worst])}"
    useful = share.buckets.get("productive", 0.0) / share.whole if share.whole else None
    amount = hours(share.whole) if share.sized else f"{hours(share.whole)} h, GPUs not known"
    return [html_text(share.run), plots.stacked(share.buckets, share.whole), amount, percent(useful), html_text(named)]


def _causes(report: PeriodReport) -> str:
    if not report.now.losses:
        return section("What the interruptions are put down to", "No run was interrupted.")
    now_days, before_days = (
        max((p.until - p.since).total_seconds() / DAY_S, 1e-9) for p in (report.now, report.before)
    )
    earlier = {group.key: report.cost(group) / before_days for group in grouped(report.before.losses, "cause")}
    causes = _pareto(
        report, "cause", lambda group: [hours(report.cost(group) / now_days), hours(earlier.get(group.key, 0.0))]
    )
    codes = _pareto(report, "code", lambda group: [f"{group.interruptions:,}"])
    said = (
        f"What interruptions cost in {report.unit}: the work that was lost, noticing, waiting, starting and loading. "
        "What nobody can explain stands by itself: the parts sum to all that was lost."
    )
    left = _table(["cause", "", report.unit, "share", "a day", "a day before"], causes)
    right = _table(["what was seen", "", report.unit, "share", "stops"], codes)
    return section("What the interruptions are put down to", said, left, right)


def _pareto(report: PeriodReport, by: LossKey, more: Any) -> list[list[str]]:
    """Rows with bars, the costliest first; what is beyond the most is one row."""
    groups = sorted(grouped(report.now.losses, by), key=lambda group: -report.cost(group))
    lost = sum(report.cost(group) for group in groups)
    most = max((report.cost(group) for group in groups), default=0.0)
    rows = []
    for group in groups[:MOST_CODES]:
        cost = report.cost(group)
        colour = CAUSE_COLOURS.get(group.key[0] or "unknown", "#d6403b") if by == "cause" else "#d6403b"
        bar = plots.plain_bar(cost, most, "#5c6470" if group.unexplained else colour)
        rows.append(
            [
                html_text(_name(group, by)),
                bar,
                hours(cost) + report.money(cost),
                percent(cost / lost if lost else None),
                *more(group),
            ]
        )
    rest = groups[MOST_CODES:]
    if rest:
        cost = sum(report.cost(group) for group in rest)
        blank = ["-"] * (len(rows[0]) - 4)
        rows.append([f"{many(len(rest), 'other')}", "", hours(cost), percent(cost / lost if lost else None), *blank])
    return rows


def _name(group: LossGroup, by: LossKey) -> str:
    if by == "cause" and not group.unexplained:
        return cause_name(group.key[0] or "unknown")
    return name_of(group, by)


def _nodes(report: PeriodReport) -> str:
    named = [group for group in grouped(report.now.losses, "node") if None not in group.key]
    if not named:
        return ""
    named.sort(key=lambda group: -report.cost(group))
    rows = []
    for group in named[:MOST_NODES]:
        own = [loss for loss in report.now.losses if loss.node == group.key[0]]
        before = sum(loss.node == group.key[0] for loss in report.before.losses)
        codes = [code.key[0] or "-" for code in grouped(own, "code")]
        cells = [group.key[0] or "-", ", ".join(codes[:3]), own[0].leaf or "-", own[0].driver or "-"]
        figures = [
            hours(report.cost(group)) + report.money(report.cost(group)),
            f"{group.interruptions:,}",
            f"{before:,}",
        ]
        rows.append([html_text(cells[0]), *figures, *(html_text(cell) for cell in cells[1:])])
    said = "What the interruptions that each node or switch caused have cost. Several stops in a row: have it repaired."
    header = ["node", report.unit, "stops", "stops before", "what was seen", "leaf", "driver"]
    return section("The costliest nodes", said, _table(header, rows, (4, 5, 6)))


def _timeline(report: PeriodReport) -> str:
    if not report.now.losses:
        return ""
    said = "Each dot is one interruption, larger where it cost more. Dots of several runs at once share something."
    if len(report.now.losses) > plots.MOST_DOTS:
        said += f" The first {plots.MOST_DOTS:,} are drawn."
    return section("When runs were interrupted", said, plots.interruptions(report))


def _saves(report: PeriodReport) -> str:
    if not report.saves:
        return section("Checkpoints", "No log tells of a finished save in this time.")
    by_run: dict[str, list[float]] = {}
    for save in report.saves:
        by_run.setdefault(save.run, []).append(save.stall_s)
    rows = [
        [
            html_text(run),
            f"{len(stalls):,}",
            f"{median(stalls) or 0:.1f}",
            f"{max(stalls):.1f}",
            hours(sum(stalls) / 3600),
        ]
        for run, stalls in sorted(by_run.items(), key=lambda item: -sum(item[1]))[: plots.MOST_RUNS]
    ]
    said = "How long training stood still for each save. A cloud that rises: the storage slows down."
    header = ["run", "saves", "median, s", "longest, s", "hours stood still"]
    return section(
        "Checkpoints", said, plots.saves(report.saves, report.now.since, report.now.until), _table(header, rows)
    )


def _words() -> str:
    terms = "".join(f"<dt>{html_text(name)}</dt><dd>{html_text(meaning)}</dd>" for name, meaning, _ in BUCKETS.values())
    said = (
        "Google's ML productivity goodput is scheduling x runtime x program goodput (arXiv 2502.06982). Meta's "
        "effective training time ratio holds against a run only waiting, noticing, starting, loading and work done "
        "twice (arXiv 2410.21680); where a log leaves time open it is a range."
    )
    return section("What the words mean", said, f"<dl>{terms}</dl>")

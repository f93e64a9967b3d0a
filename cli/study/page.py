"""The page on real data, `docs/real.md`: every figure of it comes from one run of `foreshock study`."""

import statistics
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from cli.study.backtests import COUNT_365, SETS, BacktestSet
from cli.study.scoreboard import poisson_interval
from cli.study.timelines import QuietCount, TicketTimeline, Timelines
from store.plural import many

LIMITATIONS = (
    ("Was the node drained already when we spoke?", "The scheduler's node states of these days."),
    ("Is an Xid new, or the gauge's last one from before?", "The kernel log. The gauge is sticky: a change counts."),
    ("Was a reboot planned?", "The maintenance calendar, or who ordered the reboot."),
    ("At which hour did people learn of the fault?", "Tickets with a time: these bear a day, and 00:00 is taken."),
    ("How often are we wrong on healthy nodes?", "Telemetry of nodes that did not fail: no tape is of one."),
    ("Is a five-node result true of other nodes?", "More nodes. Tickets of one node are not independent."),
    ("What did a loss cost?", "The jobs of these nodes: the tapes have none."),
    ("Would a score have come before the first sign?", "A year of telemetry of a fleet, with its outages."),
)  # fmt: skip


def real_page(
    command: str, made: str, lines: Timelines | None, board: Sequence[str], reports: Mapping[str, Any]
) -> str:
    """The whole page, Markdown; what a set lacks is said in its place."""
    said = [
        "# Real clusters",
        "",
        f"`{command}` wrote this page on {made}. One run makes every figure of it; nobody edits it.",
        "",
        *gwdg_page(lines),
        *board,
        "",
    ]
    for name, one in SETS.items():
        said += backtest_page(one, reports.get(name, "not here, or not asked for in this run"))
    said += ["## Limitations", "", "| open question | what would settle it |", "|---|---|"]
    said += [f"| {question} | {answer} |" for question, answer in LIMITATIONS]
    return "\n".join(said) + "\n"


def gwdg_page(lines: Timelines | None) -> list[str]:
    """The tapes of GPU nodes that failed."""
    title = ["## GWDG: real nodes of four A100 that failed", ""]
    if lines is None:
        return [*title, "Skipped: not here, or not asked for in this run.", ""]
    skipped = [f"- Skipped: {why}" for why in lines.skipped]
    return [
        *title,
        "GWDG GPU Node Telemetry, Bidollahkhani, Nordsiek, Kunkel, doi 10.5281/zenodo.19052367, CC-BY-4.0.",
        f"{many(len(lines.lines), 'tape')} of {many(lines.nodes, 'node')}, {lines.node_days:.1f} node-days at"
        f" 10 minutes; {many(len(lines.skipped), 'tape')} skipped.",
        *skipped,
        "",
        "Each tape goes the way of any archive. The shipped policy is asked at each hour and at each fatal fault,",
        "without budgets, with what was known by then. There is no score: no model can learn from five nodes.",
        "Of a ticket counts what came after the day of the ticket before it. A dash: it did not come in the tape.",
        "First sign: a warning, or lost telemetry; not a boot alone: nobody knows who ordered it.",
        "GPU gone (the first sample with fewer GPUs) and reboot: the first from the first event on.",
        "Times are UTC, all of 2025.",
        "",
        "| tape | first sign | first event | incident | hint | GPU gone | reboot | ticket |",
        "|---|---|---|---|---|---|---|---|",
        *(_times_row(one) for one in lines.lines),
        "",
        "### Hours from our hint",
        "",
        "A minus: the hint came later. A ticket's day begins at 00:00, so that a hint on that day is later.",
        "",
        "| tape | first sign to hint | hint to ticket's day | hint to its end | hint to GPU gone | hint to reboot |",
        "|---|---|---|---|---|---|",
        *(_hours_row(one) for one in lines.lines),
        "",
        *_summary(lines.lines),
        "",
        "### What a site would have been told",
        "",
        *_told(lines),
        "### False alarms on quiet days",
        "",
        "A quiet day is a whole day of a tape with no ticket of its node within so many days, before or after.",
        "The days before our own first sign would be quiet by their choice: they are not used.",
        "An alarm there may still be right: the Xid 79 of 2025-02-12 came five days before its ticket,",
        "that of 2025-09-08 four.",
        "Intervals are Garwood's, 95 %, of counts.",
        "",
        "| no ticket within | quiet node-days | holds | per node-day | incidents of an error or worse | per node-day |",
        "|---|---|---|---|---|---|",
        *(_quiet_row(one) for one in lines.quiet),
        "",
    ]


def clock(moment: datetime | None) -> str:
    """A moment to the minute; a dash where there is none."""
    return "-" if moment is None else moment.strftime("%m-%d %H:%M")


def _times_row(one: TicketTimeline) -> str:
    cells = [one.first_sign, one.first_event, one.incident, one.hint, one.gpu_gone, one.reboot]
    return f"| {one.tape} | {' | '.join(map(clock, cells))} | {one.ticket:%m-%d} |"


def lead_hours(one: TicketTimeline) -> tuple[float | None, ...]:
    """Hours: sign to hint, hint to the ticket's day, to its end, to the loss of a GPU, to the reboot."""
    ticket = one.hours(one.hint, one.ticket)
    end = None if ticket is None else ticket + 24.0
    return (
        one.hours(one.first_sign, one.hint),
        ticket,
        end,
        one.hours(one.hint, one.gpu_gone),
        one.hours(one.hint, one.reboot),
    )


def _hours_row(one: TicketTimeline) -> str:
    cells = ("-" if hours is None else f"{hours:.1f}" for hours in lead_hours(one))
    return f"| {one.tape} | {' | '.join(cells)} |"


def _summary(lines: Sequence[TicketTimeline]) -> list[str]:
    hinted = [one for one in lines if one.hint is not None]
    said = [f"{len(hinted)} of {many(len(lines), 'ticket')} had a hint of ours in their tape before the next ticket."]
    names = (
        "first sign to hint",
        "hint to ticket's day",
        "hint to the day's end",
        "hint to GPU gone",
        "hint to reboot",
    )
    for place, name in enumerate(names):
        hours = [found for one in hinted if (found := lead_hours(one)[place]) is not None]
        if hours:
            middle = statistics.median(hours)
            said.append(f"- {name}: median {middle:.1f} h, {min(hours):.1f} to {max(hours):.1f}, n = {len(hours)}")
    people = [found for one in lines if (found := one.hours(one.first_xid_79, one.reboot)) is not None]
    if people:
        said += [
            f"- people: from the first Xid 79 to the next reboot median {statistics.median(people):.1f} h, "
            f"{min(people):.1f} to {max(people):.1f}, n = {len(people)}, counted on these tapes."
        ]
    return said


def _told(lines: Timelines) -> list[str]:
    said = []
    if lines.together:
        said += ["Of several nodes at once, since the tapes are loaded together:", ""]
        said += [f"- {one.time:%Y-%m-%d %H:%M} {one.severity}: {one.words}" for one in lines.together]
        said.append("")
    for tape in lines.lines:
        said += [f"**{tape.tape}** ({tape.node})", ""]
        said += [f"- {one.time:%m-%d %H:%M} {one.severity}: {one.words}" for one in tape.told] or ["- nothing"]
        said.append("")
    return said


def _quiet_row(one: QuietCount) -> str:
    cells = [f"{one.days_from_ticket} days", f"{one.node_days:.0f}"]
    for count in (one.holds, one.errors):
        low, high = poisson_interval(count)
        rates = (count, low, high)
        cells.append(str(count))
        of = one.node_days
        cells.append("{:.3f} ({:.3f} to {:.3f})".format(*(rate / of for rate in rates)) if of else "-")
    return f"| {' | '.join(cells)} |"


def backtest_page(one: BacktestSet, report: Mapping[str, Any] | str) -> list[str]:
    """One set: the model beside what needs no learning, whether it is better, and what it does not show."""
    said = [f"## {one.title}", "", one.source, ""]
    if isinstance(report, str):
        return [*said, f"No figure: {report}.", ""]
    said += [
        f"{report['horizon_h']} h ahead; {many(report['nodes'], 'node')}, {many(report['rows'], 'row')},"
        f" {report['positives']} of them followed by an outage ({many(report['outages'], 'outage')});"
        f" {many(len(report['folds']), 'fold')} in order of time, purge {report['purge_h']} h."
        " Intervals: 95 %, by node.",
        "",
        "| ranking | average precision | ROC-AUC |",
        "|---|---|---|",
    ]
    for name, found in {"the model": report, **report["baselines"]}.items():
        sure = found["intervals"] or {}
        cells = (_sure(found[key], sure.get(key)) for key in ("average_precision", "roc_auc"))
        said.append(f"| {name.replace('_', ' ')} | {' | '.join(cells)} |")
    return [
        *said,
        "",
        f"**{verdict(report)}**",
        "",
        "What this does not show:",
        "",
        *(f"- {it}" for it in one.unshown),
        "",
    ]


def verdict(report: Mapping[str, Any]) -> str:
    """Whether the model is better than counting the outages of 365 days, in one sentence."""
    over = report["over_365d"]
    gain, sure = over["gain"]["average_precision"], (over["intervals"] or {}).get("average_precision")
    name = COUNT_365.replace("_", " ")
    if gain is None or sure is None:
        return f"There are too few outages to hold the model against {name}."
    area, roc = over["gain"]["roc_auc"], over["intervals"]["roc_auc"]
    figures = f"average precision {gain:+.4f} ({sure[0]:+.4f} to {sure[1]:+.4f})"
    figures += f", ROC-AUC {area:+.4f} ({roc[0]:+.4f} to {roc[1]:+.4f})"
    if sure[0] > 0:
        return f"By average precision the model is better than {name}: {figures}."
    if sure[1] < 0:
        return f"By average precision the model is worse than {name}: {figures}."
    return f"The model is not shown to be better than {name}: {figures}."


def _sure(value: float | None, interval: Sequence[float] | None) -> str:
    if value is None:
        return "-"
    return f"{value:.4f}" if interval is None else f"{value:.4f} ({interval[0]:.4f} to {interval[1]:.4f})"

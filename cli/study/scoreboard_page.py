"""The scoreboard of detectors as a section of a page, in Markdown.

    scoreboard_page(make_scoreboard(Path("fixtures/real/gwdg"), Path("lines.jsonl")))      # lines

By itself, from the sources: `python -m cli.study.scoreboard_page fixtures/real/gwdg [--lines FILE]`
"""

import argparse
import math
import statistics
from collections.abc import Sequence
from pathlib import Path

from cli.console.output import print_text
from cli.study.scoreboard import Scoreboard, TapeScore, make_scoreboard
from schedulers.lifecycle.hindsight import wilson
from store.plural import many


def scoreboard_page(board: Scoreboard) -> list[str]:
    """The section of the page on real data, Markdown."""
    first = board.tapes[0]
    said = [
        "## A scoreboard of detectors",
        "",
        "Tapes: GWDG GPU Node Telemetry, doi 10.5281/zenodo.19052367, CC-BY-4.0 (`fixtures/real/gwdg`).",
        "",
        "The rules of others are **our reading of what they publish**, written as data (`cli/study/detectors/`).",
        "They are not the programs, which read more than a tape bears.",
        "A tape has no kernel log: an Xid is a change of DCGM's gauge.",
        "",
        f"{many(first.tickets, 'ticket')} of {many(board.nodes, 'node')}, {board.node_days:.0f} node-days at "
        "10 minutes.",
        f"{first.quiet_node_days:.0f} of these are quiet: over a week before a ticket, or over a day after its day.",
        "Right is a hold that meets a ticket's week, its day or the day after.",
        "Found is a ticket with a hold before its day is over.",
        "Lead is in hours from the first hold: the median and the range. A ticket bears a day alone: 00:00 is taken.",
        "Intervals are 95 %. With five nodes they are too narrow, for one node's tickets are not independent.",
        "",
        "| detector | holds | precision | tickets found | lead to the ticket | lead to GPUs gone | "
        "wrong holds per 1,000 quiet node-days |",
        "|---|---|---|---|---|---|---|",
        *(_tape_row(score) for score in board.tapes),
        "",
        *_tickets_page(board),
        *_lines_page(board),
        "### Where the rules come from",
        "",
    ]
    for detector in board.detectors:
        said.append(f"- **{detector.name}**: {detector.title}. {detector.reading}")
        said += [f"  <{source.url}>, read on {source.read}." for source in detector.sources]
        missing = next(score.unjudged for score in board.tapes if score.name == detector.name)
        if missing:
            said.append(f"  Not judged, for no tape has the metric: {'; '.join(missing)}.")
    return [*said, "", *_unshown(board)]


def _tickets_page(board: Scoreboard) -> list[str]:
    """Each ticket that anybody found, with each detector's lead."""
    leads = {(score.name, lead.ticket.tape): lead for score in board.tapes for lead in score.leads}
    found = {lead.ticket.tape: lead.ticket for lead in leads.values()}
    names = [score.name for score in board.tapes if score.leads]
    rows = [
        f"| {ticket.node[:11]} | {ticket.day:%Y-%m-%d} | "
        + " | ".join(f"{leads[name, tape].to_ticket_h:.0f}" if (name, tape) in leads else "-" for name in names)
        + " |"
        for tape, ticket in sorted(found.items(), key=lambda item: (item[1].day, item[1].node))
    ]
    left = board.tapes[0].tickets - len(found)
    return [
        f"Hours from the first hold to each ticket's day, 00:00; {left} of the tickets nobody found:",
        "",
        f"| node | ticket | {' | '.join(names)} |",
        f"|---|---|{'---|' * len(names)}",
        *rows,
        "",
    ]


def _tape_row(score: TapeScore) -> str:
    held, found = len(score.holds), len(score.leads)
    rate, low, high = score.false_per_1000
    cells = (
        f"**{score.name}** {score.title}",
        str(held),
        _share(score.right, held),
        _share(found, score.tickets),
        _hours([lead.to_ticket_h for lead in score.leads]),
        _hours([lead.to_loss_h for lead in score.leads if lead.to_loss_h is not None]),
        f"{rate:.0f} ({low:.0f} to {high:.0f})",
    )
    return f"| {' | '.join(cells)} |"


def _share(count: int, of: int) -> str:
    if not of:
        return "-"
    low, high = wilson(count, of)
    return f"{count}/{of} = {count / of:.2f} ({low:.2f} to {high:.2f})"


def _hours(hours: Sequence[float]) -> str:
    if not hours:
        return "-"
    return f"{statistics.median(hours):.0f} ({math.floor(min(hours))} to {math.ceil(max(hours))}), n = {len(hours)}"


def _lines_page(board: Scoreboard) -> list[str]:
    if not board.lines:
        return ["The kernel lines are not here: nothing is said of them.", ""]
    rows = [
        f"| **{one.name}** | {_share(one.right, one.right + one.wrong)} | {_share(one.right, one.right + one.missed)} "
        f"| {one.none_held}/{board.lines_none} | {_codes(one.wrong_codes)} | {_codes(one.missed_codes)} |"
        for one in board.lines
    ]
    return [
        f"{many(board.lines_read, 'kernel line')} of Xids, each judged alone, by the first step of "
        "NVIDIA's own catalogue.",
        "Reset the GPU, restart the node, check power and cables: to be held. Restart the application, ignore: not.",
        f"Beside them {many(board.lines_none, 'line that is', 'lines that are')} no fault.",
        "Nobody knows what came after these lines.",
        "Where a detector's rules come from that catalogue, it agrees with itself.",
        "",
        "| detector | precision | recall | held that are no fault | Xids held wrongly | Xids missed |",
        "|---|---|---|---|---|---|",
        *rows,
        "",
    ]


def _codes(codes: Sequence[int]) -> str:
    return ", ".join(map(str, codes)) or "-"


def _unshown(board: Scoreboard) -> list[str]:
    quiet = board.tapes[0].quiet_node_days
    return [
        "What this does not show:",
        "",
        "- How often a detector is wrong on healthy nodes: every tape is of a node that failed, and "
        f"{quiet:.0f} quiet node-days",
        "  bound it hardly at all: a detector that speaks at random would lose no precision here either.",
        "  Telemetry of healthy nodes would settle it.",
        "- Whether a node was drained already when a detector spoke. The scheduler's history would settle it.",
        "- What the programs themselves would have said. They would have to run on the nodes.",
    ]


def _main() -> None:
    asked = argparse.ArgumentParser(description="Print the scoreboard of detectors.")
    asked.add_argument("folder", type=Path, help="with facts.json and tapes/")
    asked.add_argument("--lines", type=Path, help="kernel lines with what they are: lines.jsonl")
    given = asked.parse_args()
    for line in scoreboard_page(make_scoreboard(given.folder, given.lines)):
        print_text(line)


if __name__ == "__main__":
    _main()

"""A scoreboard of detectors: the same real tapes and lines judged by ours and by rules after what others publish.

    board = make_scoreboard(Path("fixtures/real/gwdg"), lines=Path(".../lines.jsonl"))
    scoreboard_page(board)      # Markdown, for `docs/real.md`: `cli/study/scoreboard_page.py`

Of the tapes: a hold is right that meets the week before a ticket, its day, or the day after; wrong where it meets none.
A ticket is found by a hold that meets the week before it or its day; where the node had an earlier ticket, a hold that
began before that was over counts for it, unless it lasts until this one. There are eleven tickets, of five nodes: the
intervals say so, and they are too narrow, for tickets of one node are not independent.

Of the lines nobody knows what came after: they are held against the first step that NVIDIA's own catalogue names.
"""

import csv
import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from cli.study.detector_rules import FOLDER, Detector, DetectorHold, holds_of, read_detectors, unjudged
from cli.study.our_holds import our_holds
from cli.study.tapes import NodeTape, Ticket, read_tapes, read_tickets

WEEK, DAY = timedelta(days=7), timedelta(days=1)
OURS, OUR_ERRORS = "foreshock", "foreshock-errors"
# First steps of NVIDIA's catalogue that take the GPU or the node from its jobs, and those that do not. The others
# (contact support, a workflow) decide nothing by themselves.
TAKING = frozenset({"RESET_GPU", "RESTART_BM", "RESTART_VM", "WORKFLOW_XID_48", "CHECK_MECHANICALS"})
LEAVING = frozenset({"RESTART_APP", "IGNORE"})
_HOUR = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class Lead:
    """Hours from the first hold to a ticket's day, and to when its GPUs were gone; None where that is not known."""

    ticket: Ticket
    to_ticket_h: float
    to_loss_h: float | None


@dataclass(frozen=True, slots=True)
class TapeScore:
    """One detector on the tapes."""

    name: str
    title: str
    holds: tuple[DetectorHold, ...]
    right: int
    tickets: int
    leads: tuple[Lead, ...]
    quiet_node_days: float
    unjudged: tuple[str, ...] = ()

    @property
    def wrong(self) -> int:
        """Holds that met no ticket."""
        return len(self.holds) - self.right

    @property
    def false_per_1000(self) -> tuple[float, float, float]:
        """Wrong holds per 1,000 quiet node-days, with the exact 95 % interval of a Poisson count."""
        low, high = poisson_interval(self.wrong)
        scale = 1000.0 / self.quiet_node_days
        return self.wrong * scale, low * scale, high * scale


@dataclass(frozen=True, slots=True)
class LineScore:
    """One detector on single lines: held and called for, held and not, and so on, by NVIDIA's first step."""

    name: str
    right: int
    wrong: int
    missed: int
    left: int
    none_held: int  # of lines that are no fault at all
    missed_codes: tuple[int, ...] = ()
    wrong_codes: tuple[int, ...] = ()

    @property
    def precision(self) -> float | None:
        """Of the held lines; None where none was."""
        return self.right / (self.right + self.wrong) if self.right + self.wrong else None

    @property
    def recall(self) -> float | None:
        """Of the lines whose first step takes the GPU or the node."""
        return self.right / (self.right + self.missed) if self.right + self.missed else None


@dataclass(frozen=True, slots=True)
class Scoreboard:
    """Every detector on the tapes, and on the lines where there are any."""

    detectors: tuple[Detector, ...]
    tapes: tuple[TapeScore, ...]
    nodes: int
    node_days: float
    lines: tuple[LineScore, ...] = ()
    lines_read: int = 0
    lines_none: int = 0


def make_scoreboard(folder: Path, lines: Path | None = None) -> Scoreboard:
    """Judge every detector on the tapes of a folder, and on a file of lines where it is there."""
    tapes, tickets, known = read_tapes(folder), read_tickets(folder), read_detectors(FOLDER)
    ours = our_holds(folder, tapes)
    scores = [
        judge_tapes(OURS, "Foreshock: holds by the policy's defaults", ours.holds, tapes, tickets),
        judge_tapes(OUR_ERRORS, "Foreshock: told as an error, held or not", ours.errors, tapes, tickets),
    ]
    for detector in known.values():
        holds = [hold for tape in tapes for hold in holds_of(detector, tape)]
        unknown = tuple(unjudged(detector, tapes))
        scores.append(judge_tapes(detector.name, detector.title, holds, tapes, tickets, unknown))
    found, read, none = judge_lines(lines, list(known.values())) if lines is not None and lines.exists() else ((), 0, 0)
    nodes = len({tape.node for tape in tapes})
    return Scoreboard(
        tuple(known.values()), tuple(scores), nodes, sum(tape.days for tape in tapes), tuple(found), read, none
    )


def judge_tapes(
    name: str,
    title: str,
    holds: Sequence[DetectorHold],
    tapes: Sequence[NodeTape],
    tickets: Sequence[Ticket],
    unknown: tuple[str, ...] = (),
) -> TapeScore:
    """Hold the holds of a detector against the tickets."""
    right = sum(any(_meets(hold, ticket.day - WEEK, ticket.over + DAY, ticket) for ticket in tickets) for hold in holds)
    leads = [lead for ticket in tickets if (lead := _lead(ticket, tickets, holds)) is not None]
    quiet = sum(_quiet_days(tape, tickets) for tape in tapes)
    return TapeScore(name, title, tuple(holds), right, len(tickets), tuple(leads), quiet, unknown)


def _meets(hold: DetectorHold, since: Any, until: Any, ticket: Ticket) -> bool:
    return hold.node == ticket.node and hold.start < until and hold.end > since


def _lead(ticket: Ticket, tickets: Sequence[Ticket], holds: Sequence[DetectorHold]) -> Lead | None:
    before = [other.over for other in tickets if other.node == ticket.node and other.over <= ticket.day]
    since = max([ticket.day - WEEK, *before])
    found = [
        hold
        for hold in holds
        if _meets(hold, since, ticket.over, ticket) and (hold.start >= since or hold.end > ticket.day or not before)
    ]
    if not found:
        return None
    start = min(hold.start for hold in found)
    lost = None if ticket.gpu_lost is None or ticket.gpu_lost < start else (ticket.gpu_lost - start) / _HOUR
    return Lead(ticket, (ticket.day - start) / _HOUR, lost)


def _quiet_days(tape: NodeTape, tickets: Sequence[Ticket]) -> float:
    """Of a tape, the days on which a hold would be wrong."""
    begin, end = tape.moment(0), tape.moment(len(tape.times) - 1)
    quiet, at = timedelta(), begin
    for ticket in sorted((one for one in tickets if one.node == tape.node), key=lambda one: one.day):
        quiet += max(timedelta(), min(end, ticket.day - WEEK) - at)
        at = max(at, min(end, ticket.over + DAY))
    return (quiet + max(timedelta(), end - at)) / DAY


def poisson_interval(count: int) -> tuple[float, float]:
    """The exact 95 % interval (Garwood's) of the mean of which so many were counted."""
    from scipy.stats import chi2  # type: ignore[import-untyped]

    low = float(chi2.ppf(0.025, 2 * count)) / 2 if count else 0.0
    return low, float(chi2.ppf(0.975, 2 * (count + 1))) / 2


# The lines.


def first_steps() -> dict[int, str]:
    """The immediate action of NVIDIA's catalogue, by Xid."""
    text = (FOLDER / "nvidia_first_steps.csv").read_text(encoding="utf-8")
    rows = csv.DictReader(line for line in text.splitlines() if not line.startswith("#"))
    return {int(row["code"]): row["action"] for row in rows}


def judge_lines(path: Path, detectors: Sequence[Detector]) -> tuple[list[LineScore], int, int]:
    """Each detector on the lines of Xids with a first step, and on those that are no fault; and how many these are."""
    steps = first_steps()
    judged: list[tuple[str, int | None, bool | None]] = []
    for said in map(json.loads, path.read_text(encoding="utf-8").splitlines()):
        kind, code = said["expect"]["kind"], said["expect"]["code"]
        if kind == "none":
            judged.append((said["line"], None, None))
        elif kind in ("xid", "gpu_lost") and steps.get(code) in TAKING | LEAVING:
            judged.append((said["line"], code, steps[code] in TAKING))
    scores = [_line_score(OURS, judged, [_we_hold(line) for line, _, _ in judged])]
    for detector in (one for one in detectors if any(rule.on == "xid" for rule in one.rules)):
        held = [code is not None and detector.holds_line(code) for _, code, _ in judged]
        scores.append(_line_score(detector.name, judged, held))
    none = sum(code is None for _, code, _ in judged)
    return scores, len(judged) - none, none


def _we_hold(line: str) -> bool:
    """Whether our own parser reads a confirmed fault, which the policy holds."""
    from parsers.formats.kernel import KernelParser
    from parsers.text.parser import Context, parse

    events = parse(KernelParser(Context(year=2026, node="node")), [line])
    return any(event.severity == "fatal" and event.cause == "hardware" for event in events)


def _line_score(name: str, judged: Sequence[tuple[str, int | None, bool | None]], held: Sequence[bool]) -> LineScore:
    found: dict[tuple[bool, bool | None], list[int]] = {}
    for is_held, (_, code, takes) in zip(held, judged, strict=True):
        found.setdefault((is_held, takes), []).append(code or 0)
    right, wrong, missed, left, none = (
        found.get(pair, []) for pair in ((True, True), (True, False), (False, True), (False, False), (True, None))
    )
    return LineScore(
        name,
        right=len(right),
        wrong=len(wrong),
        missed=len(missed),
        left=len(left),
        none_held=len(none),
        missed_codes=tuple(sorted(set(missed))),
        wrong_codes=tuple(sorted(set(wrong))),
    )

"""The scoreboard: how holds are judged by tickets, lines by NVIDIA's first steps, and the whole on the real tapes."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest

from cli.study.detector_rules import DetectorHold, read_detectors
from cli.study.scoreboard import first_steps, judge_lines, judge_tapes, make_scoreboard, poisson_interval
from cli.study.scoreboard_page import scoreboard_page
from cli.study.tapes import NodeTape, Ticket
from store.records.fault_catalog import xid

GWDG = Path(__file__).parents[3] / "fixtures" / "real" / "gwdg"
DAY0 = datetime(2025, 3, 1, tzinfo=UTC)
DAY, HOUR = timedelta(days=1), timedelta(hours=1)


def tape(days: int, node: str = "n") -> NodeTape:
    """A node's tape of so many days from the first of March."""
    times = np.datetime64("2025-03-01T00:00:00") + np.arange(days * 24 + 1) * np.timedelta64(1, "h")
    return NodeTape(node, times, {}, {})


def ticket(day: float, lost: float | None = None, node: str = "n") -> Ticket:
    """A ticket on a day, counted from the first of March."""
    return Ticket("t", node, DAY0 + day * DAY, None if lost is None else DAY0 + lost * DAY)


def hold(start: float, end: float, node: str = "n") -> DetectorHold:
    """A hold from one day to another."""
    return DetectorHold(node, DAY0 + start * DAY, DAY0 + end * DAY)


def test_a_hold_is_right_in_the_week_before_a_ticket_and_wrong_where_there_is_none() -> None:
    """Its day and the day after, too; another node's ticket makes nothing right."""
    tickets = [ticket(20, lost=21.5)]
    score = judge_tapes("d", "t", [hold(2, 3), hold(12, 13.5), hold(21.9, 25), hold(22, 23)], [tape(30)], tickets)
    assert (score.right, score.wrong) == (2, 2)
    other = judge_tapes("d", "t", [hold(18, 19, "m")], [tape(30), tape(30, "m")], tickets)
    assert (other.right, other.leads) == (0, ())
    assert score.quiet_node_days == 13 + 8
    assert other.quiet_node_days == 13 + 8 + 30


def test_the_lead_is_from_the_first_hold_that_is_this_tickets() -> None:
    """To midnight of its day, and to the loss where the hold was before it; an earlier ticket has its own."""
    (lead,) = judge_tapes("d", "t", [hold(17, 18), hold(19, 22)], [tape(30)], [ticket(20, lost=21.5)]).leads
    assert (lead.to_ticket_h, lead.to_loss_h) == (72.0, 108.0)
    (late,) = judge_tapes("d", "t", [hold(20.5, 22)], [tape(30)], [ticket(20, lost=20.25)]).leads
    assert (late.to_ticket_h, late.to_loss_h) == (-12.0, None)
    two = judge_tapes("d", "t", [hold(12, 13), hold(18, 19)], [tape(30)], [ticket(14), ticket(20)])
    assert [lead.to_ticket_h for lead in two.leads] == [48.0, 48.0]
    over = judge_tapes("d", "t", [hold(12, 16), hold(19.5, 21)], [tape(30)], [ticket(14), ticket(20)])
    assert [lead.to_ticket_h for lead in over.leads] == [48.0, 12.0]
    through = judge_tapes("d", "t", [hold(12, 21)], [tape(30)], [ticket(14), ticket(20)])
    assert [lead.to_ticket_h for lead in through.leads] == [48.0, 192.0]
    assert judge_tapes("d", "t", [hold(21.1, 22)], [tape(30)], [ticket(20)]).leads == ()


def test_few_counts_have_a_wide_interval() -> None:
    """Garwood's: nothing seen in eight days bounds little."""
    assert list(poisson_interval(0)) == pytest.approx([0.0, 3.6889], abs=1e-3)
    assert list(poisson_interval(3)) == pytest.approx([0.6187, 8.7673], abs=1e-3)


def test_the_first_steps_are_a_step_for_each_code_of_the_catalogue() -> None:
    """Of facts alone, 1 to 161; and our own catalogue calls nothing fatal that NVIDIA says to ignore."""
    steps = first_steps()
    assert sorted(steps) == list(range(1, 162))
    assert (steps[79], steps[48], steps[43], steps[13]) == ("RESTART_BM", "WORKFLOW_XID_48", "IGNORE", "RESTART_APP")
    fatal = [
        code for code, step in steps.items() if step == "IGNORE" and (known := xid(code)) and known.severity == "fatal"
    ]
    assert fatal == []


LINES = (
    ("NVRM: Xid (PCI:0000:b3:00.0): 79, pid=1, GPU has fallen off the bus.", "xid", 79),
    ("NVRM: Xid (PCI:0000:b3:00): 43, pid=1, Ch 00000010", "xid", 43),
    ("NVRM: Xid (PCI:0000:b3:00): 63, pid=1, Row Remapper: New row", "xid", 63),
    ("NVRM: Xid (PCI:0000:b3:00): 74, pid=1, NVLink: fatal error", "xid", 74),
    ("systemd[1]: Started Session 79 of user root.", "none", None),
)


def test_lines_are_judged_by_the_first_step(tmp_path: Path) -> None:
    """79 is to be held, 43 and 63 are not; what a workflow decides (74) is left out."""
    path = tmp_path / "lines.jsonl"
    said = [{"line": line, "expect": {"kind": kind, "code": code}} for line, kind, code in LINES]
    path.write_text("\n".join(map(json.dumps, said)), encoding="utf-8")
    scores, read, none = judge_lines(path, list(read_detectors().values()))
    by_name = {score.name: score for score in scores}
    assert (read, none) == (3, 1)
    assert set(by_name) == {"foreshock", "fatal-xid", "gpud", "nvsentinel"}  # the others have no rule on a line
    assert (by_name["foreshock"].right, by_name["foreshock"].wrong, by_name["foreshock"].none_held) == (1, 0, 0)
    assert (by_name["gpud"].precision, by_name["gpud"].wrong_codes) == (0.5, (63,))
    assert by_name["nvsentinel"].recall == 1.0


@pytest.mark.integration
def test_the_scoreboard_of_the_real_tapes() -> None:
    """Each detector on each tape, ours through the archive's own way in; the page says what its figures are worth."""
    board = make_scoreboard(GWDG)
    scores = {score.name: score for score in board.tapes}
    assert (board.nodes, scores["foreshock"].tickets) == (5, 11)
    # Nine tickets came after an Xid 79; two nodes went down in a maintenance of the whole rack, without a word.
    assert len(scores["fatal-xid"].leads) == 9
    assert len(scores["foreshock"].leads) >= 9
    assert scores["foreshock"].wrong == 0
    assert len(scores["node-mixin"].holds) == 0
    nodes = {ticket_node for score in board.tapes for ticket_node in {hold.node for hold in score.holds}}
    assert len(nodes) <= 5
    page = "\n".join(scoreboard_page(board))
    assert "our reading of what they publish" in page
    assert "They are not the programs" in page
    assert "The kernel lines are not here" in page
    assert all(source.url in page for detector in board.detectors for source in detector.sources)
    assert "| **foreshock** " in page
    assert "| node | ticket | foreshock | " in page
    assert page.count("| 2025-03-21 | ") >= 3

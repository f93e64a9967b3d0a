"""The report of a period: its figures are the account's, its page stands alone, whatever runs are called."""

import re
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from xml.etree import ElementTree as ET

import pytest
import sqlalchemy as sa
from hand_made_run import START, at
from store_runs import attempt, keep, lines

from goodput.cluster import report_figures as plots
from goodput.cluster.report import report_html, verdict
from goodput.cluster.report_figures import PeriodReport, gather, hours, percent
from goodput.formulas.shape import Shape
from goodput.ledger import Ledger
from goodput.reading.ledgers import read_ledgers
from goodput.timeline import BUCKETS, Segment, to_ms
from store.records.event import Device, Event
from store.runs.losses import Loss, grouped

WEEK = (START, START + timedelta(days=7))
DAY_S = 86_400.0


def xid(seconds: float, node: str, code: int = 79) -> Event:
    """A GPU's end."""
    device = Device("gpu", index=1)
    return Event(at(seconds), node, "kernel", "xid", code=code, severity="fatal", cause="hardware", device=device)


def fleet(engine: sa.Engine, name: str = "a") -> list[Ledger]:
    """A run of two nodes over two days, interrupted twice; another of no known nodes, that nobody can explain."""
    jobs = [
        attempt(name, 0, 3600, "gpu-[1-2]"),
        attempt(name, 4000, DAY_S + 3600, "gpu-[1-2]"),
        attempt(name, DAY_S + 4000, DAY_S + 8000, "gpu-[1-2]", "COMPLETED"),
        attempt("other", 0, 7200, "x[1-2]"),
    ]
    ends = [lines(name, 1000, 2000, 3000), lines(name, 5000, 50_000), lines(name, DAY_S + 5000, DAY_S + 8000)]
    events = [
        *(event for part in ends for event in part),
        *lines("other", 3600),
        xid(3300, "gpu-1"),
        xid(DAY_S + 3300, "gpu-2"),
    ]
    keep(engine, jobs, events)
    with engine.connect() as connection:
        return read_ledgers(connection)


def made(engine: sa.Engine, ledgers: Sequence[Ledger]) -> PeriodReport:
    """What the report is made of."""
    with engine.connect() as connection:
        return gather(connection, ledgers, WEEK, {})


def html(engine: sa.Engine, ledgers: Sequence[Ledger], **shapes: Shape) -> str:
    """The page of the week."""
    with engine.connect() as connection:
        return report_html(connection, ledgers, WEEK, shapes)


def test_the_parts_of_the_page_are_the_account_s(engine: sa.Engine) -> None:
    """Costs by cause sum to what all interruptions cost; days to the runs; the verdict names the largest cause."""
    ledgers = fleet(engine)
    report = made(engine, ledgers)
    assert len(report.now.losses) == 3
    for by in ("cause", "node", "code"):
        groups = grouped(report.now.losses, by)  # type: ignore[arg-type]
        assert sum(report.cost(group) for group in groups) == pytest.approx(report.lost(report.now))
    days = report.now.account["days"]
    assert sum(sum(day["buckets"].values()) for day in days) == pytest.approx(
        sum(share.whole for share in report.runs if share.sized)
    )
    said = verdict(report)
    assert "3 interruptions cost" in said
    assert "put down to hardware" in said
    page = html(engine, ledgers)
    for words in (
        "Where the GPU-hours went",
        "unexplained",
        "xid:79",
        "gpu-1",
        "hours of runs whose GPUs are not known",
    ):
        assert words in page


def test_the_page_stands_alone_and_escapes_every_name(engine: sa.Engine) -> None:
    """No scripts, nothing from elsewhere; a run that is called like a tag is shown as text."""
    page = html(engine, fleet(engine, "<img src=x onerror=alert(1)>&\"'"))
    assert "<img" not in page
    assert "&lt;img src=x onerror=alert(1)&gt;&amp;" in page
    assert not re.search(r"<script|http|<link|url\(|@import", page)
    assert page.count("<svg") == page.count("</svg>") > 0
    for figure in re.findall(r"<svg viewBox.*?</svg>", page, re.DOTALL):
        ET.fromstring(figure)  # noqa: S314  # our own


def test_the_time_before_is_compared_and_a_figure_s_way_is_coloured(engine: sa.Engine) -> None:
    """The first week against the second, where nothing happened."""
    ledgers = fleet(engine)
    with engine.connect() as connection:
        later = gather(connection, ledgers, (WEEK[1], WEEK[1] + timedelta(days=7)), {})
    assert (later.before.since, later.before.until) == WEEK
    assert len(later.before.losses) == 3
    assert later.now.losses == []
    assert "No run was interrupted" in verdict(later)
    assert plots.change(0.9, 0.8, 1) == '<span class="up">+10.0 points</span>'
    assert plots.change(0.9, 0.8, -1) == '<span class="down">+10.0 points</span>'
    assert plots.change(None, 0.8, 1) == "-"


def test_without_anything_in_the_period_it_says_so(engine: sa.Engine) -> None:
    """A week before the runs: no crash, no empty plot."""
    ledgers = fleet(engine)
    with engine.connect() as connection:
        page = report_html(connection, ledgers, (START - timedelta(days=9), START - timedelta(days=2)), {})
    assert "No run did anything in this time." in page
    assert "No run was interrupted." in page
    assert "No log tells of a finished save in this time." in page


def test_a_shape_gives_program_goodput_and_its_lack_is_said(engine: sa.Engine) -> None:
    """Without a known GPU model there is none either."""
    ledgers = fleet(engine)
    assert "Program goodput needs the shape" in html(engine, ledgers)
    assert "Program goodput needs the shape" in html(engine, ledgers, a=Shape(1, 1, 1, 1))


def test_saves_are_those_of_the_period(engine: sa.Engine) -> None:
    """Each with its stall."""
    ledger = replace(fleet(engine)[0], saves=(
        Segment(to_ms(START) + 5000, to_ms(START) + 9000, "checkpoint_save"),
        Segment(to_ms(WEEK[1]) + 5000, to_ms(WEEK[1]) + 9000, "checkpoint_save"),
    ))  # fmt: skip
    report = made(engine, [ledger])
    assert [(save.run, save.stall_s) for save in report.saves] == [("a", 4.0)]
    assert "<td >1</td><td >4.0</td><td >4.0</td>" in html(engine, [ledger])


def test_many_runs_share_the_last_row_and_nothing_is_drawn_outside(engine: sa.Engine) -> None:
    """Thirty interrupted runs: twelve rows; every mark within the plot."""
    report = made(engine, fleet(engine))
    losses = [Loss(f"run-{n:02}", 0, at(n * 3000.0), "host", None, f"n{n}", "node", None, None, None, n * 1000, 5, None)
              for n in range(30)]  # fmt: skip
    drawn = plots.interruptions(replace(report, now=replace(report.now, losses=losses)))
    assert "19 other runs" in drawn
    root = ET.fromstring(drawn[: drawn.index("</svg>") + 6])  # noqa: S314
    _, _, width, height = (float(part) for part in root.attrib["viewBox"].split())
    dots = [one for one in root.iter() if one.tag.endswith("circle")]
    assert len(dots) == 30
    assert all(0 < float(dot.attrib["cx"]) < width and 0 < float(dot.attrib["cy"]) < height for dot in dots)


def test_every_bucket_has_its_words() -> None:
    """A bucket that is new in the ledger must not go nameless."""
    assert set(BUCKETS) == set(plots.BUCKETS)
    assert [hours(x) for x in (None, 0.0, 3.21, 12_345.6)] == ["-", "0", "3.2", "12,346"]
    assert [percent(x) for x in (None, 0.1234)] == ["-", "12.3 %"]
    assert plots.stacked({"productive": 1.0, "new_bucket": 3.0}, 4.0).count("<i ") == 2

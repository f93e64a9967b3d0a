"""The week on paper: goodput, interruptions by cause, GPU-hours lost, MTBF and incidents.

week_sections(WeekFile(goodput, causes, running_h, incidents))
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

from api.pages import document
from api.pages.incident import incident_title
from goodput.formulas.failure_rates import interval
from store.html_page import section
from wire.events import IncidentJson
from wire.goodput import CausesJson, ClusterGoodputJson, GoodputLevelJson
from wire.money.price import aside
from wire.words import values

MOST_ROWS = 100
_CAUSES = {"fabric": "network links and switches", "application": "the training program"}


@dataclass(frozen=True, slots=True)
class WeekFile:
    """What the page is made of, as the API answers it.

    `running_h`: hours of wall time of all runs, without those of waiting to start; `incidents`: the grave ones, newest
    first; `more`: there are more.
    """

    goodput: ClusterGoodputJson
    causes: CausesJson
    running_h: float
    incidents: Sequence[IncidentJson] = ()
    more: bool = False


def week_sections(week: WeekFile) -> list[str]:
    """The page from top to bottom."""
    goodput = week.goodput
    return [
        document.heading(f"The cluster, {goodput.since:%Y-%m-%d} to {_last(goodput)}"),
        document.answer("info", _answer(week)),
        *(document.line(values.shown(doubt)) for doubt in goodput.doubts),
        _levels(goodput),
        _days(goodput.days),
        _interruptions(week),
        _incidents(week),
        document.line(f"Times are UTC. A dash means that nobody knows. As of {values.utc(goodput.until)}."),
    ]


def mtbf(count: int, running_h: float) -> str:
    """The mean time between stops of a run, with its 95 % interval (Garwood's, of a Poisson count)."""
    if running_h <= 0:
        return "No run was measured in this time."
    low, high = interval(count)
    least = _hours(running_h / high)
    if not count:
        return f"No stop in {_hours(running_h)} of running: the MTBF is above {least} (97.5 % sure)."
    return (
        f"MTBF of a run: {_hours(running_h / count)}, with 95 % between {least} and {_hours(running_h / low)} "
        f"({values.many(count, 'stop')} in {_hours(running_h)})."
    )


def _hours(value: float) -> str:
    return values.duration(value * 3600)


def _last(goodput: ClusterGoodputJson) -> str:
    """The last day that counts: a period that ends at midnight does not reach into that day."""
    return f"{goodput.until - timedelta(microseconds=1):%Y-%m-%d}"


def _answer(week: WeekFile) -> str:
    share, of = week.goodput.productive_of_existing, "existed"
    if share is None:
        share, of = week.goodput.runtime_goodput, "were held by jobs"
    total = week.causes.total
    stops = f"{values.many(total.interruptions, 'interruption')} of runs"
    cost = "" if total.lost_gpu_hours is None else f", {values.count(total.lost_gpu_hours)} GPU-hours lost to them"
    cost += aside(total.lost_money)
    if share is None:
        return f"No run held a GPU in this time. {stops}{cost}."
    return f"{values.share(share)} of the GPU-hours that {of} became training that counts. {stops}{cost}."


def _levels(goodput: ClusterGoodputJson) -> str:
    hours = goodput.gpu_hours
    names = {
        "existing": "GPU-hours that existed",
        "schedulable": "that could be scheduled",
        "allocated": "held by jobs",
        "running": "while a run trained",
        "productive": "that became training that counts",
    }
    found = [(name, values.count(hours.get(key)) + aside(goodput.money.get(key))) for key, name in names.items()]
    ettr = values.DASH if goodput.ettr is None else f"at least {values.share(goodput.ettr.least)}"
    found += [
        ("Scheduling goodput", values.share(goodput.scheduling_goodput)),
        ("Runtime goodput", values.share(goodput.runtime_goodput)),
        ("Program goodput (MFU)", values.share(goodput.program_goodput)),
        ("ETTR", ettr),
    ]
    return section("Goodput", "From the GPU-hours that existed to those that count.", document.facts(found))


def _days(days: Sequence[GoodputLevelJson]) -> str:
    if not days:
        return ""
    rows = [
        (
            f"{one.since:%Y-%m-%d}",
            values.count(one.gpu_hours.get("existing")),
            values.count(one.gpu_hours.get("allocated")),
            values.count(one.gpu_hours.get("productive")),
            values.count(one.buckets.get("lost_work")),
            values.share(one.productive_of_existing),
        )
        for one in days
    ]
    header = ("Day", "Existed", "Held by jobs", "Productive", "Work lost", "Share that counts")
    return section("Day by day", "In GPU-hours.", document.text_table(header, rows))


def _interruptions(week: WeekFile) -> str:
    said = mtbf(week.causes.total.interruptions, week.running_h)
    if not week.causes.items:
        return section("Interruptions by cause", said)
    rows = [
        (
            "not explained" if one.unexplained else values.shown(_CAUSES.get(one.name, one.name)),
            f"{one.interruptions:,}",
            f"{one.runs:,}",
            values.duration(one.lost_s),
            values.count(one.lost_gpu_hours) + aside(one.lost_money),
        )
        for one in week.causes.items
    ]
    table = document.text_table(("Cause", "Stops", "Runs", "Time lost", "GPU-hours lost"), rows)
    return section("Interruptions by cause", said, table)


def _incidents(week: WeekFile) -> str:
    if not week.incidents:
        return section("Incidents", "No fatal or serious incident began in this time.")
    rows = [
        (
            values.utc(one.start),
            one.severity,
            incident_title(one),
            "open" if one.life is None else values.shown(values.LIVES.get(one.life.state, one.life.state)),
            values.shown(values.to_do(one)),
        )
        for one in week.incidents[:MOST_ROWS]
    ]
    told = values.many(len(rows), "fatal or serious one")
    count = f"The newest {told}" if week.more else f"All {told}" if len(rows) > 1 else told
    table = document.text_table(("Began", "Severity", "What and where", "State", "What to do"), rows)
    return section("Incidents", f"{count} that began in this time.", table)

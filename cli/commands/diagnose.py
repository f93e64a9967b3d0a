"""`foreshock diagnose`: which device stopped the work, with evidence."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from cli.console.errors import Failure
from cli.console.output import DB_OPTION, JSON_OPTION, print_json, print_table, print_text
from cli.console.store import open_store
from store.records.event import RecordError, format_time, parse_time

if TYPE_CHECKING:
    from diagnosis.culprits.culprit import Culprit


@click.command()
@DB_OPTION
@click.option("--run", help="The training run whose stop is to be explained (default: whatever stopped last).")
@click.option("--at", metavar="T", help="As of this time, RFC 3339 (default: the newest stop known).")
@JSON_OPTION
def diagnose(url: str, run: str | None, at: str | None, as_json: bool) -> None:
    """Rank the devices that may have stopped a run, the likeliest first."""
    from diagnosis.culprits.culprit import explain
    from diagnosis.causes.stop import stop_of

    try:
        moment = None if at is None else parse_time(at)
    except RecordError as error:
        raise Failure(f"--at: {error}") from error
    with open_store(url).begin() as connection:
        stop = stop_of(connection, run, moment)
        if stop is None:
            what = (
                f"run {run!r} has no interruption" if run else "the database holds no interrupted run and no incident"
            )
            raise Failure(
                f"{what}{'' if at is None else f' by {at}'}: ingest its jobs.csv and kernel logs, or name another"
            )
        culprits = explain(connection, stop)
    if as_json:
        print_json([culprit.to_json() for culprit in culprits])
        return
    subject = "the cluster" if stop.run is None else stop.run
    print_text(f"{subject}: last progress {_clock(format_time(stop.last_work))}, end {_clock(format_time(stop.end))}")
    if not culprits:
        print_text("no incident, no outage on its nodes in that time: nothing is known of the machine's part")
        return
    print_table([_row(culprit) for culprit in culprits], ["rank", "node", "device", "score", "time", "reason"])
    events = culprits[0].events
    if events:
        print_text(f"evidence for the first: events {', '.join(events)}")


def _row(culprit: Culprit) -> dict[str, object]:
    return {
        "rank": culprit.rank,
        "node": culprit.node,
        "device": culprit.device.words(culprit.name),
        "score": f"{culprit.score:.2f}",
        "time": None if culprit.time is None else _clock(format_time(culprit.time)),
        "reason": culprit.reason,
    }


def _clock(text: str) -> str:
    """A time without its fraction."""
    return text[:19] + "Z"

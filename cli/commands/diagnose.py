"""`foreshock diagnose`: which device stopped the work, with evidence for and against."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

import click

from cli.console.errors import Failure
from cli.console.output import DB_OPTION, JSON_OPTION, PRICE_OPTION, print_json, print_table, print_text, span
from cli.console.store import open_store
from store.records.event import RecordError, format_time, parse_time

if TYPE_CHECKING:
    from collections.abc import Sequence

    from diagnosis.causes.stop import Stoppage
    from diagnosis.verdicts.failed_starts import FailedStart
    from store.records.event import Event
    from store.records.verdict import Verdict, VerdictEvidence
    from wire.money.price import GpuHourPrice

# Reasons that are printed below the table.
_MOST_REASONS = 6


@click.command()
@DB_OPTION
@click.option("--run", help="The training run whose stop is to be explained (default: whatever stopped last).")
@click.option("--at", metavar="T", help="As of this time, RFC 3339 (default: the newest stop known).")
@PRICE_OPTION
@JSON_OPTION
def diagnose(url: str, run: str | None, at: str | None, price: GpuHourPrice | None, as_json: bool) -> None:
    """Name the causes that explain a stop, or what is wrong in the cluster, the likeliest first."""
    from diagnosis.causes.explanation import explain
    from diagnosis.causes.stored_scene import read_scene
    from diagnosis.verdicts.failed_starts import failed_starts
    from diagnosis.verdicts.stake import read_stakes, saves_at, with_stake
    from wire.money.price import shown, with_money
    from wire.verdicts import verdict_object

    try:
        moment = None if at is None else parse_time(at)
    except RecordError as error:
        raise Failure(f"--at: {error}") from error
    with open_store(url).begin() as connection:
        scene = read_scene(connection, run, moment)
        if scene is None or scene.stop is None:
            what = (
                f"run {run!r} has no interruption" if run else "the database holds no interrupted run and no incident"
            )
            by = "" if at is None else f" by {at}"
            also = ", or ask with --at T how things stood then" if at is None and run is None else ", or name another"
            raise Failure(f"{what}{by}: ingest its jobs.csv and kernel logs{also}")
        stakes = read_stakes(connection, scene.jobs, scene.stop.end)
        saves = saves_at(connection, scene.stop.run, scene.stop.end) if scene.stop.run else (None, None)
        verdicts = [with_stake(one, stakes) for one in explain(scene)]
        starts = failed_starts(connection, scene.stop, verdicts[0] if verdicts else None) if run and at is None else []
    if as_json:
        told = [start.verdict for start in starts if start.verdict is not None]
        verdicts = sorted([*told, *verdicts], key=lambda one: -one.probability)
        objects = [with_money(verdict_object(verdict, rank), price) for rank, verdict in enumerate(verdicts, start=1)]
        print_json([{name: _plain(value) for name, value in one.items()} for one in objects])
        return
    _print_starts(starts)
    print_text(_subject(scene.stop))
    _print_saves(*saves, scene.stop.end)
    print_table(
        [_row(rank, verdict) for rank, verdict in enumerate(verdicts, start=1)],
        ["rank", "probability", "class", "name", "node", "since", "reason"],
    )
    if verdicts:
        _print_evidence(verdicts[0])
        if price is not None and verdicts[0].jobs:
            stake = verdicts[0].gpu_hours_at_stake
            print_text(f"at stake: {stake:,.1f} GPU-hours, {shown(price.of(stake))}")


def _subject(stop: Stoppage) -> str:
    """What is explained."""
    if stop.run is None:
        return f"the cluster: as of {_clock(format_time(stop.end))}"
    return f"{stop.run}: last progress {_clock(format_time(stop.last_work))}, end {_clock(format_time(stop.end))}"


def _print_starts(starts: Sequence[FailedStart]) -> None:
    """The starts after the stop that never came to work, the newest first, each with a fault of its own."""
    from diagnosis.verdicts.failed_starts import MOST_STARTS

    for start in starts[:MOST_STARTS]:
        print_text(_start_words(start))
        if start.verdict is not None:
            _print_evidence(start.verdict)
    if len(starts) > MOST_STARTS:
        print_text(f"{len(starts) - MOST_STARTS} more before these made no iteration either")


def _start_words(start: FailedStart) -> str:
    """What became of a start, in one sentence."""
    job = start.job
    began = _clock(format_time(job.start)) if job.start is not None else "later"
    if job.end is None:
        return f"{job.run}: job {job.job_id}, started {began} after this stop, has made no iteration yet"
    words = f"{job.run}: job {job.job_id}, started {began} after this stop, failed at start-up"
    words += f" ({job.state}, {_clock(format_time(job.end))}, no iteration)"
    if start.verdict is not None:
        return f"{words}: {start.verdict.reason} ({start.verdict.probability:.2f})"
    return f"{words}: by the same as the stop" if start.is_again else f"{words}: no fault of its own is known"


def _print_saves(kept: Event | None, torn: Event | None, end: datetime) -> None:
    """The checkpoint to go on from, and a later one that is torn, in the words of who looked at it."""
    if kept is not None and kept.time is not None:
        number = kept.attributes.get("iteration")
        ago = span((end - kept.time).total_seconds())
        print_text(f"newest whole save: {'without a number' if number is None else number}, {ago} before the end")
    if torn is not None:
        print_text(torn.message)


def _row(rank: int, verdict: Verdict) -> dict[str, object]:
    return {
        "rank": rank,
        "probability": f"{verdict.probability:.2f}",
        "class": verdict.cause_class,
        "name": verdict.name,
        "node": verdict.node,
        "since": _clock(format_time(verdict.since)),
        "reason": verdict.reason,
    }


def _print_evidence(verdict: Verdict) -> None:
    """What speaks for and against the first verdict, in plain words."""
    for word, evidence in (("for", verdict.evidence_for), ("against", verdict.evidence_against)):
        for one in evidence[:_MOST_REASONS]:
            print_text(f"{word} {verdict.name}: {one.text}{_events(one)}")


def _events(evidence: VerdictEvidence) -> str:
    return f" (events {', '.join(evidence.events)})" if evidence.events else ""


def _plain(value: object) -> object:
    """A value as JSON has it."""
    return format_time(value) if isinstance(value, datetime) else value


def _clock(text: str) -> str:
    """A time without its fraction."""
    return text[:19] + "Z"

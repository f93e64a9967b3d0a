"""The cluster's account of a period, put together: levels by day, the ratios, the MFU of the runs whose shape is known.

told = cluster_json(connection, window_of(since, until), stored_runs(connection, window, shapes))
told["gpu_hours"]["productive"], told["scheduling_goodput"]
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import sqlalchemy as sa

from goodput.cluster.level import doubts_of, level_json, levels, program_goodput, summed
from goodput.cluster.losses import days_of
from goodput.cluster.mfu import RunFacts, facts_from, facts_from_json, mfu_json, newest_nodes
from goodput.formulas.shape import Shape, shape_of
from goodput.ledger import Ledger
from goodput.reading.records import read_run_jobs
from goodput.timeline import to_ms
from store.nodes.inventory import outage_spans, service_spans
from store.runs.ledgers import facts_since
from store.runs.losses import day_sums, productive_gpu_ms
from store.tables import schema
from wire.money.price import GpuHourPrice, with_money

DAYS = 7  # of a period that nobody named
MOST_DAYS = 400


class PeriodError(ValueError):
    """A period that cannot be accounted; the message says why."""


@dataclass(frozen=True, slots=True)
class RunTotals:
    """What the runs spent: by day and bucket; the MFU of those whose shape is known, and at least their productive GPU
    time."""

    days: Sequence[tuple[datetime, str, int, int, int]]
    productive: Mapping[str, int]
    mfus: Sequence[Mapping[str, Any]]


def period(
    since: datetime | None, until: datetime | None, now: datetime, most_days: int = MOST_DAYS
) -> tuple[datetime, datetime]:
    """Whole UTC days from `since` (a week before the end) to `until` (now), of which the last ends now at the latest.

    Raises:
        PeriodError: it is empty, or longer than `most_days` days.
    """
    last = now if until is None else min(_midnight(until, up=True), now)
    first = _midnight(last - timedelta(days=DAYS), up=True) if since is None else _midnight(since)
    if first >= last:
        raise PeriodError("the period is empty: since lies at or after until, or after the newest moment")
    if last - first > timedelta(days=most_days):
        raise PeriodError(f"the period is longer than {most_days} days")
    return first, last


def _midnight(moment: datetime, up: bool = False) -> datetime:
    """The midnight (UTC) before a moment, or the one after it."""
    before = moment.replace(hour=0, minute=0, second=0, microsecond=0)
    return before + timedelta(days=1) if up and before < moment else before


def stored_runs(connection: sa.Connection, window: tuple[datetime, datetime], shapes: Mapping[str, Shape]) -> RunTotals:
    """What the runs spent by their stored ledgers."""
    told = {run: facts_from_json(reported) for run, reported in facts_since(connection, window[0]).items()}
    shaped = [run for run in sorted(told) if told[run].shape is not None or shape_of(run, shapes) is not None]
    sums = productive_gpu_ms(connection, window, shaped)
    productive = {run: gpu_ms for run, gpu_ms in sums.items() if gpu_ms is not None}
    mfus = [mfu_json(run, told[run], shapes) for run in shaped if run in sums]
    return RunTotals(day_sums(connection, *window), productive, mfus)


def fresh_runs(
    connection: sa.Connection,
    ledgers: Iterable[Ledger],
    window: tuple[datetime, datetime],
    shapes: Mapping[str, Shape],
) -> RunTotals:
    """The same by ledgers that were just made."""
    days: dict[tuple[datetime, str], list[int]] = {}
    productive: dict[str, int] = {}
    mfus = []
    for ledger in ledgers:
        own = [day for day in days_of(ledger) if window[0] <= day.day < window[1]]
        for day in own:
            place = days.setdefault((day.day, day.bucket), [0, 0, 0])
            place[0] += day.wall_ms
            place[1] += day.gpu_ms or 0
            place[2] += day.wall_ms if day.gpu_ms is None else 0
            if day.bucket == "productive" and day.gpu_ms is not None:
                productive[ledger.run] = productive.get(ledger.run, 0) + day.gpu_ms
        if own and (ledger.shape is not None or shape_of(ledger.run, shapes) is not None):
            mfus.append(mfu_json(ledger.run, facts_of(connection, ledger), shapes))
    return RunTotals([(day, bucket, *sums) for (day, bucket), sums in sorted(days.items())], productive, mfus)  # type: ignore[misc]


def cluster_json(connection: sa.Connection, window: tuple[datetime, datetime], runs: RunTotals) -> dict[str, Any]:
    """The account of a period: the whole of it, its days, the runs' MFU, and what a reader should know beforehand."""
    service = service_spans(connection)
    outages = outage_spans(connection, *window)
    days = levels((to_ms(window[0]), to_ms(window[1])), service, outages, runs.days)
    whole = summed(days)
    known = {one["run"]: one["mfu"] for one in runs.mfus if one["mfu"] is not None}
    program, covered = program_goodput(known, runs.productive, whole.productive)
    return {
        **level_json(whole, program),
        "program_covers": covered,
        "doubts": doubts_of(whole, service),
        "days": [level_json(day) for day in days],
        "runs": list(runs.mfus),
    }


def priced_levels(told: dict[str, Any], price: GpuHourPrice | None) -> dict[str, Any]:
    """The account with what its GPU-hours cost (`money`), in all and by day; without a price as it was."""
    if price is None:
        return told
    return with_money(told, price) | {"days": [with_money(day, price) for day in told["days"]]}


_BATCH = 2_000


def facts_of(connection: sa.Connection, ledger: Ledger) -> RunFacts:
    """The facts of a run whose ledger was made."""
    jobs = read_run_jobs(connection, [ledger.run])[ledger.run]
    nodes = sorted(newest_nodes(jobs))
    models: dict[str, str | None] = {}
    for i in range(0, len(nodes), _BATCH):
        table = schema.nodes
        query = sa.select(table.c.node, table.c.gpu_model).where(table.c.node.in_(nodes[i : i + _BATCH]))
        models |= {row.node: row.gpu_model for row in connection.execute(query)}
    return facts_from(ledger, jobs, models)

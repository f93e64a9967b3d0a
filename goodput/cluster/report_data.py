"""What a report tells, gathered: a period and the one of the same length before it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from goodput.cluster.account import Runs, cluster_json, fresh_runs
from goodput.cluster.causes import losses_of
from goodput.cluster.run_days import days_of
from goodput.formulas.shape import Shape
from goodput.ledger import Ledger
from goodput.timeline import HOUR_MS, from_ms
from store.losses import Group, Loss, grouped


@dataclass(frozen=True, slots=True)
class Period:
    """One period: the cluster's account (`cluster_json`), the interruptions in it."""

    since: datetime
    until: datetime
    account: Mapping[str, Any]
    losses: Sequence[Loss]


@dataclass(frozen=True, slots=True)
class RunShare:
    """A run's part of the period, by bucket: GPU-hours where `sized`, else hours of wall time."""

    run: str
    sized: bool
    buckets: Mapping[str, float]

    @property
    def whole(self) -> float:
        """All of it."""
        return sum(self.buckets.values())


@dataclass(frozen=True, slots=True)
class Save:
    """One save's stall, seconds."""

    run: str
    time: datetime
    stall_s: float


@dataclass(frozen=True, slots=True)
class Report:
    """All that the page draws. `in_gpus` = losses are counted in GPU-hours, else in hours of wall time."""

    now: Period
    before: Period
    runs: Sequence[RunShare]
    saves: Sequence[Save]

    @property
    def in_gpus(self) -> bool:
        """Whether the size of any interrupted run is known."""
        return any(loss.lost_gpu_ms is not None for loss in self.now.losses) or not self.now.losses

    @property
    def unit(self) -> str:
        """What losses are counted in."""
        return "GPU-hours" if self.in_gpus else "hours"

    def cost(self, group: Group) -> float:
        """What a group of interruptions cost, in `unit`."""
        return (group.lost_gpu_ms if self.in_gpus else group.lost_ms) / HOUR_MS

    def lost(self, period: Period) -> float:
        """What all interruptions of a period cost, in `unit`."""
        return sum(self.cost(group) for group in grouped(period.losses, "cause"))


def gather(
    connection: sa.Connection,
    ledgers: Sequence[Ledger],
    window: tuple[datetime, datetime],
    shapes: Mapping[str, Shape],
) -> Report:
    """The report of a window of whole days and of the time before it."""
    losses = losses_of(connection, *ledgers)
    since, until = window
    earlier = since - (until - since)

    def period(first: datetime, last: datetime) -> Period:
        # The period before begins within a day where this one ends within one: whole days have to be told apart.
        whole = (first.replace(hour=0, minute=0, second=0, microsecond=0), last)
        runs: Runs = fresh_runs(connection, ledgers, whole, shapes)
        within = [loss for loss in losses if whole[0] <= loss.time < last]
        return Period(whole[0], last, cluster_json(connection, whole, runs), within)

    return Report(
        now=period(since, until),
        before=period(earlier, since),
        runs=_shares(ledgers, window),
        saves=_saves(ledgers, window),
    )


def _shares(ledgers: Sequence[Ledger], window: tuple[datetime, datetime]) -> list[RunShare]:
    """The runs' parts of the period, the largest first; those of known size before the others."""
    found = []
    for ledger in ledgers:
        days = [day for day in days_of(ledger) if window[0] <= day.day < window[1]]
        sized = ledger.held is not None
        buckets: dict[str, float] = {}
        for day in days:
            amount = (day.gpu_ms or 0) if sized else day.wall_ms
            buckets[day.bucket] = buckets.get(day.bucket, 0.0) + amount / HOUR_MS
        if buckets:
            found.append(RunShare(ledger.run, sized, buckets))
    return sorted(found, key=lambda share: (not share.sized, -share.whole, share.run))


def _saves(ledgers: Sequence[Ledger], window: tuple[datetime, datetime]) -> list[Save]:
    found = []
    for ledger in ledgers:
        for save in ledger.saves if ledger.dated else ():
            time = from_ms(save.start_ms)
            if window[0] <= time < window[1]:
                found.append(Save(ledger.run, time, save.length_ms / 1000))
    return sorted(found, key=lambda save: (save.time, save.run))

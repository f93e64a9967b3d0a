"""Gauges of goodput: the newest runs' buckets, the cluster's levels and ratios, what was lost by cause.

They are gauges, not counters: a ledger is corrected. What counted as useful training becomes work done twice when the
run fails, so a bucket may fall, and `rate()` would take that for a restart. `delta()` reads them rightly.
The label `run` is bounded: the twenty runs that ended last. Made at most once a minute, however many ask.
"""

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

import sqlalchemy as sa
from prometheus_client.core import GaugeMetricFamily, Metric

from goodput.cluster.account import DAYS, cluster_json, period, stored_runs
from goodput.formulas.shape import Shape
from store.runs.ledgers import newest_accounts
from store.runs.losses import LossGroup, read_groups

RUNS = 20
KEEP_S = 60.0


@dataclass(slots=True)
class GoodputGauges:
    """The families as they were last made."""

    monotonic: Callable[[], float] = time.monotonic
    _made: float = float("-inf")
    _kept: Sequence[Metric] = ()
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def families(self, connection: sa.Connection, now: datetime, shapes: dict[str, Shape]) -> Sequence[Metric]:
        """The families, not older than a minute."""
        with self._lock:
            if self.monotonic() - self._made >= KEEP_S:
                self._kept = list(_families(connection, now, shapes))
                self._made = self.monotonic()
            return self._kept


def _families(connection: sa.Connection, now: datetime, shapes: dict[str, Shape]) -> Iterable[Metric]:
    yield from _runs(newest_accounts(connection, RUNS))
    window = period(None, None, now)
    yield from _cluster(cluster_json(connection, window, stored_runs(connection, window, shapes)))
    yield from _lost(read_groups(connection, "cause", (now - timedelta(days=DAYS), now)))


def _runs(accounts: Iterable[tuple[str, dict[str, Any]]]) -> Iterable[Metric]:
    ratio = GaugeMetricFamily(
        "foreshock_goodput_ratio", "Productive share of a run's wall time, of the newest runs.", labels=["run"]
    )
    seconds = GaugeMetricFamily(
        "foreshock_run_seconds",
        "A run's wall time by bucket; corrected as more is known, hence a gauge: use delta().",
        labels=["run", "bucket"],
    )
    for run, account in accounts:
        if account.get("goodput") is not None:
            ratio.add_metric([run], account["goodput"])
        for bucket, value in account.get("buckets", {}).items():
            seconds.add_metric([run, bucket], value)
    yield ratio
    yield seconds


def _cluster(account: dict[str, Any]) -> Iterable[Metric]:
    spent = GaugeMetricFamily(
        "foreshock_cluster_gpu_seconds", f"GPU time of the last {DAYS} days (UTC) by level.", labels=["level"]
    )
    for level, value in account["gpu_hours"].items():
        if value is not None:
            spent.add_metric([level], value * 3600)
    yield spent
    ratios = GaugeMetricFamily(
        "foreshock_cluster_goodput_ratio", f"Goodput of the last {DAYS} days by factor.", labels=["factor"]
    )
    factors = ("scheduling_goodput", "runtime_goodput", "program_goodput", "productive_of_existing")
    for factor in factors:
        if account[factor] is not None:
            ratios.add_metric([factor.removesuffix("_goodput")], account[factor])
    yield ratios
    ettr = GaugeMetricFamily(
        "foreshock_cluster_ettr_ratio", "The least and the most that the ETTR may be.", labels=["bound"]
    )
    for bound, value in (account["ettr"] or {}).items():
        ettr.add_metric([bound], value)
    yield ettr


def _lost(groups: Sequence[LossGroup]) -> Iterable[Metric]:
    spent = GaugeMetricFamily(
        "foreshock_lost_gpu_seconds", f"GPU time that interruptions of the last {DAYS} days cost.", labels=["cause"]
    )
    stops = GaugeMetricFamily(
        "foreshock_run_interruptions", f"Interruptions of runs in the last {DAYS} days.", labels=["cause"]
    )
    found: dict[str, tuple[float, int]] = {}
    for group in groups:
        cause = "unexplained" if group.unexplained else group.key[0] or "unknown"
        found[cause] = (group.lost_gpu_ms / 1000, group.interruptions)
    for cause, (lost, count) in sorted(found.items()):
        spent.add_metric([cause], lost)
        stops.add_metric([cause], count)
    yield spent
    yield stops

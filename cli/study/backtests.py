"""Backtests on the real sets of a fleet: the present model beside what needs no learning, intervals by node.

report = run_set(SETS["m100"], Path("shared/data/m100"), cache=None)

`outages_365d`, how many outages the node had in the last 365 days, is judged on the very rows of the model.
"""

import tempfile
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import sqlalchemy as sa

from predictor.dataset.folds import BacktestSettings, NoDataError

COUNT_365 = "outages_365d"
_YEAR_MS = 365 * 86_400_000


@dataclass(frozen=True, slots=True)
class BacktestSet:
    """A real set of outages, how it is judged, and what the result does not show."""

    name: str
    title: str
    source: str
    settings: BacktestSettings
    unshown: tuple[str, ...]


def _day(year: int, month: int) -> datetime:
    return datetime(year, month, 1, tzinfo=UTC)


SETS = {
    "m100": BacktestSet(
        "m100",
        "M100: 990 nodes of Marconi100, 2020-05 to 2021-12",
        "M100 ExaData, Sci Data 10:288, CC-BY-4.0, through MSKazemi/m100-silicon-binning (MIT).",
        BacktestSettings(horizon_h=168, cadence_h=168.0, test_start=_day(2021, 3), fold_days=56.0),
        (
            "A reboot may be an administrator's: 471 of 579 outages are reboots, and no reason is known.",
            "Days with fewer than 930 nodes bear no label: 275 of 663.",
            "Such days count as days without an outage, for every ranking: to know them is worth something, too.",
            "One row a node and day: what comes within a day is not seen before its end.",
        ),
    ),
    "drives": BacktestSet(
        "drives",
        "Drives: 68,605 disks of Backblaze, 2013-04 to 2015-12",
        "Backblaze drive stats, through the R package dynamichazard (GPL-2).",
        BacktestSettings(horizon_h=720, moments=tuple(_day(2015, month) for month in range(7, 13))),
        ("Disks are no GPU nodes: this judges the road from counters to a score.",),
    ),
    "faults": BacktestSet(
        "faults",
        "Faults: 400 GPU servers over 348 days",
        "InfiniteHBD-Trace, StepFun, Apache-2.0.",
        BacktestSettings(horizon_h=168, cadence_h=24.0, fold_days=28.0),
        (
            "There is no telemetry: only history can predict here.",
            "Tickets were probably filed in batches; 41 % of them name no cause.",
        ),
    ),
}


def run_set(one: BacktestSet, folder: Path, cache: Path | None) -> dict[str, Any] | str:
    """The report of one set, or why there is none."""
    from predictor.evaluate.backtest import run_backtest
    from predictor.model.fit import TooFewPositivesError
    from store.database.connections import open_database

    with tempfile.TemporaryDirectory(prefix="foreshock-study-") as place:
        engine = open_database(f"sqlite:///{(cache or Path(place)) / (one.name + '.db')}")
        try:
            _load(engine, folder)
            found = run_backtest(engine, one.settings)
            return _with_count(engine, found)
        except (NoDataError, TooFewPositivesError) as error:
            return str(error)
        finally:
            engine.dispose()


def _load(engine: sa.Engine, folder: Path) -> None:
    """The archive into its database; what a cache has already is passed over."""
    from cli.commands.ingest import ingest_archive
    from store.database.connections import migrate

    migrate(engine)
    ingest_archive(engine, folder)


def _with_count(engine: sa.Engine, found: Any) -> dict[str, Any]:
    """The report with the outages of 365 days as one more baseline, and the model's gain over it."""
    from predictor.model.skill import discrimination, with_intervals
    from store.nodes.inventory import read_outages

    kept = found.judged.known
    seen = found.judged.only(kept)
    place = {name: number for number, name in enumerate(found.nodes)}
    starts: dict[int, list[int]] = {}
    with engine.connect() as connection:
        for outage in read_outages(connection, datetime(2100, 1, 1, tzinfo=UTC)):
            if outage.node in place:
                starts.setdefault(place[outage.node], []).append(int(outage.start.timestamp() * 1000))
    sorted_starts = {node: np.sort(np.asarray(times, dtype=np.int64)) for node, times in starts.items()}
    none = np.zeros(0, dtype=np.int64)
    rank = np.asarray(
        [
            np.subtract(*np.searchsorted(sorted_starts.get(int(node), none), (time, time - _YEAR_MS)))
            for node, time in zip(seen.node, seen.time_ms, strict=True)
        ],
        dtype=np.float64,
    )
    mine, other = discrimination(seen), discrimination(replace(seen, scores=rank))
    sure = with_intervals(seen, {COUNT_365: rank}, COUNT_365)
    report: dict[str, Any] = dict(found.report)
    report["baselines"] = {**report["baselines"], COUNT_365: {**other, "intervals": sure["baselines"][COUNT_365]}}
    figures = ("roc_auc", "average_precision")
    gain = {key: None if mine[key] is None else mine[key] - other[key] for key in figures}
    report["over_365d"] = {"gain": gain, "intervals": sure["gain"]}
    return report

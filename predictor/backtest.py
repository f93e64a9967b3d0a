"""The backtest: what the predictor would have said at each moment of the past, judged by what came.

report = backtest(engine, BacktestSettings(horizon_h=24))   # DESIGN section 3, `foreshock backtest --json`
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import numpy as np
import sqlalchemy as sa

from predictor.baselines import BASELINES
from predictor.dataset import Cube, Progress, build_cube
from predictor.evaluation import Judged, calibration, discrimination, false_cordons, lead_times, outages_of, ratio
from predictor.folds import BacktestSettings, Fold, NoDataError, Plan, plan
from predictor.history import DAY_MS, Bools, Floats, Ints, from_ms, to_ms
from predictor.labels import Labels, label
from predictor.model import TooFewPositivesError, fit
from predictor.reading import data_span


@dataclass(frozen=True, slots=True)
class Backtest:
    """A report, and the scores behind it: (moments, nodes), NaN where a node was not at risk."""

    report: dict[str, Any]
    moments: tuple[datetime, ...]
    nodes: tuple[str, ...]
    scores: Floats


def backtest(engine: sa.Engine, settings: BacktestSettings) -> dict[str, Any]:
    """The report alone.

    Raises:
        NoDataError: there is too little data.
        TooFewPositivesError: no fold has enough outages to learn from.
    """
    return run_backtest(engine, settings).report


def run_backtest(engine: sa.Engine, settings: BacktestSettings, progress: Progress | None = None) -> Backtest:
    """Evaluate over all folds. `progress` is told how much is done, of how much: reading is one half, folds the other.

    Raises:
        NoDataError: there is too little data.
        TooFewPositivesError: no fold has enough outages to learn from.
    """
    with engine.connect() as connection:
        span = data_span(connection)
        planned = plan(span, settings)
        if span is None:
            raise NoDataError("the database is empty")
        cube = build_cube(connection, sorted({*planned.learn, *planned.test}), _half(progress, 0.0))
    if not cube.fleet.names:
        raise NoDataError("the database knows no node: run `foreshock ingest` first")
    labels = label(cube.fleet, cube.outages, cube.moments_ms, settings.horizon_h, to_ms(span[1]))
    scores, skipped = _score_folds(cube, labels, planned, settings, _half(progress, 0.5))
    test = np.isin(cube.moments_ms, [to_ms(moment) for moment in planned.test])
    judged = Judged(cube.moments_ms[test], scores[test], rows_of(labels, test))
    ranks = {name: rank(cube)[test] for name, rank in BASELINES.items()}
    folds = [fold for fold in planned.folds if fold not in skipped]
    report = summarise(judged, ranks, settings, folds)
    return Backtest(report, tuple(map(from_ms, judged.moments_ms)), cube.fleet.names, np.asarray(judged.scores))


def _half(progress: Progress | None, begun: float) -> Progress | None:
    """A progress that fills one half of another's, in thousandths."""
    if progress is None:
        return None
    return lambda done, whole: progress(round(1000 * (begun + 0.5 * done / whole)), 1000)


def _score_folds(
    cube: Cube, labels: Labels, planned: Plan, settings: BacktestSettings, progress: Progress | None
) -> tuple[Floats, list[Fold]]:
    """Scores of every test moment, each from a model that learned before its fold; and the folds that could not."""
    learn = np.isin(cube.moments_ms, [to_ms(moment) for moment in planned.learn])
    test = np.isin(cube.moments_ms, [to_ms(moment) for moment in planned.test])
    scores = np.full(labels.at_risk.shape, np.nan)
    skipped: list[Fold] = []
    failure: TooFewPositivesError | None = None
    for number, fold in enumerate(planned.folds, start=1):
        kept = learn & learned_by(cube.moments_ms, fold, settings)
        rows = labels.known & kept[:, None]
        try:
            forest = fit(cube.values[rows], labels.positive[rows])
        except TooFewPositivesError as error:
            failure = error
            skipped.append(fold)
            continue
        if progress is not None:
            progress(number, len(planned.folds))
        judged = test & (cube.moments_ms >= to_ms(fold.test_start)) & (cube.moments_ms < to_ms(fold.test_end))
        cells = labels.at_risk & judged[:, None]
        scores[cells] = forest.probability(cube.values[cells])
    if failure is not None and len(skipped) == len(planned.folds):
        raise failure
    return scores, skipped


def learned_by(moments_ms: Ints, fold: Fold, settings: BacktestSettings) -> Bools:
    """Which moments a fold learns from."""
    last = to_ms(fold.train_end)
    kept: Bools = moments_ms <= last
    if settings.learn_days is not None:
        kept &= moments_ms > last - int(settings.learn_days * DAY_MS)
    return kept


def rows_of(labels: Labels, moments: Bools) -> Labels:
    """The labels of some moments."""
    return Labels(
        at_risk=labels.at_risk[moments],
        known=labels.known[moments],
        positive=labels.positive[moments],
        next_start_ms=labels.next_start_ms[moments],
    )


def summarise(
    judged: Judged, ranks: Mapping[str, Any], settings: BacktestSettings, folds: list[Fold]
) -> dict[str, Any]:
    """The report of DESIGN; baselines are judged on the very same cells."""
    known = judged.known
    rows, positives = int(known.sum()), int((judged.labels.positive & known).sum())
    seen = Labels(judged.labels.at_risk, known, judged.labels.positive & known, judged.labels.next_start_ms)
    judged = Judged(judged.moments_ms, judged.scores, seen)
    skill = discrimination(judged)
    prevalence = ratio(positives, rows)
    precision = skill["average_precision"]
    return {
        "horizon_h": settings.horizon_h,
        "purge_h": settings.purge_h,
        "cadence_h": settings.cadence_h,
        "folds": [fold.to_json() for fold in folds],
        "nodes": int(known.any(axis=0).sum()),
        "rows": rows,
        "positives": positives,
        "outages": outages_of(seen),
        "prevalence": prevalence,
        **skill,
        "lift": precision / prevalence if precision is not None and prevalence else None,
        "lead_time_h": lead_times(judged),
        "false_cordons_per_1000_node_days": false_cordons(judged, settings.cadence_h),
        "calibration": calibration(judged),
        "baselines": {name: discrimination(Judged(judged.moments_ms, rank, seen)) for name, rank in ranks.items()},
    }

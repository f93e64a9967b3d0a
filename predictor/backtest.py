"""The backtest: what the predictor would have said at each moment of the past, judged by what came.

report = backtest(engine, BacktestSettings(horizon_h=24))   # DESIGN section 3, `foreshock backtest --json`

What `leakage.py` checks is checked before anything is reported: features before models are fitted, folds before each
fit, the scores at the end.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import sqlalchemy as sa
from numpy.typing import NDArray

from predictor.asof import reader
from predictor.dataset import Dataset, Population, Sample, dataset, rows_at, sample
from predictor.evaluation import Judged
from predictor.folds import BacktestSettings, Fold, NoDataError, Plan, plan
from predictor.forest import Forest
from predictor.history import DAY_MS, Bools, Floats, Ints, to_ms
from predictor.labels import label
from predictor.leakage import check_features, check_look_ahead, check_model, check_purge
from predictor.model import TooFewPositivesError, fit
from predictor.reading import data_span
from predictor.rows import Rows
from predictor.subjects import NODES, Subjects
from predictor.summary import summarise

Progress: TypeAlias = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class Backtest:
    """A report, and what it was made from: scores are NaN where no model could say anything.

    `judged` has every row at risk, `ranks` the score of each baseline, one entry a row.
    """

    report: dict[str, Any]
    nodes: tuple[str, ...]
    judged: Judged
    ranks: Mapping[str, Floats]


def backtest(engine: sa.Engine, settings: BacktestSettings) -> dict[str, Any]:
    """The report alone; raises what `run_backtest` raises."""
    return run_backtest(engine, settings).report


def run_backtest(
    engine: sa.Engine, settings: BacktestSettings, progress: Progress | None = None, subjects: Subjects = NODES
) -> Backtest:
    """Evaluate over all folds. `progress` is told how much is done, of how much.

    Raises:
        NoDataError: there is too little data.
        TooFewPositivesError: no fold has enough outages to learn from.
        LeakageError: something has seen the future.
    """
    with engine.connect() as connection:
        span = data_span(connection)
        planned = plan(span, settings)
        if span is None:
            raise NoDataError("the database is empty")
        population = subjects.population(connection, to_ms(span[1]))
        if not population.fleet.names:
            raise NoDataError(f"the database knows no {subjects.noun}: run `foreshock ingest` first")
        learned = sample(population, planned.learn, settings.horizon_h)
        asked = rows_at(population, planned.test)
        both = dataset(connection, population, _joined(learned.rows, asked), subjects.history)
        learn_values, values = both.values[: len(learned.rows)], both.values[len(learned.rows) :]
        judging = Dataset(both.fleet, both.outages, asked, both.features, values)
        check_features(learn_values, _unscored(learned), both.features)
        check_look_ahead(reader(connection, subjects.history), values, asked, both.features)
    scores, skipped = _score_folds(_Lesson(learned, learn_values), judging, planned, settings, progress)
    ranks = {name: rank(judging) for name, rank in subjects.baselines.items()}
    return _judge(
        population, (judging, ranks), scores, settings, [fold for fold in planned.folds if fold not in skipped]
    )


@dataclass(frozen=True, slots=True)
class _Lesson:
    """The rows that every fold learns from a part of, with their features."""

    sample: Sample
    values: NDArray[np.float32]


def _unscored(learned: Sample) -> Judged:
    """Rows to learn from and their answers."""
    rows = learned.rows
    return Judged(rows.time_ms, rows.node, np.zeros(len(rows)), learned.labels)


def _joined(first: Rows, second: Rows) -> Rows:
    return Rows(np.concatenate([first.node, second.node]), np.concatenate([first.time_ms, second.time_ms]))


def _judge(
    population: Population,
    asked: tuple[Dataset, Mapping[str, Floats]],
    scores: Floats,
    settings: BacktestSettings,
    folds: list[Fold],
) -> Backtest:
    judging, ranks = asked
    rows = judging.rows
    labels = label(population.fleet, population.outages, rows, settings.horizon_h, population.end_ms)
    judged = Judged(rows.time_ms, rows.node, scores, labels)
    check_model(judged)
    return Backtest(summarise(judged, ranks, settings, folds), population.fleet.names, judged, ranks)


def _score_folds(
    lesson: _Lesson, judging: Dataset, planned: Plan, settings: BacktestSettings, progress: Progress | None
) -> tuple[Floats, list[Fold]]:
    """The score of every test row, from a model that learned before its fold; and the folds that could not."""
    scores = np.full(len(judging.rows), np.nan)
    skipped: list[Fold] = []
    failure: TooFewPositivesError | None = None
    for number, fold in enumerate(planned.folds, start=1):
        try:
            forest = _fit(lesson, judging, fold, settings)
        except TooFewPositivesError as error:
            failure = error
            skipped.append(fold)
            continue
        if progress is not None:
            progress(number, len(planned.folds))
        time_ms = judging.rows.time_ms
        judged = (time_ms >= to_ms(fold.test_start)) & (time_ms < to_ms(fold.test_end))
        scores[judged] = forest.probability(judging.values[judged])
    if failure is not None and len(skipped) == len(planned.folds):
        raise failure
    return scores, skipped


def _fit(lesson: _Lesson, judging: Dataset, fold: Fold, settings: BacktestSettings) -> Forest:
    kept = learned_by(lesson.sample.rows.time_ms, fold, settings)
    check_purge(fold, lesson.sample.rows.time_ms[kept], settings.horizon_h)
    return fit(
        lesson.values[kept],
        lesson.sample.labels.positive[kept],
        judging.features,
        negative_share=lesson.sample.negative_share,
    )


def learned_by(moments_ms: Ints, fold: Fold, settings: BacktestSettings) -> Bools:
    """Which moments a fold learns from."""
    last = to_ms(fold.train_end)
    kept: Bools = moments_ms <= last
    if settings.learn_days is not None:
        kept &= moments_ms > last - int(settings.learn_days * DAY_MS)
    return kept

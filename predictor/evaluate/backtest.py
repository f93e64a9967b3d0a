"""The backtest: what the predictor would have said at each moment of the past, judged by what came.

report = backtest(engine, BacktestSettings(horizon_h=24))   # DESIGN section 3, `foreshock backtest --json`

What `leakage.py` checks is checked before anything is reported: features before models are fitted, folds before each
fit, the scores at the end.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import sqlalchemy as sa
from numpy.typing import NDArray

from predictor.dataset.dataset import Dataset, Reader, can_share, connected, dataset, url_of
from predictor.dataset.executor import Executor, InProcess, Progress
from predictor.dataset.folds import BacktestSettings, Fold, FoldPlan, NoDataError, plan
from predictor.dataset.labels import TrainingSample, label, rows_at, sample
from predictor.dataset.matrix import features_of, matrix
from predictor.evaluate.cost import CostSettings, HoldPolicy, cost, simulate_holds
from predictor.evaluate.leakage import (
    SampledRows,
    check_features,
    check_model,
    check_purge,
    check_readings,
    doubts,
    doubts_at_top,
)
from predictor.evaluate.truth import against_truth, read_truth
from predictor.hazard.prior import Prior
from predictor.history.arrays import (
    DAY_MS,
    FAR_FUTURE_MS,
    Bools,
    Feature,
    Floats,
    Grid,
    Ints,
    Population,
    Rows,
    from_ms,
    joined,
    to_ms,
)
from predictor.history.store_reader import data_span, read_history
from predictor.history.what_failed import failure_classes
from predictor.learning.choice import ModelChoice, learn
from predictor.learning.training_set import TrainingSet
from predictor.links.subjects import NODES, Subjects
from predictor.model.baselines import recency
from predictor.model.fit import TooFewPositivesError
from predictor.model.riskiest import list_record
from predictor.model.skill import (
    Judged,
    calibration,
    discrimination,
    false_cordons,
    foreseen,
    lead_times,
    lead_times_by_class,
    outages_of,
    probability_figures,
    ratio,
    recall_at_false_alarms,
    reliability,
    with_intervals,
)

# The features of a moment from a history that ends there: what a backtest holds its own values against.

Reading = tuple[tuple[str, ...], NDArray[np.float32]]


@dataclass(frozen=True, slots=True)
class MomentFeatures:
    """A function from rows of one moment to the names of the features and their values, (rows, features).

    It reads the store up to that moment and no further. Nobody knows then how long a node will serve, so that its end
    of service is hidden too.

    Attributes:
        store: a connection, or the address of a database that other processes open.
        since: read all that features of this moment and later ones need; None reads no more than a live score does.
    """

    store: sa.Connection | str
    read: Reader = read_history
    since: datetime | None = None

    def __call__(self, rows: Rows) -> Reading:
        """Names and values."""
        if isinstance(self.store, str):
            with connected(self.store) as connection:
                return replace(self, store=connection)(rows)
        moment_ms = int(rows.time_ms[0])
        history = self.read(self.store, self.since or from_ms(moment_ms), from_ms(moment_ms))
        until_ms = np.where(history.fleet.until_ms > moment_ms, FAR_FUTURE_MS, history.fleet.until_ms)
        history = replace(history, fleet=replace(history.fleet, until_ms=until_ms))
        return tuple(feature.name for feature in features_of(history)), matrix(history, rows)


# The report of a backtest: every figure of DESIGN, how sure it is, and what it is worth, from what was judged.


def summarise(
    judged: Judged, ranks: Mapping[str, Floats], settings: BacktestSettings, folds: Sequence[Fold]
) -> dict[str, Any]:
    """The report; baselines are judged on the very same rows.

    Args:
        ranks: the score of each baseline, one entry a row of `judged`.
    """
    kept = judged.known
    seen = judged.only(kept)
    ranks = {name: rank[kept] for name, rank in ranks.items()}
    rows, positives = len(seen.scores), int(seen.labels.positive.sum())
    skill = _skill(seen)
    baselines = {name: _skill(replace(seen, scores=rank)) for name, rank in ranks.items()}
    sureness = _sureness(seen, ranks, skill, baselines)
    return {
        "horizon_h": settings.horizon_h,
        "purge_h": settings.purge_h,
        "cadence_h": settings.cadence_h,
        "folds": [fold.to_json() for fold in folds],
        "nodes": len(np.unique(seen.node)),
        "rows": rows,
        "positives": positives,
        "outages": outages_of(seen),
        "prevalence": ratio(positives, rows),
        **skill,
        "lead_time_h": lead_times(seen),
        "lists": list_record(seen, settings.horizon_h),
        "false_cordons_per_1000_node_days": false_cordons(seen, settings.cadence_h),
        **probability_figures(seen),
        "calibration": calibration(seen),
        "reliability": reliability(seen),
        **sureness,
        "doubts": doubts(skill["roc_auc"]) + doubts_at_top(seen, ranks, sureness),
    }


def _skill(judged: Judged) -> dict[str, Any]:
    found = discrimination(judged)
    prevalence = ratio(int(judged.labels.positive.sum()), len(judged.scores))
    precision = found["average_precision"]
    lift = None if precision is None or not prevalence else precision / prevalence
    return {**found, "lift": lift, "recall_at_false_alarms": recall_at_false_alarms(judged)}


def _sureness(
    judged: Judged, ranks: Mapping[str, Floats], skill: Mapping[str, Any], baselines: Mapping[str, dict[str, Any]]
) -> dict[str, Any]:
    """`baselines`, each with its intervals; `intervals`, `bootstrap`, and `best_baseline` with the model's gain."""
    able = {name: found for name, found in baselines.items() if found["average_precision"] is not None}
    best = max(able, key=lambda name: able[name]["average_precision"], default=None)
    sure = with_intervals(judged, ranks, best)
    found = {
        "baselines": {name: {**one, "intervals": sure["baselines"][name]} for name, one in baselines.items()},
        "bootstrap": sure["bootstrap"],
        "intervals": sure["intervals"],
        "best_baseline": None,
    }
    if best is not None:
        gains = {name: skill[name] - able[best][name] for name in ("roc_auc", "average_precision", "lift")}
        gains["recall_at_top"] = {
            top: skill["recall_at_top"][top] - of for top, of in able[best]["recall_at_top"].items()
        }
        power = sure["seen_from"]
        found["best_baseline"] = {"name": best, "gain": gains, "intervals": sure["gain"], "seen_from": power}
    return found


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


@dataclass(frozen=True, slots=True)
class BacktestRows:
    """All rows of a backtest with their features, checked for leaks: what is judged may learn from them as it likes.

    `prior` is what every fold starts from. `lesson` are the rows that folds learn from, each a part of them, `judging`
    those that are judged. `classes`: what failed in each outage of the population, None of subjects that are no nodes.
    """

    population: Population
    lesson: TrainingSet
    judging: Dataset
    planned: FoldPlan
    settings: BacktestSettings
    prior: Prior | None
    doubts: list[str]
    classes: Mapping[tuple[int, int], str] | None = None

    def ranks(self) -> dict[str, Floats]:
        """What needs no learning here: each baseline's score of every judged row, `recency`, and `prior` where there
        is one of the horizon."""
        ranks = {name: one.rank(self.judging) for name, one in self.lesson.baselines.items()}
        ranks["recency"] = recency(self.judging)
        alone = _by_prior(self.prior, self.judging.features, self.judging.values, self.settings.horizon_h)
        return ranks if alone is None else ranks | {"prior": alone}


def run_backtest(
    engine: sa.Engine,
    settings: BacktestSettings,
    progress: Progress | None = None,
    subjects: Subjects = NODES,
    run: Executor | None = None,
) -> Backtest:
    """Evaluate over all folds. `progress` is told how much is done, of how much; `run` does what can be done apart.

    Raises:
        NoDataError: there is too little data.
        TooFewPositivesError: no fold has enough outages to learn from.
        LeakageError: something has seen the future.
    """
    rows = read_backtest(engine, settings, _half_of(progress, 0), subjects, run)
    return judge_backtest(rows, _half_of(progress, 1), run)


def read_backtest(
    engine: sa.Engine,
    settings: BacktestSettings,
    progress: Progress | None = None,
    subjects: Subjects = NODES,
    run: Executor | None = None,
) -> BacktestRows:
    """The rows of a backtest.

    Raises:
        NoDataError: there is too little data.
        LeakageError: a feature has seen the future.
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
        requested = rows_at(population, planned.test)
        both = dataset(connection, population, joined(learned.rows, requested), subjects.history, run, progress)
        learn_values, values = both.values[: len(learned.rows)], both.values[len(learned.rows) :]
        judging = Dataset(both.fleet, both.outages, requested, both.features, values)
        known = Dataset(both.fleet, both.outages, learned.rows, both.features, learn_values)
        usual = [one.rank(known) for one in subjects.baselines.values()]
        doubted = check_features(learn_values, _unscored(learned), both.features, usual, learned.negative_share)
        first = from_ms(int(min(learned.rows.time_ms.min(initial=requested.time_ms[0]), requested.time_ms[0])))
        answers = label(population.fleet, population.outages, requested, settings.horizon_h, population.end_ms)
        apart = run if can_share(connection) else None
        live = MomentFeatures(connection if apart is None else url_of(connection), subjects.history)
        sampled = SampledRows(requested, values, both.features, answers.positive)
        doubted += check_readings(live, replace(live, since=first), sampled, apart)
        classes = _classes(connection, population) if subjects is NODES else None
    lesson = TrainingSet(learn_values, both.features, learned, settings.horizon_h, subjects.baselines)
    return BacktestRows(population, lesson, judging, planned, settings, subjects.prior(), doubted, classes)


def _classes(connection: sa.Connection, population: Population) -> dict[tuple[int, int], str]:
    """What failed in each unplanned outage, by its node and beginning."""
    unplanned = population.outages.only(~population.outages.planned)
    keys = list(zip(unplanned.node.tolist(), unplanned.start_ms.tolist(), strict=True))
    outages = [(population.fleet.names[node], from_ms(start)) for node, start in keys]
    return dict(zip(keys, failure_classes(connection, outages), strict=True))


def judge_backtest(rows: BacktestRows, progress: Progress | None = None, run: Executor | None = None) -> Backtest:
    """Learn for every fold and judge.

    Raises:
        TooFewPositivesError: no fold has enough outages to learn from.
        LeakageError: a fold, or a model, has seen the future.
    """
    lesson = _FoldData(rows.lesson, rows.settings, rows.prior)
    scores, served = _score_folds(lesson, rows.judging, rows.planned, run or InProcess(), progress)
    found = _judge(rows.population, (rows.judging, rows.ranks()), scores, rows.settings, list(served))
    if not found.report["positives"] and all(one["settings"] is None for one in served.values()):
        _fit(lesson, rows.planned.folds[-1])  # nothing to learn from, and nothing to judge by: it says what is wanting
    more: dict[str, Any] = {"served": list(served.values()), "doubts": found.report["doubts"] + rows.doubts}
    if rows.classes is not None:
        told = foreseen(found.judged.only(found.judged.known))
        of = [rows.classes[node, start] for node, start in zip(told.node.tolist(), told.start_ms.tolist(), strict=True)]
        more["lead_time_h_by_class"] = lead_times_by_class(told, of)
    return replace(found, report=found.report | more)


@dataclass(frozen=True, slots=True)
class _FoldData:
    """The rows that every fold learns from a part of."""

    whole: TrainingSet
    settings: BacktestSettings
    prior: Prior | None


def _half_of(progress: Progress | None, half: int) -> Progress | None:
    """Progress of one half of the work (0: features, 1: folds), told as that of the whole."""
    if progress is None:
        return None
    return lambda done, whole: progress(half * whole + done, 2 * whole)


def _unscored(learned: TrainingSample) -> Judged:
    """Rows to learn from and their answers."""
    rows = learned.rows
    return Judged(rows.time_ms, rows.node, np.zeros(len(rows)), learned.labels)


def _judge(
    population: Population,
    requested: tuple[Dataset, Mapping[str, Floats]],
    scores: Floats,
    settings: BacktestSettings,
    folds: list[Fold],
) -> Backtest:
    judging, ranks = requested
    rows = judging.rows
    labels = label(population.fleet, population.outages, rows, settings.horizon_h, population.end_ms)
    judged = Judged(rows.time_ms, rows.node, scores, labels)
    check_model(judged)
    return Backtest(summarise(judged, ranks, settings, folds), population.fleet.names, judged, ranks)


def _score_folds(
    lesson: _FoldData, judging: Dataset, planned: FoldPlan, run: Executor, progress: Progress | None
) -> tuple[Floats, dict[Fold, dict[str, Any]]]:
    """The score of every test row, from a model that learned before its fold; and what served in each that could."""
    scores, time_ms = np.full(len(judging.rows), np.nan), judging.rows.time_ms
    requested = [(time_ms >= to_ms(fold.test_start)) & (time_ms < to_ms(fold.test_end)) for fold in planned.folds]
    items = [(fold, judging.values[rows]) for fold, rows in zip(planned.folds, requested, strict=True)]
    # The last learns from the most: begun first, no worker is left alone with it.
    found = run.map(partial(_score_fold, lesson), items[::-1], progress)[::-1]
    for rows, of_fold in zip(requested, found, strict=True):
        if of_fold is not None:
            scores[rows] = of_fold[0]
    served = {fold: of_fold[1] for fold, of_fold in zip(planned.folds, found, strict=True) if of_fold is not None}
    if planned.folds and not served:
        _fit(lesson, planned.folds[-1])  # says what is wanting
    return scores, served


def _score_fold(lesson: _FoldData, requested: tuple[Fold, Grid]) -> tuple[Floats, dict[str, Any]] | None:
    """The scores of a fold's rows, (rows, features), and what gave them; None where there is too little to learn."""
    fold, values = requested
    try:
        learned = _fit(lesson, fold)
    except TooFewPositivesError as error:
        # As a site without a model is scored.
        alone = _by_prior(lesson.prior, lesson.whole.features, values, lesson.settings.horizon_h)
        why = f"prior of other clusters: {error}"
        served: dict[str, Any] = {"kind": "prior", "why": why, "settings": None, "last_folds": {}}
        return None if alone is None else (alone, served)
    reported = {"kind": learned.kind, "why": learned.why, "settings": asdict(learned.settings)}
    reported["last_folds"] = learned.figures
    return learned.model.probability(values), reported


def _by_prior(prior: Prior | None, features: tuple[Feature, ...], values: Grid, horizon_h: int) -> Floats | None:
    """What other clusters taught alone; None where there is no such thing of a horizon."""
    if prior is None or horizon_h not in prior.evidence:
        return None
    return prior.model(features, horizon_h).probability(values)


def _fit(lesson: _FoldData, fold: Fold) -> ModelChoice:
    moments_ms = lesson.whole.sample.rows.time_ms
    kept = learned_by(moments_ms, fold, lesson.settings)
    check_purge(fold, moments_ms[kept], lesson.settings.horizon_h)
    return learn(lesson.whole.only(kept), prior=lesson.prior)


def learned_by(moments_ms: Ints, fold: Fold, settings: BacktestSettings) -> Bools:
    """Which moments a fold learns from."""
    last = to_ms(fold.train_end)
    kept: Bools = moments_ms <= last
    if settings.learn_days is not None:
        kept &= moments_ms > last - int(settings.learn_days * DAY_MS)
    return kept


# What a backtest's scores are worth: cost, policies replayed, and, of a simulated cluster, what could be known.


@dataclass(frozen=True, slots=True)
class WorthSettings:
    """What is asked beyond the figures.

    Attributes:
        policies: replayed over the past; none takes the default one.
        truth: the folder that `foreshock simulate` wrote beside the archive.
    """

    cost: CostSettings = field(default_factory=CostSettings)
    policies: tuple[HoldPolicy, ...] = ()
    truth: Path | None = None


def with_worth(found: Backtest, worth: WorthSettings) -> Backtest:
    """The same backtest with `cost`, `what_if` and `truth` (null where none was given) in its report.

    Raises:
        TruthError: the truth cannot be read.
    """
    known = found.judged.known
    seen = found.judged.only(known)
    truth = None if worth.truth is None else against_truth(seen, read_truth(worth.truth, found.nodes), found.report)
    oracle = truth["oracle"] if truth else None
    added: dict[str, Any] = {
        "cost": cost(seen, worth.cost),
        "what_if": [_policy_result(found, policy, worth.cost) for policy in worth.policies or (HoldPolicy(),)],
        "truth": truth,
        "doubts": found.report["doubts"] + doubts(None, oracle["average_precision_ratio"] if oracle else None),
    }
    return replace(found, report=found.report | added)


def _policy_result(found: Backtest, policy: HoldPolicy, settings: CostSettings) -> dict[str, Any]:
    """A policy under every ranking; a threshold means nothing to rankings that are no probabilities."""
    known = found.judged.known
    seen = found.judged.only(known)
    rankings = {"model": simulate_holds(seen, policy, settings)}
    if policy.threshold is None:
        for name, rank in found.ranks.items():
            rankings[name] = simulate_holds(replace(seen, scores=rank[known]), policy, settings)
    return {"policy": str(policy), "rankings": rankings}

"""Training: fit a model for each horizon on all that is known until a moment, and register it in the store.

The model of each horizon is judged on the last quarter of the data, which it has not seen, beside the baselines.
Where it does not beat both, the better baseline is what is registered: a model of the signs that it goes by alone.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import sqlalchemy as sa

from predictor.baselines import BASELINES, COLUMNS
from predictor.control import read_acted, uncertain
from predictor.dataset import Dataset, Population, Sample, dataset, read_population, sample
from predictor.drift import profile
from predictor.evaluation import Judged, discrimination, ratio
from predictor.executor import Progress
from predictor.folds import PURGE_MARGIN_H, NoDataError, grid
from predictor.forest import Forest, digest, to_bytes
from predictor.history import HOUR_MS, Bools, Floats, from_ms, to_ms
from predictor.intervals import with_intervals
from predictor.labels import HORIZONS_H
from predictor.model import TooFewPositivesError, fit
from predictor.reading import data_span
from predictor.registry import code_version, data_of, register
from store.database import writing
from store.model import ModelKind, ModelRole, StoredModel

LEARN_CADENCE_H = 12.0
# The last part of the data judges a model that learned from the rest: its figures are kept with the final model.
HOLDOUT_SHARE = 0.25
# With fewer positive rows chance decides which ranking looks better.
_LEAST_TO_CHOOSE = 30
_KINDS: dict[str, ModelKind] = {"history_count": "history", "rules": "rules"}


@dataclass(frozen=True, slots=True)
class TrainSettings:
    """What to learn from, and what the models are to be.

    Attributes:
        learn_days: learn from so many days alone; None takes all.
        role: a challenger serves only once it has shown itself better (`predictor/trial.py`).
        by: who asked for it, for the audit.
        now: when it is registered; None is the present.
    """

    learn_days: float | None = None
    horizons_h: Sequence[int] = HORIZONS_H
    role: ModelRole = "champion"
    by: str = "train"
    now: datetime | None = None


def train(
    engine: sa.Engine,
    until: datetime | None = None,
    settings: TrainSettings | None = None,
    progress: Progress | None = None,
) -> list[str]:
    """Fit, judge on a hold-out, and register one model a horizon. Returns their ids.

    Args:
        until: learn from what was known then; None takes all.

    Raises:
        NoDataError: the store is empty or too short.
        TooFewPositivesError: too few outages were seen.
    """
    settings = settings or TrainSettings()
    models = []
    with engine.connect() as connection:
        moments, end = _moments(connection, until, settings)
        population = read_population(connection, to_ms(end))
        for number, horizon_h in enumerate(settings.horizons_h, start=1):
            lesson = _lesson(connection, population, moments, horizon_h)
            models.append(_model(lesson, end))
            if progress is not None:
                progress(number, len(settings.horizons_h))
    now = settings.now or datetime.now(UTC)
    with writing(engine).begin() as connection:
        for model in models:
            register(connection, model, settings.role, settings.by, now)
    return [model.id for model in models]


def _moments(
    connection: sa.Connection, until: datetime | None, settings: TrainSettings
) -> tuple[tuple[datetime, ...], datetime]:
    """The moments to learn from, and the end of what is known."""
    span = data_span(connection)
    if span is None:
        raise NoDataError("the database holds no events, outages or telemetry: run `foreshock ingest` first")
    end = span[1] if until is None else min(until, span[1])
    first = span[0] + timedelta(days=1)
    if settings.learn_days is not None:
        first = max(first, end - timedelta(days=settings.learn_days))
    moments = grid(first, end - timedelta(hours=min(settings.horizons_h)), LEARN_CADENCE_H)
    if not moments:
        raise _too_short(span[0], end)
    return moments, end


def _too_short(start: datetime, end: datetime) -> NoDataError:
    return NoDataError(f"the data from {start:%Y-%m-%d} to {end:%Y-%m-%d} are too short to learn from")


@dataclass(frozen=True, slots=True)
class _Lesson:
    """The rows of one horizon, with their answers."""

    horizon_h: int
    data: Dataset
    sample: Sample

    @property
    def positive(self) -> Bools:
        """Which rows an outage follows."""
        return self.sample.labels.positive

    def fit(self, kept: Bools | slice, columns: Sequence[int] | slice = slice(None)) -> Forest:
        """A forest of some rows and columns."""
        features = np.array(self.data.features, dtype=object)[columns].tolist()
        values = np.ascontiguousarray(self.data.values[kept][:, columns])
        return fit(values, self.positive[kept], features, negative_share=self.sample.negative_share)

    def weights(self) -> Floats:
        """How many rows each row stands for: those of its kind that were not drawn, too."""
        return np.where(self.positive, 1.0, 1.0 / self.sample.negative_share)


def _lesson(connection: sa.Connection, population: Population, moments: Sequence[datetime], horizon_h: int) -> _Lesson:
    drawn = sample(population, moments, horizon_h)
    doubtful = uncertain(drawn.rows, drawn.labels, read_acted(connection, population.fleet), horizon_h)
    kept = Sample(drawn.rows.only(~doubtful), drawn.labels.only(~doubtful), drawn.negative_share)
    if not len(kept.rows):
        raise _too_short(moments[0], moments[-1])
    return _Lesson(horizon_h, dataset(connection, population, kept.rows), kept)


def _model(lesson: _Lesson, end: datetime) -> StoredModel:
    """The model of one horizon, with its hold-out figures."""
    data, share = lesson.data, lesson.sample.negative_share
    holdout = _holdout(lesson)
    kind, why = _choice(holdout)
    columns = [i for i, name in enumerate(data.names) if kind == "gbt" or name in COLUMNS[kind]]
    names = [data.names[i] for i in columns]
    forest = lesson.fit(slice(None), columns)
    blob = to_bytes(forest)
    sha256 = digest(blob)
    time_ms = data.rows.time_ms
    used = {names[i] for i in np.unique(forest.feature)}
    rows, positives = len(data.rows), int(lesson.positive.sum())
    return StoredModel(
        id=f"{kind}-{lesson.horizon_h}h-{sha256[:12]}",
        created=datetime.now(UTC),
        trained_until=end,
        horizon_h=lesson.horizon_h,
        features=tuple(names),
        metrics={
            "rows": rows,
            "positives": positives,
            "prevalence": ratio(positives, positives + (rows - positives) / share),
            "nodes": len(data.fleet.names),
            "holdout": holdout,
        },
        blob=blob,
        sha256=sha256,
        kind=kind,
        data=data_of(data, lesson.sample.labels),
        code=code_version([data.features[i] for i in columns]),
        why=why,
        profile=profile(data.values, data.names, lesson.weights(), time_ms > np.median(time_ms), used),
    )


def _holdout(lesson: _Lesson) -> dict[str, Any] | None:
    """How a model of the first three quarters does on the last; None where those hold too few outages.

    Where negatives were drawn, they stand for all of them: ranking figures hold, precision is of the drawn rows.
    """
    data, time_ms = lesson.data, lesson.data.rows.time_ms
    cut = int(time_ms[0] + (time_ms[-1] - time_ms[0]) * (1 - HOLDOUT_SHARE))
    early, late = time_ms <= cut - (lesson.horizon_h + PURGE_MARGIN_H) * HOUR_MS, time_ms > cut
    try:
        forest = lesson.fit(early)
    except TooFewPositivesError:
        return None
    rows = data.rows.only(late)
    judging = Dataset(data.fleet, data.outages, rows, data.features, data.values[late])
    judged = Judged(rows.time_ms, rows.node, forest.probability(judging.values), lesson.sample.labels.only(late))
    ranks = {name: rank(judging) for name, rank in BASELINES.items()}
    positives = int(judged.labels.positive.sum())
    found = {
        "since": from_ms(cut).isoformat(),
        "positives": positives,
        "prevalence": ratio(positives, len(judged.scores)),
        **discrimination(judged),
    }
    if not 0 < positives < len(judged.scores):
        return found
    sure = with_intervals(judged, ranks, None)
    others = {
        name: discrimination(Judged(rows.time_ms, rows.node, rank, judged.labels)) for name, rank in ranks.items()
    }
    baselines = {name: {**figures, "intervals": sure["baselines"][name]} for name, figures in others.items()}
    return {**found, "intervals": sure["intervals"], "baselines": baselines}


def _choice(holdout: dict[str, Any] | None) -> tuple[ModelKind, str]:
    """Which kind of model is to serve, and why, in words."""
    if holdout is None or "baselines" not in holdout:
        return "gbt", "too little was held out to compare it with the baselines"
    mine = holdout["average_precision"]
    others = {name: found["average_precision"] for name, found in holdout["baselines"].items()}
    best = max(others, key=lambda name: others[name])
    against = ", ".join(f"{name} {value:.3f}" for name, value in others.items())
    said = f"average precision on the last quarter {mine:.3f}; {against}"
    if mine > others[best]:
        return "gbt", said
    if holdout["positives"] < _LEAST_TO_CHOOSE:
        return "gbt", f"{said}: of too few outages to prefer the baseline"
    return _KINDS[best], f"the trees do not beat the baseline {best}, which serves instead: {said}"

"""Training: fit a model for each horizon on all that is known until a moment, and register it in the store.

What serves is decided by `predictor/learning/choice.py`; what trees reach on the last quarter of the data, which they
have not seen, is kept with the model, with intervals and the baselines beside.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime, timedelta
from importlib import metadata
from typing import Any

import numpy as np
import sqlalchemy as sa

from predictor.dataset.dataset import Dataset, dataset
from predictor.dataset.executor import Executor, Progress
from predictor.dataset.folds import PURGE_MARGIN_H, NoDataError, grid
from predictor.dataset.labels import HORIZONS_H, Labels, read_hint_periods, sample, uncertain
from predictor.hazard.blend import stored
from predictor.hazard.prior import packaged
from predictor.history.arrays import HOUR_MS, Feature, Population, from_ms, to_ms
from predictor.history.store_reader import data_span, read_population
from predictor.learning.choice import learn
from predictor.learning.training_set import TrainingSet
from predictor.live.drift import DRIFT_OVER_MS, profile
from predictor.model.fit import FitSettings, TooFewPositivesError
from predictor.model.forest import digest
from predictor.model.skill import Judged, discrimination, ratio, with_intervals
from store.database.connections import writing
from store.models.registry import (
    StoredModel,
    challengers,
    give_role,
    lock_roles,
    note_audit,
    read_model,
    save_model,
    serving_model,
)
from store.records.score import ModelRole

# The registry: which model serves, which ones are on trial beside it, and what each was made of.

# More on trial at a time cost scoring and tell little: the oldest gives way.
MOST_CHALLENGERS = 3


def register(connection: sa.Connection, model: StoredModel, role: ModelRole, by: str, now: datetime) -> ModelRole:
    """Add a model, in the caller's transaction; returns the role that it got.

    The first of its horizon is the champion, whatever was asked for. A model that is there already (the same data,
    the same program) keeps its role, unless it is to be the champion.
    """
    lock_roles(connection)
    known, champion = read_model(connection, model.id), serving_model(connection, model.horizon_h)
    if known is None:
        why = model.why or f"trained until {model.trained_until:%Y-%m-%d %H:%M} UTC"
        save_model(connection, replace(model, role="challenger", why=why, by=by, since=now))
        if champion is not None and role != "champion":
            note_audit(connection, now, by, ("challenger", model.id), {"why": why})
            _make_room(connection, model.horizon_h, by, now)
            return "challenger"
        first = "" if champion is not None else ", the first of its horizon"
        give_role(connection, model.id, "champion", why + first, by, now)
        return "champion"
    if role == "champion" and known.role != "champion":
        give_role(connection, model.id, "champion", "trained again, with the same result", by, now)
        return "champion"
    return known.role


def _make_room(connection: sa.Connection, horizon_h: int, by: str, now: datetime) -> None:
    on_trial = challengers(connection, horizon_h)
    for one in on_trial[: max(0, len(on_trial) - MOST_CHALLENGERS)]:
        why = f"{MOST_CHALLENGERS} newer ones are on trial, and it had not shown itself better"
        give_role(connection, one.id, "rejected", why, by, now)


def code_version(features: Sequence[Feature]) -> str:
    """The program's version and a digest of what its features are."""
    text = "\n".join(f"{f.name} {f.group} {f.reference} {f.monotonic}" for f in features)
    return f"{metadata.version('foreshock')}+{hashlib.sha256(text.encode()).hexdigest()[:12]}"


def data_of(data: Dataset, labels: Labels) -> dict[str, object]:
    """What a model learned from: counts, ends, and a digest over every row, its answer and its features."""
    digest = hashlib.sha256("\n".join(data.fleet.names).encode())
    for part in (data.rows.node, data.rows.time_ms, labels.positive, data.values):
        digest.update(np.ascontiguousarray(part).tobytes())
    return {
        "rows": len(data.rows),
        "positives": int(labels.positive.sum()),
        "nodes": len(data.fleet.names),
        "since": from_ms(int(data.rows.time_ms[0])).isoformat(),
        "until": from_ms(int(data.rows.time_ms[-1])).isoformat(),
        "sha256": digest.hexdigest(),
    }


LEARN_CADENCE_H = 12.0
# The last part of the data judges a model that learned from the rest: its figures are kept with the final model.
HOLDOUT_SHARE = 0.25
# A short training is cut into so many stretches all the same, to see what moves by itself.
_LEAST_BLOCKS = 4


@dataclass(frozen=True, slots=True)
class TrainSettings:
    """What to learn from, and what the models are to be.

    Attributes:
        learn_days: learn from so many days alone; None takes all.
        role: a challenger serves only once it has shown itself better (`predictor/live/trial.py`).
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
    run: Executor | None = None,
) -> list[str]:
    """Fit, judge on a hold-out, and register one model a horizon. Returns their ids.

    Args:
        until: learn from what was known then; None takes all.
        run: makes the features, in parts; None makes all at once.

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
            models.append(_model(*_lesson(connection, population, moments, horizon_h, run), end))
            if progress is not None:
                progress(number, len(settings.horizons_h))
    now = settings.now or datetime.now(UTC)
    with writing(engine).begin() as connection:
        for model in models:
            register(connection, model, _role(connection, model, settings.role), settings.by, now)
    return [model.id for model in models]


def _role(connection: sa.Connection, model: StoredModel, asked: ModelRole) -> ModelRole:
    """The package's prior takes no other prior's place: somebody imported that, and nothing was learned since."""
    serving = serving_model(connection, model.horizon_h)
    priors = model.kind == "prior" and serving is not None and serving.kind == "prior"
    return "challenger" if priors else asked


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


def _lesson(
    connection: sa.Connection,
    population: Population,
    moments: Sequence[datetime],
    horizon_h: int,
    run: Executor | None,
) -> tuple[TrainingSet, Dataset]:
    """The rows of one horizon with their answers, without those that hints made uncertain."""
    drawn = sample(population, moments, horizon_h)
    doubtful = uncertain(drawn.rows, drawn.labels, read_hint_periods(connection, population.fleet), horizon_h)
    kept = drawn.only(~doubtful)
    if not len(kept.rows):
        raise _too_short(moments[0], moments[-1])
    data = dataset(connection, population, kept.rows, run=run)
    return TrainingSet(data.values, data.features, kept, horizon_h), data


def _model(lesson: TrainingSet, data: Dataset, end: datetime) -> StoredModel:
    """The model of one horizon, with its hold-out figures."""
    learned = learn(lesson, prior=packaged())
    blob = stored(learned.model)
    sha256 = digest(blob)
    rows, positives = len(data.rows), int(lesson.positive.sum())
    since_ms = lesson.time_ms - lesson.time_ms.min()
    block = since_ms // max(min(DRIFT_OVER_MS, int(since_ms.max()) // _LEAST_BLOCKS + 1), 1)
    used = {data.names[column] for column in np.unique(learned.model.feature)}
    return StoredModel(
        id=f"{learned.kind}-{lesson.horizon_h}h-{sha256[:12]}",
        created=datetime.now(UTC),
        trained_until=end,
        horizon_h=lesson.horizon_h,
        features=data.names,
        metrics={
            "rows": rows,
            "positives": positives,
            "prevalence": ratio(positives, positives + (rows - positives) / lesson.sample.negative_share),
            "nodes": len(data.fleet.names),
            "settings": asdict(learned.settings),
            "last_folds": learned.figures,
            "holdout": _holdout(lesson, learned.settings),
        },
        blob=blob,
        sha256=sha256,
        kind=learned.kind,
        data=data_of(data, lesson.sample.labels),
        code=code_version(data.features),
        why=learned.why,
        profile=profile(data.values, data.names, lesson.stands_for(), block, used),
    )


def _holdout(lesson: TrainingSet, settings: FitSettings) -> dict[str, Any] | None:
    """How trees of the first three quarters do on the last; None where those hold too few outages.

    Where negatives were drawn, they stand for all of them: ranking figures hold, precision is of the drawn rows.
    """
    time_ms = lesson.time_ms
    cut = int(time_ms[0] + (time_ms[-1] - time_ms[0]) * (1 - HOLDOUT_SHARE))
    early, late = time_ms <= cut - (lesson.horizon_h + PURGE_MARGIN_H) * HOUR_MS, time_ms > cut
    try:
        forest = lesson.only(early).fit(settings)
    except TooFewPositivesError:
        return None
    judging = lesson.only(late)
    rows, labels = judging.sample.rows, judging.sample.labels
    judged = Judged(rows.time_ms, rows.node, forest.probability(judging.values), labels)
    positives = int(labels.positive.sum())
    found = {
        "since": from_ms(cut).isoformat(),
        "positives": positives,
        "prevalence": ratio(positives, len(judged.scores)),
        **discrimination(judged),
    }
    if not 0 < positives < len(judged.scores):
        return found
    ranks = {name: one.rank(judging) for name, one in lesson.baselines.items()}
    sure = with_intervals(judged, ranks, None)
    others = {name: discrimination(Judged(rows.time_ms, rows.node, rank, labels)) for name, rank in ranks.items()}
    baselines = {name: {**figures, "intervals": sure["baselines"][name]} for name, figures in others.items()}
    return {**found, "intervals": sure["intervals"], "baselines": baselines}

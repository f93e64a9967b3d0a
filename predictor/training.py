"""Training: fit a model for each horizon on all that is known until a moment, and register it in the store."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import sqlalchemy as sa

from predictor.backtest import Progress
from predictor.dataset import Dataset, Population, Sample, dataset, read_population, sample
from predictor.evaluation import Judged, discrimination, ratio
from predictor.folds import NoDataError, grid
from predictor.forest import digest, to_bytes
from predictor.history import HOUR_MS, from_ms, to_ms
from predictor.labels import HORIZONS_H
from predictor.model import TooFewPositivesError, fit
from predictor.reading import data_span
from store.database import writing
from store.model import StoredModel
from store.save_scores import save_model

LEARN_CADENCE_H = 12.0
# The last part of the data judges a model that learned from the rest: its figures are kept with the final model.
HOLDOUT_SHARE = 0.25


def train(
    engine: sa.Engine,
    until: datetime | None = None,
    horizons_h: Sequence[int] = HORIZONS_H,
    progress: Progress | None = None,
) -> list[str]:
    """Fit, judge on a hold-out, and register one model a horizon. Returns their ids.

    Args:
        until: learn from what was known then; None takes all.

    Raises:
        NoDataError: the store is empty or too short.
        TooFewPositivesError: too few outages were seen.
    """
    with engine.connect() as connection:
        span = data_span(connection)
        if span is None:
            raise NoDataError("the database holds no events, outages or telemetry: run `foreshock ingest` first")
        end = span[1] if until is None else min(until, span[1])
        moments = grid(span[0] + timedelta(days=1), end - timedelta(hours=min(horizons_h)), LEARN_CADENCE_H)
        if not moments:
            raise NoDataError(f"the data from {span[0]:%Y-%m-%d} to {end:%Y-%m-%d} are too short to learn from")
        population = read_population(connection, to_ms(end))
        models = []
        for number, horizon_h in enumerate(horizons_h, start=1):
            learned = sample(population, moments, horizon_h)
            if not len(learned.rows):
                raise NoDataError(f"the data from {span[0]:%Y-%m-%d} to {end:%Y-%m-%d} are too short to learn from")
            models.append(_fit_horizon(population, learned, dataset(connection, population, learned.rows), horizon_h))
            if progress is not None:
                progress(number, len(horizons_h))
    with writing(engine).begin() as connection:
        for model in models:
            save_model(connection, model)
    return [model.id for model in models]


def _fit_horizon(population: Population, learned: Sample, data: Dataset, horizon_h: int) -> StoredModel:
    """The model of one horizon, with its hold-out figures."""
    forest = fit(data.values, learned.labels.positive, data.features, negative_share=learned.negative_share)
    blob = to_bytes(forest)
    sha256 = digest(blob)
    rows, positives = len(data.rows), int(learned.labels.positive.sum())
    return StoredModel(
        id=f"gbt-{horizon_h}h-{sha256[:12]}",
        created=datetime.now(UTC),
        trained_until=from_ms(population.end_ms),
        horizon_h=horizon_h,
        features=data.names,
        metrics={
            "rows": rows,
            "positives": positives,
            "prevalence": ratio(positives, positives + (rows - positives) / learned.negative_share),
            "nodes": len(population.fleet.names),
            "holdout": _holdout(learned, data, horizon_h),
        },
        blob=blob,
        sha256=sha256,
    )


def _holdout(learned: Sample, data: Dataset, horizon_h: int) -> dict[str, Any] | None:
    """How a model of the first three quarters does on the last; None where those hold too few outages.

    Where negatives were drawn, they stand for all of them: ranking figures hold, precision is of the drawn rows.
    """
    time_ms = data.rows.time_ms
    cut = int(time_ms[0] + (time_ms[-1] - time_ms[0]) * (1 - HOLDOUT_SHARE))
    early, late = time_ms <= cut - (horizon_h + 12) * HOUR_MS, time_ms > cut
    try:
        forest = fit(
            data.values[early], learned.labels.positive[early], data.features, negative_share=learned.negative_share
        )
    except TooFewPositivesError:
        return None
    labels = learned.labels.only(late)
    scores = forest.probability(data.values[late])
    positives = int(labels.positive.sum())
    return {
        "since": from_ms(cut).isoformat(),
        "positives": positives,
        "prevalence": ratio(positives, len(scores)),
        **discrimination(Judged(time_ms[late], data.rows.node[late], scores, labels)),
    }

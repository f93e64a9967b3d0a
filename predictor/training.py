"""Training: fit a model for each horizon on all that is known until a moment, and register it in the store."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import sqlalchemy as sa

from predictor.dataset import Cube, Progress, build_cube
from predictor.evaluation import Judged, discrimination, ratio
from predictor.features import NAMES
from predictor.folds import NoDataError, grid
from predictor.forest import digest, to_bytes
from predictor.history import HOUR_MS, from_ms, to_ms
from predictor.labels import HORIZONS_H, Labels, label
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
        cube = build_cube(connection, moments, progress)
    models = [_fit_horizon(cube, horizon_h, end) for horizon_h in horizons_h]
    with writing(engine).begin() as connection:
        for model in models:
            save_model(connection, model)
    return [model.id for model in models]


def _fit_horizon(cube: Cube, horizon_h: int, end: datetime) -> StoredModel:
    """The model of one horizon, with its hold-out figures."""
    labels = label(cube.fleet, cube.outages, cube.moments_ms, horizon_h, to_ms(end))
    forest = fit(cube.values[labels.known], labels.positive[labels.known])
    blob = to_bytes(forest)
    sha256 = digest(blob)
    rows, positives = int(labels.known.sum()), int(labels.positive.sum())
    return StoredModel(
        id=f"gbt-{horizon_h}h-{sha256[:12]}",
        created=datetime.now(UTC),
        trained_until=end,
        horizon_h=horizon_h,
        features=NAMES,
        metrics={
            "rows": rows,
            "positives": positives,
            "prevalence": ratio(positives, rows),
            "nodes": len(cube.fleet.names),
            "holdout": _holdout(cube, labels, horizon_h),
        },
        blob=blob,
        sha256=sha256,
    )


def _holdout(cube: Cube, labels: Labels, horizon_h: int) -> dict[str, Any] | None:
    """How a model of the first three quarters does on the last; None where those hold too few outages."""
    cut = int(cube.moments_ms[0] + (cube.moments_ms[-1] - cube.moments_ms[0]) * (1 - HOLDOUT_SHARE))
    early = cube.moments_ms <= cut - (horizon_h + 12) * HOUR_MS
    late = cube.moments_ms > cut
    rows = labels.known & early[:, None]
    try:
        forest = fit(cube.values[rows], labels.positive[rows])
    except TooFewPositivesError:
        return None
    known = labels.known[late]
    scores = forest.probability(cube.values[late].reshape(-1, cube.values.shape[2])).reshape(known.shape)
    judged = Judged(
        cube.moments_ms[late],
        scores,
        Labels(labels.at_risk[late], known, labels.positive[late], labels.next_start_ms[late]),
    )
    positives = int(labels.positive[late].sum())
    return {
        "since": from_ms(cut).isoformat(),
        "positives": positives,
        "prevalence": ratio(positives, int(known.sum())),
        **discrimination(judged),
    }

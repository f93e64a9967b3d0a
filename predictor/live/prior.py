"""The prior in service: a site is scored from its first hour, until it has learned from its own outages.

    ensure_prior(engine, at)                  # a champion of each horizon, where there is none
    exported = learned_prior([engine, ...], packaged(), "five simulated clusters")

A prior is registered as any model is: `foreshock models list` and the page Models show it, with how much of it is
local.
"""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import sqlalchemy as sa

from predictor.dataset.dataset import dataset
from predictor.dataset.folds import NoDataError, grid
from predictor.dataset.labels import HORIZONS_H, sample
from predictor.dataset.matrix import FIXED
from predictor.hazard.blend import stored
from predictor.hazard.hazard import HazardEvidence, HazardHours
from predictor.hazard.prior import Prior, weakened
from predictor.history.arrays import from_ms, to_ms
from predictor.history.store_reader import data_span, read_population
from predictor.learning.training_set import TrainingSet, node_hours
from predictor.live.training import register
from predictor.model.forest import digest
from store.database.connections import writing
from store.models.registry import StoredModel, serving_model
from store.records.score import ModelRole

NO_LOCAL = "prior, nothing of this site is in it"
# Time at risk is read twice a day: what is between is within the horizons of the rows before.
_CADENCE_H = 12.0
_MOST_NEGATIVES = 50_000


def ensure_prior(engine: sa.Engine, at: datetime, prior: Prior) -> None:
    """Let the prior serve those horizons that have no model; where there is one, nothing changes."""
    with writing(engine).begin() as connection:
        for horizon_h in HORIZONS_H:
            if serving_model(connection, horizon_h) is None:
                register(connection, prior_model(prior, horizon_h, at, NO_LOCAL), "champion", "prior", at)


def prior_model(prior: Prior, horizon_h: int, at: datetime, why: str) -> StoredModel:
    """A prior as a model of the registry."""
    blob = stored(prior.model(FIXED, horizon_h))
    sha256 = digest(blob)
    return StoredModel(
        id=f"prior-{horizon_h}h-{sha256[:12]}",
        created=datetime.now(UTC),
        trained_until=at,
        horizon_h=horizon_h,
        features=tuple(feature.name for feature in FIXED),
        metrics={"source": prior.source},
        blob=blob,
        sha256=sha256,
        kind="prior",
        why=f"{why}; {prior.source}",
    )


def update_prior(engine: sa.Engine, prior: Prior, at: datetime) -> list[str]:
    """Let a prior take in what this site saw, and serve where no model does that learned here. Returns the ids.

    Raises:
        NoDataError: the store holds too little.
    """
    models = []
    for horizon_h in HORIZONS_H:
        known = prior.evidence[horizon_h].after(_node_hours(engine, horizon_h))
        share = known.local_share(prior.evidence[horizon_h])
        now = Prior({horizon_h: known}, prior.source)
        models.append(prior_model(now, horizon_h, at, f"prior, {share:.0%} of its failures are local"))
    return register_priors(engine, models, at)


def register_priors(engine: sa.Engine, models: Sequence[StoredModel], at: datetime) -> list[str]:
    """Register models of a prior: champions in the place of none and of an earlier prior, else challengers."""
    with writing(engine).begin() as connection:
        for model in models:
            serving = serving_model(connection, model.horizon_h)
            role: ModelRole = "champion" if serving is None or serving.kind == "prior" else "challenger"
            register(connection, model, role, "prior", at)
    return [model.id for model in models]


def learned_prior(engines: Sequence[sa.Engine], source: str, origin: Prior | None = None) -> Prior:
    """What clusters teach together, from `origin` on (nearly nothing, if none), each weighing by its outages.

    Raises:
        NoDataError: one of them holds nothing, or too little.
    """
    found = {}
    for horizon_h in HORIZONS_H:
        known = HazardEvidence.weak(1) if origin is None else origin.evidence[horizon_h]
        for engine in engines:
            known = known.after(_node_hours(engine, horizon_h))
        found[horizon_h] = weakened(known)
    return Prior(found, source)


def _node_hours(engine: sa.Engine, horizon_h: int) -> HazardHours:
    """What a store tells of failures and time at risk."""
    return node_hours(whole_lesson(engine, horizon_h, _MOST_NEGATIVES))


def whole_lesson(engine: sa.Engine, horizon_h: int, negatives: int, after: timedelta = timedelta()) -> TrainingSet:
    """The rows of all that a store tells, `after` so much of it.

    Raises:
        NoDataError: it holds nothing, or too little.
    """
    with engine.connect() as connection:
        span = data_span(connection)
        if span is None:
            raise NoDataError(f"{engine.url.render_as_string()} holds no data: run `foreshock ingest` first")
        population = read_population(connection, to_ms(span[1]))
        last = from_ms(population.end_ms) - timedelta(hours=horizon_h)
        drawn = sample(population, grid(span[0] + after, last, _CADENCE_H), horizon_h, negatives)
        if not len(drawn.rows):
            raise NoDataError(f"{engine.url.render_as_string()} holds less than {horizon_h} hours to learn from")
        data = dataset(connection, population, drawn.rows)
    return TrainingSet(data.values, data.features, drawn, horizon_h)

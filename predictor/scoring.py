"""Scoring: every node at risk at a moment, both horizons, with reasons, saved in the store."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime

import numpy as np
import sqlalchemy as sa
from numpy.typing import NDArray

from predictor.feature import Feature
from predictor.features import aligned, features_of, matrix
from predictor.forest import Forest, ModelError, from_bytes
from predictor.history import Floats, History, to_ms
from predictor.labels import HORIZONS_H, at_risk
from predictor.precursor_features import incidents
from predictor.reading import read_history
from predictor.reasons import Explained, explain, references
from predictor.rows import every
from predictor.wording import MAX_EVENTS, Subject, describe
from store import schema
from store.database import writing
from store.model import StoredModel
from store.read_scores import serving_model
from store.save_scores import save_scores
from store.score import Reason, Score


@dataclass(frozen=True, slots=True)
class _Asked:
    """The rows to be scored: `nodes` are positions in the fleet, `rows` their features."""

    at: datetime
    history: History
    outage_events: Mapping[int, tuple[str, ...]]
    nodes: tuple[int, ...]
    features: tuple[Feature, ...]
    rows: NDArray[np.float32]


def score_nodes(engine: sa.Engine, at: datetime) -> list[Score]:
    """Score every node that is in service and not out at a moment, and save the scores.

    The newest model that had learned from nothing later than `at` is used, else the newest one.
    The score of a longer horizon is never below that of a shorter one.

    Raises:
        ModelError: there is no model, or the stored one cannot be used.
    """
    with engine.connect() as connection:
        models = [model for horizon_h in HORIZONS_H if (model := serving_model(connection, horizon_h, at)) is not None]
        if not models:
            raise ModelError("there is no model yet: run `foreshock train` first")
        history = read_history(connection, at, at)
        outage_events = _outage_events(connection, history, at)
    asked_of = every(len(history.fleet.names), [at])
    asked_of = asked_of.only(at_risk(history.fleet, history.outages, asked_of))
    features, nodes = features_of(history), tuple(asked_of.node.tolist())
    asked = _Asked(at, history, outage_events, nodes, features, matrix(history, asked_of))
    scores: list[Score] = []
    floor = np.zeros(len(nodes))
    for model in sorted(models, key=lambda model: model.horizon_h):
        forest = _load(model)
        known = _known_to(model, asked)
        floor = np.maximum(forest.probability(known.rows), floor)
        scores += _scores(known, model, forest, floor)
    with writing(engine).begin() as connection:
        save_scores(connection, scores)
    return scores


def _load(model: StoredModel) -> Forest:
    return from_bytes(model.blob, model.sha256)


def _known_to(model: StoredModel, asked: _Asked) -> _Asked:
    """The columns that a model learned from; one that is not told any more is unknown."""
    by_name = {feature.name: feature for feature in asked.features}
    names = tuple(by_name)
    features = tuple(by_name.get(name) or Feature(name, name.partition(".")[0], None) for name in model.features)
    return replace(asked, features=features, rows=aligned(asked.rows, names, model.features))


def _outage_events(connection: sa.Connection, history: History, at: datetime) -> dict[int, tuple[str, ...]]:
    """The ids of the unplanned outages' events before a moment, by node, newest last."""
    events, outages = schema.events, schema.outages
    query = (
        sa.select(events.c.node, events.c.id)
        .join(outages, sa.and_(outages.c.node == events.c.node, outages.c.start == events.c.time))
        .where(events.c.kind == "outage", events.c.time < at, outages.c.planned.is_(False))
        .order_by(events.c.time, events.c.id)
    )
    index = history.fleet.index
    found: dict[int, list[str]] = {}
    for node, event in connection.execute(query):
        if node in index:
            found.setdefault(index[node], []).append(event)
    return {node: tuple(ids[-MAX_EVENTS:]) for node, ids in found.items()}


def _scores(asked: _Asked, model: StoredModel, forest: Forest, probability: Floats) -> list[Score]:
    explained = explain(forest, asked.rows, asked.features, references(asked.rows, asked.features))
    opens = incidents(asked.history.precursors)
    names = [feature.name for feature in asked.features]
    found = []
    for row, node in enumerate(asked.nodes):
        features = dict(zip(names, asked.rows[row].tolist(), strict=True))
        subject = Subject(asked.history, opens, asked.outage_events, to_ms(asked.at), node, features)
        found.append(
            Score(
                node=asked.history.fleet.names[node],
                time=asked.at,
                horizon_h=model.horizon_h,
                score=float(probability[row]),
                reasons=_reasons(explained, row, subject, float(probability[row])),
                model=model.id,
            )
        )
    return found


def _reasons(explained: Explained, row: int, subject: Subject, score: float) -> tuple[Reason, ...]:
    """The reasons, strongest first, and what they leave of the score: they add up to it."""
    groups = explained.strongest(row)
    if not groups:
        return (Reason("no sign of trouble in 28 days: the base rate of nodes like it", score),)
    found = []
    for group, contribution in groups:
        text, events = describe(group, subject)
        found.append(Reason(text, contribution, events))
    rest = score - sum(contribution for _, contribution in groups)
    return (*found, Reason("the base rate, and everything else that raises or lowers it", rest))

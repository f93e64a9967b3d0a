"""Scoring: every node at risk at a moment, both horizons, with reasons, saved in the store.

scorer = Scorer(engine)
scorer.score(now)      # again and again: the cost follows what is new
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

import numpy as np
import sqlalchemy as sa

from predictor.feature import Feature
from predictor.features import aligned
from predictor.forest import Forest, ModelError, from_bytes
from predictor.history import DAY_MS, Bools, Grid, History, Ints, to_ms
from predictor.labels import HORIZONS_H
from predictor.live import Live
from predictor.precursor_features import incidents
from predictor.reasons import explain, references
from predictor.wording import MAX_EVENTS, Subject, describe
from store import schema
from store.database import writing
from store.model import StoredModel
from store.read_scores import scoring_times, serving_model
from store.save_scores import forget_scoring, save_scores
from store.score import Reason, Score
from store.telemetry import hour_of

# Scorings older than this are kept by the hour: their first of each. Pages of a list that was begun still find theirs.
ALL_KEPT = timedelta(minutes=15)
_THINNED_OVER = timedelta(hours=2)
_QUIET = "no sign of trouble in 28 days: the base rate of nodes like it"
_REST = "the base rate, and everything else that raises or lowers it"


@dataclass(frozen=True, slots=True)
class _Asked:
    """The rows to be scored: `nodes` are positions in the fleet, `rows` their features."""

    at: datetime
    history: History
    incident: Bools
    by_node: Ints  # positions of the precursors of 28 days, sorted by node, each node's in order of time
    first: Ints  # where each node's begin in `by_node`
    outage_events: Mapping[int, tuple[str, ...]]
    nodes: tuple[int, ...]
    features: tuple[Feature, ...]
    rows: Grid

    def subject(self, row: int, place: Mapping[str, int]) -> Subject:
        """One row's node, with what its reasons are worded from."""
        node = self.nodes[row]
        return Subject(
            self.history,
            self.incident,
            self.outage_events.get(node, ()),
            to_ms(self.at),
            self.by_node[self.first[node] : self.first[node + 1]],
            _Figures(place, self.rows[row]),
        )


def score_nodes(engine: sa.Engine, at: datetime) -> list[Score]:
    """Score every node once: `Scorer.score` of a scorer that knows nothing yet."""
    return Scorer(engine).score(at)


class Scorer:
    """Scores the fleet again and again. Not for several threads at once."""

    def __init__(self, engine: sa.Engine) -> None:
        self._engine = engine
        self._live = Live(engine)
        self._forests: dict[str, Forest] = {}
        self._outages = -1
        self._outage_events: dict[int, tuple[str, ...]] = {}
        self._saved: list[datetime] | None = None

    def score(self, at: datetime) -> list[Score]:
        """Score every node that is in service and not out at a moment, and save the scores.

        The newest model that had learned from nothing later than `at` is used, else the newest one.
        The score of a longer horizon is never below that of a shorter one.

        Raises:
            ModelError: there is no model, or the stored one cannot be used.
        """
        with self._engine.connect() as connection:
            found = [serving_model(connection, horizon_h, at) for horizon_h in HORIZONS_H]
        models = sorted((model for model in found if model is not None), key=lambda model: model.horizon_h)
        if not models:
            raise ModelError("there is no model yet: run `foreshock train` first")
        asked = self._ask(at, {name for model in models for name in model.features})
        self._forests = {model.id: self._forests.get(model.id) or _load(model) for model in models}
        scores: list[Score] = []
        floor = np.zeros(len(asked.nodes))
        words = _Words(asked, {feature.name: place for place, feature in enumerate(asked.features)})
        for model in models:
            known = _known_to(model, asked)
            explained = explain(
                self._forests[model.id], known.rows, known.features, references(known.rows, known.features)
            )
            floor = np.maximum(explained.probability, floor)
            told = zip(asked.nodes, explained.all_strongest(), floor.tolist(), strict=True)
            for row, (node, groups, value) in enumerate(told):
                reasons = words.reasons(groups, row, value)
                scores.append(Score(asked.history.fleet.names[node], at, model.horizon_h, value, reasons, model.id))
        self._save(scores, at)
        return scores

    def _ask(self, at: datetime, wanted: set[str]) -> _Asked:
        look = self._live.look(at, wanted)
        precursors = look.history.precursors
        recent = np.flatnonzero(precursors.time_ms >= to_ms(at) - 28 * DAY_MS)
        by_node = recent[np.argsort(precursors.node[recent], kind="stable")]
        first = np.searchsorted(precursors.node[by_node], np.arange(len(look.history.fleet.names) + 1))
        if len(look.history.outages.node) != self._outages:
            with self._engine.connect() as connection:
                self._outage_events = _outage_events(connection, look.history, at)
            self._outages = len(look.history.outages.node)
        nodes = tuple(look.rows.node.tolist())
        events = self._outage_events
        return _Asked(
            at, look.history, incidents(precursors), by_node, first, events, nodes, look.features, look.values
        )

    def _save(self, scores: list[Score], at: datetime) -> None:
        """Save a scoring; of those that nobody pages through any more, the first of each hour stays."""
        with writing(self._engine).begin() as connection:
            if self._saved is None:
                self._saved = scoring_times(connection, at - _THINNED_OVER, at)
            save_scores(connection, scores)
            kept: list[datetime] = []
            thinned: list[datetime] = []
            for moment in self._saved:
                first = not kept or hour_of(kept[-1]) != hour_of(moment)
                (kept if first or moment >= at - ALL_KEPT else thinned).append(moment)
            for moment in thinned:
                forget_scoring(connection, moment)
        self._saved = [moment for moment in kept if moment >= at - _THINNED_OVER] + [at]


def _load(model: StoredModel) -> Forest:
    forest = from_bytes(model.blob, model.sha256)
    if len(forest.feature) and int(forest.feature.max()) >= len(model.features):
        raise ModelError(f"model {model.id} asks for features that it does not name: run `foreshock train` again")
    return forest


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


@dataclass(frozen=True, slots=True)
class _Figures(Mapping[str, float]):
    """One row's features by name, looked up only when a reason speaks of them."""

    place: Mapping[str, int]
    row: Grid

    def __getitem__(self, name: str) -> float:
        return float(self.row[self.place[name]])

    def __iter__(self) -> Iterator[str]:
        return iter(self.place)

    def __len__(self) -> int:
        return len(self.place)


@dataclass(frozen=True, slots=True)
class _Words:
    """Reasons in words. What a group says of a node is said once for all horizons."""

    asked: _Asked
    place: Mapping[str, int]
    said: dict[tuple[int, str], tuple[str, tuple[str, ...]]] = field(default_factory=dict)

    def reasons(self, groups: list[tuple[str, float]], row: int, score: float) -> tuple[Reason, ...]:
        """The reasons, strongest first, and what they leave of the score: they add up to it."""
        if not groups:
            return (Reason(_QUIET, score),)
        found = [Reason(*self._of(group, row, contribution)) for group, contribution in groups]
        return (*found, Reason(_REST, score - sum(contribution for _, contribution in groups)))

    def _of(self, group: str, row: int, contribution: float) -> tuple[str, float, tuple[str, ...]]:
        said = self.said.get((row, group))
        if said is None:
            said = self.said[row, group] = describe(group, self.asked.subject(row, self.place))
        return said[0], contribution, said[1]

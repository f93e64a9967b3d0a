"""Scoring: every node at risk at a moment, both horizons, with reasons, saved in the store.

scorer = Scorer(engine)
scorer.score(now)      # again and again: the cost follows what is new
"""

import gc
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

import numpy as np
import orjson
import sqlalchemy as sa

from predictor.dataset.labels import HORIZONS_H
from predictor.dataset.matrix import aligned
from predictor.hazard.blend import HazardBlend, loaded
from predictor.hazard.prior import packaged
from predictor.history.arrays import Feature, Grid, Ints, to_ms
from predictor.live.live_history import LiveHistory
from predictor.live.reasons import Explanation, explain, references
from predictor.live.wording import MAX_EVENTS, ExplainedNode, PrecursorIndex, Sentence, describe_all
from predictor.model.forest import Forest, ModelError
from store.database.connections import writing
from store.models.registry import StoredModel, serving_model
from store.models.scores import ScoreRow, forget_scoring, save_scoring_in_blocks, scores_of, scoring_times
from store.records.score import Score
from store.records.telemetry import hour_of
from store.tables import schema

# Scorings older than this are kept by the hour: their first of each. Pages of a list that was begun still find theirs.
ALL_KEPT = timedelta(minutes=15)
_THINNED_OVER = timedelta(hours=2)
# Nodes whose reasons are worded before their scores are handed on.
_AT_ONCE = 1_000
_QUIET = "no sign of trouble in 28 days: the base rate of nodes like it"
_REST = "the base rate, and everything else that raises or lowers it"
_OF_PRIOR = " (as other clusters taught: a prior, with few or no outages of this site in it)"


@dataclass(frozen=True, slots=True)
class _ScoringRows:
    """The rows to be scored: `nodes` are positions in the fleet, `rows` their features."""

    at: datetime
    names: tuple[str, ...]
    signs: PrecursorIndex
    outage_events: Mapping[str, tuple[str, ...]]
    nodes: Ints
    features: tuple[Feature, ...]
    rows: Grid

    def said(self, wanted: Mapping[tuple[int, str], None]) -> dict[tuple[int, str], Sentence]:
        """What groups of features say of rows."""
        place = {feature.name: at for at, feature in enumerate(self.features)}

        def subject(row: int) -> ExplainedNode:
            node = int(self.nodes[row])
            events = self.outage_events.get(self.names[node], ())
            return ExplainedNode(self.signs, node, events, _FeatureValues(place, self.rows[row]))

        return describe_all(wanted, self.signs, subject, self.nodes)


def score_nodes(engine: sa.Engine, at: datetime) -> list[Score]:
    """Score every node once, by a scorer that knows nothing yet; the scores, by horizon and node."""
    Scorer(engine).score(at)
    with engine.connect() as connection:
        return scores_of(connection, at)


class Scorer:
    """Scores the fleet again and again. Not for several threads at once."""

    def __init__(self, engine: sa.Engine) -> None:
        self._engine = engine
        self._live = LiveHistory(engine)
        self._forests: dict[str, Forest | HazardBlend] = {}
        self._outages: tuple[bytes, ...] = ()
        self._outage_events: dict[str, tuple[str, ...]] = {}
        self._saved: list[datetime] | None = None

    def score(self, at: datetime) -> int:
        """Score every node that is in service and not out at a moment, and save the scores; how many they are.

        The newest model that had learned from nothing later than `at` is used, else the newest one; where there is none
        yet, the prior of the package serves, and is registered as a model.
        The score of a longer horizon is never below that of a shorter one.

        Raises:
            ModelError: the stored model cannot be used.
        """
        with self._engine.connect() as connection:
            found = [serving_model(connection, horizon_h, at) for horizon_h in HORIZONS_H]
        if None in found:
            from predictor.live.prior import ensure_prior  # which needs scikit-learn: scoring by a model does without

            ensure_prior(self._engine, at, packaged())
            with self._engine.connect() as connection:
                found = [serving_model(connection, horizon_h, at) for horizon_h in HORIZONS_H]
        models = sorted((model for model in found if model is not None), key=lambda model: model.horizon_h)
        self._forests = {model.id: self._forests.get(model.id) or _load(model) for model in models}
        with _garbage_collection_paused():
            requested = self._ask(at, {name for model in models for name in model.features})
            return self._save(
                _rows(requested, [(model, self._explain(model, requested)) for model in models]), models, at
            )

    def _explain(self, model: StoredModel, requested: _ScoringRows) -> Explanation:
        known = _columns_of_model(model, requested)
        return explain(self._forests[model.id], known.rows, known.features, references(known.rows, known.features))

    def _ask(self, at: datetime, wanted: set[str]) -> _ScoringRows:
        look = self._live.look(at, wanted)
        fleet, outages = look.history.fleet, look.history.outages
        unplanned = outages.only(~outages.planned)
        seen = (unplanned.node.tobytes(), unplanned.start_ms.tobytes())
        if seen != self._outages:
            with self._engine.connect() as connection:
                self._outage_events = _outage_events(connection, at)
            self._outages = seen
        signs = PrecursorIndex.of(look.history.precursors, len(fleet.names), to_ms(at))
        return _ScoringRows(at, fleet.names, signs, self._outage_events, look.rows.node, look.features, look.values)

    def _save(self, made: Iterator[ScoreRow], models: Sequence[StoredModel], at: datetime) -> int:
        """Save a scoring; of those that nobody pages through any more, the first of each hour stays."""
        with writing(self._engine).begin() as connection:
            if self._saved is None:
                self._saved = scoring_times(connection, at - _THINNED_OVER, at)
            saved = save_scoring_in_blocks(connection, at, [model.horizon_h for model in models], made)
            kept: list[datetime] = []
            thinned: list[datetime] = []
            for moment in self._saved:
                first = not kept or hour_of(kept[-1]) != hour_of(moment)
                (kept if first or moment >= at - ALL_KEPT else thinned).append(moment)
            for moment in thinned:
                forget_scoring(connection, moment)
        self._saved = [moment for moment in kept if moment >= at - _THINNED_OVER] + [at]
        return saved


def _load(model: StoredModel) -> Forest | HazardBlend:
    forest = loaded(model.blob, model.sha256)
    if len(forest.feature) and int(forest.feature.max()) >= len(model.features):
        raise ModelError(f"model {model.id} asks for features that it does not name: run `foreshock train` again")
    return forest


def _columns_of_model(model: StoredModel, requested: _ScoringRows) -> _ScoringRows:
    """The columns that a model learned from; one that is not told any more is unknown."""
    by_name = {feature.name: feature for feature in requested.features}
    names = tuple(by_name)
    features = tuple(by_name.get(name) or Feature(name, name.partition(".")[0], None) for name in model.features)
    return replace(requested, features=features, rows=aligned(requested.rows, names, model.features))


def _outage_events(connection: sa.Connection, at: datetime) -> dict[str, tuple[str, ...]]:
    """The ids of the unplanned outages' events before a moment, by the node's name, newest last."""
    events, outages = schema.events, schema.outages
    query = (
        sa.select(events.c.node, events.c.id)
        .join(outages, sa.and_(outages.c.node == events.c.node, outages.c.start == events.c.time))
        .where(events.c.kind == "outage", events.c.time < at, outages.c.planned.is_(False))
        .order_by(events.c.time, events.c.id)
    )
    found: dict[str, list[str]] = {}
    for node, event in connection.execute(query):
        found.setdefault(node, []).append(event)
    return {node: tuple(ids[-MAX_EVENTS:]) for node, ids in found.items()}


@contextmanager
def _garbage_collection_paused() -> Iterator[None]:
    """Let the collector of circles rest: a scoring makes 100,000 objects, none of them in a circle.

    It would look at those that it knows already a dozen times meanwhile, which took a quarter of a scoring.
    """
    worked = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if worked:
            gc.enable()


def _rows(requested: _ScoringRows, explained: Sequence[tuple[StoredModel, Explanation]]) -> Iterator[ScoreRow]:
    """The scores of all models, some nodes at a time: the first are being saved as the next ones are worded.

    The reasons of a row are the strongest first, and in the last what they leave of the score: they add up to it. What
    a group says of a node is said, and written, once for all models: as text at once, not as 100,000 objects.
    """
    names = [requested.names[node] for node in requested.nodes.tolist()]
    highest = np.maximum.accumulate([one.probability for _, one in explained])
    told = [
        (model, one.all_strongest(), scores) for (model, one), scores in zip(explained, highest.tolist(), strict=True)
    ]
    for first in range(0, len(names), _AT_ONCE):
        rows = range(first, min(first + _AT_ONCE, len(names)))
        wanted = dict.fromkeys((row, group) for _, strongest, _ in told for row in rows for group, _ in strongest[row])
        said = {which: _written(*sentence) for which, sentence in requested.said(wanted).items()}
        for model, strongest, scores in told:
            origin = _OF_PRIOR if model.kind == "prior" else ""
            quiet, rest = _written(_QUIET + origin), _written(_REST + origin)
            found = [[said[row, group] for group, _ in strongest[row]] for row in rows]
            added = [[by for _, by in strongest[row]] for row in rows]
            left = [scores[row] - sum(parts) for row, parts in zip(rows, added, strict=True)]
            numbers = iter(_numbers([by for parts, last in zip(added, left, strict=True) for by in (*parts, last)]))
            for row, reasons in zip(rows, found, strict=True):
                written = ",".join(
                    [f"{begin}{next(numbers)}{end}" for begin, end in (*reasons, rest if reasons else quiet)]
                )
                yield names[row], model.horizon_h, requested.at, scores[row], f"[{written}]", model.id


def _numbers(values: Sequence[float]) -> list[str]:
    """Numbers in JSON: many at once cost a tenth of one after another."""
    return orjson.dumps(values).decode()[1:-1].split(",")


def _written(text: str, events: tuple[str, ...] = ()) -> tuple[str, str]:
    """A reason in JSON, as far as its contribution and what follows it."""
    return f'{{"text":{orjson.dumps(text).decode()},"contribution":', f',"events":{orjson.dumps(events).decode()}}}'


@dataclass(frozen=True, slots=True)
class _FeatureValues(Mapping[str, float]):
    """One row's features by name, looked up only when a reason speaks of them."""

    place: Mapping[str, int]
    row: Grid

    def __getitem__(self, name: str) -> float:
        return self.row.item(self.place[name])

    def __iter__(self) -> Iterator[str]:
        return iter(self.place)

    def __len__(self) -> int:
        return len(self.place)

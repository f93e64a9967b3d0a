"""Champion and challengers: what each would have said of the same nodes at the same moments, judged by what came.

    score_beside(engine, now)                  # twice a day: a row each in `scorings`
    for verdict in judge(engine, now): ...     # a challenger that is surely better becomes the champion

A challenger's scores are never served. It is promoted when, over enough days and outages of the trial, its average
precision is above the champion's in nine of ten draws of the nodes, and its scores come true about as often as they
say. One that has not shown that within `most_days` is rejected.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import numpy as np
import sqlalchemy as sa

from predictor.dataset.labels import HORIZONS_H, Labels, at_risk, label, read_hint_periods, uncertain
from predictor.dataset.matrix import aligned, features_of, matrix
from predictor.hazard.blend import loaded
from predictor.history.arrays import HOUR_MS, Population, Rows, every, from_ms, to_ms
from predictor.history.store_reader import read_history, read_population
from predictor.history.what_failed import failure_classes
from predictor.live.drift import DRIFT_OVER_MS, calibration, compare, spread, total_spread
from predictor.live.trial_settings import TrialSettings
from predictor.model.riskiest import NodeLosses, list_record
from predictor.model.skill import (
    Judged,
    drawn_figures,
    foreseen,
    lead_times_by_class,
    node_weights,
    outages_of,
    reliability,
)
from store.database.connections import writing
from store.models.registry import StoredModel, challengers, give_role, save_checks, serving_model
from store.models.scorings import Scoring, drop_scorings, newest_moment, read_scorings, save_scoring
from store.plural import many
from store.runs.losses import OF_THE_NODE
from store.tables import run_tables

BY = "trial"
# An outage may be told of late: what ended so recently is not taken for an answer yet.
_SETTLES = timedelta(hours=6)
_DRIFT_OVER = timedelta(milliseconds=DRIFT_OVER_MS)
# Of a week's scorings so many must be there: two days are like no week.
_LEAST_SHARE = 0.7


@dataclass(frozen=True, slots=True)
class TrialOutcome:
    """What a look at one challenger came to: `promoted`, `rejected`, or `on trial` for longer; why, in words."""

    model: str
    outcome: str
    why: str


def score_beside(engine: sa.Engine, now: datetime, settings: TrialSettings | None = None) -> int:
    """Have every champion and challenger score, unless the champions did a short while ago; returns how many did.

    Raises:
        ModelError: a stored model cannot be used.
    """
    settings = settings or TrialSettings()
    with engine.connect() as connection:
        models = [model for horizon_h in HORIZONS_H for model in _on_trial(connection, horizon_h)]
        last = [newest_moment(connection, model.id) for model in models]
        due = now - timedelta(hours=settings.every_h)
        if not models or all(moment is not None and moment > due for moment in last):
            return 0
        history = read_history(connection, now, now)
    rows = every(len(history.fleet.names), [now])
    rows = rows.only(at_risk(history.fleet, history.outages, rows))
    names = tuple(feature.name for feature in features_of(history))
    values = matrix(history, rows)
    nodes = [history.fleet.names[node] for node in rows.node]
    found = []
    for model in models:
        scores = loaded(model.blob, model.sha256).probability(aligned(values, names, model.features))
        reported = dict(zip(nodes, scores.tolist(), strict=True))
        counts = spread(model.profile, values, names) if model.profile else {}
        found.append(Scoring(model.id, model.horizon_h, now, reported, counts))
    with writing(engine).begin() as connection:
        for scoring in found:
            save_scoring(connection, scoring)
        drop_scorings(connection, now - timedelta(days=settings.keep_days))
    return len(found)


def _on_trial(connection: sa.Connection, horizon_h: int) -> list[StoredModel]:
    """The champion of a horizon, and the challengers after it; none without a champion."""
    champion = serving_model(connection, horizon_h)
    return [] if champion is None else [champion, *challengers(connection, horizon_h)]


def judge(engine: sa.Engine, now: datetime, settings: TrialSettings | None = None) -> list[TrialOutcome]:
    """Look at every challenger, promote or reject it, and note what was found of champions and challengers."""
    settings = settings or TrialSettings()
    verdicts: list[TrialOutcome] = []
    with engine.connect() as connection:
        population = read_population(connection, to_ms(now - _SETTLES))
        for horizon_h in HORIZONS_H:
            verdicts += _judge_horizon(engine, _TrialCase(connection, population, now, settings, horizon_h))
    return verdicts


@dataclass(frozen=True, slots=True)
class _TrialCase:
    """What the models of one horizon are judged with."""

    connection: sa.Connection
    population: Population
    now: datetime
    settings: TrialSettings
    horizon_h: int

    def said(self, model: StoredModel, since: datetime) -> dict[datetime, Scoring]:
        """A model's scorings from a moment on, none of which it had learned from."""
        begin = max(since, model.trained_until)
        return {scoring.time: scoring for scoring in read_scorings(self.connection, model.id, begin)}

    def labels(self, rows: Rows) -> Labels:
        """What came of rows; those that a hint made uncertain are unknown."""
        found = label(self.population.fleet, self.population.outages, rows, self.horizon_h, self.population.end_ms)
        doubtful = uncertain(rows, found, read_hint_periods(self.connection, self.population.fleet), self.horizon_h)
        return Labels(found.at_risk, found.known & ~doubtful, found.positive, found.next_start_ms)

    def judged(self, said: Sequence[dict[datetime, Scoring]]) -> list[Judged]:
        """The rows that all of several models scored, and whose answer is known, once for each model."""
        index = self.population.fleet.index
        moments = sorted(set.intersection(*(set(one) for one in said)))
        rows, scores = [], []
        for moment in moments:
            here = [one[moment].scores for one in said]
            nodes = sorted(index[node] for node in set.intersection(*(set(one) for one in here)) if node in index)
            names = [self.population.fleet.names[node] for node in nodes]
            rows.append((np.array(nodes, dtype=np.int64), np.full(len(nodes), to_ms(moment), dtype=np.int64)))
            scores.append(np.array([[one[name] for name in names] for one in here]).reshape(len(here), -1))
        if not rows:
            return []
        requested = Rows(*(np.concatenate(part) for part in zip(*rows, strict=True)))
        labels = self.labels(requested)
        both = np.concatenate(scores, axis=1)
        found = [Judged(requested.time_ms, requested.node, one, labels) for one in both]
        return [one.only(one.known) for one in found]


def _judge_horizon(engine: sa.Engine, court: _TrialCase) -> Iterator[TrialOutcome]:
    models = _on_trial(court.connection, court.horizon_h)
    if not models:
        return
    champion, *others = models
    found: dict[str, dict[str, Any]] = {model.id: checks(court, model) for model in models}
    verdicts: list[TrialOutcome] = []
    for other in others:
        verdict, trial = _compare(court, champion, other, found[other.id]["calibration"])
        found[other.id]["trial"] = {**trial, "against": champion.id}
        verdicts.append(verdict)
    # Of several that are better now, the newest serves; the others are on trial against it from here on.
    better = [verdict for verdict in verdicts if verdict.outcome == "promoted"]
    with writing(engine).begin() as connection:
        for ident, one in found.items():
            save_checks(connection, ident, one)
        for verdict in verdicts:
            if verdict.outcome == "rejected":
                give_role(connection, verdict.model, "rejected", verdict.why, BY, court.now)
        if better:
            give_role(connection, better[-1].model, "champion", better[-1].why, BY, court.now)
    yield from (v for v in verdicts if v.outcome != "promoted" or v is better[-1])


def checks(court: _TrialCase, model: StoredModel) -> dict[str, Any]:
    """Whether a model's scores come true, and whether the nodes still look as they did when it learned."""
    settings = court.settings
    said = court.said(model, court.now - timedelta(days=settings.calibration_days))
    reported = court.judged([said])
    come: dict[str, Any] = {"state": "unknown"}
    parts: list[dict[str, Any]] = []
    # Of a model that is young nothing that it said has been answered yet.
    answered = bool(reported) and len(reported[0].scores) > 0
    if answered:
        come = calibration(reported[0].node, reported[0].scores, reported[0].labels.positive)
        parts = reliability(reported[0])
    recent = [one.spread for moment, one in said.items() if moment > court.now - _DRIFT_OVER and one.spread]
    looks: dict[str, Any] = {"state": "unknown", "alarms": []}
    if recent and model.profile and len(recent) * timedelta(hours=settings.every_h) >= _LEAST_SHARE * _DRIFT_OVER:
        counts = total_spread(recent)
        nodes = int(max(sum(one) for one in recent[-1].values()))
        looks = {**compare(model.profile, counts, (int(model.data.get("nodes", nodes)), nodes)), "moments": len(recent)}
    told = {"calibration": come, "reliability": parts, "drift": looks}
    return {"checked": court.now.isoformat(), **told, **(_use(court, reported[0]) if answered else {})}


def _use(court: _TrialCase, judged: Judged) -> dict[str, Any]:
    """What the scores were worth to a person: the record of lists of the riskiest nodes, and lead times by class."""
    fleet = court.population.fleet
    found = foreseen(judged)
    outages = [(fleet.names[node], from_ms(start)) for node, start in zip(found.node, found.start_ms, strict=True)]
    leads = lead_times_by_class(found, failure_classes(court.connection, outages))
    return {"lists": list_record(judged, court.horizon_h, _losses(court, judged)), "leads": leads}


def _losses(court: _TrialCase, judged: Judged) -> NodeLosses:
    """What runs lost by faults of nodes from the first judged moment on, as far as their GPUs are known."""
    table, index = run_tables.interruptions.c, court.population.fleet.index
    query = sa.select(table.node, table.time, table.lost_gpu_ms).where(
        table.time > from_ms(int(judged.time_ms.min())), table.time <= court.now, table.cause.in_(OF_THE_NODE)
    )
    lost = [row for row in court.connection.execute(query) if row.lost_gpu_ms is not None and row.node in index]
    return NodeLosses(
        np.array([index[row.node] for row in lost], dtype=np.int64),
        np.array([to_ms(row.time) for row in lost], dtype=np.int64),
        np.array([row.lost_gpu_ms / HOUR_MS for row in lost], dtype=np.float64),
    )


def _compare(
    court: _TrialCase, champion: StoredModel, other: StoredModel, come: dict[str, Any]
) -> tuple[TrialOutcome, dict[str, Any]]:
    """One challenger against the champion, on the moments that both have scored."""
    settings = court.settings
    since = other.since or other.created
    found = court.judged([court.said(champion, since), court.said(other, since)])
    trial: dict[str, Any] = {"days": 0.0, "outages": 0}
    if found and len(found[0].scores):
        ours, theirs = found
        days = float(np.ptp(ours.time_ms)) / 86_400_000
        trial = {"days": round(days, 2), "outages": outages_of(ours), "rows": len(ours.scores)}
        if trial["outages"]:
            weights = node_weights(len(court.population.fleet.names))
            before, after = (drawn_figures(one, weights)["average_precision"] for one in (ours, theirs))
            able = np.isfinite(before) & np.isfinite(after)
            whole = [_precision(one) for one in (ours, theirs)]
            better = float((after > before)[able].mean()) if able.any() else 0.0
            trial |= {"champion": whole[0], "challenger": whole[1], "better_in": round(better, 3)}
    return _outcome(other, trial, come, settings, court.now - since), trial


def _precision(judged: Judged) -> float:
    weights = np.ones((int(judged.node.max()) + 1, 1))
    return round(float(drawn_figures(judged, weights)["average_precision"][0]), 5)


def _outcome(
    other: StoredModel, trial: dict[str, Any], come: dict[str, Any], settings: TrialSettings, age: timedelta
) -> TrialOutcome:
    said = f"{many(trial['outages'], 'outage')} in {trial['days']:g} days"
    enough = trial["days"] >= settings.least_days and trial["outages"] >= settings.least_outages
    if enough:
        said += (
            f": average precision {trial['challenger']:.3f}, the champion's {trial['champion']:.3f}; "
            f"better in {100 * trial['better_in']:.0f} % of draws"
        )
        is_better = trial["challenger"] > trial["champion"] and trial["better_in"] >= settings.sure
        if is_better and come["state"] != "drifted":
            return TrialOutcome(other.id, "promoted", said)
        if is_better:
            said += f"; but {come['observed']:g} outage rows came where it said {come['expected']:g}"
    if age >= timedelta(days=settings.most_days):
        return TrialOutcome(other.id, "rejected", f"not shown to be better in {settings.most_days:g} days: {said}")
    return TrialOutcome(other.id, "on trial", said)

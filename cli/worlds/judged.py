"""How the predictor does in a world: at home in it (learned there), and away (learned where its mechanisms are not).

Rankings of one world are judged on the same rows, daily over the later half, with intervals drawn by node:

| ranking | what it is |
|---|---|
| model | learned in the world itself, in folds that follow each other, as `foreshock backtest` does |
| unaided | the same without the prior: trees, or counting outages where they are not ahead or too few came |
| elsewhere | learned in the other worlds that share no mechanism with it, and from no outage of this one |
| informed | learned in further worlds of the same mechanisms: it knows how such a world works, and sees what we see |
| prior | that of the package alone: from usual worlds, without a label of this one |
| history_count, rules | what needs no learning |
| recency | the shorter ago the node's last unplanned outage began, the higher |
| oracle | the true hazard and the precursors that run: what nobody can see |
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np

from cli.worlds.world import HORIZON_H, USUAL, World, further, oracle_of, store_of
from predictor.dataset.folds import BacktestSettings
from predictor.dataset.labels import TrainingSample, label
from predictor.evaluate.backtest import judge_backtest, read_backtest
from predictor.hazard.prior import Prior, packaged
from predictor.history.arrays import DAY_MS, Feature, Floats, Grid, Ints, Rows, to_ms
from predictor.learning.choice import learn
from predictor.learning.training_set import TrainingSet
from predictor.live.prior import whole_lesson
from predictor.model.fit import TooFewPositivesError
from predictor.model.riskiest import list_record
from predictor.model.skill import (
    CORDON_TOP,
    Judged,
    discrimination,
    drawn_figures,
    flagged_share,
    interval,
    node_weights,
    ratio,
    reliability,
    seen_from,
)

# Enough to learn from, of each world: all positives, and so many negatives.
_NEGATIVES = 8_000
_FIGURES = ("roc_auc", "average_precision")
# Nodes and days of different worlds are different ones.
_APART = 1_000_000
# Rankings that are probabilities.
_PROBABILITIES = ("model", "unaided", "elsewhere", "informed", "prior", "oracle")
# What every ranking is held against on the same rows.
_HELD_AGAINST = ("history_count", "unaided")


@dataclass(frozen=True, slots=True)
class WorldRows:
    """A world's rows: those to learn from, and those judged with what each ranking says of them."""

    world: World
    lesson: TrainingSet
    judged: Judged
    values: Grid  # of the judged rows
    rankings: Mapping[str, Floats]


def read_world(directory: Path, world: World) -> WorldRows:
    """A world's rows and what is said of them by all that needs no other world.

    Raises:
        NoDataError: it is too small.
        LeakageError: something has seen the future.
    """
    engine = store_of(directory, world)
    try:
        rows = read_backtest(engine, BacktestSettings(horizon_h=HORIZON_H))
    finally:
        engine.dispose()
    requested, population = rows.judging.rows, rows.population
    labels = label(population.fleet, population.outages, requested, HORIZON_H, population.end_ms)
    judged = Judged(requested.time_ms, requested.node, np.zeros(len(requested)), labels)
    day = (requested.time_ms - to_ms(world.settings().start)) // DAY_MS
    every_day = oracle_of(directory, world, population.fleet.names, np.arange(world.days))
    rankings = {**rows.ranks(), "oracle": every_day[day, requested.node]}
    # Where too few outages came to learn anything, what needs no learning is judged alone.
    with suppress(TooFewPositivesError):
        rankings["model"] = judge_backtest(rows).judged.scores
        rankings["unaided"] = judge_backtest(replace(rows, prior=None)).judged.scores
    return WorldRows(world, _few_negatives(rows.lesson), judged, rows.judging.values, rankings)


def _few_negatives(lesson: TrainingSet) -> TrainingSet:
    """Enough to learn from beside other worlds."""
    had = int((~lesson.positive).sum())
    return lesson if had <= _NEGATIVES else _thinned(lesson, lesson.sample.negative_share * _NEGATIVES / had, 0)


def read_lesson(directory: Path, world: World) -> TrainingSet:
    """What a world teaches, all of its time.

    Raises:
        NoDataError: it is too small.
    """
    engine = store_of(directory, world)
    try:
        return whole_lesson(engine, HORIZON_H, _NEGATIVES, after=timedelta(days=1))
    finally:
        engine.dispose()


def with_elsewhere(others: Sequence[WorldRows], of: WorldRows) -> WorldRows:
    """The world with the ranking `elsewhere`; as it was where no other world, or too little, is there to learn from."""
    lessons = [one.lesson for one in others if not one.world.shares(of.world)]
    return _with_ranking(of, "elsewhere", lessons, packaged())


def with_informed(directory: Path, count: int, of: WorldRows) -> WorldRows:
    """The world with the ranking `informed`, by so many further worlds of its mechanisms."""
    return _with_ranking(of, "informed", [read_lesson(directory, other) for other in further(of.world, count)], None)


def _with_ranking(of: WorldRows, name: str, lessons: Sequence[TrainingSet], prior: Prior | None) -> WorldRows:
    if not lessons:
        return of
    features = max((lesson.features for lesson in lessons), key=len)
    try:
        learned = learn(pooled_lesson(lessons, features), prior=prior)
    except TooFewPositivesError:
        return of
    scores = learned.model.probability(_as_columns(of.values, of.lesson.features, features))
    return replace(of, rankings={**of.rankings, name: scores})


def pooled_lesson(lessons: Sequence[TrainingSet], features: tuple[Feature, ...]) -> TrainingSet:
    """The rows of several worlds in order of time, as if they were one.

    Of each world as small a share of its negatives as of the one that kept the least: a row stands for as many here
    and there.
    """
    share = min(lesson.sample.negative_share for lesson in lessons)
    node, time_ms, start, positive, values = [], [], [], [], []
    for number, lesson in enumerate(_thinned(lesson, share, seed) for seed, lesson in enumerate(lessons)):
        rows, labels = lesson.sample.rows, lesson.sample.labels
        node.append(rows.node + number * _APART)
        time_ms.append(rows.time_ms)
        start.append(labels.next_start_ms)
        positive.append(labels.positive)
        values.append(_as_columns(lesson.values, lesson.features, features))
    order = np.argsort(np.concatenate(time_ms), kind="stable")
    rows = Rows(np.concatenate(node)[order], np.concatenate(time_ms)[order])
    hits, known = np.concatenate(positive)[order], np.ones(len(order), dtype=np.bool_)
    labels = replace(
        lessons[0].sample.labels,
        at_risk=known,
        known=known,
        positive=hits,
        next_start_ms=np.concatenate(start)[order],
    )
    pooled = TrainingSample(rows, labels, share, lessons[0].sample.cadence_h)
    return TrainingSet(np.concatenate(values)[order], features, pooled, HORIZON_H)


def _thinned(lesson: TrainingSet, share: float, seed: int) -> TrainingSet:
    """A lesson that holds this share of all its negatives, drawn from those that it has."""
    had = lesson.sample.negative_share
    kept = lesson.positive | (np.random.default_rng(seed).random(len(lesson.positive)) < share / had)
    thin = lesson.only(kept)
    left, of = int((~thin.positive).sum()), int((~lesson.positive).sum())
    return replace(thin, sample=replace(thin.sample, negative_share=had * left / of if of else share))


def _as_columns(values: Grid, have: Sequence[Feature], wanted: Sequence[Feature]) -> Grid:
    """Columns in another order; those that are not there are unknown."""
    place = {feature.name: at for at, feature in enumerate(have)}
    found = np.full((len(values), len(wanted)), np.nan, dtype=np.float32)
    for at, feature in enumerate(wanted):
        if feature.name in place:
            found[:, at] = values[:, place[feature.name]]
    return found


def report(worlds: Sequence[WorldRows]) -> dict[str, Any]:
    """`worlds`: each one's figures; `away`: of all but the usual one together, each with its own nodes and days."""
    away = [one for one in worlds if one.world.name != USUAL]
    return {
        "horizon_h": HORIZON_H,
        "worlds": [
            {"world": one.world.name, "mechanisms": list(one.world.mechanisms), "nodes": one.world.nodes,
             "days": one.world.days, "seed": one.world.seed, **_figures(one.judged, one.rankings)}
            for one in worlds
        ],
        "away": _figures(*_together(away)) if away else None,
    }  # fmt: skip


def _together(worlds: Sequence[WorldRows]) -> tuple[Judged, dict[str, Floats]]:
    """All rows of some worlds, with the rankings that every one of them has."""
    names = [name for name in worlds[0].rankings if all(name in one.rankings for one in worlds)]
    apart = [int(number) for number in range(len(worlds))]

    def all_of(columns: Sequence[Ints]) -> Ints:
        return np.concatenate(columns)

    labels = replace(
        worlds[0].judged.labels,
        **{
            name: np.concatenate([getattr(one.judged.labels, name) for one in worlds])
            for name in ("at_risk", "known", "positive", "next_start_ms")
        },
    )
    judged = Judged(
        all_of([one.judged.time_ms + number * 10**12 for number, one in zip(apart, worlds, strict=True)]),
        all_of([one.judged.node + number * _APART for number, one in zip(apart, worlds, strict=True)]),
        np.concatenate([one.judged.scores for one in worlds]),
        labels,
    )
    return judged, {name: np.concatenate([one.rankings[name] for one in worlds]) for name in names}


def _figures(judged: Judged, rankings: Mapping[str, Floats]) -> dict[str, Any]:
    """Every ranking on the rows whose answer is known and that every ranking speaks of."""
    kept = judged.known & np.all([np.isfinite(rank) for rank in rankings.values()], axis=0)
    seen = judged.only(kept)
    nodes, node = np.unique(seen.node, return_inverse=True)
    seen = replace(seen, node=node.ravel().astype(np.int64))
    found: dict[str, Any] = {"rows": len(seen.scores), "positives": int(seen.labels.positive.sum()), "rankings": {}}
    if not seen.labels.positive.any() or seen.labels.positive.all():
        return found
    weights = node_weights(len(nodes))
    scored = {name: replace(seen, scores=rank[kept]) for name, rank in rankings.items()}
    drawn = {name: drawn_figures(one, weights) for name, one in scored.items()}
    of_oracle = discrimination(scored["oracle"])["average_precision"]
    for name, one in scored.items():
        figures = discrimination(one)
        found["rankings"][name] = {
            **{figure: figures[figure] for figure in _FIGURES},
            "recall_at_top": figures["recall_at_top"],
            "intervals": {figure: interval(drawn[name][figure]) for figure in _FIGURES},
            "of_oracle": ratio(figures["average_precision"], of_oracle),
            "over": {
                other: {figure: _gain(drawn[name][figure] - drawn[other][figure]) for figure in _FIGURES}
                for other in _HELD_AGAINST
                if other in drawn
            },
            "top_1": _top(one) if name in _PROBABILITIES else None,
            "lists": list_record(one, HORIZON_H) if name in _PROBABILITIES else None,
            "reliability": reliability(one) if name in _PROBABILITIES else None,
        }
    return found


def _gain(draws: Floats) -> dict[str, Any]:
    """A gain's interval, by node on the same rows, and which gain such a study would have seen."""
    return {"interval": interval(draws), "seen_from": seen_from(draws)}


def _top(judged: Judged) -> dict[str, float | None]:
    """Of the riskiest hundredth of each moment: what was said (the mean score), and what came."""
    share = flagged_share(judged, CORDON_TOP)
    whole = float(share.sum())
    said = ratio(float((share * judged.scores).sum()), whole)
    came = ratio(float(share[judged.labels.positive].sum()), whole)
    return {"said": said, "came": came, "ratio": ratio(said, came) if said is not None and came else None}

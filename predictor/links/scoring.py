"""Scores of links: how likely each is lost within a horizon, with reasons, learned from the store as it is.

    found = score_links(engine, at)      # saved too: `GET /api/v1/links`
    found.scores, found.why

A fabric has too few losses for a registry of models to be worth it: each scoring learns anew from the last year. What
serves is chosen as for nodes: trees that beat counting losses and counting flaps, else the better count.

What is asked of a link's host goes by two further numbers. `own_risk` is what the link's own signs add to the score of
one that shows nothing: no base rate, no age, nor what other links of its switch show (their hosts say it) is in it.
`stop_risk` is that times the share of losses that stop a job here (`predictor/links/stoppages.py`); only trees that
beat both counts tell it, for a count says the same of a link for weeks after it was mended.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

import numpy as np
import sqlalchemy as sa

from predictor.dataset.dataset import Dataset, dataset
from predictor.dataset.folds import NoDataError, grid
from predictor.dataset.labels import TrainingSample, rows_at, sample
from predictor.features.precursors import WINDOWS_D
from predictor.hazard.blend import HazardBlend, stored
from predictor.history.arrays import (
    DAY_MS,
    EVENT_WINDOW_MS,
    HOUR_MS,
    INCIDENT_GAP_MS,
    Feature,
    Floats,
    Grid,
    Ints,
    OutageLog,
    Population,
    Precursors,
    Rows,
    from_ms,
    joined,
    to_ms,
)
from predictor.history.families import FAMILIES, FAMILY_INDEX, INCIDENT
from predictor.history.store_reader import data_span
from predictor.learning.choice import learn
from predictor.learning.training_set import TrainingSet
from predictor.links.cabling import Cabling
from predictor.links.link_log import read_link_log
from predictor.links.stoppages import stop_share
from predictor.links.subjects import LINKS, LinkEvents
from predictor.live.reasons import Explanation, explain, references
from predictor.live.wording import MAX_EVENTS, span, summary_window
from predictor.model.fit import MIN_POSITIVES
from predictor.model.forest import Forest, digest
from store.database.connections import writing
from store.models.scores import LinkScore, save_link_scores
from store.plural import many
from store.records.score import Reason

LEARN_CADENCE_H = 12.0
# As long as a training of nodes looks back (`training.window_days`).
LEARN_DAYS = 365
# A fabric of 15,000 hosts may have 5,000 to 60,000 flaps a day (FIELD D4, HPN).
MOST_LOSSES, LEAST_DAYS = 25_000, 14
_NEIGHBOURS = "neighbours"
_NO_SIGNS = (_NEIGHBOURS, "age", "model")
# Of a host no more than this part of the losses teaches, but so many rows.
_SHARE_OF_HOST, _LEAST_OF_HOST = 8, 2
_LEARNED = ("gbt", "hazard", "blend")
_REST = "the base rate of links, and everything else that raises or lowers it"


@dataclass(frozen=True, slots=True)
class LinkScoring:
    """The scores of all links, the likeliest to be lost first, and what gave them: trees or a count, in words."""

    scores: list[LinkScore]
    why: str


def score_links(engine: sa.Engine, at: datetime, horizon_h: int = 24) -> LinkScoring:
    """Score every link that is up at a moment, and save the scores.

    Raises:
        NoDataError: no link is known, or too little of their past.
        TooFewPositivesError: too few links were lost to learn from.
    """
    with engine.connect() as connection:
        span = data_span(connection)
        if span is None:
            raise NoDataError("the database holds no records: run `foreshock ingest` first")
        told = LinkEvents.of(connection)
        population, cabling = told.population(connection, to_ms(at)), told.known.cabling
        first = max(span[0] + timedelta(days=1), learn_since(population.outages, at))
        moments = grid(first, at - timedelta(hours=horizon_h), LEARN_CADENCE_H)
        if not moments or not population.fleet.names:
            raise NoDataError("no link is known, or too little of their past: ingest the fabric's log and topology")
        drawn, is_vouched = _taught(sample(population, moments, horizon_h), population, cabling)
        requested = rows_at(population, [at])
        data = dataset(connection, population, joined(drawn.rows, requested), told.history)
        learned = len(drawn.rows)
        model = learn(TrainingSet(data.values[:learned], data.features, drawn, horizon_h, LINKS.baselines))
        now = data.values[learned:]
        usual = references(now, data.features)
        explained = explain(model.model, now, data.features, usual)
        own = own_risks(model.model, now, data.features, usual) if is_vouched else None
        share = stop_share(connection, population, cabling, at) if model.kind in _LEARNED else None
        names, window_ms = population.fleet.names, (to_ms(at) - EVENT_WINDOW_MS - INCIDENT_GAP_MS, to_ms(at))
        shown = read_link_log(connection, cabling, names, window_ms, with_ids=True).precursors(*window_ms)
        case = _LinkCase(data, requested, shown, cabling, own, share)
    ident = f"links-{model.kind}-{horizon_h}h-{digest(stored(model.model))[:12]}"
    scores = [_score(case, population, explained, row, (at, horizon_h, ident)) for row in range(len(requested))]
    scores.sort(key=lambda score: (-score.score, score.link))
    with writing(engine).begin() as connection:
        save_link_scores(connection, horizon_h, scores)
    return LinkScoring(scores, model.why)


def learn_since(losses: OutageLog, at: datetime) -> datetime:
    """From when on to learn: a year, or the newest days that hold MOST_LOSSES.

    So many teach as much as more would, and tell of the fabric as it is. Losses of a link within half a day are one
    here, since the same rows speak of them.
    """
    own = losses.only(~losses.planned & (losses.start_ms < to_ms(at)))
    slot_ms, links = round(LEARN_CADENCE_H * HOUR_MS), int(own.node.max(initial=0)) + 1
    slots = np.unique(own.start_ms // slot_ms * links + own.node) // links
    year = at - timedelta(days=LEARN_DAYS)
    if len(slots) <= MOST_LOSSES:
        return year
    newest = from_ms(int(slots[-MOST_LOSSES]) * slot_ms)
    return max(year, min(newest, at - timedelta(days=LEAST_DAYS)))


def _taught(drawn: TrainingSample, population: Population, cabling: Cabling) -> tuple[TrainingSample, bool]:
    """The rows that a model of links may learn from, and whether what it says may have something asked of a node.

    Where the fabric tells of its cables, these alone teach: a node may invent ports that fall day and night, and a
    model that believed it would find every link likely to be lost that fell once. Where nobody but nodes tells of
    cables, there is no better word. Of the losses of one host a part teaches (`_of_many`). Where too few are left, all
    links teach, and nothing is asked.
    """
    of_fabric = cabling.of_fabric
    names = population.fleet.names
    teaches = np.array([not of_fabric or name in of_fabric for name in names])[drawn.rows.node]
    taught = _of_many(drawn.only(teaches), names, cabling)
    return (taught, True) if taught.labels.positive.sum() >= MIN_POSITIVES else (drawn, False)


def _of_many(drawn: TrainingSample, names: Sequence[str], cabling: Cabling) -> TrainingSample:
    """The rows with a part of a host's losses, where all would be more than an eighth of those of everybody, but two.

    A host says itself what it lost, and when: one that makes up losses of its cable teaches no more than that. What is
    kept lies as far apart in time as it did. Of a link between two switches the link stands for the host.
    """
    owners, owner = np.unique([cabling.host(name) or name for name in names], return_inverse=True)
    positive = np.flatnonzero(drawn.labels.positive)
    whose = owner[drawn.rows.node[positive]]
    count = np.bincount(whose, minlength=len(owners))
    most = np.maximum((len(positive) - count) // (_SHARE_OF_HOST - 1), _LEAST_OF_HOST)
    order = np.lexsort((drawn.rows.time_ms[positive], whose))
    of, whole = most[whose[order]], count[whose[order]]
    place = np.arange(len(positive)) - (np.cumsum(count) - count)[whose[order]]
    teaches = (place + 1) * of // whole > place * of // whole
    kept = np.ones(len(drawn.rows), dtype=np.bool_)
    kept[positive[order[~teaches]]] = False
    return drawn.only(kept)


def own_risks(model: Forest | HazardBlend, rows: Grid, features: Sequence[Feature], usual: Grid) -> Floats:
    """By how much each row's own signs raise its probability above that of a link that shows nothing, 0 at the least.

    Args:
        usual: the value of each feature where nothing has happened: what its neighbours show, its age and its model are
            no signs of its own, and are taken as usual.
    """
    no_signs = np.array([feature.group in _NO_SIGNS for feature in features])
    alone = np.where(no_signs, usual, rows)
    found: Floats = np.maximum(model.probability(alone) - model.probability(usual[None, :])[0], 0.0)
    return found


@dataclass(frozen=True, slots=True)
class _LinkCase:
    """What reasons are worded from; what each row's own signs add, and the share of losses that stop a job."""

    data: Dataset
    rows: Rows
    events: Precursors  # of 28 days, with their ids
    cabling: Cabling
    own: Floats | None
    stop_share: float | None


def _score(
    case: _LinkCase, population: Population, explained: Explanation, row: int, about: tuple[datetime, int, str]
) -> LinkScore:
    link = int(case.rows.node[row])
    name = population.fleet.names[link]
    at, horizon_h, model = about
    features = dict(
        zip(case.data.names, case.data.values[len(case.data.rows) - len(case.rows) + row].tolist(), strict=True)
    )
    reasons = [_reason(case, link, group, by, features) for group, by in explained.strongest(row)]
    reasons.append(Reason(_REST, explained.rest(row)))
    own = None if case.own is None else float(case.own[row])
    return LinkScore(
        name,
        case.cabling.ends(name),
        horizon_h,
        at,
        float(explained.probability[row]),
        tuple(reasons),
        model,
        case.cabling.host(name),
        own,
        None if case.stop_share is None or own is None else own * case.stop_share,
    )


def _reason(case: _LinkCase, link: int, group: str, by: float, features: Mapping[str, float]) -> Reason:
    """What a group of features says of a link, and the events behind it."""
    if group in FAMILY_INDEX:
        noun = FAMILIES[FAMILY_INDEX[group]].noun
        return Reason(_counted(case, _mine(case, link, group), noun), by, _ids(case, link, group))
    if group == INCIDENT.name:
        return Reason(_counted(case, _mine(case, link, None), "serious event"), by, _ids(case, link, None))
    if group == "outages":
        times = int(features["outages_28d"])
        text = f"lost {many(times, 'time')}" if times else "not lost"
        text += f" in 28 days{_since(features['outage_age_d'] * 24)}"
        return Reason(text, by, _ids(case, link, "link_flap"))
    if group == _NEIGHBOURS:
        return Reason(said_of_others(features), by)
    if group == "age" and not np.isnan(features["service_age_d"]):
        return Reason(f"in service for {features['service_age_d']:.0f} days", by)
    return Reason(f"its {group.replace('_', ' ')} beside that of other links", by)


def said_of_others(features: Mapping[str, float]) -> str:
    """What the other links of its switch show, in the shortest time in which they show anything."""
    flaps = np.nan_to_num(features["leaf_flaps_24h"])
    if flaps > 0:
        return f"{flaps:.0f} other links of its switch were lost in 24 h"
    times = np.nan_to_num(features["leaf_outages_28d"])
    return f"other links of its switch were lost {many(round(times), 'time')} in 28 days"


def _mine(case: _LinkCase, link: int, family: str | None) -> Ints:
    """The link's events of 28 days: of a family, or all that are serious."""
    events, at_ms = case.events, int(case.rows.time_ms[0])
    first, end = np.searchsorted(events.node, [link, link + 1])
    mine = slice(first, end)
    kept = events.serious[mine] if family is None else events.family[mine] == FAMILY_INDEX[family]
    found: Ints = first + np.flatnonzero(kept & (events.time_ms[mine] >= at_ms - EVENT_WINDOW_MS))
    return found


def _ids(case: _LinkCase, link: int, family: str | None) -> tuple[str, ...]:
    return tuple(case.events.ids[_mine(case, link, family)[-MAX_EVENTS:]].tolist())


def _counted(case: _LinkCase, mine: Ints, noun: str) -> str:
    """How many in the window that tells most, and how long ago the last was."""
    if not len(mine):
        return f"no {noun} in 28 days"
    age_ms = int(case.rows.time_ms[0]) - case.events.time_ms[mine]
    held = np.array([(age_ms <= window * DAY_MS).sum() for window in WINDOWS_D])
    window = int(summary_window(held))
    text = f"{many(held[window], noun)} in {span(WINDOWS_D[window])}"
    return text + _since(float(age_ms[-1]) / HOUR_MS)


def _since(age_h: float) -> str:
    if np.isnan(age_h):
        return ""
    return f", the last {age_h:.0f} h ago" if age_h < 48 else f", the last {age_h / 24:.0f} days ago"

"""Training, scoring, reasons, and their tables."""

from dataclasses import replace
from datetime import timedelta

import pytest
import sqlalchemy as sa
from fleet_store import START, day, fill_trained, node, outage, put, rollup, sbe
from newest_scores import latest_scores

from predictor.dataset.matrix import FIXED, features_of, matrix
from predictor.history.arrays import every, to_ms
from predictor.history.store_reader import read_history
from predictor.live.reasons import MAX_REASONS
from predictor.live.scoring import Scorer, score_nodes
from predictor.live.wording import ExplainedNode, PrecursorIndex, describe
from predictor.model.forest import ModelError
from store.database.connections import writing
from store.models.registry import StoredModel, save_model, serving_model
from store.models.scores import save_scores, scoring_times
from store.records.event import Device, Event
from store.records.score import Reason, Score
from store.tables import schema


@pytest.fixture
def trained(engine: sa.Engine) -> sa.Engine:
    """A fleet of 60 days with a model of each horizon."""
    fill_trained(engine, nodes=32)
    return engine


def test_scores_of_all_nodes_at_risk_are_saved(trained: sa.Engine) -> None:
    """Both horizons; the longer never below the shorter; every score has a reason; scoring again changes nothing."""
    put(trained, outages=[outage("gpu-005", 59, None)])
    scores = score_nodes(trained, day(59.5))
    by_node = {(score.node, score.horizon_h): score for score in scores}
    assert ("gpu-005", 24) not in by_node
    assert len(scores) == len(by_node)
    for score in scores:
        assert 0 < score.score < 1
        assert score.reasons
        assert by_node[score.node, 168].score >= by_node[score.node, 24].score
    assert score_nodes(trained, day(59.5)) == scores
    with trained.connect() as connection:
        latest = latest_scores(connection)
        assert {(n, h): s for n, both in latest.items() for h, s in both.items()} == by_node


def test_a_node_gone_bad_rises_with_its_reasons(trained: sa.Engine) -> None:
    """Corrected errors on one GPU in the last days: the score rises, the reason names GPU and events."""
    name = "gpu-013"
    before = {s.node: s for s in score_nodes(trained, day(59)) if s.horizon_h == 24}
    put(trained, events=[sbe(name, 58.2 + i / 40, 5, 20) for i in range(25)])
    after = {s.node: s for s in score_nodes(trained, day(59)) if s.horizon_h == 24}
    assert after[name].score > 2 * before[name].score
    reason = next(r for r in after[name].reasons if "corrected ECC" in r.text)
    assert reason.text == "500 corrected ECC errors on GPU 5 in 24 h"
    assert 0 < reason.contribution <= after[name].score
    assert len(reason.events) == 20
    with trained.connect() as connection:
        query = sa.select(schema.events.c.kind).where(schema.events.c.id.in_(reason.events))
        assert set(connection.scalars(query)) == {"ecc_sbe"}


def test_a_site_without_a_model_is_scored_by_the_prior_until_it_has_one(engine: sa.Engine) -> None:
    """The scores say so, and the registry shows what serves; a training takes its place."""
    put(engine, [node("a"), node("b")])
    scores = score_nodes(engine, day(1))
    assert {(one.node, one.horizon_h) for one in scores} == {(name, hours) for name in "ab" for hours in (24, 168)}
    assert {one.model.split("-")[0] for one in scores} == {"prior"}
    assert all(
        0 < one.score < 1 and "a prior, with few or no outages of this site" in one.reasons[-1].text for one in scores
    )
    for one in scores:
        assert sum(reason.contribution for reason in one.reasons) == pytest.approx(one.score, abs=1e-9)
    with engine.connect() as connection:
        serving = serving_model(connection, 24)
    assert serving is not None
    assert (serving.kind, serving.role) == ("prior", "champion")
    assert serving.why.startswith("prior, nothing of this site is in it; ")
    assert [one.score for one in score_nodes(engine, day(1))] == [one.score for one in scores]


def test_a_model_of_other_features_or_damaged_is_refused(trained: sa.Engine) -> None:
    """A program that has moved on asks for new training."""
    with writing(trained).begin() as connection:
        model = serving_model(connection, 24)
        assert model is not None
        save_model(connection, replace(model, features=("other",)))
    with pytest.raises(ModelError, match="does not name"):
        score_nodes(trained, day(59))
    with writing(trained).begin() as connection:
        save_model(connection, replace(model, blob=model.blob[:-1]))
    with pytest.raises(ModelError, match="damaged"):
        score_nodes(trained, day(59))


def test_a_measure_that_is_told_no_more_is_unknown(trained: sa.Engine) -> None:
    """A model that learned from it goes on without, and says so in the feature's own name."""
    with writing(trained).begin() as connection:
        model = serving_model(connection, 24)
        assert model is not None
        save_model(connection, replace(model, features=(*model.features, "optics_w.last")))
    assert len(score_nodes(trained, day(59))) > 0


def test_reasons_add_up_to_the_score_and_cite_events_that_exist(trained: sa.Engine) -> None:
    """Of every node and horizon; at most five and the rest; strongest first."""
    scores = score_nodes(trained, day(59))
    with trained.connect() as connection:
        known = set(connection.scalars(sa.select(schema.events.c.id)))
    assert {score.horizon_h for score in scores} == {24, 168}
    for one in scores:
        assert sum(reason.contribution for reason in one.reasons) == pytest.approx(one.score, abs=1e-9)
        strongest = [reason.contribution for reason in one.reasons[:-1]]
        assert strongest == sorted(strongest, reverse=True)
        assert len(strongest) <= MAX_REASONS
        assert known >= {event for reason in one.reasons for event in reason.events}
    assert any(reason.events for one in scores for reason in one.reasons)


def test_scorings_are_thinned_to_one_an_hour(trained: sa.Engine) -> None:
    """The last quarter of an hour is whole; a scorer that begins anew takes up where the one before was."""
    begun = day(59)
    scorer = Scorer(trained)
    for minutes in range(0, 110, 10):
        scorer.score(begun + timedelta(minutes=minutes))
    Scorer(trained).score(begun + timedelta(minutes=110))
    with trained.connect() as connection:
        kept = scoring_times(connection, begun, begun + timedelta(days=1))
    assert [(moment - begun) // timedelta(minutes=1) for moment in kept] == [0, 60, 100, 110]


def score(name: str, at_d: float, value: float, horizon_h: int = 24) -> Score:
    """A score with one reason."""
    return Score(name, day(at_d), horizon_h, value, (Reason("because", 0.1, ("e1", "e2")),), "m")


def test_the_latest_scores_are_those_of_the_newest_scoring(engine: sa.Engine) -> None:
    """Of all time or up to a moment; a node that was not scored then has none."""
    with writing(engine).begin() as connection:
        save_scores(connection, [score("a", 1, 0.1), score("b", 1, 0.2), score("a", 1, 0.3, 168)])
        assert save_scores(connection, [score("a", 2, 0.4), score("a", 2, 0.5)]) == 1
        assert save_scores(connection, []) == 0
        assert latest_scores(connection) == {"a": {24: score("a", 2, 0.5), 168: score("a", 1, 0.3, 168)}}
        assert set(latest_scores(connection, at=day(1.5))) == {"a", "b"}
        assert latest_scores(connection, at=START) == {}


def test_the_newest_model_that_knew_nothing_later_is_preferred(engine: sa.Engine) -> None:
    """By the end of its data; where all are later, the newest all the same."""
    with writing(engine).begin() as connection:
        assert serving_model(connection, 24) is None
        for number in (1, 2):
            until = day(10 * number)
            model = StoredModel(f"m{number}", until + timedelta(hours=1), until, 24, ("x",), {"rows": 1}, b"1", "s")
            save_model(connection, model)
        ids = [getattr(serving_model(connection, 24, at), "id", None) for at in (None, day(25), day(15), day(5))]
        assert ids == ["m2", "m2", "m1", "m2"]
        assert serving_model(connection, 168) is None


def test_a_missing_gpu_is_told_with_its_time(trained: sa.Engine) -> None:
    """Which one, and since when."""
    gone = Event(day(59.5), "gpu-002", "dcgm", "gpu_missing", severity="warning", device=Device("gpu", index=5))
    put(trained, events=[gone], rollups=[rollup("gpu-002", 59 + h / 24, gpus_seen=7) for h in range(13, 16)])
    with trained.connect() as connection:
        at = day(59 + 15 / 24)
        history = read_history(connection, at, at)
    position = history.fleet.index["gpu-002"]
    names = [feature.name for feature in features_of(history)]
    row = matrix(history, every(len(history.fleet.names), [at]))[position]
    features = dict(zip(names, row.tolist(), strict=True))
    signs = PrecursorIndex.of(history.precursors, len(history.fleet.names), to_ms(at))
    subject = ExplainedNode(signs, position, (), features)
    text, events = describe("gpu_missing", subject)
    assert text == "GPU 5 missing from telemetry since 3 h"
    assert len(events) == 1
    for group in dict.fromkeys(feature.group for feature in FIXED):
        assert describe(group, subject)[0]

"""Scores of links: saved and served with both ends, with reasons that add up and events that exist."""

from dataclasses import replace
from datetime import timedelta

import numpy as np
import pytest
import sqlalchemy as sa
from click.testing import CliRunner
from fastapi.testclient import TestClient
from fleet_store import day

from api.app import create_app
from api.server.settings import ApiSettings, Intervals
from cli.main import foreshock
from predictor.dataset.folds import NoDataError
from predictor.history.arrays import HOUR_MS, OutageLog, to_ms
from predictor.links.scoring import learn_since, said_of_others, score_links
from predictor.model.fit import TooFewPositivesError
from store.database.connections import writing
from store.models.scores import LinkScore, link_score_page, save_link_scores
from store.records.score import Reason
from store.tables import schema

from .test_links import chronic, flap, put

QUIET = ApiSettings(intervals=Intervals(score_s=0, policy_s=0, dispatch_s=0, ledgers_s=0, lemons_s=0))


def test_the_chronic_link_comes_first_with_reasons_that_add_up(engine: sa.Engine) -> None:
    """Every score is its reasons' sum, and every event behind one is in the store; it is served as it was saved."""
    chronic(engine)
    scores = score_links(engine, day(58.2)).scores
    assert (scores[0].link, scores[0].ends) == ("leaf-0/2", ("leaf-0 port 2", "gpu-1 port 1"))
    with engine.connect() as connection:
        known = set(connection.scalars(sa.select(schema.events.c.id)))
    for score in scores:
        assert sum(reason.contribution for reason in score.reasons) == pytest.approx(score.score, abs=1e-9)
        assert {event for reason in score.reasons for event in reason.events} <= known
    assert any(reason.events for reason in scores[0].reasons)
    assert any("in 28 days" in reason.text or "in 7 days" in reason.text for reason in scores[0].reasons)
    with TestClient(create_app(QUIET, engine, lambda: day(60))) as client:
        items = client.get("/api/v1/links", params={"limit": 2}).json()["items"]
        assert client.get("/api/v1/links", params={"horizon_h": 168}).json()["items"] == []
    assert [item["link"] for item in items] == [score.link for score in scores[:2]]
    assert items[0]["ends"] == ["leaf-0 port 2", "gpu-1 port 1"]
    assert items[0]["reasons"][0]["text"] == scores[0].reasons[0].text


def test_a_fabric_that_flaps_teaches_by_its_newest_days(monkeypatch: pytest.MonkeyPatch) -> None:
    """As many as hold enough losses, a fortnight at the least; those of a link within half a day are one, and a loss
    that is excused, or is not there yet, is none."""
    monkeypatch.setattr("predictor.links.scoring.MOST_LOSSES", 40)
    hours = np.arange(60 * 24)
    start_ms = to_ms(day(0)) + hours * HOUR_MS
    no = np.zeros(len(hours), dtype=np.bool_)
    losses = OutageLog(hours // 24 % 7, start_ms, start_ms + 1, no, no)
    assert learn_since(losses, day(50)) == day(30)  # two half days a day
    assert learn_since(losses, day(10)) == day(10) - timedelta(days=365)
    excused = replace(losses, planned=hours % 24 < 12)
    assert learn_since(excused, day(50)) == day(10.5)
    monkeypatch.setattr("predictor.links.scoring.MOST_LOSSES", 4)
    assert learn_since(losses, day(50)) == day(36)


def test_the_command_prints_and_saves(engine: sa.Engine) -> None:
    """The likeliest first."""
    chronic(engine)
    done = CliRunner().invoke(foreshock, ["links", "--db", str(engine.url), "--at", day(58.2).isoformat()])
    assert done.exit_code == 0
    assert " ".join(done.stdout.splitlines()[1].split()).startswith("leaf-0/2 leaf-0 port 2 - gpu-1 port 1")
    with engine.connect() as connection:
        assert len(link_score_page(connection, 24, 10)) == 5


def test_what_gave_the_scores_is_said(engine: sa.Engine) -> None:
    """Two weeks of the chronic link alone cannot show that trees beat a count; its id and the command say which."""
    chronic(engine)
    found = score_links(engine, day(17.5))
    assert found.why.startswith("history only: too few outages to show that what is learned here is better (9 in all")
    assert {score.model.rpartition("-")[0] for score in found.scores} == {"links-history-24h"}
    done = CliRunner().invoke(foreshock, ["links", "--db", str(engine.url), "--at", day(17.5).isoformat()])
    assert done.stdout.splitlines()[-1] == found.why


def test_a_scoring_takes_the_place_of_the_one_before(any_engine: sa.Engine) -> None:
    """Of its horizon alone; a link that is gone has no score any more."""

    def scored(link: str, horizon_h: int, score: float) -> LinkScore:
        return LinkScore(link, ("a", "b"), horizon_h, day(1), score, (Reason("r", score, ("e",)),), "m")

    with writing(any_engine).begin() as connection:
        save_link_scores(connection, 24, [scored("x", 24, 0.5), scored("y", 24, 0.7)])
        save_link_scores(connection, 168, [scored("x", 168, 0.9)])
        save_link_scores(connection, 24, [scored("y", 24, 0.2), scored("z", 24, 0.2)])
        assert [row["link"] for row in link_score_page(connection, 24, 10)] == ["y", "z"]
        assert [row["link"] for row in link_score_page(connection, 24, 10, (0.2, "y"))] == ["z"]
        assert [row["score"] for row in link_score_page(connection, 168, 10)] == [0.9]
        save_link_scores(connection, 24, [])
        assert link_score_page(connection, 24, 10) == []


def test_what_cannot_be_learned_is_said(engine: sa.Engine) -> None:
    """An empty store, and one whose links never fail."""
    with pytest.raises(NoDataError, match="foreshock ingest"):
        score_links(engine, day(58))
    put(engine, [flap("gpu-1", 3), flap("gpu-1", 50)])
    with pytest.raises(TooFewPositivesError):
        score_links(engine, day(58))


@pytest.mark.parametrize(
    ("flaps", "losses", "says"),
    [
        (3.0, 9.0, "3 other links of its switch were lost in 24 h"),
        (0.0, 9.0, "other links of its switch were lost 9 times in 28 days"),
        (float("nan"), 1.0, "other links of its switch were lost 1 time in 28 days"),
    ],
)
def test_what_neighbours_show_is_said_of_the_time_in_which_they_do(flaps: float, losses: float, says: str) -> None:
    """Not "0 other links" where what was lost lies further back."""
    assert said_of_others({"leaf_flaps_24h": flaps, "leaf_outages_28d": losses}) == says

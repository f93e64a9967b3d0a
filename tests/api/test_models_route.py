"""`GET /models`, a challenger's scores, the gauges and checks of models."""

from dataclasses import replace
from datetime import timedelta

import pytest
import sqlalchemy as sa
from fastapi.testclient import TestClient
from wire_check import check_answer

from api.routes.health import run_checks
from api.server.state import State
from cli.commands.doctor import models as check_models
from store.database.connections import writing
from store.events.append import append_nodes
from store.hints.control_group import ControlGroup, control_key
from store.models.registry import StoredModel, note_training, save_checks, save_model
from store.models.scores import save_scores
from store.models.scorings import Scoring, save_scoring
from store.records.node import Node
from store.records.score import Reason, Score
from wire.message import Page
from wire.models import ModelsJson
from wire.nodes import ScoreJson

from .conftest import NOW, QUIET, Clock

HOUR = timedelta(hours=1)
MODEL = StoredModel("gbt-24h-1", NOW, NOW - HOUR, 24, ("a",), {"rows": 5}, b"\x00\xff", "digest", by="ops", why="first")


@pytest.fixture
def stored(engine: sa.Engine) -> sa.Engine:
    """A champion and a challenger."""
    with writing(engine).begin() as connection:
        save_model(connection, replace(MODEL, profile={"a": {}}))
        save_model(connection, replace(MODEL, id="gbt-24h-2", role="challenger", since=NOW))
        save_scores(connection, [Score("n1", NOW, 24, 0.5, (Reason("why", 0.1),), MODEL.id)])
        save_scoring(connection, Scoring("gbt-24h-2", 24, NOW - HOUR, {f"n{i}": i / 10 for i in range(5)}))
    return engine


def test_the_models_are_listed_with_what_they_were_made_of(client: TestClient, stored: sa.Engine) -> None:
    """Not with what is heavy in them; of one role where that is asked for."""
    found = client.get("/api/v1/models").json()
    check_answer(ModelsJson, found)
    assert [item["id"] for item in found["items"]] == ["gbt-24h-1", "gbt-24h-2"]
    assert not {"blob", "profile", "features"} & set(found["items"][0])
    assert (found["items"][0]["bytes"], found["items"][0]["metrics"]) == (2, {"rows": 5})
    assert (found["training"], found["control"]) == (None, {"percent": 3.0, "period_days": 28.0})
    assert [item["id"] for item in client.get("/api/v1/models?role=challenger").json()["items"]] == ["gbt-24h-2"]
    assert client.get("/api/v1/models?role=king").status_code == 422
    with writing(stored).begin() as connection:
        note_training(connection, NOW, "failed", "server", {"why": "too few outages"})
    training = client.get("/api/v1/models").json()["training"]
    assert (training["outcome"], training["why"], training["by"]) == ("failed", "too few outages", "server")


@pytest.mark.usefixtures("stored")
def test_a_challenger_s_scores_are_served_to_who_asks_for_them_alone(client: TestClient) -> None:
    """Page by page; the champion's are those that are served otherwise."""
    served = client.get("/api/v1/scores").json()["items"]
    assert [(score["node"], score["model"]) for score in served] == [("n1", "gbt-24h-1")]
    found, cursor = [], ""
    while True:
        page = client.get(f"/api/v1/scores?model=gbt-24h-2&limit=2{cursor}").json()
        check_answer(Page[ScoreJson], page)
        found += page["items"]
        if page["next_cursor"] is None:
            break
        cursor = f"&cursor={page['next_cursor']}"
    assert [(score["node"], score["score"]) for score in found] == [(f"n{i}", i / 10) for i in range(5)]
    assert {score["reasons"] == [] for score in found} == {True}
    one = client.get("/api/v1/scores?model=gbt-24h-2&node=n3").json()["items"]
    assert [score["score"] for score in one] == [0.3]
    assert client.get("/api/v1/scores?model=unknown").json()["items"] == []
    before = (NOW - 2 * HOUR).isoformat().replace("+", "%2B")
    assert client.get(f"/api/v1/scores?model=gbt-24h-2&at={before}").json()["items"] == []


def test_what_is_wrong_with_a_model_is_said_everywhere(client: TestClient, stored: sa.Engine, clock: Clock) -> None:
    """Gauges, readiness (which it does not end) and the doctor."""
    state, url = State(QUIET, stored, clock), stored.url.render_as_string(hide_password=False)
    assert run_checks(state)["model"] == "ok"
    assert check_models(url).result == "ok"
    text = client.get("/metrics").text
    assert 'foreshock_models{horizon="24h",role="champion"} 1.0' in text
    assert 'foreshock_models{horizon="7d",role="champion"} 0.0' in text
    assert 'foreshock_model_drift{check="drift",horizon="24h"} 0.0' in text
    assert "foreshock_model_training_failed 0.0" in text
    assert f'trained_until_timestamp_seconds{{horizon="24h"}} {(NOW - HOUR).timestamp()}'.split()[0] in text
    with writing(stored).begin() as connection:
        save_checks(connection, MODEL.id, {"drift": {"state": "drifted"}, "calibration": {"state": "unknown"}})
        note_training(connection, NOW, "failed", "server", {"why": "no disk"})
    text = client.get("/metrics").text
    assert 'foreshock_model_drift{check="drift",horizon="24h"} 1.0' in text
    assert 'foreshock_model_drift{check="calibration",horizon="24h"} 0.0' in text
    assert "foreshock_model_training_failed 1.0" in text
    trouble = run_checks(state)["model"]
    assert "the last training failed: no disk; gbt-24h-1: the nodes no longer look" in trouble
    assert client.get("/readyz").status_code == 200
    assert (check_models(url).result, check_models(url).detail) == ("wrong", trouble)


def test_a_missing_model_is_absent_not_wrong(engine: sa.Engine) -> None:
    """A fresh installation is in order."""
    found = check_models(engine.url.render_as_string(hide_password=False))
    assert (found.result, found.detail) == ("absent", "none yet: run `foreshock train`")
    assert check_models("sqlite:////nowhere/at/all.db").result == "wrong"


def test_a_node_of_the_control_group_is_shown_as_one(client: TestClient, engine: sa.Engine) -> None:
    """In the list and on its own."""
    names = [f"gpu-{i:03}" for i in range(200)]
    with writing(engine).begin() as connection:
        append_nodes(connection, [Node(name) for name in names])
    group = ControlGroup(control_key(engine), 0.03, timedelta(days=28))
    drawn = {name for name in names if group.holds(name, NOW)}
    assert drawn
    found = client.get("/api/v1/nodes?limit=500").json()["items"]
    assert {item["node"] for item in found if item["control"]} == drawn
    assert client.get(f"/api/v1/nodes/{min(drawn)}").json()["control"] is True


def test_the_last_scores_are_served_at_once_after_a_restart(stored: sa.Engine, clock: Clock) -> None:
    """Another process over the same database, before its first turn."""
    from api.app import create_app

    clock.forward(hours=3)
    with TestClient(create_app(QUIET, stored, clock)) as client:
        assert [score["score"] for score in client.get("/api/v1/scores").json()["items"]] == [0.5]

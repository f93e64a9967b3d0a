"""`GET /advice/...` and `GET /what-if` over a stored run: answers, errors, a ledger stored by an older server."""

from dataclasses import replace
from decimal import Decimal
from typing import Any

import orjson
import pytest
import sqlalchemy as sa
from fastapi.testclient import TestClient
from stored_run import END, at, store_run
from wire_check import check_answer

from api.app import create_app
from goodput.stored.computation import compute
from store.database.connections import writing
from store.runs.ledgers import StoredLedger, save_ledgers
from wire.advice import CheckpointAdviceJson, GainsAdviceJson, WhatIfJson
from wire.message import decode
from wire.money.price import parse_price

from .conftest import QUIET, Clock


@pytest.fixture
def run_client(client: TestClient, engine: sa.Engine) -> TestClient:
    """A client of a server that knows a run that failed thrice."""
    store_run(engine)
    return client


def get(client: TestClient, path: str, **asked: object) -> dict[str, object]:
    """The answer."""
    answer = client.get(f"/api/v1/{path}", params={name: str(value) for name, value in asked.items()})
    assert answer.status_code == 200, answer.text
    found: dict[str, object] = answer.json()
    return found


def test_each_advice_answers_with_its_inputs_and_formula(run_client: TestClient) -> None:
    """All of them name formula and source."""
    for path in ("advice/checkpoint", "advice/spares", "advice/budget", "advice/gains", "advice/mtbf"):
        told = get(run_client, path)
        assert told["formula"], path
        assert told["source"], path


def test_checkpoint_advice_takes_a_predictor(run_client: TestClient) -> None:
    """Its plan is in the answer."""
    plan = get(run_client, "advice/checkpoint", recall=0.6, precision=0.5, lead_s=300)["prediction"]
    assert isinstance(plan, dict)
    assert plan["use_warnings"]


def test_the_budget_and_the_gains_take_their_aims(run_client: TestClient) -> None:
    """Target and detection."""
    assert get(run_client, "advice/budget", target=0.5, run="llm")["met"] is True
    gains = get(run_client, "advice/gains", detection_s=10)["gains"]
    assert isinstance(gains, list)
    assert next(gain for gain in gains if gain["lever"] == "detection")["then"] == 10


def test_what_if_answers_as_the_command_does(run_client: TestClient, engine: sa.Engine) -> None:
    """The same replay."""
    from goodput.advice.reading import read_history, what_if_advice
    from goodput.advice.what_if import RunChange

    told = get(run_client, "what-if", detection_s=10, interval_s=500, spares=1)
    with engine.connect() as connection:
        change = RunChange(detection_s=10.0, interval_s=500.0, spares=1)
        assert told == what_if_advice(connection, read_history(connection, "llm"), change)
    none = get(run_client, "what-if")
    check_answer(WhatIfJson, none)
    measured: Any = none["inputs"]
    same = get(run_client, "what-if", interval_s=measured["interval_s"])
    assert same["replayed"] == none["replayed"], "the measured settings change nothing"
    assert isinstance(none["replayed"], dict)
    assert none["replayed"]["gain"] == 0.0


def test_a_ledger_stored_by_an_older_server_is_read_from_its_log(run_client: TestClient, engine: sa.Engine) -> None:
    """It carries no history yet."""
    with writing(engine).begin() as connection:
        ledger = compute(connection, "llm", at(END))
        assert ledger is not None
        content = {name: value for name, value in ledger.content.items() if name != "history"}
        save_ledgers(connection, [StoredLedger("llm", ledger.computed, ledger.until, ledger.records, content)])
    assert get(run_client, "advice/budget")["failures"] == 3


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("advice/checkpoint?recall=0.5", 422),
        ("advice/checkpoint?recall=0.5&precision=0", 422),
        ("advice/checkpoint?recall=2&precision=0.5", 422),
        ("advice/budget?target=1", 422),
        ("advice/budget?target=nan", 422),
        ("advice/gains?detection_s=-1", 422),
        ("advice/gains?lead_s=5", 422),
        ("what-if?lead_s=5", 422),
        ("advice/gains?run=none", 404),
        ("what-if?interval_s=0", 422),
        ("what-if?spares=-1", 422),
        ("what-if?hold_top=0.1", 404),
        ("what-if?run=none", 404),
    ],
)
def test_what_cannot_be_answered_is_a_problem(run_client: TestClient, path: str, status: int) -> None:
    """RFC 9457, in words."""
    answer = run_client.get(f"/api/v1/{path}")
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json()["detail"]


@pytest.mark.parametrize("path", ["advice/budget", "advice/gains", "advice/mtbf", "what-if"])
def test_an_empty_server_says_what_is_missing(client: TestClient, path: str) -> None:
    """404 with a remedy."""
    answer = client.get(f"/api/v1/{path}")
    assert answer.status_code == 404
    assert "ingest" in answer.json()["detail"]


def test_a_gain_is_told_in_money_a_day_where_a_price_is_set(engine: sa.Engine, clock: Clock) -> None:
    """Its share of the run's GPUs, exactly; the shapes are as published."""
    store_run(engine)
    settings = replace(QUIET, gpu_hour_price=parse_price("2.50 EUR"))
    with TestClient(create_app(settings, engine, clock)) as client:
        checkpoint, gains = (get(client, f"advice/{name}") for name in ("checkpoint", "gains"))
        replayed = get(client, "what-if", detection_s=10)["replayed"]
    assert decode(GainsAdviceJson, orjson.dumps(gains)).gains[0].money_per_day is not None
    assert decode(CheckpointAdviceJson, orjson.dumps(checkpoint)).money_per_day is not None
    gpus: Any = gains["gpus"]
    told: Any = [checkpoint, replayed, *gains["gains"]]  # type: ignore[misc]
    for one in told:
        day = Decimal(repr(one["gain"])) * gpus * 24 * Decimal("2.50")
        assert Decimal(one["money_per_day"]["amount"]) == day

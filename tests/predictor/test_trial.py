"""Champion and challengers: judged on the same moments by what came, promoted only when surely better."""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import numpy as np
import pytest
import sqlalchemy as sa
from fleet_store import RECEIVED, day, fill, node, outage, put

from predictor.live.training import TrainSettings, train
from predictor.live.trial import judge, score_beside
from predictor.live.trial_settings import TrialSettings
from store.database.connections import writing
from store.hints.hint_log import audit_page, change_state, save_hint
from store.models.registry import StoredModel, list_models, save_model
from store.models.scorings import Scoring, newest_moment, read_scorings, save_scoring
from store.records.hint import Hint
from store.records.outage import Outage
from store.tables import run_tables

NODES = [f"n{i:02}" for i in range(60)]
DAYS = 30
MODEL = StoredModel("old", day(0), day(0), 24, ("a",), {}, b"0", "d", since=day(0))
RATE = 0.03  # outages a node and day


def outages_of() -> list[Outage]:
    """By chance, two hours each."""
    random = np.random.default_rng(5)
    return [
        outage(name, float(at), 2.0)
        for name in NODES
        for at in np.sort(random.uniform(0.1, DAYS, random.poisson(RATE * DAYS)))
    ]


@pytest.fixture
def court(engine: sa.Engine) -> sa.Engine:
    """A month of a fleet with a champion and a challenger."""
    put(engine, [node(name) for name in NODES], outages=outages_of())
    with writing(engine).begin() as connection:
        save_model(connection, MODEL)
        save_model(connection, replace(MODEL, id="new", role="challenger", created=day(1)))
    return engine


def foresees(sees: float, scale: float = 1.0) -> Callable[[str, float], float]:
    """Scores that know of a part of the outages a day ahead, and say how often what they say comes true."""
    fails = {(one.node, one.start) for one in outages_of()}
    random = np.random.default_rng(int(sees * 1000))
    seen = {key for key in sorted(fails) if random.random() < sees}

    def score(name: str, at_d: float) -> float:
        soon = any(n == name and day(at_d) < start <= day(at_d + 1) for n, start in seen)
        return scale * (0.9 if soon else RATE * (1 - sees)) * float(random.uniform(0.95, 1.05))

    return score


def say(
    engine: sa.Engine, model: str, score: Callable[[str, float], float], days: float = DAYS, first: float = 0
) -> None:
    """Have a model say so twice a day."""
    with writing(engine).begin() as connection:
        for half in range(int(first * 2), int(days * 2)):
            told = {name: min(score(name, half / 2), 0.999) for name in NODES}
            save_scoring(connection, Scoring(model, 24, day(half / 2), told))


def roles(engine: sa.Engine) -> dict[str, str]:
    """The role of each model."""
    with engine.connect() as connection:
        return {row["id"]: row["role"] for row in list_models(connection)}


def checks(engine: sa.Engine, ident: str) -> dict[str, Any]:
    """What was found of a model."""
    with engine.connect() as connection:
        (row,) = list_models(connection, ident=ident)
    found: dict[str, Any] = row["checks"]
    return found


def test_a_challenger_that_is_surely_better_becomes_the_champion(court: sa.Engine) -> None:
    """On the same moments, with the reason in words and in the audit."""
    say(court, "old", foresees(0.05))
    say(court, "new", foresees(0.6), first=2)
    (verdict,) = judge(court, day(DAYS + 2))
    assert (verdict.model, verdict.outcome) == ("new", "promoted")
    assert roles(court) == {"new": "champion", "old": "retired"}
    trial = checks(court, "new")["trial"]
    assert (trial["days"], trial["against"], trial["better_in"]) == (27.5, "old", 1.0)
    assert trial["challenger"] > 2 * trial["champion"]
    assert checks(court, "new")["calibration"]["state"] == "ok"
    parts = checks(court, "new")["reliability"]
    assert [part["score"] for part in parts] == sorted(part["score"] for part in parts)
    assert parts[-1]["interval"][0] <= parts[-1]["observed"] <= parts[-1]["interval"][1]
    five, worse = (next(one for one in checks(court, name)["lists"] if one["nodes"] == 5) for name in ("new", "old"))
    assert five["lists"] == worse["lists"] == 26  # a day apart, of 28 days the two that nobody scored left out
    assert five["hit"] >= worse["hit"]
    assert five["lost_gpu_h"] == 0.0
    leads = checks(court, "new")["leads"]
    assert set(leads) == {"no_sign"}
    assert leads["no_sign"]["foreseen"] <= leads["no_sign"]["outages"]
    with court.connect() as connection:
        newest, retired = audit_page(connection, 2, None, None)
    assert (newest["action"], newest["actor"], newest["subject"]) == ("champion", "trial", "new")
    assert "better in 100 % of draws" in newest["detail"]["why"]
    assert retired["subject"] == "old"


@pytest.mark.parametrize(
    ("sees", "days", "settings", "outcome"),
    [
        (0.05, DAYS, TrialSettings(), "on trial"),
        (0.6, 10, TrialSettings(), "on trial"),
        (0.6, DAYS, TrialSettings(least_outages=500), "on trial"),
        (0.05, DAYS, TrialSettings(most_days=20), "rejected"),
        (0.6, DAYS, TrialSettings(most_days=20), "promoted"),
        (0.0, 0, TrialSettings(most_days=20), "rejected"),
    ],
)
def test_too_little_evidence_promotes_nobody(
    court: sa.Engine, sees: float, days: float, settings: TrialSettings, outcome: str
) -> None:
    """No better, too short, too few outages; in the end it is rejected, and says why."""
    say(court, "old", foresees(0.05), days)
    say(court, "new", foresees(sees), days)
    (verdict,) = judge(court, day(DAYS + 2), settings)
    assert verdict.outcome == outcome
    expected = {"promoted": "champion", "rejected": "rejected", "on trial": "challenger"}[outcome]
    assert roles(court)["new"] == expected
    assert "outages in" in verdict.why


def test_a_challenger_whose_scores_do_not_come_true_is_not_promoted(court: sa.Engine) -> None:
    """It ranks better, and says a tenth of what comes."""
    say(court, "old", foresees(0.05))
    say(court, "new", foresees(0.6, scale=0.1))
    (verdict,) = judge(court, day(DAYS + 2))
    assert verdict.outcome == "on trial"
    assert "but" in verdict.why
    assert checks(court, "new")["calibration"]["state"] == "drifted"
    assert checks(court, "old")["calibration"]["state"] == "ok"


def test_what_a_model_had_learned_from_does_not_judge_it(court: sa.Engine) -> None:
    """Nor what one of the two did not score."""
    with writing(court).begin() as connection:
        save_model(connection, replace(MODEL, id="new", role="challenger", trained_until=day(25)))
    say(court, "old", foresees(0.05), 28)
    say(court, "new", foresees(0.6))
    judge(court, day(DAYS + 2))
    assert checks(court, "new")["trial"]["days"] == 2.5


def test_a_model_that_nothing_was_answered_of_yet_stops_nobody(court: sa.Engine) -> None:
    """It is judged as unknown, and the others as ever."""
    say(court, "old", foresees(0.05))
    say(court, "new", foresees(0.05), days=DAYS + 2, first=DAYS + 1)  # later than anything that is known
    judge(court, day(DAYS + 1.2))
    assert checks(court, "new")["calibration"]["state"] == "unknown"
    assert "lists" not in checks(court, "new")
    assert checks(court, "old")["lists"]


def test_what_runs_lost_on_listed_nodes_is_counted(court: sa.Engine) -> None:
    """By faults of nodes alone, within a day of the list."""
    say(court, "old", lambda name, _at_d: 0.9 if name == "n07" else 0.01)
    row = {"run": "r", "code": None, "device": None, "leaf": None, "driver": None, "incident": None}
    row |= {"lost_work_ms": 0, "restart_ms": 0, "lost_gpu_ms": 3_600_000 * 100, "node": "n07"}
    with writing(court).begin() as connection:
        rows = [row | {"number": i, "time": day(20.3), "cause": c} for i, c in enumerate(("hardware", "application"))]
        rows.append(row | {"number": 2, "time": day(20.3), "cause": "hardware", "node": "n08"})
        rows.append(row | {"number": 3, "time": day(20.3), "cause": "hardware", "lost_gpu_ms": None})
        connection.execute(run_tables.interruptions.insert(), rows)
    judge(court, day(DAYS + 2))
    one = checks(court, "old")["lists"][0]
    assert one["lost_gpu_h"] == pytest.approx(100 / one["lists"])


def test_what_hints_prevented_is_not_held_against_anybody(court: sa.Engine) -> None:
    """Rows without an outage that were acted on are no answers."""
    say(court, "old", foresees(0.05))
    say(court, "new", foresees(0.05))
    judge(court, day(DAYS + 2))
    before = checks(court, "new")["trial"]["rows"]
    with writing(court).begin() as connection:
        for name in NODES[:30]:
            made = Hint(f"h-{name}", name, "cordon", "approved", "r", "foreshock", day(10), day(15))
            save_hint(connection, made, day(10), {})
            change_state(connection, made, "sent", day(10), "dispatch")
    judge(court, day(DAYS + 2))
    assert 300 < before - checks(court, "new")["trial"]["rows"] <= 30 * 12


def test_the_newest_of_several_better_ones_serves(court: sa.Engine) -> None:
    """The other stays on trial, against that one."""
    with writing(court).begin() as connection:
        save_model(connection, replace(MODEL, id="newest", role="challenger", created=day(2)))
    for ident, sees in (("old", 0.05), ("new", 0.5), ("newest", 0.6)):
        say(court, ident, foresees(sees))
    assert [(v.model, v.outcome) for v in judge(court, day(DAYS + 2))] == [("newest", "promoted")]
    assert roles(court) == {"newest": "champion", "new": "challenger", "old": "retired"}


def test_an_empty_trial_is_no_trouble(engine: sa.Engine) -> None:
    """No model, no scoring, no node."""
    assert (score_beside(engine, day(1)), judge(engine, day(1))) == (0, [])
    with writing(engine).begin() as connection:
        save_model(connection, MODEL)
    assert judge(engine, day(1)) == []
    assert checks(engine, "old")["drift"]["state"] == "unknown"


def test_every_model_scores_beside_twice_a_day_and_drift_is_seen(
    monkeypatch: pytest.MonkeyPatch, engine: sa.Engine
) -> None:
    """The same nodes at the same moment; a sensor that fails after the training is told."""
    monkeypatch.setattr("predictor.live.training.packaged", lambda: None)  # in two racks their outages alone drift
    fill(engine, nodes=24, days=40)
    (first,) = train(engine, until=day(28), settings=TrainSettings(horizons_h=(24,)))
    again = TrainSettings(horizons_h=(24,), role="challenger", now=day(30))
    (second,) = train(engine, until=day(30), settings=again)
    assert score_beside(engine, day(31)) == 2
    assert score_beside(engine, day(31.4)) == 0
    for at_d in (32, 33, 34):
        assert score_beside(engine, day(at_d)) == 2
    daily = TrialSettings(every_h=24)
    judge(engine, day(34), daily)
    assert checks(engine, first)["drift"]["state"] == "unknown"
    assert score_beside(engine, day(35)) == 2
    with engine.connect() as connection:
        said = [list(read_scorings(connection, ident)) for ident in (first, second)]
    assert [set(one.scores) for one in said[0]] == [set(one.scores) for one in said[1]]
    assert said[0][0].scores != said[1][0].scores
    judge(engine, day(35), daily)
    assert checks(engine, first)["drift"]["state"] == "ok"
    with writing(engine).begin() as connection:
        connection.execute(sa.text("DELETE FROM telemetry"))
    for at_d in (37, 38, 39, 40, 41):
        score_beside(engine, day(at_d))
    judge(engine, day(42.9), daily)
    drift = checks(engine, first)["drift"]
    assert (drift["state"], "vanished" in drift["alarms"]) == ("drifted", True)
    assert any("temp" in name for name in drift["vanished"])
    score_beside(engine, RECEIVED)
    with engine.connect() as connection:
        assert len(list(read_scorings(connection, first))) == 1
        assert newest_moment(connection, first) == RECEIVED


def test_a_trial_is_the_same_on_either_database(court: sa.Engine, any_engine: sa.Engine) -> None:
    """Roles, checks and scorings go through both."""
    put(any_engine, [node(name) for name in NODES], outages=outages_of())
    with writing(any_engine).begin() as connection:
        save_model(connection, MODEL)
        save_model(connection, replace(MODEL, id="new", role="challenger", created=day(1)))
    say(any_engine, "old", foresees(0.05))
    say(any_engine, "new", foresees(0.6))
    (verdict,) = judge(any_engine, day(DAYS) + timedelta(hours=30))
    assert verdict.outcome == "promoted"
    assert roles(any_engine) == {"new": "champion", "old": "retired"}

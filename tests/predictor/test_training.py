"""Training: what is learned, from what, how it was judged, and which role it gets."""

from dataclasses import replace
from datetime import timedelta

import numpy as np
import pytest
import sqlalchemy as sa
from fleet_store import RECEIVED, day, fill, node, outage, put, xid

from predictor.dataset.folds import NoDataError
from predictor.dataset.labels import HintPeriods, Labels, read_hint_periods, uncertain
from predictor.dataset.matrix import FIXED
from predictor.hazard.prior import Prior, packaged
from predictor.history.arrays import HOUR_MS, Rows, to_ms
from predictor.history.store_reader import read_fleet
from predictor.live.prior import prior_model, register_priors
from predictor.live.training import MOST_CHALLENGERS, TrainSettings, register, train
from predictor.model.fit import TooFewPositivesError
from store.database.connections import writing
from store.hints.hint_log import audit_page, change_state, close_hint, save_hint
from store.models.registry import StoredModel, challengers, list_models, read_model, serving_model
from store.records.hint import Hint
from store.tables import schema

HOUR = timedelta(hours=1)
DAY = TrainSettings(horizons_h=(24,))
MODEL = StoredModel("m0", day(1), day(1), 24, ("a",), {}, b"0", "digest")


def roles(engine: sa.Engine) -> dict[str, str]:
    """The role of each model."""
    with engine.connect() as connection:
        return {row["id"]: row["role"] for row in list_models(connection)}


def test_training_registers_a_champion_of_each_horizon_with_all_that_it_was_made_of(engine: sa.Engine) -> None:
    """Data, code, hold-out with intervals and baselines, profile; the same data give the same id, and no second row."""
    fill(engine, nodes=24, days=40)
    names = train(engine)
    assert train(engine) == names
    assert roles(engine) == dict.fromkeys(names, "champion")
    with engine.connect() as connection:
        for horizon_h in (24, 168):
            model = serving_model(connection, horizon_h)
            assert model is not None
            assert model.metrics["positives"] == model.data["positives"] >= 8
            assert len(model.data["sha256"]) == 64
            assert model.features == tuple(feature.name for feature in FIXED)
            assert set(model.metrics) >= {"rows", "prevalence", "holdout"}
            assert model.code.startswith("0.")
            assert set(model.profile) >= set(model.features)
            holdout = model.metrics["holdout"]
            low, high = holdout["intervals"]["average_precision"]
            assert low <= holdout["average_precision"] <= high
            assert set(holdout["baselines"]) == {"history_count", "rules"}
            assert model.why.endswith("the first of its horizon")
            assert model.by == "train"


def test_training_until_a_moment_sees_nothing_later(engine: sa.Engine) -> None:
    """The same model, to the byte, as from a store that ends there."""
    fill(engine, nodes=24, days=40)
    names = train(engine, until=day(30), settings=DAY)
    with writing(engine).begin() as connection:
        connection.execute(schema.models.delete())
        for table, column in ((schema.events, "time"), (schema.telemetry, "time"), (schema.outages, "start")):
            connection.execute(table.delete().where(table.c[column] >= day(30)))
    put(engine, outages=[outage("gpu-001", 30, 1, planned=True)])  # the data end where they ended for the first
    assert train(engine, until=day(30), settings=DAY) == names


def test_training_needs_data_and_outages(engine: sa.Engine) -> None:
    """An empty store, a short one, a quiet one: each is told apart."""
    with pytest.raises(NoDataError, match="foreshock ingest"):
        train(engine)
    put(engine, [node("a")], events=[xid("a", 0, 31, "application"), xid("a", 1, 31, "application")])
    with pytest.raises(NoDataError, match="too short"):
        train(engine)
    put(engine, events=[xid("a", 30, 31, "application")])
    with pytest.raises(TooFewPositivesError, match="are needed"):
        train(engine)
    assert roles(engine) == {}


def test_a_window_and_other_data_make_another_model_that_may_be_a_challenger(engine: sa.Engine) -> None:
    """It serves nobody; the digest of the data tells the two apart."""
    fill(engine, nodes=24, days=40)
    first = train(engine, until=day(35), settings=DAY)
    second = train(engine, settings=replace(DAY, learn_days=30, role="challenger", by="server", now=day(60)))
    assert roles(engine) == {**dict.fromkeys(first, "champion"), **dict.fromkeys(second, "challenger")}
    with engine.connect() as connection:
        models = [read_model(connection, ident) for ident in (first[0], second[0])]
        assert [entry["subject"] for entry in audit_page(connection, 1, None, None)] == second
    old, new = models
    assert old is not None
    assert new is not None
    assert new.data["sha256"] != old.data["sha256"]
    assert new.data["since"] >= day(9).isoformat() > old.data["since"]
    assert (new.by, new.since) == ("server", day(60))


def test_where_a_baseline_serves_its_kind_and_reason_are_kept(
    monkeypatch: pytest.MonkeyPatch, engine: sa.Engine
) -> None:
    """Its name says so."""
    monkeypatch.setattr(
        "predictor.learning.choice.choose", lambda _figures, baselines, _learned: (baselines["rules"], "as told")
    )
    monkeypatch.setattr("predictor.learning.choice.LEAST_COMPARED", 1)
    fill(engine, nodes=24, days=40)
    train(engine, settings=DAY)
    with engine.connect() as connection:
        model = serving_model(connection, 24)
    assert model is not None
    assert (model.kind, model.id[:9]) == ("rules", "rules-24h")
    assert model.why.startswith("as told; within 24 h ")  # and its rates
    assert model.why.endswith(", the first of its horizon")
    assert model.metrics["last_folds"]["trees"]["outages"] >= 1
    assert {one["edges"] != [] for name, one in model.profile.items() if name == "outages_28d"} == {False}


def test_an_imported_prior_serves_on_where_too_little_is_learned(engine: sa.Engine) -> None:
    """With few outages training ends at the package's own prior: it goes on trial beside the one that a site chose."""
    fill(engine, nodes=24, days=8)
    known = packaged().evidence[24]
    ours = Prior({24: replace(known, exposure=2 * known.exposure)}, "our other cluster")
    (imported,) = register_priors(engine, [prior_model(ours, 24, day(1), "imported")], day(1))
    (name,) = train(engine, settings=DAY)
    assert roles(engine) == {imported: "champion", name: "challenger"}


def test_more_challengers_than_a_few_let_the_oldest_go(engine: sa.Engine) -> None:
    """And a model that is known keeps its role, unless it is to be the champion."""
    with writing(engine).begin() as connection:
        for i in range(MOST_CHALLENGERS + 2):
            model = replace(MODEL, id=f"m{i}", created=day(i))
            assert register(connection, model, "challenger", "t", day(i)) == ("challenger" if i else "champion")
        assert [model.id for model in challengers(connection, 24)] == ["m2", "m3", "m4"]
        rejected = read_model(connection, "m1")
        assert rejected is not None
        assert (rejected.role, "newer ones" in rejected.why) == ("rejected", True)
        assert register(connection, replace(MODEL, id="m1"), "challenger", "t", day(9)) == "rejected"
        assert register(connection, replace(MODEL, id="m3"), "champion", "t", day(9)) == "champion"
    assert roles(engine) == {
        "m0": "retired",
        "m1": "rejected",
        "m2": "challenger",
        "m3": "champion",
        "m4": "challenger",
    }


def hint(connection: sa.Connection, name: str, at_d: float, action: str = "cordon", sent: bool = True) -> Hint:
    """A hint for a day that a scheduler took, or not."""
    made = Hint(f"h-{name}-{at_d}", name, action, "approved", "r", "foreshock", day(at_d), day(at_d + 1))  # type: ignore[arg-type]  # words
    save_hint(connection, made, day(at_d), {})
    return change_state(connection, made, "sent", day(at_d) + HOUR, "dispatch") if sent else made


@pytest.mark.parametrize(
    ("action", "counts"), [("avoid", True), ("requeue", True), ("swap", True), ("checkpoint", False), ("watch", False)]
)
def test_what_was_confirmed_was_taken_though_nobody_said_so(engine: sa.Engine, action: str, counts: bool) -> None:
    """A scheduler that pulls may say `confirmed` at once; a job that was taken off its node leaves it idle."""
    put(engine, [node("a")])
    with writing(engine).begin() as connection:
        made = hint(connection, "a", 1, action, sent=False)
        change_state(connection, made, "confirmed", day(1) + HOUR, "scheduler:pull:x")
        acted = read_hint_periods(connection, read_fleet(connection))
    assert len(acted.node) == int(counts)


def test_only_what_a_scheduler_took_makes_a_row_uncertain(any_engine: sa.Engine) -> None:
    """From then until the hint ends; a watch asks nothing, a shadow and a hint of an unknown node neither."""
    put(any_engine, [node(name) for name in ("a", "b", "c", "d")])
    with writing(any_engine).begin() as connection:
        hint(connection, "a", 1)
        close_hint(connection, hint(connection, "b", 1), "released", day(1.5), "policy")
        hint(connection, "c", 1, sent=False)
        hint(connection, "d", 1, "watch")
        hint(connection, "z", 1)
        fleet = read_fleet(connection)
        acted = read_hint_periods(connection, fleet)
    spans = {fleet.names[n]: (s, e) for n, s, e in zip(acted.node, acted.start_ms, acted.end_ms, strict=True)}
    begin = to_ms(day(1) + HOUR)
    assert spans == {"a": (begin, to_ms(day(2))), "b": (begin, to_ms(day(1.5)))}


def test_a_row_is_uncertain_where_no_outage_came_and_a_hint_lay_in_its_horizon() -> None:
    """Before and after it is not; with an outage it counts."""
    hours = np.array([0, 10, 23, 30, 49, 10, 10])
    rows = Rows(np.array([0, 0, 0, 0, 0, 1, 0]), hours * HOUR_MS)
    positive = np.array([False] * 6 + [True])
    known = np.ones(7, dtype=np.bool_)
    acted = HintPeriods(np.array([0]), np.array([30 * HOUR_MS]), np.array([49 * HOUR_MS]))
    found = uncertain(rows, Labels(known, known, positive, np.full(7, np.nan)), acted, 24)
    assert found.tolist() == [False, True, True, True, False, False, False]


def test_nodes_that_were_acted_on_are_left_out_of_training(engine: sa.Engine) -> None:
    """All the rest stays; the control group's rows do."""
    fill(engine, nodes=24, days=40)
    (before,) = train(engine, settings=DAY)
    with writing(engine).begin() as connection:
        for at_d in range(5, 25):
            hint(connection, "gpu-003", at_d)
            hint(connection, "gpu-004", at_d, sent=False)
    (after,) = train(engine, settings=replace(DAY, role="challenger", now=RECEIVED))
    with engine.connect() as connection:
        rows = [getattr(read_model(connection, ident), "data", {})["rows"] for ident in (before, after)]
    assert 30 <= rows[0] - rows[1] <= 44

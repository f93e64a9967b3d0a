"""Advice from a store, on both databases: histories, repairs, scores, times between failures."""

from collections.abc import Iterator
from datetime import timedelta

import pytest
import sqlalchemy as sa
from stored_run import ATTEMPTS, END, START, at, store_run

from goodput.advice.reading import (
    budget_advice,
    checkpoint_advice,
    gains_advice,
    mtbf_advice,
    predictor_of,
    read_history,
    read_service,
    repairs_of,
    what_if_advice,
)
from goodput.advice.what_if import RunChange, avoided_by_scores
from goodput.formulas.checkpoint_interval import Predictor
from goodput.reading.ledgers import NoRecordsError
from goodput.stored.computation import compute
from store.database.connections import writing
from store.events.append import append_jobs, append_outages
from store.records.job import Job
from store.records.outage import Outage
from store.runs.ledgers import save_ledgers
from store.tables import schema


@pytest.fixture
def engine_of_run(any_engine: sa.Engine) -> sa.Engine:
    """A database with the run."""
    store_run(any_engine)
    return any_engine


@pytest.fixture
def connection(engine_of_run: sa.Engine) -> Iterator[sa.Connection]:
    """A connection to it."""
    with engine_of_run.connect() as opened:
        yield opened


def scores(engine: sa.Engine, when: float, high: str) -> None:
    """A scoring at a moment in which one of three nodes has the highest score."""
    rows = [
        {
            "node": node,
            "horizon_h": 24,
            "time": at(when),
            "score": 0.9 if node == high else 0.1,
            "reasons": [],
            "model": "m",
        }
        for node in ("gpu-1", "gpu-2", "gpu-3")
    ]
    with writing(engine).begin() as writer:
        writer.execute(sa.insert(schema.scores), rows)


def test_the_history_has_the_stops_of_the_ledger(connection: sa.Connection) -> None:
    """Times, nodes, ways back."""
    history = read_history(connection)
    assert (history.run, history.nodes, history.wall_s) == ("llm", 2, END)
    assert [stop.time_s for stop in history.stops] == [fault for _, _, fault, _ in ATTEMPTS]
    assert {(stop.node, stop.component) for stop in history.stops} == {("gpu-1", "gpu")}
    assert [stop.detection for stop in history.stops] == [300.0, 600.0, 60.0]
    assert [stop.waiting for stop in history.stops] == [600.0, 200.0, 140.0]
    assert [stop.startup for stop in history.stops] == [120.0, 120.0, 120.0]
    assert history.interval_s == 1_000.0
    assert set(history.saves_s) == {20.0}


def test_a_stored_history_is_read_instead_of_the_log(engine_of_run: sa.Engine) -> None:
    """The ledger carries it; the events may be gone."""
    with writing(engine_of_run).begin() as connection:
        made = read_history(connection, "llm")
        ledger = compute(connection, "llm", at(END))
        assert ledger is not None
        save_ledgers(connection, [ledger])
        connection.execute(sa.delete(schema.events))
        connection.execute(sa.delete(schema.jobs))
        assert read_history(connection) == read_history(connection, "llm") == made


def test_what_is_not_known_is_said(engine_of_run: sa.Engine) -> None:
    """A run that is not there; one without a log."""
    with writing(engine_of_run).begin() as connection:
        with pytest.raises(NoRecordsError, match="knows no run 'x': it knows llm"):
            read_history(connection, "x")
        append_jobs(connection, [Job("77", "bare", "FAILED", at(0), at(0), at(500), 2, "gpu-[1-2]")])
        with pytest.raises(NoRecordsError, match="nothing tells what run 'bare' got done"):
            read_history(connection, "bare")


def test_repairs_are_the_outages_that_followed(connection: sa.Connection) -> None:
    """From the fault to the end of the outage."""
    assert repairs_of(connection, read_history(connection)) == {0: 7_260.0, 1: 7_260.0, 2: 7_260.0}


def test_spares_are_replayed_with_the_stored_repairs(connection: sa.Connection) -> None:
    """Without one each stop waits for its own node; with one none does."""
    history = read_history(connection)
    none = what_if_advice(connection, history, RunChange(spares=0))["replayed"]["changed"]
    one = what_if_advice(connection, history, RunChange(spares=1))["replayed"]["changed"]
    # 7260 s of repair for each of three stops, less half a period at most for the saves.
    assert (one - none) * END == pytest.approx(3 * 7_260 * 1000 / 1020, rel=0.01)


def test_hints_by_stored_scores_avoid_what_was_flagged_before_its_attempt(engine_of_run: sa.Engine) -> None:
    """A scoring in the first attempt flags the node of the second stop; a later one of another node unflags it."""
    scores(engine_of_run, 20_000, "gpu-1")
    scores(engine_of_run, 60_000, "gpu-2")
    with engine_of_run.connect() as connection:
        history = read_history(connection)
        assert avoided_by_scores(connection, history, 0.3) == {1: 1.0}
        told = what_if_advice(connection, history, RunChange(), hold_top=0.3)
        assert (told["stops"], told["stops_then"]) == (3, 2.0)
        assert told["replayed"]["gain"] > 0
        # Of three nodes with a share of two thirds, two are left out: equal scores favour nobody.
        assert avoided_by_scores(connection, history, 1.0) == {1: 1.0, 2: 1.0}


def test_scores_of_after_the_stops_tell_nothing(engine_of_run: sa.Engine) -> None:
    """Nor do those of more than a day before; a share is a share."""
    scores(engine_of_run, END, "gpu-1")
    with writing(engine_of_run).begin() as connection:
        history = read_history(connection)
        with pytest.raises(ValueError, match="no score was stored before"):
            avoided_by_scores(connection, history, 0.1)
        with pytest.raises(ValueError, match="cannot be held"):
            avoided_by_scores(connection, history, 0.0)
        connection.execute(sa.update(schema.scores).values(time=START - timedelta(days=1, hours=2)))
        with pytest.raises(ValueError, match="no score was stored before"):
            avoided_by_scores(connection, history, 0.1)


def test_gains_and_budget_are_plain_values(connection: sa.Connection) -> None:
    """With the inputs, the formula and its source."""
    history = read_history(connection)
    told = gains_advice(connection, history)
    assert told["inputs"]["failures"] == 3
    assert told["inputs"]["predictor"] is None
    assert told["inputs"]["goodput_model"] == pytest.approx(told["inputs"]["goodput_measured"], abs=0.02)
    assert any(gain["lever"] == "detection" for gain in told["gains"])
    assert all(gain["says"].endswith(")") for gain in told["gains"])
    with_it = gains_advice(connection, history, predictor=Predictor(0.5, 0.5))
    assert with_it["inputs"]["predictor"] == {"recall": 0.5, "precision": 0.5}
    assert budget_advice(history, 0.9)["failures"] == 3


def test_the_registered_models_hold_out_is_the_predictor(engine_of_run: sa.Engine) -> None:
    """Recall and precision at 5 % of the nodes; its horizon is the window. None where there is none to go by."""
    model = {
        "id": "m",
        "created": at(0),
        "trained_until": at(0),
        "horizon_h": 24,
        "features": [],
        "metrics": {"holdout": {"recall_at_top": {"0.05": 0.4}, "precision_at_top": {"0.05": 0.1}}},
        "blob": b"",
        "sha256": "",
    }
    with writing(engine_of_run).begin() as connection:
        assert predictor_of(connection) is None
        connection.execute(sa.insert(schema.models), [model])
        assert predictor_of(connection) == Predictor(0.4, 0.1, window_s=86_400.0)
        connection.execute(sa.update(schema.models).values(metrics={"holdout": None}))
        assert predictor_of(connection) is None


def test_times_between_failures_of_runs_and_of_the_cluster(engine_of_run: sa.Engine) -> None:
    """By component, from stored ledgers or made now; the law from runs of several sizes."""
    with writing(engine_of_run).begin() as connection:
        told = mtbf_advice(connection)
        assert [(c["component"], c["failures"]) for c in told["runs"]["components"]] == [("all", 3), ("gpu", 3)]
        assert told["runs"]["node_days"] == pytest.approx(2 * END / 86_400)
        assert [(c["component"], c["failures"]) for c in told["cluster"]["components"]] == [("all", 3), ("gpu", 3)]
        assert told["scale_law"] is None
        append_jobs(connection, [Job("77", "wide", "COMPLETED", at(0), at(0), at(END), 8, "gpu-[1-8]")])
        both = mtbf_advice(connection)
        assert both["runs"]["runs"] == 2
        assert both["scale_law"]["failures"] == 3
        for run in ("llm", "wide"):
            ledger = compute(connection, run, at(END))
            assert ledger is not None
            save_ledgers(connection, [ledger])
        assert mtbf_advice(connection)["runs"] == both["runs"]


def test_an_empty_database_says_what_to_ingest(any_engine: sa.Engine) -> None:
    """No run, no node."""
    with any_engine.connect() as connection, pytest.raises(NoRecordsError, match="knows no run and no node"):
        mtbf_advice(connection)


def test_repairs_of_several_lengths_have_an_interval(engine_of_run: sa.Engine) -> None:
    """Four outages, three of 7200 s and one of 3600 s: the mean 6300 s, its standard error 900 s."""
    with writing(engine_of_run).begin() as connection:
        append_outages(connection, [Outage("gpu-2", at(100), at(3_700), "DOWN", "", None, False, "host")])
        service = read_service(connection)
    assert service is not None
    assert (service.outages, service.mttr_s) == (4, 6_300.0)
    assert service.mttr_low_s == pytest.approx(6_300 - 1.96 * 900)
    assert service.mttr_high_s == pytest.approx(6_300 + 1.96 * 900)


def test_checkpoint_advice_measures_what_memory_outlives(connection: sa.Connection) -> None:
    """Three of three stops took one node: 3.5 of 4. Stalls that are all alike have a narrow interval."""
    inputs = checkpoint_advice(connection)["inputs"]
    assert inputs["memory_share"] == 0.875
    assert (inputs["save_low_s"], inputs["save_s"], inputs["save_high_s"]) == (20.0, 20.0, 20.0)
    assert inputs["restart_low_s"] < inputs["restart_s"] < inputs["restart_high_s"]

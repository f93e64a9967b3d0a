"""What a run's MFU needs, as the store has it."""

import pytest
import sqlalchemy as sa
from hand_made_run import at
from store_runs import LATER, attempt, keep, lines

from goodput.cluster.account import PeriodError, facts_of, fresh_runs, period, stored_runs
from goodput.cluster.mfu import RunFacts, mfu_json
from goodput.formulas.shape import Shape
from goodput.reading.ledgers import read_ledgers
from goodput.stored.computation import make_all
from goodput.stored.refresh import refresh
from store.database.connections import writing
from store.events.append import append_events, append_nodes
from store.records.event import Attribute, Event
from store.records.job import Job
from store.records.node import Node

SHAPES = {"a*": Shape(batch=2, layers=2, seq=16, hidden=64)}


def facts(engine: sa.Engine, *models: str | None) -> RunFacts:
    """Of a run on two nodes of these GPU models."""
    keep(engine, [attempt("a", 0, 60, "gpu-[1-2]", "COMPLETED")], lines("a", 10, 20, 30, 40, 50, 60))
    with writing(engine).begin() as connection:
        append_nodes(connection, [Node(f"gpu-{i}", gpus=8, gpu_model=model) for i, model in enumerate(models, 1)])
        (ledger,) = read_ledgers(connection)
        return facts_of(connection, ledger)


def test_one_model_on_all_nodes_is_the_run_s(any_engine: sa.Engine) -> None:
    """And the median of its iterations its step."""
    assert facts(any_engine, "H100", "H100") == RunFacts(16, "H100", 10.0)


def test_the_model_is_that_of_the_newest_start(engine: sa.Engine) -> None:
    """The run moved to other nodes; both ways to the facts say so, and a job that waits has none."""
    jobs = [attempt("a", 60, 90, "gpu-[3-4]", "COMPLETED"), attempt("a", 0, 50, "gpu-[1-2]")]
    waits = Job("a-9", "a", "PENDING", at(95), None, None, None, "")
    keep(engine, [*jobs, waits], lines("a", 10, 20, 70, 80))
    with writing(engine).begin() as connection:
        append_nodes(connection, [Node(f"gpu-{i}", gpus=8, gpu_model="H100" if i < 3 else "H200") for i in range(1, 5)])
        (ledger,) = read_ledgers(connection)
        assert facts_of(connection, ledger).gpu_model == "H200"
        assert make_all(connection, ["a"], LATER)["a"].ledger.content["facts"]["gpu_model"] == "H200"


@pytest.mark.parametrize("models", [("H100", "H200"), ("H100", None), (None, None)])
def test_mixed_or_unknown_models_are_none(engine: sa.Engine, models: tuple[str | None, ...]) -> None:
    """No guess by the majority."""
    found = facts(engine, *models)
    assert found.gpu_model is None
    told = mfu_json("a", found, SHAPES)
    assert (told["mfu"], told["missing"]) == (None, ["one GPU model for all of its nodes"])


def test_the_shape_of_the_log_is_taken_where_none_is_configured(any_engine: sa.Engine) -> None:
    """By the stored ledger as by a fresh one; the configuration's wins."""
    told: dict[str, Attribute] = {"run": "a", "phase": "arguments", "batch": 4, "layers": 48, "seq": 1024, "hidden": 64}
    facts(any_engine, "H100", "H100")
    with writing(any_engine).begin() as connection:
        append_events(connection, [Event(at(1), None, "training", "training_phase", attributes=told)], LATER)
        ledgers = read_ledgers(connection)
    refresh(any_engine, LATER, workers=1)
    window = (at(0).replace(hour=0), LATER)
    with any_engine.connect() as connection:
        for shapes, layers in (({}, 48), (SHAPES, 2)):
            kept = stored_runs(connection, window, shapes).mfus
            assert kept == fresh_runs(connection, ledgers, window, shapes).mfus
            (one,) = kept
            assert (one["shape"]["layers"], one["missing"]) == (layers, [])
            assert one["mfu"] > 0


def test_stored_and_fresh_ledgers_give_the_same_account(any_engine: sa.Engine) -> None:
    """What the API reads is what the command computes."""
    facts(any_engine, "H100", "H100")
    with writing(any_engine).begin() as connection:
        append_events(connection, [], LATER)
    keep(any_engine, [attempt("b", 70_000, 100_000, "gpu-[3-4]")], lines("b", 80_000, 90_000))
    window = period(at(0), None, at(200_000))
    with any_engine.connect() as connection:
        stored = stored_runs(connection, window, SHAPES)
        fresh = fresh_runs(connection, read_ledgers(connection), window, SHAPES)
    assert list(stored.days) == [tuple(day) for day in fresh.days]
    assert stored.productive["a"] == fresh.productive["a"] == 60_000 * 16
    assert [one["run"] for one in fresh.mfus] == ["a"]
    assert stored.mfus[0]["step_s"] == fresh.mfus[0]["step_s"] == 10.0


def test_a_period_is_of_whole_days_and_ends_now_at_the_latest() -> None:
    """A week by default; nothing of nothing."""
    now = at(10.5 * 86_400)
    assert period(None, None, now) == (at(4 * 86_400), now)
    assert period(at(86_400 + 5), at(3 * 86_400 + 5), now) == (at(86_400), at(4 * 86_400))
    with pytest.raises(PeriodError, match="empty"):
        period(at(11 * 86_400), None, now)
    with pytest.raises(PeriodError, match="longer than 5 days"):
        period(at(0), None, now, most_days=5)

"""Reading runs from the store: order of undated lines, the fault window, and advice."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
import sqlalchemy as sa

from goodput.advice.reading import checkpoint_advice, spares_advice
from goodput.reading.ledgers import NoRecordsError, no_such_run, read_ledgers
from goodput.reading.log import read_log
from store.database.connections import writing
from store.events.append import append_events, append_jobs, append_nodes, append_outages
from store.records.event import Attribute, Event
from store.records.job import Job
from store.records.node import Node
from store.records.outage import Outage

START = datetime(2025, 3, 1, tzinfo=UTC)
RECEIVED = START + timedelta(days=100)


def at(seconds: float) -> datetime:
    """A moment, seconds after the start."""
    return START + timedelta(seconds=seconds)


def line(kind: str, number: int, seconds: float | None = None, file: str = "llm.log", **told: Attribute) -> Event:
    """One training event of a file's line."""
    time = None if seconds is None else at(seconds)
    return Event(time, None, "training", kind, attributes={"run": "llm", **told}, line=number, file=file)


def iteration(number: int, seconds: float, row: int, file: str = "llm.log") -> Event:
    """One iteration line."""
    return line("iteration", row, seconds, file, iteration=number, iterations=1, elapsed_ms=10_000.0)


LOG = [
    iteration(1, 20, 1),
    line("checkpoint_save_start", 2, iteration=1),
    line("checkpoint_save", 3, iteration=1, duration_ms=5000.0),
    iteration(2, 35, 4),
    line("checkpoint_save", 5, iteration=2, duration_ms=7000.0),
    iteration(3, 52, 6),
]


def stored(engine: sa.Engine, events: list[Event], state: str = "FAILED") -> None:
    """A run of two nodes with its log and other events."""
    with writing(engine).begin() as connection:
        append_nodes(connection, [Node("gpu-1", gpus=8), Node("gpu-2", gpus=8)])
        append_jobs(connection, [Job("1", "llm", state, at(0), at(5), at(100), 2, "gpu-[1-2]")])
        append_events(connection, events, RECEIVED)


def test_lines_without_a_time_keep_their_place_in_the_file(engine: sa.Engine) -> None:
    """The store dates them with their receipt; the account does not."""
    stored(engine, LOG[::-1], "COMPLETED")
    with engine.begin() as connection:
        (ledger,) = read_ledgers(connection)
    assert ledger.gpus == 16
    buckets = {bucket: value / 1000 for bucket, value in ledger.buckets_ms.items() if value}
    assert buckets == {"waiting": 5, "startup": 5, "productive": 30, "checkpoint_save": 12, "unknown": 48}


def test_a_time_that_the_ingest_assumed_is_no_time(engine: sa.Engine) -> None:
    """Otherwise a load would belong to the attempt before."""
    assumed = replace(line("checkpoint_load", 7, 52, duration_ms=2000.0, time_assumed=True), line=7)
    stored(engine, [*LOG, assumed])
    with engine.begin() as connection:
        assert read_log(connection, "llm")[-1].time_ms is None


@pytest.mark.parametrize("second", ["llm.log", "a.log"])
def test_a_log_that_was_begun_anew_is_read_in_the_order_of_time(engine: sa.Engine, second: str) -> None:
    """Line numbers that begin again, or files whose names do not sort by time."""
    with writing(engine).begin() as connection:
        append_events(connection, [iteration(n, 10 * n, n) for n in range(1, 4)], RECEIVED)
        later = [iteration(n, 10 * n, n - 3, second) for n in range(4, 7)]
        append_events(connection, later, RECEIVED + timedelta(seconds=60))
    with engine.begin() as connection:
        assert [one.iteration for one in read_log(connection, "llm")] == [1, 2, 3, 4, 5, 6]
        known = read_log(connection, "llm", at(45))
    assert [one.iteration for one in known] == [1, 2, 3, 4]


def test_only_faults_between_the_last_line_and_the_end_count(engine: sa.Engine) -> None:
    """A fault on the job's node in the window ends the work; earlier ones and other nodes' do not."""
    fault = Event(at(70), "gpu-2", "kernel", "xid", code=79, severity="fatal", cause="hardware")
    others = [replace(fault, time=at(40)), replace(fault, time=at(60), node="gpu-9"), replace(fault, time=at(101))]
    stored(engine, [*LOG, fault, *others])
    with engine.begin() as connection:
        (ledger,) = read_ledgers(connection, "llm")
        (as_of,) = read_ledgers(connection, "llm", at(50))
    (cut,) = ledger.interruptions
    assert (cut.time_ms, cut.culprit is not None and cut.culprit.node) == (int(at(70).timestamp() * 1000), "gpu-2")
    assert ledger.buckets_ms["detection"] == 30_000
    assert (as_of.interruptions, as_of.wall_ms) == ((), 50_000)


def test_no_run_no_ledger(engine: sa.Engine) -> None:
    """An empty store, and a run that nobody knows."""
    with engine.begin() as connection:
        assert read_ledgers(connection) == []
        assert "knows no training run" in no_such_run(connection, None)
    stored(engine, [])
    with engine.begin() as connection:
        assert read_ledgers(connection, "other") == []
        assert no_such_run(connection, "other") == "the database knows no run 'other': it knows llm"


def test_checkpoint_advice_comes_from_what_was_measured(engine: sa.Engine) -> None:
    """Stall, interval, failures and the way back of the run itself."""
    stored(engine, LOG)
    with engine.begin() as connection:
        told = checkpoint_advice(connection, "llm")
    assert told["run"] == "llm"
    assert (
        told["inputs"].items()
        >= {
            "nodes": 2,
            "failures": 1,
            "node_days": pytest.approx(2 * 100 / 86_400),
            "save_s": 6.0,
            "restart_s": 0.0,
            "interval_s": 10.0,
        }.items()
    )


def test_checkpoint_advice_needs_a_run_and_a_save(engine: sa.Engine) -> None:
    """Each lack has its sentence."""
    with engine.begin() as connection, pytest.raises(NoRecordsError, match="knows no training run"):
        checkpoint_advice(connection)
    stored(engine, [iteration(1, 20, 1)], "COMPLETED")
    with engine.begin() as connection, pytest.raises(NoRecordsError, match="no finished checkpoint save"):
        checkpoint_advice(connection, "llm")


def test_spares_advice_counts_service_days_and_unplanned_outages(engine: sa.Engine) -> None:
    """A node that joined late counts from then; planned outages are none; open ones have no length yet."""
    day = 86_400
    outages = [
        Outage("gpu-1", at(0), at(7200), "DOWN", "Xid 79", None, planned=False, cause="hardware"),
        Outage("gpu-1", at(5 * day), None, "DOWN", "Xid 79", None, planned=False, cause="hardware"),
        Outage("gpu-2", at(9 * day), at(10 * day), "DRAIN", "maintenance", None, planned=True, cause="unknown"),
    ]
    with writing(engine).begin() as connection:
        append_nodes(connection, [Node("gpu-1"), Node("gpu-2", in_service_since=at(5 * day))])
        append_outages(connection, outages)
        append_events(connection, [Event(at(10 * day), "gpu-1", "kernel", "xid", code=13)], RECEIVED)
        append_jobs(connection, [Job("1", "llm", "RUNNING", at(0), at(5), None, 2, "gpu-[1-2]")])
    with engine.begin() as connection:
        told = spares_advice(connection)
        assert (
            told["inputs"].items()
            >= {"nodes": 2, "outages": 2, "node_days": pytest.approx(15.0), "mttr_s": 7200.0}.items()
        )
        assert spares_advice(connection, 0.9, "llm")["confidence"] == 0.9
        with pytest.raises(NoRecordsError, match="knows no run 'other'"):
            spares_advice(connection, run="other")


def test_without_an_outage_the_spares_are_not_sure_to_be_none(engine: sa.Engine) -> None:
    """Two nodes over ten days may fail every fifth day, each for as long as a repair takes: a day is assumed."""
    with writing(engine).begin() as connection:
        append_nodes(connection, [Node("gpu-1"), Node("gpu-2")])
        append_events(connection, [Event(at(day), "gpu-1", "kernel", "xid", code=13) for day in (0, 864_000)], RECEIVED)
    with engine.begin() as connection:
        told = spares_advice(connection)
    assert (told["inputs"]["outages"], told["inputs"]["mttr_s"]) == (0, 86_400.0)
    assert (told["spares"], told["spares_low"], told["spares_high"]) == (0, 0, 2)


def test_spares_advice_needs_nodes_and_time(engine: sa.Engine) -> None:
    """An empty store has neither; a run without a node count has no size."""
    with engine.begin() as connection, pytest.raises(NoRecordsError, match="knows no nodes"):
        spares_advice(connection)
    stored(engine, LOG)
    with writing(engine).begin() as connection:
        append_jobs(connection, [Job("2", "small", "RUNNING", at(0), at(5), None, None, "")])
    with engine.begin() as connection, pytest.raises(NoRecordsError, match="how many nodes run 'small' has"):
        spares_advice(connection, run="small")

"""A fault that comes late accounts those runs again that used its node then; every ledger is as from scratch."""

import random
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

import pytest
import sqlalchemy as sa

from goodput.account import account
from goodput.reading.records import read_inventory, read_records
from goodput.stored.refresh import affected_runs, read_all, refresh
from store.database.connections import writing
from store.events.append import append_events, append_jobs, append_outages
from store.events.ledger_intake import LATE, LateReport
from store.records.event import Event
from store.records.job import Job
from store.records.outage import Outage

START = datetime(2025, 3, 1, tzinfo=UTC)
LATER = START + timedelta(days=30)
HOUR = timedelta(hours=1)


def put(engine: sa.Engine, jobs: Iterable[Job] = (), events: Iterable[Event] = ()) -> None:
    """Append some records, that come at the end of the month."""
    with writing(engine).begin() as connection:
        append_jobs(connection, jobs)
        append_events(connection, events, LATER)


def job(run: str, number: int, start: datetime, hours: float, nodes: str) -> Job:
    """A job that failed."""
    return Job(f"{run}-{number}", run, "FAILED", start, start, start + hours * HOUR, 2, nodes)


def xid(node: str, at: datetime) -> Event:
    """A fault that ends a job."""
    return Event(at, node, "kernel", "xid", code=79, severity="fatal", cause="hardware")


def stale(engine: sa.Engine, *late: LateReport) -> set[str]:
    """The runs of the store that something late touches, each with a ledger until now."""
    with engine.connect() as connection:
        return affected_runs(connection, late, dict.fromkeys(("a", "b", "c"), LATER), {"a", "b"})


def test_a_run_is_touched_by_what_its_nodes_told_about_its_time(any_engine: sa.Engine) -> None:
    """Not by another node, nor long before or after; `c`, of which no job tells, by everything."""
    put(any_engine, [job("a", 1, START, 2, "gpu-[1-2]"), job("b", 1, START + 9 * HOUR, 2, "gpu-[2-3]")])

    def at(node: str, hours: float) -> set[str]:
        moment = START + hours * HOUR
        return stale(any_engine, LateReport(node, moment, moment)) - {"c"}

    assert at("gpu-1", 1) == at("gpu-1", 0) == at("gpu-1", 2.9) == {"a"}
    assert at("gpu-1", 3.1) == at("gpu-4", 1) == at("gpu-3", 1) == set()
    assert at("gpu-2", 10) == {"b"}
    assert stale(any_engine, LateReport("gpu-2", START + HOUR, START + 10 * HOUR)) == {"a", "b", "c"}
    assert stale(any_engine, LateReport("gpu-4", START, START)) == {"c"}
    assert stale(any_engine) == set()


def test_a_job_that_is_not_over_or_whose_nodes_are_unknown_is_touched(any_engine: sa.Engine) -> None:
    """Nobody can say that it was not."""
    put(any_engine, [Job("1", "a", "RUNNING", START, START, None, 2, "gpu-1"), job("b", 1, START, 2, "")])
    late = START + timedelta(days=20)
    assert stale(any_engine, LateReport("gpu-1", late, late)) == {"a", "c"}
    assert stale(any_engine, LateReport("gpu-9", START, START)) == {"b", "c"}


def test_a_ledger_that_ended_long_before_is_not(any_engine: sa.Engine) -> None:
    """Whatever is known of its nodes."""
    with any_engine.connect() as connection:
        news = [LateReport("gpu-1", LATER, LATER)]
        ends = {"x": LATER - LATE - timedelta(seconds=1), "y": LATER - LATE}
        assert affected_runs(connection, news, ends, set()) == {"y"}


def accounts(engine: sa.Engine, made: int) -> None:
    """Bring the ledgers up: so many are made, and each is that of all the records."""
    told = refresh(engine, LATER, workers=1)
    assert (told.made, told.reason) == (made, None)
    with engine.connect() as connection:
        machines = read_inventory(connection)
        for one in read_all(engine, told):
            assert one.content["account"] == account(read_records(connection, one.run, None, machines)).to_json()


def test_of_many_runs_those_are_made_again_whose_node_it_was(any_engine: sa.Engine) -> None:
    """Thirty runs side by side on their own nodes; two faults of a week ago and an outage touch three of them."""
    runs = [job(f"run-{n:02d}", 1, START + n * HOUR, 200, f"gpu-[{2 * n}-{2 * n + 1}]") for n in range(30)]
    put(any_engine, runs)
    accounts(any_engine, 30)
    ends = {one.run: one.end for one in runs if one.end is not None}
    put(any_engine, [], [xid("gpu-8", ends["run-04"] - timedelta(minutes=9)), xid("gpu-41", ends["run-20"])])
    with writing(any_engine).begin() as connection:
        down = Outage("gpu-2", ends["run-01"] + timedelta(minutes=9), None, "DOWN", "", None, False, "hardware")
        append_outages(connection, [down], LATER)
    accounts(any_engine, 3)
    accounts(any_engine, 0)


@pytest.mark.parametrize("seed", range(4))
def test_whatever_comes_late_every_ledger_is_as_from_scratch(engine: sa.Engine, seed: int) -> None:
    """Random jobs on random nodes, and faults at their ends, after them and elsewhere."""
    chance = random.Random(seed)
    jobs = []
    for run in "abcdefgh":
        clock = START
        for number in range(3):
            nodes = ",".join(f"gpu-{n}" for n in chance.sample(range(12), 3))
            jobs.append(job(run, number, clock, chance.choice([1, 5, 30]), nodes))
            clock = (jobs[-1].end or clock) + chance.choice([0, 1, 40]) * HOUR
    put(engine, jobs)
    refresh(engine, LATER, workers=1)
    for _ in range(6):
        near = (chance.choice(jobs).end or START) + timedelta(minutes=chance.choice([-29, -1, 0, 1, 25, 45]))
        put(engine, [], [xid(f"gpu-{chance.randrange(12)}", near)])
        with writing(engine).begin() as connection:
            begun = near + timedelta(minutes=chance.choice([0, 5, 29]))
            down = Outage(f"gpu-{chance.randrange(12)}", begun, None, "DOWN", "", None, False, "host")
            append_outages(connection, [down], LATER)
        told = refresh(engine, LATER, workers=1)
        with engine.connect() as connection:
            machines = read_inventory(connection)
            for one in read_all(engine, told):
                fresh = account(read_records(connection, one.run, None, machines)).to_json()
                assert one.content["account"] == fresh

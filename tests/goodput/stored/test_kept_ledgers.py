"""Stored ledgers that follow what comes in, on both databases: always those that the whole store gives."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta

import pytest
import sqlalchemy as sa
from made_program import START, Program

from goodput.account import account
from goodput.log import folded_log
from goodput.reading import log as reading_log
from goodput.reading.records import read_inventory, read_records
from goodput.stored.computation import keep, keep_all, make, make_all, snapshot
from goodput.stored.refresh import RefreshReport, read_all, refresh, stale_runs
from store.database.connections import writing
from store.events.append import append_events, append_jobs, append_outages
from store.events.ledger_intake import read_late, read_news, runs_with_news
from store.records.event import Attribute, Device, Event, format_time
from store.records.job import Job
from store.records.outage import Outage
from store.runs.ledgers import StoredLedger, ledger_page, read_ledger
from store.tables import run_tables, schema

LATER = START + timedelta(days=30)


def events_of(program: Program, run: str) -> list[Event]:
    """The program's lines as events of a run."""
    return [
        Event(
            START + timedelta(seconds=now_s) if dated else None,
            "gpu-1",
            "training",
            kind,
            attributes={**told, "run": run},
            file=f"{run}.log",
            line=number,
        )
        for number, (kind, now_s, told, dated) in enumerate(program.told, start=1)
    ]


def steady(count: int, iteration_s: float = 2.0) -> list[Event]:
    """Iteration lines of a program that nothing disturbs."""
    return [
        Event(
            START + timedelta(seconds=iteration_s * number),
            "gpu-1",
            "training",
            "iteration",
            attributes={"run": "run", "iteration": number, "iterations": 1, "elapsed_ms": 1000 * iteration_s},
            file="run.log",
            line=number,
        )
        for number in range(1, count + 1)
    ]


def put(engine: sa.Engine, events: Sequence[Event], jobs: Sequence[Job] = ()) -> None:
    """What a source sends, in one append."""
    with writing(engine).begin() as connection:
        append_jobs(connection, jobs)
        append_events(connection, events, LATER)


def stored(engine: sa.Engine, run: str = "run") -> StoredLedger:
    """The stored ledger."""
    with engine.connect() as connection:
        found = read_ledger(connection, run)
    assert found is not None
    return found


def from_scratch(engine: sa.Engine, run: str = "run") -> dict[str, object]:
    """The account of all that is stored, without anything that was kept."""
    with engine.connect() as connection:
        return account(read_records(connection, run, None, read_inventory(connection))).to_json()


def fresh(engine: sa.Engine) -> RefreshReport:
    """Everything up to date, in this process."""
    told = refresh(engine, LATER, workers=1)
    assert (told.reason, told.unsaved) == (None, {})
    return told


@pytest.mark.parametrize("seed", [1, 4, 9, 23])
def test_a_ledger_that_follows_its_lines_is_that_of_the_whole_log(any_engine: sa.Engine, seed: int) -> None:
    """In batches, every fifth line late; nothing waits afterwards."""
    program = Program(seed, whole_seconds=True, undated=False)
    lines = events_of(program, "run")
    late, timely = lines[::5], [line for place, line in enumerate(lines) if place % 5]
    put(any_engine, [], program.jobs)
    for batch in (timely[:40], timely[40:41], late, timely[41:]):
        put(any_engine, batch)
        fresh(any_engine)
        assert stored(any_engine).content["account"] == from_scratch(any_engine)
    with any_engine.connect() as connection:
        assert runs_with_news(connection) == set()
        assert stale_runs(connection, LATER).runs == {}


def test_what_has_no_news_is_not_made_again(any_engine: sa.Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two runs the one with a new line; its log is not read from the beginning."""
    monkeypatch.setattr(folded_log, "TAIL", 3)
    program = Program(4, whole_seconds=True, undated=False)
    jobs = [Job("1", run, "RUNNING", START, START, None, 2, "gpu-[1-2]") for run in ("a",)]
    lines = events_of(program, "a")
    put(any_engine, lines[:-5], jobs)
    put(any_engine, events_of(Program(9, whole_seconds=True, undated=False), "b"))
    assert fresh(any_engine).made == 2
    before = stored(any_engine, "b")
    put(any_engine, lines[-5:])
    monkeypatch.setattr(reading_log, "read_rows", lambda *_: pytest.fail("the log was read"))
    assert (fresh(any_engine).made, fresh(any_engine).made) == (1, 0)
    assert stored(any_engine, "b").computed == before.computed
    monkeypatch.undo()
    assert stored(any_engine, "a").content["account"] == from_scratch(any_engine, "a")


def test_a_fault_that_comes_late_accounts_the_run_again(any_engine: sa.Engine) -> None:
    """A day after the end; an outage as well. What is no fault is none of the ledger's business."""
    job = Job("1", "run", "FAILED", START, START, START + timedelta(seconds=60), 2, "gpu-[1-2]")
    told: dict[str, Attribute] = {"run": "run", "iteration": 1, "iterations": 1, "elapsed_ms": 10_000.0}
    put(any_engine, [Event(START + timedelta(seconds=20), None, "training", "iteration", attributes=told)], [job])
    fresh(any_engine)
    assert [cut["cause"] for cut in stored(any_engine).content["account"]["interruptions"]] == ["unknown"]
    at = START + timedelta(seconds=40)
    put(any_engine, [Event(at, "gpu-2", "kernel", "xid", code=63, severity="info", cause="hardware")])
    assert fresh(any_engine).made == 0
    gpu = Device("gpu", pci="0000:0f:00.0")
    put(any_engine, [Event(at, "gpu-2", "kernel", "xid", code=79, severity="fatal", cause="hardware", device=gpu)])
    assert fresh(any_engine).made == 1
    assert [cut["cause"] for cut in stored(any_engine).content["account"]["interruptions"]] == ["hardware"]
    with any_engine.connect() as connection:
        assert read_late(connection) == ([], [])


def test_a_ledger_just_ended_is_made_once_more_when_its_faults_are_in(any_engine: sa.Engine) -> None:
    """What comes within a quarter of an hour is not late: the ledger is not settled until then."""
    end = LATER - timedelta(minutes=5)
    put(any_engine, [], [Job("1", "run", "FAILED", START, START, end, 2, "gpu-[1-2]")])
    assert fresh(any_engine).made == 1
    assert fresh(any_engine).made == 0
    assert refresh(any_engine, LATER + timedelta(minutes=11), workers=1).made == 1
    assert refresh(any_engine, LATER + timedelta(minutes=12), workers=1).made == 0


def test_of_two_that_bring_a_run_up_the_slower_one_gives_way(any_engine: sa.Engine) -> None:
    """It read less: neither its ledger nor its folded log replaces the newer ones, and no line is lost."""
    lines = events_of(Program(4, whole_seconds=True, undated=False), "run")
    put(any_engine, lines[:20])
    fresh(any_engine)
    put(any_engine, lines[20:30])
    with snapshot(any_engine) as connection:
        slow = make(connection, "run", LATER)
    put(any_engine, lines[30:])
    fresh(any_engine)
    assert slow is not None
    with writing(any_engine).begin() as connection:
        assert not keep(connection, slow)
    assert stored(any_engine).content["account"] == from_scratch(any_engine)


def test_pruned_lines_stay_in_the_ledger(any_engine: sa.Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """What follows is added; what comes late for the pruned part is left out, and nothing breaks."""
    monkeypatch.setattr(folded_log, "TAIL", 3)
    lines = events_of(Program(9, whole_seconds=True, undated=False), "run")
    put(any_engine, [*lines[:5], *lines[6:-3]])
    fresh(any_engine)
    wall = stored(any_engine).content["account"]["wall_s"]
    with writing(any_engine).begin() as connection:
        connection.execute(sa.delete(schema.events))
    put(any_engine, lines[5:6])
    fresh(any_engine)
    assert stored(any_engine).content["account"]["wall_s"] == wall
    put(any_engine, lines[-3:])
    fresh(any_engine)
    assert stored(any_engine).content["account"]["wall_s"] > wall


def prune(engine: sa.Engine) -> None:
    """No line is stored any more; what is folded stays."""
    with writing(engine).begin() as connection:
        connection.execute(sa.delete(schema.events))


def test_what_comes_in_time_is_not_lost_with_what_comes_late(
    any_engine: sa.Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A late line for the pruned part is left out; the new ones that came with it are in the ledger."""
    monkeypatch.setattr(folded_log, "TAIL", 3)
    lines = steady(90)
    put(any_engine, [*lines[:5], *lines[6:60]])
    fresh(any_engine)
    prune(any_engine)
    put(any_engine, [lines[5], *lines[60:75]])
    fresh(any_engine)
    assert stored(any_engine).content["account"]["wall_s"] == 150
    put(any_engine, lines[75:])
    fresh(any_engine)
    assert stored(any_engine).content["account"]["wall_s"] == 180


def test_a_run_goes_on_although_what_it_goes_back_to_is_pruned(
    any_engine: sa.Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A start that goes back into a stretch, and then a slower pace: the ledger goes on to the last line."""
    monkeypatch.setattr(folded_log, "TAIL", 3)
    put(any_engine, steady(60))
    fresh(any_engine)
    prune(any_engine)
    again = [
        replace(line, time=START + timedelta(seconds=200 + 4 * place), line=100 + place)
        for place, line in enumerate(steady(130, 4.0)[30:], start=1)
    ]
    for batch in (again[:10], again[10:40], again[40:]):
        put(any_engine, batch)
        fresh(any_engine)
        told = stored(any_engine).content["account"]
        assert told["end"] == format_time(batch[-1].time)
    # Iterations 31 to 60 of the first start, to within one.
    assert told["buckets"]["lost_work"] == pytest.approx(60, abs=2)


def test_a_job_that_is_told_after_its_lines_parts_what_was_folded(
    any_engine: sa.Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job that changed its size while the program went on: the log is read again once, and then no more."""
    monkeypatch.setattr(folded_log, "TAIL", 3)
    lines = steady(80)
    put(any_engine, lines[:60], [Job("1", "run", "RUNNING", START, START, None, 2, "gpu-[1-2]")])
    fresh(any_engine)
    cut = START + timedelta(seconds=61)
    first = Job("1", "run", "RESIZING", START, START, cut, 2, "gpu-[1-2]")
    put(any_engine, [], [first, Job("2", "run", "RUNNING", cut, cut, None, 4, "gpu-[1-4]")])
    assert fresh(any_engine).made == 1
    told = stored(any_engine).content["account"]
    assert told == from_scratch(any_engine)
    # The second job begins in the middle of a line, which is the first one's.
    assert (told["buckets"]["productive"], told["buckets"]["startup"]) == (119, 1)
    put(any_engine, lines[60:])
    monkeypatch.setattr(reading_log, "read_rows", lambda *_: pytest.fail("the log was read"))
    assert fresh(any_engine).made == 1
    monkeypatch.undo()
    assert stored(any_engine).content["account"] == from_scratch(any_engine)


def test_two_sources_are_read_whole_and_agree(any_engine: sa.Engine) -> None:
    """A hook that comes to a log that was folded: each piece of work once, and so again with more lines."""
    lines = events_of(Program(4, whole_seconds=True, undated=False), "run")
    put(any_engine, lines[:30])
    fresh(any_engine)
    hook = [Event(line.time, None, "hook", line.kind, attributes=dict(line.attributes)) for line in lines[:10]]
    for batch in (hook, lines[30:]):
        put(any_engine, batch)
        fresh(any_engine)
        assert stored(any_engine).content["account"] == from_scratch(any_engine)


def test_lines_that_were_never_news_are_found_by_their_number(any_engine: sa.Engine) -> None:
    """A copy of the database was loaded, or the news was deleted by hand."""
    lines = events_of(Program(4, whole_seconds=True, undated=False), "run")
    put(any_engine, lines[:20])
    fresh(any_engine)
    put(any_engine, lines[20:])
    with writing(any_engine).begin() as connection:
        connection.execute(sa.delete(run_tables.log_news))
    with any_engine.connect() as connection:
        assert stale_runs(connection, LATER, whole=False).runs == {}
    fresh(any_engine)
    assert stored(any_engine).content["account"] == from_scratch(any_engine)


def test_a_number_that_is_no_run_leaves_no_news(any_engine: sa.Engine) -> None:
    """NVRx names its cycles by the job's number: the job's run is what has news."""
    put(any_engine, [], [Job("77", "run", "RUNNING", START, START, None, 2, "gpu-[1-2]")])
    fresh(any_engine)
    cycle = Event(START, "gpu-1", "nvrx", "cycle_start", attributes={"run": "77", "job": "77", "cycle": 0})
    put(any_engine, [cycle])
    fresh(any_engine)
    with any_engine.connect() as connection:
        assert read_news(connection, ["77"]) == {}
    assert [one.run for one in read_all(any_engine, RefreshReport())] == ["run"]


def test_an_outage_that_comes_late_is_found(any_engine: sa.Engine) -> None:
    """It blames the node that no event named."""
    put(any_engine, [], [Job("1", "run", "NODE_FAIL", START, START, START + timedelta(seconds=60), 2, "gpu-[1-2]")])
    fresh(any_engine)
    down = Outage("gpu-1", START + timedelta(seconds=50), None, "DOWN", "", None, False, "host")
    with writing(any_engine).begin() as connection:
        append_outages(connection, [down], LATER)
    assert fresh(any_engine).made == 1
    (cut,) = stored(any_engine).content["account"]["interruptions"]
    assert cut["culprit"]["node"] == "gpu-1"


def test_a_late_fault_is_not_lost_with_a_process_that_is_stopped(
    any_engine: sa.Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It stays news until the ledgers that it changes are stored, in a refresh of all runs."""
    put(any_engine, [], [Job("1", "run", "FAILED", START, START, START + timedelta(seconds=60), 2, "gpu-[1-2]")])
    fresh(any_engine)
    at = START + timedelta(seconds=40)
    put(any_engine, [Event(at, "gpu-2", "kernel", "xid", code=79, severity="fatal", cause="hardware")])

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("goodput.stored.refresh.keep_all", killed)
    with pytest.raises(KeyboardInterrupt):
        fresh(any_engine)
    monkeypatch.setattr("goodput.stored.refresh.keep_all", lambda _connection, made: {one.ledger.run for one in made})
    assert set(refresh(any_engine, LATER, workers=1).unsaved) == {"run"}
    monkeypatch.undo()
    assert refresh(any_engine, LATER, run="another", workers=1).made == 0
    assert (fresh(any_engine).made, fresh(any_engine).made) == (1, 0)
    assert [cut["cause"] for cut in stored(any_engine).content["account"]["interruptions"]] == ["hardware"]


def statements(engine: sa.Engine, count: int) -> int:
    """How many statements it takes to bring up so many runs, all with a new line and a stop."""
    began = START - timedelta(days=1)
    names = [f"run-{count}-{n}" for n in range(count)]
    jobs = [Job(name, name, "FAILED", began, began, START, 1, "gpu-1") for name in names]
    lines = [line for name in names for line in events_of(Program(4, whole_seconds=True, undated=False), name)]
    put(engine, [line for line in lines if (line.line or 0) < 20], jobs)
    fresh(engine)
    put(engine, [line for line in lines if (line.line or 0) >= 20])
    told: list[str] = []

    def note(*given: object) -> None:
        told.append(str(given[2]))

    sa.event.listen(engine, "before_cursor_execute", note)
    assert fresh(engine).made == count
    sa.event.remove(engine, "before_cursor_execute", note)
    for name in names:
        assert stored(engine, name).content["account"] == from_scratch(engine, name)
    return len(told)


def test_many_runs_are_brought_up_by_few_statements(any_engine: sa.Engine) -> None:
    """Beside the folded log, which each run writes for itself, twelve runs take as many as two do."""
    assert statements(any_engine, 12) - 12 == statements(any_engine, 2) - 2


def test_of_several_runs_the_one_that_gives_way_keeps_no_other_from_being_stored(any_engine: sa.Engine) -> None:
    """Runs that are stored together are still stored each by itself."""
    programs = {
        run: events_of(Program(seed, whole_seconds=True, undated=False), run) for run, seed in (("a", 4), ("b", 9))
    }
    put(any_engine, [line for lines in programs.values() for line in lines[:20]])
    fresh(any_engine)
    put(any_engine, [line for lines in programs.values() for line in lines[20:30]])
    with snapshot(any_engine) as connection:
        slow = make_all(connection, ["b", "nobody", "a"], LATER)
    put(any_engine, programs["a"][30:])
    refresh(any_engine, LATER, run="a", workers=1)
    with writing(any_engine).begin() as connection:
        assert keep_all(connection, list(slow.values())) == {"a"}
    with any_engine.connect() as connection:
        assert runs_with_news(connection) == set()
    for run in ("a", "b"):
        assert stored(any_engine, run).content["account"] == from_scratch(any_engine, run)


def test_of_all_ledgers_or_of_one_what_was_made_last_is_read(
    any_engine: sa.Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By run, over several pages; one that could not be stored in the place of the older one that is."""
    monkeypatch.setattr("goodput.stored.refresh._PAGE", 2)
    names = [f"run-{n}" for n in range(5)]
    put(any_engine, [], [Job(name, name, "COMPLETED", START, START, START, 1, "gpu-1") for name in names])
    told = fresh(any_engine)
    with any_engine.connect() as connection:
        newer = {name: replace(ledger_page(connection, "", 1)[0], run=name, until=LATER) for name in ("run-3", "run-9")}
    unsaved = RefreshReport(unsaved=newer)
    assert [one.run for one in read_all(any_engine, told)] == names
    assert [(one.run, one.until == LATER) for one in read_all(any_engine, unsaved)] == [
        *((name, name == "run-3") for name in names), ("run-9", True),
    ]  # fmt: skip
    for run, whole in (("run-1", [False]), ("run-3", [True]), ("run-9", [True]), ("run-7", [])):
        found = list(read_all(any_engine, unsaved, run))
        assert ([one.run for one in found], [one.until == LATER for one in found]) == ([run] * len(whole), whole)

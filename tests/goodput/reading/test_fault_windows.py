"""Faults of many attempts in a few statements: the same ones that each window by itself would give."""

import random
from dataclasses import replace
from datetime import timedelta

import pytest
import sqlalchemy as sa
from hand_made_run import START, at

from goodput.reading import records
from goodput.reading.records import read_faults
from goodput.timeline import to_ms
from goodput.wall_time.attempts import RunAttempt, fault_window
from store.database.connections import writing
from store.events.append import append_events
from store.records.event import Event

LATER = START + timedelta(days=30)
DAY_S = 86_400


def attempt(start_s: float, end_s: float | None, *nodes: str) -> RunAttempt:
    """An attempt without a log: its window is the half hour before its end."""
    end_ms = None if end_s is None else to_ms(at(end_s))
    return RunAttempt(None, to_ms(at(start_s)), end_ms, "FAILED", nodes=frozenset(nodes))


def put(engine: sa.Engine, events: list[Event]) -> None:
    """Events that came long after."""
    with writing(engine).begin() as connection:
        append_events(connection, events, LATER)


def xid(seconds: float, node: str | None, line: int = 1) -> Event:
    """A grave fault of a GPU."""
    return Event(at(seconds), node, "kernel", "xid", code=79, severity="fatal", cause="hardware", line=line)


def reported(run: str, seconds: float | None, node: str | None = None) -> Event:
    """What a run's program says when it ends."""
    time = None if seconds is None else at(seconds)
    return Event(time, node, "training", "training_error", severity="error", attributes={"run": run})


def read(engine: sa.Engine, **attempts: list[RunAttempt]) -> dict[str, list[Event]]:
    """The faults of runs, by their names."""
    with engine.connect() as connection:
        return read_faults(connection, attempts)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_many_windows_give_what_each_gives_by_itself(
    any_engine: sa.Engine, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """They overlap, lie on several days, one over midnight; a page and a statement end among them."""
    dice = random.Random(seed)
    monkeypatch.setattr(records, "_WINDOWS", 3)
    monkeypatch.setattr(records, "_PAGE", 4)
    nodes = [f"gpu-{n}" for n in range(4)]
    ends = [*(dice.uniform(0.9, 3) * DAY_S for _ in range(30)), DAY_S + 600.0]
    attempts: dict[str, list[RunAttempt]] = {"a": [], "b": [], "none": []}
    for end in ends:
        attempts[dice.choice("ab")].append(attempt(end - dice.uniform(60, 7_200), end, *dice.sample(nodes, 2)))
    # Some at the very edges of windows, several at one moment.
    moments = [end - dice.choice([0, 0, 900, 1_800, 1_801, -1]) for end in ends for _ in range(4)]
    events = [xid(moment, dice.choice(nodes), n) for n, moment in enumerate(moments)]
    events += [reported(dice.choice("ab"), moment, dice.choice(nodes)) for moment in moments[::5]]
    events = [replace(event, id=f"{n:032x}") for n, event in enumerate(events)]  # else equal ones would be one
    put(any_engine, events)
    for run, found in read(any_engine, **attempts).items():
        told = [(one.time, one.node, one.kind, one.line) for one in found]
        expected = []
        for one in attempts[run]:
            since, until = fault_window(one, one.end_ms or 0)
            fits = [event for event in events if since <= to_ms(event.time or LATER) <= until]
            own = [e for e in fits if (e.run() == run if e.kind == "training_error" else e.node in one.nodes)]
            expected += [(e.time, e.node, e.kind, e.line) for e in own]
        assert sorted(told, key=str) == sorted(expected, key=str)
        assert run == "none" or told


def test_what_is_no_fault_of_the_run_is_left_out(any_engine: sa.Engine) -> None:
    """Warnings, another run's error, an error that bears no time, faults of other nodes and of other moments."""
    lost = Event(at(95), "gpu-2", "opensm", "link_down", severity="warning", cause="fabric")
    drained = Event(at(95), "gpu-1", "sacctmgr", "outage", severity="error", cause="hardware")
    mild = Event(at(95), "gpu-1", "kernel", "xid", code=63, severity="warning", cause="hardware")
    others = [reported("other", 90), reported("run", None), xid(90, "gpu-3"), xid(90, None), xid(101, "gpu-1")]
    put(any_engine, [lost, drained, mild, *others, reported("run", 99), xid(100, "gpu-1")])
    found = read(any_engine, run=[attempt(0, 100, "gpu-1", "gpu-2")])["run"]
    assert [one.kind for one in found] == ["link_down", "training_error", "xid"]


def test_an_error_without_a_time_is_none_of_the_moment_of_its_receipt(any_engine: sa.Engine) -> None:
    """An attempt may have ended when the log was taken in."""
    put(any_engine, [reported("run", None), replace(reported("run", None), time=LATER - timedelta(seconds=9))])
    (found,) = read(any_engine, run=[attempt(0, (LATER - START).total_seconds(), "gpu-1")])["run"]
    assert found.time == LATER - timedelta(seconds=9)


def test_a_flood_is_cut_but_not_by_what_other_nodes_say(engine: sa.Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first of its own are kept, however many of others came before."""
    monkeypatch.setattr(records, "MAX_FAULTS", 2)
    put(engine, [*(xid(50 + n, "gpu-9", n) for n in range(9)), *(xid(60 + n, "gpu-1", n) for n in range(4))])
    first, second = read(engine, a=[attempt(0, 100, "gpu-1")], b=[attempt(0, 62, "gpu-1")]).values()
    assert [one.line for one in first] == [one.line for one in second] == [0, 1]


def test_many_windows_of_a_day_are_one_statement(engine: sa.Engine) -> None:
    """Not one each: that is most of what ledgers cost."""
    told: list[str] = []

    def note(*given: object) -> None:
        told.extend(text for text in [str(given[2])] if text.startswith("SELECT"))

    sa.event.listen(engine, "before_cursor_execute", note)
    read(engine, a=[attempt(0, 100 + n, "gpu-1") for n in range(20)], b=[attempt(0, 5_000, "gpu-1")])
    assert len(told) == 1
    read(engine, a=[attempt(0, None, "gpu-1")], c=[attempt(0, 100, "gpu-1"), attempt(0, DAY_S * 2, "gpu-1")])
    assert len(told) == 3


def test_the_last_millisecond_of_an_attempt_is_its_own(any_engine: sa.Engine) -> None:
    """An attempt's end is in whole milliseconds, rounded down: what ended it may bear microseconds beyond."""
    late = [replace(xid(100, "gpu-1"), time=at(100) + timedelta(microseconds=rest)) for rest in (0, 1, 999, 1_000)]
    put(any_engine, late)
    found = read(any_engine, run=[attempt(0, 100, "gpu-1")])["run"]
    assert [(one.time or LATER).microsecond for one in found] == [0, 1, 999]

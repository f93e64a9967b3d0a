"""What is put before the engine: each line of a storm counts, and few of them are carried."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import sqlalchemy as sa

from diagnosis.graph.device_graph import DeviceGraph
from diagnosis.symptoms.folding import SymptomFold
from diagnosis.symptoms.symptom import Symptom
from diagnosis.verdicts.news import put_symptoms, without_repeats
from store.database.connections import writing
from store.records.event import Device, Event
from store.verdicts.symptom_news import oldest_news

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
XID = Event(NOW, "gpu-017", "kernel", "xid", 79, "fatal", "hardware", device=Device("gpu", pci="0000:0f:00.0"))


def at(event: Event, second: int) -> Event:
    """The same so many seconds later."""
    return replace(event, time=NOW + timedelta(seconds=second), id=f"{event.node}{event.kind}{second}")


def test_a_line_a_hundred_times_is_its_first_and_last_and_counts_a_hundred() -> None:
    """The symptom is the same as of all of them, but for the ids in between."""
    events = [at(XID, second) for second in range(100)]
    kept = without_repeats(events)
    assert [event.time for event in kept] == [events[0].time, events[-1].time]
    (whole,), (carried,) = (_symptoms(lines) for lines in (events, kept))
    assert (carried.count, carried.first, carried.last) == (whole.count, whole.first, whole.last)
    assert without_repeats(kept * 10)[0].attributes["repeats"] == 9 * 99 - 1


def test_what_lies_around_a_cure_and_what_ranks_say_is_left_whole() -> None:
    """A link that flaps ten times went down ten times."""
    down = replace(XID, kind="link_down", code=None, cause="fabric", device=Device("nic", index=0))
    up = replace(down, kind="link_up", severity="info")
    flaps = [at(one, 2 * second + place) for second in range(10) for place, one in enumerate((down, up))]
    assert without_repeats(flaps) == flaps
    assert _symptoms(without_repeats(flaps)) == _symptoms(flaps)
    ranks = [at(replace(XID, kind="training_error", attributes={"run": "llm"}), second) for second in range(20)]
    assert without_repeats(ranks) == ranks


def test_of_a_runs_iterations_the_newest_is_put_before_the_engine(engine: sa.Engine) -> None:
    """It ends a hang; a thousand of them would say no more."""
    work = [at(Event(NOW, None, "hook", "iteration", attributes={"run": run}), n) for n in range(50) for run in "ab"]
    with writing(engine).begin() as connection:
        put_symptoms(connection, work[::-1], NOW + timedelta(minutes=2))
        (batch,) = oldest_news(connection, 1000)
    assert sorted((str(event.run()), event.time) for event in batch.events) == [
        (run, NOW + timedelta(seconds=49)) for run in "ab"
    ]


def _symptoms(events: list[Event]) -> list[Symptom]:
    fold = SymptomFold(DeviceGraph())
    fold.take(events)
    return fold.symptoms()

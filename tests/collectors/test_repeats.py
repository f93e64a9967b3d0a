"""What a program prints again and again."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import orjson
import pytest

from collectors import decoder
from collectors.decoder import RepeatFilter
from store.records.event import Device, Event

NOW = datetime(2025, 3, 1, 4, 5, 6, tzinfo=UTC)


def counted(count: int, name: str = "SymbolErrorCounter", port: int = 1, line: int = 1) -> Event:
    """As ibqueryerrors says it."""
    device = Device(type="port", uuid="0xb8", port=port)
    return Event(
        None, "n1", "ibqueryerrors", "counter", device=device, attributes={"counter": name, "count": count}, line=line
    )


def degraded(port: int, line: int = 1) -> Event:
    """As iblinkinfo says it."""
    return Event(
        None, "n1", "iblinkinfo", "link_degraded", device=Device(type="port", uuid="0xb8", port=port), line=line
    )


class Runs:
    """Runs a minute apart, the state through JSON between them."""

    def __init__(self) -> None:
        self.state: dict[str, object] | None = None
        self.number = 0

    def run(self, *events: Event) -> list[Event]:
        """One run's new events."""
        self.number += 1
        one = RepeatFilter(self.state)
        found = one.add(events, NOW + timedelta(minutes=self.number), f"exec:x:{self.number}")
        self.state = orjson.loads(orjson.dumps(one.state()))
        return found


def test_a_counter_is_its_increase_since_the_run_before() -> None:
    """The first run tells where it stands; an equal one nothing."""
    runs = Runs()
    assert runs.run(counted(100)) == []
    [rise] = runs.run(counted(107))
    assert (rise.attributes["count"], rise.attributes["total"], rise.message) == (
        7,
        107,
        "SymbolErrorCounter rose by 7",
    )
    assert rise.time == NOW + timedelta(minutes=2)
    assert runs.run(counted(107)) == []


def test_a_counter_that_was_not_printed_before_stood_at_nothing() -> None:
    """The tools leave out what is 0. One that a later run lacks keeps its value: its port may not have answered."""
    runs = Runs()
    runs.run(counted(5))
    assert [rise.attributes["count"] for rise in runs.run(counted(5), counted(3, port=2))] == [3]
    runs.run()
    assert runs.run(counted(5), counted(3, port=2)) == []


def test_a_counter_that_was_cleared_counts_from_nothing() -> None:
    """What it shows is the increase since."""
    runs = Runs()
    runs.run(counted(100))
    assert [rise.attributes["count"] for rise in runs.run(counted(4))] == [4]


def test_equal_rises_at_two_times_are_two_events() -> None:
    """Their runs tell them apart; two ports of one run their devices."""
    runs = Runs()
    runs.run(counted(1), counted(1, port=2))
    first = runs.run(counted(2), counted(2, port=2, line=2))
    second = runs.run(counted(3), counted(3, port=2, line=2))
    assert len({event.id for event in first + second}) == 4


def test_the_port_of_a_lid_is_told_from_that_of_another() -> None:
    """perfquery names no node: the LID does."""
    runs = Runs()
    runs.run()
    at = [replace(counted(5), node=None, attributes={"counter": "c", "count": 5, "lid": lid}) for lid in (1, 2)]
    assert len(runs.run(*at)) == 2


def test_what_stands_is_told_when_it_comes_and_again_after_it_was_gone() -> None:
    """A degraded link is printed by every run; where it stands in the output does not matter."""
    runs = Runs()
    assert len(runs.run(degraded(1))) == 1
    assert [event.device.port for event in runs.run(degraded(2), degraded(1, line=9))] == [2]
    assert runs.run(degraded(2)) == []
    assert [event.device.port for event in runs.run(degraded(1), degraded(2))] == [1]


def test_what_bears_its_own_time_keeps_it_and_its_id() -> None:
    """A job that sacct prints for a week is one event, whichever run saw it."""
    job = replace(degraded(1), time=NOW - timedelta(days=1))
    first, second = Runs(), Runs()
    second.run()
    [one], [other] = first.run(job), second.run(job)
    assert one.time == other.time == NOW - timedelta(days=1)
    assert one.id == other.id


def test_counters_without_end_fill_no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those beyond the limit are left out and counted; the known ones go on."""
    monkeypatch.setattr(decoder, "MOST_COUNTERS", 2)
    one = RepeatFilter()
    one.add([counted(1, port=port) for port in range(5)], NOW, "a")
    assert one.left_out == 3
    assert len(one.add([counted(2, port=port) for port in range(5)], NOW, "b")) == 2

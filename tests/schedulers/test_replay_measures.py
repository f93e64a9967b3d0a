"""What an episode cost and whether it was right."""

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schedulers.backtest.episode import Episode, ReplayResult, ReplaySpan
from schedulers.backtest.measures import NodeService, PolicyMeasures, measure
from store.records.outage import Outage

from .cluster import HOUR, NOW

SPAN = ReplaySpan(NOW, NOW + 100 * HOUR)


def asked(
    since: float, until: float | None, action: Any = "cordon", node: str = "a", held: str | None = None
) -> Episode:
    """An episode by hours."""
    end = None if until is None else NOW + until * HOUR
    return Episode(f"h{since}", node, action, NOW + since * HOUR, end, "r", held)


def outage(start: float, end: float | None, planned: bool = False, node: str = "a") -> Outage:
    """An outage by hours."""
    last = None if end is None else NOW + end * HOUR
    return Outage(node, NOW + start * HOUR, last, "DOWN", "x", None, planned, "hardware")


def measured(
    episodes: list[Episode], *outages: Outage, fleet: tuple[NodeService, ...] = (NodeService("a", 8),)
) -> PolicyMeasures:
    """The measures of a span of 100 hours."""
    return measure(ReplayResult(SPAN, 1, episodes, ()), outages, fleet)


@pytest.mark.parametrize(
    ("episode", "start", "verdict"),
    [
        (asked(10, 20), 15, "right"),
        (asked(10, 20), 10, "right"),
        (asked(10, 20), 33.9, "right"),
        (asked(10, 20), 34, "false"),
        (asked(10, 20), 9.9, "false"),
        (asked(10, 60), 59, "right"),
        (asked(10, 60), 60, "false"),
        (asked(10, None), 99, "right"),
        (asked(80, 90), 5, "undecided"),
        (asked(76, 90), 5, "false"),
    ],
)
def test_a_hold_is_right_when_an_outage_followed_in_time(episode: Episode, start: float, verdict: str) -> None:
    """While it lasted, or within a day; where less than a day was lived nobody knows."""
    found = measured([episode], outage(start, start + 1)).holds
    assert {name: getattr(found, name) for name in ("right", "false", "undecided")} == {
        name: int(name == verdict) for name in ("right", "false", "undecided")
    }


def test_a_planned_outage_proves_nothing() -> None:
    """But what the node is out anyway is no cost of the hold."""
    found = measured([asked(10, 20)], outage(12, 15, planned=True))
    assert (found.outages, found.holds.false, found.holds.held_gpu_h) == (0, 1, 7 * 8)


@pytest.mark.parametrize(
    ("episode", "outages", "hours"),
    [
        (asked(10, 20), [], 10),
        (asked(10, None), [], 90),
        (asked(10, 20), [outage(12, 14)], 8),
        (asked(10, 20), [outage(5, 12), outage(18, 30)], 6),
        (asked(10, 20), [outage(5, None)], 0),
        (asked(10, 20), [outage(12, 16), outage(14, 18)], 4),
        (asked(10, 20), [outage(30, 40)], 10),
        (asked(90, 130), [], 10),
    ],
)
def test_a_hold_costs_the_hours_that_its_node_could_have_worked(
    episode: Episode, outages: list[Outage], hours: float
) -> None:
    """Times its GPUs."""
    assert measured([episode], *outages).holds.held_gpu_h == pytest.approx(8 * hours)


def test_an_outage_is_caught_once_with_its_longest_lead() -> None:
    """Two episodes before it; leads are sorted."""
    found = measured([asked(10, 12), asked(14, 16)], outage(20, 21), outage(33, 34))
    assert (found.outages, found.holds.right, found.holds.caught) == (2, 2, 2)
    assert found.holds.lead_h == (10, 23)


def test_soft_hints_are_measured_apart_and_what_was_held_back_not_at_all() -> None:
    """Nor is the node of which nobody knows."""
    episodes = [
        asked(1, 2, "avoid"),
        asked(3, 4, "watch"),
        asked(5, 6, "avoid", held="budget: x"),
        asked(7, 8, "drain"),
    ]
    found = measured([*episodes, asked(1, 2, node="unknown")], outage(1.5, 3))
    assert dict(found.by_action) == {"avoid": 1, "watch": 1, "drain": 1}
    assert (found.avoids.episodes, found.avoids.right, found.holds.episodes, found.holds.false) == (1, 1, 1, 1)


def test_false_holds_are_told_by_thousand_node_days_of_service() -> None:
    """Of the time in service within the span."""
    fleet = (
        NodeService("a", 8),
        NodeService("b", 8, NOW - 5 * HOUR, NOW + 20 * HOUR),
        NodeService("c", 8, NOW + 200 * HOUR),
    )
    found = measured([asked(1, 2)], fleet=fleet)
    assert found.node_days == pytest.approx(5)
    assert found.holds.false_per_1000_node_days == pytest.approx(200)
    assert measured([], fleet=()).holds.false_per_1000_node_days is None


HOURS = st.floats(0, 100)


@given(
    episodes=st.lists(st.tuples(HOURS, st.floats(0, 60)), max_size=8),
    outages=st.lists(st.tuples(HOURS, st.floats(0, 60), st.booleans()), max_size=8),
)
def test_the_sums_hold(episodes: list[tuple[float, float]], outages: list[tuple[float, float, bool]]) -> None:
    """Each episode has one verdict; no more is caught than failed; nothing costs more than it lasted."""
    made = [asked(since, since + lasts) for since, lasts in episodes]
    found = measured(made, *(outage(start, start + lasts, planned) for start, lasts, planned in outages))
    holds = found.holds
    assert holds.right + holds.false + holds.undecided == holds.episodes == len(made)
    assert holds.caught == len(holds.lead_h) <= found.outages
    assert all(lead >= 0 for lead in holds.lead_h)
    longest = sum((min(NOW + 100 * HOUR, one.until or NOW) - one.since for one in made), timedelta()) / HOUR
    assert 0 <= holds.held_gpu_h <= 8 * longest + 1e-6

"""The cluster's GPU-hours, level by level: worked examples, and sums that leave nothing out."""

from datetime import datetime, timedelta

import pytest
import sqlalchemy as sa
from hand_made_run import START, at
from hypothesis import given
from hypothesis import strategies as some

from goodput.cluster.level import Level, doubts_of, level_json, levels, program_goodput, summed
from goodput.timeline import DAY_MS, to_ms
from store.database.connections import writing
from store.events.append import append_nodes, append_outages
from store.nodes.inventory import OutageSpan, ServiceSpan, outage_spans, service_spans
from store.records.node import Node
from store.records.outage import Outage

DAY = timedelta(days=1)
BEGIN = to_ms(START)
HOUR_MS = 3_600_000


def hours(level: Level) -> dict[str, float]:
    """Its amounts, GPU-hours."""
    return dict(level_json(level)["gpu_hours"])


def test_a_day_of_four_nodes() -> None:
    """32 GPUs: one node out for 6 h (2 h of them planned, behind an unplanned outage), two runs beside each other."""
    service = [ServiceSpan(None, None, 4, 32, 0)]
    outages = [
        OutageSpan("a", START + 2 * timedelta(hours=1), START + timedelta(hours=6), False, 8),
        OutageSpan("a", START + timedelta(hours=5), START + timedelta(hours=8), True, 8),
    ]
    spent = {"waiting": 3, "startup": 10, "productive": 300, "lost_work": 40, "detection": 5, "unknown": 15}
    days = [(START, bucket, 1, amount * HOUR_MS, 0) for bucket, amount in spent.items()]
    (day,) = levels((BEGIN, BEGIN + DAY_MS), service, outages, days)
    told = level_json(day, program=0.4)
    assert told["gpu_hours"] == {
        "existing": 768.0,
        "out_planned": 16.0,
        "out_unplanned": 32.0,
        "schedulable": 720.0,
        "idle": 350.0,
        "allocated": 370.0,
        "running": 340.0,
        "productive": 300.0,
    }
    assert told["scheduling_goodput"] == pytest.approx(370 / 768)
    assert told["runtime_goodput"] == pytest.approx(300 / 370)
    assert told["ml_productivity_goodput"] == pytest.approx(300 / 768 * 0.4)
    assert told["productive_of_existing"] == pytest.approx(300 / 768)
    assert told["ettr"] == {"least": pytest.approx(300 / 373), "most": pytest.approx(315 / 373)}
    assert doubts_of(day, service) == []


def test_the_day_that_is_not_over_ends_now() -> None:
    """And a node that came at noon counts from noon; one that left before does not count."""
    service = [
        ServiceSpan(START + timedelta(hours=12), None, 1, 8, 0),
        ServiceSpan(None, START - DAY, 1, 8, 0),
    ]
    first, last = levels((BEGIN, BEGIN + DAY_MS + HOUR_MS), service, [], [])
    assert (hours(first)["existing"], hours(last)["existing"]) == (96.0, 8.0)
    assert last.end_ms == BEGIN + DAY_MS + HOUR_MS
    whole = summed([first, last])
    assert (whole.start_ms, whole.end_ms, hours(whole)["existing"]) == (BEGIN, BEGIN + DAY_MS + HOUR_MS, 104.0)


def test_an_outage_over_midnight_is_parted_and_an_open_one_goes_on_till_now() -> None:
    """Three days: 1 h, 24 h, 2 h."""
    service = [ServiceSpan(None, None, 1, 8, 0)]
    out = [OutageSpan("a", START + timedelta(hours=23), None, False, 8)]
    found = levels((BEGIN, BEGIN + 2 * DAY_MS + 2 * HOUR_MS), service, out, [])
    assert [hours(day)["out_unplanned"] for day in found] == [8.0, 192.0, 16.0]
    assert [hours(day)["schedulable"] for day in found] == [184.0, 0.0, 0.0]


def test_without_nodes_what_existed_is_null_and_said() -> None:
    """Never 0: the jobs' hours are still there."""
    (day,) = levels((BEGIN, BEGIN + DAY_MS), [], [], [(START, "productive", 1, HOUR_MS, 0)])
    told = level_json(day, program=0.5)
    assert {told["gpu_hours"][name] for name in ("existing", "schedulable", "idle", "out_planned")} == {None}
    assert (told["gpu_hours"]["productive"], told["scheduling_goodput"], told["ml_productivity_goodput"]) == (
        1.0,
        None,
        None,
    )
    assert "what existed is not known" in doubts_of(day, [])[0]


def test_what_is_left_out_or_impossible_is_said() -> None:
    """Nodes and runs of no known size; more held than there was."""
    service = [ServiceSpan(None, None, 3, 8, 2)]
    days = [(START, "productive", 1, 300 * HOUR_MS, 0), (START, "unknown", 1, 0, 5 * HOUR_MS)]
    (day,) = levels((BEGIN, BEGIN + DAY_MS), service, [], days)
    said = " ".join(doubts_of(day, service))
    assert "2 nodes have no known number of GPUs" in said
    assert "5 hours of runs whose GPUs are not known" in said
    assert "Jobs held 108 GPU-hours more" in said


def test_a_cluster_without_anything_has_no_ratios() -> None:
    """Null, not a division by nothing."""
    told = level_json(Level(0, DAY_MS))
    assert [told[name] for name in ("scheduling_goodput", "runtime_goodput", "ettr", "ml_productivity_goodput")] == [
        None
    ] * 4


def test_program_goodput_is_weighted_by_productive_hours_and_says_how_much_it_covers() -> None:
    """A run without a shape weighs nothing."""
    program, covered = program_goodput({"a": 0.5, "b": 0.2, "gone": 0.9}, {"a": 300, "b": 100, "c": 50}, 500)
    assert program == pytest.approx((0.5 * 300 + 0.2 * 100) / 400)
    assert covered == pytest.approx(0.8)
    assert program_goodput({}, {"a": 1}, 1) == (None, 0.0)


@given(
    some.lists(
        some.tuples(some.sampled_from("abc"), some.integers(-50, 200), some.one_of(some.none(), some.integers(0, 90))),
        max_size=8,
    ),
    some.integers(1, 170),
)
def test_levels_add_up_whatever_goes_out_when(outages: list[tuple[str, int, int | None]], length_h: int) -> None:
    """The days' amounts are the period's; out never exceeds what existed; a node is out once at a time."""
    spans = sorted(
        (OutageSpan(node, START + timedelta(hours=begin), None if h is None else START + timedelta(hours=begin + h),
                    begin % 2 == 0, 8) for node, begin, h in outages),
        key=lambda span: (span.node, span.start),
    )  # fmt: skip
    window = (BEGIN, BEGIN + length_h * HOUR_MS)
    found = levels(window, [ServiceSpan(None, None, 3, 24, 0)], spans, [])
    out = 0
    for node in "abc":
        down = {
            hour
            for span in spans
            if span.node == node
            for hour in range(length_h)
            if span.start <= START + timedelta(hours=hour)
            and (span.end is None or span.end > START + timedelta(hours=hour))
        }
        out += 8 * len(down)
    whole = summed(found)
    assert (whole.out_planned + whole.out_unplanned) / HOUR_MS == out
    assert all(0 <= day.schedulable <= day.existing for day in found)
    assert sum(day.existing for day in found) == whole.existing == 24 * length_h * HOUR_MS


def test_capacity_is_summed_in_the_database(any_engine: sa.Engine) -> None:
    """Nodes that came together are one row; outages are cut to the time in service and the window."""

    def hour(number: float) -> datetime:
        return at(3600 * number)

    with writing(any_engine).begin() as connection:
        append_nodes(connection, [Node(f"n{i}", gpus=8) for i in range(3)] + [Node("odd")])
        append_nodes(connection, [Node("late", gpus=4, in_service_since=hour(5), in_service_until=hour(9))])
        append_outages(
            connection,
            [
                Outage("n0", hour(1), hour(2), "DOWN", "x", None, False, "host"),
                Outage("n0", hour(-9), hour(-8), "DOWN", "before", None, False, "host"),
                Outage("late", hour(4), hour(6), "DRAIN", "x", None, True, "unknown"),
                Outage("late", hour(8), None, "DOWN", "x", None, False, "host"),
                Outage("odd", hour(1), hour(2), "DOWN", "no GPUs known", None, False, "host"),
                Outage("gone", hour(1), hour(2), "DOWN", "no such node", None, False, "host"),
            ],
        )
        spans = sorted(service_spans(connection), key=lambda span: span.nodes)
        found = outage_spans(connection, hour(0), hour(24))
    assert spans == [ServiceSpan(hour(5), hour(9), 1, 4, 0), ServiceSpan(None, None, 4, 24, 1)]
    assert found == [
        OutageSpan("late", hour(5), hour(6), True, 4),
        OutageSpan("late", hour(8), hour(9), False, 4),
        OutageSpan("n0", hour(1), hour(2), False, 8),
    ]

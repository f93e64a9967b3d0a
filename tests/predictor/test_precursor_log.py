"""Events are kept in one order, in whatever order and parts they come."""

from typing import Any

import numpy as np
import pytest

from predictor.history.arrays import FAR_FUTURE_MS, FAR_PAST_MS, FleetArrays, Precursors
from predictor.history.precursor_log import PrecursorLog

_GPU = '{"type":"gpu","index":%d}'


def row(number: int, node: str, time_us: int, source: str = "kernel") -> tuple[Any, ...]:
    """One as `precursor_query` gives it."""
    device = _GPU % (number % 3)
    return (node, time_us, "xid", 79, "fatal", "hardware", None, device, None, source, f"{number * 7919 % 1000:03d}")


def fleet(*names: str) -> FleetArrays:
    """Nodes of which nothing else is known."""
    unknown = np.full(len(names), -1, dtype=np.int64)
    return FleetArrays(names, unknown, unknown, np.full(len(names), np.nan), unknown, unknown, unknown)


def read(found: Precursors, names: FleetArrays) -> list[tuple[str, int, str, str]]:
    """Node, time, device and id of each event."""
    columns = (found.node.tolist(), found.time_ms.tolist(), found.device.tolist(), found.ids.tolist())
    return [
        (names.names[node], time_ms, found.devices[device], ident)
        for node, time_ms, device, ident in zip(*columns, strict=True)
    ]


# Many of one microsecond, of one millisecond, and from before 1970, when a clock was reset.
ROWS = [row(number, "cab"[number % 3], 1_000_000 + number % 4 * 400) for number in range(60)]
ROWS += [row(60 + number, "b", -1_000_000 * number) for number in range(3)]


def test_the_order_is_that_of_node_time_and_id() -> None:
    """By the microsecond, though the time is told in milliseconds."""
    log, names = PrecursorLog(), fleet("a", "b", "c")
    assert log.take(ROWS) == len(ROWS)
    assert log.take(ROWS) == 0
    found = read(log.precursors(names, FAR_PAST_MS, FAR_FUTURE_MS), names)
    kept = [one for one in ROWS if one[1] > 0]
    assert [one[3] for one in found if one[1] > 0] == [
        one[10] for one in sorted(kept, key=lambda one: (one[0], one[1], one[10]))
    ]
    assert len(found) == len(ROWS)
    assert min(one[1] for one in found) == 0


@pytest.mark.parametrize("seed", range(5))
def test_it_does_not_matter_how_they_come(seed: int) -> None:
    """In parts and in any order, asked in between, of a fleet that changes, nodes among them that it did not know."""
    names = fleet("a", "b", "c")
    at_once = PrecursorLog()
    at_once.take(ROWS)
    random, log = np.random.default_rng(seed), PrecursorLog()
    order = random.permutation(len(ROWS)).tolist()
    for begin in range(0, len(ROWS), 9):
        log.take([ROWS[at] for at in order[begin : begin + 9]])
        some = sorted(random.choice(["a", "aa", "b", "c", "z"], size=3, replace=False).tolist())
        known = read(log.precursors(fleet(*some), FAR_PAST_MS, FAR_FUTURE_MS), fleet(*some))
        assert {one[3] for one in known} == {ROWS[at][10] for at in order[: begin + 9] if ROWS[at][0] in some}
    one = read(log.precursors(names, FAR_PAST_MS, FAR_FUTURE_MS), names)
    assert one == read(at_once.precursors(names, FAR_PAST_MS, FAR_FUTURE_MS), names)


def test_a_window_is_closed_at_its_begin_and_open_at_its_end() -> None:
    """And what lies before it can be given up, and told anew."""
    log, names = PrecursorLog(), fleet("a")
    log.take([row(number, "a", number * 1000) for number in range(1, 9)])
    assert log.precursors(names, 3, 6).time_ms.tolist() == [3, 4, 5]
    log.forget(4)
    assert log.precursors(names, FAR_PAST_MS, FAR_FUTURE_MS).time_ms.tolist() == [4, 5, 6, 7, 8]
    assert log.take([row(number, "a", number * 1000) for number in range(1, 9)]) == 3


def test_what_another_source_repeats_is_left_out() -> None:
    """Whichever came first; a family that one source alone tells repeats nothing."""
    log, names = PrecursorLog(), fleet("a")
    log.take([row(1, "a", 2_000_000, "gpud")])
    log.take([row(2, "a", 1_000_000, "kernel"), row(3, "a", 90_000_000, "kernel")])
    assert log.precursors(names, FAR_PAST_MS, FAR_FUTURE_MS).time_ms.tolist() == [1_000, 90_000]
    alone = PrecursorLog()
    alone.take([row(1, "a", 2_000_000), row(2, "a", 1_000_000)])
    assert alone.precursors(names, FAR_PAST_MS, FAR_FUTURE_MS).time_ms.tolist() == [1_000, 2_000]


def test_an_exporters_gauge_that_shows_the_kernel_s_xid_hours_later_counts_no_second_time() -> None:
    """It does where the kernel told of none in the day before, or of another node; each GPU of its own counts."""
    hour_us = 3_600_000_000
    log, names = PrecursorLog(), fleet("a", "b")
    kernel = row(1, "a", hour_us)
    same = row(2, "a", 2 * hour_us, source="dcgm")
    another_node = row(3, "b", 2 * hour_us, source="dcgm")
    days_after = row(4, "a", 30 * hour_us, source="dcgm")
    log.take([days_after, another_node, kernel, same])
    found = read(log.precursors(names, FAR_PAST_MS, FAR_FUTURE_MS), names)
    assert [(node, time_ms // 3_600_000) for node, time_ms, _, _ in found] == [("a", 1), ("a", 30), ("b", 2)]

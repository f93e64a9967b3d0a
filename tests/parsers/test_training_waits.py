"""Waits for data and stragglers, as trainers and the detectors inside them tell of them."""

import pytest

from parsers.formats.training import TrainingParser
from parsers.text.parser import Context, parse
from parsers.training.progress import MAX_RANKS, Stragglers
from store.records.event import Event

LINE = " [2025-03-01 04:0{0}:00] iteration {0:8d}0/ 1000 | elapsed time per iteration (ms): {1} | lm loss: 1.0 |"
WARNING = "STRAGGLER DETECTION WARNING: Some GPUs performance dropped. Affected ranks: "


def decode(*lines: str) -> list[Event]:
    """The events of some lines."""
    return list(parse(TrainingParser(Context(run="r")), lines))


def waits(*lines: str) -> list[tuple[object, object]]:
    """Iteration and milliseconds of each wait."""
    found = [event for event in decode(*lines) if event.kind == "data_wait"]
    return [(event.attributes.get("iteration"), event.attributes.get("duration_ms")) for event in found]


def test_the_timer_is_of_each_iteration_of_the_line_before() -> None:
    """Old releases print one time, newer ones the fastest and slowest rank's: the slowest counts."""
    lines = [LINE.format(1, 100.0), LINE.format(2, 1000.0), "    batch-generator ......: (1.00, 250.50)"]
    assert waits(*lines) == [(20, 2505.0)]
    assert waits(*lines[:2], "time (ms) | forward: 20.00 | batch generator: 300.00") == [(20, 3000.0)]


def test_what_any_program_takes_to_fetch_a_batch_is_no_wait() -> None:
    """A hundredth of the iteration."""
    assert waits(LINE.format(1, 1000.0), "time (ms) | batch-generator: 10.00") == []
    assert waits(LINE.format(1, 1000.0), "time (ms) | batch-generator: 10.01") == [(10, 10.01)]


def test_a_timer_is_told_once_and_none_without_an_iteration() -> None:
    """Several ranks may print it."""
    timer = "time (ms) | batch-generator: 500.00"
    assert waits(timer) == []
    assert waits(LINE.format(1, 1000.0), timer, timer) == [(10, 500.0)]


@pytest.mark.parametrize(
    ("ranks", "told"),
    [
        ("[76, 13]", [{"rank": 76}, {"rank": 13}]),
        ("{4}", [{"rank": 4}]),
        ("{StragglerId(rank=3, node='gpu-17')}", [{"rank": 3, "node": "gpu-17"}]),
        ("[]", []),
    ],
)
def test_a_warning_names_ranks_in_any_of_its_forms(ranks: str, told: list[dict[str, object]]) -> None:
    """A list, a set, the detector's own names with their nodes."""
    assert list(Stragglers().read(WARNING + ranks)) == told


def test_the_report_before_tells_on_which_node_a_rank_is() -> None:
    """Its lines alone warn of nobody: they list the slowest always."""
    reader = Stragglers()
    assert list(reader.read("  Rank=76 Node=h100-001 Score=0.64")) == []
    assert list(reader.read(WARNING + "[76]")) == [{"rank": 76, "node": "h100-001"}]
    assert list(reader.read(WARNING + "[76]")) == [{"rank": 76}]  # of a report that is over


@pytest.mark.parametrize(("slowest", "count"), [("119.99", 0), ("120.00", 0), ("120.01", 1)])
def test_the_slowest_rank_is_a_straggler_if_it_takes_a_fifth_longer(slowest: str, count: int) -> None:
    """Megatron's detector prints it always."""
    line = f"[2025-03-01 04:05:06] | MnRtt/Rnk: 100.00ms/8 | MxRtt/Rnk: {slowest}ms/5 | MnPwr/Rnk: 1W/8"
    assert list(Stragglers().read(line)) == [{"rank": 5}] * count


def test_a_line_that_names_everyone_is_bounded() -> None:
    """No flood of records."""
    everyone = ", ".join(str(rank) for rank in range(4000))
    assert len(list(Stragglers().read(f"{WARNING}[{everyone}]"))) == MAX_RANKS


def test_a_straggler_is_a_warning_of_its_run() -> None:
    """With rank and node among its attributes."""
    (event,) = decode(WARNING + "{StragglerId(rank=3, node='gpu-17')}")
    assert (event.kind, event.severity, event.attributes) == (
        "straggler",
        "warning",
        {"run": "r", "rank": 3, "node": "gpu-17"},
    )

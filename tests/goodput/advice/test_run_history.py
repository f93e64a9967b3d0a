"""A run's history from its ledger: each stop with its way back, the work between, there and back as JSON."""

from dataclasses import replace

import orjson
import pytest
from hand_made_run import attempt, fault, iteration, ledger, saved

from goodput.advice.run_history import RunHistory, from_json, history_of
from goodput.ledger import Ledger


def interrupted() -> Ledger:
    """Starts at 10, saves of 5 s at 40 and 75, fails at 95, is stopped at 100, waits until 130, works from 150 on."""
    first = [iteration(20.0 + 10 * n, n + 1) for n in range(3)]
    log = [*first, *saved(None, 3, 5.0)]
    log += [iteration(55.0 + 10 * n, n + 4) for n in range(3)] + saved(None, 6, 5.0) + [iteration(90.0, 7)]
    log += [iteration(160.0, 7), iteration(170.0, 8)]
    jobs = [
        attempt(0.0, 100.0, "FAILED", number=1),
        attempt(130.0, 172.0, "COMPLETED", submit=100.0, number=2),
    ]
    return ledger(jobs, log, [fault(95.0)])


def history() -> RunHistory:
    """Its history."""
    made = history_of(interrupted())
    assert made is not None
    return made


def test_a_stop_has_its_way_back() -> None:
    """Detection, wait and start as the ledger has them; nothing of the start before."""
    made, (stop,) = history(), history().stops
    assert (stop.time_s, stop.node, stop.component) == (95.0, "gpu-1", "gpu")
    assert (stop.detection, stop.waiting, stop.startup, stop.checkpoint_load) == (5.0, 30.0, 20.0, 0.0)
    assert stop.back_s == 55.0
    assert stop.lost_s == 15.0
    assert made.first_pause_s == 10.0
    assert made.mean("waiting") == 30.0


def test_a_segment_that_a_stop_cuts_counts_on_both_sides() -> None:
    """A stop in the middle of a pause."""
    told = interrupted()
    wait = next(segment for segment in told.segments if segment.bucket == "waiting")
    cut = replace(told.interruptions[0], time_ms=wait.start_ms + 10_000)
    made = history_of(replace(told, interruptions=(cut,)))
    assert made is not None
    (stop,) = made.stops
    assert (made.first_pause_s, stop.waiting) == (10.0 + 5.0 + 10.0, 20.0)


def test_the_totals_are_the_ledgers() -> None:
    """Wall time, productive time, saves."""
    made, told = history(), interrupted()
    assert made.wall_s == told.wall_ms / 1000
    assert made.productive_s == told.buckets_ms["productive"] / 1000
    assert made.goodput == pytest.approx(told.goodput)
    assert made.saves_s == (5.0, 5.0)
    assert made.interval_s == 30.0
    assert made.node_days == pytest.approx(2 * made.wall_s / 86_400)


def test_what_is_not_the_way_back_is_a_pause() -> None:
    """Wall time is the first pause, the stops' ways back and pauses, and the work with its saves."""
    made = history()
    idle = made.first_pause_s + sum(stop.back_s + stop.paused_s for stop in made.stops)
    worked = made.productive_s + sum(stop.lost_s for stop in made.stops) + sum(made.saves_s)
    assert idle + worked == pytest.approx(made.wall_s)
    assert made.kept_share == 1.0


def test_a_history_comes_back_from_json() -> None:
    """As it is stored with the ledger."""
    assert from_json(orjson.loads(orjson.dumps(history().to_json()))) == history()


def test_a_run_of_which_nothing_productive_is_known_has_no_history() -> None:
    """Jobs without a log."""
    assert history_of(ledger([attempt(0.0, 100.0, "FAILED")], [], [fault(95.0)])) is None


def test_a_planned_wait_later_on_is_no_way_back() -> None:
    """The run came back, worked, ended well, and waited for its next job."""
    log = [iteration(20.0 + 10 * n, n + 1) for n in range(3)] + saved(None, 3, 5.0)
    log += [iteration(130.0, 4), iteration(140.0, 5), iteration(230.0, 6), iteration(240.0, 7)]
    jobs = [
        attempt(0.0, 60.0, "FAILED", number=1),
        attempt(100.0, 141.0, "COMPLETED", submit=60.0, number=2),
        attempt(210.0, 241.0, "COMPLETED", submit=141.0, number=3),
    ]
    made = history_of(ledger(jobs, log, [fault(55.0)]))
    assert made is not None
    (stop,) = made.stops
    assert (stop.detection, stop.waiting, stop.startup) == (5.0, 40.0, 20.0)
    assert stop.paused_s == pytest.approx(79.0, abs=1.0)  # 69 s of waiting and 10 s of start


def test_what_another_version_wrote_is_no_history() -> None:
    """Nothing, stops by name, a stop that is too short, a field that nobody knows."""
    told = history().to_json()
    assert from_json(None) is None
    assert from_json({**told, "stops": [{"time_s": 1.0}]}) is None
    assert from_json({**told, "stops": [[1.0, "gpu-1"]]}) is None
    assert from_json({**told, "mood": 1}) is None
    assert from_json({name: value for name, value in told.items() if name != "saves_s"}) is None

"""A device is compared with its own last ten minutes: what shifts is told within a minute, noise is not."""

import json
import random

import pytest

from collectors.telemetry.rings import SECONDS, Rings, Shift


def window(
    rings: Rings, clocks: dict[str, float], chance: random.Random | None = None, **counters: float
) -> list[Shift]:
    """15 seconds of GPUs at about these clocks; counters are of the first adapter."""
    for _ in range(SECONDS):
        for device, clock in clocks.items():
            rings.second(device, {"sm_clock_mhz": clock + (chance.gauss(0, 15) if chance else 0.0), "power_w": 600.0})
    if counters:
        rings.look("nic:mlx5_0/1", counters)
    shifts, _levels = rings.end_window()
    return shifts


def learned(clocks: dict[str, float], windows: int = 40, state: dict[str, object] | None = None) -> Rings:
    """After ten minutes of them."""
    rings = Rings(state)
    for _ in range(windows):
        assert window(rings, clocks) == []
    return rings


def test_a_clock_that_falls_is_told_in_the_third_window_and_once() -> None:
    """45 seconds; its return is told by the window that leaves none of four far."""
    rings = learned({"gpu:0": 1980, "gpu:3": 1980})
    assert [window(rings, {"gpu:0": 1980, "gpu:3": 1155}) for _ in range(2)] == [[], []]
    assert window(rings, {"gpu:0": 1980, "gpu:3": 1155}) == [Shift("gpu:3", "sm_clock_mhz", 1155, 1980, 3)]
    assert [window(rings, {"gpu:0": 1980, "gpu:3": 1155}) for _ in range(9)] == [[]] * 9
    back = [window(rings, {"gpu:0": 1980, "gpu:3": 1980}) for _ in range(6)]
    assert back == [[], [], [], [Shift("gpu:3", "sm_clock_mhz", 1980, 1980, 16, end="back")], [], []]


def test_one_second_of_fifteen_or_two_windows_of_four_are_no_shift() -> None:
    """A glitch is no level; what lasts half a minute may be a save."""
    rings = learned({"gpu:0": 1980})
    for _ in range(30):
        for second in range(SECONDS):
            rings.second("gpu:0", {"sm_clock_mhz": 345.0 if second < SECONDS // 2 else 1980.0})
        assert rings.end_window()[0] == []
    for _ in range(20):
        assert [window(rings, {"gpu:0": clock}) for clock in (1155, 1155, 1980, 1980)] == [[]] * 4


def test_noise_of_two_hours_is_no_shift() -> None:
    """64 GPUs with a jitter of 15 MHz: none."""
    chance = random.Random(7)
    clocks = {f"gpu:{number}": chance.gauss(1950, 20) for number in range(64)}
    rings = Rings()
    assert [shift for _ in range(480) for shift in window(rings, clocks, chance)] == []


@pytest.mark.parametrize(("rise", "expected"), [(2_000, 3), (6, None), (15, None)])
def test_a_counter_that_rises_far_more_than_before_is_told(rise: int, expected: int | None) -> None:
    """Ten a window are usual here; 15 are near that, 6 are too few to be told of anyone."""
    rings, total = Rings(), 0
    for number in range(40):
        total += 10 + number % 3
        assert window(rings, {}, None, roce_retransmission=total) == []
    told = []
    for number in range(1, 6):
        total += rise
        told += [(number, shift.value) for shift in window(rings, {}, None, roce_retransmission=total)]
    assert told == ([] if expected is None else [(expected, rise)])


def test_a_counter_that_began_anew_and_the_first_look_are_no_rise() -> None:
    """A driver that was loaded again; a sidecar that starts beside counters of a year."""
    rings = Rings()
    for count in (10**9, 10**9, *[10**9] * 30, 0, 0, 0, 0, 5 * 10**8, 0, 0, 0):
        told = window(rings, {}, None, symbol_error=count)
        assert told == []


def test_of_a_whole_node_two_devices_are_told_with_the_number_of_all() -> None:
    """Eight GPUs at once: one thing, and not sixteen events."""
    rings = learned({f"gpu:{number}": 1980 for number in range(8)})
    slow = {f"gpu:{number}": 1000.0 + number for number in range(8)}
    told = [window(rings, slow) for _ in range(3)][-1]
    assert [(shift.device, shift.devices) for shift in told] == [("gpu:0", 8), ("gpu:1", 8)]
    over = [shift for _ in range(4) for shift in window(rings, dict.fromkeys(slow, 1980))]
    assert sorted(shift.device for shift in over) == ["gpu:0", "gpu:1"], "what was not told does not end"


def test_a_gpu_without_work_tells_nothing_and_ends_its_shift() -> None:
    """Its job is over: what it was compared with is over, too."""
    rings = learned({"gpu:0": 1980})
    assert [len(window(rings, {"gpu:0": 1155})) for _ in range(3)] == [0, 0, 1]
    ends = [window(rings, {}) for _ in range(5)]
    assert [[(shift.end, shift.value) for shift in shifts] for shifts in ends] == [
        [],
        [],
        [],
        [("unmeasured", None)],
        [],
    ]


def test_what_lasts_an_hour_is_usual_from_then_on() -> None:
    """The hours' roll-ups show it; its return to before is then no shift back either, since faster is not slow."""
    rings = learned({"gpu:0": 1980})
    told = [shift for _ in range(300) for shift in window(rings, {"gpu:0": 1155})]
    assert [(shift.end, shift.windows) for shift in told] == [(None, 3), ("lasting", 240)]
    assert [shift for _ in range(50) for shift in window(rings, {"gpu:0": 1980})] == []


def test_a_sidecar_that_starts_again_tells_nothing_twice_and_still_tells_the_end() -> None:
    """Its state goes through JSON, as the spool keeps it."""
    rings = learned({"gpu:0": 1980})
    assert [len(window(rings, {"gpu:0": 1155})) for _ in range(3)] == [0, 0, 1]
    again = Rings(json.loads(json.dumps(rings.state())))
    assert [window(again, {"gpu:0": 1155}) for _ in range(5)] == [[]] * 5
    assert [len(window(again, {"gpu:0": 1980})) for _ in range(4)] == [0, 0, 0, 1]
    assert again.state() == {"told": []}


def test_more_levels_than_a_node_has_are_left_out_and_counted() -> None:
    """A library that names devices without end takes no memory without end."""
    rings = Rings()
    window(rings, {f"gpu:{number}": 1980 for number in range(1100)})
    assert rings.left_out == 1100 - 1024

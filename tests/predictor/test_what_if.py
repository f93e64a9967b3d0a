"""Policies replayed, on fleets small enough to follow by hand."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from judged_rows import judged, random_fleet

from predictor.evaluate.cost import SEED, CostSettings, HoldPolicy, PolicyError, parse_policy, simulate_holds
from predictor.history.arrays import DAY_MS, HOUR_MS

TEN = CostSettings(job_gpus=100, mtt_checkpoint_h=0.75, restart_h=0.25, node_gpus=10)
# Four days of four nodes: node 0 is suspected on two days and fails in the second, node 1 on the last without failing.
SUSPECTED = [[9.0, 1, 2, 3], [9, 1, 2, 3], [1, 2, 2, 9], [1, 9, 2, 3]]
FAILED = [[0, 0, 0, 0], [1, 0, 0, 0], [0, 0, 1, 0], [0, 0, 0, 0]]


def test_holds_that_follow_each_other_are_one_cordon() -> None:
    """Node 0 is held for 36 h until it fails; nodes 3 and 1 for a day each, in vain; node 2 is missed."""
    found = simulate_holds(judged(SUSPECTED, FAILED), HoldPolicy(top=0.25, hold_h=24, budget=1), TEN)
    assert (found["outages"], found["failures_avoided"], found["share_avoided"]) == (2, 1, 0.5)
    assert (found["cordons"], found["cordons_per_day"]) == (3, 0.75)
    assert found["share_of_cordons_right"] == pytest.approx(1 / 3)
    assert (found["node_hours_held"], found["node_hours_wasted"]) == (36 + 48, 48)
    assert found["saved_gpu_h"] == 100
    assert found["net_gpu_h"] == 100 - 840


def test_a_hold_that_ends_before_the_outage_avoids_nothing() -> None:
    """Twelve hours after each moment an outage begins: six hours of holding are too few, twelve are enough."""
    short = simulate_holds(judged(SUSPECTED, FAILED), HoldPolicy(0.25, hold_h=6, budget=1), TEN)
    assert (short["failures_avoided"], short["cordons"]) == (0, 4)
    assert short["node_hours_wasted"] == short["node_hours_held"] == 24
    assert (
        simulate_holds(judged(SUSPECTED, FAILED), HoldPolicy(0.25, hold_h=12, budget=1), TEN)["failures_avoided"] == 1
    )


def test_the_budget_keeps_the_riskiest_and_prolongs_what_is_held() -> None:
    """One node of four at once: the second of each day is refused, also while the first is held on."""
    found = simulate_holds(judged(SUSPECTED, FAILED), HoldPolicy(0.5, hold_h=48, budget=0.25), TEN)
    assert found["most_held_at_once"] == 1
    assert found["refused_by_budget"] >= 3
    assert found["failures_avoided"] == 1
    nothing = simulate_holds(judged(SUSPECTED, FAILED), HoldPolicy(0.5, budget=0.2), TEN)
    assert (nothing["cordons"], nothing["refused_by_budget"], nothing["share_of_cordons_right"]) == (0, 8, None)


def test_a_threshold_flags_only_what_reaches_it() -> None:
    """None on quiet days."""
    found = simulate_holds(judged(SUSPECTED, FAILED), HoldPolicy(threshold=9.0, budget=1), TEN)
    assert found["cordons"] == 3
    assert simulate_holds(judged(SUSPECTED, FAILED), HoldPolicy(threshold=10.0, budget=1), TEN)["cordons"] == 0


def test_an_outage_right_after_the_flag_leaves_no_time_to_act() -> None:
    """Ten minutes are the blackout of the labels too."""
    fleet = judged([[9.0, 1]], [[1, 0]])
    for minutes, avoided in ((5, 0), (11, 1)):
        starts = np.array([minutes * 60_000.0, np.nan])
        at = replace(fleet, labels=replace(fleet.labels, next_start_ms=starts))
        assert simulate_holds(at, HoldPolicy(0.5, budget=1), TEN)["failures_avoided"] == avoided


def test_of_two_equal_nodes_the_lot_holds_one() -> None:
    """One place for two nodes of one score: that which the lot names is held, whatever its number is."""
    held = int(np.argmin(lots(1, 2)[0]))
    for failing in (0, 1):
        fleet = judged([[5.0, 5.0]], [[int(node == failing) for node in (0, 1)]])
        found = simulate_holds(fleet, HoldPolicy(0.5, hold_h=24, budget=0.5), TEN)
        assert (found["cordons"], found["failures_avoided"]) == (1, int(failing == held))
        assert found == simulate_holds(fleet, HoldPolicy(0.5, hold_h=24, budget=0.5), TEN)


@pytest.mark.parametrize("failing", [0, 3])
def test_equal_scores_avoid_their_share_wherever_the_failing_node_stands(failing: int) -> None:
    """Scores that tell nothing hold a node of four each day: a quarter of the failures, where an order by number holds
    the first node each day, and avoids all of its failures or none of the last one's."""
    days = 400
    fleet = judged([[1.0] * 4] * days, [[int(node == failing) for node in range(4)]] * days)
    found = simulate_holds(fleet, HoldPolicy(0.25, hold_h=12, budget=1), TEN)
    assert (found["outages"], found["cordons"]) == (days, days)
    assert found["share_avoided"] == pytest.approx(0.25, abs=0.07)  # more than three deviations of 400 draws


@given(
    st.integers(0, 1000),
    st.sampled_from([0.05, 0.2, 1.0]),
    st.sampled_from([6.0, 24.0, 60.0]),
    st.sampled_from([0.0, 0.1, 0.5, 1.0]),
)
@example(seed=102, top=0.05, hold_h=60.0, budget=0.1)  # two nodes of one score at the last place: one of them fails
def test_the_accounts_agree_whatever_the_policy(seed: int, top: float, hold_h: float, budget: float) -> None:
    """Against a plain replay, day by day and node by node, that breaks ties by the same lot."""
    fleet = random_fleet(20, 8, seed, levels=1000)
    found = simulate_holds(fleet, HoldPolicy(top, None, hold_h, budget), TEN)
    held = plain(fleet.scores.reshape(8, 20), top, hold_h, budget)
    starts = {(n, t) for n, t in zip(*pairs(fleet), strict=True)}
    avoided = [[t for n, t in starts if who == n and since < t - 600_000 and t <= until] for who, since, until in held]
    hours = [(min([until, *t]) - since) / HOUR_MS for (_who, since, until), t in zip(held, avoided, strict=True)]
    assert found["failures_avoided"] == sum(map(len, avoided))
    assert found["cordons"] == len(held)
    assert found["node_hours_held"] == pytest.approx(sum(hours))
    assert found["node_hours_wasted"] == pytest.approx(sum(h for h, t in zip(hours, avoided, strict=True) if not t))
    assert found["net_gpu_h"] == pytest.approx(100 * sum(map(len, avoided)) - 10 * sum(hours))
    assert found["most_held_at_once"] <= budget * 20
    assert found["node_hours_wasted"] <= found["node_hours_held"]
    if budget == top == 1.0 and hold_h >= 24:
        assert found["share_avoided"] == 1.0


def pairs(fleet):  # type: ignore[no-untyped-def]
    """Node and start of each outage."""
    hit = fleet.labels.positive
    return fleet.node[hit].tolist(), fleet.labels.next_start_ms[hit].tolist()


def lots(days: int, nodes: int) -> np.ndarray:
    """What orders nodes of one score, a line a day."""
    return np.random.default_rng(SEED).random((days, nodes))


def plain(scores: np.ndarray, top: float, hold_h: float, budget: float) -> list[list[int]]:
    """The cordons of a policy as [node, since, until]."""
    held: list[list[int]] = []
    for day, (line, lot) in enumerate(zip(scores, lots(*scores.shape), strict=True)):
        now = day * DAY_MS
        best = sorted(range(len(line)), key=lambda n: (-line[n], lot[n]))
        for node in best[: int(np.ceil(top * len(line)))]:
            now_held = [h for h in held if h[2] > now]
            mine = [h for h in held if h[0] == node and h[2] >= now]
            is_held = any(h[2] > now for h in mine)
            if not is_held and len(now_held) >= int(budget * len(line)):
                continue
            if not mine:
                held.append([node, now, 0])
                mine = held[-1:]
            mine[0][2] = now + int(hold_h * HOUR_MS)
    return held


def test_no_row_is_no_cordon() -> None:
    """Nothing judged, nothing done."""
    found = simulate_holds(judged([[1.0]], [[0]]).only(np.zeros(1, dtype=bool)), HoldPolicy(), TEN)
    assert (found["cordons"], found["outages"], found["cordons_per_day"]) == (0, 0, None)


@pytest.mark.parametrize(
    ("text", "policy"),
    [
        ("", HoldPolicy()),
        ("top=2%, hold_h=48 ,budget=10%", HoldPolicy(0.02, None, 48, 0.1)),
        ("threshold=0.03", HoldPolicy(threshold=0.03)),
    ],
)
def test_a_policy_is_written_in_one_line(text: str, policy: HoldPolicy) -> None:
    """Shares in percent or as parts of one; it is written back in a form that can be read again."""
    assert parse_policy(text) == policy
    assert parse_policy(str(policy)) == policy


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("tops=1%", "no part of a policy"),
        ("top=many", "no number"),
        ("top=0", "out of range"),
        ("budget=200%", "out of range"),
        ("hold_h=nan", "out of range"),
        ("top=1%,threshold=0.1", "not by both"),
    ],
)
def test_a_policy_that_cannot_be_read_is_refused(text: str, said: str) -> None:
    """With what can be written."""
    with pytest.raises(PolicyError, match=said):
        parse_policy(text)

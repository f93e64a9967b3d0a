"""Which nodes are avoided and which preferred: reasons, packing over leaves, and that nothing is in both."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schedulers.policy.placement_advice import JobNeed, PlacementLimits, advise, why_not
from store.nodes.fleet import SchedulableNode

FROM = 0.07
LIMITS = PlacementLimits(FROM, unknown_risk=0.02)


def one(
    node: str, leaf: str | None = "l1", risk: float | None = 0.001, gpus: int | None = 8, **more: Any
) -> SchedulableNode:
    """A node that is well."""
    return SchedulableNode(node, more.pop("state", "ok"), risk, leaf=leaf, gpus=gpus)._replace(**more)


def hint(action: str, state: str) -> dict[str, Any]:
    """A standing hint."""
    return {"hint": "h", "hint_action": action, "hint_state": state}


@pytest.mark.parametrize(
    ("place", "why"),
    [
        (one("a"), None),
        (one("a", state="out"), "out"),
        (one("a", state="faulty"), "faulty"),
        (one("a", state="silent"), None),
        (one("a", **hint("cordon", "confirmed")), "hint"),
        (one("a", **hint("drain", "sent")), "hint"),
        (one("a", **hint("avoid", "approved")), "hint"),
        (one("a", **hint("watch", "approved")), None),
        (one("a", **hint("cordon", "proposed")), None),
        (one("a", **hint("cordon", "shadow")), None),
        (one("a", risk=0.07), "risk"),
        (one("a", risk=0.0699), None),
        (one("a", risk=None), None),
    ],
)
def test_why_a_node_is_avoided(place: SchedulableNode, why: str | None) -> None:
    """What is certain before what is likely; a proposal or a shadow asks nothing yet. Of one that is left alone the
    risk alone is not looked at."""
    assert why_not(place, FROM) == why
    assert why_not(place, FROM, left_alone=True) == (None if why == "risk" else why)


def test_without_a_count_all_are_preferred_by_risk() -> None:
    """One whose risk is not known stands between the well and the doubtful; so does one of the control group."""
    nodes = [one("d", risk=0.05), one("b", risk=None), one("a", risk=0.001), one("c", risk=0.06)]
    found = advise(nodes, JobNeed(), replace(LIMITS, left_alone={"c"}))
    assert found.prefer == ["a", "b", "c", "d"]
    assert (found.avoid, found.short, found.leaves) == ({}, 0, 1)


def test_without_a_count_the_best_of_many_are_preferred() -> None:
    """And it is told how many more would do."""
    found = advise([one(f"n{i}", risk=0.001 * (9 - i)) for i in range(9)], JobNeed(limit=2), LIMITS)
    assert (found.prefer, found.usable, found.short) == (["n8", "n7"], 9, 0)


def test_idle_nodes_come_before_those_that_run_a_job() -> None:
    """Whatever their risk; of which nothing is known counts as idle, for then nothing is known of any."""
    nodes = [one("a"), one("b", risk=0.05), one("c", risk=0.001)]
    limits = replace(LIMITS, busy={"a", "c"})
    found = advise(nodes, JobNeed(), limits)
    assert (found.prefer, found.busy) == (["b", "a", "c"], 2)
    assert advise(nodes, JobNeed(limit=1), limits).busy == 0
    assert advise([one("a"), one("b", risk=0.05)], JobNeed(), LIMITS).busy == 0


def test_a_job_is_packed_on_idle_nodes_and_on_busy_ones_only_where_those_are_too_few() -> None:
    """An idle pair on two leaves is better than a whole leaf that somebody has."""
    nodes = [one("a0", "a"), one("b0", "b")] + [one(f"c{i}", "c") for i in range(4)]
    limits = replace(LIMITS, busy={f"c{i}" for i in range(4)})
    found = advise(nodes, JobNeed(2), limits)
    assert (found.prefer, found.leaves, found.busy, found.short) == (["a0", "b0"], 2, 0, 0)
    more = advise(nodes, JobNeed(4), limits)
    assert (more.prefer, more.leaves, more.busy, more.short) == (["a0", "b0", "c0", "c1"], 3, 2, 0)
    assert advise(nodes, JobNeed(9), limits).short == 3


def leaf(name: str, *risks: float) -> list[SchedulableNode]:
    """The nodes of a leaf."""
    return [one(f"{name}{i}", name, risk) for i, risk in enumerate(risks)]


def test_one_leaf_is_better_than_two() -> None:
    """Even where the least risk lies on two."""
    nodes = leaf("a", 0.001, 0.001) + leaf("b", 0.001, 0.001) + leaf("c", 0.01, 0.01, 0.01, 0.01)
    found = advise(nodes, JobNeed(4), LIMITS)
    assert (found.prefer, found.leaves) == (["c0", "c1", "c2", "c3"], 1)


def test_of_leaves_that_would_do_the_least_risk_is_taken() -> None:
    """And its best nodes."""
    nodes = leaf("a", 0.01, 0.01, 0.01) + leaf("b", 0.03, 0.002, 0.004) + leaf("c", 0.06, 0.06)
    assert advise(nodes, JobNeed(2), LIMITS).prefer == ["b1", "b2"]


def test_of_equals_the_leaf_that_fits_best_is_taken() -> None:
    """The large one stays whole for a large job."""
    nodes = leaf("a", *[0.001] * 8) + leaf("b", *[0.001] * 3)
    assert advise(nodes, JobNeed(3), LIMITS).prefer == ["b0", "b1", "b2"]


def test_the_fewest_leaves_are_used() -> None:
    """The larger ones first, and what is left goes where it fits best."""
    nodes = leaf("a", *[0.001] * 2) + leaf("b", *[0.001] * 4) + leaf("c", *[0.001] * 5) + leaf("d", *[0.001] * 3)
    found = advise(nodes, JobNeed(7), LIMITS)
    assert found.leaves == 2
    assert found.prefer == ["c0", "c1", "c2", "c3", "c4", "a0", "a1"]


def test_what_is_missing_is_told() -> None:
    """Rather than filled with nodes that are to be avoided."""
    found = advise([one("a"), one("b", state="out"), one("c", gpus=4), one("d", gpus=None)], JobNeed(3, 8), LIMITS)
    assert (found.prefer, found.short, found.avoid) == (["a"], 2, {"b": "out"})


def test_nodes_without_a_leaf_go_by_their_rack_or_stand_alone() -> None:
    """Two of which nothing is known share nothing that we know of."""
    racked = [one("a", None, rack="r1"), one("b", None, rack="r1")]
    assert advise(racked, JobNeed(2), LIMITS).leaves == 1
    assert advise([one("a", None), one("b", None)], JobNeed(2), LIMITS).leaves == 2


@given(
    nodes=st.lists(
        st.tuples(
            st.sampled_from(["l1", "l2", "l3", None]),
            st.one_of(st.none(), st.floats(0, 1)),
            st.sampled_from(["ok", "out", "faulty", "silent", "at_risk"]),
        ),
        max_size=30,
    ),
    count=st.one_of(st.none(), st.integers(1, 40)),
)
def test_no_node_is_in_both_lists(nodes: list[tuple[str | None, float | None, str]], count: int | None) -> None:
    """Every node is in one of them, where all are asked for; the order they come in does not matter."""
    places = [one(f"n{i}", leaf, risk, state=state) for i, (leaf, risk, state) in enumerate(nodes)]
    found = advise(places, JobNeed(count), LIMITS)
    assert not found.avoid.keys() & set(found.prefer)
    assert len(set(found.prefer)) == len(found.prefer)
    usable = len(nodes) - len(found.avoid)
    assert len(found.prefer) == (usable if count is None else min(usable, count))
    assert found.usable == usable
    assert found.short == (0 if count is None else max(0, count - usable))
    assert advise(places[::-1], JobNeed(count), LIMITS) == found

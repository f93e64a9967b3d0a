"""Jobs are packed on the fewest leaves, and there on the fewest NVLink domains."""

from hypothesis import given
from hypothesis import strategies as st

from schedulers.policy.placement_advice import FreeNode, packed


def domain(name: str, count: int, leaf: str = "l", risk: float = 0.001) -> list[FreeNode]:
    """The free nodes of a domain."""
    return [FreeNode(risk, f"{name}{i}", leaf, name) for i in range(count)]


def names(free: list[FreeNode], count: int) -> list[str]:
    """What is chosen."""
    return [one.node for one in packed(free, count)]


def test_a_job_stays_within_one_domain_of_a_leaf() -> None:
    """Even where the least risk lies on two."""
    free = domain("a", 1, risk=0.0001) + domain("b", 1, risk=0.0001) + domain("c", 2)
    assert names(free, 2) == ["c0", "c1"]


def test_whole_domains_stay_whole_for_large_jobs() -> None:
    """A small job goes where the least is left over, though the risk is higher there."""
    free = domain("a", 18) + domain("b", 3, risk=0.002)
    assert names(free, 2) == ["b0", "b1"]
    assert names(free, 4) == ["a0", "a1", "a10", "a11"]


def test_a_job_of_many_domains_takes_whole_ones_and_the_best_fit() -> None:
    """Eighteen and the three that are left; not eighteen and a part of another eighteen."""
    free = domain("a", 18) + domain("b", 18, risk=0.002) + domain("c", 3, risk=0.003)
    chosen = packed(free, 21)
    assert {one.domain for one in chosen} == {"a", "c"}
    assert len(chosen) == 21


def test_of_two_leaves_that_would_do_the_one_with_fewer_domains_is_taken() -> None:
    """And without known domains the one of the least risk."""
    free = domain("a", 2, "l1") + domain("b", 2, "l1") + domain("c", 4, "l2", 0.003)
    assert {one.group for one in packed(free, 4)} == {"l2"}
    unknown = [one._replace(domain=None) for one in free]
    assert {one.group for one in packed(unknown, 4)} == {"l1"}


def test_nodes_of_no_known_domain_share_none() -> None:
    """One domain that holds all comes before them."""
    free = [FreeNode(0.0001, f"x{i}", "l", None) for i in range(2)] + domain("a", 3)
    assert names(free, 2) == ["a0", "a1"]


def test_nothing_is_asked_for_and_nothing_is_there() -> None:
    """No nodes, rather than an error."""
    assert packed([], 4) == []
    assert packed(domain("a", 3), 0) == []
    assert packed(domain("a", 3), -1) == []


nodes = st.lists(
    st.tuples(st.floats(0, 1), st.sampled_from(["l1", "l2", "l3"]), st.sampled_from(["d1", "d2", None])), max_size=25
)


@given(nodes=nodes, count=st.integers(0, 30))
def test_as_many_as_wanted_each_once_on_the_fewest_leaves(
    nodes: list[tuple[float, str, str | None]], count: int
) -> None:
    """The fewest are those of the largest leaves."""
    free = [FreeNode(risk, f"n{i}", leaf, name) for i, (risk, leaf, name) in enumerate(nodes)]
    chosen = packed(free, count)
    assert len({one.node for one in chosen}) == len(chosen) == min(count, len(free))
    sizes = sorted((sum(one.group == leaf for one in free) for leaf in ("l1", "l2", "l3")), reverse=True)
    fewest = next(n for n in range(4) if sum(sizes[:n]) >= len(chosen))
    assert len({one.group for one in chosen}) == fewest

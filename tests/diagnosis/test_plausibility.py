"""How well an incident explains a stop: each weight in an example, each reason in its words."""

from dataclasses import replace

import pytest
from fault_events import at, lost_port, xid

from diagnosis.culprits.plausibility import LeafGroup, Topology, together, weigh
from diagnosis.causes.stop import Stoppage
from diagnosis.incidents.incident import coalesce
from store.records.event import Cause, Severity
from store.records.incident import Incident

STOP = Stoppage("llm", at(100), at(700), frozenset({"gpu-001", "gpu-002", "gpu-003", "gpu-004"}))
LEAVES = Topology({f"gpu-{n:03d}": f"leaf-{(n - 1) // 4}" for n in range(1, 9)})


def incident(code: int, seconds: float, node: str = "gpu-001") -> Incident:
    """The incident of one Xid."""
    return coalesce([xid(code, seconds, node)])[0]


def lost(seconds: float, node: str, kind: str = "port_removed") -> Incident:
    """The incident of one lost link."""
    return coalesce([lost_port(seconds, node, kind)])[0]


def score(one: Incident, *others: Incident, leaf: str | None = None) -> float:
    """Its plausibility beside others."""
    return weigh(one, STOP, [one, *others], leaf).score


@pytest.mark.parametrize(
    ("severity", "cause", "expected"),
    [
        ("fatal", "hardware", 0.9),
        ("fatal", "fabric", 0.9),
        ("fatal", "driver", 0.855),
        ("fatal", "host", 0.855),
        ("fatal", "storage", 0.72),
        ("fatal", "unknown", 0.54),
        ("error", "hardware", 0.6),
        ("error", "application", 0.24),
        ("warning", "hardware", 0.2),
        ("info", "unknown", 0.03),
    ],
)
def test_what_it_is_decides_first(severity: Severity, cause: Cause, expected: float) -> None:
    """Severity times cause."""
    assert score(replace(incident(79, 110), severity=severity, cause=cause)) == pytest.approx(expected)


def test_a_lost_link_weighs_as_much_as_a_dead_gpu_whatever_its_severity() -> None:
    """A synchronous job needs every link; a GPU that vanished is a lost link too."""
    assert score(lost(110, "gpu-001")) == pytest.approx(0.85)
    for kind in ("link_down", "port_removed", "gpu_missing"):
        vague = replace(lost(110, "gpu-001", kind), kind=kind, severity="warning", cause="unknown")
        assert score(vague) == pytest.approx(0.85)
    assert score(replace(lost(110, "gpu-001"), severity="fatal")) == pytest.approx(0.9)


@pytest.mark.parametrize(("seconds", "factor"), [(99.0, 1.0), (98.999, 0.5), (40.0, 0.5), (100.0, 1.0), (690.0, 1.0)])
def test_a_fault_clearly_before_the_last_progress_was_survived(seconds: float, factor: float) -> None:
    """A second is the border: printed times are no finer."""
    assert score(incident(79, seconds)) == pytest.approx(0.9 * factor)


def test_the_reason_tells_when_it_began() -> None:
    """Before or after the last progress, in whole seconds; within the second it is not before."""
    reasons = [weigh(incident(79, seconds), STOP, [], None).reason for seconds in (60, 99.5, 112)]
    assert reasons == [
        "fatal hardware fault xid 79, began 40 s before the last progress",
        "fatal hardware fault xid 79, 0 s after the last progress",
        "fatal hardware fault xid 79, 12 s after the last progress",
    ]


def test_the_reason_names_the_device_that_has_a_name() -> None:
    """Which disk of the node."""
    disk = replace(incident(79, 112), kind="nvme_reset", code=None, severity="error", name="nvme1")
    assert weigh(disk, STOP, [], None).reason.startswith("error hardware fault nvme_reset of nvme1, 12 s after")


@pytest.mark.parametrize("kind", ["ib_port", "net_link", "bond_down", "node_down"])
def test_a_link_that_the_host_lost_weighs_as_one_that_the_fabric_lost(kind: str) -> None:
    """Whoever says it."""
    assert score(replace(lost(110, "gpu-001"), kind=kind)) == pytest.approx(0.85)


def test_each_earlier_fault_of_the_machine_makes_a_later_one_less_likely_up_to_four() -> None:
    """Three quarters each; the fifth takes nothing more."""
    late = incident(79, 200)
    earlier = [incident(79, 110 + n, f"gpu-{n + 2:03d}") for n in range(6)]
    scores = [score(late, *earlier[:n]) for n in range(7)]
    assert scores == pytest.approx([0.9 * 0.75 ** min(n, 4) for n in range(7)], abs=1e-4)
    assert "after 2 other faults of the machine" in weigh(late, STOP, earlier[:2], None).reason
    assert "after 1 other fault of the machine" in weigh(late, STOP, earlier[:1], None).reason


@pytest.mark.parametrize(
    "harmless",
    [
        incident(31, 110, "gpu-002"),  # a program's own error
        incident(63, 110, "gpu-002"),  # a warning
        incident(79, 110, "gpu-001"),  # the same node
        incident(79, 199.5, "gpu-002"),  # not clearly earlier
        incident(79, 98, "gpu-002"),  # survived: before the last progress
    ],
)
def test_what_is_no_earlier_grave_fault_of_another_node_takes_nothing(harmless: Incident) -> None:
    """Only cascades do."""
    assert score(incident(79, 200), harmless) == pytest.approx(0.9)


def test_under_a_dead_switch_a_node_is_half_as_likely() -> None:
    """And says under which; the count of events is told where there are several."""
    several = coalesce([lost_port(110, "gpu-001"), lost_port(112, "gpu-001", guid="0xa2")])[0]
    verdict = weigh(several, STOP, [], "leaf-0")
    assert verdict.score == pytest.approx(0.425)
    assert verdict.reason.endswith("with others under leaf-0, 2 events")


def test_three_nodes_of_a_leaf_within_ten_seconds_of_each_other_are_a_group() -> None:
    """The gap counts from one to the next, to the second; two nodes, or one node thrice, are none."""
    (group,) = together([lost(110 + 10 * n, f"gpu-{n + 1:03d}") for n in range(3)], LEAVES)
    assert (group.leaf, len(group.incidents)) == ("leaf-0", 3)
    assert together([lost(110 + 10.001 * n, f"gpu-{n + 1:03d}") for n in range(3)], LEAVES) == []
    assert together([lost(110 + n, f"gpu-{n + 1:03d}") for n in range(2)], LEAVES) == []
    assert together([lost(110 + n, "gpu-001") for n in range(3)], LEAVES) == []


def test_nodes_of_several_leaves_and_of_none_are_no_group() -> None:
    """What they share is something else."""
    assert together([lost(110, name) for name in ("gpu-001", "gpu-002", "gpu-005")], LEAVES) == []
    assert together([lost(110, f"gpu-{n:03d}") for n in (1, 2, 3)], Topology()) == []


def test_a_leaf_may_fail_twice_in_one_window() -> None:
    """Two groups, each of its own moment."""
    twice = [lost(start + n, f"gpu-{n + 1:03d}") for start in (110, 400) for n in range(3)]
    assert [group.incidents[0].start for group in together(twice, LEAVES)] == [at(110), at(400)]


def test_only_lost_links_make_a_group() -> None:
    """Three GPUs that fell off the bus under one leaf are three faults; a link lost beside an Xid counts."""
    assert together([incident(79, 110, f"gpu-{n:03d}") for n in (1, 2, 3)], LEAVES) == []
    missing = [lost(110, f"gpu-{n:03d}", "gpu_missing") for n in (1, 2, 3)]
    assert together(missing, LEAVES) == []
    mixed = [coalesce([xid(79, 110, f"gpu-{n:03d}"), lost_port(111, f"gpu-{n:03d}")])[0] for n in (1, 2, 3)]
    assert len(together(mixed, LEAVES)) == 1


def test_the_switch_above_outranks_any_node_unless_it_was_survived() -> None:
    """0.95; half of it where the links were lost before the last progress."""
    group = LeafGroup("leaf-0", tuple(lost(110 + n, f"gpu-{n + 1:03d}") for n in range(4)))
    assert group.verdict(STOP).score == pytest.approx(0.95)
    assert group.verdict(STOP).reason == "4 nodes of leaf-0 lost their link within 3 s: the switch above them"
    early = LeafGroup("leaf-0", tuple(lost(40 + n, f"gpu-{n + 1:03d}") for n in range(3)))
    assert early.verdict(STOP).score == pytest.approx(0.475)


def test_the_fabric_between_the_nodes_concerns_every_job_and_other_nodes_none() -> None:
    """A nodeless fabric fault may have stopped any work; a nodeless fault of something else may not."""
    nowhere = replace(lost(110, "gpu-001"), node=None)
    assert LEAVES.concerns(nowhere, {"gpu-001"})
    assert not LEAVES.concerns(replace(nowhere, cause="hardware"), {"gpu-001"})
    assert not LEAVES.concerns(lost(110, "gpu-009"), {"gpu-001"})
    assert LEAVES.concerns(lost(110, "gpu-009"), None)

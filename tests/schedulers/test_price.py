"""What a hint costs is told with it."""

from dataclasses import replace

import pytest

from schedulers.policy.decision import decide
from schedulers.policy.facts import Inputs, JobFacts, NodeFacts
from schedulers.policy.proposal import price_of
from schedulers.policy.settings import Policy, Validity
from store.records.hint import HintAction, HintCost

from .cluster import NOW, fault

POLICY = Policy(mode="approve", validity=Validity(avoid_s=7200.0, cordon_s=86_400.0, drain_s=43_200.0))
JOB = JobFacts("4711", "llm-70b", nodes=64, gpus=512)


@pytest.mark.parametrize(("action", "held"), [("avoid", 16.0), ("cordon", 192.0), ("drain", 96.0)])
def test_a_node_is_paid_for_until_its_hint_ends(action: HintAction, held: float) -> None:
    """Eight GPUs for two hours, a day, half a day."""
    assert price_of(NodeFacts("a"), action, Inputs(NOW, ()), POLICY).held_gpu_h == held
    assert price_of(NodeFacts("a", gpus=4), action, Inputs(NOW, ()), POLICY).held_gpu_h == held / 2


def test_a_failure_costs_the_job_that_runs_there_a_quarter_of_an_hour() -> None:
    """Else the largest that runs; else one of the usual size."""
    largest = Inputs(NOW, (), largest_job_gpus=10_000)
    assert price_of(NodeFacts("a", job=JOB), "cordon", largest, POLICY) == HintCost(
        192.0, 128.0, "llm-70b", 8, 512, ("node_gpus",)
    )
    found = price_of(NodeFacts("a"), "cordon", largest, POLICY)
    assert (found.failure_gpu_h, found.run) == (2500.0, None)
    assert price_of(NodeFacts("a"), "cordon", Inputs(NOW, ()), POLICY).failure_gpu_h == 256.0


def test_what_nobody_knew_is_named_as_assumed() -> None:
    """The GPUs of a node that no source tells, the size of a job where none runs."""
    largest = Inputs(NOW, (), largest_job_gpus=448)
    assert price_of(NodeFacts("a", gpus=4), "cordon", largest, POLICY).assumed == ()
    found = price_of(NodeFacts("a"), "cordon", Inputs(NOW, ()), POLICY)
    assert (found.node_gpus, found.job_gpus, found.assumed) == (8, 1024, ("node_gpus", "job_gpus"))


def test_each_hint_that_costs_something_tells_it() -> None:
    """A watch costs nothing."""
    nodes = [NodeFacts("a", fault=fault("a"), job=JOB), NodeFacts("b", score=0.5), NodeFacts("c", score=0.03)]
    decision = decide(Inputs(NOW, nodes), replace(POLICY, mode="act"))
    costs = {hint.node: hint.evidence.cost for hint, _word in decision.changed}
    assert costs["a"] == price_of(nodes[0], "cordon", Inputs(NOW, nodes), POLICY)
    assert costs["b"] is not None
    assert costs["c"] is None

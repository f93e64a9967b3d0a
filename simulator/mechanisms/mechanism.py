"""One way in which a simulated world differs from the usual one: how its nodes fail, or what is seen of it.

A mechanism is data and functions; what it leaves out stays as it is. It draws from a stream of its own, so that a world
without mechanisms is the same to the byte as before there were any.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from simulator.faults.fault import FAULT_CLASSES, FaultClass, NodeFailure, PlannedDrain
from simulator.faults.trace import Trace
from simulator.site import Parameters, SimulationSettings, SiteLayout


@dataclass(frozen=True, slots=True)
class WorldPlan:
    """What mechanisms decide before anything fails; they change `factor`, and add to `drains` and `trace`.

    Attributes:
        factor: (days, nodes), on the hazard of each node as each day begins; its mean is brought to 1 afterwards.
        drains: planned work; left out where the node is broken then.
        trace: signs that come with it.
    """

    settings: SimulationSettings
    parameters: Parameters
    layout: SiteLayout
    rng: np.random.Generator
    factor: NDArray[np.float64]
    drains: list[PlannedDrain] = field(default_factory=list)
    trace: Trace = field(default_factory=Trace)


Precursor: TypeAlias = Callable[[NodeFailure, Trace, np.random.Generator], None]


@dataclass(frozen=True, slots=True)
class Mechanism:
    """One mechanism.

    Attributes:
        words: what is different, for people.
        figures: parameters in place of the usual ones.
        kind: a failure class as it is in this world: how visible, how early, how repaired.
        precursors: what is left before a visible failure, by class.
        plan: hazards, planned work and the signs that come with them.
        rewrite: what is left of the whole trace in the end.
        reason: what Slurm's event says in place of its usual words, by (failure, those words).
    """

    words: str
    figures: Mapping[str, Any] = field(default_factory=dict)
    kind: Callable[[FaultClass], FaultClass] | None = None
    precursors: Mapping[str, Precursor] | None = None
    plan: Callable[[WorldPlan], None] | None = None
    rewrite: Callable[[Trace, np.random.Generator], None] | None = None
    reason: Callable[[NodeFailure, str], str] | None = None


def changed_figures(parameters: Parameters, mechanisms: Sequence[Mechanism]) -> Parameters:
    """The parameters under mechanisms; of two that change one figure the later wins."""
    for one in mechanisms:
        parameters = replace(parameters, **one.figures)
    return parameters


def changed_kinds(mechanisms: Sequence[Mechanism]) -> tuple[FaultClass, ...]:
    """The failure classes under mechanisms."""
    kinds = FAULT_CLASSES
    for one in mechanisms:
        if one.kind is not None:
            kinds = tuple(one.kind(kind) for kind in kinds)
    return kinds


def planned(
    settings: SimulationSettings, parameters: Parameters, layout: SiteLayout, mechanisms: Sequence[Mechanism]
) -> WorldPlan:
    """What the mechanisms decide before anything fails; the mean of `factor` is 1."""
    rng = np.random.default_rng([settings.seed, 79])
    plan = WorldPlan(settings, parameters, layout, rng, np.ones((settings.days, layout.nodes)))
    for one in mechanisms:
        if one.plan is not None:
            one.plan(plan)
    plan.factor[:] /= plan.factor.mean()
    return plan


def precursors_of(mechanisms: Sequence[Mechanism]) -> Mapping[str, Precursor] | None:
    """What is left before visible failures: that of the last mechanism that says so; None is as usual."""
    return next((one.precursors for one in reversed(mechanisms) if one.precursors is not None), None)


def rewrite(trace: Trace, settings: SimulationSettings, mechanisms: Sequence[Mechanism]) -> None:
    """Leave of the whole trace what the mechanisms leave."""
    rng = np.random.default_rng([settings.seed, 80])
    for one in mechanisms:
        if one.rewrite is not None:
            one.rewrite(trace, rng)

"""What the state machine of `test_state_machine.py` draws: floods, scores, spans of time, policies.

A limit that another one hides is not tested: of the budgets one or two are tight at a time, and floods fill one place.
"""

from dataclasses import replace
from typing import Any

from hypothesis import strategies as st

from schedulers.policy.settings import Breaker, Budgets, Policy, Release, Validity

from .model_world import NODES, PLACES

LOOSE = Budgets(
    nodes=50, percent_of_nodes=100.0, per_rack=50, per_leaf=50, per_hour=50, per_nvlink_domain=50, keep_spares=0
)
LOOSE = replace(
    LOOSE,
    avoid_nodes=50,
    avoid_percent=100.0,
    avoid_per_rack=50,
    avoid_per_leaf=50,
    avoid_per_hour=50,
    avoid_per_nvlink_domain=50,
)
TIGHT: dict[str, list[Any]] = {
    "nodes": [1, 2, 3, 0],
    "percent_of_nodes": [9.0, 17.0, 25.0],
    "per_rack": [1, 2],
    "per_leaf": [1, 2, 3],
    "per_nvlink_domain": [1, 2],
    "per_hour": [1, 2, 3],
    "keep_spares": [2, 4],
    "avoid_nodes": [1, 2, 0],
    "avoid_percent": [9.0, 17.0],
    "avoid_per_rack": [1, 2],
    "avoid_per_leaf": [1, 2],
    "avoid_per_nvlink_domain": [1, 2],
    "avoid_per_hour": [1, 2],
}
PLACE = [tuple(node for node in NODES if PLACES[node].leaf == leaf) for leaf in ("l0", "l1")]

node_names = st.sampled_from(NODES)
schedulers = st.integers(0, 1)
codes = st.sampled_from([79, 79, 48, 94])
scattered = st.lists(st.tuples(node_names, codes), min_size=1, max_size=4)
in_one_place = st.sampled_from(PLACE).flatmap(
    lambda names: st.lists(st.sampled_from(names), min_size=3, max_size=5, unique=True)
)
flood = st.one_of(scattered, in_one_place.map(lambda names: [(node, 79) for node in names]))
# Two floods, one after the other: of one place where together they are many, or any.
halves = in_one_place.map(lambda names: ([(names[0], 79)], [(node, 79) for node in names[1:]]))
two_floods = st.one_of(halves, st.tuples(flood, flood))
visits = st.sampled_from(["cordon", "take over", "undo", "undo", "go", "orphan", "opt out", "opt in"])
stops = st.sampled_from(["none", "none", "holds", "all"])
modes = st.sampled_from(["act", "act", "act", "act", "approve", "shadow"])
scores = st.dictionaries(node_names, st.sampled_from([0.0, 0.01, 0.05, 0.3, 0.95]), max_size=6)
spans = st.sampled_from([1.0, 30.0, 310.0, 1300.0, 3500.0, 3700.0, 6 * 3600.0, 13 * 3600.0, 30 * 3600.0])
jumps = st.sampled_from([-60.0, -1800.0, -2 * 3600.0, -26 * 3600.0, 26 * 3600.0])
troubles = st.sampled_from(["away", "lost", "killed", "deaf", "busy"])


@st.composite
def budgets(draw: st.DrawFn) -> Budgets:
    """One or two limits that bind."""
    most = draw(st.sampled_from([1, 1, 2]))
    names = draw(st.lists(st.sampled_from(sorted(TIGHT)), min_size=1, max_size=most, unique=True))
    return replace(LOOSE, **{name: draw(st.sampled_from(TIGHT[name])) for name in names})


breakers = st.builds(
    Breaker,
    nodes=st.sampled_from([100, 100, 2, 2, 3]),
    cluster_nodes=st.sampled_from([100, 100, 4]),
    window_s=st.sampled_from([600.0, 3600.0]),
)
policies = st.builds(
    Policy,
    mode=modes,
    budgets=budgets(),
    breaker=breakers,
    validity=st.sampled_from([Validity(), Validity(cordon_s=900.0, drain_s=900.0)]),
    release=st.sampled_from([Release(), Release(healthy_s=1800.0)]),
    quorum=st.just(0.0),
    opt_out=st.sampled_from([(), (), ("n03", "n1*")]),
    quiet_hours=st.sampled_from([(), (), (), ("13:00-15:00",)]),
)

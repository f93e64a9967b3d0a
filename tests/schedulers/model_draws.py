"""What the state machine of `test_state_machine.py` draws: floods, scores, spans of time, policies."""

from hypothesis import strategies as st

from schedulers.settings import Breaker, Budgets, Policy, Release, Validity

from .model_world import NODES

node_names = st.sampled_from(NODES)
schedulers = st.integers(0, 1)
flood = st.lists(st.tuples(node_names, st.sampled_from([79, 48, 94])), min_size=1, max_size=5)
visits = st.sampled_from(["cordon", "take over", "undo", "go", "orphan"])
stops = st.sampled_from(["none", "none", "none", "holds", "all"])
modes = st.sampled_from(["act", "act", "act", "act", "approve", "shadow"])
scores = st.dictionaries(node_names, st.sampled_from([0.0, 0.01, 0.05, 0.3, 0.95]), max_size=8)
spans = st.sampled_from([1.0, 30.0, 310.0, 1300.0, 3700.0, 6 * 3600.0, 13 * 3600.0, 30 * 3600.0])
jumps = st.sampled_from([-60.0, -1800.0, -2 * 3600.0, -26 * 3600.0, 26 * 3600.0])
budgets = st.builds(
    Budgets,
    nodes=st.sampled_from([4, 6, 3, 2, 1, 0]),
    percent_of_nodes=st.sampled_from([9.0, 25.0, 60.0, 100.0]),
    per_rack=st.integers(1, 3),
    per_leaf=st.integers(1, 4),
    per_hour=st.sampled_from([1, 2, 4, 6]),
    per_nvlink_domain=st.integers(1, 3),
    keep_spares=st.sampled_from([0, 0, 0, 2, 4]),
)
breakers = st.builds(
    Breaker,
    nodes=st.sampled_from([3, 5, 100, 100, 100]),
    cluster_nodes=st.sampled_from([4, 8, 100, 100]),
    window_s=st.sampled_from([600.0, 3600.0]),
)
policies = st.builds(
    Policy,
    mode=modes,
    budgets=budgets,
    breaker=breakers,
    validity=st.sampled_from([Validity(), Validity(cordon_s=900.0, drain_s=900.0)]),
    release=st.sampled_from([Release(), Release(healthy_s=1800.0)]),
)

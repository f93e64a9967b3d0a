"""Whether the ground of a hint has gone: it is released then. Missing data is no good news.

A hold goes with the faults that it stands on. A soft hint goes when the score has fallen below `release_ratio` of the
threshold that raised it, or of the present one where that is lower: a job that ends must not make hints flap.
"""

from schedulers.facts import HOLDING, Inputs, NodeFacts
from schedulers.settings import Policy
from schedulers.wish import is_opted_out, steps_for
from store.hint import Hint


def is_well(facts: NodeFacts, hint: Hint, inputs: Inputs, policy: Policy) -> bool:
    """Whether nothing speaks for a hint any more. Of a node that has fallen silent nobody knows."""
    if is_opted_out(facts.node, policy):
        return True
    if facts.out or facts.silent or facts.is_confirmed:
        return False
    if hint.action in HOLDING:
        return True
    if facts.score is None:  # that is not low; but of a cordon that was turned down the fault is over
        return "incident" in hint.evidence
    limits = steps_for(facts, inputs, policy)
    present = limits.watch if hint.action == "watch" else limits.avoid
    raised_by = hint.evidence.get("threshold")
    line = min(present, raised_by) if isinstance(raised_by, float) else present
    return facts.score < line * policy.thresholds.release_ratio

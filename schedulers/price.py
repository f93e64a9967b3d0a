"""What a hint takes, and what a failure would: told with each hint, for the person who is to say yes.

price_of(facts, "cordon", inputs, policy)     # {"held_gpu_h": 192.0, "failure_gpu_h": 128.0, "run": "llm-70b"}
"""

from datetime import timedelta
from typing import Any

from schedulers.facts import Inputs, NodeFacts
from schedulers.settings import Policy, Validity
from schedulers.thresholds import failure_gpu_h
from store.hint import HintAction

_HOUR = timedelta(hours=1)


def validity_of(action: HintAction, validity: Validity) -> timedelta:
    """For how long a hint of an action stands, unless it is renewed."""
    by_action = {"watch": validity.watch_s, "avoid": validity.avoid_s, "cordon": validity.cordon_s}
    by_action["drain"] = validity.drain_s
    return timedelta(seconds=by_action.get(action, validity.job_s))


def price_of(facts: NodeFacts, action: HintAction, inputs: Inputs, policy: Policy) -> dict[str, Any]:
    """GPU-hours: of the node until the hint would end by itself, and of a failure of the job (`thresholds.py`).

    `run` is that of the job on the node; None: the failure is that of the largest job that runs, or of the usual size.
    """
    gpus = facts.gpus or policy.costs.node_gpus
    job = facts.job
    return {
        "held_gpu_h": round(gpus * (validity_of(action, policy.validity) / _HOUR), 1),
        "failure_gpu_h": round(failure_gpu_h(policy.costs, job_gpus(facts, inputs, policy)), 1),
        "run": None if job is None else job.run,
    }


def job_gpus(facts: NodeFacts, inputs: Inputs, policy: Policy) -> int:
    """Of the job on a node, or of the largest that runs, for it may be the next to be placed there."""
    return facts.job.gpus if facts.job is not None else inputs.largest_job_gpus or policy.costs.job_gpus

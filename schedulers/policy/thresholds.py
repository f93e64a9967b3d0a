"""From which probability on acting pays, by the size of the job that a failure would strike.

    steps(Thresholds(), Costs(), job_gpus=10_000, node_gpus=8)

Acting pays where `probability * what a failure costs * share averted > what acting costs`, hence from

    probability = cost of acting / (cost of a failure * share averted)              the break-even precision

- A failure costs the whole job its work since the last checkpoint and the restart: `job_gpus * (lost_work + restart)`;
  with a quarter of an hour that is 2,500 GPU-h at 10,000 GPUs.
- To avoid a node costs that node for a while: 2.2 h * 8 GPUs = 17.6 GPU-h. Pays from 0.7 % at 10,000 GPUs, from 6.9 %
  at 1,024.
- To move a job off costs a stall of the whole job, and the node: with 2 min, 14 % at 10,000 GPUs and 20 % at 1,024.
- To save now costs a stall of the whole job, and wins the work since the last checkpoint, not the restart: job size
  cancels out; 60 s against 540 s pay from 11 %.

Source of the figures: FIELD section C, suggested policy (1) and (2). The probability is that of the next 24 h, taken as
if it were the precision: scores are calibrated.
"""

from dataclasses import dataclass
from functools import lru_cache

from schedulers.policy.settings import Costs, Thresholds

_HOUR_S = 3600.0


@dataclass(frozen=True, slots=True)
class ActionThresholds:
    """The probabilities from which one node is watched and avoided, and its job asked to save; watch is the least."""

    watch: float
    avoid: float
    checkpoint: float


@lru_cache(maxsize=4096)
def steps(thresholds: Thresholds, costs: Costs, job_gpus: int, node_gpus: int) -> ActionThresholds:
    """The thresholds for a node, of which some are fixed and the others follow from a job's size."""
    avoid = thresholds.avoid if thresholds.avoid is not None else avoid_pays_from(costs, job_gpus, node_gpus)
    save = thresholds.checkpoint if thresholds.checkpoint is not None else save_pays_from(costs)
    return ActionThresholds(thresholds.watch, max(thresholds.watch, avoid), max(thresholds.watch, save))


def avoid_pays_from(costs: Costs, job_gpus: int, node_gpus: int) -> float:
    """The probability from which keeping a node from the next job pays."""
    return _break_even(avoided_gpu_h(costs, node_gpus), failure_gpu_h(costs, job_gpus) * costs.averted)


def save_pays_from(costs: Costs) -> float:
    """The probability from which a checkpoint now pays, of a job of any size."""
    return _break_even(costs.save_s, costs.lost_work_s)


def failure_gpu_h(costs: Costs, job_gpus: int) -> float:
    """What one failure costs a job, in GPU-hours."""
    return job_gpus * (costs.lost_work_s + costs.restart_s) / _HOUR_S


def avoided_gpu_h(costs: Costs, node_gpus: int) -> float:
    """What it costs to keep a node from work for a while, in GPU-hours."""
    return node_gpus * costs.avoided_s / _HOUR_S


def _break_even(cost: float, gain: float) -> float:
    """Acting that costs nothing always pays; acting that costs more than it can win, at certainty only."""
    return min(1.0, cost / gain) if gain > 0 else (1.0 if cost > 0 else 0.0)

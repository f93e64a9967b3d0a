"""Real jobs over gloo with a slow rank, none, or only slow ones: is it named within a minute with its node, and alone?

SLOW_JOBS=60 SLOW_SEED=1 python -m benchmarks slow-ranks

Each job starts four to eight processes on this machine, so what else runs here is their noise. The sources of two nodes
and the server's search run in this process.
"""

import os
import random
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.result import Result, quantile
from schedulers.lifecycle.hindsight import wilson

if TYPE_CHECKING:
    from real.slow_watch import SlowJudgement

WHAT = "a slow rank of a gloo job named with its node"
BUDGET = "precision >= 0.92 at recall >= 0.90 within 60 s"
JOBS = int(os.environ.get("SLOW_JOBS", "60"))
SEED = int(os.environ.get("SLOW_SEED", "1"))
_PRECISION, _RECALL = 0.92, 0.90


def measure(folder: Path) -> Result:
    """One row of all jobs."""
    # The starters stand with the tests, on the path by now.
    from real.slow_watch import judged, slow_plans

    return result(list(judged(folder, slow_plans(JOBS, random.Random(SEED)))))  # noqa: S311  # a draw, no secret


def result(found: Sequence["SlowJudgement"]) -> Result:
    """The row of some jobs."""
    slow = [one for one in found if one.plan.kind == "one"]
    times = sorted(one.named_s for one in slow if one.named_s is not None)
    wrong = sum(len(one.wrong) for one in found)
    precision, recall = len(times) / max(len(times) + wrong, 1), len(times) / max(len(slow), 1)
    kinds = ", ".join(
        f"{sum(bool(one.wrong) for one in found if one.plan.kind == kind)} of "
        f"{sum(one.plan.kind == kind for one in found)} {words}"
        for kind, words in (("one", "with one slow rank"), ("none", "with none"), ("all", "with all ranks slow"))
    )
    note = (
        f"{len(found)} jobs, {len(slow)} with one rank 1.3 to 2.5 times as slow; 95 % by Wilson: "
        f"precision from {wilson(len(times), len(times) + wrong)[0]:.2f}, "
        f"recall from {wilson(len(times), len(slow))[0]:.2f}; somebody named wrongly in {kinds}"
    )
    took = f"; named after {quantile(times, 0.5):.1f} s (median), {times[-1]:.1f} s at most" if times else ""
    is_met = precision >= _PRECISION and recall >= _RECALL
    ours = f"precision {precision:.2f}, recall {recall:.2f}"
    return Result(WHAT, BUDGET, ours, "-", None, "met" if is_met else "not met", note + took)

"""Real jobs over gloo in which one rank is slow, none, or all: who is named, how soon, and who wrongly.

    PYTHONPATH=tests:. python tests/real/slow_watch.py JOBS SEED    a line a job; `benchmarks slow-ranks` counts them

A job has four to eight ranks. In half of all jobs the steps of every rank vary by chance, too. For some seconds nothing
is done, then one rank works 1.3 to 2.5 times as long, or all ranks twice as long, or nothing changes.
"""

import random
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from real.hang_watch import HangWatch, named
from real.torch_job import torch_job

WITHIN_S = 60.0
# Before anything is done, after the slow rank was named, and in all where there is none.
_BEFORE_S, _AFTER_S, _QUIET_S = 6.0, 6.0, 25.0
_KINDS: tuple[Literal["one", "none", "all"], ...] = ("one", "one", "one", "one", "none", "all")
_SPREADS = (0.0, 0.0, 0.1, 0.2)


@dataclass(frozen=True, slots=True)
class SlowPlan:
    """What is done to a job."""

    kind: Literal["one", "none", "all"]
    world: int
    rank: int
    factor: float
    spread: float


@dataclass(frozen=True, slots=True)
class SlowJudgement:
    """What came of it: seconds until the slow rank was named with its node, and the others that were named."""

    plan: SlowPlan
    named_s: float | None
    wrong: tuple[int, ...]


def slow_plans(jobs: int, chance: random.Random) -> list[SlowPlan]:
    """So many jobs, drawn by chance."""
    found = []
    for number in range(jobs):
        kind, world = _KINDS[number % len(_KINDS)], chance.choice((4, 6, 8))
        factor = chance.uniform(1.3, 2.5) if kind == "one" else 2.0 if kind == "all" else 1.0
        found.append(SlowPlan(kind, world, chance.randrange(world), round(factor, 2), chance.choice(_SPREADS)))
    return found


def judged(folder: Path, plans: list[SlowPlan]) -> Iterator[SlowJudgement]:
    """Every job started, watched and ended, one after the other."""
    for number, plan in enumerate(plans):
        place = folder / str(number)
        place.mkdir()
        with torch_job(place, world=plan.world) as job:
            yield _watched(HangWatch(job), plan)


def _watched(watch: HangWatch, plan: SlowPlan) -> SlowJudgement:
    watch.job.slow_rank("none", 1.0, plan.spread)
    wrong = _named_in(watch, _BEFORE_S)
    if plan.kind == "none":
        return SlowJudgement(plan, None, tuple(sorted(wrong | _named_in(watch, _QUIET_S))))
    watch.job.slow_rank("all" if plan.kind == "all" else plan.rank, plan.factor, plan.spread)
    if plan.kind == "all":
        return SlowJudgement(plan, None, tuple(sorted(wrong | _named_in(watch, _QUIET_S))))
    begun, took = time.monotonic(), None
    while took is None and time.monotonic() - begun < WITHIN_S:
        found = named(watch.look(), "rank_slow")
        if found.get(plan.rank) == f"node-{plan.rank // 4 + 1}":
            took = time.monotonic() - begun
        wrong |= set(found) - {plan.rank}
    wrong |= _named_in(watch, _AFTER_S) - {plan.rank}
    return SlowJudgement(plan, took, tuple(sorted(wrong)))


def _named_in(watch: HangWatch, seconds: float) -> set[int]:
    """The ranks that are called slow at any look within some seconds."""
    found: set[int] = set()
    end_s = time.monotonic() + seconds
    while time.monotonic() < end_s:
        found |= set(named(watch.look(), "rank_slow"))
    return found


def main() -> None:
    """A few jobs, each in a line as it ends."""
    import sys
    import tempfile

    jobs, seed = (int(word) for word in (*sys.argv[1:], "6", "1")[:2])
    with tempfile.TemporaryDirectory() as folder:
        for one in judged(Path(folder), slow_plans(jobs, random.Random(seed))):
            print(one, flush=True)  # noqa: T201  # what was asked for


if __name__ == "__main__":
    main()

"""Where a rank runs: the job names its nodes, and its launcher numbers the ranks block by block.

    placements = placements_of(jobs)
    placements.of("llm-70b").place_of(11, world=16)      # ("gpu-002", 3)

What a rank's own node says of it goes before that (`hangs/stuck_ranks.py`).
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from store.records.hostlist import hosts
from store.records.job import Job

# GPUs of a node where nobody says how many ranks there are.
USUAL_PER_NODE = 8
_NUMBERS = re.compile(r"(\d+)")


@dataclass(frozen=True, slots=True)
class RankPlacement:
    """A job's nodes in the order of its node list, each with as many ranks."""

    nodes: tuple[str, ...] = ()

    def per_node(self, world: int | None) -> int:
        """How many ranks a node has, of a job of so many."""
        if world and self.nodes and world % len(self.nodes) == 0:
            return world // len(self.nodes)
        return USUAL_PER_NODE

    def place_of(self, rank: int, world: int | None = None) -> tuple[str | None, int | None]:
        """The node of a rank, and which of its GPUs it has."""
        per_node = self.per_node(world)
        if not 0 <= rank < len(self.nodes) * per_node:
            return None, None
        return self.nodes[rank // per_node], rank % per_node


@dataclass(frozen=True, slots=True)
class RankPlacements:
    """The jobs that run, by their run; and which run a node works for, where it is one alone."""

    by_run: Mapping[str, RankPlacement] = field(default_factory=dict)
    runs_of_node: Mapping[str, frozenset[str]] = field(default_factory=dict)

    def of(self, run: str | None) -> RankPlacement | None:
        """The placement of a run's ranks; None where its job is not known."""
        return None if run is None else self.by_run.get(run)

    def run_of(self, node: str | None) -> str | None:
        """The run that a node works for; None where it is none or several."""
        runs = self.runs_of_node.get(node or "", frozenset())
        return next(iter(runs)) if len(runs) == 1 else None

    def is_foreign(self, node: str | None, run: str) -> bool:
        """Whether a node works for other runs alone; one without a job may hold the logs of any."""
        runs = self.runs_of_node.get(node or "")
        return runs is not None and run in self.by_run and run not in runs


def placements_of(jobs: Iterable[Job]) -> RankPlacements:
    """The placements of the newest attempt of each run."""
    newest: dict[str, Job] = {}
    for job in jobs:
        if job.start is None or not job.node_list:
            continue
        known = newest.get(job.run)
        if known is None or known.start is None or job.start >= known.start:
            newest[job.run] = job
    by_run: dict[str, RankPlacement] = {}
    runs: dict[str, set[str]] = {}
    for run, job in newest.items():
        nodes = tuple(sorted(hosts(job.node_list), key=_natural))
        by_run[run] = RankPlacement(nodes)
        if job.end is None:
            for node in nodes:
                runs.setdefault(node, set()).add(run)
    return RankPlacements(by_run, {node: frozenset(found) for node, found in runs.items()})


def _natural(name: str) -> list[tuple[int, str]]:
    """Slurm's order: node 9 before node 10."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in _NUMBERS.split(name)]

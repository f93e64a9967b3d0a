"""What a run's MFU needs beside the model's shape: its GPUs, their model, and the usual time of a step."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import sqlalchemy as sa

from goodput.formulas.mfu import mfu, peak_tflops, what_is_missing
from goodput.formulas.shape import Shape, shape_of
from goodput.ledger import Ledger
from goodput.reading.records import read_run_jobs
from goodput.wall_time.attempts import nodes_of
from store import schema
from store.job import Job

_BATCH = 2_000


@dataclass(frozen=True, slots=True)
class RunFacts:
    """None = not known. `gpu_model` is None too where the run's nodes have different ones."""

    gpus: int | None
    gpu_model: str | None
    step_s: float | None
    shape: Shape | None = None  # as the log tells it


def facts_from_json(told: Mapping[str, Any]) -> RunFacts:
    """The facts that `asdict` made plain."""
    shape = told.get("shape")
    return RunFacts(**{**told, "shape": None if shape is None else Shape(**shape)})


def facts_of(connection: sa.Connection, ledger: Ledger) -> RunFacts:
    """The facts of a run whose ledger was made."""
    jobs = read_run_jobs(connection, [ledger.run])[ledger.run]
    nodes = sorted(_newest_nodes(jobs))
    models: dict[str, str | None] = {}
    for i in range(0, len(nodes), _BATCH):
        table = schema.nodes
        query = sa.select(table.c.node, table.c.gpu_model).where(table.c.node.in_(nodes[i : i + _BATCH]))
        models |= {row.node: row.gpu_model for row in connection.execute(query)}
    return facts_from(ledger, jobs, models)


def facts_from(ledger: Ledger, jobs: Sequence[Job], models: Mapping[str, str | None]) -> RunFacts:
    """The facts of a run whose ledger was made of `jobs`; `models` is the GPU model of each known node."""
    step_s = None if ledger.iteration_ms is None else ledger.iteration_ms / 1000
    found = {models[node] for node in _newest_nodes(jobs) if node in models}
    return RunFacts(ledger.gpus, found.pop() if len(found) == 1 else None, step_s, ledger.shape)


def _newest_nodes(jobs: Sequence[Job]) -> frozenset[str]:
    """The nodes of the newest started job."""
    started = [(job.start, job.node_list) for job in jobs if job.start is not None]
    return nodes_of(max(started)[1]) if started else frozenset()


def mfu_json(run: str, facts: RunFacts, shapes: Mapping[str, Shape]) -> dict[str, Any]:
    """A run's MFU with what it rests on, or with what is missing for it: never a guess.

    The shape is that of the configuration, else that which the run's log tells.
    """
    shape = shape_of(run, shapes) or facts.shape
    return {
        "run": run,
        "mfu": mfu(shape, facts.step_s, facts.gpus, peak_tflops(facts.gpu_model)),
        "shape": None if shape is None else asdict(shape),
        "step_s": facts.step_s,
        "gpus": facts.gpus,
        "gpu_model": facts.gpu_model,
        "peak_tflops": peak_tflops(facts.gpu_model),
        "missing": what_is_missing(shape, facts.step_s, facts.gpus, facts.gpu_model),
    }

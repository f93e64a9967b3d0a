"""MFU: which share of the GPUs' peak a training step turns into the model's arithmetic. It is program goodput.

    shape = Shape(batch=1536, layers=96, seq=2048, hidden=12288)
    mfu(shape, step_s=8.1, gpus=1024, peak_tflops=312.0)       # 0.55

72 b l s h^2 + 12 b l s^2 h floating point operations a step: forward and backward of the transformer layers alone,
without recomputation, embedding or output layer (Narayanan et al. 2021, arXiv 2104.04473, without their 4/3 for
recomputation; MFU as in PaLM, arXiv 2204.02311). Without a shape, a step time or a known peak there is no MFU.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from typing import Any

from goodput.formulas.shape import Shape, shape_of
from goodput.ledger import Ledger
from store.catalog_rows import rows
from store.records.hostlist import hosts
from store.records.job import Job


def mfu(shape: Shape | None, step_s: float | None, gpus: int | None, peak_tflops: float | None) -> float | None:
    """The share of the peak (0-1) that the model's arithmetic takes; None where anything is missing."""
    if shape is None or not step_s or not gpus or not peak_tflops:
        return None
    return shape.flops / (step_s * gpus * peak_tflops * 1e12)


@cache
def _peaks() -> Sequence[tuple[re.Pattern[str], float]]:
    return [(re.compile(row["pattern"], re.IGNORECASE), float(row["tflops"])) for row in rows("gpu_peaks")]


def peak_tflops(gpu_model: str | None) -> float | None:
    """Dense bfloat16 TFLOPS of a GPU by its model's name; None for one that the catalogue does not know."""
    if gpu_model is None:
        return None
    return next((peak for pattern, peak in _peaks() if pattern.search(gpu_model)), None)


def what_is_missing(shape: Shape | None, step_s: float | None, gpus: int | None, gpu_model: str | None) -> list[str]:
    """In words, what stands between a run and its MFU; empty where nothing does."""
    missing = []
    if shape is None:
        missing.append("the model's shape")
    if not step_s:
        missing.append("the time of a step")
    if not gpus:
        missing.append("the number of GPUs")
    if gpu_model is None:
        missing.append("one GPU model for all of its nodes")
    elif peak_tflops(gpu_model) is None:
        missing.append(f"the peak of {gpu_model}")
    return missing


# What a run's MFU needs beside the model's shape: its GPUs, their model, and the usual time of a step.


@dataclass(frozen=True, slots=True)
class RunFacts:
    """None = not known. `gpu_model` is None too where the run's nodes have different ones."""

    gpus: int | None
    gpu_model: str | None
    step_s: float | None
    shape: Shape | None = None  # as the log tells it


def facts_from_json(reported: Mapping[str, Any]) -> RunFacts:
    """The facts that `asdict` made plain."""
    shape = reported.get("shape")
    return RunFacts(**{**reported, "shape": None if shape is None else Shape(**shape)})


def facts_from(ledger: Ledger, jobs: Sequence[Job], models: Mapping[str, str | None]) -> RunFacts:
    """The facts of a run whose ledger was made of `jobs`; `models` is the GPU model of each known node."""
    step_s = None if ledger.iteration_ms is None else ledger.iteration_ms / 1000
    found = {models[node] for node in newest_nodes(jobs) if node in models}
    return RunFacts(ledger.gpus, found.pop() if len(found) == 1 else None, step_s, ledger.shape)


def newest_nodes(jobs: Sequence[Job]) -> frozenset[str]:
    """The nodes of the newest started job."""
    started = [(job.start, job.node_list) for job in jobs if job.start is not None]
    return hosts(max(started)[1]) if started else frozenset()


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

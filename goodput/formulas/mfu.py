"""MFU: which share of the GPUs' peak a training step turns into the model's arithmetic. It is program goodput.

    shape = Shape(batch=1536, layers=96, seq=2048, hidden=12288)
    mfu(shape, step_s=8.1, gpus=1024, peak_tflops=312.0)       # 0.55

72 b l s h^2 + 12 b l s^2 h floating point operations a step: forward and backward of the transformer layers alone,
without recomputation, embedding or output layer (Narayanan et al. 2021, arXiv 2104.04473, without their 4/3 for
recomputation; MFU as in PaLM, arXiv 2204.02311). Without a shape, a step time or a known peak there is no MFU.
"""

import re
from collections.abc import Sequence
from functools import cache

from goodput.formulas.shape import Shape
from store.catalog import rows

SOURCE = "72 b l s h^2 + 12 b l s^2 h per step (Narayanan et al. 2021, without recomputation)"


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

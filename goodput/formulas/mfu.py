"""MFU: which share of the GPUs' peak a training step turns into the model's arithmetic. It is program goodput.

    shape = Shape(batch=1536, layers=96, seq=2048, hidden=12288)
    mfu(shape, step_s=8.1, gpus=1024, peak_tflops=312.0)       # 0.55

72 b l s h^2 + 12 b l s^2 h floating point operations a step: forward and backward of the transformer layers alone,
without recomputation, embedding or output layer (Narayanan et al. 2021, arXiv 2104.04473, without their 4/3 for
recomputation; MFU as in PaLM, arXiv 2204.02311). Without a shape, a step time or a known peak there is no MFU.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from fnmatch import fnmatchcase
from functools import cache

from store.catalog import rows

SOURCE = "72 b l s h^2 + 12 b l s^2 h per step (Narayanan et al. 2021, without recomputation)"


class ShapeError(ValueError):
    """A shape that cannot be read; the message says what is wrong and how it is written."""


@dataclass(frozen=True, slots=True)
class Shape:
    """A transformer and its step: sequences a step over all GPUs, layers, tokens a sequence, hidden size."""

    batch: int
    layers: int
    seq: int
    hidden: int

    @property
    def text(self) -> str:
        """As `parse_shape` reads it."""
        return ",".join(f"{field.name}={getattr(self, field.name)}" for field in fields(self))

    @property
    def flops(self) -> int:
        """Floating point operations of one step, forward and backward."""
        b, layers, s, h = self.batch, self.layers, self.seq, self.hidden
        return 72 * b * layers * s * h * h + 12 * b * layers * s * s * h


def mfu(shape: Shape | None, step_s: float | None, gpus: int | None, peak_tflops: float | None) -> float | None:
    """The share of the peak (0-1) that the model's arithmetic takes; None where anything is missing."""
    if shape is None or not step_s or not gpus or not peak_tflops:
        return None
    return shape.flops / (step_s * gpus * peak_tflops * 1e12)


def parse_shape(text: str) -> Shape:
    """A shape as it is written: `batch=1536,layers=96,seq=2048,hidden=12288`.

    Raises:
        ShapeError: a part is missing, twice, unknown or no whole number of at least 1.
    """
    names = [field.name for field in fields(Shape)]
    found: dict[str, int] = {}
    for part in text.split(","):
        name, _, value = part.strip().partition("=")
        if name not in names or name in found or not (value.isascii() and value.isdigit() and 0 < int(value) < 10**9):
            raise ShapeError(f"{part.strip()!r} is no part of a shape: write batch=B,layers=L,seq=S,hidden=H")
        found[name] = int(value)
    if len(found) < len(names):
        missing = ", ".join(name for name in names if name not in found)
        raise ShapeError(f"{text!r} lacks {missing}: write batch=B,layers=L,seq=S,hidden=H")
    return Shape(**found)


def shape_told(told: Mapping[str, object]) -> Shape | None:
    """The shape that four figures of these names tell; None where one is missing or no sane whole number."""
    figures = [told.get(field.name) for field in fields(Shape)]
    sane = [one for one in figures if isinstance(one, int) and not isinstance(one, bool) and 0 < one < 10**9]
    return Shape(*sane) if len(sane) == len(figures) else None


def shape_of(run: str, shapes: Mapping[str, Shape]) -> Shape | None:
    """The shape of a run: of the first pattern (`llm-70b*`) that its name fits."""
    return next((shape for pattern, shape in shapes.items() if fnmatchcase(run, pattern)), None)


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

"""A transformer's shape, of which its arithmetic follows: `goodput/cluster/mfu.py`.

parse_shape("batch=1536,layers=96,seq=2048,hidden=12288").flops
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from fnmatch import fnmatchcase


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


def shape_from_figures(reported: Mapping[str, object]) -> Shape | None:
    """The shape that four figures of these names tell; None where one is missing or no sane whole number."""
    figures = [reported.get(field.name) for field in fields(Shape)]
    sane = [one for one in figures if isinstance(one, int) and not isinstance(one, bool) and 0 < one < 10**9]
    return Shape(*sane) if len(sane) == len(figures) else None


def shape_of(run: str, shapes: Mapping[str, Shape]) -> Shape | None:
    """The shape of a run: of the first pattern (`llm-70b*`) that its name fits."""
    return next((shape for pattern, shape in shapes.items() if fnmatchcase(run, pattern)), None)

"""Telemetry's figures as whole numbers of 2**-24: their sums are the same in whatever order and parts they are added.

A float32 below 2**20 loses no more than 3e-8 by it; what is larger counts as 2**20 (no node draws a megawatt).
A sum holds 2**19 of the largest; sums that run over more wrap around, and their differences are right again.
"""

import numpy as np
from numpy.typing import NDArray

from predictor.history import Floats, Ints

_ONE = 2.0**24
_LARGEST = 2.0**20


def fixed(values: NDArray[np.float32]) -> Ints:
    """Whole numbers of 2**-24; what was not measured (NaN, infinite) counts as nothing."""
    measured = np.where(np.isfinite(values), values, np.float32(0.0)).astype(np.float64)
    return np.rint(np.clip(measured, -_LARGEST, _LARGEST) * _ONE).astype(np.int64)


def to_float(whole: Ints) -> Floats:
    """The figures that whole numbers stand for."""
    return whole / _ONE

"""When other ways to save pay: in the background (asynchronous), or to memory with a copy on disk now and then.

    in_background(save_s=60.0, write_s=60.0, restart_s=600.0, mttf_s=10_800.0).break_even_stall_s
    two_levels(save_s=60.0, share=0.9, restart_s=600.0, mttf_s=10_800.0).break_even_stall_s

A save in the background stalls w' and is safe `write_s` later: the same form as any, with the writing added to the way
back (`young_daly.py`). It pays below the stall at which both are worth the same, each at its best interval;
to first order (sqrt(w) - write / sqrt(2 M))^2.
Two levels, to first order: memory saves (stall m) serve the share f of the failures, disk saves (stall w) the others.
Their best intervals do not depend on each other, sqrt(2 m M / f) and sqrt(2 w M / (1 - f)); both together lose
sqrt(2 m f / M) + sqrt(2 w (1 - f) / M), less than disk alone if m < w (1 - sqrt(1 - f))^2 / f.
Sources: Vaidya 1995 and Di et al. 2014 (two-level checkpointing); stalls: FIELD B3 (PyTorch DCP, ByteRobust).
"""

import math
from dataclasses import asdict, dataclass
from typing import Any

from goodput.formulas.young_daly import expected_goodput, optimum_s

# What such saves stall in production (FIELD B3): PyTorch's asynchronous save, ByteRobust's save of every step.
ASYNC_STALL_S = 0.5
MEMORY_STALL_S = 0.04
_STEPS = 60


@dataclass(frozen=True, slots=True)
class SaveKind:
    """Another way to save: what it would bring, and up to which stall it pays (None: at no stall)."""

    stall_s: float
    interval_s: float
    goodput: float
    gain: float
    break_even_stall_s: float | None
    pays: bool

    def to_json(self) -> dict[str, Any]:
        """The figures as plain values."""
        return asdict(self)


def in_background(
    save_s: float, write_s: float, restart_s: float, mttf_s: float, stall_s: float = ASYNC_STALL_S
) -> SaveKind:
    """Saves that stall `stall_s` and are safe `write_s` later, against saves that stall `save_s`; one at a time."""
    now = expected_goodput(optimum_s(save_s, mttf_s), save_s, restart_s, mttf_s)

    def worth(stall: float) -> tuple[float, float]:
        interval = max(optimum_s(stall, mttf_s), write_s)
        return interval, expected_goodput(interval, stall, restart_s + write_s, mttf_s)

    low, high = 0.0, save_s
    for _ in range(_STEPS):
        middle = (low + high) / 2
        low, high = (middle, high) if worth(middle)[1] > now else (low, middle)
    interval, goodput = worth(stall_s)
    return SaveKind(stall_s, interval, goodput, goodput - now, low if worth(low)[1] > now else None, goodput > now)


def two_levels(
    save_s: float, share: float, restart_s: float, mttf_s: float, stall_s: float = MEMORY_STALL_S
) -> SaveKind:
    """Saves to memory that outlive the share of the failures, with disk saves for the others.

    `interval_s` is that of the memory saves. Gain and break-even are of the first order.

    Raises:
        ValueError: the share is not within 0 and 1.
    """
    if not 0 <= share <= 1:
        raise ValueError(f"a share of {share} of the failures is none: it lies within 0 and 1")
    now = expected_goodput(optimum_s(save_s, mttf_s), save_s, restart_s, mttf_s)
    lost_now = math.sqrt(2 * save_s / mttf_s)
    lost = math.sqrt(2 * stall_s * share / mttf_s) + math.sqrt(2 * save_s * (1 - share) / mttf_s)
    interval = math.sqrt(2 * stall_s * mttf_s / share) if share else math.inf
    gain = min(lost_now - lost, 1 - now)
    limit = save_s * (1 - math.sqrt(1 - share)) ** 2 / share if share else None
    return SaveKind(stall_s, min(interval, mttf_s), now + gain, gain, limit, limit is not None and stall_s < limit)

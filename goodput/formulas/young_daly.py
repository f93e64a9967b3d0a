"""The checkpoint interval that loses least, and the goodput that an interval brings, under memoryless failures.

    optimum_s(save_s=60.0, mttf_s=10_800.0)              # 1098.8
    expected_goodput(1098.8, 60.0, 600.0, 10_800.0)      # 0.850

Time to failure M = 1 / L, interval of work D, stall of a save w, way back R. Sources: Young, CACM 17(9), 1974 (first
order); Daly, FGCS 22(3), 2006 (higher order, and the exact time L D / (exp(L R) (exp(L (D + w)) - 1))). The exact
optimum solves 1 - L D = exp(-L (D + w)): the derivative of that form set to zero.
"""

import math

_TOO_FAR = 700.0  # beyond a float's range: nothing is ever finished
_STEPS = 60


def young_s(save_s: float, mttf_s: float) -> float:
    """Young's first-order interval, seconds: sqrt(2 w M)."""
    return math.sqrt(2 * save_s * mttf_s)


def daly_s(save_s: float, mttf_s: float) -> float:
    """Daly's higher-order interval, seconds: sqrt(2 w M) (1 + sqrt(w / 2M) / 3 + w / 18M) - w; M from w = 2M on."""
    if save_s >= 2 * mttf_s:
        return mttf_s
    ratio = save_s / (2 * mttf_s)
    return young_s(save_s, mttf_s) * (1 + math.sqrt(ratio) / 3 + ratio / 9) - save_s


def optimum_s(save_s: float, mttf_s: float) -> float:
    """The interval that is best under memoryless failures, exactly: 0 for saves that cost nothing.

    Raises:
        ValueError: the stall is negative, or the time to failure is not above zero.
    """
    if save_s < 0 or not mttf_s > 0:
        raise ValueError(f"no interval for a stall of {save_s} s and {mttf_s} s between failures")
    stall = save_s / mttf_s
    low, high = 0.0, 1.0
    for _ in range(_STEPS):
        share = (low + high) / 2
        # 1 - y - exp(-y - a) without losing digits where y and a are small.
        low, high = (share, high) if -math.expm1(-share - stall) > share else (low, share)
    return high * mttf_s if save_s > 0 else 0.0


def expected_goodput(interval_s: float, save_s: float, restart_s: float, mttf_s: float) -> float:
    """Productive share of wall time (0-1) under memoryless failures, exact.

    A save that is written in the background keeps the work that was done when it was begun. The `write_s` that it takes
    count in `restart_s`: of an uptime X the saves k with k (D + w) + write <= X are kept, so that the kept work is
    D exp(-L write) / (exp(L (D + w)) - 1), which is what as much time to restart costs.
    """
    if interval_s <= 0:
        return 0.0
    exponent, back = (interval_s + save_s) / mttf_s, restart_s / mttf_s
    if exponent + back > _TOO_FAR:
        return 0.0
    return interval_s / mttf_s / (math.exp(back) * math.expm1(exponent))

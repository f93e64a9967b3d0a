"""Histories of runs made by hand or by dice, for advice and what-ifs."""

from itertools import pairwise

import numpy as np

from goodput.advice.run_history import RunHistory, RunStop


def stop(time_s: float, node: str | None = "gpu-1", component: str = "gpu", waiting: float = 300.0) -> RunStop:
    """A stop: ten minutes until it is noticed, a wait, five minutes of start, one of load."""
    return RunStop(time_s, node, component, 400.0, 600.0, waiting, 300.0, 60.0, 0.0)


def history(stops: tuple[RunStop, ...], wall_s: float = 864_000.0, nodes: int = 64) -> RunHistory:
    """Ten days of 64 nodes; saves of a minute every half hour; what it got done follows from the stops."""
    edges = [0.0, *(one.time_s for one in stops), wall_s]
    productive = 0.0
    for i, (begin, end) in enumerate(pairwise(edges)):
        up = max(0.0, end - begin - (stops[i - 1].back_s if i else 0.0))
        productive += up * 1800 / 1860 if i == len(stops) else 1800 * (up // 1860)
    saving = productive / 1800 * 60
    saves = (60.0, (60.0,) * 40, 1800.0)
    return RunHistory("llm", nodes, 1_740_787_200.0, wall_s, productive, saving, 1.0, 0.0, stops, *saves)


def random_history(failures: int = 60, mttf_s: float = 20_000.0, nodes: int = 64, seed: int = 1) -> RunHistory:
    """A run whose failures have no memory, on nodes that are all as good."""
    dice = np.random.default_rng(seed)
    times = np.cumsum(dice.exponential(mttf_s, failures) + 1.0).tolist()
    components = ("gpu", "nvlink", "host")
    stops = tuple(
        stop(time, f"gpu-{dice.integers(0, nodes)}", components[dice.integers(0, 3)], float(dice.exponential(300.0)))
        for time in times
    )
    return history(stops, times[-1] + mttf_s, nodes)

"""Effective training time ratio (ETTR): the productive share of a run's wall time, by Meta's formula and exactly.

    job = EttrSetting(nodes=2048, rate_per_node_day=6.5e-3, interval_s=3600.0, restart_s=300.0)
    linear(job), exact(job)                                          # 0.676, 0.714
    minutes_allowed(target=0.95, nodes=1250, rate_per_node_day=3.8e-3)    # 15.2

Sources: "Revisiting Reliability in Large-Scale Machine Learning Research Clusters" (HPCA 2025, arXiv 2410.21680) for
E[ETTR] = 1 - N r (u0 + q + D / 2), here with the stall of saves, w / (D + w), beside it; Daly 2006 for the exact form.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from goodput.formulas.checkpoint_interval import expected_goodput
from goodput.timeline import DAY_S

# From this expected number of failures in one interval, stall and way back on, the linear form is off by percents.
BREAKS_DOWN = 0.1


@dataclass(frozen=True, slots=True)
class EttrSetting:
    """A run: its size, how often a node fails, and what it pays. Times in seconds.

    Attributes:
        interval_s: work between two saves.
        restart_s: from the failure to the next iteration, less the wait for nodes (Meta's u0).
        save_s: stall of a save.
        write_s: how long after its stall a save in the background is safe.
        queue_s: wait for nodes after a failure (Meta's q).
    """

    nodes: int
    rate_per_node_day: float
    interval_s: float
    restart_s: float
    save_s: float = 0.0
    write_s: float = 0.0
    queue_s: float = 0.0

    @property
    def mttf_s(self) -> float:
        """Mean time to failure of the whole run, seconds: 1 / (N r)."""
        return DAY_S / (self.nodes * self.rate_per_node_day)

    @property
    def back_s(self) -> float:
        """What a failure costs beside the work since the last save: way back, wait, and the save that was not safe."""
        return self.restart_s + self.queue_s + self.write_s


def linear(setting: EttrSetting) -> float:
    """Meta's E[ETTR], to first order in the failures: negative where they are too frequent for it."""
    stall = setting.save_s / (setting.interval_s + setting.save_s)
    return 1 - stall - (setting.back_s + (setting.interval_s + setting.save_s) / 2) / setting.mttf_s


def exact(setting: EttrSetting) -> float:
    """E[ETTR] under memoryless failures, which may strike while the run comes back too (Daly 2006)."""
    return expected_goodput(setting.interval_s, setting.save_s, setting.back_s, setting.mttf_s)


def load(setting: EttrSetting) -> float:
    """Failures expected in one interval, its save and a way back: the linear form holds far below 1."""
    return (setting.interval_s + setting.save_s + setting.back_s) / setting.mttf_s


def expected(setting: EttrSetting) -> tuple[float, str]:
    """The ETTR to go by, and which form gave it: `linear` where both are the same to a percent, else `exact`."""
    return (linear(setting), "linear") if load(setting) < BREAKS_DOWN else (exact(setting), "exact")


def minutes_allowed(target: float, nodes: int, rate_per_node_day: float) -> float:
    """Minutes of wall time that one failure may cost in all if the run is to reach the target: (1 - G) M (FIELD B4).

    Raises:
        ValueError: the target is not within 0 and 1, or nobody fails.
    """
    if not 0 <= target <= 1 or nodes < 1 or rate_per_node_day <= 0:
        raise ValueError("a budget needs a target within 0 and 1, nodes, and a failure rate above zero")
    return (1 - target) * DAY_S / (nodes * rate_per_node_day) / 60


# A run's or a cluster's time in three ratios that others publish: all of buckets of time, in whatever unit.
#
# Google's ML Productivity Goodput (arXiv 2502.06982), of one run: scheduling goodput is the share of its time in which
# it had its nodes, runtime goodput the productive share of that; their product is the ledger's goodput. Program goodput
# is the MFU (`goodput/cluster/mfu.py`).
#
# Meta's effective training time ratio, ETTR (arXiv 2410.21680), is productive over available wall time. It holds
# against a run only the wait, the way back after interruptions and the work that was lost: saves, evaluations and slow
# steps stay in.

# What Meta's ETTR holds against a run.
UNPRODUCTIVE = ("waiting", "startup", "checkpoint_load", "detection", "lost_work")


def ettr(buckets: Mapping[str, float]) -> tuple[float, float] | None:
    """The least and the most that the ETTR may be: what no log tells may have been work. None of no time at all."""
    whole = sum(buckets.values())
    if not whole:
        return None
    most = whole - sum(buckets.get(name, 0) for name in UNPRODUCTIVE)
    return (most - buckets.get("unknown", 0)) / whole, most / whole


def ettr_json(buckets: Mapping[str, float]) -> dict[str, float] | None:
    """The same as it is printed."""
    found = ettr(buckets)
    return None if found is None else {"least": found[0], "most": found[1]}


def run_ratios(buckets: Mapping[str, float]) -> dict[str, Any]:
    """A run's scheduling and runtime goodput and its ETTR (0-1); null of no time."""
    whole = sum(buckets.values())
    had = whole - buckets.get("waiting", 0)
    return {
        "scheduling_goodput": had / whole if whole else None,
        "runtime_goodput": buckets.get("productive", 0) / had if had else None,
        "ettr": ettr_json(buckets),
    }

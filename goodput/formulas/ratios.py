"""A run's or a cluster's time in three ratios that others publish: all of buckets of time, in whatever unit.

Google's ML Productivity Goodput (arXiv 2502.06982), of one run: scheduling goodput is the share of its time in which it
had its nodes, runtime goodput the productive share of that; their product is the ledger's goodput. Program goodput is
the MFU (`goodput/formulas/mfu.py`).

Meta's effective training time ratio, ETTR (arXiv 2410.21680), is productive over available wall time. It holds
against a run only the wait, the way back after interruptions and the work that was lost: saves, evaluations and slow
steps stay in.
"""

from collections.abc import Mapping
from typing import Any

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

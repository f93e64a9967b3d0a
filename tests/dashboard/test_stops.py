"""What stopped a run last, in a sentence."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from dashboard.panels.stops import newest, sentence
from wire.goodput import CulpritJson, InterruptionJson, KeptSaveJson, LedgerJson

NOW = datetime(2025, 3, 29, 12, tzinfo=UTC)
GPU = CulpritJson(type="gpu", pci="0000:0f:00.0", index=5, node="gpu-003")


def ledger(*stops: InterruptionJson, gpus: int | None = 64) -> LedgerJson:
    """A run with some stops."""
    return LedgerJson(run="llm_70b", gpus=gpus, wall_s=9e4, buckets={}, interruptions=stops)


def stop(ago: timedelta | None = timedelta(minutes=5), **fields: Any) -> InterruptionJson:
    """One that cost half an hour."""
    return InterruptionJson(time=None if ago is None else NOW - ago, **{"lost_s": 1800.0, **fields})


@pytest.mark.parametrize(
    ("found", "says"),
    [
        (stop(cause="hardware", culprit=GPU), "by GPU 5 of gpu-003 (hardware); 32 GPU-hours were lost"),
        (stop(cause="host", culprit=CulpritJson(type="node", node="gpu-7")), "by gpu-7 (host); 32 GPU-hours were lost"),
        (stop(cause="fabric"), "by network links and switches (no device is known); 32 GPU-hours were lost"),
        (
            stop(kept=KeptSaveJson(iteration=1100, time=NOW - timedelta(minutes=42)), torn=1200),
            "by what nobody knows; 32 GPU-hours were lost; newest whole save: 1100, 37 min before; save 1200 is torn",
        ),
        (stop(), "by what nobody knows; 32 GPU-hours were lost"),
    ],
)
def test_the_last_stop_names_its_device_and_its_cost(found: InterruptionJson, says: str) -> None:
    """As an operator calls it; names of runs are no markup."""
    said = sentence(ledger(found), NOW)
    assert said is not None and said.startswith(r"llm\_70b")
    assert said.replace("\\", "") == f"llm_70b was last stopped 5 min ago {says}"


def test_without_gpus_the_cost_is_a_time() -> None:
    """Nobody said how many there are."""
    said = sentence(ledger(stop(cause="hardware", culprit=GPU), gpus=None), NOW)
    assert said is not None and said.endswith("; 30 min were lost")


def test_the_newest_stop_is_told_and_none_where_none_is_dated() -> None:
    """A stop without a time cannot be called the last one."""
    old, new = stop(timedelta(days=2), cause="host"), stop(cause="hardware", culprit=GPU)
    assert newest(ledger(new, old, stop(None))) == new
    assert sentence(ledger(stop(None)), NOW) is None
    assert sentence(ledger(), NOW) is None

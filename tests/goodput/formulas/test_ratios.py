"""The ratios that others publish, from buckets."""

import pytest

from goodput.formulas.ettr import ettr, ettr_json, run_ratios


def test_meta_s_ratio_counts_saves_and_slow_steps_as_work() -> None:
    """A run of 1,000 s with 100 of queue, 50 of way back, 50 lost: 0.8; what is unknown widens it."""
    spent = {"waiting": 100, "startup": 30, "checkpoint_load": 10, "detection": 10, "lost_work": 50}
    work = {"productive": 600, "checkpoint_save": 100, "degraded": 50, "evaluation": 50}
    assert ettr({**spent, **work}) == (0.8, 0.8)
    assert ettr({**spent, **work, "unknown": 1000}) == (0.4, 0.9)


def test_google_s_factors_give_the_ledger_s_goodput() -> None:
    """Scheduling times runtime."""
    told = run_ratios({"waiting": 20.0, "productive": 60.0, "startup": 20.0})
    assert told["scheduling_goodput"] * told["runtime_goodput"] == pytest.approx(0.6)
    assert told["runtime_goodput"] == pytest.approx(0.75)
    assert told["ettr"] == {"least": 0.6, "most": 0.6}


def test_of_no_time_there_are_no_ratios() -> None:
    """And a run that only waited had no runtime."""
    assert run_ratios({}) == {"scheduling_goodput": None, "runtime_goodput": None, "ettr": None}
    assert run_ratios({"waiting": 5.0})["runtime_goodput"] is None
    assert ettr_json({"waiting": 5.0}) == {"least": 0.0, "most": 0.0}

"""A real job over gloo: the rank that was stopped is named, by its state, and by the dumps of those that wait."""

from pathlib import Path

import pytest
from real.hang_watch import HangWatch, named
from real.patience import patience
from real.torch_job import torch_job

pytestmark = pytest.mark.integration


def test_a_stopped_rank_is_named_with_its_node_and_no_longer_when_it_goes_on(tmp_path: Path) -> None:
    """By what the hook shares; the training does nothing for it."""
    with torch_job(tmp_path, world=8) as job:
        watch = HangWatch(job)
        watch.until(lambda _events: False, 5.0)
        job.stop_rank(6)
        events = watch.until(lambda events: bool(named(events, "rank_missing")), patience(60))
        assert named(events, "rank_missing") == {6: "node-2"}
        (found,) = [event for event in events if event.kind == "rank_missing"]
        assert (found.device.type, found.device.index, found.attributes["how"]) == ("gpu", 2, "stopped")
        job.go_on(6)
        assert not named(watch.until(lambda events: not named(events, "rank_missing"), patience(60)), "rank_missing")


def test_the_dumps_of_those_that_wait_name_the_rank_that_wrote_none(tmp_path: Path) -> None:
    """Real dumps of PyTorch's flight recorder, and none of the stopped rank."""
    with torch_job(tmp_path, world=4) as job:
        watch = HangWatch(job)
        watch.sources = watch.sources[-1:]  # dumps alone
        watch.until(lambda _events: False, 3.0)
        job.stop_rank(1)
        watch.until(lambda _events: len(list((tmp_path / "dumps").glob("nccl_trace_rank_*"))) == 3, patience(90))
        events = watch.until(lambda events: bool(named(events, "rank_missing")), patience(30))
        assert set(named(events, "rank_missing")) == {1}

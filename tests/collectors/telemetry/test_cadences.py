"""Exporters of one node that report at different paces are not taken for silent, and one that is silent is told."""

from datetime import UTC, datetime, timedelta

import pytest

from collectors.telemetry.device_watch import DeviceWatch
from store.records.event import Event
from store.records.telemetry import Sample

START = datetime(2025, 6, 1, tzinfo=UTC)
ALL = range(86_400)


def sample(second: int, source: str, kind: str = "node", gpu: int | None = None, **values: float) -> Sample:
    """One report."""
    return Sample(
        time=START + timedelta(seconds=second),
        node="n1",
        gpu=gpu,
        type=kind,
        source=source,
        values=values or {"load_1m": 1.0},
    )


def samples(host_s: int, gpu_s: int, bmc_s: int, gpus_until: int = 86_400) -> list[Sample]:
    """A day of a host, its two GPUs and its BMC, each at its own pace."""
    found = [sample(second, "node_exporter") for second in ALL[::host_s]]
    found += [
        sample(second, "dcgm", "gpu", gpu, gpu_temp_c=50.0)
        for second in ALL[::gpu_s]
        for gpu in (0, 1)
        if second < gpus_until
    ]
    return found + [sample(second, "ipmi", "bmc", bmc_up=1.0) for second in ALL[::bmc_s]]


def told(given: list[Sample]) -> list[Event]:
    """The events of a stretch of history."""
    watch = DeviceWatch("test")
    return [*watch.follow(given), *watch.finish()]


@pytest.mark.parametrize(
    "paces", [(30, 300, 600), (900, 60, 300), (600, 600, 600), (15, 60, 3000), (60, 60, 43_200), (10, 3600, 60)]
)
def test_a_slower_exporter_is_not_silent_between_its_reports(paces: tuple[int, int, int]) -> None:
    """Whichever is the slower, at moments that coincide."""
    assert [(one.kind, one.source) for one in told(samples(*paces)) if one.severity != "info"] == []


@pytest.mark.parametrize("paces", [(30, 300, 600), (600, 600, 600), (30, 600, 60)])
def test_gpus_that_are_silent_for_longer_than_their_pace_are_told(paces: tuple[int, int, int]) -> None:
    """Once, within three of their own intervals; no GPU by itself is gone."""
    found = told(samples(*paces, gpus_until=43_200))
    (silent,) = [one for one in found if one.severity != "info"]
    assert (silent.kind, silent.source) == ("exporter_down", "dcgm")
    assert silent.time is not None
    last_s = 43_200 - paces[1]
    assert paces[1] <= (silent.time - START).total_seconds() - last_s <= 3 * paces[1]


def test_a_value_that_comes_less_often_than_its_device_is_not_lost_again_and_again() -> None:
    """It is told at most once, until its pace is known; one that stays away is told."""
    every = [
        sample(second, "dcgm", "gpu", 0, gpu_temp_c=50.0, **({"nvlink_crc": 0.0} if second % 300 == 0 else {}))
        for second in ALL[::60]
    ]
    assert sum(one.kind == "metric_missing" for one in told(every)) <= 1
    gone = [one for one in every if one.time < START + timedelta(hours=12) or "nvlink_crc" not in one.values]
    last = [one for one in told(gone) if one.kind == "metric_missing"][-1]
    assert last.time is not None
    assert timedelta(hours=12) <= last.time - START <= timedelta(hours=12, minutes=15)

"""Exporters that are scraped at moments of their own, as every Prometheus does: what is well gives no event."""

import random
from collections.abc import Iterator

import numpy as np
import pytest

from cli.archive.page_watch import ORIGIN
from cli.history.frames import HistoryNames, samples_of_table, table_of_window
from cli.history.server import SeriesSamples
from collectors.telemetry.device_watch import DeviceWatch
from store.records.event import Event
from store.records.hostlist import check_node_name

NOON_MS = 1_740_830_400_000
HOUR_MS = 3_600_000


def scraped(job: str, every_ms: int, offset_ms: int, until_ms: int, draw: random.Random) -> list[int]:
    """The moments of a target's scrapes: a little late, some of them missing one by one."""
    found = []
    for number, time_ms in enumerate(range(NOON_MS + offset_ms, until_ms, every_ms)):
        if number % 97 != 96 or job == "ipmi":
            found.append(time_ms + draw.randrange(40))
    return found


def telemetry(hours: int, gone_from_ms: int | None = None) -> Iterator[SeriesSamples]:
    """A node of four GPUs with all its exporters; GPU 2 is gone from a moment on."""
    draw = random.Random(7)  # the same each time
    until_ms = NOON_MS + hours * HOUR_MS
    dcgm = np.array(scraped("dcgm", 15_000, 9_700, until_ms, draw))
    node = np.array(scraped("node", 15_000, 3_200, until_ms, draw))
    ipmi = np.array(scraped("ipmi", 60_000, 47_000, until_ms, draw))
    for gpu in range(4):
        times = dcgm[dcgm < gone_from_ms] if gpu == 2 and gone_from_ms else dcgm
        labels = {"job": "dcgm", "instance": "gpu-017:9400", "Hostname": "gpu-017", "gpu": str(gpu)}
        for name, value in (("DCGM_FI_DEV_GPU_TEMP", 60.0), ("DCGM_FI_DEV_PCIE_REPLAY_COUNTER", 3.0)):
            yield SeriesSamples({"__name__": name, **labels}, times, np.full(len(times), value))
    labels = {"job": "node", "instance": "gpu-017:9100"}
    yield SeriesSamples({"__name__": "node_boot_time_seconds", **labels}, node, np.full(len(node), 1.74e9))
    port = {**labels, "device": "mlx5_0", "port": "1"}
    yield SeriesSamples({"__name__": "node_infiniband_link_downed_total", **port}, node, np.full(len(node), 1.0))
    labels = {"job": "ipmi", "instance": "gpu-017:9290", "collector": "ipmi"}
    yield SeriesSamples({"__name__": "ipmi_up", **labels}, ipmi, np.full(len(ipmi), 1.0))


def events_of(series: list[SeriesSamples], cut_h: int) -> list[Event]:
    """What the watch makes of it, in windows of some hours."""
    names, watch, events = HistoryNames(check_node_name), DeviceWatch(ORIGIN), list[Event]()
    last_ms = max(int(one.time_ms[-1]) for one in series)
    for since_ms in range(NOON_MS, last_ms + 1, cut_h * HOUR_MS):
        part = []
        for one in series:
            kept = (one.time_ms >= since_ms) & (one.time_ms < since_ms + cut_h * HOUR_MS)
            if kept.any():
                part.append(SeriesSamples(one.labels, one.time_ms[kept], one.values[kept].copy()))
        table, identities = table_of_window(part, names)
        events += [event for samples in samples_of_table(table, identities) for event in watch.follow(samples)]
        events += watch.finish()
        watch = DeviceWatch(ORIGIN, watch.state())
    return events


@pytest.mark.parametrize("cut_h", [1, 6])
def test_a_node_that_is_well_gives_no_event(cut_h: int) -> None:
    """Each exporter has its own seconds, and a scrape that fails now and then."""
    assert [(event.kind, event.message) for event in events_of(list(telemetry(6)), cut_h)] == []


@pytest.mark.parametrize("cut_h", [1, 6])
def test_a_gpu_that_vanishes_is_missed_within_a_minute(cut_h: int) -> None:
    """Once, at its exporter's second scrape without it, in any windows; other exporters' moments say nothing."""
    gone_ms = NOON_MS + 2 * HOUR_MS + 7_000
    [event] = events_of(list(telemetry(6, gone_ms)), cut_h)
    assert (event.kind, event.node, event.device.index) == ("gpu_missing", "gpu-017", 2)
    assert event.time is not None
    assert 0 < event.time.timestamp() * 1000 - gone_ms < 60_000

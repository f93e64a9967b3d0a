"""Samples to events."""

import json
from datetime import UTC, datetime, timedelta

import pytest

from collectors.gpu_watch import MISSES, GpuWatch
from store.event import Event
from store.telemetry import COUNTER_EVENTS, Sample

NOON = datetime(2025, 3, 1, 12, tzinfo=UTC)
URL = "http://127.0.0.1:9400/metrics"


class Page:
    """Pages scraped one after the other, fifteen seconds apart."""

    def __init__(self) -> None:
        self.watch = GpuWatch(URL)
        self.time = NOON

    def scrape(self, *samples: tuple[str, int, dict[str, float]], uuid: str | None = None) -> list[Event]:
        """One page: node, GPU and values of each sample."""
        self.time += timedelta(seconds=15)
        # Through JSON and back each time, as over a restart.
        self.watch = GpuWatch(URL, json.loads(json.dumps(self.watch.state())))
        made = [Sample(self.time, node, gpu, values, uuid, f"0000:{gpu:02x}:00.0") for node, gpu, values in samples]
        return self.watch.add(made, self.time)


def kinds(events: list[Event]) -> list[tuple[str | None, str]]:
    """Node and kind."""
    return [(event.node, event.kind) for event in events]


def test_a_counter_that_rises_is_an_event_with_the_increase() -> None:
    """The first value is where it stands; an unchanged one is no news."""
    page = Page()
    assert page.scrape(("n1", 3, {"ecc_sbe": 40})) == []
    assert page.scrape(("n1", 3, {"ecc_sbe": 40})) == []
    [event] = page.scrape(("n1", 3, {"ecc_sbe": 42}))
    assert (event.node, event.source, event.kind, event.severity, event.cause) == (
        "n1",
        "dcgm",
        "ecc_sbe",
        "info",
        "hardware",
    )
    assert event.attributes == {"count": 2, "counter": "ecc_sbe"}
    assert event.time == page.time
    assert (event.device.type, event.device.index, event.device.pci) == ("gpu", 3, "0000:03:00.0")
    assert event.id is not None


@pytest.mark.parametrize("name", COUNTER_EVENTS)
def test_every_counter_makes_its_kind_of_event(name: str) -> None:
    """As the table says."""
    page = Page()
    page.scrape(("n1", 0, {name: 0}))
    [event] = page.scrape(("n1", 0, {name: 1}))
    assert (event.kind, event.severity, event.cause) == COUNTER_EVENTS[name]


def test_a_counter_that_fell_began_anew() -> None:
    """What it shows is the increase since the driver was loaded; nothing where it shows nothing."""
    page = Page()
    page.scrape(("n1", 0, {"pcie_replay": 100}))
    assert page.scrape(("n1", 0, {"pcie_replay": 0})) == []
    page.scrape(("n1", 0, {"pcie_replay": 9}))
    [event] = page.scrape(("n1", 0, {"pcie_replay": 4}))
    assert event.attributes["count"] == 4


def test_a_counter_that_was_blank_meanwhile_keeps_its_place() -> None:
    """Missing is not zero."""
    page = Page()
    page.scrape(("n1", 0, {"ecc_dbe": 1}))
    assert page.scrape(("n1", 0, {})) == []
    assert [event.attributes["count"] for event in page.scrape(("n1", 0, {"ecc_dbe": 3}))] == [2]


def test_the_last_xid_of_the_exporter_is_no_event() -> None:
    """The kernel log is the witness."""
    page = Page()
    page.scrape(("n1", 0, {"xid_last": 0}))
    assert page.scrape(("n1", 0, {"xid_last": 79})) == []


def test_a_replaced_gpu_begins_anew() -> None:
    """Its counters are not the old one's."""
    page = Page()
    page.scrape(("n1", 0, {"ecc_sbe": 5}), uuid="GPU-old")
    assert page.scrape(("n1", 0, {"ecc_sbe": 900}), uuid="GPU-new") == []
    assert len(page.scrape(("n1", 0, {"ecc_sbe": 901}), uuid="GPU-new")) == 1


def test_a_gpu_that_vanishes_is_missing_once_and_returns_once() -> None:
    """One gap is no loss; the counters go on where they were."""
    page = Page()
    both = (("n1", 0, {}), ("n1", 1, {"ecc_sbe": 1.0}))
    page.scrape(*both)
    assert page.scrape(both[0]) == []
    assert page.scrape(*both) == []
    found = [event for _ in range(MISSES + 3) for event in page.scrape(both[0])]
    assert kinds(found) == [("n1", "gpu_missing")]
    assert (found[0].severity, found[0].cause, found[0].device.index) == ("warning", "unknown", 1)
    assert kinds(page.scrape(both[0], ("n1", 1, {"ecc_sbe": 2.0}))) == [("n1", "gpu_returned"), ("n1", "ecc_sbe")]


def test_a_page_without_any_gpu_means_that_they_are_missing() -> None:
    """The exporter answers, and sees none."""
    page = Page()
    page.scrape(("n1", 0, {}), ("n1", 1, {}))
    found = page.scrape() + page.scrape() + page.scrape()
    assert kinds(found) == [("n1", "gpu_missing"), ("n1", "gpu_missing")]
    assert found[0].time == page.time - timedelta(seconds=15)


def test_a_node_gone_from_a_page_of_many_is_one_event() -> None:
    """Its exporter is down: of its GPUs nothing is known, so none is missing."""
    page = Page()
    page.scrape(("n1", 0, {}), ("n2", 0, {"ecc_sbe": 1.0}), ("n2", 1, {}))
    found = [event for _ in range(5) for event in page.scrape(("n1", 0, {}))]
    assert kinds(found) == [("n2", "exporter_down")]
    back = page.scrape(("n1", 0, {}), ("n2", 0, {"ecc_sbe": 1.0}))
    assert kinds(back) == [("n2", "exporter_up")]
    assert kinds(page.scrape(("n1", 0, {}), ("n2", 0, {}))) == [("n2", "gpu_missing")]


def test_one_page_without_a_node_is_no_event() -> None:
    """A gap of the collector in between."""
    page = Page()
    page.scrape(("n1", 0, {}), ("n2", 0, {}))
    assert page.scrape(("n1", 0, {})) == []
    assert page.scrape(("n1", 0, {}), ("n2", 0, {})) == []
    assert page.scrape(("n1", 0, {})) == []


def test_equal_increases_at_other_moments_are_other_events() -> None:
    """Ids differ by time, and are the same for the same page."""
    page = Page()
    page.scrape(("n1", 0, {"ecc_sbe": 1}))
    first = page.scrape(("n1", 0, {"ecc_sbe": 2}))
    second = page.scrape(("n1", 0, {"ecc_sbe": 3}))
    assert first[0].id != second[0].id

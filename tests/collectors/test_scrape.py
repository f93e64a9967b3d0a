"""Scraping a real HTTP page."""

import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from collectors.collector import CollectorTurn, SourceError, SourceSettings
from collectors.sources.scrape import STALE_S, ScrapeCollector, StalePage
from store.records.telemetry import MAX_DEVICES, Sample

FIXTURES = Path(__file__).parents[2] / "fixtures"

PAGE = """# HELP DCGM_FI_DEV_GPU_TEMP GPU temperature (in C).
# TYPE DCGM_FI_DEV_GPU_TEMP gauge
DCGM_FI_DEV_GPU_TEMP{{gpu="0",UUID="GPU-a",pci_bus_id="00000000:0F:00.0",Hostname="gpu-017"}} 61{time}
DCGM_FI_DEV_ECC_SBE_VOL_TOTAL{{gpu="0",UUID="GPU-a",pci_bus_id="00000000:0F:00.0",Hostname="gpu-017"}} {sbe}{time}
"""
AT_FOUR = 1740801600000  # 2025-03-01T04:00:00Z


class Exporter:
    """A page, or a status instead."""

    def __init__(self) -> None:
        self.page = PAGE.format(sbe=0, time="")
        self.status = 200
        exporter = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.send_response(exporter.status)
                self.end_headers()
                self.wfile.write(exporter.page.encode())

            def log_message(self, *args: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/metrics"
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()

    def close(self) -> None:
        """Go away."""
        self.server.shutdown()
        self.server.server_close()


@pytest.fixture
def exporter() -> Iterator[Exporter]:
    """One that answers."""
    exporter = Exporter()
    yield exporter
    exporter.close()


def opened(exporter: Exporter, options: str = "") -> ScrapeCollector:
    """A collector that scrapes at every turn."""
    settings = SourceSettings(node="this-node", scrape_interval_s=0.01, rollup_interval_s=0.0)
    collector = ScrapeCollector(exporter.url + options, settings)
    collector.open(None)
    return collector


def kinds(collected: CollectorTurn) -> list[str]:
    """What happened."""
    return [event.kind for event in collected.events]


def test_a_counter_that_rises_between_scrapes_is_an_event(exporter: Exporter) -> None:
    """Over a restart too: the position holds where the counters stood."""
    collector = opened(exporter)
    first = collector.collect(1)
    assert (first.events, first.lines) == ((), 1)
    exporter.page = PAGE.format(sbe=3, time="")
    again = opened(exporter)
    again.open(first.position)
    [event] = again.collect(1).events
    assert (event.kind, event.node, event.attributes["count"]) == ("ecc_sbe", "gpu-017", 3)


def test_rollups_follow_the_samples_own_time(exporter: Exporter) -> None:
    """The hour ends with the first sample of the next one; the open hour is sent meanwhile."""
    collector = opened(exporter)
    exporter.page = PAGE.format(sbe=0, time=f" {AT_FOUR}")
    collector.collect(1)
    partial = [rollup for _ in range(3) for rollup in collector.collect(1).rollups]
    assert partial[-1].node == "gpu-017"
    assert partial[-1].time.timestamp() * 1000 == AT_FOUR
    exporter.page = PAGE.format(sbe=0, time=f" {AT_FOUR + 3_600_000}")
    finished = collector.collect(1).rollups
    assert finished[0].time.timestamp() * 1000 == AT_FOUR
    assert finished[0].samples == 4


def test_a_sample_from_a_wrong_clock_is_left_out(exporter: Exporter) -> None:
    """The year 2999 would end every hour until then."""
    collector = opened(exporter)
    exporter.page = PAGE.format(sbe=0, time=" 32472144000000")
    collected = collector.collect(1)
    assert (collected.lines, collected.errors, collected.rollups) == (1, 1, ())


def test_an_exporter_that_fails_is_an_event_once_and_its_return_too(exporter: Exporter) -> None:
    """Its node's name is the sidecar's; the GPUs are not called missing."""
    collector = opened(exporter)
    collector.collect(1)
    exporter.status = 500
    down = collector.collect(1)
    assert kinds(down) == ["exporter_down"]
    assert (down.events[0].node, down.events[0].attributes["url"]) == ("this-node", exporter.url)
    assert kinds(collector.collect(1)) == []
    restarted = opened(exporter)
    restarted.open(down.position)
    assert kinds(restarted.collect(1)) == []
    exporter.status = 200
    assert kinds(restarted.collect(1)) == ["exporter_up"]
    assert kinds(restarted.collect(1)) == []


def test_an_exporter_that_is_not_there_is_an_event_and_no_crash() -> None:
    """A refused connection."""
    collector = ScrapeCollector("http://127.0.0.1:1/metrics", SourceSettings(node="n1", scrape_interval_s=0.01))
    collector.open(None)
    collected = collector.collect(1)
    assert kinds(collected) == ["exporter_down"]
    assert collected.errors == 1
    collector.close()


@pytest.mark.parametrize("page", ["", "<html>hello</html>", "\x00\xff", 'DCGM_FI_DEV_GPU_TEMP{gpu="0"} 6'])
def test_a_strange_page_stops_nothing(exporter: Exporter, page: str) -> None:
    """Empty, no metrics, binary, without labels."""
    exporter.page = page
    collector = opened(exporter)
    assert kinds(collector.collect(1)) == []
    exporter.page = PAGE.format(sbe=0, time="")
    assert collector.collect(1).lines == 1


def test_a_scrape_waits_for_its_time(exporter: Exporter) -> None:
    """A turn before it is due gives nothing, within its wait."""
    collector = ScrapeCollector(exporter.url, SourceSettings(node="n1", scrape_interval_s=60))
    collector.open(None)
    assert collector.collect(0.05).lines == 1
    assert collector.collect(0.05) == CollectorTurn()


@pytest.mark.parametrize("rest", ["", "127.0.0.1:9400", "file:///etc/passwd", "ftp://x/y"])
def test_only_http_addresses_are_scraped(rest: str) -> None:
    """A file is no exporter."""
    with pytest.raises(SourceError, match=r"scrape:http://127\.0\.0\.1:9400/metrics"):
        ScrapeCollector(rest, SourceSettings(node="n1"))


@pytest.mark.parametrize(
    ("page", "source", "device", "measure"),
    [
        ("dcgm/page.txt", "dcgm", "gpu:", "gpu_temp_c"),
        ("npu/sample.prom", "npu", "npu:", "core_clock_mhz"),
        ("amd/page.prom", "amd", "gpu:", "gpu_temp_c"),
        ("cambricon/two_scrapes.prom", "cambricon", "mlu:", "gpu_temp_c"),
        ("node_exporter/page.prom", "node_exporter", "nic:", "link_downed"),
    ],
)
def test_whose_page_it_is_its_content_tells(
    exporter: Exporter, page: str, source: str, device: str, measure: str
) -> None:
    """Every device's measures are rolled up; the source is named when the exporter goes."""
    exporter.page = (FIXTURES / page).read_text()
    collector = opened(exporter)
    rollups = [rollup for _ in range(3) for rollup in collector.collect(1).rollups]
    found = {name: measures for rollup in rollups for name, measures in (rollup.devices or {}).items()}
    assert any(name.startswith(device) and measure in measures for name, measures in found.items()), found
    assert (max(rollup.gpus_seen for rollup in rollups) > 0) == (source != "node_exporter")
    exporter.status = 500
    assert [(event.kind, event.source) for event in collector.collect(1).events] == [("exporter_down", source)]


def test_metrics_of_nobody_we_know_are_kept_where_the_spec_names_them(exporter: Exporter) -> None:
    """The rest of the page is not; the host is never told of the option."""
    labels = '{loop="2",rack="r7"}'
    exporter.page = f"site_pump_bar{labels} 3.5\nsite_pump_rpm{labels} 900\nother 1\nsite_pump_bar{{ 1\n"
    assert opened(exporter).collect(1).lines == 0
    collector = opened(exporter, "#keep=site_pump_.*&keep=no_such")
    rollups = [rollup for _ in range(3) for rollup in collector.collect(1).rollups]
    assert rollups[-1].devices is not None
    assert list(rollups[-1].devices) == ["series:2,r7"]
    assert rollups[-1].devices["series:2,r7"]["site_pump_bar"][:2] == (3.5, 3.5)
    assert (rollups[-1].samples, rollups[-1].gpus_seen) == (0, 0)


@pytest.mark.parametrize("options", ["#keep=(", "#keep=", "#hold=x", "#keep"])
def test_an_option_that_cannot_be_is_refused(options: str) -> None:
    """With the remedy."""
    with pytest.raises(SourceError, match="keep="):
        ScrapeCollector(f"http://127.0.0.1:9/metrics{options}", SourceSettings(node="n1"))


def test_more_devices_than_a_roll_up_holds_are_said_once(exporter: Exporter) -> None:
    """And the first ones are kept; a restart does not say it again."""
    exporter.page = "".join(
        f'DCGM_FI_DEV_GPU_TEMP{{gpu="{number}",Hostname="gpu-017"}} 61\n' for number in range(MAX_DEVICES + 2)
    )
    collector = opened(exporter)
    first = collector.collect(1)
    assert kinds(first) == ["measures_left_out"]
    assert first.events[0].attributes["count"] == 2
    again = opened(exporter)
    again.open(first.position)
    assert kinds(again.collect(1)) == []


def test_a_page_whose_times_stand_still_is_told_once() -> None:
    """Not one that bears none: its samples are of the moment of the scrape."""
    still = StalePage()
    start = datetime(2025, 3, 1, 4, tzinfo=UTC)
    page = [Sample(start, "n1", 0, {})]
    told = []
    for minute in range(12):
        still = StalePage(still.state())
        told += [(minute, kind) for kind, _words in still.look(page, start + timedelta(minutes=minute))]
    assert told == [(STALE_S / 60, "exporter_stale")]
    assert still.look([], start + timedelta(minutes=13)) == []
    later = start + timedelta(minutes=14)
    assert [kind for kind, _words in still.look([Sample(later, "n1", 0, {})], later)] == ["exporter_up"]
    assert still.look([Sample(later + timedelta(hours=1), "n1", 0, {})], later + timedelta(hours=1)) == []

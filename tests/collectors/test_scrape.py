"""Scraping a real HTTP page."""

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from collectors.collector import Collected, SourceError, SourceSettings
from collectors.scrape import ScrapeCollector

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


def opened(exporter: Exporter, rollup_interval_s: float = 0.0) -> ScrapeCollector:
    """A collector that scrapes at every turn."""
    settings = SourceSettings(node="this-node", scrape_interval_s=0.01, rollup_interval_s=rollup_interval_s)
    collector = ScrapeCollector(exporter.url, settings)
    collector.open(None)
    return collector


def kinds(collected: Collected) -> list[str]:
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
    assert collector.collect(0.05) == Collected()


@pytest.mark.parametrize("rest", ["", "127.0.0.1:9400", "file:///etc/passwd", "ftp://x/y"])
def test_only_http_addresses_are_scraped(rest: str) -> None:
    """A file is no exporter."""
    with pytest.raises(SourceError, match=r"scrape:http://127\.0\.0\.1:9400/metrics"):
        ScrapeCollector(rest, SourceSettings(node="n1"))

"""The sidecar: sources in, spool in the middle, server out.

settings = SidecarSettings(server="http://127.0.0.1:10870", node="gpu-017", sources=("kmsg",), spool=Path("spool"))
    run(settings, stop)
"""

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, tzinfo
from functools import partial
from pathlib import Path

from collectors.collector import SourceSettings
from collectors.metrics import MetricsServer, SidecarMetrics
from collectors.registry import make_collector
from collectors.rejected import RejectedFile
from collectors.runner import Runner, stalled
from collectors.shipper import Shipper
from collectors.spool import QUEUES, Spool
from collectors.transport import Transport
from parsers.rules import RulesSource
from parsers.rules_file import RulesFile

_LOG = logging.getLogger("foreshock.sidecar")
DEFAULT_PORT = 10871
_SAVE_POSITIONS_S = 10.0
_JOIN_S = 2.0
_STALLED_S = 120.0
_FLUSH_S = 2.0
_REQUEST_TIMEOUT_S = 10.0


@dataclass(frozen=True, slots=True)
class SidecarSettings:
    """Everything that a sidecar is told. Times in seconds, sizes in bytes; `port` 0 serves no metrics."""

    server: str
    node: str
    sources: tuple[str, ...]
    spool: Path
    token_file: Path | None = None
    listen: str = "127.0.0.1"
    port: int = DEFAULT_PORT
    zone: tzinfo = field(default=UTC)
    scrape_interval_s: float = 15.0
    rollup_interval_s: float = 300.0
    spool_max_bytes: int = 256 * 1024 * 1024
    linger_s: float = 0.05
    rules: Path | None = None

    def for_sources(self, rules: RulesSource | None) -> SourceSettings:
        """What the sources must know of it."""
        return SourceSettings(
            node=self.node,
            zone=self.zone,
            scrape_interval_s=self.scrape_interval_s,
            rollup_interval_s=self.rollup_interval_s,
            rules=rules,
        )


def run(settings: SidecarSettings, stop: threading.Event, alive: Callable[[], None] = lambda: None) -> None:
    """Run until the stop event, then bring to the server what is there, within a few seconds.

    `alive` is called about every second while the threads work (a service manager's watchdog).

    Raises:
        SourceError: a SPEC is not understood.
        RulesError: the site's rules cannot be read.
        SpoolBusyError: another sidecar uses the spool.
        OSError: the spool cannot be written, or the port is taken.
    """
    metrics = SidecarMetrics()
    rules = None if settings.rules is None else RulesFile(settings.rules)
    if rules is not None:
        metrics.observe("rules_errors", "Changes of the rules file that were refused.", lambda: float(rules.errors))
    told = settings.for_sources(None if rules is None else rules.current)
    collectors = [make_collector(spec, told) for spec in dict.fromkeys(settings.sources)]
    with ExitStack() as stack:
        spool = Spool(settings.spool, settings.spool_max_bytes)
        stack.callback(spool.close)
        _observe_spool(metrics, spool)
        if settings.port:
            server = MetricsServer(metrics, settings.listen, settings.port)
            stack.callback(server.close)
        transport = stack.enter_context(Transport(settings.server, settings.token_file, _REQUEST_TIMEOUT_S))
        shipper = Shipper(spool, transport, RejectedFile(settings.spool / "rejected.jsonl"), metrics, settings.linger_s)
        spool.news.set()  # what the last run left
        runners = [Runner(collector, spool, metrics, stop) for collector in collectors]
        with _shipping(shipper, stop) as shipping:
            for runner in runners:
                runner.start()
            _LOG.info("watching %s as %s for %s", ", ".join(settings.sources), settings.node, settings.server)
            _watch(spool, stop, shipping, runners, alive)
            for runner in runners:
                runner.join(_JOIN_S)
        if shipping.is_alive() or not shipper.flush(_FLUSH_S):
            _LOG.info("the rest stays in the spool for the next start")


@contextmanager
def _shipping(shipper: Shipper, stop: threading.Event) -> Iterator[threading.Thread]:
    thread = threading.Thread(target=shipper.run, args=(stop,), name="shipper", daemon=True)
    thread.start()
    yield thread
    thread.join(_JOIN_S)


def _watch(
    spool: Spool, stop: threading.Event, shipping: threading.Thread, runners: list[Runner], alive: Callable[[], None]
) -> None:
    """Until the stop event: save positions now and then, and tell a watchdog as long as every thread moves."""
    saved = time.monotonic()
    while not stop.wait(1.0):
        now = time.monotonic()
        if shipping.is_alive() and not any(stalled(runner, _STALLED_S, now) for runner in runners):
            alive()
        if now - saved >= _SAVE_POSITIONS_S:
            saved = now
            try:
                spool.save_positions()
            except OSError as error:
                _LOG.error("cannot save positions: %s", error)


def _observe_spool(metrics: SidecarMetrics, spool: Spool) -> None:
    for queue in QUEUES:
        metrics.observe(
            f"spool_{queue}_bytes",
            f"Bytes of {queue} that wait for the server.",
            partial(spool.backlog_bytes, queue),
        )
    metrics.observe("spool_damaged_bytes", "Bytes of the spool made unreadable.", lambda: float(spool.damage_bytes()))
    metrics.observe("spool_dropped_rollups", "Roll-ups dropped for room.", lambda: float(spool.dropped_rollups))

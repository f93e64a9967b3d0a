"""The sidecar: sources in, spool in the middle, server out.

settings = SidecarSettings(server="http://127.0.0.1:10870", node="gpu-017", sources=("kmsg",), spool=Path("spool"))
    run(settings, stop)
"""

import ctypes
import logging
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from datetime import UTC, tzinfo
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import get_args

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from collectors.agent.configuration import DEFAULT_PORT, Configuration
from collectors.agent.supervisor import Sources, SourceSpec
from collectors.collector import SourceSettings
from collectors.metrics import SidecarMetrics, TextFile
from collectors.ship.enrollment import Enrollment
from collectors.ship.heartbeat import HeartbeatSender, report
from collectors.ship.shipper import RejectedFile, Shipper
from collectors.ship.transport import Compress, ServerAccess, Servers
from collectors.spool.spool import Spool
from collectors.spool.state import QUEUES, Reason, SpoolFullError
from parsers.site_rules.rules import RulesFile, RulesSource

# Telling systemd that the sidecar is ready and alive (sd_notify's datagrams; nothing without a socket).


class Notifier:
    """The service manager's socket, where there is one. Source: systemd's sd_notify(3)."""

    def __init__(self, address: str | None) -> None:
        """`address` is NOTIFY_SOCKET: a path, or a name after @ in the abstract namespace."""
        self._address = "\0" + address[1:] if address and address.startswith("@") else address
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) if address else None
        self._ready = False

    def __enter__(self) -> "Notifier":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._send("STOPPING=1")
        if self._socket is not None:
            self._socket.close()

    def alive(self) -> None:
        """Ready, the first time; alive, each time."""
        self._send("WATCHDOG=1" if self._ready else "READY=1\nWATCHDOG=1")
        self._ready = True

    def reloading(self, busy: bool) -> None:
        """The configuration is being read again; it was. Source: sd_notify(3) on RELOADING=1."""
        now_us = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
        self._send(f"RELOADING=1\nMONOTONIC_USEC={now_us}" if busy else "READY=1")

    def _send(self, text: str) -> None:
        if self._socket is not None and self._address:
            try:
                self._socket.sendto(text.encode(), self._address)
            except OSError:  # a manager that is gone is no reason to stop watching
                return


# Every setting of a sidecar.

REQUEST_TIMEOUT_S = 10.0


@dataclass(frozen=True, slots=True)
class SidecarSettings:
    """Times in seconds, sizes in bytes; `port` 0 serves no metrics, `spool_fsync_s` 0 syncs each append."""

    server: str | tuple[str, ...]
    node: str
    sources: tuple[str | SourceSpec, ...]
    spool: Path
    token_file: Path | None = None
    join_token_file: Path | None = None  # the node gets a token of its own with it, where it has none
    ca_file: Path | None = None
    cert_file: Path | None = None
    key_file: Path | None = None
    insecure_http: bool = False
    compress: Compress = "zstd"
    listen: str = "127.0.0.1"
    port: int = DEFAULT_PORT
    textfile: Path | None = None
    zone: tzinfo = field(default=UTC)
    scrape_interval_s: float = 15.0
    rollup_interval_s: float = 300.0
    heartbeat_interval_s: float = 60.0
    turn_limit_s: float = 60.0
    spool_max_bytes: int = 256 * 1024 * 1024
    spool_fsync_s: float = 0.0
    linger_s: float = 0.05
    rules: Path | None = None
    log_level: str = "info"

    @property
    def servers(self) -> tuple[str, ...]:
        """The addresses of the server."""
        return (self.server,) if isinstance(self.server, str) else self.server

    @property
    def own_token_file(self) -> Path | None:
        """Where the token lies that it sends, or will lie once the node is enrolled."""
        if self.token_file is None and self.join_token_file is not None:
            return self.spool / "token"
        return self.token_file

    @property
    def access(self) -> ServerAccess:
        """How they are talked to."""
        files = (self.ca_file, self.cert_file, self.key_file)
        return ServerAccess(self.own_token_file, REQUEST_TIMEOUT_S, *files, self.compress, self.insecure_http)

    def list_sources(self) -> tuple[SourceSpec, ...]:
        """What is read."""
        return tuple(SourceSpec.of(source) if isinstance(source, str) else source for source in self.sources)

    def for_sources(self, rules: RulesSource | None) -> SourceSettings:
        """What the sources must know of it."""
        return SourceSettings(
            node=self.node,
            zone=self.zone,
            scrape_interval_s=self.scrape_interval_s,
            rollup_interval_s=self.rollup_interval_s,
            rules=rules,
        )


# The spool's figures, read when somebody asks.

_NAME = "foreshock_sidecar_spool"


class SpoolFigures(Collector):
    """One spool's."""

    def __init__(self, spool: Spool) -> None:
        self._spool = spool

    def collect(self) -> Iterator[Metric]:
        """Sizes, age and losses; a loss that has not happened is 0, so that its first time is an increase."""
        for queue in QUEUES:
            waits = self._spool.backlog_bytes(queue)
            yield GaugeMetricFamily(f"{_NAME}_{queue}_bytes", f"Bytes of {queue} that wait for the server.", waits)
        yield GaugeMetricFamily(f"{_NAME}_limit_bytes", "Bytes that may wait in all.", self._spool.max_bytes)
        age = self._spool.oldest_s()
        yield GaugeMetricFamily(f"{_NAME}_oldest_seconds", "How long the oldest thing waits for the server.", age)
        damaged = self._spool.damage_bytes()
        yield GaugeMetricFamily(f"{_NAME}_damaged_bytes", "Bytes of the spool made unreadable.", damaged)
        lost = self._spool.lost()
        family = CounterMetricFamily(
            f"{_NAME}_lost",
            "Given up for room (items), unreadable (damaged: bytes) or gone (missing: segments).",
            labels=("queue", "reason"),
        )
        for queue in QUEUES:
            for reason in get_args(Reason):
                family.add_metric((queue, reason), lost[queue, reason])
        yield family

    def describe(self) -> list[Metric]:
        """Nothing to ask the spool for when it is registered."""
        return []


__all__ = ["DEFAULT_PORT", "SidecarSettings", "run"]

_LOG = logging.getLogger("foreshock.sidecar")
_SAVE_POSITIONS_S = 30.0
_TEXTFILE_S = 15.0
_REPORTED_S = 60.0
_LOOK_S = 5.0
_M_ARENA_MAX = -8  # glibc, malloc.h
_SYNC_S = 1.0
_JOIN_S = 2.0
_FLUSH_S = 2.0
# What is taken up at the start alone.
_NEEDS_RESTART = ("node", "spool", "listen", "port", "rules", "join_token_file")


def run(
    settings: SidecarSettings,
    stop: threading.Event,
    alive: Callable[[], None] = lambda: None,
    configuration: Configuration[SidecarSettings] | None = None,
) -> None:
    """Run until the stop event, then bring to the server what is there, within a few seconds.

    With a configuration, whoever sets the stop event sets its `requested` after it: that ends the wait.
    `alive` is called every few seconds while it works (a service manager's watchdog).

    Raises:
        SourceError: a SPEC is not understood.
        RulesError: the site's rules cannot be read.
        SpoolBusyError: another sidecar uses the spool.
        OSError: the spool cannot be written, or the port is taken.
    """
    _share_memory()
    with ExitStack() as stack:
        sidecar = Sidecar(settings, stack)
        shipping = _thread(sidecar.shipper.run, stop, "shipper")
        beating = _thread(sidecar.heart.run, stop, "heartbeat")
        sidecar.enrol(stop)
        sidecar.start()
        wait_s = _SYNC_S  # that it is ready is said soon
        attention = stop if configuration is None else configuration.requested
        while True:
            attention.wait(wait_s)
            if stop.is_set():
                break
            wait_s = sidecar.look_in_s
            sidecar.look()
            if configuration is not None:
                configuration.look(sidecar.metrics, sidecar.apply)
            if shipping.is_alive():
                alive()
        sidecar.sources.stop()
        sidecar.spool.news.set()  # the shipper sees the stop
        shipping.join(_JOIN_S)
        beating.join(_JOIN_S / 10)
        if shipping.is_alive() or not sidecar.shipper.flush(_FLUSH_S):
            _LOG.info("the rest stays in the spool for the next start")
        if not shipping.is_alive():
            sidecar.shipper.close()


def _share_memory() -> None:
    """One pool of memory for all threads: glibc gives each its own, and here only one at a time asks for any."""
    if hasattr(libc := ctypes.CDLL(None), "mallopt"):
        libc.mallopt(_M_ARENA_MAX, 1)


def _thread(work: Callable[[threading.Event], None], stop: threading.Event, name: str) -> threading.Thread:
    thread = threading.Thread(target=work, args=(stop,), name=name, daemon=True)
    thread.start()
    return thread


class Sidecar:
    """The parts, and the settings in force."""

    def __init__(self, settings: SidecarSettings, stack: ExitStack) -> None:
        """Make every part; what must be let go of in the end is put on the stack."""
        self._settings = settings
        self.metrics = SidecarMetrics()
        rules = None if settings.rules is None else RulesFile(settings.rules)
        self._rules = None if rules is None else rules.current
        if rules is not None:
            text = "Changes of the rules file that were refused."
            self.metrics.observe("rules_errors", text, lambda: float(rules.errors))
        logging.getLogger("foreshock.sidecar").setLevel(settings.log_level.upper())
        self.spool = Spool(settings.spool, settings.spool_max_bytes, settings.node, settings.spool_fsync_s)
        stack.callback(self.spool.close)
        self.metrics.registry.register(SpoolFigures(self.spool))
        self.sources = Sources(self.spool, self.metrics, settings.turn_limit_s)
        self.sources.check(settings.list_sources(), settings.for_sources(self._rules))
        if settings.port:
            from collectors.agent.metrics_server import MetricsServer  # where nobody may ask, it costs nothing

            stack.callback(MetricsServer(self.metrics, settings.listen, settings.port).close)
        rejected = RejectedFile(settings.spool / "rejected.jsonl")
        self.shipper = Shipper(self.spool, self._servers(settings), rejected, self.metrics, settings.linger_s)
        say = partial(report, settings.node, self.metrics, self.spool)
        self.heart = HeartbeatSender(say, self._servers(settings), settings.heartbeat_interval_s)
        self.heart.beats = self.metrics.beaten
        self._saved = self._wrote = time.monotonic()
        self._reported = float("-inf")
        self._textfile_failed = False
        stack.callback(self._remove_textfile)

    def enrol(self, stop: threading.Event) -> None:
        """Where the node has no token yet, get it one with the join token, beside everything else."""
        settings, token = self._settings, self._settings.own_token_file
        if settings.join_token_file is None or token is None:
            return
        access = replace(settings.access, token_file=settings.join_token_file)
        servers = [url for url in settings.servers if url.startswith("http")]
        joining = Enrollment(settings.node, settings.join_token_file, token, Servers(servers, settings.node, access))
        joining.enrolled = self._use_token
        _thread(joining.run, stop, "enrollment")

    def _use_token(self) -> None:
        """Send at once what waited for the token."""
        self.shipper.use(self._servers(self._settings))
        self.heart.use(self._servers(self._settings))

    def start(self) -> None:
        """Begin to read."""
        settings = self._settings
        self.spool.news.set()  # what the last run left
        self.sources.change(settings.list_sources(), settings.for_sources(self._rules))
        names = ", ".join(source.spec for source in settings.list_sources())
        _LOG.info("watching %s as %s for %s", names, settings.node, ", ".join(settings.servers))

    def apply(self, wanted: SidecarSettings) -> None:
        """Take up changed settings; sources that are as they were go on untouched.

        Raises:
            SourceError: a SPEC is not understood; nothing was changed.
        """
        before = self._settings
        for name in _NEEDS_RESTART:
            if getattr(wanted, name) != getattr(before, name):
                _LOG.warning("%s has changed: that is taken up at the next start of the sidecar", name)
        settings = replace(wanted, **{name: getattr(before, name) for name in _NEEDS_RESTART})
        self.sources.change(settings.list_sources(), settings.for_sources(self._rules))
        self._settings = settings
        logging.getLogger("foreshock.sidecar").setLevel(settings.log_level.upper())
        self.sources.turn_limit_s = settings.turn_limit_s
        self.spool.max_bytes = settings.spool_max_bytes
        self.spool.fsync_interval_s = settings.spool_fsync_s
        self.shipper.linger_s = settings.linger_s
        self.heart.interval_s = settings.heartbeat_interval_s
        if (settings.servers, settings.access) != (before.servers, before.access):
            self.shipper.use(self._servers(settings))
            self.heart.use(self._servers(settings))
        if settings.textfile != before.textfile and before.textfile is not None:
            TextFile(before.textfile).remove()

    @property
    def look_in_s(self) -> float:
        """Seconds to the next look; appends that are not synced at once are synced by it."""
        return _SYNC_S if self._settings.spool_fsync_s else _LOOK_S

    def look(self) -> None:
        """At an interval: sources that hang, what need not wait for an append, the text file."""
        self.sources.look()
        now = time.monotonic()
        try:
            self.spool.keep_up()
            if now - self._saved >= _SAVE_POSITIONS_S:
                self._saved = now
                self.spool.save_positions()
        except SpoolFullError:
            pass  # a loss is reported when there is room for it
        except OSError as error:
            if now - self._reported >= _REPORTED_S:  # a disk that stays full is no news each second
                self._reported = now
                _LOG.error("the spool cannot be written: %s; sources wait until it can", error)
        if self._settings.textfile is not None and now - self._wrote >= _TEXTFILE_S:
            self._wrote = now
            self._write_textfile(self._settings.textfile)

    def _write_textfile(self, path: Path) -> None:
        try:
            TextFile(path).write(self.metrics)
        except OSError as error:
            if not self._textfile_failed:
                _LOG.error("cannot write the text file %s: %s; let the sidecar's user write its folder", path, error)
            self._textfile_failed = True
        else:
            self._textfile_failed = False

    def _remove_textfile(self) -> None:
        if self._settings.textfile is not None:
            TextFile(self._settings.textfile).remove()

    @staticmethod
    def _servers(settings: SidecarSettings) -> Servers:
        return Servers(settings.servers, settings.node, settings.access)

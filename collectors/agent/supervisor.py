"""Which sources are read: one thread each, replaced where a turn hangs, changed while the others go on.

sources = Sources(spool, metrics, turn_limit_s=60.0)
sources.change([Source("kmsg"), Source("scrape:http://...", interval_s=30.0)], settings)
sources.look()          # at an interval: a source that hangs is opened anew beside the thread that hangs
sources.stop()
"""

import logging
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, Protocol, TypeAlias
from urllib.parse import urlsplit

from collectors.collector import Collector, CollectorTurn, Position, SourceError, SourceSettings
from collectors.metrics import SidecarMetrics, SourceMetrics
from collectors.registry import make_collector
from collectors.ship.transport import Backoff
from collectors.spool.state import SpoolFullError
from collectors.trust import SourceTrust, check_has_trust, checked_trust, gives_nothing, trust_of
from store.records.event import Event
from store.records.event_sources import FLEET_SOURCES, WORK, Trust
from wire.access.address import is_loopback

# Of which node a source speaks. A local one speaks of this host, whatever name stands in its lines: a journal bears the
# host's own name, an exporter its container's, and neither need be the name that `--node` says.

Hosts: TypeAlias = Literal["one", "many"]
_LOCAL = frozenset({"kmsg", "journal", "infiniband", "nvml", "exec", "file"})
# What speaks of the fabric, of a scheduler's nodes or of a run's ranks names others on purpose.
_OF_OTHERS = FLEET_SOURCES | WORK | {"nvsentinel"}


def hosts_of(spec: str) -> Hosts:
    """Whether a SPEC's source is of this host alone, where nobody says so; an exporter is by its address."""
    scheme, _colon, rest = spec.partition(":")
    if scheme == "scrape":
        return "one" if is_loopback(urlsplit(rest).hostname or "") else "many"
    if scheme == "syslog":  # with TLS each sender has a name of its own
        return "many" if "#" in rest else "one"
    return "one" if scheme in _LOCAL else "many"


def of_node(collected: CollectorTurn, node: str) -> CollectorTurn:
    """What a source of one host gave, as of that node. An event keeps its id, which the server binds to the node."""
    if not collected.events and not collected.rollups:
        return collected
    events = tuple(_of_node(event, node) for event in collected.events)
    rollups = tuple(each if each.node == node else replace(each, node=node) for each in collected.rollups)
    return replace(collected, events=events, rollups=rollups)


def _of_node(event: Event, node: str) -> Event:
    if event.node is None or event.node == node or event.source in _OF_OTHERS:
        return event
    return replace(event, node=node)


# One thread per source: what goes wrong in one stops no other, and it is opened again.

_LOG = logging.getLogger("foreshock.sidecar")
# A turn waits no longer than this; a stop ends it at once. The first is short, so that what is well is soon called so.
TURN_S = 30.0
_FIRST_TURN_S = 0.5
_HEALTHY_S = 60.0  # after so long without a failure the next one waits little again


class Sink(Protocol):
    """Where collected things go: the spool."""

    def position(self, spec: str) -> Position | None:
        """What was saved last."""

    def append(self, spec: str, collected: CollectorTurn) -> None:
        """Save, durable on return."""


class OneNodeSink:
    """The spool for a source of one host: whatever name stands in its lines, they are of that node."""

    def __init__(self, sink: Sink, node: str) -> None:
        self._sink = sink
        self._node = node

    def position(self, spec: str) -> Position | None:
        """What was saved last."""
        return self._sink.position(spec)

    def append(self, spec: str, collected: CollectorTurn) -> None:
        """Save, durable on return."""
        self._sink.append(spec, of_node(collected, self._node))


class Runner(threading.Thread):
    """Opens a collector, takes its turns, saves what they give; begins anew after any failure, ever more slowly.

    `turn_began` is read from outside, where a turn that hangs is seen; `abandon` lets such a thread go: what it may
    still bring is passed over, for another reads the source since.
    """

    def __init__(
        self,
        collector: Collector,
        sink: Sink,
        metrics: SourceMetrics,
        backoff: Backoff | None = None,
        turn_s: float = TURN_S,
    ) -> None:
        super().__init__(name=f"source {collector.spec}"[:60], daemon=True)
        self._collector = collector
        self._sink = sink
        self._metrics = metrics
        self._stop_event = threading.Event()
        self._backoff = backoff or Backoff(0.5, 30.0)
        self.turn_s = turn_s
        self._reported: str | None = None
        self._abandoned = False
        self.turn_began = time.monotonic()

    def stop(self) -> None:
        """End the present turn, and with it."""
        self._stop_event.set()
        self._collector.wake.set()

    def abandon(self) -> None:
        """End whenever the present turn does, and save nothing more."""
        self._abandoned = True
        self.stop()

    def run(self) -> None:
        """Until it is stopped: follow, and after a failure wait and follow again."""
        while not self._stop_event.is_set():
            self.turn_began = time.monotonic()
            try:
                self._follow()
            except Exception as error:  # noqa: BLE001 - isolation: one source's failure is not another's
                if not self._abandoned:
                    self._failed(error)
                self.turn_began = float("inf")  # waiting is no hanging
                self._stop_event.wait(self._backoff.next_s())

    def _follow(self) -> None:
        collector = self._collector
        opened = time.monotonic()
        try:
            position = self._sink.position(collector.spec)
            collector.open(position)
            # A source that is new has a place at once: from then on a restart loses nothing of it.
            wait_s = 0.0 if position is None else min(_FIRST_TURN_S, self.turn_s)
            while not self._stop_event.is_set():
                self.turn_began = time.monotonic()
                collected = collector.collect(wait_s)
                wait_s = self.turn_s
                if self._abandoned:
                    return
                self._metrics.set_up(True)
                self._save(collected)
                if self._reported is not None or time.monotonic() - opened > _HEALTHY_S:
                    self._recovered(opened)
        finally:
            collector.close()

    def _save(self, collected: CollectorTurn) -> None:
        """Save, however long it takes: while there is no room the source waits, and nothing is lost here."""
        reported = False
        while True:
            self.turn_began = time.monotonic()  # waiting for room is no hanging
            try:
                self._sink.append(self._collector.spec, collected)
                break
            except (SpoolFullError, OSError) as error:
                self._metrics.set_blocked(True)
                if not reported:
                    _LOG.error("source %s waits: %s", self._collector.spec, error)
                    reported = True
                if self._stop_event.wait(0.2):
                    return  # the position was not saved either: it is read again at the next start
        self._metrics.set_blocked(False)
        self._metrics.count(collected)

    def _failed(self, error: Exception) -> None:
        self._metrics.failed()
        text = str(error) if isinstance(error, SourceError) else f"{type(error).__name__}: {error}"
        if text != self._reported:  # the same failure again and again is said once
            self._reported = text
            _LOG.error("source %s failed: %s", self._collector.spec, text)

    def _recovered(self, opened: float) -> None:
        if time.monotonic() - opened > _HEALTHY_S:
            self._backoff.reset()
        if self._reported is not None:
            self._reported = None
            _LOG.info("source %s is read again", self._collector.spec)


def stalled(runner: Runner, limit_s: float, now_monotonic_s: float) -> bool:
    """Whether a runner's present turn has taken longer than the limit."""
    return runner.is_alive() and now_monotonic_s - runner.turn_began > limit_s


_JOIN_S = 2.0
_TRUST_OPTION = "#trust="
_TRUST_S = 60.0  # between two looks at whose word the sources are, for those who watch the sidecar
_MOST_ABANDONED = 3  # threads of one source that hang; beyond these it waits for one of them to come back


@dataclass(frozen=True, slots=True)
class SourceSpec:
    """A SPEC and what is its own: seconds between two looks, seconds that one may take, format, node, whether it
    speaks of that one node or of `many` (None: as its kind does, `hosts_of`), and whose word it is (`trust_of`).
    """

    spec: str
    interval_s: float | None = None
    timeout_s: float | None = None
    format: str | None = None
    node: str | None = None
    hosts: Hosts | None = None
    trust: Trust | None = None

    @classmethod
    def of(cls, text: str) -> "SourceSpec":
        """A SPEC as users write it on one line: its trust may stand behind it (`file:/var/log/messages#trust=system`).

        What is read keeps its name and place when the trust changes.

        Raises:
            SourceError: the word is no trust.
        """
        spec, option, trust = text.rpartition(_TRUST_OPTION)
        return cls(spec, trust=checked_trust(text, trust)) if option else cls(text)

    def source_trust(self) -> SourceTrust:
        """Whose word it is, as far as can be told now."""
        return trust_of(self.spec, self.trust, self.format)

    def settings(self, common: SourceSettings) -> SourceSettings:
        """The settings of its collector: the sidecar's settings, and its own over them."""
        return replace(
            common,
            node=self.node or common.node,
            interval_s=self.interval_s,
            timeout_s=self.timeout_s,
            format=self.format,
            hosts=self.hosts or hosts_of(self.spec),
            trust=self.trust,
        )


@dataclass(slots=True)
class _SourceThread:
    source: SourceSpec
    settings: SourceSettings
    runner: Runner
    reported: bool = False


class Sources:
    """Every source of one sidecar. All calls come from one thread."""

    def __init__(self, sink: Sink, metrics: SidecarMetrics, turn_limit_s: float) -> None:
        self._sink = sink
        self._metrics = metrics
        self.turn_limit_s = turn_limit_s
        self._running: dict[str, _SourceThread] = {}
        self._abandoned: dict[str, list[Runner]] = {}
        self._trust_due_s = 0.0

    def check(self, sources: Sequence[SourceSpec], common: SourceSettings) -> None:
        """Whether `change` would take these.

        Raises:
            SourceError: a SPEC is not understood, or stands twice.
        """
        self._fresh(sources, common)

    def change(self, sources: Sequence[SourceSpec], common: SourceSettings) -> None:
        """Read these from now on: those that are as they were go on untouched, positions stay saved by SPEC.

        Raises:
            SourceError: a SPEC is not understood, or stands twice; nothing was changed.
        """
        fresh = self._fresh(sources, common)
        wanted = {source.spec for source in sources}
        for spec in [spec for spec in self._running if spec not in wanted or spec in fresh]:
            self._end([self._running.pop(spec)])
            if spec not in wanted:
                self._metrics.forget(spec)
        for source, settings, collector in fresh.values():
            self._start(source, settings, collector)

    def look(self) -> None:
        """Abandon the threads that hang, and open their sources anew."""
        now = time.monotonic()
        asks_trust = now >= self._trust_due_s
        if asks_trust:
            self._trust_due_s = now + _TRUST_S
        for spec, running in self._running.items():
            hanging = [runner for runner in self._abandoned.get(spec, []) if runner.is_alive()]
            self._abandoned[spec] = hanging
            limit_s = max(self.turn_limit_s, 2 * (running.source.timeout_s or 0.0), 2 * running.runner.turn_s)
            is_stalled = stalled(running.runner, limit_s, now)
            metrics = self._metrics.source(spec)
            if asks_trust:  # a file may have come, or have another owner
                metrics.trust = running.source.source_trust().trust
            metrics.stalled = len(hanging) + is_stalled
            if not is_stalled:
                running.reported = False
                continue
            metrics.set_up(False)
            if not running.reported:
                _LOG.error("source %s hangs: no turn has ended for %.0f s", spec, limit_s)
                running.reported = True
            if len(hanging) < _MOST_ABANDONED:
                running.runner.abandon()
                self._abandoned[spec] = [*hanging, running.runner]
                running.runner = self._runner(make_collector(spec, running.settings), running.settings)

    def stop(self) -> None:
        """End every thread that can be ended, within a few seconds."""
        self._end(self._running.values())

    def _fresh(
        self, sources: Sequence[SourceSpec], common: SourceSettings
    ) -> Mapping[str, tuple[SourceSpec, SourceSettings, Collector]]:
        """The collectors of what is new or has changed."""
        made: dict[str, tuple[SourceSpec, SourceSettings, Collector]] = {}
        seen: set[str] = set()
        for source in sources:
            if source.spec in seen:
                raise SourceError(f"source {source.spec} stands twice: name each once")
            seen.add(source.spec)
            if source.trust is not None:
                check_has_trust(source.spec)
            settings = source.settings(common)
            before = self._running.get(source.spec)
            if before is None or before.settings != settings:
                made[source.spec] = (source, settings, make_collector(source.spec, settings))
        return made

    def _start(self, source: SourceSpec, settings: SourceSettings, collector: Collector) -> None:
        found = source.source_trust()
        self._metrics.source(source.spec).trust = found.trust
        if name := gives_nothing(source.spec, found.trust, source.format):
            message = "source %s is of trust %s (%s): nothing of the format %s is taken from it"
            _LOG.warning(message, source.spec, found.trust, found.why, name)
        self._running[source.spec] = _SourceThread(source, settings, self._runner(collector, settings))

    def _runner(self, collector: Collector, settings: SourceSettings) -> Runner:
        turn_s = min(TURN_S, self.turn_limit_s / 2)
        sink = OneNodeSink(self._sink, settings.node) if settings.hosts == "one" else self._sink
        runner = Runner(collector, sink, self._metrics.source(collector.spec), turn_s=turn_s)
        runner.start()
        return runner

    def _end(self, running: Iterable[_SourceThread]) -> None:
        runners = [each.runner for each in running]
        for runner in runners:
            runner.stop()
        end = time.monotonic() + _JOIN_S
        for runner in runners:
            runner.join(max(0.0, end - time.monotonic()))
            if runner.is_alive():
                runner.abandon()

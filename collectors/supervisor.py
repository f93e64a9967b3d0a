"""Which sources are read: one thread each, replaced where a turn hangs, changed while the others go on.

sources = Sources(spool, metrics, turn_limit_s=60.0)
sources.change([Source("kmsg"), Source("scrape:http://...", interval_s=30.0)], settings)
sources.look()          # at an interval: a source that hangs is opened anew beside the thread that hangs
sources.stop()
"""

import logging
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from collectors.collector import Collector, SourceError, SourceSettings
from collectors.metrics import SidecarMetrics
from collectors.registry import make_collector
from collectors.runner import TURN_S, Runner, Sink, stalled

_LOG = logging.getLogger("foreshock.sidecar")
_JOIN_S = 2.0
_MOST_ABANDONED = 3  # threads of one source that hang; beyond these it waits for one of them to come back


@dataclass(frozen=True, slots=True)
class Source:
    """A SPEC and what is its own: seconds between two looks, seconds that one may take, format, node."""

    spec: str
    interval_s: float | None = None
    timeout_s: float | None = None
    format: str | None = None
    node: str | None = None

    def settings(self, common: SourceSettings) -> SourceSettings:
        """What its collector is told: the sidecar's settings, and its own over them."""
        return replace(
            common,
            node=self.node or common.node,
            interval_s=self.interval_s,
            timeout_s=self.timeout_s,
            format=self.format,
        )


@dataclass(slots=True)
class _Running:
    source: Source
    settings: SourceSettings
    runner: Runner
    told: bool = False


class Sources:
    """Every source of one sidecar. All calls come from one thread."""

    def __init__(self, sink: Sink, metrics: SidecarMetrics, turn_limit_s: float) -> None:
        self._sink = sink
        self._metrics = metrics
        self.turn_limit_s = turn_limit_s
        self._running: dict[str, _Running] = {}
        self._abandoned: dict[str, list[Runner]] = {}

    def check(self, sources: Sequence[Source], common: SourceSettings) -> None:
        """Whether `change` would take these.

        Raises:
            SourceError: a SPEC is not understood, or stands twice.
        """
        self._fresh(sources, common)

    def change(self, sources: Sequence[Source], common: SourceSettings) -> None:
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
        for spec, running in self._running.items():
            hanging = [runner for runner in self._abandoned.get(spec, []) if runner.is_alive()]
            self._abandoned[spec] = hanging
            limit_s = max(self.turn_limit_s, 2 * (running.source.timeout_s or 0.0), 2 * running.runner.turn_s)
            is_stalled = stalled(running.runner, limit_s, now)
            metrics = self._metrics.source(spec)
            metrics.stalled = len(hanging) + is_stalled
            if not is_stalled:
                running.told = False
                continue
            metrics.set_up(False)
            if not running.told:
                _LOG.error("source %s hangs: no turn has ended for %.0f s", spec, limit_s)
                running.told = True
            if len(hanging) < _MOST_ABANDONED:
                running.runner.abandon()
                self._abandoned[spec] = [*hanging, running.runner]
                running.runner = self._runner(make_collector(spec, running.settings))

    def stop(self) -> None:
        """End every thread that can be ended, within a few seconds."""
        self._end(self._running.values())

    def _fresh(
        self, sources: Sequence[Source], common: SourceSettings
    ) -> Mapping[str, tuple[Source, SourceSettings, Collector]]:
        """The collectors of what is new or has changed."""
        made: dict[str, tuple[Source, SourceSettings, Collector]] = {}
        seen: set[str] = set()
        for source in sources:
            if source.spec in seen:
                raise SourceError(f"source {source.spec} stands twice: name each once")
            seen.add(source.spec)
            settings = source.settings(common)
            before = self._running.get(source.spec)
            if before is None or before.settings != settings:
                made[source.spec] = (source, settings, make_collector(source.spec, settings))
        return made

    def _start(self, source: Source, settings: SourceSettings, collector: Collector) -> None:
        self._running[source.spec] = _Running(source, settings, self._runner(collector))

    def _runner(self, collector: Collector) -> Runner:
        turn_s = min(TURN_S, self.turn_limit_s / 2)
        runner = Runner(collector, self._sink, self._metrics.source(collector.spec), turn_s=turn_s)
        runner.start()
        return runner

    def _end(self, running: Iterable[_Running]) -> None:
        runners = [each.runner for each in running]
        for runner in runners:
            runner.stop()
        end = time.monotonic() + _JOIN_S
        for runner in runners:
            runner.join(max(0.0, end - time.monotonic()))
            if runner.is_alive():
                runner.abandon()

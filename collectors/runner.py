"""One thread per source: what goes wrong in one stops no other, and it is opened again."""

import logging
import threading
import time
from typing import Protocol

from collectors.backoff import Backoff
from collectors.collector import Collected, Collector, Position, SourceError
from collectors.source_metrics import SourceMetrics
from collectors.spool import SpoolFullError

_LOG = logging.getLogger("foreshock.sidecar")
# A turn waits no longer than this; a stop ends it at once. The first is short, so that what is well is soon called so.
TURN_S = 30.0
_FIRST_TURN_S = 0.5
_HEALTHY_S = 60.0  # after so long without a failure the next one waits little again


class Sink(Protocol):
    """Where collected things go: the spool."""

    def position(self, spec: str) -> Position | None:
        """What was saved last."""

    def append(self, spec: str, collected: Collected) -> None:
        """Save, durable on return."""


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
        self._told: str | None = None
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
            collector.open(self._sink.position(collector.spec))
            wait_s = min(_FIRST_TURN_S, self.turn_s)
            while not self._stop_event.is_set():
                self.turn_began = time.monotonic()
                collected = collector.collect(wait_s)
                wait_s = self.turn_s
                if self._abandoned:
                    return
                self._metrics.set_up(True)
                self._save(collected)
                if self._told is not None or time.monotonic() - opened > _HEALTHY_S:
                    self._recovered(opened)
        finally:
            collector.close()

    def _save(self, collected: Collected) -> None:
        """Save, however long it takes: while there is no room the source waits, and nothing is lost here."""
        told = False
        while True:
            self.turn_began = time.monotonic()  # waiting for room is no hanging
            try:
                self._sink.append(self._collector.spec, collected)
                break
            except (SpoolFullError, OSError) as error:
                self._metrics.set_blocked(True)
                if not told:
                    _LOG.error("source %s waits: %s", self._collector.spec, error)
                    told = True
                if self._stop_event.wait(0.2):
                    return  # the position was not saved either: it is read again at the next start
        self._metrics.set_blocked(False)
        self._metrics.count(collected)

    def _failed(self, error: Exception) -> None:
        self._metrics.failed()
        text = str(error) if isinstance(error, SourceError) else f"{type(error).__name__}: {error}"
        if text != self._told:  # the same failure again and again is said once
            self._told = text
            _LOG.error("source %s failed: %s", self._collector.spec, text)

    def _recovered(self, opened: float) -> None:
        if time.monotonic() - opened > _HEALTHY_S:
            self._backoff.reset()
        if self._told is not None:
            self._told = None
            _LOG.info("source %s is read again", self._collector.spec)


def stalled(runner: Runner, limit_s: float, now_monotonic_s: float) -> bool:
    """Whether a runner's present turn has taken longer than the limit."""
    return runner.is_alive() and now_monotonic_s - runner.turn_began > limit_s

"""One thread per source."""

import logging
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from real.patience import patience

from collectors.agent.supervisor import Runner, stalled
from collectors.collector import CollectorTurn, Position, SourceError, SourceSettings, Wake
from collectors.metrics import SidecarMetrics
from collectors.registry import make_collector
from collectors.ship.transport import Backoff
from collectors.spool.state import SpoolFullError
from store.records.event import Event

Until = Callable[[Callable[[], Any]], Any]


class Script:
    """A collector that does as it is told, turn by turn; then it is quiet."""

    def __init__(self, spec: str, *steps: Any) -> None:
        self._spec = spec
        self.wake = Wake()
        self.steps = list(steps)
        self.opened: list[Position | None] = []
        self.closed = 0

    @property
    def spec(self) -> str:
        """Its name."""
        return self._spec

    def open(self, position: Position | None) -> None:
        """Remember where it was told to begin."""
        self.opened.append(position)

    def collect(self, wait_s: float) -> CollectorTurn:
        """The next step."""
        if not self.steps:
            time.sleep(0.01)
            return CollectorTurn()
        step = self.steps.pop(0)
        if isinstance(step, Exception):
            raise step
        return CollectorTurn(events=(event(step),), position={"at": step}, lines=1, lost=2)

    def close(self) -> None:
        """Count it."""
        self.closed += 1


class Memory:
    """A sink; `refusals` are raised first."""

    def __init__(self, *refusals: Exception) -> None:
        self.refusals = list(refusals)
        self.saved: list[tuple[str, int]] = []
        self.positions: dict[str, Position] = {}

    def position(self, spec: str) -> Position | None:
        """The last one."""
        return self.positions.get(spec)

    def append(self, spec: str, collected: CollectorTurn) -> None:
        """Keep it, or refuse."""
        if self.refusals and collected.events:
            raise self.refusals.pop(0)
        self.saved += [(spec, one.code or 0) for one in collected.events]
        if collected.position is not None:
            self.positions[spec] = collected.position


def event(code: int) -> Event:
    """A small one."""
    return Event(time=None, node="n1", source="test", kind="test", code=code)


@pytest.fixture
def stop() -> Iterator[threading.Event]:
    """Set in the end, so that no thread stays."""
    stop = threading.Event()
    yield stop
    stop.set()


def start(collector: Script, sink: Memory, stop: threading.Event) -> tuple[Runner, SidecarMetrics]:
    """A runner that waits little after failures."""
    metrics = SidecarMetrics()
    runner = Runner(collector, sink, metrics.source(collector.spec), Backoff(0.01, 0.02))
    runner.start()
    threading.Thread(target=lambda: (stop.wait(), runner.stop()), daemon=True).start()
    return runner, metrics


def value(metrics: SidecarMetrics, name: str, source: str) -> float:
    """One figure of a source."""
    return metrics.registry.get_sample_value(f"foreshock_sidecar_{name}", {"source": source}) or 0.0


def test_a_failure_in_one_source_stops_no_other(stop: threading.Event, until: Until) -> None:
    """The failing one is opened again at its last saved position, and goes on."""
    sink = Memory()
    bad = Script("bad", 1, RuntimeError("boom"), SourceError("gone"), 2)
    good = Script("good", 1, 2, 3)
    runner, metrics = start(bad, sink, stop)
    start(good, sink, stop)
    assert until(lambda: len(sink.saved) == 5)
    assert [code for spec, code in sink.saved if spec == "bad"] == [1, 2]
    assert bad.opened == [None, {"at": 1}, {"at": 1}]
    assert value(metrics, "source_failures_total", "bad") == 2
    stop.set()
    runner.join(patience(5))
    assert bad.closed == 3


def test_what_it_counts_is_shown(stop: threading.Event, until: Until) -> None:
    """Lines, events, losses, and that it is up."""
    sink = Memory()
    _runner, metrics = start(Script("s", 1, 2), sink, stop)
    assert until(lambda: value(metrics, "events_total", "s") == 2)
    assert value(metrics, "lines_total", "s") == 2
    assert value(metrics, "lost_records_total", "s") == 4
    assert value(metrics, "source_up", "s") == 1


def test_a_repeated_failure_is_said_once_and_its_end_too(
    stop: threading.Event, until: Until, caplog: pytest.LogCaptureFixture
) -> None:
    """A log that repeats itself hides what matters."""
    with caplog.at_level(logging.INFO, "foreshock.sidecar"):
        sink = Memory()
        _runner, metrics = start(Script("s", *[SourceError("denied: do this")] * 5, 1), sink, stop)
        assert until(lambda: any("read again" in record.message for record in caplog.records))
    said = [record.message for record in caplog.records]
    assert said == ["source s failed: denied: do this", "source s is read again"]
    assert value(metrics, "source_failures_total", "s") == 5


def test_a_full_spool_makes_the_source_wait_and_loses_nothing(stop: threading.Event, until: Until) -> None:
    """Full, or a disk error: the turn is kept and saved when there is room; the source is not opened anew."""
    sink = Memory(SpoolFullError("full"), OSError(28, "No space left on device"))
    script = Script("s", 1, 2)
    _runner, metrics = start(script, sink, stop)
    assert until(lambda: value(metrics, "source_blocked", "s") == 1)
    assert until(lambda: len(sink.saved) == 2)
    assert len(script.opened) == 1
    assert until(lambda: value(metrics, "source_blocked", "s") == 0)


def test_a_stop_while_the_spool_is_full_saves_no_position(stop: threading.Event, until: Until) -> None:
    """So that the next start reads the turn again."""
    sink = Memory(*[SpoolFullError("full")] * 1000)
    runner, metrics = start(Script("s", 1), sink, stop)
    assert until(lambda: value(metrics, "source_blocked", "s") == 1)
    stop.set()
    runner.join(patience(5))
    assert not runner.is_alive()
    assert sink.positions == {}


def test_a_turn_that_hangs_is_seen_from_outside(stop: threading.Event) -> None:
    """The watchdog asks for it; a thread that ended is no stall."""
    runner, _metrics = start(Script("s"), Memory(), stop)
    assert not stalled(runner, 60, time.monotonic())
    assert stalled(runner, 60, time.monotonic() + 120)
    stop.set()
    runner.join(patience(5))
    assert not stalled(runner, 60, time.monotonic() + 120)


class Telling(Memory):
    """A sink that says when the first turn was saved."""

    def __init__(self) -> None:
        super().__init__()
        self.first = threading.Event()

    def append(self, spec: str, collected: CollectorTurn) -> None:
        """Keep it, and say so."""
        super().append(spec, collected)
        self.first.set()


@pytest.mark.parametrize(
    "spec",
    [
        "file:{folder}/kern.log:kernel",
        "file:{folder}/*.log:kernel",
        "exec:sinfo:true",
        "scrape:http://127.0.0.1:1/metrics",
        "infiniband:{folder}",
        pytest.param("kmsg", marks=pytest.mark.skipif(not os.access("/dev/kmsg", os.R_OK), reason="no /dev/kmsg")),
    ],
)
def test_a_stop_ends_a_turn_of_an_hour_at_once(tmp_path: Path, spec: str) -> None:
    """A quiet source waits long and is left without delay; its thread and its descriptors go."""
    (tmp_path / "kern.log").touch()
    collector = make_collector(spec.format(folder=tmp_path), SourceSettings(node="n1", interval_s=3600.0))
    sink = Telling()
    runner = Runner(collector, sink, SidecarMetrics().source(collector.spec), turn_s=3600.0)
    runner.start()
    assert sink.first.wait(patience(20))
    runner.stop()
    runner.join(patience(20))
    assert not runner.is_alive()

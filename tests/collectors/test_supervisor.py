"""Sources that are changed while others go on, and sources that hang."""

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import pytest
from real.patience import patience

from collectors.agent.supervisor import Sources, SourceSpec
from collectors.collector import CollectorTurn, Position, SourceError, SourceSettings, Wake
from collectors.metrics import SidecarMetrics

Until = Callable[[Callable[[], Any]], Any]
COMMON = SourceSettings(node="n1")


class Sink:
    """Remembers positions."""

    def __init__(self) -> None:
        self.saved: dict[str, list[Any]] = {}

    def position(self, spec: str) -> Position | None:
        """The newest."""
        return {"at": self.saved[spec][-1]} if spec in self.saved else None

    def append(self, spec: str, collected: CollectorTurn) -> None:
        """One more."""
        if collected.position is not None:
            self.saved.setdefault(spec, []).append(collected.position["at"])


class Counter:
    """Counts on from where it was; hangs where it is told to."""

    hanging = threading.Event()
    hang_at: ClassVar[dict[str, int]] = {}
    opened: ClassVar[list[tuple[str, Any, SourceSettings]]] = []

    def __init__(self, spec: str, settings: SourceSettings) -> None:
        self.spec = spec
        self.settings = settings
        self.at = 0
        self.wait = threading.Event()
        self.wake = Wake()

    def open(self, position: Position | None) -> None:
        """Go on."""
        self.at = 0 if position is None else position["at"]
        self.opened.append((self.spec, position, self.settings))

    def collect(self, wait_s: float) -> CollectorTurn:
        """The next number."""
        if self.hang_at.get(self.spec) == self.at:
            assert self.hanging.wait(patience(20))
            return CollectorTurn(position={"at": -1})
        self.wait.wait(0.01)
        self.at += 1
        return CollectorTurn(position={"at": self.at}, lines=1)

    def close(self) -> None:
        """Nothing to let go of."""


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Sources, Sink, SidecarMetrics]]:
    """Sources that count; `x...` is none."""

    def make(spec: str, settings: SourceSettings) -> Counter:
        if spec.startswith("x"):
            raise SourceError(f"{spec!r} is no source")
        return Counter(spec, settings)

    monkeypatch.setattr("collectors.agent.supervisor.make_collector", make)
    Counter.hanging, Counter.hang_at, Counter.opened = threading.Event(), {}, []
    sink, metrics = Sink(), SidecarMetrics()
    sources = Sources(sink, metrics, turn_limit_s=0.3)
    yield sources, sink, metrics
    Counter.hanging.set()
    sources.stop()


def test_a_change_touches_only_what_changed(made: tuple[Sources, Sink, SidecarMetrics], until: Until) -> None:
    """Added, removed, given another interval: the others are not opened anew, positions stay."""
    sources, sink, metrics = made
    sources.change([SourceSpec("a"), SourceSpec("b"), SourceSpec("c")], COMMON)
    assert until(lambda: len(sink.saved) == 3)
    sources.change([SourceSpec("a"), SourceSpec("b", interval_s=5.0, node="other"), SourceSpec("d")], COMMON)
    assert until(lambda: "d" in sink.saved)
    assert [spec for spec, _position, _settings in Counter.opened] == ["a", "b", "c", "b", "d"]
    _spec, position, settings = Counter.opened[3]
    assert position == {"at": position["at"]} and position["at"] > 0
    assert (settings.interval_s, settings.node) == (5.0, "other")
    page = metrics.page().decode()
    assert 'source="c"' not in page
    assert 'foreshock_sidecar_source_up{source="d"}' in page
    sources.change(
        [SourceSpec("a"), SourceSpec("b", interval_s=5.0, node="other"), SourceSpec("c"), SourceSpec("d")], COMMON
    )
    assert until(lambda: Counter.opened[-1][0] == "c")
    assert Counter.opened[-1][1] is not None


@pytest.mark.parametrize(
    "wrong", [[SourceSpec("a"), SourceSpec("xyz")], [SourceSpec("a"), SourceSpec("a", interval_s=1.0)]]
)
def test_a_wrong_change_changes_nothing(
    made: tuple[Sources, Sink, SidecarMetrics], until: Until, wrong: list[SourceSpec]
) -> None:
    """Neither those that are read nor those that are not."""
    sources, sink, _metrics = made
    sources.change([SourceSpec("a"), SourceSpec("b")], COMMON)
    assert until(lambda: len(sink.saved) == 2)
    with pytest.raises(SourceError):
        sources.change(wrong, replace(COMMON, scrape_interval_s=1.0))
    seen = len(sink.saved["b"])
    assert until(lambda: len(sink.saved["b"]) > seen)
    assert len(Counter.opened) == 2


def test_a_source_that_hangs_is_opened_anew_and_what_the_old_thread_brings_is_passed_over(
    made: tuple[Sources, Sink, SidecarMetrics], until: Until
) -> None:
    """The other goes on meanwhile; the hanging thread is shown until it ends."""
    sources, sink, metrics = made
    Counter.hang_at = {"a": 3}

    def value(name: str) -> float | None:
        return metrics.registry.get_sample_value(f"foreshock_sidecar_{name}", {"source": "a"})

    sources.change([SourceSpec("a"), SourceSpec("b")], COMMON)

    def stalled(count: int) -> bool:
        sources.look()
        return value("source_stalled") == count

    assert until(lambda: stalled(1))
    assert value("source_up") == 0
    assert until(lambda: stalled(4)), "three that were left, and the one that is watched"
    assert len([spec for spec, *_ in Counter.opened if spec == "a"]) == 4
    seen = len(sink.saved["b"])
    assert until(lambda: len(sink.saved["b"]) > seen)
    Counter.hang_at = {}
    Counter.hanging.set()
    assert until(lambda: stalled(0) and sink.saved["a"][-1] > 3)
    assert until(lambda: value("source_up") == 1)
    assert sink.saved["a"].count(-1) <= 1, "only the thread that was not given up may save"


def test_a_source_with_a_long_time_limit_of_its_own_is_not_given_up_early(
    made: tuple[Sources, Sink, SidecarMetrics], until: Until, tmp_path: Path
) -> None:
    """Twice its `timeout_s`."""
    sources, _sink, metrics = made
    Counter.hang_at = {"a": 1, "b": 1}
    sources.change([SourceSpec("a", timeout_s=1000.0), SourceSpec("b")], COMMON)

    def seen() -> bool:
        sources.look()
        return metrics.registry.get_sample_value("foreshock_sidecar_source_stalled", {"source": "b"}) == 1

    assert until(seen)
    assert metrics.registry.get_sample_value("foreshock_sidecar_source_stalled", {"source": "a"}) == 0


def test_a_source_that_waits_is_no_source_that_hangs(made: tuple[Sources, Sink, SidecarMetrics], until: Until) -> None:
    """A turn waits half the limit at most; a limit that is lowered holds for what is opened from then on."""
    sources, sink, metrics = made
    sources.turn_limit_s = 600.0
    Counter.hang_at = {"a": 1}
    sources.change([SourceSpec("a")], COMMON)
    runner = sources._running["a"].runner
    assert 2 * runner.turn_s <= sources.turn_limit_s
    sources.turn_limit_s = runner.turn_s / 10
    assert until(lambda: sink.saved)

    def stalled_after(turns: float) -> float | None:
        runner.turn_began = time.monotonic() - turns * runner.turn_s
        sources.look()
        return metrics.registry.get_sample_value("foreshock_sidecar_source_stalled", {"source": "a"})

    assert stalled_after(1.5) == 0
    assert until(lambda: stalled_after(2.5))

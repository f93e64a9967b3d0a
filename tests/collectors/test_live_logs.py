"""Logs that real and simulated programs are writing, followed as the sidecar follows them."""

import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from real.opensm import fabric
from real.patience import patience

from collectors.collector import Collector, SourceSettings
from collectors.sources.file import file_collector
from store.records.event import Event

SETTINGS = SourceSettings(node="sm-01", poll_interval_s=0.02, rotation_grace_s=0.3)


class Follower:
    """Follows a source as the runner does."""

    def __init__(self, rest: str) -> None:
        self.rest = rest
        self.position: Any = None
        self.events: list[Event] = []
        self.collector: Collector = file_collector(rest, SETTINGS)
        self.collector.open(None)

    def restart(self) -> None:
        """As a sidecar that died."""
        self.collector.close()
        self.collector = file_collector(self.rest, SETTINGS)
        self.collector.open(self.position)

    def turn(self) -> None:
        """One turn."""
        collected = self.collector.collect(0.05)
        self.events += collected.events
        self.position = collected.position or self.position

    def until(self, told: Callable[[list[Event]], bool]) -> list[Event]:
        """Turns until the events say something."""
        deadline = time.monotonic() + patience(20)
        while not told(self.events) and time.monotonic() < deadline:
            self.turn()
        assert told(self.events), [event.kind for event in self.events]
        return self.events


@pytest.fixture
def follow() -> Iterator[Callable[[str], Follower]]:
    """Makes followers, and ends them."""
    made: list[Follower] = []

    def follower(rest: str) -> Follower:
        made.append(Follower(rest))
        return made[-1]

    yield follower
    for one in made:
        one.collector.close()


@pytest.mark.integration
def test_a_pulled_cable_is_told_at_once_though_opensm_keeps_lines_back(
    tmp_path: Path, follow: Callable[[str], Follower]
) -> None:
    """The trap is written at once, with the switch's LID; `Removed port` comes later unless force_log_flush is set."""
    with fabric(tmp_path) as sim:
        settings = tmp_path / "opensm.conf"
        settings.write_text(settings.read_text().replace("force_log_flush TRUE", "force_log_flush FALSE"))
        follower = follow(f"{sim.log}:opensm")
        sim.sweep()  # opensm reads its settings anew
        sim.wait_for_log("force_log_flush = FALSE", log=tmp_path / "opensm.out")
        sim.unlink("host03")
        events = follower.until(lambda events: any(event.kind == "link_state_change" for event in events))
        trap = next(event for event in events if event.kind == "link_state_change")
        assert trap.attributes["lid"] == sim._lid("leaf02")
        for _ in range(20):
            follower.turn()
        assert "port_removed" not in {event.kind for event in events}, "nothing was kept back: this proves nothing"
        sim.stop_opensm()
        follower.until(lambda events: any(event.kind == "port_removed" for event in events))


@pytest.mark.integration
def test_opensm_that_opens_its_log_anew_is_followed_into_the_new_file(
    tmp_path: Path, follow: Callable[[str], Follower]
) -> None:
    """Renamed, and told by SIGUSR1 as its own logrotate rule does; over a restart of the sidecar, nothing twice."""
    with fabric(tmp_path) as sim:
        follower = follow(f"{sim.log}:opensm")
        sim.unlink("host03")
        follower.until(lambda events: any(event.kind == "port_removed" for event in events))
        sim.log.rename(sim.log.with_name("opensm.log.1"))
        sim.opensm.send_signal(signal.SIGUSR1)
        sim.relink("host03")
        follower.until(lambda events: any(event.kind == "port_discovered" for event in events))
        follower.restart()
        sim.unlink("host02")
        follower.until(lambda events: sum(event.kind == "port_removed" for event in events) == 2)
        sim.stop_opensm()
        follower.until(lambda events: any(event.attributes.get("state") == "EXITED" for event in events))
    ids = [event.id for event in follower.events]
    assert len(set(ids)) == len(ids)
    gone = [event.node for event in follower.events if event.kind == "port_removed"]
    assert gone == ["host03", "host02"]


def test_runs_that_train_now_are_followed_each_under_its_own_name(
    tmp_path: Path, follow: Callable[[str], Follower]
) -> None:
    """Two of the fixtures' real logs, written line by line at the same time, one of them begun later."""
    fixtures = Path(__file__).parents[2] / "fixtures" / "training"
    texts = [path.read_text().splitlines(keepends=True) for path in sorted(fixtures.glob("megatron*.log"))[:2]]
    assert len(texts) == 2
    follower = follow(f"{tmp_path}/*.log:training")
    for number in range(max(map(len, texts))):
        for run, text in enumerate(texts):
            if number < len(text) and (run == 0 or number > 3):
                with (tmp_path / f"run{run}.log").open("a") as file:
                    file.writelines(text[: number + 1] if run == 1 and number == 4 else [text[number]])
        if number % 5 == 0:
            follower.turn()
        if number == 20:
            follower.restart()
    for _ in range(40):
        follower.turn()
    whole: list[Event] = []
    for run, text in enumerate(texts):
        alone = tmp_path / "whole" / f"run{run}.log"
        alone.parent.mkdir(exist_ok=True)
        alone.write_text("".join(text))
        one = follow(f"{alone}:training")
        for _ in range(20):
            one.turn()
        whole += one.events
    assert len(whole) > 10
    assert sorted(map(_words, follower.events)) == sorted(map(_words, whole))


def _words(event: Event) -> str:
    return f"{event.run()} {event.line} {event.time} {event.kind} {sorted(event.attributes.items(), key=str)}"

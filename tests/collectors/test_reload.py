"""A configuration that changes under a running sidecar: the real process, signals and files."""

import os
import signal
import threading
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from real.foreshock import free_port
from real.patience import patience
from real.preloaded import Started, start

from collectors.agent.configuration import ConfigError, Configuration
from collectors.metrics import SidecarMetrics

Until = Callable[[Callable[[], Any]], Any]
XID = "2025-03-01T04:05:06+00:00 gpu-017 kernel: NVRM: Xid (PCI:0000:0f:00): 79, pid={}, lost.\n"


class Agent:
    """`foreshock sidecar --config FILE`."""

    def __init__(self, folder: Path, server: str) -> None:
        self.folder = folder
        self.server = server
        self.port = free_port()
        self.file = folder / "sidecar.yaml"
        self.errors = folder / "stderr"
        self.process: Started | None = None

    def configure(self, *sources: str, more: str = "") -> None:
        """Replace the file, as an editor or a ConfigMap does."""
        text = f"server: {self.server}\nspool: {self.folder / 'spool'}\nport: {self.port}\nsource:\n"
        new = self.folder / "new"
        new.write_text(text + "".join(f"  - {source}\n" for source in sources) + more)
        new.replace(self.file)

    def start(self) -> None:
        """Run it."""
        self.process = start(["sidecar", "--config", self.file], self.errors)

    def hang_up(self) -> None:
        """SIGHUP."""
        assert self.process is not None
        self.process.send_signal(signal.SIGHUP)

    def metrics(self) -> str:
        """Its page."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics", timeout=patience(10)) as page:
            text: str = page.read().decode()
        return text

    def log(self) -> str:
        """What it said."""
        return self.errors.read_text()


@pytest.fixture
def agent(tmp_path: Path, recorder: Any) -> Iterator[Agent]:
    """Not started."""
    agent = Agent(tmp_path, recorder.url)
    yield agent
    if agent.process is not None:
        agent.process.kill()
        agent.process.wait()


def test_sources_come_and_go_and_a_wrong_file_changes_nothing(
    agent: Agent, recorder: Any, tmp_path: Path, until: Until
) -> None:
    """By SIGHUP; the first source goes on where it is, without a line lost or twice."""
    first, second = tmp_path / "a.log", tmp_path / "b.log"
    first.write_text(XID.format(1))
    second.write_text(XID.format(2))
    agent.configure(f"file:{first}:kernel")
    agent.start()
    assert until(lambda: len(recorder.events) == 1)
    agent.configure(f"file:{first}:kernel", f"{{source: 'file:{second}:kernel', node: other}}")
    agent.hang_up()
    assert until(lambda: len(recorder.events) == 2)
    assert recorder.events[1]["node"] in ("other", "gpu-017")
    agent.configure(f"file:{first}:kernel", more="linger_s: soon\n")
    agent.hang_up()
    assert until(lambda: "foreshock_sidecar_config_last_reload_successful 0.0" in agent.metrics())
    assert f"{agent.file}:6: linger_s is 'soon': write a number" in agent.log()
    agent.configure("floppy:a")
    agent.hang_up()
    assert until(lambda: "foreshock_sidecar_config_reload_failures_total 2.0" in agent.metrics())
    with first.open("a") as one, second.open("a") as two:
        one.write(XID.format(3))
        two.write(XID.format(4))
    assert until(lambda: len(recorder.events) == 4)
    agent.configure(f"file:{first}:kernel", more="node: renamed\n")
    agent.hang_up()
    assert until(lambda: "config_last_reload_successful 1.0" in agent.metrics())
    assert until(lambda: "b.log" not in agent.metrics())
    assert "node has changed: that is taken up at the next start" in agent.log()
    assert sorted(event["attributes"]["pid"] for event in recorder.events) == [1, 2, 3, 4]


def test_a_changed_file_is_noticed_without_a_signal_and_the_new_server_gets_what_waits(
    agent: Agent, recorders: list[Any], tmp_path: Path, until: Until
) -> None:
    """The old address is dead: events and heartbeats go to the new one at once, not after the back-off."""
    dead, alive = recorders[:2]
    dead.stop()
    log = tmp_path / "a.log"
    log.write_text(XID.format(1))
    agent.server = dead.url
    agent.configure(f"file:{log}:kernel", more="heartbeat_interval_s: 0.2\n")
    agent.start()
    assert until(lambda: "trying again" in agent.log() if agent.errors.exists() else False)
    agent.server = alive.url
    agent.configure(f"file:{log}:kernel", more="heartbeat_interval_s: 0.2\n")
    assert until(lambda: alive.events and alive.items.get("heartbeats"))
    assert alive.items["heartbeats"][0]["interval_s"] == 0.2


def test_a_file_is_read_again_only_when_it_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A wrong one is complained of once, not every few seconds; one that is gone for a moment is waited for."""
    monkeypatch.setattr("collectors.agent.configuration._LOOK_S", 0.0)
    file = tmp_path / "x.yaml"
    file.write_text("1")
    loads: list[str] = []
    told: list[bool] = []

    def load() -> str:
        loads.append(file.read_text())
        if loads[-1] == "bad":
            raise ConfigError("x.yaml:1: bad")
        return loads[-1]

    applied: list[str] = []
    metrics = SidecarMetrics()
    asked = threading.Event()
    configuration = Configuration(file, load, asked, told.append)

    def write(text: str) -> None:
        file.write_text(text)
        os.utime(file, ns=(len(loads), len(text) + 7 * len(loads)))

    for text in ("1", "2", "bad", "bad"):
        if text != "1" and (text, "bad") not in zip(loads[-1:], ["bad"], strict=False):
            write(text)
        configuration.look(metrics, applied.append)
        configuration.look(metrics, applied.append)
    assert (loads, applied) == (["2", "bad"], ["2"])
    assert told == [True, False, True, False]
    file.unlink()
    configuration.look(metrics, applied.append)
    write("3")
    configuration.look(metrics, applied.append)
    asked.set()
    configuration.look(metrics, applied.append)
    assert applied == ["2", "3", "3"]
    assert metrics.registry.get_sample_value("foreshock_sidecar_config_reload_failures_total") == 1

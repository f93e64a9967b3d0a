"""Running programs for what they print: ordinary ones, and the fabric's tools on a simulated fabric."""

import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest
from real.opensm import PACKAGES, fabric, node_guid
from real.patience import patience
from real.programs import need, wait_for

from collectors.collector import CollectorTurn, SourceError, SourceSettings
from collectors.sources import exec as exec_source
from collectors.sources.exec import Command, CommandOutcome, ExecCollector
from store.records.event import Event

SETTINGS = SourceSettings(node="gpu-017", interval_s=0.0001, timeout_s=patience(20.0))


def xid(pid: int) -> str:
    """A kernel line that is one event."""
    return f"2025-03-01T04:05:06Z gpu-017 kernel: NVRM: Xid (PCI:0000:0f:00): 79, pid={pid}, name=x, GPU fell off."


class Runner:
    """Runs a program once a call; positions go through JSON, as the spool's do."""

    def __init__(self, spec: str, settings: SourceSettings = SETTINGS) -> None:
        self.spec, self.settings = spec, settings
        self.position: Any = None
        self.last = CollectorTurn()
        self.collector = ExecCollector(spec, settings)
        self.collector.open(None)

    def restart(self) -> None:
        """Begin anew where it was saved."""
        self.collector.close()
        self.collector = ExecCollector(self.spec, self.settings)
        self.collector.open(self.position)

    def run(self) -> list[Event]:
        """The events of one run."""
        deadline = time.monotonic() + patience(30)
        while time.monotonic() < deadline:
            self.last = self.collector.collect(1.0)
            if self.last.position is not None:
                self.position = orjson.loads(orjson.dumps(self.last.position))
                return list(self.last.events)
        raise AssertionError("no run ended")


@pytest.fixture
def make() -> Iterator[Callable[..., Runner]]:
    """Makes runners, and ends them."""
    made: list[Runner] = []

    def runner(spec: str, settings: SourceSettings = SETTINGS) -> Runner:
        made.append(Runner(spec, settings))
        return made[-1]

    yield runner
    for one in made:
        one.collector.close()


def finished(words: list[str]) -> CommandOutcome:
    """A program's outcome."""
    running = Command(words, patience(20.0))
    outcome = running.wait(patience(30.0))
    assert outcome is not None
    return outcome


def test_what_is_printed_is_decoded_and_told_once(make: Callable[..., Runner], tmp_path: Path) -> None:
    """Every run prints the whole; only what is new is an event, also after a restart."""
    log = tmp_path / "log"
    log.write_text(f"{xid(1)}\n{xid(2)}\n")
    runner = make(f"kernel:cat {log}")
    assert [event.attributes["pid"] for event in runner.run()] == [1, 2]
    assert runner.last.lines == 2
    assert runner.run() == []
    runner.restart()
    log.write_text(f"{xid(2)}\n{xid(3)}\n")
    assert [event.attributes["pid"] for event in runner.run()] == [3]


def test_words_are_split_as_a_shell_does_and_no_shell_runs_them(make: Callable[..., Runner]) -> None:
    """Quotes hold words together; a semicolon and a dollar are nothing special."""
    runner = make(f"kernel:printf '%s\\n' '{xid(1)}; touch /nowhere/$HOME'")
    assert [event.attributes["pid"] for event in runner.run()] == [1]
    asked = make(f"""kernel:sh -c 'for i in 1 2; do echo "{xid(0).replace("pid=0", "pid=$i")}"; done'""")
    assert [event.attributes["pid"] for event in asked.run()] == [1, 2]


def test_a_program_has_a_clean_environment_and_the_lowest_priority(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tokens of ours are none of its business, and training goes first."""
    monkeypatch.setenv("FORESHOCK_TOKEN", "secret")
    monkeypatch.setenv("LD_PRELOAD", "")
    assert b"secret" not in finished(["env"]).output
    # Both are set once it runs: it waits for them, or until its time is up.
    code = (
        "import os, time\n"
        "while (os.nice(0), os.sched_getscheduler(0)) != (19, os.SCHED_IDLE): time.sleep(0.01)\n"
        "print(os.getcwd())"
    )
    assert finished([sys.executable, "-c", code]) == CommandOutcome(b"/\n", None)


def test_a_program_that_takes_too_long_is_ended_with_all_that_it_started(tmp_path: Path) -> None:
    """Its children too; what it printed is kept."""
    assert Command(["sleep", "600"], 0.1).wait(patience(30)) == CommandOutcome(
        b"", "took longer than 0.1 s and was ended"
    )
    child = tmp_path / "child"
    running = Command(["sh", "-c", f"echo first; sleep 600 & echo $! > {child}.new; mv {child}.new {child}; wait"], 600)
    wait_for("it has printed, and started another", lambda: running.wait(0.02) is None and child.exists())
    running._until = time.monotonic()
    assert running.wait(patience(30)) == CommandOutcome(b"first\n", "took longer than 600 s and was ended")
    pid = int(child.read_text())
    wait_for("its child has ended", lambda: not _runs(pid))


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_a_program_that_leaves_a_child_with_its_output_is_over_when_it_ends() -> None:
    """As a daemon that a wrapper starts: were it waited for, it would take too long."""
    assert finished(["sh", "-c", "echo whole; sleep 3000 &"]) == CommandOutcome(b"whole\n", None)


def test_output_without_end_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """`yes` stands for a tool gone mad."""
    monkeypatch.setattr(exec_source, "MOST_OUTPUT_BYTES", 2**20)
    outcome = finished(["yes"])
    assert len(outcome.output) == 2**20
    assert outcome.trouble == "wrote more than 1 MiB and was ended"


@pytest.mark.parametrize(
    ("script", "trouble"),
    [
        ("echo no such fabric >&2; exit 3", "ended with status 3: no such fabric"),
        ("exit 1", "ended with status 1"),
        ("kill -9 $$", "was ended by signal 9"),
        ("head -c 300000 /dev/zero >&2; exit 4", "ended with status 4"),
    ],
)
def test_how_it_ended_is_told_in_its_own_words(script: str, trouble: str) -> None:
    """The last line of what it said; errors without end fill no memory."""
    told = finished(["sh", "-c", script]).trouble
    assert told is not None
    assert told.startswith(trouble)
    assert len(told) < 400


def test_failures_are_counted_and_one_that_stays_is_an_event(make: Callable[..., Runner], tmp_path: Path) -> None:
    """As of an exporter that does not answer; a run that prints something is none, whatever its status."""
    log = tmp_path / "log"
    runner = make(f"kernel:cat {log}")
    assert runner.run() == []
    assert runner.last.errors == 1
    runner.restart()
    [down] = runner.run()
    assert (down.kind, down.severity, down.source, down.node) == ("exporter_down", "warning", "exec", "gpu-017")
    assert "No such file" in down.message
    assert runner.run() == []
    log.write_text(f"{xid(1)}\n")
    assert [event.kind for event in runner.run()] == ["exporter_up", "xid"]
    mixed = make(f"kernel:sh -c 'echo \"{xid(9)}\"; exit 2'")
    assert [event.kind for event in mixed.run()] == ["xid"]
    assert mixed.last.errors == 0, "so some tools tell that they found something"
    complaining = make(f"kernel:sh -c 'echo \"{xid(9)}\"; echo half of it >&2; exit 2'")
    assert [event.kind for event in complaining.run()] == ["xid"]
    assert complaining.last.errors == 1


def test_counters_beyond_what_is_followed_are_told_once(
    make: Callable[..., Runner], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also over a restart; what is followed is followed on."""
    monkeypatch.setattr("collectors.decoder.MOST_COUNTERS", 1)
    printed = tmp_path / "printed"
    head = 'Errors for 0x506b4b0300c5b2a4 "leaf-01"\n   GUID 0x506b4b0300c5b2a4 port 3: '
    line = head + "[SymbolErrorCounter == {}] [LinkDownedCounter == 2]\n"
    printed.write_text(line.format(5))
    runner = make(f"ibqueryerrors:cat {printed}")
    assert [(event.kind, "1 counter is not" in event.message) for event in runner.run()] == [
        ("measures_left_out", True)
    ]
    runner.restart()
    printed.write_text(line.format(8))
    assert [(event.kind, event.attributes["count"]) for event in runner.run()] == [("counter", 3)]


def test_a_stop_ends_the_program(make: Callable[..., Runner]) -> None:
    """And never waits for it: a turn is short, however long the program runs."""
    runner = make("kernel:sleep 3000")
    assert runner.collector.collect(0.01) == CollectorTurn()
    running = runner.collector._running
    assert running is not None
    runner.collector.close()
    assert running._process.returncode == -9


@pytest.mark.parametrize(
    ("rest", "message"),
    [
        ("", "names no program"),
        ("kernel", "names no program"),
        ("kernel:  ", "names no program"),
        ("kernle:dmesg", "'kernle' is no format"),
        ("dcgm:curl x", "'dcgm' is no format of a program's output"),
        ("kernel:echo 'x", "cannot be split"),
    ],
)
def test_a_spec_that_says_nothing_runnable_is_refused(rest: str, message: str) -> None:
    """With what to write."""
    with pytest.raises(SourceError, match=message):
        ExecCollector(rest, SETTINGS)


def test_a_program_that_is_not_there_is_refused_with_a_remedy() -> None:
    """When it is opened: it may be installed later."""
    with pytest.raises(SourceError, match="give its whole path"):
        ExecCollector("sinfo:no-such-program-here -R", SETTINGS).open(None)


@pytest.mark.integration
def test_the_fabrics_own_tools_tell_increases(make: Callable[..., Runner], tmp_path: Path) -> None:
    """The real ibqueryerrors and perfquery, on a fabric that ibsim simulates, while counters rise and are cleared."""
    tools = {tool: need(tool, PACKAGES) for tool in ("ibqueryerrors", "perfquery")}
    with fabric(tmp_path) as sim:
        told = {**sim.environment, "SIM_HOST": "H-0000000000100040"}
        words = " ".join(f"{key}={told[key]}" for key in ("LD_PRELOAD", "IBSIM_SOCKNAME", "SIM_HOST"))
        sim.count("host03", 1, PortRcvErrors=70)
        sim.count("leaf01", 2, SymbolErrorCounter=100)
        whole = make(f"ibqueryerrors:env {words} {tools['ibqueryerrors']} -s PortXmitWait")
        lid = sim._lid("host03")
        one = make(f"perfquery:env {words} {tools['perfquery']} {lid} 1")
        assert whole.run() == one.run() == [], "where they stand is no increase"
        assert whole.last.lines > 0
        assert whole.last.errors == 0
        sim.count("host03", 1, PortRcvErrors=77)
        sim.count("leaf01", 2, SymbolErrorCounter=100, LinkDownedCounter=1)
        whole.restart()
        rises = whole.run()
        assert {(e.device.uuid, e.device.port, e.attributes["counter"], e.attributes["count"]) for e in rises} == {
            (f"0x{int(node_guid('host03'), 16) + 1:016x}", 1, "PortRcvErrors", 7),
            (node_guid("leaf01"), 2, "LinkDownedCounter", 1),
        }
        assert all(event.time is not None for event in rises)
        assert [(e.attributes["counter"], e.attributes["count"]) for e in one.run()] == [("PortRcvErrors", 7)]
        sim.count("host03", 1, PortRcvErrors=2)
        assert [e.attributes["count"] for e in whole.run()] == [2]
        assert whole.run() == []
    assert os.environ.get("SIM_HOST") is None

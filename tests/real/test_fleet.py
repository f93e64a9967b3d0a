"""The fleet's starter: programs are killed, frozen, started again, and none is left behind."""

import os
import signal
import sys
from pathlib import Path

import pytest
from real.fleet import Program, children, cpu_s, fleet, resident_mb
from real.programs import wait_for

_COUNTS = "import subprocess, sys, time; subprocess.Popen(['sleep', '60']); print('up', flush=True); time.sleep(60)"


def _state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def test_a_killed_program_is_started_again_and_its_log_goes_on(tmp_path: Path) -> None:
    """What runs is left alone."""
    with fleet(tmp_path) as programs:
        program = programs.add(Program("sleeper", ["sleep", "60"], tmp_path / "sleeper.log"))
        first = program.pid
        assert programs.revive() == []
        program.kill()
        assert not program.alive()
        assert programs.revive() == [program]
        assert program.pid != first
        assert program.alive()
        assert resident_mb(program.pid) > 0
        assert cpu_s(program.pid) >= 0
        last = program.pid
    with pytest.raises(ProcessLookupError):
        os.kill(last, 0)
    assert program.log.read_text() == "--- start 1\n--- start 2\n"
    assert "sleeper, 2 starts" in programs.tail()


def test_a_frozen_program_stands_still_with_its_children(tmp_path: Path) -> None:
    """Until it is thawed."""
    with fleet(tmp_path) as programs:
        program = programs.add(Program("parent", [sys.executable, "-c", _COUNTS], tmp_path / "parent.log"))
        wait_for("it is up", lambda: "up" in program.log.read_text())
        (child,) = children(program.pid)
        program.freeze()
        wait_for("both stand", lambda: (_state(program.pid), _state(child)) == ("T", "T"))
        program.thaw()
        wait_for("both go on", lambda: "T" not in (_state(program.pid), _state(child)))
        os.kill(child, signal.SIGKILL)


def test_a_test_that_breaks_off_leaves_no_program(tmp_path: Path) -> None:
    """By an error or by SIGTERM."""
    pids = []
    for trouble in (lambda: 1 / 0, lambda: os.kill(os.getpid(), signal.SIGTERM)):
        with pytest.raises((ZeroDivisionError, KeyboardInterrupt)), fleet(tmp_path) as programs:
            pids.append(programs.add(Program("sleeper", ["sleep", "60"], tmp_path / "sleeper.log")).pid)
            trouble()
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)

"""A clock that is stepped by hours, the sidecar's or the server's: neither loses a line nor stores one twice."""

import os
import shutil
import struct
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest
from crash.feeds import Load
from crash.scene import LONG, NODE, ROUNDS, feeds_in, settle, sources_of
from real.fleet import fleet
from real.fleet_postgres import fleet_postgres
from real.programs import missing

pytestmark = [pytest.mark.crash, pytest.mark.integration, pytest.mark.xdist_group("crash")]

SOURCE = Path(__file__).with_name("step_clock.c")
HOURS = (5, -7, 0, 30, -30) if ROUNDS >= 20 else (5, -7)


class StepClock:
    """A wall clock that the test sets, for the programs that are started with `environment`."""

    def __init__(self, folder: Path) -> None:
        compiler = shutil.which("gcc") or shutil.which("cc")
        if compiler is None:
            missing("no C compiler: apt-get install gcc")
        library, self._file = folder / "step_clock.so", folder / "step_clock"
        command = [str(compiler), "-O2", "-shared", "-fPIC", "-o", str(library), str(SOURCE), "-ldl"]
        subprocess.run(command, check=True, capture_output=True)
        self._file.write_bytes(struct.pack("=q", 0))
        self.environment = {"LD_PRELOAD": str(library), "STEP_CLOCK": str(self._file)}

    def step(self, hours: float) -> None:
        """The clock is off by so much from now on."""
        with self._file.open("r+b") as file:
            file.write(struct.pack("=q", round(hours * 3600)))


def test_the_clock_is_stepped_while_a_program_runs(tmp_path: Path) -> None:
    """Its wall clock alone."""
    clock = StepClock(tmp_path)
    script = "import time\nwhile True:\n input()\n print(time.time(), time.monotonic(), flush=True)"
    command = [sys.executable, "-c", script]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=os.environ | clock.environment
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for hours in (0, 5, -7):
            clock.step(hours)
            process.stdin.write("\n")
            process.stdin.flush()
            wall, monotonic = map(float, process.stdout.readline().split())
            assert wall - datetime.now(UTC).timestamp() == pytest.approx(3600 * hours, abs=60)
            assert abs(monotonic - time.monotonic()) < 60
        process.kill()


@pytest.mark.parametrize("whose", ["sidecar", pytest.param("server", marks=LONG)])
def test_every_line_is_stored_once_though_a_clock_is_stepped(tmp_path: Path, whose: str) -> None:
    """Forth and back, with a kill -9 of either in between, so that what was read or sent is read or sent again."""
    clock, feeds = StepClock(tmp_path), feeds_in(tmp_path)
    with fleet(tmp_path) as programs, fleet_postgres(programs) as database:
        stepped, straight = (clock.environment, {}) if whose == "server" else ({}, clock.environment)
        server = programs.server(database.url, **stepped)
        agent = programs.sidecar([server.url], NODE, *sources_of(feeds), **straight)
        with Load(feeds, seed=1):
            for number, hours in enumerate(HOURS):
                time.sleep(0.7)
                clock.step(hours)
                time.sleep(0.7)
                (agent if number % 2 else server).kill()
                programs.revive()
        settle(programs, feeds, database.rows, f"the clock of the {whose} jumps by hours", len(HOURS))

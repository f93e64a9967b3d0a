"""Processor seconds of a program and of a database's sessions: other work changes them less than the clock's.

before = sessions_s(postmaster)
...
took_s = grown_s(before, sessions_s(postmaster))

spent(["foreshock", "backtest", ...])      # wall and processor seconds and memory of a command, with its workers'
"""

import os
import subprocess
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")
_PARENT, _USER, _SYSTEM = 1, 11, 12  # fields of /proc/PID/stat behind the program's name


def program_s(pid: int) -> float:
    """What a program has spent, all its threads; 0.0 once it is gone."""
    fields = _fields(pid)
    return 0.0 if fields is None else _spent_s(fields)


def sessions_s(parent: int) -> dict[int, float]:
    """What each child of a program has spent, by its number."""
    found = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and (fields := _fields(int(entry.name))) and int(fields[_PARENT]) == parent:
            found[int(entry.name)] = _spent_s(fields)
    return found


def grown_s(before: Mapping[int, float], after: Mapping[int, float]) -> float:
    """How much was spent in between, by those still there: what a session took with it when it ended is not known."""
    return sum(spent - before.get(pid, 0.0) for pid, spent in after.items())


def threads_s(pid: int) -> dict[int, float]:
    """What each thread of a program has spent, by its number: to the nanosecond, where `program_s` counts hundredths of
    a second."""
    found = {}
    for thread in Path(f"/proc/{pid}/task").iterdir():
        found[int(thread.name)] = int((thread / "schedstat").read_text().split()[0]) / 1e9
    return found


def family_s(pid: int) -> float:
    """What a program and those of its children that are still there have spent."""
    return sum(program_s(each) for each in _family(pid))


def _fields(pid: int) -> list[str] | None:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None


def _spent_s(fields: list[str]) -> float:
    return (int(fields[_USER]) + int(fields[_SYSTEM])) / _TICKS


_SAMPLE_S = 0.005


@dataclass(frozen=True, slots=True)
class CommandCost:
    """Seconds by the clock and of the processor; the sum of the most that each process ever had resident, and the
    largest of these."""

    took_s: float
    processor_s: float
    peak_mb: float
    largest_mb: float


def spent(command: list[str]) -> CommandCost:
    """Run a command, its output thrown away, and look at all of its processes meanwhile.

    Raises:
        CalledProcessError: it failed.
    """
    most_kb: dict[int, int] = {}
    used_s: dict[int, float] = {}
    began = time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        watcher = threading.Thread(target=_watch, args=(process, most_kb, used_s))
        watcher.start()
        process.wait()
        took_s = time.perf_counter() - began
        watcher.join()
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command)
    largest = max(most_kb.values(), default=0)
    return CommandCost(took_s, sum(used_s.values()), sum(most_kb.values()) / 1024, largest / 1024)


def _watch(process: "subprocess.Popen[bytes]", most_kb: dict[int, int], used_s: dict[int, float]) -> None:
    while process.poll() is None:
        for pid in _family(process.pid):
            try:
                status = Path(f"/proc/{pid}/status").read_text()
            except OSError:
                continue
            used_s[pid] = program_s(pid) or used_s.get(pid, 0.0)
            for line in status.splitlines():
                if line.startswith("VmHWM:"):
                    most_kb[pid] = int(line.split()[1])
        time.sleep(_SAMPLE_S)


def _family(pid: int) -> list[int]:
    """A process and its children's children."""
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return [pid]
    return [pid, *(each for child in children for each in _family(int(child)))]

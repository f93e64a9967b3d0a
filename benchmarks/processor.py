"""Processor seconds of a program and of a database's sessions: other work changes them less than the clock's.

before = sessions_s(postmaster)
...
took_s = grown_s(before, sessions_s(postmaster))
"""

import os
from collections.abc import Mapping
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


def _fields(pid: int) -> list[str] | None:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None


def _spent_s(fields: list[str]) -> float:
    return (int(fields[_USER]) + int(fields[_SYSTEM])) / _TICKS

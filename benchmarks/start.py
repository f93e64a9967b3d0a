"""Processor time of the `--help` of every command, against a Python program that imports click and prints its help.

Each command runs in a process of its own, in turn with the other program; the median of each, the slowest command.
"""

import resource
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import median

import click

from benchmarks.result import Result
from cli.main import COMMANDS, foreshock

WHAT = "`foreshock ANY --help`, the slowest of all commands and their subcommands (`start`)"
BUDGET = "< 0.3 s of processor time"
LIMIT_S = 0.3
RUNS = 5
_OTHER = (sys.executable, "-c", "import click; click.Command('x', help='y')(['--help'])")


def measure(_folder: Path) -> Result:
    """The slowest command's median against a bare click program's."""
    words = [("foreshock", *path) for path in _paths()]
    spent = {path: median(_processor_s((sys.executable, "-m", *path, "--help")) for _ in range(RUNS)) for path in words}
    other = median(_processor_s(_OTHER) for _ in range(RUNS))
    slowest = max(spent, key=lambda path: spent[path])
    return Result(
        WHAT,
        BUDGET,
        f"{spent[slowest]:.2f} s ({' '.join(slowest)})",
        f"{other:.2f} s (a program of click alone)",
        spent[slowest] / other,
        "met" if spent[slowest] < LIMIT_S else "not met",
        f"{len(words)} commands, median of all {median(spent.values()):.2f} s",
    )


def _paths() -> list[tuple[str, ...]]:
    """Every command and subcommand."""
    context = click.Context(foreshock)
    found: list[tuple[str, ...]] = []
    for name in sorted(COMMANDS):
        command = foreshock.get_command(context, name)
        found.append((name,))
        if isinstance(command, click.Group):
            found += [(name, inner) for inner in command.list_commands(click.Context(command))]
    return found


def _processor_s(command: Sequence[str]) -> float:
    """What a program takes of the processors, in user and system mode."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime

"""Decoding a kernel log of which one line in a thousand is a fault, against ripgrep selecting the same lines.

Whole processes, in turn, over a log that is in the page cache; medians. ripgrep has one thread a file and maps it.
"""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from statistics import median

from real.programs import need

from benchmarks import kernel_log
from benchmarks.processor import spent
from benchmarks.result import Result, seconds

WHAT = "decode 1 GB of kernel log, 0.1 % fault lines, whole process"
BUDGET = "<= 1 x `rg -c` with 30 patterns of the same lines"
SIZE_GB = 1.0
# Cost is linear where it grows by no more than this when the log does.
SIZES_GB = (0.1, 0.5, 1.0, 2.0)
LINEAR = 2.1
RUNS = 5
# What a plain loop is shown.
LOOP_GB = 0.05
MEMORY_MB = 250
_LOOP = """
import re, sys
search = re.compile("|".join(open(sys.argv[1]).read().splitlines()).encode()).search
print(sum(1 for line in open(sys.argv[2], "rb") if search(line)))
"""


def measure(folder: Path) -> Iterator[Result]:
    """Time against ripgrep and a plain loop, then memory, then the cost of other sizes."""
    log, rules = folder / "kern.log", folder / "patterns.txt"
    kernel_log.write(log, int(SIZE_GB * 1e9))
    rules.write_text("\n".join(kernel_log.patterns()) + "\n")
    searched = [need("rg", "ripgrep"), "-c", "-f", str(rules), str(log)]
    ours, theirs = in_turn(parse_command(log), searched)
    part = folder / "part.log"
    kernel_log.write(part, int(LOOP_GB * 1e9))
    loop = [sys.executable, "-c", _LOOP, str(rules), str(part)]
    looped = seconds(lambda: subprocess.run(loop, check=True, capture_output=True))
    yield Result(
        WHAT,
        BUDGET,
        _rate(ours, SIZE_GB),
        _rate(theirs, SIZE_GB),
        ours / theirs,
        "met" if ours <= theirs else "not met",
        f"{_counted(log, searched)}; Python's `re` in a loop over lines: {LOOP_GB / looped * 1000:.0f} MB/s",
    )
    peak, rg_peak = spent(parse_command(log)).peak_mb, spent(searched).peak_mb
    yield Result(
        "the same, peak memory of all its processes",
        f"<= {MEMORY_MB} MB",
        f"{peak:.0f} MB",
        f"{rg_peak:.0f} MB (it maps the file)",
        peak / rg_peak,
        "met" if peak <= MEMORY_MB else "not met",
        "resident; shared pages counted in each process",
    )
    yield _growth(log)


def parse_command(log: Path, format_name: str = "kernel") -> list[str]:
    return [str(Path(sys.executable).parent / "foreshock"), "parse", format_name, str(log)]


def in_turn(*commands: list[str]) -> list[float]:
    """The median time of each command, run in turn: what else the machine does befalls all."""
    times: list[list[float]] = [[] for _ in commands]
    for _ in range(RUNS):
        for each, command in zip(times, commands, strict=True):
            each.append(seconds(lambda: subprocess.run(command, check=True, stdout=subprocess.DEVNULL)))  # noqa: B023  # called at once
    return [median(each) for each in times]


def _counted(log: Path, searched: list[str]) -> str:
    """That both find the same: an event may be of several lines, never of one that ripgrep passes over."""
    events = subprocess.run(parse_command(log), check=True, capture_output=True).stdout.count(b"\n")
    selected = int(subprocess.run(searched, check=True, capture_output=True).stdout)
    return f"{events} events, {selected} lines selected by rg"


def _growth(log: Path) -> Result:
    """The time of every size; linear where the last steps cost what they should."""
    times: dict[float, float] = {}
    for size_gb in SIZES_GB:
        kernel_log.write(log, int(size_gb * 1e9))
        times[size_gb] = in_turn(parse_command(log))[0]
    growth = times[2.0] / times[1.0]
    peak = spent(parse_command(log)).peak_mb
    return Result(
        "the same, cost of other sizes",
        f"2 GB <= {LINEAR} x 1 GB",
        ", ".join(f"{size_gb} GB {taken:.2f} s" for size_gb, taken in times.items()),
        "-",
        growth,
        "met" if growth <= LINEAR and peak <= MEMORY_MB else "not met",
        f"the ratio is of 2 GB to 1 GB; {peak:.0f} MB at 2 GB",
    )


def _rate(taken: float, size_gb: float) -> str:
    return f"{taken:.2f} s ({size_gb * 1000 / taken:.0f} MB/s)"

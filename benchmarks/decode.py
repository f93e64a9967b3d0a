"""What a line costs that the search has found: of every family, near misses, and a log of which a tenth is such lines.

A family's lines are those of its fixtures that are an event by themselves; once as they are, once with every number
changed from line to line, so that no text comes twice. Processor time of one process.
"""

import random
import re
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median

from real.programs import need

from benchmarks import kernel_log
from benchmarks.result import Result
from benchmarks.scan import RUNS, in_turn, parse_command
from parsers.formats.kernel import KernelParser
from parsers.kernel_messages.decoder import readings
from parsers.text.parser import Context, decode
from parsers.text.prefix import PrefixReader
from parsers.text.stamp import Stamps

WHAT = "decode one line of the kernel log"
BUDGET = "fault <= 15 us, near miss <= 3 us"
FAULT_US = 15.0
NEAR_US = 3.0
LINES = 20_000
# Families of which the fixtures hold fewer lines say little.
FEWEST = 5
SHARE = 0.1
SIZE_GB = 0.1
RG_RATIO = 1.5
_NUMBER = re.compile(r"(?<=\d)\d(?!\d)", re.ASCII)


def measure(folder: Path) -> Iterator[Result]:
    """Each family, near misses, then a whole log beside ripgrep."""
    families = _messages_by_family()
    for what, changed in (("the same texts again and again", False), ("no text twice", True)):
        costs = {name: _cost_us(texts, changed) for name, texts in families.items()}
        slowest = max(costs, key=lambda name: costs[name])
        yield Result(
            f"{WHAT}: a fault, {what}",
            f"<= {FAULT_US:.0f} us of processor time, any family",
            f"median {median(costs.values()):.1f} us, most {costs[slowest]:.1f} us ({slowest})",
            "-",
            None,
            "met" if costs[slowest] <= FAULT_US else "not met",
            f"{len(costs)} families, {LINES} lines each, ISO times; xid {costs['xid']:.1f} us",
        )
        near = _cost_us([text.format(n=17, h="3b") for text in kernel_log.near_misses()], changed)
        yield Result(
            f"{WHAT}: a near miss, {what}",
            f"<= {NEAR_US:.0f} us of processor time",
            f"{near:.1f} us",
            "-",
            None,
            "met" if near <= NEAR_US else "not met",
            "lines with a sign that tell of no fault",
        )
    yield _whole_log(folder)


def _messages_by_family() -> dict[str, list[str]]:
    """The kernel's messages in the fixtures that are one event, by the family that reads them."""
    reader = PrefixReader(Stamps(Context(year=2026)))
    found: dict[str, dict[str, None]] = {}
    for path in sorted(kernel_log.FIXTURES.glob("*.log")):
        for record in map(reader.read, path.read_text().splitlines()):
            if not record.from_kernel():
                continue
            for message, reading in readings(record.message, None):
                if reading is not None:
                    found.setdefault(reading[0].name, {})[message] = None
    return {name: list(texts) for name, texts in found.items() if len(texts) >= FEWEST}


def _cost_us(messages: Sequence[str], changed: bool) -> float:
    """Processor time a line, the least of three."""
    chance = random.Random(1)  # noqa: S311  # a seed gives the same lines each time
    lines = []
    for number in range(LINES):
        text = messages[number % len(messages)]
        if changed:
            text = _NUMBER.sub(lambda _match: str(chance.randrange(10)), text)
        second = number // 3  # some lines a second, as in a storm of one node
        clock = f"{second // 3600:02d}:{second // 60 % 60:02d}:{second % 60:02d}.{number % 1_000_000:06d}"
        lines.append((number + 1, f"2025-03-01T{clock}+00:00 gpu-017 kernel: {text}"))
    best = float("inf")
    for _ in range(3):
        parser = KernelParser(Context())
        began = time.process_time()
        for _event in decode(parser, lines):
            pass
        best = min(best, time.process_time() - began)
    return best / LINES * 1e6


def _whole_log(folder: Path) -> Result:
    """`foreshock parse` of a log with many such lines, half of them faults, against ripgrep in turn."""
    log, rules = folder / "kern.log", folder / "patterns.txt"
    kernel_log.write(log, int(SIZE_GB * 1e9), faults=SHARE / 2, near=SHARE / 2)
    rules.write_text("\n".join(kernel_log.patterns()) + "\n")
    searched = [need("rg", "ripgrep"), "-c", "-f", str(rules), str(log)]
    ours, theirs = in_turn(parse_command(log), searched)
    selected = int(subprocess.run(searched, check=True, capture_output=True).stdout)
    return Result(
        f"`foreshock parse` of {SIZE_GB * 1000:.0f} MB of which {SHARE:.0%} of lines bear a sign",
        f"<= {RG_RATIO} x `rg -c` with 30 patterns",
        f"{ours:.2f} s",
        f"{theirs:.2f} s",
        ours / theirs,
        "met" if ours <= RG_RATIO * theirs else "not met",
        f"{selected} lines bear a sign, half of them are faults; {ours / selected * 1e6:.1f} us each, whole processes; "
        f"medians of {RUNS} alternating runs",
    )

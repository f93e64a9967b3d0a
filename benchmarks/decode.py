"""Decoding a kernel log of which one line in a thousand is a fault, against ripgrep counting the same literals."""

import random
import subprocess
import sys
from pathlib import Path

from real.programs import need

from benchmarks.result import Result, best
from parsers.kernel import SIGNS

WHAT = "decode a kernel log, 0.1 % fault lines, whole process"
BUDGET = "<= 1 x `rg -c` of the same literals"
SIZE_BYTES = 200_000_000
_QUIET = (
    "kernel: usb 1-{n}: new high-speed USB device number {n} using xhci_hcd",
    "kernel: EXT4-fs (nvme{n}n1p2): mounted filesystem with ordered data mode. Quota mode: none.",
    'kernel: audit: type=1400 audit(1740801906.{n}:42): apparmor="STATUS" operation="profile_load" pid={n}',
    "systemd[1]: Started session-{n}.scope - Session {n} of User root.",
)
_FAULT = "kernel: NVRM: Xid (PCI:0000:{n:02x}:00): {code}, pid={n}, name=python, GPU has fallen off the bus."


def measure(folder: Path) -> Result:
    """Write the log, then time both; the file is in the page cache for both."""
    log = folder / "kern.log"
    _write(log)
    literals = [word for sign in SIGNS for word in ("-e", sign)]
    searched = [need("rg", "ripgrep"), "-c", "-F", *literals, str(log)]
    theirs = best(lambda: subprocess.run(searched, check=True, capture_output=True))
    decoded = [str(Path(sys.executable).parent / "foreshock"), "parse", "kernel", str(log)]
    with (folder / "events.jsonl").open("wb") as out:
        ours = best(lambda: subprocess.run(decoded, check=True, stdout=out), times=1)
    mb = log.stat().st_size / 1e6
    return Result(
        WHAT,
        BUDGET,
        f"{ours:.2f} s ({mb / ours:.0f} MB/s)",
        f"{theirs:.3f} s ({mb / theirs:.0f} MB/s)",
        ours / theirs,
        "met" if ours <= theirs else "not met",
        f"{mb:.0f} MB; the budget names 1 GB",
    )


def _write(log: Path) -> None:
    """A block of lines over and over: it is their bytes that count."""
    chance = random.Random(7)  # noqa: S311  # a seed gives the same log each time
    lines = []
    for number in range(20_000):
        text = _FAULT if number % 1000 == 500 else chance.choice(_QUIET)
        filled = text.format(n=chance.randrange(1, 250), code=chance.choice((13, 31, 43, 48, 79)))
        clock = f"{number // 3600 % 24:02d}:{number // 60 % 60:02d}:{number % 60:02d}"
        lines.append(f"2025-03-01T{clock}.000000+00:00 gpu-017 {filled}\n")
    block = "".join(lines).encode()
    with log.open("wb") as file:
        for _ in range(SIZE_BYTES // len(block)):
            file.write(block)

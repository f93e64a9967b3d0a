"""A kernel log of any size, one line in a thousand a fault of some family, and the patterns that select these lines.

The quiet lines are what a GPU node says all day, near misses among them: a link that is up, a file system that is
mounted, a driver that loads. The faults are the lines of `fixtures/kernel`, whatever families are there.
"""

import os
import random
import re
from collections.abc import Iterator
from pathlib import Path

from parsers.formats.kernel import SIGNS, KernelParser
from parsers.text.parser import Context, ParseError
from store.records.event import Event

FIXTURES = Path(__file__).parents[1] / "fixtures/kernel"
FAULT_SHARE = 0.001
NEAR_SHARE = 0.0001
PATTERNS = 30
UNIT_LINES = 250_000
_SEED = 7
_QUIET = (
    "kernel: usb 1-{n}: new high-speed USB device number {n} using xhci_hcd",
    "kernel: EXT4-fs (nvme{n}n1p2): mounted filesystem with ordered data mode. Quota mode: none.",
    'kernel: audit: type=1400 audit(1740801906.{n}:42): apparmor="STATUS" operation="profile_load" pid={n}',
    "kernel: nvidia-uvm: Loaded the UVM driver, major device number {n}.",
    "kernel: docker0: port {n}(veth{n}ab) entered forwarding state",
    "kernel: nvme nvme{n}: 128/0/0 default/read/poll queues",
    "kernel: mlx5_core 0000:{h}:00.0: E-Switch: Disable: mode(LEGACY), nvfs({n}), necvfs(0), active vports(0)",
    "kernel: Lustre: Mounted scratch{n}-client",
    "kernel: perf: interrupt took too long (25{n} > 2500), lowering kernel.perf_event_max_sample_rate to 7{n}00",
    "kernel: IPv6: ADDRCONF(NETDEV_CHANGE): eth{n}: link becomes ready",
    "systemd[1]: Started session-{n}.scope - Session {n} of User root.",
    "systemd-logind[8{n}]: New session {n} of user slurm.",
    "sshd[{n}12]: Accepted publickey for root from 10.0.{n}.7 port 4{n}2 ssh2: ED25519 SHA256:abcdefghijk{n}",
    "kubelet[{n}9]: I0301 04:05:06.{n} 1234 reconciler_common.go:251] operationExecutor.VerifyControllerAttachedVolume "
    "started for volume kube-api-access-{n}",
    "chronyd[{n}]: Selected source 10.1.{n}.1 (ntp{n}.example.org)",
    "slurmd[{n}7]: launch task StepId={n}11.0 request from UID:1{n} GID:1{n} HOST:10.0.{n}.1 PORT:5{n}0",
)
# Once a boot or after a fault: near misses, which bear a sign.
_NEAR = (
    "kernel: mlx5_core 0000:{h}:00.0 enp{n}s0f0np0: Link up",
    "kernel: pcieport 0000:{h}:01.0: AER: enabled with IRQ {n}",
    "kernel: Lustre: scratch-OST00{h}: Connection restored to 10.2.{n}.4@o2ib",
    "kernel: NVRM: loading NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar  5 22:23:56 UTC 2024",
)
_PREFIX = re.compile(r"(?:<\d{1,3}>|\[ *\d+\.\d+\] ?|kernel: )+")


def write(log: Path, size_bytes: int, faults: float = FAULT_SHARE, near: float = NEAR_SHARE) -> None:
    """The log: the same for the same fixtures. A unit of lines over and over, each time a day later."""
    unit = "".join(lines(faults, near)).encode()
    with log.open("wb") as file:
        day = 0
        while (left := size_bytes - file.tell()) > 0:
            text = unit.replace(b"2025-03-01T", b"2025-%02d-%02dT" % (1 + day // 28 % 12, 1 + day % 28))
            file.write(text if left > len(text) else text[: text.find(b"\n", left - 1) + 1])
            day += 1
        file.flush()
        os.fsync(file.fileno())  # else it is written to disk while others are measured


def lines(fault_share: float, near_share: float) -> Iterator[str]:
    """A day's lines with their ends, of which some share are faults and some near misses."""
    chance = random.Random(_SEED)  # noqa: S311  # a seed gives the same log each time
    faults = fault_messages()
    for number in range(UNIT_LINES):
        drawn = chance.random()
        if drawn < fault_share:
            text = f"kernel: {chance.choice(faults)}"
        else:
            quiet = chance.choice(_NEAR if drawn < fault_share + near_share else _QUIET)
            text = quiet.format(n=chance.randrange(1, 250), h=f"{chance.randrange(256):02x}")
        second = number * 86_400 // UNIT_LINES
        clock = f"{second // 3600:02d}:{second // 60 % 60:02d}:{second % 60:02d}.{number % 1_000_000:06d}"
        yield f"2025-03-01T{clock}+00:00 gpu-017 {text}\n"


def fault_messages() -> list[str]:
    """The messages of the fixtures that are an event by themselves."""
    known = [line for path in sorted(FIXTURES.glob("*.log")) for line in path.read_text().splitlines()]
    messages = dict.fromkeys(_PREFIX.sub("", line) for line in known)
    return [message for message in messages if len(_events(f"2025-03-01T00:00:00Z gpu-017 kernel: {message}")) == 1]


def _events(line: str) -> list[Event]:
    parser = KernelParser(Context())
    try:
        return [*parser.feed(line, 1), *parser.flush()]
    except ParseError:
        return []


def near_misses() -> tuple[str, ...]:
    """The messages of the near misses, with places for numbers."""
    return tuple(text.removeprefix("kernel: ") for text in _NEAR)


def patterns() -> list[str]:
    """All signs as regular expressions of ripgrep, as many as an operator might keep in a file."""
    parts = (SIGNS[part::PATTERNS] for part in range(min(PATTERNS, len(SIGNS))))
    return ["|".join(re.escape(sign).replace("\\ ", " ") for sign in part) for part in parts]

"""What a node's sources write during a crash test: every line bears a serial number, and what was written is known.

A line counts as written once the call that wrote it has returned. Kernel lines are Xid 31 with the serial as `pid`
and the feed's name as `name`; training lines are iterations.
"""

import hashlib
import os
import random
import threading
import time
from datetime import UTC, datetime
from io import FileIO
from pathlib import Path
from typing import Protocol

KMSG = Path("/dev/kmsg")
_XID = "NVRM: Xid (PCI:0000:{bus:02x}:00): 31, pid={serial}, name={name}, Ch 00000010, intr 00000000. MMU Fault"
_STEP = (
    " iteration {serial:8d}/99999999 | consumed samples: {serial:12d} | "
    "elapsed time per iteration (ms): 5000.0 | lm loss: 2.100000E+00 |\n"
)


class Feed(Protocol):
    """One source that is written to. `written` are the serials so far, `moments` when each was written (Unix time)."""

    name: str
    written: list[int]
    moments: list[float]

    def write(self, count: int) -> None:
        """Write so many lines."""

    def close(self) -> None:
        """Let go of the source."""


def checksum(serials: list[int]) -> str:
    """The SHA-256 of serials in their order."""
    return hashlib.sha256(" ".join(map(str, sorted(serials))).encode()).hexdigest()


class KernelLog:
    """A syslog file that is rotated: renamed away (its writer still holds it open for some lines) and begun anew."""

    def __init__(self, path: Path, name: str) -> None:
        self.path = path
        self.name = name
        self.written: list[int] = []
        self.moments: list[float] = []
        self._file: FileIO | None = None

    def write(self, count: int) -> None:
        """Lines of eight GPUs; the first is written in two halves, as a writer's buffer may cut it."""
        first = len(self.written)
        stamp = datetime.now(UTC).isoformat(timespec="microseconds")
        texts = [_XID.format(bus=n % 8 + 1, serial=n, name=self.name) for n in range(first, first + count)]
        data = "".join(f"{stamp} gpu-017 kernel: {text}\n" for text in texts).encode()
        file = self._opened()
        file.write(data[:70])
        file.write(data[70:])
        self.written += range(first, first + count)
        self.moments += [time.time()] * count

    def close(self) -> None:
        """Let go of the file; the next line opens it anew."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def rotate(self) -> None:
        """As logrotate does with `create`: rename, then the writer is told to open its file again."""
        self.path.rename(self._old_name())
        self.write(5)
        self.close()
        self.path.touch()

    def copytruncate(self) -> None:
        """As logrotate does with `copytruncate`; nothing is written meanwhile, or it would be lost by nature."""
        self._old_name().write_bytes(self.path.read_bytes())
        os.truncate(self.path, 0)

    def _old_name(self) -> Path:
        """By its date, as logrotate's `dateext` does."""
        return self.path.with_name(f"{self.path.name}-{datetime.now(UTC):%Y%m%d-%H%M%S.%f}")

    def _opened(self) -> FileIO:
        if self._file is None:
            self._file = self.path.open("ab", buffering=0)
        return self._file


class TrainingLog:
    """Rank 0's log: iterations, every other line without a time of its own."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.name = path.stem
        self.written: list[int] = []
        self.moments: list[float] = []

    def write(self, count: int) -> None:
        """One iteration a line."""
        first = len(self.written)
        stamp = f"[{datetime.now(UTC):%Y-%m-%d %H:%M:%S}]"
        lines = [(stamp if n % 2 else "") + _STEP.format(serial=n) for n in range(first, first + count)]
        with self.path.open("ab", buffering=0) as file:
            file.write("".join(lines).encode())
        self.written += range(first, first + count)
        self.moments += [time.time()] * count

    def close(self) -> None:
        """Nothing is held open."""


class KernelRing:
    """/dev/kmsg, a descriptor a record: the kernel drops what one writes more than ten times in five seconds."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.written: list[int] = []
        self.moments: list[float] = []

    def write(self, count: int) -> None:
        """Records of one GPU each."""
        for serial in range(len(self.written), len(self.written) + count):
            text = _XID.format(bus=serial % 8 + 1, serial=serial, name=self.name)
            with KMSG.open("wb", buffering=0) as device:
                device.write(f"<3>{text}\n".encode())
            self.written.append(serial)
            self.moments.append(time.time())

    def close(self) -> None:
        """Nothing is held open."""


class Load(threading.Thread):
    """Writes to all feeds, a few lines each tenth of a second and now and then a flood, until it is stopped."""

    def __init__(self, feeds: list[Feed], seed: int, lines_a_turn: int = 10, rotate_s: float = 4.0) -> None:
        super().__init__(name="load", daemon=True)
        self._feeds = feeds
        self._random = random.Random(seed)
        self._lines = lines_a_turn
        self._rotate_s = rotate_s
        self._stop_event = threading.Event()
        self.error: Exception | None = None

    def run(self) -> None:
        """Until stopped; what goes wrong is kept for the test to see."""
        try:
            rotated = time.monotonic()
            while not self._stop_event.wait(0.1):
                for feed in self._feeds:
                    feed.write(self._count(feed))
                if time.monotonic() - rotated > self._rotate_s:
                    rotated = time.monotonic()
                    for feed in self._feeds:
                        if isinstance(feed, KernelLog):
                            feed.rotate()
        except Exception as error:  # noqa: BLE001  # a thread's exception would vanish
            self.error = error

    def __enter__(self) -> "Load":
        self.start()
        return self

    def __exit__(self, *_exception: object) -> None:
        """End it; everything that it began to write is written."""
        self._stop_event.set()
        self.join()
        for feed in self._feeds:
            feed.close()
        if self.error is not None:
            raise self.error

    def _count(self, feed: Feed) -> int:
        if isinstance(feed, KernelRing):
            return 1
        return 300 if self._random.random() < 0.02 else self._random.randint(1, self._lines)

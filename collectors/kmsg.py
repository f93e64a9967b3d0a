"""`kmsg`: follows /dev/kmsg, the kernel's ring of records, from its oldest one that was not read before.

One read gives one record, `prio,seq,usec,flags;text` and ` KEY=value` lines. What the ring lost before we came shows
as a gap in the sequence numbers, which is the exact count of lost records; it becomes an event of its own.
Source: Documentation/ABI/testing/dev-kmsg of Linux.
"""

import os
import select
import time
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from collectors.collector import Collected, Position, SourceError, SourceSettings
from collectors.decoder import Decoder, number
from parsers.parser import Context, clean
from parsers.ruled import make_parser
from store.event import Event

_DEVICE = Path("/dev/kmsg")
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
# A shorter buffer than a record makes read() fail with EINVAL, and the record is gone.
_RECORD_BYTES = 16 * 1024
_TURN_RECORDS = 1000
# The parser is asked for what it holds back after so long a silence: lines of one fault come together.
_QUIET_S = 0.05
_DENIED = (
    "may not read /dev/kmsg: run the sidecar as root or give it CAP_SYSLOG and the device "
    "(systemd: AmbientCapabilities=CAP_SYSLOG, DeviceAllow=/dev/kmsg r), or use --source journal"
)


@dataclass(slots=True)
class RingState:
    """How far the ring was read: sequence numbers, in the boot that they belong to. Pure."""

    boot: str
    last: int | None = None  # newest record that was decoded
    flushed_line: int = 0
    skip_to: int | None = None  # records up to here were decoded before a restart

    @classmethod
    def restored(cls, boot: str, position: Position | None) -> "RingState":
        """The state of a saved position; another boot's says nothing of this ring."""
        if position is None or position.get("boot") != boot:
            return cls(boot)
        return cls(boot, position["seq"], position["flushed_line"], skip_to=position["seq"])

    def lost_before(self, seq: int) -> int:
        """How many records are missing between the newest one read and this one."""
        return 0 if self.last is None else max(0, seq - self.last - 1)

    def position(self) -> Position | None:
        """What to save."""
        return None if self.last is None else {"boot": self.boot, "seq": self.last, "flushed_line": self.flushed_line}


def record_of(raw: bytes) -> tuple[int, str]:
    """A record's sequence number and its first line (`prio,seq,usec,flags;text`), without the ` KEY=value` lines.

    Raises:
        ValueError: it is no record.
    """
    text = clean(raw.partition(b"\n")[0])
    header = text.partition(";")[0].split(",")
    if len(header) < 4:
        raise ValueError(f"no kernel record: {text[:80]!r}")
    return int(header[1]), text


class KmsgCollector:
    """The ring of this machine's kernel."""

    def __init__(self, rest: str, settings: SourceSettings) -> None:
        """`rest` must be empty: there is one ring.

        Raises:
            SourceError: the SPEC says more than `kmsg`.
        """
        if rest:
            raise SourceError(f"kmsg:{rest}: kmsg takes no argument; to follow a file use file:{rest}")
        self._node = settings.node
        self._rules = settings.rules
        self._state = RingState("")
        self._descriptor = -1
        self._poll = select.poll()
        self._events: list[Event] = []
        self._lost = 0
        self._heard = 0.0

    @property
    def spec(self) -> str:
        """What names it."""
        return "kmsg"

    def open(self, position: Position | None) -> None:
        """Open the device and show the parser again what it decoded before.

        Raises:
            SourceError: there is no such device, or it may not be read.
        """
        boot = _BOOT_ID.read_text(encoding="ascii").strip()
        self._state = RingState.restored(boot, position)
        since_boot = timedelta(seconds=time.clock_gettime(time.CLOCK_MONOTONIC))
        context = Context(node=self._node, boot_time=datetime.now(UTC) - since_boot)
        self._decoder: Decoder = Decoder(
            make_parser("kernel", context, self._rules), lambda line: f"kmsg:{boot}:{line - 1}"
        )
        try:
            self._descriptor = os.open(_DEVICE, os.O_RDONLY | os.O_NONBLOCK)
        except PermissionError as error:
            raise SourceError(_DENIED) from error
        except FileNotFoundError as error:
            raise SourceError(
                "there is no /dev/kmsg here (a container?): mount it, or use --source journal or file:PATH"
            ) from error
        self._poll = select.poll()
        self._poll.register(self._descriptor, select.POLLIN)
        if self._state.skip_to is not None:
            self._rehearse(self._state.skip_to)

    def _rehearse(self, skip_to: int) -> None:
        """Read up to the saved record; the first one after it is decoded as new."""
        seen: list[tuple[int, str]] = []
        fresh: tuple[int, str] | None = None
        while (record := self._read()) is not None:
            if record[0] > skip_to:
                fresh = record
                break
            seen.append((record[0] + 1, record[1]))
        self._decoder.rehearse(seen, self._state.flushed_line)
        if fresh is not None:
            self._take(*fresh)

    def collect(self, wait_s: float) -> Collected:
        """Records that were written, within at most `wait_s`."""
        deadline = time.monotonic() + wait_s
        lines = self._drain()
        while not lines and not self._events:
            now = time.monotonic()
            if self._decoder.holding and now - self._heard >= _QUIET_S:
                self._decoder.flush()
                break
            if now >= deadline:
                break
            rest_s = min(deadline - now, _QUIET_S) if self._decoder.holding else deadline - now
            self._poll.poll(1 + 1000 * rest_s)
            lines = self._drain()
        self._state.flushed_line = self._decoder.flushed_line
        return self._collected(lines)

    def _drain(self) -> int:
        """Decode what the ring has, at most one turn's worth; returns how many records that were."""
        lines = 0
        while lines < _TURN_RECORDS and (record := self._read()) is not None:
            self._take(*record)
            lines += 1
        if lines:
            self._heard = time.monotonic()
        return lines

    def _collected(self, lines: int) -> Collected:
        events = (*self._events, *self._decoder.take())
        self._events.clear()
        lost, self._lost = self._lost, 0
        return Collected(
            events=events, lines=lines, errors=self._decoder.take_errors(), lost=lost, position=self._state.position()
        )

    def close(self) -> None:
        """Let go of the device."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _read(self) -> tuple[int, str] | None:
        """The next record; None where there is none yet. A broken one is passed over."""
        while True:
            try:
                return record_of(os.read(self._descriptor, _RECORD_BYTES))
            except BlockingIOError:
                return None
            except BrokenPipeError:
                continue  # the ring ran over: the next read is its oldest record, the sequence gap tells the loss
            except OSError as error:
                if error.errno != 22:  # EINVAL: a record that does not fit is passed over by the kernel
                    raise
            except ValueError:
                continue

    def _take(self, seq: int, text: str) -> None:
        lost = self._state.lost_before(seq)
        if lost:
            self._lost += lost
            self._events.append(gap_event(self._node, self._state.boot, seq, lost))
        self._state.last = seq
        self._decoder.feed(text, seq + 1)


def gap_event(node: str, boot: str, seq: int, lost: int) -> Event:
    """Records were overwritten before they were read: whatever they said of a fault is unknown."""
    event = Event(
        time=datetime.now(UTC),
        node=node,
        source="kernel",
        kind="collector_gap",
        severity="warning",
        cause="host",
        action="none",
        message=f"{lost} kernel log records were overwritten before they could be read.",
        attributes={"lost": lost, "origin": "kmsg"},
    )
    return number(event, f"kmsg:{boot}:{seq}:gap")

"""`kmsg`: follows /dev/kmsg, the kernel's ring of records, from its oldest one that was not read before.

One read gives one record, `prio,seq,usec,flags;text` and ` KEY=value` lines. What the ring lost before we came shows
as a gap in the sequence numbers, which is the exact count of lost records; it becomes an event of its own. After a
reboot the ring begins anew: how much the last boot wrote that nobody read is not known, and the event says so.
Source: Documentation/ABI/testing/dev-kmsg of Linux.
"""

import logging
import os
import time
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from collectors.collector import CollectorTurn, Position, SourceError, SourceSettings, Wake
from collectors.decoder import Decoder, boot_ended, overrun
from parsers.registry import make_parser
from parsers.text.parser import Context, clean
from store.records.event import EPOCH, Event

# When a kernel record was written: its stamp counts from boot, on a clock of its own. Pure; its state is plain JSON.
#
# The stamp is the kernel's `local_clock`: it stands still in suspend, and runs some parts in a million off the clock
# that
# NTP steers, which is seconds a day. So the moment of stamp 0 is an estimate. Two things correct it, for records that
# come after and never for those that were read: the wall clock was stepped (it moved against CLOCK_MONOTONIC), or two
# records in a row, each read as it was written, say otherwise. Every estimate is kept with the number of the record
# that it began with: read again, a record has the same time.

# An estimate that is off by no more stays: times that jitter would be worse than times that are a second off.
BOUND_US = 1_000_000
_AGREE_US = 250_000
# Steps of the clock that are remembered; of older ones only records that the ring has long lost could need.
_MOST = 8


@dataclass(frozen=True, slots=True)
class ClockReading:
    """The clocks at one moment, in microseconds."""

    wall_us: int
    monotonic_us: int

    @classmethod
    def now(cls) -> "ClockReading":
        """As they stand."""
        return cls(time.time_ns() // 1000, time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000)

    @property
    def ahead_us(self) -> int:
        """The wall clock against the other one: changes where the wall clock is stepped."""
        return self.wall_us - self.monotonic_us


class BootClock:
    """The estimates of one boot: Unix microseconds of stamp 0, each from a record's number on."""

    def __init__(self, now: ClockReading) -> None:
        self._starts = [0]
        self._boots_us = [now.ahead_us]
        self._ahead_us = now.ahead_us
        self._doubt_us: int | None = None  # what one record says against the estimate

    @classmethod
    def restored(cls, state: Mapping[str, Any] | None, next_record: int, now: ClockReading) -> "BootClock":
        """The clock of a saved state; a step of the wall clock since then counts from `next_record` on."""
        clock = cls(now)
        if state is not None:
            clock._starts = [int(start) for start, _boot_us in state["estimates"]]
            clock._boots_us = [int(boot_us) for _start, boot_us in state["estimates"]]
            clock._ahead_us = int(state["ahead_us"])
            clock.look(next_record, now)
        return clock

    def state(self) -> dict[str, Any]:
        """What to save."""
        return {
            "ahead_us": self._ahead_us,
            "estimates": [list(e) for e in zip(self._starts, self._boots_us, strict=True)],
        }

    def moment_us(self, record: int, stamp_us: int) -> int:
        """The Unix time of a record's stamp."""
        return self._boots_us[max(0, bisect_right(self._starts, record) - 1)] + stamp_us

    def look(self, next_record: int, now: ClockReading) -> bool:
        """Notice a step of the wall clock; records from `next_record` on are dated by the clock as it is now."""
        step_us = now.ahead_us - self._ahead_us
        if abs(step_us) <= BOUND_US:
            return False
        self._ahead_us = now.ahead_us
        self._adopt(next_record, self._boots_us[-1] + step_us)
        return True

    def hear(self, record: int, stamp_us: int, now: ClockReading) -> bool:
        """A record that was read as it was written: whether the estimate changed from it on."""
        boot_us = now.wall_us - stamp_us
        if abs(boot_us - self._boots_us[-1]) <= BOUND_US:
            self._doubt_us = None
            return False
        if self._doubt_us is None or abs(boot_us - self._doubt_us) > _AGREE_US:
            self._doubt_us = boot_us  # one alone may be late: the reader was stopped, or starved
            return False
        self._adopt(record, boot_us)
        return True

    def _adopt(self, record: int, boot_us: int) -> None:
        self._starts, self._boots_us = [*self._starts, record][-_MOST:], [*self._boots_us, boot_us][-_MOST:]
        self._doubt_us = None


_LOG = logging.getLogger("foreshock.sidecar")
_DEVICE = Path("/dev/kmsg")
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
# A shorter buffer than a record makes read() fail with EINVAL, and the record is gone.
_RECORD_BYTES = 16 * 1024
_TURN_RECORDS = 1000
# The parser is asked for what it holds back after so long a silence: lines of one fault come together.
_QUIET_S = 0.05
# Stamps are handed to the parser as Unix time: a boot at 0.
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
    clock: BootClock = field(default_factory=lambda: BootClock(ClockReading.now()))

    @classmethod
    def restored(cls, boot: str, position: Position | None, now: ClockReading) -> "RingState":
        """The state of a saved position; another boot's says nothing of this ring."""
        if position is None or position.get("boot") != boot:
            return cls(boot, clock=BootClock(now))
        seq = position["seq"]
        clock = BootClock.restored(position.get("clock"), seq + 1, now)
        return cls(boot, seq, position["flushed_line"], skip_to=seq, clock=clock)

    def lost_before(self, seq: int) -> int:
        """How many records are missing between the newest one read and this one."""
        return 0 if self.last is None else max(0, seq - self.last - 1)

    def position(self) -> Position | None:
        """What to save."""
        if self.last is None:
            return None
        return {
            "boot": self.boot,
            "seq": self.last,
            "flushed_line": self.flushed_line,
            "clock": self.clock.state(),
        }


@dataclass(frozen=True, slots=True)
class KmsgRecord:
    """One record: its number, its stamp and its first line after the stamp (`flags;text`)."""

    prio: str
    seq: int
    stamp_us: int
    rest: str

    def at(self, moment_us: int) -> str:
        """The line `prio,seq,usec,flags;text` with another time in it."""
        return f"{self.prio},{self.seq},{max(0, moment_us)},{self.rest}"


def record_of(raw: bytes) -> KmsgRecord:
    """A record of the ring (`prio,seq,usec,flags;text`), without its ` KEY=value` lines.

    Raises:
        ValueError: it is no record.
    """
    text = clean(raw.partition(b"\n")[0])
    if text.partition(";")[0].count(",") < 3:
        raise ValueError(f"no kernel record: {text[:80]!r}")
    prio, seq, stamp_us, rest = text.split(",", 3)
    return KmsgRecord(prio, int(seq), int(stamp_us), rest)


class KmsgCollector:
    """The ring of this machine's kernel."""

    spec = "kmsg"

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
        self.wake = Wake()
        self._events: list[Event] = []
        self._lost = 0
        self._heard = 0.0

    def open(self, position: Position | None) -> None:
        """Open the device and show the parser again what it decoded before.

        Raises:
            SourceError: there is no such device, or it may not be read.
        """
        boot = _BOOT_ID.read_text(encoding="ascii").strip()
        self._events.clear()
        self._state = RingState.restored(boot, position, ClockReading.now())
        if position is not None and position.get("boot") != boot:
            self._unread(position["boot"], position["seq"])
        context = Context(node=self._node, boot_time=EPOCH, trust="kernel")
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
        if self._state.skip_to is not None:
            self._rehearse(self._state.skip_to)

    def _rehearse(self, skip_to: int) -> None:
        """Read up to the saved record; the first one after it is decoded as new."""
        seen: list[tuple[int, str]] = []
        fresh: KmsgRecord | None = None
        newest = -1
        while (record := self._read()) is not None:
            if record.seq > skip_to:
                fresh = record
                break
            newest = record.seq
            seen.append((record.seq + 1, self._dated(record)))
        if fresh is None and newest < skip_to:
            self._start_over(skip_to)
            return
        self._decoder.rehearse(seen, self._state.flushed_line)
        if fresh is not None:
            self._take(fresh)

    def _start_over(self, read_to: int) -> None:
        """The same boot, and a ring that stands before what was read of it: a machine brought back from a snapshot."""
        self._unread(self._state.boot, read_to)
        self._state = RingState(self._state.boot)
        os.lseek(self._descriptor, 0, os.SEEK_SET)

    def _unread(self, boot: str, seq: int) -> None:
        """What a ring that is gone held beyond this record is not known."""
        self._events.append(boot_ended(self._node, boot, seq, self._state.clock.moment_us(0, 0)))

    def collect(self, wait_s: float) -> CollectorTurn:
        """Records that were written, within at most `wait_s`."""
        deadline = time.monotonic() + wait_s
        lines = self._drain()
        while not lines and not self._events:
            now = time.monotonic()
            if self._decoder.holding and now - self._heard >= _QUIET_S:
                self._decoder.flush()
                break
            if now >= deadline or self.wake.is_set:
                break
            rest_s = min(deadline - now, _QUIET_S) if self._decoder.holding else deadline - now
            waited = bool(self.wake.wait(rest_s, self._descriptor))
            lines = self._drain(waited)
        self._state.flushed_line = self._decoder.flushed_line
        return self._collected(lines)

    def _drain(self, waited: bool = False) -> int:
        """Decode what the ring has, at most one turn's worth; returns how many records that were.

        Args:
            waited: the ring had nothing a moment ago: its first record was written just now.
        """
        lines = 0
        while lines < _TURN_RECORDS and (record := self._read()) is not None:
            if lines == 0:
                self._check_clock(record, waited)
            self._take(record)
            lines += 1
        if lines:
            self._heard = time.monotonic()
        return lines

    def _check_clock(self, record: KmsgRecord, waited: bool) -> None:
        now, clock = ClockReading.now(), self._state.clock
        if clock.look(record.seq, now) or (waited and clock.hear(record.seq, record.stamp_us, now)):
            _LOG.warning("kmsg: the clock was set, or runs off the kernel's: records are dated anew from here on")

    def _collected(self, lines: int) -> CollectorTurn:
        events = (*self._events, *self._decoder.take())
        self._events.clear()
        lost, self._lost = self._lost, 0
        return CollectorTurn(
            events,
            position=self._state.position(),
            lines=lines,
            errors=self._decoder.take_errors(),
            lost=lost,
            refused=self._decoder.take_refused(),
        )

    def close(self) -> None:
        """Let go of the device."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _read(self) -> KmsgRecord | None:
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

    def _dated(self, record: KmsgRecord) -> str:
        return record.at(self._state.clock.moment_us(record.seq, record.stamp_us))

    def _take(self, record: KmsgRecord) -> None:
        lost = self._state.lost_before(record.seq)
        if lost:
            self._lost += lost
            moment_us = self._state.clock.moment_us(record.seq, record.stamp_us)
            self._events.append(overrun(self._node, self._state.boot, record.seq, lost, moment_us))
        self._state.last = record.seq
        self._decoder.feed(self._dated(record), record.seq + 1)

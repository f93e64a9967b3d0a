"""When a kernel record was written: its stamp counts from boot, on a clock of its own. Pure; its state is plain JSON.

The stamp is the kernel's `local_clock`: it stands still in suspend, and runs some parts in a million off the clock that
NTP steers, which is seconds a day. So the moment of stamp 0 is an estimate. Two things correct it, for records that
come after and never for those that were read: the wall clock was stepped (it moved against CLOCK_MONOTONIC), or two
records in a row, each read as it was written, say otherwise. Every estimate is kept with the number of the record that
it began with: read again, a record has the same time.
"""

import time
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

# An estimate that is off by no more stays: times that jitter would be worse than times that are a second off.
BOUND_US = 1_000_000
_AGREE_US = 250_000
# Steps of the clock that are remembered; of older ones only records that the ring has long lost could need.
_MOST = 8


@dataclass(frozen=True, slots=True)
class Reading:
    """The clocks at one moment, in microseconds."""

    wall_us: int
    monotonic_us: int

    @classmethod
    def now(cls) -> "Reading":
        """As they stand."""
        return cls(time.time_ns() // 1000, time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000)

    @property
    def ahead_us(self) -> int:
        """The wall clock against the other one: changes where the wall clock is stepped."""
        return self.wall_us - self.monotonic_us


class BootClock:
    """The estimates of one boot: Unix microseconds of stamp 0, each from a record's number on."""

    def __init__(self, now: Reading) -> None:
        self._starts = [0]
        self._boots_us = [now.ahead_us]
        self._ahead_us = now.ahead_us
        self._doubt_us: int | None = None  # what one record says against the estimate

    @classmethod
    def restored(cls, state: Mapping[str, Any] | None, next_record: int, now: Reading) -> "BootClock":
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

    def look(self, next_record: int, now: Reading) -> bool:
        """Notice a step of the wall clock; records from `next_record` on are dated by the clock as it is now."""
        step_us = now.ahead_us - self._ahead_us
        if abs(step_us) <= BOUND_US:
            return False
        self._ahead_us = now.ahead_us
        self._adopt(next_record, self._boots_us[-1] + step_us)
        return True

    def heard(self, record: int, stamp_us: int, now: Reading) -> bool:
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

"""The clock of a replay: a past stretch of time, run through at a chosen speed."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from store.records.event import RecordError, format_time, parse_time


@dataclass(frozen=True, slots=True)
class ReplayClock:
    """The replayed moment: `start` at the real moment `epoch`, then `speed` seconds a second, never past `end`.

    Calling it gives the moment, so that it stands wherever a clock is asked for.
    Two processes that hold equal clocks agree on the moment, without talking.
    """

    start: datetime
    end: datetime
    epoch: datetime
    speed: float

    def __call__(self) -> datetime:
        """The replayed moment, now."""
        return self.at(datetime.now(UTC))

    def at(self, real: datetime) -> datetime:
        """The replayed moment at a real one."""
        return min(self.start + max(real - self.epoch, timedelta()) * self.speed, self.end)

    def __str__(self) -> str:
        """The clock as one argument of a command line: START/END/EPOCH/SPEED."""
        return "/".join([*map(format_time, (self.start, self.end, self.epoch)), repr(self.speed)])


def read_clock(text: str) -> ReplayClock:
    """The clock that `str(clock)` wrote.

    Raises:
        RecordError: the text is no clock.
    """
    try:
        start, end, epoch, speed = text.split("/")
        return ReplayClock(parse_time(start), parse_time(end), parse_time(epoch), float(speed))
    except ValueError as error:
        raise RecordError(f"{text[:80]!r} is no clock: write it as START/END/EPOCH/SPEED") from error


def real_clock() -> datetime:
    """The time, in UTC."""
    return datetime.now(UTC)

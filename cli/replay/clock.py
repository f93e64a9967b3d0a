"""The clock of a replay: a past stretch of time, run through at a chosen speed."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from store.records.event import RecordError, format_time, parse_time

_SLOWEST = 0.001


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
    again_after_s: float | None = None  # real seconds from the end until the demo begins anew; None: never

    @property
    def ends(self) -> datetime:
        """The real moment at which the replay is over."""
        return self.epoch + (self.end - self.start) / self.speed

    @property
    def again(self) -> datetime | None:
        """The real moment at which the replay begins anew; None where it does not."""
        return None if self.again_after_s is None else self.ends + timedelta(seconds=self.again_after_s)

    def __call__(self) -> datetime:
        """The replayed moment, now."""
        return self.at(datetime.now(UTC))

    def at(self, real: datetime) -> datetime:
        """The replayed moment at a real one."""
        return min(self.start + max(real - self.epoch, timedelta()) * self.speed, self.end)

    def __str__(self) -> str:
        """The clock as one argument of a command line: START/END/EPOCH/SPEED, with /AGAIN_AFTER_S where it is known."""
        numbers = [repr(number) for number in (self.speed, self.again_after_s) if number is not None]
        return "/".join([*map(format_time, (self.start, self.end, self.epoch)), *numbers])


def read_clock(text: str) -> ReplayClock:
    """The clock that `str(clock)` wrote.

    Raises:
        RecordError: the text is no clock.
    """
    try:
        moments, numbers = text.split("/")[:3], [float(number) for number in text.split("/")[3:]]
        start, end, epoch = map(parse_time, moments)
        speed, *again = numbers
        if len(again) > 1 or not speed >= _SLOWEST:
            raise RecordError("the clock has a speed that is above zero, and one number after it at most")
        return ReplayClock(start, end, epoch, speed, *again)
    except ValueError as error:
        raise RecordError(f"{text[:80]!r} is no clock: write it as START/END/EPOCH/SPEED") from error


def real_clock() -> datetime:
    """The time, in UTC."""
    return datetime.now(UTC)

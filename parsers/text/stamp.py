"""Times as logs print them: without a year, without a zone, or as seconds since boot.

    Nov 20 22:31:54.121678          RFC 3164, journalctl short, opensm: no year, no zone
    [ 2122.548539]                  dmesg: seconds since boot
    Fri 2026-11-20 22:31:54 UTC     journalctl short-full

There is no clock here: year, zone and boot time come from the `Context`.
"""

import re
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from parsers.text.parser import Context

_NAMES = (
    *("january", "february", "march", "april", "may", "june"),
    *("july", "august", "september", "october", "november", "december"),
)
# What `dmesg -T` and `journalctl` write under other locales (de, es, fr, it, nl, pt), January first. Languages whose
# words mean another month elsewhere (`lis`) are not here.
_ABROAD = (
    "jan ene janv gen",
    "feb févr fev fév",
    "mar mär märz mrz mars mrt",
    "apr avril avr abr",
    "mai mei mag may",
    "jun juin giu",
    "jul juil lug",
    "aug août ago",
    "sep sept set",
    "okt oct ott out",
    "nov",
    "dez déc dic dec",
)
_MONTHS = {word: number for number, words in enumerate(_ABROAD, start=1) for word in words.split()}
# A log may be ahead of the clock that stamped its file by this much before its month counts as last year's.
SLACK = timedelta(days=1)
# No log steps back in time by this much.
HALF_YEAR = timedelta(days=183)
# A later boot than this is no uptime but a broken number: 100 years.
MAX_UPTIME_S = 100 * 366 * 86400

_MOST_DIGITS = 9
_CLOCK = re.compile(r"(\d{1,2}):(\d{2}):(\d{2})(?:[.,](\d{1,9}))?", re.ASCII)


@lru_cache(maxsize=256)
def month_of(text: str) -> int | None:
    """The number of a month: of its English name or the beginning of that, of a known one of others, of `11月`."""
    if text[-1:] in ("月", "월"):
        return int(text[:-1]) if text[:-1].isdecimal() else None
    word = text.lower().rstrip(".")
    known = (number for number, name in enumerate(_NAMES, start=1) if len(word) >= 3 and name.startswith(word))
    return _MONTHS.get(word) or next(known, None)


class Stamps:
    """Reads the times of one log. Holds the last one without a year, to know when a year ends."""

    def __init__(self, context: "Context") -> None:
        self._context = context
        self._last: datetime | None = None
        self._read: tuple[tuple[int, int, str, str], datetime | None] | None = None  # what _at gave last

    def iso(self, text: str) -> datetime | None:
        """An ISO 8601 or RFC 3339 time; one without a zone is in the context's. None where it is none."""
        try:
            return self._utc(datetime.fromisoformat(text.strip()))
        except (ValueError, OverflowError):
            return None

    def zoned(self, text: str, zone: str | None) -> datetime | None:
        """An ISO time with its zone beside it. Only UTC and numbers say which they mean; else the context's holds."""
        offset = "+00:00" if zone in ("UTC", "GMT") else zone
        return self.iso(text + offset if offset and offset[0] in "+-" else text)

    def knows_year(self) -> bool:
        """Whether a time without a year can be read at all."""
        return self._context.year is not None or self._context.until is not None

    def since_boot(self, uptime_s: float) -> datetime | None:
        """The moment of an uptime in seconds; None where nobody knows when the host booted."""
        boot = self._context.boot_time
        if boot is None or not 0 <= uptime_s < MAX_UPTIME_S:
            return None
        return (boot + timedelta(seconds=uptime_s)).astimezone(UTC)

    def since_epoch(self, seconds: float) -> datetime | None:
        """The moment of a Unix time in seconds."""
        try:
            return datetime.fromtimestamp(seconds, UTC)
        except (ValueError, OverflowError, OSError):
            return None

    def dated(self, month: str, day: str, clock: str, year: str) -> datetime | None:
        """`Nov` `20` `22:31:19` `2026` in the context's zone."""
        return self._at(int(year), month_of(month), day, clock)

    def yearless(self, month: str, day: str, clock: str) -> datetime | None:
        """`Nov` `20` `22:31:54.121678`: the year is the context's, or that of the newest moment the log can speak of.

        A live log runs on past both: it never steps back by half a year, so where it seems to, a new year has come.
        None where neither is known, or where the month is neither a known name nor a number (`11月`).
        """
        return self._yearless(month_of(month), day, clock)

    def glog(self, month: int, day: str, clock: str, seen: datetime | None = None) -> datetime | None:
        """The time of glog and klog, month and day without a year, nearest to one that was `seen` in the same log."""
        if not 1 <= month <= 12:
            return None
        return self._yearless(month, day, clock) if seen is None else self.nearest(month, day, clock, seen)

    def _yearless(self, number: int | None, day: str, clock: str) -> datetime | None:
        year, until, last = self._context.year, self._context.until, self._last
        if number is None or (year is None and until is None):
            return None
        if year is None and until is not None:
            year = until.astimezone(self._context.zone).year
        first_year = year or 0
        base = first_year if last is None else max(first_year, last.year)
        moment = self._at(base, number, day, clock)
        if until is not None and (last is None or last <= until + SLACK) and not _is_by(moment, until + SLACK):
            moment = self._at(base - 1, number, day, clock) or moment
        if moment is not None and last is not None:
            step = moment - last
            if step < -HALF_YEAR or (step > HALF_YEAR and last.year > first_year):
                moment = self.nearest(number, day, clock, last) or moment
        self._last = moment or last
        return moment

    def nearest(self, month: int, day: str, clock: str, seen: datetime) -> datetime | None:
        """A time without a year that lies as near as can be to one seen in the same log."""
        years = (seen.year - 1, seen.year, seen.year + 1)
        moments = [moment for year in years if (moment := self._at(year, month, day, clock)) is not None]
        return min(moments, key=lambda moment: abs(moment - seen), default=None)

    def _at(self, year: int, month: int | None, day: str, clock: str) -> datetime | None:
        if month is None:
            return None
        fraction = clock[9:]
        if clock[8:9] in (".", ",") and len(fraction) <= _MOST_DIGITS and fraction.isascii() and fraction.isdigit():
            second = self._at(year, month, day, clock[:8])
            return second and second + timedelta(microseconds=int(fraction[:6].ljust(6, "0")))
        asked = year, month, day, clock
        if self._read is None or self._read[0] != asked:  # a burst has many lines of one second
            self._read = asked, self._moment(year, month, day, clock)
        return self._read[1]

    def _moment(self, year: int, month: int, day: str, clock: str) -> datetime | None:
        match = _CLOCK.fullmatch(clock)
        if not match:
            return None
        micros = int((match[4] or "")[:6].ljust(6, "0"))
        try:
            return self._utc(datetime(year, month, int(day), int(match[1]), int(match[2]), int(match[3]), micros))  # noqa: DTZ001  # the zone is put on in _utc
        except (ValueError, OverflowError):
            return None

    def _utc(self, moment: datetime) -> datetime:
        if moment.tzinfo is UTC:
            return moment
        if moment.tzinfo is None and self._context.zone is UTC:
            return moment.replace(tzinfo=UTC)
        return (moment if moment.tzinfo else moment.replace(tzinfo=self._context.zone)).astimezone(UTC)


def _is_by(moment: datetime | None, limit: datetime) -> bool:
    return moment is not None and moment <= limit

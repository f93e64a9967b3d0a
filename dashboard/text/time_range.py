"""The time range and the zone of a page, as its address bears them: `?from=2025-03-01T00:00Z&to=...&tz=Europe/Berlin`.

TimeRange.read({"from": "2025-03-01T00:00Z"}).holds(start, end)
"""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from dashboard.text import words

SINCE, UNTIL, ZONE = NAMES = ("from", "to", "tz")


@dataclass(frozen=True, slots=True)
class TimeRange:
    """From a moment up to another; None leaves a side open."""

    since: datetime | None = None
    until: datetime | None = None

    @classmethod
    def read(cls, address: Mapping[str, str]) -> "TimeRange":
        """That of an address; what is no moment there leaves its side open."""
        return cls(_moment(address.get(SINCE)), _moment(address.get(UNTIL)))

    def end(self, otherwise: datetime) -> datetime:
        """Until when to read: its end, where that comes before another moment."""
        return otherwise if self.until is None else min(self.until, otherwise)

    def holds(self, start: datetime, end: datetime | None = None) -> bool:
        """Whether what lasted from a moment to another (none: it was at one) showed within it."""
        is_late = self.until is not None and start >= self.until
        return not is_late and (self.since is None or (end or start) >= self.since)

    def limit(self, seen: datetime | None, reach: str) -> str | None:
        """What must be said of what was not looked at; None where all of it was, or where it leaves nothing out.

        Args:
            seen: since when was looked; None: it cannot be said, of a list of the newest ones alone.
            reach: how far that goes, in words: `the 30 days that are shown here`.
        """
        if not self or (seen is not None and self.since is not None and self.since >= seen):
            return None
        return f"This time range is older than {reach}." if self._ends_before(seen) else f"Of this time range: {reach}."

    def nothing(self, what: str, seen: datetime | None = None, reach: str = "") -> str:
        """What an empty list says of it: as far as was looked, see `limit`; `what` is `No incident showed`."""
        limit = self.limit(seen, reach) if reach else None
        if limit is None:
            return f"{what} within this time range."
        return limit if self._ends_before(seen) else f"{what} within this time range, of {reach}."

    def _ends_before(self, seen: datetime | None) -> bool:
        return seen is not None and self.until is not None and self.until <= seen

    def __bool__(self) -> bool:
        """Whether it leaves anything out."""
        return self.since is not None or self.until is not None

    def words(self) -> str:
        """As the bar says it."""
        if not self:
            return "all times"
        sides = (("from", self.since), ("to", self.until))
        return " ".join(f"{name} {words.local(moment):%Y-%m-%d %H:%M}" for name, moment in sides if moment)


def _moment(text: str | None) -> datetime | None:
    with suppress(ValueError, OverflowError):
        found = datetime.fromisoformat(text or "")
        found = (found if found.tzinfo else found.replace(tzinfo=UTC)).astimezone(UTC)
        # Beyond these years a zone may lead out of what a calendar holds.
        return found if 1970 <= found.year <= 9000 else None
    return None


def written(moment: datetime | None) -> str | None:
    """A moment for an address."""
    return None if moment is None else f"{moment.astimezone(UTC):%Y-%m-%dT%H:%M}Z"


def zone(address: Mapping[str, str]) -> tzinfo:
    """The zone of an address; UTC where it names none that there is."""
    name = address.get(ZONE, "")
    if 0 < len(name) <= 64:
        with suppress(ZoneInfoNotFoundError, ValueError, OSError):
            return ZoneInfo(name)
    return UTC

"""Quiet hours: the times of the day in which new holds wait for a person.

"22:00-06:00"                   of UTC
"22:00-06:00 Asia/Shanghai"     of a zone of the IANA database, with its summer time
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, time, tzinfo
from functools import lru_cache
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

_HOURS = re.compile(r"(\d{2}):(\d{2})-(\d{2}):(\d{2})(?: +(\S+))?", re.ASCII)


class QuietHoursError(ValueError):
    """Hours that cannot be read; the message says what they look like."""


@dataclass(frozen=True, slots=True)
class QuietHours:
    """From one time of the day to another, the second one not included; over midnight where it is the earlier."""

    begin: time
    end: time
    zone: tzinfo

    def hold(self, now: datetime) -> bool:
        """Whether a moment lies within."""
        here = now.astimezone(self.zone).time()
        if self.begin < self.end:
            return self.begin <= here < self.end
        return here >= self.begin or here < self.end


@lru_cache(maxsize=64)
def read_quiet_hours(text: str) -> QuietHours:
    """Quiet hours of a text.

    Raises:
        QuietHoursError: it is not `HH:MM-HH:MM`, with or without a zone, or begins when it ends.
    """
    found = _HOURS.fullmatch(text.strip())
    if found is None:
        raise QuietHoursError(f"{text!r} is not HH:MM-HH:MM, or HH:MM-HH:MM ZONE (as in 22:00-06:00 Asia/Shanghai)")
    hours = [int(part) for part in found.groups()[:4]]
    try:
        begin, end = time(hours[0], hours[1]), time(hours[2] % 24 if hours[3] == 0 else hours[2], hours[3])
        zone = ZoneInfo(found[5] or "UTC")
    except (ValueError, ZoneInfoNotFoundError, OSError) as error:
        raise QuietHoursError(f"{text!r}: no such time or zone: {error}") from error
    if begin == end:
        raise QuietHoursError(f"{text!r} begins when it ends: to confirm every hold by hand, set `mode: approve`")
    return QuietHours(begin, end, zone)


def quiet_now(hours: Sequence[str], now: datetime) -> str | None:
    """The quiet hours, as they are written, that a moment lies in; None for none."""
    return next((text for text in hours if read_quiet_hours(text).hold(now)), None)

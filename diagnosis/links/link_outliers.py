"""A link that errs as no other of its NVLink domain does: told days before it fails, from the counters that are kept.

    events = watch_links(connection, now)

In the public report one link of 5,760 had 505 recovery events five days before it took its domain down, and all others
none. So a link is compared with the others of its domain at the same time, counter by counter, on a scale of the
logarithm: a link is an outlier that stands `_FAR` robust deviations (median and median absolute deviation) above the
median. That is 8 events where all others have none, and 2,400 where they have about 50. What a whole domain shows (a
driver that counts otherwise, a cold start) is nobody's outlier.
"""

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from math import log, log1p
from statistics import median

import sqlalchemy as sa

from diagnosis.incidents.intake import note_found
from store.nodes.domains import LinkReading, by_domain, days_of_links, domain_of_each, link_readings
from store.plural import many
from store.records.event import Device, Event
from store.records.fault_catalog import with_kind_meaning

# The gravest first: of one link the first that stands out is told.
COUNTERS = (
    "nvlink_recovery_failed",
    "nvlink_recovery_event",
    "nvlink_recovery",
    "nvlink_effective_error",
    "nvlink_integrity_error",
    "nvlink_replay",
    "nvlink_crc_data",
    "nvlink_crc",
    "nvlink_rx_error",
    "nvlink_symbol_error",
    "nvlink_effective_ber_ratio",
)
KIND = "nvlink_outlier"
# Robust deviations above the median.
_FAR = 6.0
# No deviation is taken for less: where nearly all links show the same, one event more is nothing.
_LEAST_SPREAD = 0.35
_LEAST_COUNT = 8
# Of a rate of bit errors: what links without errors are taken to have.
_LEAST_RATE = 1e-15
# Fewer links tell nothing of what is usual.
_LEAST_LINKS = 12
# Of one domain; beyond, its links differ so much that it is no matter of one.
MOST_OF_A_DOMAIN = 3
# Roll-ups that are older than this say nothing of now.
RECENT = timedelta(hours=3)


@dataclass(frozen=True, slots=True)
class LinkOutlier:
    """One link of one GPU. `usual` is the median of the other links, `compared` how many they are."""

    domain: str
    node: str
    device: Device
    source: str
    link: int
    counter: str
    value: float
    usual: float
    compared: int
    deviations: float

    def event(self, now: datetime) -> Event:
        """What is told of it: once a day, and again on a day on which it still stands out."""
        shown = f"{self.value:.3g}" if self.counter.endswith("_ratio") else f"{self.value:.0f}"
        words = (
            f"NVLink {self.link} stands out: {self.counter} is {shown}, "
            f"of {many(self.compared, 'other link')} of {self.domain} the median is {self.usual:.3g}"
        )
        where = f"{self.node} {self.device.key()} {self.link} {self.counter} {now:%Y-%m-%d}"
        event = Event(
            time=now,
            node=self.node,
            source=self.source,
            kind=KIND,
            device=self.device,
            message=words,
            attributes={
                "link": self.link,
                "counter": self.counter,
                "count": self.value,
                "usual": self.usual,
                "links": self.compared,
                "domain": self.domain,
            },
            id=hashlib.blake2b(f"{KIND} {where}".encode(), digest_size=12).hexdigest(),
        )
        return with_kind_meaning(event)


def watch_links(connection: sa.Connection, now: datetime, recent: timedelta = RECENT) -> list[Event]:
    """The links that stand out by what was last read of them, as events; their ids are those of the day."""
    readings = link_readings(connection, now - recent, now)
    groups = by_domain(readings, domain_of_each(connection))
    return [one.event(now) for domain, own in sorted(groups.items()) for one in outliers(domain, own)]


def note_outliers(engine: sa.Engine, now: datetime, recent: timedelta = RECENT) -> int:
    """Store what stands out at a moment, for the incidents to come; returns how much of it is new."""
    return note_found(engine, lambda connection: watch_links(connection, now, recent), now)


def note_past_outliers(engine: sa.Engine) -> int:
    """The same at the end of each day of an archive that tells of single links; returns how much was found."""
    with engine.connect() as connection:
        days = days_of_links(connection)
    return sum(note_outliers(engine, day, timedelta(hours=26)) for day in days)


def outliers(domain: str, readings: Sequence[LinkReading]) -> list[LinkOutlier]:
    """The links that stand out among those of a domain, the farthest first; none where too many do."""
    found: dict[tuple[str, str, int], LinkOutlier] = {}
    for counter in COUNTERS:
        for one in _of_counter(domain, counter, readings):
            index = one.device.index
            found.setdefault((one.node, one.device.key() if index is None else str(index), one.link), one)
    return sorted(found.values(), key=lambda one: -one.deviations) if len(found) <= MOST_OF_A_DOMAIN else []


def _of_counter(domain: str, counter: str, readings: Sequence[LinkReading]) -> Iterable[LinkOutlier]:
    shown = [(one, link, value) for one in readings for (name, link), value in one.counters.items() if name == counter]
    # A reading leaves out what is zero.
    silent = sum(one.links for one in readings) - len(shown)
    compared = silent + len(shown)
    if not shown or compared < _LEAST_LINKS:
        return
    is_rate = counter.endswith("_ratio")
    scaled = [_scaled(value, is_rate) for _, _, value in shown] + [_scaled(0.0, is_rate)] * silent
    middle = median(scaled)
    spread = max(_LEAST_SPREAD, 1.4826 * median(abs(value - middle) for value in scaled))
    usual = median([value for _, _, value in shown] + [0.0] * silent)
    for reading, link, value in shown:
        far = (_scaled(value, is_rate) - middle) / spread
        if far >= _FAR and (is_rate or value >= _LEAST_COUNT):
            place = (domain, reading.node, reading.device, reading.source, link, counter)
            yield LinkOutlier(*place, value, usual, compared - 1, far)


def _scaled(value: float, is_rate: bool) -> float:
    return log(max(value, _LEAST_RATE)) if is_rate else log1p(max(value, 0.0))

"""`scrape:URL`: reads a dcgm-exporter's page at an interval; keeps roll-ups, sends what changed as events.

A page that cannot be had is an event too: `exporter_down` once, `exporter_up` when it is there again. It says nothing
of the GPUs: they are unknown meanwhile, neither missing nor well.
"""

import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from http.client import HTTPException

from collectors.collector import Collected, Position, SourceError, SourceSettings
from collectors.gpu_watch import GpuWatch, exporter_event
from collectors.node_hours import NodeHours
from parsers.dcgm import samples
from parsers.parser import Context, ParseError
from store.event import Event
from store.telemetry import Rollup, Sample

_TIMEOUT_S = 10.0
_MOST_BYTES = 64 * 1024 * 1024
# A sample from further ahead than this comes from a clock that is wrong.
_AHEAD = timedelta(hours=1)


class ScrapeCollector:
    """One exporter's address."""

    def __init__(self, rest: str, settings: SourceSettings) -> None:
        """`rest` is the URL.

        Raises:
            SourceError: it is no http or https URL.
        """
        if not rest.startswith(("http://", "https://")):
            raise SourceError(f"scrape:{rest}: give the exporter's address, as in scrape:http://127.0.0.1:9400/metrics")
        self._url = rest
        self._settings = settings
        self._hours = NodeHours()
        self._watch = GpuWatch(rest)
        self._down = False
        self._due = 0.0
        self._partial_due = 0.0

    @property
    def spec(self) -> str:
        """What names it."""
        return f"scrape:{self._url}"

    def open(self, position: Position | None) -> None:
        """Take up the counters and the open hour of the last run."""
        state = position or {}
        self._hours = NodeHours(state.get("hours"))
        self._watch = GpuWatch(self._url, state.get("watch"))
        self._down = bool(state.get("down"))
        self._due = time.monotonic()
        self._partial_due = self._due + self._settings.scrape_interval_s

    def collect(self, wait_s: float) -> Collected:
        """One scrape, when it is due within `wait_s`."""
        now_s = time.monotonic()
        if self._due > now_s + wait_s:
            time.sleep(wait_s)
            return Collected()
        time.sleep(max(0.0, self._due - now_s))
        # A scrape that took long is not caught up with.
        self._due = max(self._due + self._settings.scrape_interval_s, time.monotonic())
        now = datetime.now(UTC)
        try:
            page = self._get()
        except (OSError, HTTPException, ValueError) as error:
            return self._failed(now, str(error) or type(error).__name__)
        return self._scraped(page, now)

    def close(self) -> None:
        """Nothing is held open between scrapes."""

    def _get(self) -> str:
        timeout_s = max(1.0, min(_TIMEOUT_S, self._settings.scrape_interval_s))
        with urllib.request.urlopen(self._url, timeout=timeout_s) as answer:  # noqa: S310 - __init__ allows http(s) alone
            body: bytes = answer.read(_MOST_BYTES)
        return body.decode("utf-8", errors="replace")

    def _failed(self, now: datetime, reason: str) -> Collected:
        if self._down:
            return Collected(errors=1)
        self._down = True
        event = exporter_event(
            self._settings.node, now, up=False, message=f"The exporter does not answer: {reason}", url=self._url
        )
        return Collected(events=(event,), errors=1, position=self._position())

    def _scraped(self, page: str, now: datetime) -> Collected:
        try:
            found = samples(page, Context(node=self._settings.node, until=now))
        except ParseError as error:
            return self._failed(now, str(error))
        events: list[Event] = []
        if self._down:
            self._down = False
            node = self._settings.node
            events.append(exporter_event(node, now, up=True, message="The exporter answers again.", url=self._url))
        fit = [sample for sample in found if sample.time <= now + _AHEAD]
        events += self._watch.add(fit, now)
        rollups = self._roll_up(fit)
        return Collected(
            events=tuple(events),
            rollups=tuple(rollups),
            lines=len(found),
            errors=len(found) - len(fit),
            position=self._position(),
        )

    def _roll_up(self, found: Sequence[Sample]) -> list[Rollup]:
        finished = self._hours.add(found)
        if time.monotonic() >= self._partial_due:
            self._partial_due = time.monotonic() + self._settings.rollup_interval_s
            finished += self._hours.partial()
        return finished

    def _position(self) -> Position:
        return {"hours": self._hours.state(), "watch": self._watch.state(), "down": self._down}

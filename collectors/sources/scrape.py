"""`scrape:URL`: reads an exporter's page at an interval; keeps roll-ups, sends what changed as events.

Whose page it is, its metrics tell: dcgm-exporter, npu-exporter, ROCm's device-metrics-exporter, mlu-exporter,
node_exporter, several of them through a proxy. Of any other metrics those are kept that the SPEC names:

    scrape:http://127.0.0.1:9500/metrics#keep=site_pump_.*&keep=site_valve_state

A page that cannot be had is an event too: `exporter_down` once, `exporter_up` when it is there again. It says nothing
of the devices: they are unknown meanwhile, neither missing nor well. So is a page whose times stand still
(`exporter_stale`).
"""

import re
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from http.client import HTTPException
from typing import Any

from collectors.collector import CollectorTurn, Position, SourceError, SourceSettings, Wake, split_options
from collectors.telemetry.device_events import exporter_event
from collectors.telemetry.samples import Sampled
from parsers.pages import devices_of, kept_samples
from parsers.text.parser import Context, ParseError
from store.records.event import Event
from store.records.telemetry import Sample

# Whether a page's own times stand still: its exporter answers, and has nothing new to say. Pure; plain JSON as state.
#
# DCGM's page bears no times, and values that do not move are normal: only times that are written tell anything.

# npu-exporter's slowest group of metrics is renewed each minute.
STALE_S = 300.0


class StalePage:
    """The newest time that a page bore, and since when it is that one."""

    def __init__(self, state: Mapping[str, Any] | None = None) -> None:
        saved = state or {}
        self._newest_s: float | None = saved.get("newest_s")
        self._since_s: float = saved.get("since_s", 0.0)
        self._stale: bool = saved.get("stale", False)

    def look(self, samples: Sequence[Sample], now: datetime) -> list[tuple[str, str]]:
        """One scrape: the kind and the words of the event that it is, if it is one."""
        if not samples:
            return []
        newest_s = max(sample.time for sample in samples).timestamp()
        if newest_s != self._newest_s:
            was_stale, self._stale = self._stale, False
            self._newest_s, self._since_s = newest_s, now.timestamp()
            return [("exporter_up", "The times on the exporter's page move again.")] if was_stale else []
        if self._stale or now.timestamp() - self._since_s < STALE_S:
            return []
        self._stale = True
        minutes = (now.timestamp() - self._since_s) / 60
        return [("exporter_stale", f"The newest time on the exporter's page has been the same for {minutes:.0f} min.")]

    def state(self) -> dict[str, Any]:
        """Everything, as plain JSON."""
        return {"newest_s": self._newest_s, "since_s": self._since_s, "stale": self._stale}


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
        self.spec = f"scrape:{rest}"
        self._url, options = split_options(self.spec, rest, ("keep",))
        self._keep = _patterns(self.spec, options.get("keep", []))
        self._interval_s = settings.interval_s or settings.scrape_interval_s
        self._settings = settings
        self.wake = Wake()
        self._sampled = Sampled(self._url, settings.rollup_interval_s)
        self._still = StalePage()
        self._source = "scrape"  # until a page tells whose it is
        self._down = False
        self._due = 0.0

    def open(self, position: Position | None) -> None:
        """Take up the counters and the open hour of the last run."""
        state = position or {}
        self._sampled = Sampled(self._url, self._settings.rollup_interval_s, state)
        self._still = StalePage(state.get("still"))
        self._source = str(state.get("source", "scrape"))
        self._down = bool(state.get("down"))
        self._due = time.monotonic()

    def collect(self, wait_s: float) -> CollectorTurn:
        """One scrape, when it is due within `wait_s`."""
        if not self.wake.wait_until(self._due, wait_s):
            return CollectorTurn()
        # A scrape that took long is not caught up with.
        self._due = max(self._due + self._interval_s, time.monotonic())
        now = datetime.now(UTC)
        try:
            page = self._get()
        except (OSError, HTTPException, ValueError) as error:
            return self._failed(now, str(error) or type(error).__name__)
        return self._scraped(page, now)

    def close(self) -> None:
        """Nothing is held open between scrapes."""

    def _get(self) -> str:
        timeout_s = self._settings.timeout_s or max(1.0, min(_TIMEOUT_S, self._interval_s))
        with urllib.request.urlopen(self._url, timeout=timeout_s) as answer:  # noqa: S310 - __init__ allows http(s) alone
            body: bytes = answer.read(_MOST_BYTES)
        return body.decode("utf-8", errors="replace")

    def _failed(self, now: datetime, reason: str) -> CollectorTurn:
        if self._down:
            return CollectorTurn(errors=1)
        self._down = True
        event = self._exporter(now, "exporter_down", f"The exporter does not answer: {reason}")
        return CollectorTurn(events=(event,), errors=1, position=self._position())

    def _exporter(self, now: datetime, kind: str, message: str) -> Event:
        return exporter_event(self._settings.node, now, kind, message, self._url, self._source)

    def _scraped(self, page: str, now: datetime) -> CollectorTurn:
        context = Context(node=self._settings.node, until=now)
        try:
            found = devices_of(page, context)
            found += kept_samples(page, self._keep, context)
        except ParseError as error:
            return self._failed(now, str(error))
        self._source = found[0].source if found else self._source
        events: list[Event] = []
        if self._down:
            self._down = False
            events.append(self._exporter(now, "exporter_up", "The exporter answers again."))
        fit = [sample for sample in found if sample.time <= now + _AHEAD]
        events += [self._exporter(now, *reported) for reported in self._still.look(fit, now)]
        found_events, rollups = self._sampled.take(fit, now)
        events += found_events
        return CollectorTurn(
            events=tuple(events),
            rollups=tuple(rollups),
            lines=len(found),
            errors=len(found) - len(fit),
            position=self._position(),
        )

    def _position(self) -> Position:
        return {
            **self._sampled.state(),
            "still": self._still.state(),
            "source": self._source,
            "down": self._down,
        }


def _patterns(spec: str, texts: Sequence[str]) -> list[re.Pattern[str]]:
    try:
        return [re.compile(text, re.ASCII) for text in texts]
    except re.error as error:
        raise SourceError(f"{spec}: keep= is no regular expression ({error}): write one of a metric's name") from error

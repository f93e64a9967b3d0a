"""`prometheus:URL`: the roll-ups and counters of many nodes from Prometheus, Mimir or Thanos, by its recording rules.

    prometheus:http://127.0.0.1:9090
    prometheus:https://mimir.example.org/prometheus#tenant=gpu&token_file=/etc/foreshock/mimir.token&node_label=host

Needs deploy/prometheus/foreshock-recording-rules.yaml there. Every five minutes it asks for the hour so far, a few
hundred nodes at a time; nothing of the hour is kept here: after an absence each hour that ended meanwhile is asked for
once (at most a day's), and then every rise of a counter since. The position is the last step that was done.
"""

import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from collectors.collector import Collected, Position, SourceError, SourceSettings
from collectors.device_events import finding_event, rise
from collectors.prometheus_client import Access, PrometheusClient
from collectors.prometheus_hours import Hour, hour_query
from collectors.prometheus_rules import STEP_S, Recorded, record_name, recorded
from collectors.spec_options import split_options
from collectors.wake import Wake
from store.event import Device, Event
from store.telemetry import ROLLUP_S
from store.telemetry_counters import counter

# Nodes of one question: 250 of eight GPUs are 12,000 series in an answer.
_NODES = 250
# How far back an absence is made up for.
_MOST_BEHIND_S = 24 * 3600
# A step is asked for this much later: rules are evaluated, and remote writes arrive, after their time.
_DELAY_S = 60.0
_EVENTS = 5000  # of one turn


class PrometheusCollector:
    """One server's recorded series."""

    def __init__(self, rest: str, settings: SourceSettings) -> None:
        """`rest` is the URL and its options.

        Raises:
            SourceError: it is no http or https URL, or an option is not known.
        """
        self._spec = f"prometheus:{rest}"
        url, options = split_options(self._spec, rest, ("tenant", "token_file", "node_label", "delay_s"))
        if not url.startswith(("http://", "https://")):
            raise SourceError(f"{self._spec}: give the server's address, as in prometheus:http://127.0.0.1:9090")
        first = {name: values[0] for name, values in options.items()}
        token = Path(first["token_file"]) if "token_file" in first else None
        self._client = PrometheusClient(Access(url, first.get("tenant"), token, settings.timeout_s or 60.0))
        self._url = url
        self.wake = Wake()
        self._label = first.get("node_label", "node")
        try:
            self._delay_s = float(first.get("delay_s", _DELAY_S))
        except ValueError as error:
            raise SourceError(f"{self._spec}: delay_s= must be a number of seconds") from error
        self._done_s = 0
        self._work: Iterator[Collected] = iter(())

    @property
    def spec(self) -> str:
        """What names it."""
        return self._spec

    def open(self, position: Position | None) -> None:
        """Go on after the last step that was done; at first, with the newest."""
        self._done_s = int((position or {}).get("done_s", 0))
        self._work = iter(())

    def collect(self, wait_s: float) -> Collected:
        """One part of a step's work; waits where the next step is not due."""
        if (part := next(self._work, None)) is not None:
            return part
        newest_s = int((time.time() - self._delay_s) // STEP_S * STEP_S)
        if newest_s <= self._done_s:
            self.wake.wait(min(wait_s, newest_s + STEP_S + self._delay_s - time.time()))
            return Collected()
        self._work = self.step(newest_s)
        return next(self._work)

    def close(self) -> None:
        """Nothing is held open between questions."""
        self._work = iter(())

    def step(self, newest_s: int) -> Iterator[Collected]:
        """Everything from the last step that was done up to this one; the last part bears the position."""
        since_s = max(self._done_s, newest_s - _MOST_BEHIND_S) if self._done_s else newest_s - STEP_S
        for end_s in _hour_ends(since_s, newest_s):
            yield from self._hour(end_s)
        for events in self._rises(since_s, newest_s):
            yield Collected(events=tuple(events), lines=len(events))
        self._done_s = newest_s
        yield Collected(position={"done_s": newest_s})

    def _hour(self, end_s: int) -> Iterator[Collected]:
        """The hour that a moment ends or lies in, so far: some nodes at a time."""
        start_s = (end_s - 1) // ROLLUP_S * ROLLUP_S
        present = self._present(end_s)
        nodes = sorted(self._nodes(end_s))
        for first in range(0, len(nodes), _NODES):
            hour, series = Hour(start_s), 0
            for one in present:
                question = hour_query(one, self._label, nodes[first : first + _NODES], end_s - start_s)
                for labels, value in self._client.query(question, end_s):
                    series += 1
                    device = one.device(labels)
                    if device is not None and self._label in labels:
                        hour.add(labels[self._label], (device, one.measure), labels["stat"], value)
            yield Collected(rollups=tuple(hour.rollups()), lines=series)

    def _present(self, at_s: int) -> list[Recorded]:
        """The measures that there are."""
        question = 'count by (__name__, exporter) ({__name__=~"foreshock:.+:last"})'
        found = {(labels["__name__"], labels.get("exporter")) for labels, _count in self._client.query(question, at_s)}
        return [one for one in recorded() if (record_name(one.measure, "last"), one.exporter) in found]

    def _nodes(self, at_s: int) -> list[str]:
        question = f'count by ({self._label}) ({{__name__=~"foreshock:.+:last"}})'
        return [labels[self._label] for labels, _count in self._client.query(question, at_s) if self._label in labels]

    def _rises(self, since_s: int, newest_s: int) -> Iterator[list[Event]]:
        """Counters that rose since a step, by what they showed last: nothing is extrapolated."""
        found: list[Event] = []
        for one in self._present(newest_s):
            kind = _device_type(one)
            known = counter(one.measure, kind)
            if known is None:
                continue
            last = f'{record_name(one.measure, "last")}{{exporter="{one.exporter}"}}'
            before = f"last_over_time({last}[1h] offset {STEP_S}s)"
            question = f"({last} - {before} > 0) or ({last} > 0 and {last} < {before})"
            for labels, points in self._client.query_range(question, since_s + STEP_S, newest_s, STEP_S):
                node = labels.get(self._label)
                for moment_s, increase in points if node else ():
                    whose = (str(node), one.exporter, _name(one, labels))
                    time = datetime.fromtimestamp(moment_s, UTC)
                    finding = rise(one.measure, known, increase)
                    found.append(finding_event(finding, whose, _device(one, kind, labels), time, self._url))
                    if len(found) >= _EVENTS:
                        yield found
                        found = []
        if found:
            yield found


def _hour_ends(since_s: int, newest_s: int) -> Iterator[int]:
    """The ends of hours that ended after a step, and the newest step itself."""
    first = (since_s // ROLLUP_S + 1) * ROLLUP_S
    yield from range(first, newest_s, ROLLUP_S)
    yield newest_s


def _device_type(one: Recorded) -> str:
    return {"nic": "hca"}.get(one.place.type, one.place.type)


def _device(one: Recorded, kind: str, labels: dict[str, str]) -> Device:
    words = [labels.get(label, "") for label in one.place.labels]
    if kind == "hca":
        return Device(type=kind, port=int(words[1]) if words[1].isdigit() else None)
    return Device(type=kind, index=int(words[0]) if words[0].isdigit() and kind != "dimm" else None)


def _name(one: Recorded, labels: dict[str, Any]) -> str | None:
    if one.place.type == "nic":
        return str(labels.get("device"))
    return f"mc{labels.get('controller')}" if one.place.type == "dimm" else None

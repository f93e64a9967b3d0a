"""`prometheus:URL`: the roll-ups and counters of many nodes from Prometheus, Mimir or Thanos, by its recording rules.

    prometheus:http://127.0.0.1:9090
    prometheus:https://mimir.example.org/prometheus#tenant=gpu&token_file=/etc/foreshock/mimir.token&node_label=host

Needs deploy/prometheus/foreshock-recording-rules.yaml there. Every five minutes it asks for the hour so far, a few
hundred nodes at a time; nothing of the hour is kept here: after an absence each hour that ended meanwhile is asked for
once (at most a day's), and then every rise of a counter since. The position is the last step that was done.
"""

import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from http.client import HTTPException
from itertools import chain
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import orjson

from collectors.collector import CollectorTurn, Position, SourceError, SourceSettings, Wake, split_options
from collectors.telemetry.device_events import device_missing, finding_event, rise, xid_changed
from collectors.telemetry.node_watch import DRIFT_S, booted
from collectors.telemetry.prometheus_rules import STEP_S, Hour, RecordingRule, hour_query, record_name, recorded
from collectors.telemetry.states import code_came, health_changed
from store.records.event import Device, Event
from store.records.fault_catalog import counter, shown_codes
from store.records.telemetry import ROLLUP_S
from wire.access.address import clear_text, token_opener

# Questions to Prometheus' HTTP API, which Mimir and Thanos answer too: instant queries and ranges.
#
# A server that is busy or away is asked again, a few times; then the source fails and is opened anew by the runner.

# Gauges of the last fault code of a device, each by its own maker's table.
_CODES = ("xid_last", "mlu_xid_last", "error_code")
_TRIES = 4
_MOST_BYTES = 256 * 1024 * 1024
_AGAIN = frozenset({408, 429, 500, 502, 503, 504})


@dataclass(frozen=True, slots=True)
class PrometheusAccess:
    """Where it is and what it wants to see. The token is read from its file at each question."""

    url: str
    tenant: str | None = None
    token_file: Path | None = None
    timeout_s: float = 60.0


class PrometheusClient:
    """Asks one server."""

    def __init__(self, access: PrometheusAccess, sleep: Callable[[float], None] = time.sleep) -> None:
        self._access = access
        self._sleep = sleep

    def query(self, expression: str, time_s: int) -> Iterator[tuple[dict[str, str], float]]:
        """Labels and value of every series of an instant query.

        Raises:
            SourceError: no answer after several tries, or a refusal.
        """
        for series in self._ask("query", {"query": expression, "time": str(time_s)}):
            yield series["metric"], float(series["value"][1])

    def query_range(
        self, expression: str, start_s: int, end_s: int, step_s: int
    ) -> Iterator[tuple[dict[str, str], list[tuple[int, float]]]]:
        """Labels and points of every series of a range.

        Raises:
            SourceError: as `query`.
        """
        parameters = {"query": expression, "start": str(start_s), "end": str(end_s), "step": str(step_s)}
        for series in self._ask("query_range", parameters):
            yield series["metric"], [(int(moment), float(value)) for moment, value in series["values"]]

    def _ask(self, path: str, parameters: dict[str, str]) -> list[dict[str, Any]]:
        reason = ""
        for attempt in range(_TRIES):
            if attempt:
                self._sleep(2.0 ** (attempt - 1))
            try:
                return self._once(path, parameters)
            except urllib.error.HTTPError as error:
                said = error.read(500).decode(errors="replace").strip()
                reason = f"{error.code} {said}"
                if error.code not in _AGAIN:
                    break
            except (OSError, HTTPException, ValueError, KeyError, TypeError) as error:
                reason = str(error) or type(error).__name__
        raise SourceError(f"{self._access.url} gave no answer to {parameters['query'][:80]!r}: {reason}")

    def _once(self, path: str, parameters: dict[str, str]) -> list[dict[str, Any]]:
        request = urllib.request.Request(  # noqa: S310 - the collector allows http(s) alone
            f"{self._access.url.rstrip('/')}/api/v1/{path}",
            urlencode(parameters).encode(),
            {"Content-Type": "application/x-www-form-urlencoded"},
        )
        if self._access.tenant:
            request.add_header("X-Scope-OrgID", self._access.tenant)
        if self._access.token_file:
            request.add_header("Authorization", f"Bearer {self._access.token_file.read_text().strip()}")
        with token_opener().open(request, timeout=self._access.timeout_s) as answer:
            body = answer.read(_MOST_BYTES + 1)
        if len(body) > _MOST_BYTES:
            raise ValueError(f"the answer is over {_MOST_BYTES} bytes")
        found: list[dict[str, Any]] = orjson.loads(body)["data"]["result"]
        return found


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
        self.spec = f"prometheus:{rest}"
        url, options = split_options(
            self.spec, rest, ("tenant", "token_file", "node_label", "delay_s", "insecure_http")
        )
        if not url.startswith(("http://", "https://")):
            raise SourceError(f"{self.spec}: give the server's address, as in prometheus:http://127.0.0.1:9090")
        first = {name: values[0] for name, values in options.items()}
        token = Path(first["token_file"]) if "token_file" in first else None
        why = None if token is None or first.get("insecure_http") == "true" else clear_text(url)
        if why is not None:
            raise SourceError(f"{self.spec}: {why}; or #insecure_http=true, where a mesh or tunnel encrypts the way")
        self._client = PrometheusClient(PrometheusAccess(url, first.get("tenant"), token, settings.timeout_s or 60.0))
        self._url = url
        self.wake = Wake()
        self._label = first.get("node_label", "node")
        try:
            self._delay_s = float(first.get("delay_s", _DELAY_S))
        except ValueError as error:
            raise SourceError(f"{self.spec}: delay_s= must be a number of seconds") from error
        self._done_s = 0
        self._work: Iterator[CollectorTurn] = iter(())

    def open(self, position: Position | None) -> None:
        """Go on after the last step that was done; at first, with the newest."""
        self._done_s = int((position or {}).get("done_s", 0))
        self._work = iter(())

    def collect(self, wait_s: float) -> CollectorTurn:
        """One part of a step's work; waits where the next step is not due."""
        if (part := next(self._work, None)) is not None:
            return part
        newest_s = int((time.time() - self._delay_s) // STEP_S * STEP_S)
        if newest_s <= self._done_s:
            self.wake.wait(min(wait_s, newest_s + STEP_S + self._delay_s - time.time()))
            return CollectorTurn()
        self._work = self.step(newest_s)
        return next(self._work)

    def close(self) -> None:
        """Nothing is held open between questions."""
        self._work = iter(())

    def step(self, newest_s: int) -> Iterator[CollectorTurn]:
        """Everything from the last step that was done up to this one; the last part bears the position."""
        since_s = max(self._done_s, newest_s - _MOST_BEHIND_S) if self._done_s else newest_s - STEP_S
        for end_s in _hour_ends(since_s, newest_s):
            yield from self._hour(end_s)
        for events in chain(self._rises(since_s, newest_s), self._changes(since_s, newest_s)):
            yield CollectorTurn(events=tuple(events), lines=len(events))
        self._done_s = newest_s
        yield CollectorTurn(position={"done_s": newest_s})

    def _hour(self, end_s: int) -> Iterator[CollectorTurn]:
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
            yield CollectorTurn(rollups=tuple(hour.rollups()), lines=series)

    def _present(self, at_s: int) -> list[RecordingRule]:
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

    def _changes(self, since_s: int, newest_s: int) -> Iterator[list[Event]]:
        """What a watch of samples tells, asked of the server by what is another than a step before.

        A first value is no change, but that of an Xid: its series may begin with it. So the GPU must have been there.
        """
        for one in self._present(newest_s):
            kind = _device_type(one)
            question = self._question(one)
            if question is None:
                continue
            found: list[Event] = []
            for labels_of, points in self._client.query_range(question, since_s + STEP_S, newest_s, STEP_S):
                for moment_s, value in points if self._label in labels_of else ():
                    found += self._change(one, (kind, labels_of), moment_s, value)
            if found:
                yield found

    def _question(self, one: RecordingRule) -> str | None:
        """What asks for the changes of a measure; None of one whose changes tell nothing."""
        last = f'{record_name(one.measure, "last")}{{exporter="{one.exporter}"}}'
        before = f"last_over_time({last}[1h] offset {STEP_S}s)"
        if one.measure in _CODES:
            there = f'last_over_time(foreshock:gpu_temp_c:last{{exporter="{one.exporter}"}}[1h] offset {STEP_S}s)'
            labels = ", ".join((self._label, *one.place.labels))
            return f"(({last} > 0) unless ({last} == {before})) and on ({labels}) {there}"
        if one.measure == "boot_time_s":
            return f"{last} and ({last} - {before} > {DRIFT_S:.0f})"
        if one.measure == "healthy":
            return f"(({last} == 0) unless ({before} == 0)) or (({last} == 1) and ({before} == 0))"
        if one.measure == "gpu_temp_c":
            return f"({last} offset {STEP_S}s unless {last}) and on ({self._label}) count by ({self._label}) ({last})"
        return None

    def _change(
        self, one: RecordingRule, of: tuple[str, dict[str, str]], moment_s: int, value: float
    ) -> Iterator[Event]:
        """The event of one point of a change."""
        kind, labels = of
        device = _device(one, kind, labels)
        if one.measure == "xid_last":
            finding = xid_changed(int(value), datetime.fromtimestamp(moment_s - STEP_S, UTC), first=False)
        elif one.measure == "boot_time_s":
            finding = booted(labels[self._label], value)
        elif one.measure == "healthy":
            finding = health_changed(value)
        elif one.measure in _CODES:
            (code,) = shown_codes({one.measure: value}) or (None,)
            finding = None if code is None else code_came(code, first=False, before_s=moment_s - STEP_S)
        else:
            finding = device_missing(kind, None, device.index)
        if finding is not None:
            whose = (labels[self._label], one.exporter, _name(one, labels))
            yield finding_event(finding, whose, device, datetime.fromtimestamp(moment_s, UTC), self._url)


def _hour_ends(since_s: int, newest_s: int) -> Iterator[int]:
    """The ends of hours that ended after a step, and the newest step itself."""
    first = (since_s // ROLLUP_S + 1) * ROLLUP_S
    yield from range(first, newest_s, ROLLUP_S)
    yield newest_s


def _device_type(one: RecordingRule) -> str:
    return {"nic": "hca"}.get(one.place.type, one.place.type)


def _device(one: RecordingRule, kind: str, labels: dict[str, str]) -> Device:
    words = [labels.get(label, "") for label in one.place.labels]
    if not words:
        return Device(type=kind)
    if kind == "hca":
        return Device(type=kind, port=int(words[1]) if words[1].isdecimal() else None)
    return Device(type=kind, index=int(words[0]) if words[0].isdecimal() and kind != "dimm" else None)


def _name(one: RecordingRule, labels: dict[str, Any]) -> str | None:
    if one.place.type == "nic":
        return str(labels.get("device"))
    return f"mc{labels.get('controller')}" if one.place.type == "dimm" else None

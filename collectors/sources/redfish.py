"""`redfish:FILE`: asks the management controllers (BMC) of a list once a minute for power, leaks, heat and fans.

    redfish:/etc/foreshock/bmc.list#credentials=/etc/foreshock/bmc.secret&ca=/etc/foreshock/bmc-ca.pem

Each line of the list is a node and its controller's address, `gpu-017 https://10.1.0.17`. Only the list says of which
node a controller speaks, and only that host is asked: no answer can name another. Controllers are slow and break: each
has a bounded time, a bounded answer and a back-off of its own, and one that does not answer twice in a row is a
`bmc_silent`. What is told is a change of state; what was not well is remembered over a restart.
"""

import base64
import heapq
import http.client
import logging
import os
import re
import socket
import ssl
import time
import weakref
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any
from urllib.parse import urlsplit

import orjson

from collectors.collector import CollectorTurn, Position, SourceError, SourceSettings, Wake, split_options
from collectors.decoder import number
from parsers.formats.redfish import ResourceState, resource_states
from parsers.text.json_fields import record_of, records_of, text_of
from store.records.event import Event
from store.records.fault_catalog import with_kind_meaning
from wire.access.address import clear_text, shared_secret

_LOG = logging.getLogger(__name__)
_INTERVAL_S, _TIMEOUT_S, _REQUEST_S = 60.0, 30.0, 10.0
_AT_ONCE, _MOST_AT_ONCE = 16, 256
# Of the back-off of a controller that fails, in intervals.
_LONGEST = 16
_SILENT = 2  # failures in a row
_MOST_BYTES = 4 * 1024 * 1024
_MOST_CONTROLLERS, _MOST_CHASSIS, _MOST_PATHS = 20_000, 32, 128
# Of one round: a controller that tells of more things is none that anybody builds.
_MOST_STATES, _MOST_BYTES_OF_ROUND = 2_000, 16 * 1024 * 1024
# Where things are is looked for again after so long, and where one of them is gone.
_DISCOVER_S, _GONE_S = 3600.0, 600.0
_PATH = re.compile(r"/redfish/v1/[!-~]{1,400}", re.ASCII)
_LINE = re.compile(r"(?P<node>[A-Za-z0-9][\w.-]{0,252})\s+(?P<url>https?://\S{1,500})", re.ASCII)
_EXPAND = "?$expand=.($levels=1)"
_ORDER = ("OK", "Warning", "Critical")


@dataclass(slots=True, eq=False)
class _Controller:
    """One controller and what is known of it. While it is asked its thread alone changes `paths`."""

    node: str
    url: str
    due: float = 0.0
    failures: int = 0
    until: float | None = None  # while it is asked
    connection: http.client.HTTPConnection | None = None
    paths: tuple[str, ...] = ()
    found_at: float = 0.0
    chassis: list[str] | None = None  # where is still to be looked, while that takes more than one round
    found: list[str] = field(default_factory=list)
    bad: dict[str, str] = field(default_factory=dict)
    is_silent: bool = False


@dataclass(frozen=True, slots=True)
class _Answer:
    """What came of asking one controller."""

    controller: _Controller
    states: tuple[ResourceState, ...] = ()
    errors: int = 0
    why: str | None = None  # it failed
    is_whole: bool = False  # every resource was read


class RedfishCollector:
    """The controllers of one list."""

    def __init__(self, rest: str, settings: SourceSettings) -> None:
        """`rest` is the list's path and the options.

        Raises:
            SourceError: no path, or an option that is not known.
        """
        self.spec = f"redfish:{rest}"
        known = ("credentials", "ca", "at_once", "insecure_http")
        path, options = split_options(self.spec, rest, known)
        if not path:
            raise SourceError(f"{self.spec}: name the list of controllers, as in redfish:/etc/foreshock/bmc.list")
        first = {name: values[-1] for name, values in options.items()}
        self._path, self._ca = Path(path), first.get("ca")
        self._secret = Path(first["credentials"]) if "credentials" in first else None
        self._clear = first.get("insecure_http") == "true"
        at_once = first.get("at_once", str(_AT_ONCE))
        if not at_once.isdecimal() or not 0 < int(at_once) <= _MOST_AT_ONCE:
            raise SourceError(f"{self.spec}: at_once= must be 1 to {_MOST_AT_ONCE}")
        self._at_once = int(at_once)
        self._interval_s = settings.interval_s or _INTERVAL_S
        self._timeout_s = settings.timeout_s or _TIMEOUT_S
        self.wake = Wake()
        self._ready = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        weakref.finalize(self, os.close, self._ready).atexit = False
        self._controllers: dict[str, _Controller] = {}
        self._due: list[tuple[float, str]] = []  # a heap; an entry that is not its controller's `due` is an old one
        self._asked: set[_Controller] = set()
        self._answers: SimpleQueue[_Answer] = SimpleQueue()
        self._pool: ThreadPoolExecutor | None = None
        self._tls: ssl.SSLContext | None = None
        self._stamp: tuple[int, int] | None = None

    def open(self, position: Position | None) -> None:
        """Read the list, and take up what was not well.

        Raises:
            SourceError: a file is not there or broken; a controller's password would travel in clear text.
        """
        try:
            self._tls = ssl.create_default_context(cafile=self._ca)
        except (OSError, ssl.SSLError) as error:
            raise SourceError(f"{self.spec}: ca={self._ca}: {error}: name a PEM file of certificates") from error
        if (why := shared_secret(self._secret)) is not None:
            _LOG.warning("%s: %s", self.spec, why)
        self._headers()
        self._controllers, self._answers, self._stamp = {}, SimpleQueue(), None
        self._due, self._asked = [], set()
        self._read_list()
        state = position or {}
        for node, bad in dict(state.get("bad", {})).items():
            if node in self._controllers:
                self._controllers[node].bad = dict(bad)
        for node in state.get("silent", ()):
            if node in self._controllers:
                self._controllers[node].is_silent = True
        self._pool = ThreadPoolExecutor(self._at_once, thread_name_prefix="redfish")

    def collect(self, wait_s: float) -> CollectorTurn:
        """What controllers answered; those that are due are asked meanwhile.

        Raises:
            SourceError: the credentials cannot be read any more.
        """
        lines = errors = 0
        try:
            self._read_list()
        except SourceError as error:  # the list before stays
            _LOG.error("%s", error)
            errors = 1
        now = time.monotonic()
        self._cut_late(now)
        self._ask_due(now)
        if self._answers.empty():
            has_room = bool(self._due) and len(self._asked) < self._at_once
            rest_s = self._due[0][0] - now if has_room else 1.0  # an answer ends the wait
            self.wake.wait(max(0.0, min(wait_s, 1.0, rest_s)), self._ready)
        with suppress(BlockingIOError):
            os.eventfd_read(self._ready)
        events: list[Event] = []
        while True:
            try:
                answer = self._answers.get_nowait()
            except Empty:
                break
            self._asked.discard(answer.controller)
            lines, errors = lines + len(answer.states), errors + answer.errors + (answer.why is not None)
            if self._controllers.get(answer.controller.node) is answer.controller:
                events += self._report(answer, datetime.now(UTC))
        return CollectorTurn(tuple(events), position=self._position() if events else None, lines=lines, errors=errors)

    def close(self) -> None:
        """Let go of all that are asked."""
        for one in self._asked:
            one.until = None
            _cut(one)
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)
            self._pool = None

    def _position(self) -> Position:
        every = self._controllers.values()
        return {
            "bad": {one.node: dict(one.bad) for one in every if one.bad},
            "silent": [one.node for one in every if one.is_silent],
        }

    def _read_list(self) -> None:
        """Anew where it has changed; who stays on it stays known."""
        try:
            status = self._path.stat()
            stamp = (status.st_mtime_ns, status.st_size)
        except OSError:
            stamp = (0, 0)
        if stamp == self._stamp:
            return
        self._stamp = stamp
        try:
            text = self._path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise SourceError(f"{self.spec}: {self._path}: {error}: each line is NODE https://ADDRESS") from error
        found: dict[str, _Controller] = {}
        for place, line in enumerate(text.splitlines(), start=1):
            words = line.partition("#")[0].strip()
            if words:
                one = self._controller(words, f"{self._path}:{place}")
                if one.node in found or len(found) >= _MOST_CONTROLLERS:
                    raise SourceError(f"{self._path}:{place}: {one.node} stands there twice, or the list is too long")
                found[one.node] = one
        for node, one in found.items():
            if self._controllers.get(node) is not one:
                heapq.heappush(self._due, (one.due, node))
        self._controllers = found

    def _controller(self, words: str, place: str) -> _Controller:
        match = _LINE.fullmatch(words)
        if match is None:
            raise SourceError(f"{place}: {words[:80]!r} is no node and address: write gpu-017 https://10.1.0.17")
        node, url = match["node"], match["url"].rstrip("/")
        why = None if self._secret is None or self._clear else clear_text(url)
        if why is not None:
            raise SourceError(f"{place}: {why}; or #insecure_http=true, where the way is a network of its own")
        if "@" in url:
            raise SourceError(f"{place}: an address bears no user: write USER:PASSWORD into a file, #credentials=FILE")
        try:
            is_whole = bool(urlsplit(url).hostname) and urlsplit(url).port != 0
        except ValueError:
            is_whole = False
        if not is_whole:
            raise SourceError(f"{place}: {url!r} is no address: write https://HOST or https://HOST:PORT")
        before = self._controllers.get(node)
        return before if before is not None and before.url == url else _Controller(node, url)

    def _headers(self) -> Mapping[str, str]:
        """Read at each round: passwords are changed while this runs."""
        headers = {"Accept": "application/json", "OData-Version": "4.0"}
        if self._secret is None:
            return headers
        try:
            words = self._secret.read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise SourceError(f"{self.spec}: {self._secret}: {error}: write USER:PASSWORD into it") from error
        if ":" not in words:
            raise SourceError(f"{self.spec}: {self._secret} holds no USER:PASSWORD")
        return {**headers, "Authorization": f"Basic {base64.b64encode(words.encode()).decode()}"}

    def _ask_due(self, now: float) -> None:
        headers: Mapping[str, str] | None = None
        while self._due and self._due[0][0] <= now and len(self._asked) < self._at_once and self._pool is not None:
            due, node = heapq.heappop(self._due)
            one = self._controllers.get(node)
            if one is None or one.due != due or one in self._asked:
                continue
            headers = headers or self._headers()
            one.until = now + self._timeout_s
            self._asked.add(one)
            self._pool.submit(self._ask, one, headers)

    def _cut_late(self, now: float) -> None:
        """A controller that drips its answer holds its thread no longer than its time."""
        for one in self._asked:
            if one.until is not None and one.until < now:
                _cut(one)

    def _ask(self, one: _Controller, headers: Mapping[str, str]) -> None:
        """Runs in a thread of the pool; an answer comes in any case, else nobody would ask it again."""
        answer = _Answer(one, why="the round broke off")
        try:
            answer = _Round(one.url, headers, self._tls, one).answer()
        except (OSError, http.client.HTTPException, ValueError) as error:
            answer = _Answer(one, why=f"{type(error).__name__}: {error}"[:200])
        finally:
            self._answers.put(answer)
            with suppress(OSError):
                os.eventfd_write(self._ready, 1)

    def _report(self, answer: _Answer, now: datetime) -> Iterator[Event]:
        one = answer.controller
        one.until, one.connection = None, None
        one.failures = 0 if answer.why is None else one.failures + 1
        one.due = time.monotonic() + self._interval_s * min(2 ** min(max(one.failures - 1, 0), 8), _LONGEST)
        heapq.heappush(self._due, (one.due, one.node))
        if answer.why is not None:
            if one.failures >= _SILENT and not one.is_silent:
                one.is_silent = True
                yield self._of_controller(one, "bmc_silent", f"The controller does not answer: {answer.why}", now)
            return
        if one.is_silent:
            one.is_silent = False
            yield self._of_controller(one, "bmc_returned", "The controller answers again", now)
        worst: dict[str, ResourceState] = {}  # two resources may tell of one thing
        for state in sorted(answer.states, key=lambda each: _ORDER.index(each.health)):
            worst[f"{state.kind} {state.path}"] = state
        for key, state in worst.items():
            health = "NoInput" if state.has_no_input else state.health
            if one.bad.get(key, "OK") != health:
                if health == "OK":
                    del one.bad[key]
                else:
                    one.bad[key] = health
                yield self._numbered(replace(state.event(one.node), time=now), key)
        # What is no longer there is neither well nor bad. A controller that always lacks a resource is never whole.
        if answer.is_whole or len(one.bad) > _MOST_STATES:
            one.bad = {key: health for key, health in one.bad.items() if key in worst}

    def _of_controller(self, one: _Controller, kind: str, words: str, now: datetime) -> Event:
        said = {"url": one.url}
        event = Event(now, one.node, "redfish", kind, message=words, attributes=said)
        return self._numbered(with_kind_meaning(event), kind)

    def _numbered(self, event: Event, key: str) -> Event:
        return number(event, f"{self.spec}:{event.node}:{key}:{event.time}")


def _cut(one: _Controller) -> None:
    connection = one.connection
    sock = None if connection is None else connection.sock
    if sock is not None:
        with suppress(OSError):
            sock.shutdown(socket.SHUT_RDWR)


class _Round:
    """One round with one controller, over one connection."""

    def __init__(self, url: str, headers: Mapping[str, str], tls: ssl.SSLContext | None, one: _Controller) -> None:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
        self._before, self._headers, self._one = parts.path.rstrip("/"), headers, one
        self._connection: http.client.HTTPConnection = (
            http.client.HTTPSConnection(host, port, timeout=_REQUEST_S, context=tls)
            if parts.scheme == "https"
            else http.client.HTTPConnection(host, port, timeout=_REQUEST_S)
        )
        one.connection = self._connection
        self._bytes = 0

    def answer(self) -> _Answer:
        """All states that the controller tells.

        Raises:
            OSError, HTTPException, ValueError: it does not answer, refuses us, tells of too much, or none of its
                resources can be read.
        """
        try:
            one, now = self._one, time.monotonic()
            if (not one.paths or now - one.found_at > _DISCOVER_S) and not self._discover(now):
                return _Answer(one)
            states: list[ResourceState] = []
            missing = 0
            for path in one.paths:
                record = self._get(path)
                if record is None:
                    missing += 1
                    continue
                for each in (record, *records_of(record, "Members")):
                    states += resource_states(each)
                    if len(states) > _MOST_STATES:
                        raise ValueError(f"it tells of more than {_MOST_STATES} things")
            if missing == len(one.paths):
                one.found_at = -_DISCOVER_S
                raise ValueError("none of its resources of power and heat can be read")
            if missing:  # something was moved: looked for again before long
                one.found_at = min(one.found_at, now - _DISCOVER_S + _GONE_S)
            return _Answer(one, tuple(states), missing, is_whole=not missing)
        finally:
            self._connection.close()

    def _discover(self, now: float) -> bool:
        """Look where it tells of power, leaks, heat and fans; False where the next round has to go on with it.

        Raises:
            OSError, HTTPException, ValueError: it does not answer, and nothing was found in this round.
        """
        one, done = self._one, 0
        if one.chassis is None:
            one.found = self._members("/redfish/v1/Systems")[:_MOST_CHASSIS]
            one.chassis = self._members("/redfish/v1/Chassis")[:_MOST_CHASSIS]
        try:
            while one.chassis:
                one.found += self._of_chassis(self._get(one.chassis[0]) or {})
                one.chassis.pop(0)
                done += 1
        except (OSError, http.client.HTTPException):
            if not done:
                raise
            return False
        found = tuple(dict.fromkeys(one.found))
        if len(found) > _MOST_PATHS:
            _LOG.warning("%s tells of %d resources: %d are read", one.node, len(found), _MOST_PATHS)
        one.paths, one.found_at, one.chassis, one.found = found[:_MOST_PATHS], now, None, []
        return True

    def _of_chassis(self, chassis: Mapping[str, Any]) -> list[str]:
        power, thermal = (self._linked(chassis, f"{name}Subsystem") for name in ("Power", "Thermal"))
        supplies, older = _link(power, "PowerSupplies"), _link(chassis, "Thermal")
        found = [] if supplies is None else self._members(supplies)
        if supplies is None and (simple := _link(chassis, "Power")) is not None:
            found.append(simple)
        if (leaks := _link(thermal, "LeakDetection")) is not None:
            found.append(leaks)
            if (each := _link(self._get(leaks) or {}, "LeakDetectors")) is not None:
                found += self._members(each)
        if older is not None:
            return [*found, older]
        if (fans := _link(thermal, "Fans")) is not None:
            found += self._members(fans)
        sensors = _link(chassis, "Sensors")
        return found if sensors is None else [*found, sensors + _EXPAND]

    def _linked(self, record: Mapping[str, Any], name: str) -> Mapping[str, Any]:
        """The resource behind a link; empty where there is none."""
        path = _link(record, name)
        return {} if path is None else self._get(path) or {}

    def _members(self, path: str) -> list[str]:
        found = records_of(self._get(path) or {}, "Members")[:_MOST_PATHS]
        return [link for one in found if (link := _safe(text_of(one, "@odata.id"))) is not None]

    def _get(self, path: str) -> dict[str, Any] | None:
        """A resource; None where there is none.

        Raises:
            OSError, HTTPException: no answer, or none in time.
            ValueError: no JSON, too much of it, or a refusal.
        """
        if time.monotonic() > (self._one.until or 0.0):  # or the source is closed
            raise TimeoutError("its answers take too long")
        self._connection.request("GET", self._before + path, headers=dict(self._headers))
        response = self._connection.getresponse()
        body = response.read(_MOST_BYTES + 1)
        self._bytes += len(body)
        if len(body) > _MOST_BYTES or self._bytes > _MOST_BYTES_OF_ROUND:
            raise ValueError(f"{path}: the answer is over {_MOST_BYTES} bytes, or all are over {_MOST_BYTES_OF_ROUND}")
        if response.status in (401, 403):
            raise ValueError(f"{response.status}: it refuses the credentials")
        if response.status != 200:
            return None
        found = orjson.loads(body)
        return found if isinstance(found, dict) else None


def _safe(path: str | None) -> str | None:
    """A path of the standard's tree on the same host; None for anything else that an answer may hold."""
    return path if path is not None and _PATH.fullmatch(path) and ".." not in path else None


def _link(record: Mapping[str, Any], name: str) -> str | None:
    return _safe(text_of(record_of(record, name), "@odata.id"))

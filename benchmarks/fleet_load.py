"""Simulated sidecars over loopback: heartbeats, roll-ups and events, each tried again until it is taken.

tally = asyncio.run(Fleet(host, port, nodes=12_500).run(steady_s=300, burst_s=300))

Each node's times are jittered. A sidecar's connection is idle for longer than a server keeps it, so each of its
requests is a new one; a node in a flood keeps its connection and sends what came together since its last answer.
"""

import asyncio
import random
import time
from array import array
from collections import Counter
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

from benchmarks.load_bodies import PREFIX, Bodies, events_a_second, request
from collectors.agent.sidecar import SidecarSettings
from collectors.ship.transport import Backoff

Send = Callable[[], Coroutine[None, None, None]]

HEARTBEAT_S, ROLLUP_S = 60.0, 300.0
BURST_NODES = 500
BATCH = 1000
_TURN_S = 0.02
_TIMEOUT_S = 10.0
_MOST_CONNECTIONS = 4000


def linger_s() -> float:
    """How long a sidecar waits for what comes together."""
    return SidecarSettings(server="", node="", sources=(), spool=Path()).linger_s


@dataclass(slots=True)
class Tally:
    """What was sent and what came back. `taken` counts items by path; latencies in seconds, of answers 2xx."""

    taken: Counter[str] = field(default_factory=Counter)
    requests: Counter[str] = field(default_factory=Counter)
    answers: Counter[str] = field(default_factory=Counter)
    retries: Counter[str] = field(default_factory=Counter)
    took: dict[str, "array[float]"] = field(default_factory=dict)
    acknowledged_s: "array[float]" = field(default_factory=lambda: array("d"))  # of a flood's events: made until 2xx
    cpu_s: float = 0.0
    wall_s: float = 0.0

    def note(self, phase: str, path: str, status: int, took_s: float) -> None:
        """One answer; status 0: none came."""
        self.requests[f"{phase} {path}"] += 1
        self.answers[f"{phase} {status}"] += 1
        if 200 <= status < 300:
            self.took.setdefault(f"{phase} {path}", array("d")).append(took_s)


class Connection(asyncio.Protocol):
    """A client's side of HTTP/1.1: one request at a time."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self._received = bytearray()
        self._answer: asyncio.Future[tuple[int, float | None]] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by the loop."""
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        """Called by the loop: an answer is whole when its Content-Length is there."""
        self._received += data
        end = self._received.find(b"\r\n\r\n")
        if end < 0 or self._answer is None or self._answer.done():
            return
        fields = dict(line.lower().partition(b": ")[::2] for line in bytes(self._received[:end]).split(b"\r\n")[1:])
        if len(self._received) < end + 4 + int(fields.get(b"content-length", b"0")):
            return
        status = int(self._received[9:12])
        after = fields.get(b"retry-after")
        self._received.clear()
        self._answer.set_result((status, float(after) if after is not None and after.isdigit() else None))
        if fields.get(b"connection") == b"close":
            self.close()

    def connection_lost(self, error: Exception | None) -> None:
        """Called by the loop."""
        self.transport = None
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(error or ConnectionResetError())

    async def ask(self, data: bytes) -> tuple[int, float | None]:
        """Status and Retry-After.

        Raises:
            OSError: the connection broke.
            TimeoutError: no answer in time.
        """
        if self.transport is None:
            raise ConnectionResetError
        self._answer = asyncio.get_running_loop().create_future()
        self.transport.write(data)
        return await asyncio.wait_for(self._answer, _TIMEOUT_S)

    def close(self) -> None:
        """Let go."""
        if self.transport is not None:
            self.transport.close()
            self.transport = None


class Fleet:
    """The sidecars of `nodes` nodes against one server. `extra` runs beside each phase (the probes)."""

    def __init__(self, host: str, port: int, nodes: int, seed: int = 1, heartbeats: bool = True) -> None:
        self._address = (host, port)
        self._nodes = [f"{PREFIX}{number:05d}" for number in range(nodes)]
        self._chance = random.Random(seed)  # noqa: S311  # no secret
        self._bodies = Bodies(seed)
        self._started = datetime.now(UTC)
        self._heartbeats = heartbeats
        self._slots = asyncio.Semaphore(_MOST_CONNECTIONS)
        self._linger_s = linger_s()
        self.phase = "steady"
        self.tally = Tally()

    @property
    def made(self) -> int:
        """How many events there are so far."""
        return self._bodies.serial

    async def run(self, steady_s: float, burst_s: float, burst_rate: float = 5000.0) -> Tally:
        """Quiet times, then a flood beside them, then until the last is taken."""
        cpu, wall = time.process_time(), time.monotonic()
        pending: set[asyncio.Task[None]] = set()
        background = asyncio.create_task(self._regular(pending, steady_s + burst_s))
        await asyncio.sleep(steady_s)
        if burst_s:
            self.phase = "burst"
            rate = burst_rate / BURST_NODES
            chosen = self._chance.sample(self._nodes, BURST_NODES)
            await asyncio.gather(*(self._flood(node, rate, burst_s) for node in chosen))
        await background
        await asyncio.gather(*pending)
        self.tally.cpu_s, self.tally.wall_s = time.process_time() - cpu, time.monotonic() - wall
        return self.tally

    async def _regular(self, pending: set[asyncio.Task[None]], duration_s: float) -> None:
        """Heartbeats, roll-ups and the field's events, each at its time."""
        began = time.monotonic()
        due = self._schedule(duration_s)
        for moment_s, send in due:
            while (wait_s := moment_s - (time.monotonic() - began)) > 0:
                await asyncio.sleep(max(wait_s, _TURN_S))
            task = asyncio.create_task(send())
            pending.add(task)
            task.add_done_callback(pending.discard)

    def _schedule(self, duration_s: float) -> list[tuple[float, Send]]:
        due: list[tuple[float, Send]] = []
        uniform = self._chance.uniform
        for node in self._nodes:
            if self._heartbeats:
                due += [(at, partial(self._heartbeat, node)) for at in self._times(HEARTBEAT_S, duration_s)]
            due += [(at, partial(self._rollup, node)) for at in self._times(ROLLUP_S, duration_s)]
        count = int(events_a_second(len(self._nodes)) * duration_s / 2)
        for _ in range(count):  # two lines at once: a link's flap, or a fault that two devices saw
            node = self._chance.choice(self._nodes)
            due.append((uniform(0, duration_s), partial(self._two_events, node)))
        return sorted(due, key=lambda pair: pair[0])

    def _times(self, interval_s: float, duration_s: float) -> list[float]:
        found, at = [], self._chance.uniform(0, interval_s)
        while at < duration_s:
            found.append(at)
            at += interval_s * self._chance.uniform(0.95, 1.05)
        return found

    async def _heartbeat(self, node: str) -> None:
        await self._alone("heartbeats", self._bodies.heartbeat(node, datetime.now(UTC), self._started), 1)

    async def _rollup(self, node: str) -> None:
        await self._alone("telemetry", self._bodies.rollup(node, datetime.now(UTC)), 1)

    async def _two_events(self, node: str) -> None:
        await self._alone("events", self._bodies.events(node, [datetime.now(UTC)] * 2), 2)

    async def _alone(self, path: str, body: bytes, items: int) -> None:
        """One request on a connection of its own."""
        async with self._slots:
            connection = await self._deliver(None, path, body, items)
            connection.close()

    async def _flood(self, node: str, rate: float, duration_s: float) -> None:
        """A node whose log gives `rate` lines a second: one request in flight, what came meanwhile is the next one."""
        await asyncio.sleep(self._chance.uniform(0, 1 / rate))
        began, sent, connection = time.monotonic(), 0, None
        start = datetime.now(UTC)
        total = round(rate * duration_s)
        while sent < total:
            await asyncio.sleep(max(0.0, (sent + 1) / rate - (time.monotonic() - began)) + self._linger_s)
            ready = min(total, int((time.monotonic() - began) * rate), sent + BATCH)
            if ready <= sent:
                continue
            moments = [start + timedelta(seconds=number / rate) for number in range(sent, ready)]
            body = self._bodies.events(node, moments)
            connection = await self._deliver(connection, "events", body, ready - sent)
            now = time.monotonic() - began
            self.tally.acknowledged_s.extend(now - number / rate for number in range(sent, ready))
            sent = ready
        if connection is not None:
            connection.close()

    async def _deliver(self, connection: Connection | None, path: str, body: bytes, items: int) -> Connection:
        """Until it is taken. Gives the connection back for the next request."""
        data = request(path, body, self._address)
        backoff = Backoff(0.5, 30.0)
        while True:
            phase, began = self.phase, time.monotonic()
            kept = connection is not None
            status, after = 0, None
            try:
                if connection is None:
                    _, connection = await asyncio.get_running_loop().create_connection(Connection, *self._address)
                status, after = await connection.ask(data)
            except (OSError, TimeoutError):
                if connection is not None:
                    connection.close()
                connection = None
                if kept:
                    continue  # the server had closed the kept connection: a fresh one decides
            self.tally.note(phase, path, status, time.monotonic() - began)
            if 200 <= status < 300 and connection is not None:
                self.tally.taken[path] += items
                return connection
            if status in (400, 401, 403, 404, 413, 421, 422):
                raise RuntimeError(f"POST {path} is refused: {status}")
            if path == "heartbeats":  # the next minute's says the same
                return connection or Connection()
            self.tally.retries[f"{phase} {path} {status}"] += 1
            await asyncio.sleep(max(backoff.next_s(), after or 0.0))

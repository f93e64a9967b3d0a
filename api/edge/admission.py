"""What stands before every route: how much each caller may send, and how much is worked on at a time."""

import asyncio
import math
import random
import threading
import time
from collections import Counter, OrderedDict
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field, replace
from operator import itemgetter
from typing import Annotated

from fastapi import Depends, Request

from api.edge.problem import Problem
from api.edge.turns import CallerTurns, PlaceLostError
from api.server.metrics import Metrics
from api.server.settings import ApiSettings, RequestLimits
from api.server.state import State

# How much one caller may send: token buckets on requests and on body bytes, per token, else per client address.
#
# A bucket may go below nothing (a body's size is known when it was read): then its caller waits until it is paid back.

# What is counted of each node besides its heartbeats.
RECORDS = "records"
# Callers remembered; the one not heard of for longest is forgotten first.
_MOST_CALLERS = 10_000


@dataclass(slots=True)
class _TokenBucket:
    """What a caller may still send, as of `at` (monotonic seconds)."""

    requests: float
    body_bytes: float
    at: float


@dataclass(slots=True)
class RateLimiter:
    """The buckets of every caller. Safe for several threads."""

    limits: RequestLimits
    monotonic: Callable[[], float] = time.monotonic
    _buckets: OrderedDict[str, _TokenBucket] = field(default_factory=OrderedDict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def wait_s(self, caller: str) -> tuple[float, str]:
        """Take one request out of a caller's bucket: 0 s where it may go on, else how long to wait and for what."""
        limits = self.limits
        with self._lock:
            bucket = self._filled(caller)
            short = 1.0 - bucket.requests if limits.requests_per_s else 0.0
            if short > 0:
                return short / limits.requests_per_s, "requests"
            if limits.bytes_per_s and bucket.body_bytes < 0:
                return -bucket.body_bytes / limits.bytes_per_s, "bytes"
            bucket.requests -= 1.0
        return 0.0, ""

    def charge(self, caller: str, body_bytes: int) -> None:
        """Take a body that was read out of a caller's bucket."""
        with self._lock:
            self._filled(caller).body_bytes -= body_bytes

    def give_back(self, caller: str, body_bytes: int) -> None:
        """A request with its body is none of its caller's: somebody who shares the token sends too much."""
        with self._lock:
            bucket = self._filled(caller)
            bucket.requests += 1.0
            bucket.body_bytes += body_bytes

    def _filled(self, caller: str) -> _TokenBucket:
        now, limits = self.monotonic(), self.limits
        most = (max(1.0, limits.requests_per_s * limits.burst_s), limits.bytes_per_s * limits.burst_s)
        bucket = self._buckets.pop(caller, None) or _TokenBucket(*most, now)
        passed = now - bucket.at
        bucket.requests = min(most[0], bucket.requests + passed * limits.requests_per_s)
        bucket.body_bytes = min(most[1], bucket.body_bytes + passed * limits.bytes_per_s)
        bucket.at = now
        self._buckets[caller] = bucket
        if len(self._buckets) > _MOST_CALLERS:
            self._buckets.popitem(last=False)
        return bucket


def whole_seconds(wait_s: float) -> str:
    """Seconds as the header Retry-After takes them: whole, at least one."""
    return str(max(1, math.ceil(wait_s)))


# Whether the event loop keeps pace: a request that it comes to late is refused at once, so that the next is in time.
#
# Without it an overload is a collapse: every request is worked on, each after its sender gave up and came again.

_TICK_S = 0.1


@dataclass(slots=True)
class LoopPace:
    """When the loop was to look at its clock next; while nobody runs it, the loop counts as being in time."""

    _due: float | None = None

    def behind_s(self) -> float:
        """How late the loop is, within a turn of it too; seconds."""
        return 0.0 if self._due is None else max(0.0, time.monotonic() - self._due)

    async def run(self) -> None:
        """Look at the clock, until cancelled."""
        try:
            while True:
                self._due = time.monotonic() + _TICK_S
                await asyncio.sleep(_TICK_S)
        finally:
            self._due = None


# Load that the server cannot take now is refused early, with 503 and Retry-After, and nothing hangs.
#
# At most so many requests write at a time, and so many read; another waits a little for its turn and is then refused.

# Whoever waits holds a body in memory, as it was sent; `BodyRoom` bounds those.
WAITING_PER_SLOT = 48
_MOST_RETRY_AFTER_S = 5


@dataclass(slots=True)
class Slots:
    """Requests that may work at a time, and those that wait for it. For one event loop."""

    kind: str
    limit: int
    wait_s: float
    metrics: Metrics
    waiting: int = 0
    _turns: CallerTurns = field(init=False)

    def __post_init__(self) -> None:
        self._turns = CallerTurns(self.limit)

    @asynccontextmanager
    async def held(self, patience: float = 1.0, whose: str = "") -> AsyncIterator[None]:
        """A slot for as long as the block lasts.

        Args:
            whose: the line in which it waits; the lines are served in rotation.
            patience: so many times as long, and as many others before it, may it wait as one usually may.

        Raises:
            Problem: 503, there was none in time.
        """
        began = asyncio.get_running_loop().time()
        if self._turns.is_full:
            await self._wait(whose, patience)
        else:
            await self._turns.take(whose)
        self.metrics.slot_wait.labels(self.kind).observe(asyncio.get_running_loop().time() - began)
        self.metrics.in_flight.labels(self.kind).inc()
        try:
            yield
        finally:
            self.metrics.in_flight.labels(self.kind).dec()
            self._turns.give_back()

    def resize(self, limit: int, wait_s: float) -> None:
        """From now on so many, who wait so long; those at work end as they are."""
        self.wait_s = wait_s
        if limit != self.limit:
            self.limit = limit
            self._turns.resize(limit)

    async def _wait(self, whose: str, patience: float) -> None:
        if self.waiting >= self.limit * WAITING_PER_SLOT * patience and not self._turns.crowd_out(whose):
            raise self._refusal()
        self.waiting += 1
        try:
            async with asyncio.timeout(self.wait_s * patience):
                await self._turns.take(whose)
        except (TimeoutError, PlaceLostError):
            raise self._refusal() from None
        finally:
            self.waiting -= 1

    def _refusal(self) -> Problem:
        self.metrics.shed.labels(f"{self.kind}s").inc()
        queue = self.waiting / (self.limit * WAITING_PER_SLOT)
        detail = f"the server is busy: {self.limit} requests {self.kind} at a time, {self.waiting} wait: try again"
        return Problem(503, detail, {"Retry-After": retry_after(queue)})


@dataclass(slots=True)
class BodyRoom:
    """Bytes of request bodies that may be in memory at a time, as sent. For one event loop."""

    limit_bytes: int
    metrics: Metrics
    taken_bytes: int = 0

    def take(self, size: int) -> None:
        """Room for a part of a body.

        Raises:
            Problem: 503, there is none.
        """
        if self.taken_bytes + size > self.limit_bytes:
            self.metrics.shed.labels("bodies").inc()
            detail = f"{self.taken_bytes} bytes of bodies are in memory already: try again"
            raise Problem(503, detail, {"Retry-After": retry_after(1.0)})
        self.taken_bytes += size

    def give_back(self, size: int) -> None:
        """A body is done with."""
        self.taken_bytes -= size


@dataclass(slots=True)
class NodeShares:
    """What one node takes at a time, where its token speaks for it alone: neither every slot nor all room for bodies is
    to be had with the token of one node. For one event loop."""

    limit: int  # requests of a node at a time; 0: any number
    limit_bytes: int  # of a node's bodies
    metrics: Metrics
    _requests: Counter[str] = field(default_factory=Counter)
    _bytes: Counter[str] = field(default_factory=Counter)

    @contextmanager
    def held(self, request: Request) -> Iterator[Callable[[int], None]]:
        """A request's place among those of its node, for as long as the block lasts; gives what takes room in it for a
        part of the body, of so many bytes.

        Raises:
            Problem: 429, the node has as many already, or its bodies take too much; 503 at /alerts.
        """
        node = getattr(request.state, "node", None)
        if node is None or not self.limit:
            yield lambda _size: None
            return
        if self._requests[node] >= self.limit:
            detail = f"{self.limit} requests of node {node[:80]!r} are worked on already: send one after the other"
            raise self._refusal(request, detail)
        taken = 0

        def take(size: int) -> None:
            nonlocal taken
            if self._bytes[node] + size > self.limit_bytes:
                detail = f"bodies of node {node[:80]!r} take {self._bytes[node]} bytes: send one after the other"
                raise self._refusal(request, detail)
            self._bytes[node] += size
            taken += size

        self._requests[node] += 1
        try:
            yield take
        finally:
            self._requests[node] -= 1
            self._bytes[node] -= taken
            if not self._requests[node]:
                del self._requests[node], self._bytes[node]

    def _refusal(self, request: Request, detail: str) -> Problem:
        self.metrics.shed.labels("node_share").inc()
        return too_much(request, detail, retry_after(1.0))


def too_much(request: Request, detail: str, wait: str) -> Problem:
    """A caller sends too much: 429; 503 at /alerts, for Alertmanager takes a 429 as final."""
    status = 503 if request.url.path.endswith("/alerts") else 429
    return Problem(status, detail, {"Retry-After": wait})


def retry_after(queue: float) -> str:
    """Whole seconds until another try: 1 to 5, more the longer the queue (0 to 1), never the same for all."""
    most = 1 + round(min(1.0, max(0.0, queue)) * (_MOST_RETRY_AFTER_S - 1))
    return str(random.randint(1, most))  # noqa: S311  # jitter, no secret


# Probes and scrapes that may wait for a database at a time: one that hangs must not take every thread.
_PROBES = 4
_PROBE_WAIT_S = 1.0
# Senders wait 10 s for an answer: a request that the event loop comes to so late is not begun. Loading a library may
# hold it up for a second.
_MOST_BEHIND_S = 2.5


@dataclass(frozen=True, slots=True)
class Edge:
    """One server's edge. Writes, reads and probes have slots of their own: none can starve another."""

    limiter: RateLimiter
    writes: Slots
    reads: Slots
    probes: Slots
    metrics: Metrics
    bodies: BodyRoom
    shares: NodeShares
    pace: LoopPace = field(default_factory=LoopPace)
    nodes: RateLimiter = field(default_factory=lambda: RateLimiter(RequestLimits()))  # its bytes are records

    def follow(self, settings: ApiSettings) -> None:
        """The limits of other settings, from now on."""
        limits = settings.limits
        self.limiter.limits = limits
        self.nodes.limits = of_nodes(limits)
        self.writes.resize(limits.max_writes, limits.slot_wait_s)
        self.reads.resize(limits.max_reads, limits.slot_wait_s)
        self.bodies.limit_bytes = max(limits.bodies_bytes, settings.body_limit_bytes)
        self.shares.limit, self.shares.limit_bytes = limits.node_requests, settings.body_limit_bytes

    def keep_pace(self) -> None:
        """Let a request pass while the event loop is in time.

        Raises:
            Problem: 503, it is not.
        """
        behind_s = self.pace.behind_s()
        if behind_s > _MOST_BEHIND_S:
            self.metrics.shed.labels("behind").inc()
            detail = f"the server is {behind_s:.1f} s behind its requests: try again"
            raise Problem(503, detail, {"Retry-After": retry_after(behind_s / _MOST_BEHIND_S - 1.0)})

    def admit(self, request: Request, caller: str) -> None:
        """Count a request of a caller.

        Raises:
            Problem: 429, it sends too much; 503 at /alerts, for Alertmanager takes a 429 as final.
        """
        request.state.caller = caller
        wait_s, of_what = self.limiter.wait_s(caller)
        if wait_s > 0:
            self.metrics.shed.labels("rate").inc()
            detail = f"too many {of_what} of one sender: send less, or raise `limits` in the server's configuration"
            raise too_much(request, detail, whole_seconds(wait_s))

    def charge(self, request: Request, body_bytes: int) -> None:
        """Count a body that was read."""
        caller = getattr(request.state, "caller", None)
        if caller is not None:
            request.state.body_bytes = body_bytes
            self.limiter.charge(caller, body_bytes)

    def admit_records(self, request: Request) -> None:
        """Refuse a body before any work on it, where its token speaks for one node alone, which sent too many records.

        Raises:
            Problem: 429; 503 at /alerts.
        """
        node, caller = (getattr(request.state, name, None) for name in ("node", "caller"))
        if node is not None and self.nodes.limits.bytes_per_s:
            self._wait_of_node(request, self.nodes.wait_s(f"{caller} {node} {RECORDS}")[0], (node, RECORDS))

    def _wait_of_node(self, request: Request, wait_s: float, sent: tuple[str | None, str]) -> None:
        if wait_s <= 0:
            return
        node, what = sent
        if getattr(request.state, "node", None) is None:  # others share the token: it is none of theirs
            self.limiter.give_back(request.state.caller, getattr(request.state, "body_bytes", 0))
        self.metrics.shed.labels("node_rate").inc()
        detail = f"too many {what} of node {str(node)[:80]!r}: send less, or raise `limits` on the server"
        raise too_much(request, detail, whole_seconds(wait_s))

    def charge_nodes(self, request: Request, nodes: Iterable[str | None], what: str = RECORDS) -> None:
        """Count the records of a body, each for its node: of those that share a token none takes the others' share.

        Raises:
            Problem: 429, a node sends too much; for a token that others share its request counts as none.
        """
        caller = getattr(request.state, "caller", None)
        if caller is None or not self.nodes.limits.bytes_per_s:
            return
        counts = Counter(nodes)
        waits = [(self.nodes.wait_s(f"{caller} {node} {what}")[0], node) for node in counts]
        wait_s, node = max(waits, key=itemgetter(0), default=(0.0, None))
        self._wait_of_node(request, wait_s, (node, what))
        for each, count in counts.items():
            self.nodes.charge(f"{caller} {each} {what}", count)


def of_nodes(limits: RequestLimits) -> RequestLimits:
    """The limits of one node among those of a token: on records alone."""
    return replace(limits, requests_per_s=0.0, bytes_per_s=limits.node_records_per_s)


def make_edge(settings: ApiSettings, metrics: Metrics) -> Edge:
    """The edge that the settings ask for. Without tokens only this machine can call, and no rate is looked at."""
    limits = settings.limits
    return Edge(
        RateLimiter(limits),
        Slots("write", limits.max_writes, limits.slot_wait_s, metrics),
        Slots("read", limits.max_reads, limits.slot_wait_s, metrics),
        Slots("probe", _PROBES, _PROBE_WAIT_S, metrics),
        metrics,
        BodyRoom(max(limits.bodies_bytes, settings.body_limit_bytes), metrics),
        NodeShares(limits.node_requests, settings.body_limit_bytes, metrics),
        nodes=RateLimiter(of_nodes(limits)),
    )


async def _edge(request: Request) -> Edge:
    edge: Edge = request.app.state.edge
    return edge


AtEdge = Annotated[Edge, Depends(_edge)]


def keeps_up(state: State, edge: Edge) -> bool:
    """Whether the database takes what is sent to it, within the time that a request waits for its slot."""
    within_s = edge.writes.wait_s
    return state.joint_events.keeps_up(within_s) and state.joint_rollups.keeps_up(within_s)


def patience(state: State, edge: Edge) -> float:
    """How patiently a slot to write is waited for. While the database keeps up it is the processor that is short: who
    is sent away then comes back with more, later."""
    return 4.0 if keeps_up(state, edge) else 1.0


def line_of(request: Request) -> str:
    """In which line a request waits: its node's where its token speaks for that alone, else its caller's."""
    return str(getattr(request.state, "node", None) or getattr(request.state, "caller", ""))


async def write_slot(request: Request, edge: AtEdge) -> AsyncIterator[None]:
    """A slot to write, for as long as the route works. It waits as long as others do who stand before it."""
    edge.admit_records(request)
    async with edge.writes.held(patience(request.app.state.foreshock, edge), line_of(request)):
        yield


async def read_slot(request: Request, edge: AtEdge) -> AsyncIterator[None]:
    """A slot to read."""
    async with edge.reads.held(whose=line_of(request)):
        yield


async def _probe_slot(edge: AtEdge) -> AsyncIterator[None]:
    async with edge.probes.held():
        yield


# Given back before the answer is sent: a client that reads slowly holds none.
ProbeSlot = Annotated[None, Depends(_probe_slot, scope="function")]

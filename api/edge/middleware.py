"""Counts and times every request by its operation id: addresses are many, operations few."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Protocol

from fastapi import Request, Response
from fastapi.concurrency import run_in_threadpool
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.edge.admission import Edge, keeps_up, line_of, patience, retry_after
from api.edge.auth import Caller, bearer, requires
from api.edge.body import bounded_body, small_body, stay, unpack
from api.edge.problem import answer, problem
from api.edge.work_budget import WorkBudget, uncounted, working
from api.server.metrics import Metrics
from api.server.settings import RequestLimits
from api.server.state import State

# An answer in time, whatever the database does: 503 where there is none.
#
# A thread that waits for a database cannot be interrupted: that goes on behind the answer, and keeps its slot until it
# ends. So it may still be done; sending it again changes nothing. Work on a body stops at its next record, and frees
# its slot.


class AnswerWithin:
    """Pure ASGI: counts from when the whole request is there. Gives each request its budget of work."""

    def __init__(self, app: ASGIApp, limits: Callable[[], RequestLimits], metrics: Metrics) -> None:
        """`limits` gives them as they are now."""
        self._app = app
        self._limits = limits
        self._metrics = metrics
        self._late: set[asyncio.Task[None]] = set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on; answer in the application's place where it is late."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        limits = self._limits()
        budget = WorkBudget(limits.work_s)
        with working(budget):
            if limits.answer_s:
                await self._answered(scope, _Watch(limits.answer_s, receive, send), budget)
            else:
                await self._app(scope, receive, send)

    async def _answered(self, scope: Scope, watch: "_Watch", budget: WorkBudget) -> None:
        task: asyncio.Task[None] = asyncio.ensure_future(self._app(scope, watch.receive, watch.send))
        task.add_done_callback(lambda _: watch.over())
        if scope["method"] in ("GET", "HEAD"):
            watch.arm()
        try:
            await watch.ended
        except asyncio.CancelledError:
            task.cancel()
            raise
        finally:
            watch.disarm()
        if task.done() or watch.answering:
            await task
            return
        watch.muted = budget.answered = True
        self._late.add(task)
        task.add_done_callback(self._forget)
        self._metrics.shed.labels("late").inc()
        detail = f"no answer within {watch.answer_s:g} s: the database is slow or gone; what was sent may be done yet"
        late = problem(Request(scope), 503, detail, {"Retry-After": retry_after(1.0)})
        await late(scope, watch.client_receive, watch.client_send)

    def _forget(self, task: asyncio.Task[None]) -> None:
        self._late.discard(task)
        if not task.cancelled():
            task.exception()  # the application has logged it; here it is only taken note of


class _Watch:
    """One request: when its body was there, whether its answer has begun, and whether its time is over."""

    def __init__(self, answer_s: float, receive: Receive, send: Send) -> None:
        self._loop = asyncio.get_running_loop()
        self.answer_s = answer_s
        self.client_receive = receive
        self.client_send = send
        self._timer: asyncio.TimerHandle | None = None
        self.ended: asyncio.Future[None] = self._loop.create_future()
        self.answering = False
        self.muted = False

    def arm(self) -> None:
        """The request is whole: the time runs."""
        if self._timer is None:
            self._timer = self._loop.call_later(self.answer_s, self.over)

    def disarm(self) -> None:
        """The answer is there."""
        if self._timer is not None:
            self._timer.cancel()

    def over(self) -> None:
        """There is an answer, or no time left."""
        if not self.ended.done():
            self.ended.set_result(None)

    async def receive(self) -> Message:
        """The next message of the client."""
        message = await self.client_receive()
        if not message.get("more_body"):
            self.arm()
        return message

    async def send(self, message: Message) -> None:
        """The next message to the client, unless it was answered already."""
        if not self.muted:
            self.answering = True
            await self.client_send(message)


# The short way of small frequent requests: what FastAPI finds out anew for each is written down here once.
#
# A heartbeat costs a tenth of a millisecond of work, and three times as much to find its route and solve what it
# depends on. So a few routes are looked up by method and path, and their dependencies called by hand: the very same
# functions, in the same order, and the same route function at the end. FastAPI keeps these routes too, for the
# published description and for everything that is not exactly their address; tests hold both ways against each other.

_ingester = requires("ingest")
PackedRoute = Callable[[Caller, State, bytes, Request], Awaitable[Response]]


class RecordBatch(Protocol):
    """Records of a request on their way into the store: how many, when they are written (None: there are none), and
    what came of them then."""

    @property
    def records(self) -> int: ...
    @property
    def written(self) -> "Future[Any] | None": ...
    def result(self) -> Any: ...


SendingRoute = Callable[[Caller, State, bytes], RecordBatch]
# What came of so many is told from where it stands: a hop to another thread costs more.
_FEW_RECORDS = 100


@dataclass(frozen=True, slots=True)
class LeanRoute:
    """A route by its operation, which is what measuring calls it."""

    operation_id: str
    serve: Callable[[Request], Awaitable[Response]]


class LeanRoutes:
    """Pure ASGI: serves the routes it has, and passes on every other request."""

    def __init__(self, app: ASGIApp, routes: Mapping[tuple[str, str], LeanRoute]) -> None:
        """`routes` by method and whole path."""
        self._app = app
        self._routes = routes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve, or pass on."""
        route = self._routes.get((scope["method"], scope["path"])) if scope["type"] == "http" else None
        if route is None:
            await self._app(scope, receive, send)
            return
        scope["route"] = route
        request = Request(scope, receive)
        try:
            response = await route.serve(request)
        except Exception as error:  # noqa: BLE001  # what it is no problem of is raised again there
            response = await answer(request, error)
        await response(scope, receive, send)


def packed_route(operation_id: str, route: PackedRoute) -> LeanRoute:
    """A route that takes the body as it was sent, holds no slot, and bounds its own work."""

    async def serve(request: Request) -> Response:
        app = request.scope["app"].state
        caller = await _ingester(request, app.foreshock, app.edge, await bearer(request))
        async with bounded_body(request, app.foreshock, app.edge) as packed:
            return await route(caller, app.foreshock, packed, request)

    return LeanRoute(operation_id, serve)


def sending_route(operation_id: str, send: SendingRoute, tell: Callable[[Any], Response]) -> LeanRoute:
    """A route that sends a body's records to the database, and tells what came of them.

    A small body is read where it stands, in the event loop: a hop to another thread costs more. Any other is read in a
    thread, with a slot to write once it is there. Many requests wait for one commit, and while the database keeps up
    none of them holds a thread or a slot. Where it does not, slots are kept, so that others find none.
    """

    async def serve(request: Request) -> Response:
        app = request.scope["app"].state
        state: State = app.foreshock
        edge: Edge = app.edge
        caller = await _ingester(request, state, edge, await bearer(request))
        edge.admit_records(request)
        async with bounded_body(request, state, edge) as packed:
            await stay(request)
            sent: RecordBatch | None = None
            if keeps_up(state, edge):
                with uncounted():
                    body = small_body(request, packed)
                    sent = None if body is None else send(caller, state, body)
            if sent is None:
                async with edge.writes.held(patience(state, edge), line_of(request)):
                    await stay(request)
                    sent = await run_in_threadpool(lambda: send(caller, state, unpack(request, state, packed)))
                    if sent.written is not None and not keeps_up(state, edge):
                        await asyncio.wrap_future(sent.written)
            if sent.written is not None:
                await asyncio.wrap_future(sent.written)
            return tell(sent.result() if sent.records <= _FEW_RECORDS else await run_in_threadpool(sent.result))

    return LeanRoute(operation_id, serve)


_METHODS = frozenset({"GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"})


class MeasureRequests:
    """Pure ASGI: adds nothing to the request's path but two clock reads."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on; note its status when the answer starts."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        status = 500
        began = time.perf_counter()

        async def note(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, note)
        finally:
            operation = getattr(scope.get("route"), "operation_id", None) or "unmatched"
            method = scope["method"] if scope["method"] in _METHODS else "other"
            self._metrics.requests.labels(method, operation, str(status)).inc()
            self._metrics.seconds.labels(operation).observe(time.perf_counter() - began)

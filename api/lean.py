"""The short way of small frequent requests: what FastAPI finds out anew for each is written down here once.

A heartbeat costs a tenth of a millisecond of work, and three times as much to find its route and solve what it depends
on. So a few routes are looked up by method and path, and their dependencies called by hand: the very same functions,
in the same order, and the same route function at the end. FastAPI keeps these routes too, for the published
description and for everything that is not exactly their address; tests hold both ways against each other.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from fastapi import Request, Response
from fastapi.concurrency import run_in_threadpool
from starlette.types import ASGIApp, Receive, Scope, Send

from api.auth import bearer, requires
from api.body import bounded_body, stay, unpack
from api.problem import answer
from api.state import State

_ingester = requires("ingest")
PackedRoute = Callable[[str, State, bytes, Request], Awaitable[Response]]
BodyRoute = Callable[[str, State, bytes], Response]


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
    """A route that takes the body as it was sent, and holds no slot."""

    async def serve(request: Request) -> Response:
        app = request.scope["app"].state
        who = await _ingester(request, app.foreshock, app.edge, await bearer(request))
        async with bounded_body(request, app.foreshock, app.edge) as packed:
            return await route(who, app.foreshock, packed, request)

    return LeanRoute(operation_id, serve)


def body_route(operation_id: str, route: BodyRoute) -> LeanRoute:
    """A route that writes to the database: in a thread, with a slot to write once its body is there."""

    async def serve(request: Request) -> Response:
        app = request.scope["app"].state
        state: State = app.foreshock
        who = await _ingester(request, state, app.edge, await bearer(request))
        async with bounded_body(request, state, app.edge) as packed, app.edge.writes.held():
            await stay(request)
            return await run_in_threadpool(lambda: route(who, state, unpack(request, state, packed)))

    return LeanRoute(operation_id, serve)

"""Counts and times every request by its operation id: addresses are many, operations few."""

import time

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.metrics import Metrics

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

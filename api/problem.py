"""Errors as RFC 9457 problem details, for every status and every way to fail.

{"type": "about:blank", "title": "Not Found", "status": 404, "detail": "no node g9", "instance": "/api/v1/nodes/g9"}
"""

import logging
import random
from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus
from sqlite3 import OperationalError as SqliteError
from typing import Any

import orjson
from fastapi import FastAPI, HTTPException, Request, Response
from fastapi.exceptions import RequestValidationError
from psycopg import Error as PostgresError
from sqlalchemy.exc import SQLAlchemyError
from starlette.exceptions import HTTPException as StarletteHTTPException
from starlette.requests import ClientDisconnect

from api.unavailable import why_unavailable

MEDIA_TYPE = "application/problem+json"
_log = logging.getLogger(__name__)


class Problem(HTTPException):
    """A request that cannot be served: status and one sentence on what to do about it."""

    def __init__(self, status: int, detail: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(status, detail, dict(headers) if headers else None)


def install(app: FastAPI) -> None:
    """Answer every error of the application as a problem."""
    for kind, handler in _HANDLERS.items():
        app.add_exception_handler(kind, handler)
    app.add_exception_handler(Exception, _on_crash)


def problem(
    request: Request, status: int, detail: str, headers: Mapping[str, str] | None = None, **members: Any
) -> Response:
    """A problem response; `members` are added to the document."""
    document = {
        "type": "about:blank",
        "title": HTTPStatus(status).phrase,
        "status": status,
        "detail": detail,
        "instance": request.url.path,
        **members,
    }
    return Response(orjson.dumps(document), status, dict(headers) if headers else None, MEDIA_TYPE)


async def answer(request: Request, error: Exception) -> Response:
    """What an error is answered with; one that means nothing to a client is raised again."""
    for kind, handler in _HANDLERS.items():
        if isinstance(error, kind):
            return await handler(request, error)
    raise error


async def _on_http(request: Request, error: Exception) -> Response:
    if not isinstance(error, StarletteHTTPException):
        raise error
    detail = str(error.detail)
    if detail == HTTPStatus(error.status_code).phrase:
        detail = _PLAIN.get(error.status_code, detail)
    return problem(request, error.status_code, detail, error.headers)


_PLAIN = {
    404: "nothing is at this address; /docs lists what there is",
    405: "this address does not take this method; the Allow header names those it takes",
}


async def _on_validation(request: Request, error: Exception) -> Response:
    if not isinstance(error, RequestValidationError):
        raise error
    errors = [
        {"detail": str(entry.get("msg", "")), "pointer": "/".join(str(part) for part in entry.get("loc", ()))}
        for entry in error.errors()
    ]
    detail = "; ".join(f"{entry['pointer']}: {entry['detail']}" for entry in errors) or "the request does not fit"
    return problem(request, 422, detail, errors=errors)


async def _on_database(request: Request, error: Exception) -> Response:
    why = why_unavailable(error)
    if why is None:
        return await _on_crash(request, error)
    _log.error("%s: %s", why.detail, error)
    state = getattr(request.app.state, "foreshock", None)
    if state is not None:
        state.metrics.shed.labels(why.reason).inc()
    # 503, not 429: Alertmanager takes a 429 as final and loses the alert. Seconds differ, so that not all come at once.
    return problem(request, 503, why.detail, {"Retry-After": str(random.randint(2, 5))})  # noqa: S311


async def _on_gone(_request: Request, _error: Exception) -> Response:
    """Nobody reads it: the status is for the counters alone, as nginx has it."""
    return Response(status_code=499)


async def _on_crash(request: Request, error: Exception) -> Response:
    _log.error("unexpected failure at %s", request.url.path, exc_info=error)
    return problem(request, 500, "an unexpected failure; the server's log has the details")


_HANDLERS: Mapping[type[Exception], Callable[[Request, Exception], Awaitable[Response]]] = {
    StarletteHTTPException: _on_http,
    RequestValidationError: _on_validation,
    ClientDisconnect: _on_gone,
    SQLAlchemyError: _on_database,
    PostgresError: _on_database,
    SqliteError: _on_database,
}

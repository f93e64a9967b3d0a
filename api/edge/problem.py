"""Errors as RFC 9457 problem details, for every status and every way to fail.

{"type": "about:blank", "title": "Not Found", "status": 404, "detail": "no node g9", "instance": "/api/v1/nodes/g9"}
"""

import logging
import random
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from sqlite3 import OperationalError as SqliteError
from typing import Any

import orjson
from fastapi import FastAPI, HTTPException, Request, Response
from fastapi.exceptions import RequestValidationError
from psycopg import Error as PostgresError
from psycopg import OperationalError as PostgresOperationalError
from sqlalchemy.exc import DBAPIError, SQLAlchemyError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError
from starlette.exceptions import HTTPException as StarletteHTTPException
from starlette.requests import ClientDisconnect
from starlette.routing import Match

from store.database.connections import is_away
from store.visible_text import html_text
from wire.message import NOTHING_HERE

# What a database's error means for a client: which of them pass by themselves, and are a 503.
#
# why_unavailable(error) -> Unavailable("disk_full", "the database's disk is full: ...")


@dataclass(frozen=True, slots=True)
class Unavailable:
    """Why the database takes no request now: a word for the metrics, and a sentence for the client."""

    reason: str
    detail: str


_AWAY = Unavailable("database_away", "the database is busy or gone: try again")
_BUSY = Unavailable("database_busy", "the database is busy: try again")
_SLOW = Unavailable("database_slow", "the database took too long: try again")
_FULL = Unavailable("disk_full", "the database's disk is full: nothing is taken until its operator makes room")
_CONNECTIONS = Unavailable("connections", "the database has no connection left: try again")
_READ_ONLY = Unavailable("read_only", "the database is read-only (a standby?): nothing is taken until it is not")
_SCHEMA = Unavailable("schema", "the database lacks a table: run `foreshock db migrate`")

# PostgreSQL's SQLSTATE (appendix A of its manual): the whole code, else its class of two characters.
_BY_STATE = {
    "25006": _READ_ONLY,
    "40": _BUSY,  # a deadlock or a serialization failure: the other one went on
    "42P01": _SCHEMA,
    "53": Unavailable("resources", "the database is out of memory or another resource: try again"),
    "53100": _FULL,
    "53300": _CONNECTIONS,
    "55P03": _BUSY,
    "57": _AWAY,  # it shuts down, starts, or ended the session
    "57014": _SLOW,
    "58": Unavailable("disk", "the database cannot use its disk: its log says why"),
    "08": _AWAY,
}


def why_unavailable(error: BaseException) -> Unavailable | None:
    """Why the database could not serve for now; None where the error is of another kind: a fault of ours."""
    if isinstance(error, PoolTimeoutError):
        return _CONNECTIONS
    inner = error.orig if isinstance(error, DBAPIError) and error.orig is not None else error
    state = getattr(inner, "sqlstate", None)
    if state:
        return _BY_STATE.get(state) or _BY_STATE.get(state[:2])
    text = str(inner)
    if "database or disk is full" in text:  # SQLite's errors bear no code
        return _FULL
    if "readonly database" in text:
        return _READ_ONLY
    if "remaining connection slots" in text or "too many clients" in text:  # refused before there was a session
        return _CONNECTIONS
    return _AWAY if is_away(error) or isinstance(error, PostgresOperationalError) else None


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
    sent = dict(headers) if headers else {}
    if _is_page(request.url.path) and "text/html" in request.headers.get("accept", ""):
        return Response(_page(status, detail), status, {**sent, **_PAGE_HEADERS}, "text/html")
    return Response(orjson.dumps(document), status, sent, MEDIA_TYPE)


def _is_page(path: str) -> bool:
    """Whoever opens one of these in a browser reads a sentence, not JSON."""
    return path == "/m" or path.startswith("/api/v1/print/")


_PAGE_HEADERS = {"Content-Security-Policy": "default-src 'none'", "Cache-Control": "no-store"}
_SIGN_IN = "A browser sends no token by itself: open this page through a proxy that signs people in."


def _page(status: int, detail: str) -> str:
    head = '<meta charset="utf-8"><meta name="viewport" content="width=device-width,initial-scale=1">'
    head += f'<meta name="color-scheme" content="light dark"><title>{status}</title>'
    said = [f"{detail[:1].upper()}{detail[1:]}."] + ([_SIGN_IN] if status == 401 else [])
    body = "".join(f"<p>{html_text(text)}</p>" for text in said)
    name = HTTPStatus(status).phrase
    return f'<!doctype html>\n<html lang="en"><head>{head}</head><body><h1>{name}</h1>{body}</body></html>\n'


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
    headers = {"Allow": _methods(request)} if error.status_code == 405 else error.headers
    return problem(request, error.status_code, detail, headers)


def _methods(request: Request) -> str:
    """The methods that an address takes: each has a route of its own, and the first would name its own alone."""
    scopes = [{**request.scope, "method": method} for method in _METHODS]
    taken = [one["method"] for one in scopes if any(r.matches(one)[0] is Match.FULL for r in request.app.routes)]
    return ", ".join(taken)


_METHODS = ("DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT", "TRACE")


_PLAIN = {
    404: NOTHING_HERE,
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

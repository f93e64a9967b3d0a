"""Who may do what: bearer tokens with scopes, compared by their SHA-256 in constant time.

    Authorization: Bearer SECRET

401 (with WWW-Authenticate) without a known token, 403 with one that lacks the scope.
"""

import hashlib
import hmac
from collections.abc import Awaitable, Callable
from typing import Annotated

from fastapi import Depends, Request
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from api.edge.admission import AtEdge, read_slot
from api.edge.problem import Problem
from api.server.settings import Scope, Token
from api.server.state import Server

ANONYMOUS = "loopback"

bearer = HTTPBearer(auto_error=False, description="A token of the server's configuration.")
Credentials = Annotated[HTTPAuthorizationCredentials | None, Depends(bearer)]


def hash_token(text: str) -> str:
    """The SHA-256 of a token as 64 hex digits: what the configuration holds."""
    return hashlib.sha256(text.encode()).hexdigest()


def find(tokens: tuple[Token, ...], text: str) -> Token | None:
    """The token of a text. Every token is compared, so that the time says nothing."""
    digest, found = hash_token(text), None
    for token in tokens:
        if hmac.compare_digest(digest, token.sha256):
            found = token
    return found


def requires(scope: Scope) -> Callable[..., Awaitable[str]]:
    """A dependency that lets a request pass with a token of the scope, and gives the token's name."""

    async def check(request: Request, server: Server, edge: AtEdge, credentials: Credentials) -> str:
        if scope == "ingest":  # those come in thousands, and come again; a person's look at a page does not
            edge.keep_pace()
        tokens = server.settings.tokens
        if not tokens:
            _refuse_foreign_page(request)
            return ANONYMOUS
        token = find(tokens, credentials.credentials) if credentials else None
        edge.admit(request, f"token:{token.name}" if token else f"address:{_address(request)}")
        if token is None:
            challenge = 'Bearer realm="foreshock"' + (', error="invalid_token"' if credentials else "")
            raise Problem(401, "send a known token: Authorization: Bearer ...", {"WWW-Authenticate": challenge})
        if scope not in token.scopes:
            challenge = f'Bearer realm="foreshock", error="insufficient_scope", scope="{scope}"'
            raise Problem(403, f"token {token.name!r} lacks the scope {scope}", {"WWW-Authenticate": challenge})
        return token.name

    return check


def _address(request: Request) -> str:
    return request.client.host if request.client else ""


def _refuse_foreign_page(request: Request) -> None:
    """Without tokens a web page of elsewhere, open in a browser on this host, may not act through it."""
    if request.headers.get("sec-fetch-site") == "cross-site":
        raise Problem(403, "no token is configured: pages of other sites may not call this server")


_Reads = Annotated[str, Depends(requires("read"))]
_Slot = Annotated[None, Depends(read_slot, scope="function")]


async def _reading(who: _Reads, _slot: _Slot) -> str:
    """The token's name, with a slot to read for as long as the route works."""
    return who


Ingester = Annotated[str, Depends(requires("ingest"))]
Reader = Annotated[str, Depends(_reading)]
Actor = Annotated[str, Depends(requires("act"))]

"""Who may do what, and speak for which node: bearer tokens with scopes, compared by their SHA-256 in constant time.

    Authorization: Bearer SECRET

401 (with WWW-Authenticate) without a known token, 403 with one that lacks the scope. A record of a node that the token
does not speak for is refused by itself, and counted.
"""

import hashlib
import hmac
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from typing import Annotated

from fastapi import Depends, Request
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from api.edge.admission import AtEdge, read_slot
from api.edge.problem import Problem
from api.server.settings import SCOPES, Scope, Token
from api.server.state import Server
from store.records.hostlist import EVERY_NODE, NodePattern
from store.records.node_name import NodeNames

bearer = HTTPBearer(auto_error=False, description="A token of the server's configuration.")
Credentials = Annotated[HTTPAuthorizationCredentials | None, Depends(bearer)]


@dataclass(frozen=True, slots=True)
class Caller:
    """Who sends a request: the name that the audit shows, what it may do, and of which nodes it may speak.

    `names`: those of the inventory, by which the nodes that it speaks of are known.
    """

    name: str
    scopes: frozenset[Scope]
    nodes: NodePattern = EVERY_NODE
    names: NodeNames = field(default_factory=NodeNames, repr=False, compare=False)

    def may(self, scope: Scope) -> bool:
        """Whether it has a scope; who may report for the fleet may report for nodes."""
        return scope in self.scopes or (scope == "ingest" and "ingest:fleet" in self.scopes)

    def speaks_for(self, node: str | None) -> bool:
        """Whether it may report what happens on a node; None: what happens on no node, but in the fleet."""
        return "ingest:fleet" in self.scopes if node is None else self.nodes.matches(node)


ANONYMOUS = Caller("loopback", frozenset(SCOPES))


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


def requires(scope: Scope) -> Callable[..., Awaitable[Caller]]:
    """A dependency that lets a request pass with a token of the scope, and gives its caller."""

    async def check(request: Request, server: Server, edge: AtEdge, credentials: Credentials) -> Caller:
        if scope == "ingest":  # those come in thousands, and come again; a person's look at a page does not
            edge.keep_pace()
        tokens = server.settings.tokens
        if not tokens:
            _refuse_foreign_page(request)
            return replace(ANONYMOUS, names=server.names.now)
        token = find(tokens, credentials.credentials) if credentials else None
        edge.admit(request, f"token:{token.name}" if token else f"address:{_address(request)}")
        if token is None:
            challenge = 'Bearer realm="foreshock"' + (', error="invalid_token"' if credentials else "")
            raise Problem(401, "send a known token: Authorization: Bearer ...", {"WWW-Authenticate": challenge})
        caller = Caller(token.name, token.scopes, token.nodes)
        if not caller.may(scope):
            challenge = f'Bearer realm="foreshock", error="insufficient_scope", scope="{scope}"'
            raise Problem(403, f"token {token.name!r} lacks the scope {scope}", {"WWW-Authenticate": challenge})
        return replace(caller, names=server.names.now)

    return check


def _address(request: Request) -> str:
    return request.client.host if request.client else ""


def _refuse_foreign_page(request: Request) -> None:
    """Without tokens a web page of elsewhere, open in a browser on this host, may not act through it."""
    if request.headers.get("sec-fetch-site") == "cross-site":
        raise Problem(403, "no token is configured: pages of other sites may not call this server")


_Reads = Annotated[Caller, Depends(requires("read"))]
_Slot = Annotated[None, Depends(read_slot, scope="function")]


async def _reading(caller: _Reads, _slot: _Slot) -> Caller:
    """The caller, with a slot to read for as long as the route works."""
    return caller


Ingester = Annotated[Caller, Depends(requires("ingest"))]
FleetIngester = Annotated[Caller, Depends(requires("ingest:fleet"))]
Reader = Annotated[Caller, Depends(_reading)]
Approver = Annotated[Caller, Depends(requires("act:approve"))]
Stopper = Annotated[Caller, Depends(requires("act:stop"))]
Resetter = Annotated[Caller, Depends(requires("act:reset"))]
Reporter = Annotated[Caller, Depends(requires("report"))]

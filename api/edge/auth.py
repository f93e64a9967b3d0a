"""Who may do what, and speak for which node: bearer tokens with scopes, looked up by their SHA-256.

    Authorization: Bearer SECRET

401 (with WWW-Authenticate) without a known token, 403 with one that lacks the scope. A record of a node that the token
does not speak for is refused by itself, and counted. A client certificate that the server has verified stands for a
token where the configuration has one of `certificate: true`: its DNS names are the nodes that it speaks for.
A person comes with an ID token, or by the word of a token with `on_behalf` (`api/edge/people.py`); the person's role
then says what may be done.
"""

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial
from typing import Annotated

from fastapi import Depends, Request
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from api.edge.admission import RECORDS, AtEdge, Edge, read_slot
from api.edge.people import (
    GROUPS_HEADER,
    PERSON_HEADER,
    Person,
    SignInError,
    is_id_token,
    named_person,
    signed_in,
)
from api.edge.problem import Problem
from api.server.people_settings import ROLE_SCOPES, PeopleSettings
from api.server.provider_keys import ProviderAwayError
from api.server.settings import SCOPES, Scope, Token
from api.server.state import Server, State
from store.nodes.known_names import KnownNames
from store.records.hostlist import EVERY_NODE, NodePattern, is_node_name

# A day of PostgreSQL's is a table: with more than a year of them its locks do not suffice (docs/store.md).
OLDEST = timedelta(days=1096)
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
    names: KnownNames = field(default_factory=KnownNames, repr=False, compare=False)
    digest: str | None = field(default=None, repr=False, compare=False)  # of its token's text
    person: Person | None = None  # who signed in; None: a program
    # Of a token that may not report for the fleet: each node has its share of what may be sent.
    meter: Callable[[Iterable[str | None], str], None] | None = field(default=None, repr=False, compare=False)
    oldest: datetime | None = field(default=None, repr=False, compare=False)  # what is older it may not report

    def seen_at(self, now: datetime) -> "Caller":
        """The caller as of a moment: who may not report for the fleet brings no archive of years."""
        return self if "ingest:fleet" in self.scopes else replace(self, oldest=now - OLDEST)

    def count(self, nodes: Iterable[str | None], what: str = RECORDS) -> None:
        """Count records that came, each for its node; heartbeats by themselves, so that a node that logs too much is
        not taken for a silent one.

        Raises:
            Problem: 429, there were too many of one.
        """
        if self.meter is not None:
            self.meter(nodes, what)

    def may(self, scope: Scope) -> bool:
        """Whether it has a scope; who may report for the fleet may report for nodes."""
        return scope in self.scopes or (scope == "ingest" and "ingest:fleet" in self.scopes)

    def speaks_for(self, node: str | None) -> bool:
        """Whether it may report what happens on a node; None: what happens on no node, but in the fleet."""
        return "ingest:fleet" in self.scopes if node is None else self.nodes.matches(node)


ANONYMOUS = Caller("loopback", frozenset(SCOPES))


def requires(scope: Scope) -> Callable[..., Awaitable[Caller]]:
    """A dependency that lets a request pass with a token of the scope, and gives its caller."""

    async def check(request: Request, server: Server, edge: AtEdge, credentials: Credentials) -> Caller:
        if scope in ("ingest", "join"):  # those come in thousands, and come again; a person's look at a page does not
            edge.keep_pace()
        if is_open(server):
            _refuse_foreign_page(request)
            return replace(ANONYMOUS, names=server.names.now)
        caller = await _find(request, server, edge, credentials)
        if not caller.may(scope):
            edge.metrics.refused_callers.labels("scope").inc()
            challenge = f'Bearer realm="foreshock", error="insufficient_scope", scope="{scope}"'
            raise Problem(403, _lacking(caller, scope), {"WWW-Authenticate": challenge})
        if scope in FLEET_WIDE and not caller.nodes.is_every:
            edge.metrics.refused_callers.labels("node").inc()
            raise Problem(403, f"token {caller.name!r} is for {caller.nodes.text!r} alone: this concerns every node")
        request.state.node = caller.nodes.only
        metered = scope == "ingest" and "ingest:fleet" not in caller.scopes
        caller = caller.seen_at(min(server.clock(), server.wall())) if scope == "ingest" else caller
        return replace(caller, names=server.names.now, meter=partial(edge.charge_nodes, request) if metered else None)

    return check


def is_open(server: State) -> bool:
    """Whether every caller may do all: there is no token, and nobody signs in."""
    settings = server.settings
    return settings.people is None and not server.tokens.are_asked_for(settings.tokens)


def _lacking(caller: Caller, scope: Scope) -> str:
    if caller.person is None:
        return f"token {caller.name!r} lacks the scope {scope}"
    return f"{caller.person.name} is {caller.person.role} here, which lacks the scope {scope}"


# What these do is done to the whole cluster: a token of some nodes has no word in it.
FLEET_WIDE: frozenset[Scope] = frozenset(("act:stop", "act:reset"))
# What the answer to a token that is not in force says, by why.
_REMEDY = {
    "unknown": "send a known token: Authorization: Bearer TOKEN",
    "expired": "this token has expired: `foreshock token new` makes another",
    "revoked": "this token was revoked: `foreshock token new` makes another",
    "used up": "this join token has been used up: `foreshock token new` makes another",
}


async def _find(request: Request, server: State, edge: Edge, credentials: Credentials) -> Caller:
    """Whose request this is; it is counted as theirs.

    Raises:
        Problem: 401, no token in force came with it; 429, they send too much; 503, the tokens cannot be read.
    """
    configured = server.settings.tokens
    caller = None if credentials else _certified(request, server, configured)
    if caller is not None:
        edge.admit(request, f"certificate:{caller.name}")
        return _on_behalf(request, server, edge, caller)
    secret = credentials.credentials if credentials else None
    people = server.settings.people
    if secret is not None and people is not None and people.issuer and is_id_token(secret):
        edge.admit(request, f"address:{_address(request)}")
        return await _signed_in(server, edge, people, secret)
    found = (
        server.tokens.missing(configured) if secret is None else server.tokens.find(configured, secret, server.wall())
    )
    edge.admit(request, f"token:{found.name}" if isinstance(found, Token) else f"address:{_address(request)}")
    if found == "unknown" and secret is not None:
        found = await server.tokens.renewed(configured, secret, server.wall())
    if isinstance(found, Token):
        return _on_behalf(request, server, edge, Caller(found.name, found.scopes, found.nodes, digest=found.sha256))
    edge.metrics.refused_callers.labels(found.replace(" ", "_")).inc()
    if found == "unreadable":
        raise Problem(503, "the database does not tell which tokens are in force: try again", {"Retry-After": "10"})
    challenge = 'Bearer realm="foreshock"' + (', error="invalid_token"' if credentials else "")
    raise Problem(401, _REMEDY.get(found, _REMEDY["unknown"]), {"WWW-Authenticate": challenge})


async def _signed_in(server: State, edge: Edge, people: PeopleSettings, text: str) -> Caller:
    """The person of an ID token.

    Raises:
        Problem: 401, it does not hold; 403, the person has no role; 503, the provider's keys are not known.
    """
    try:
        person = await signed_in(server, people, text)
    except ProviderAwayError as error:
        edge.metrics.refused_callers.labels("provider_away").inc()
        raise Problem(503, str(error), {"Retry-After": "30"}) from error
    except SignInError as error:
        raise _no_sign_in(edge, error) from error
    return Caller(f"person:{person.name}", _scopes_of(person), person=person)


def _on_behalf(request: Request, server: State, edge: Edge, caller: Caller) -> Caller:
    """The caller, with the person that it names: what both may do. Without a person such a token only reads.

    Raises:
        Problem: 403, this token may name nobody, or the person has no role.
    """
    names = request.headers.getlist(PERSON_HEADER)
    if not names:
        if "on_behalf" not in caller.scopes:
            return caller
        return replace(caller, scopes=caller.scopes & {"read"})
    people = server.settings.people
    if "on_behalf" not in caller.scopes or people is None:
        edge.metrics.refused_callers.labels("names_person").inc()
        why = "lacks the scope on_behalf" if people is not None else "names one, but `people` is not configured"
        raise Problem(403, f"{caller.name!r} may not name a person: it {why}")
    try:
        person = named_person(people, ",".join(names), ",".join(request.headers.getlist(GROUPS_HEADER)))
    except SignInError as error:
        raise _no_sign_in(edge, error) from error
    scopes = caller.scopes & _scopes_of(person)
    return replace(caller, name=f"person:{person.name} token:{caller.name}", scopes=scopes, person=person)


def _scopes_of(person: Person) -> frozenset[Scope]:
    return frozenset(scope for scope in SCOPES if scope in ROLE_SCOPES[person.role])


def _no_sign_in(edge: Edge, error: SignInError) -> Problem:
    edge.metrics.refused_callers.labels(f"sign_in_{error.reason}").inc()
    if error.reason == "no_role":
        return Problem(403, str(error))
    return Problem(401, str(error), {"WWW-Authenticate": 'Bearer realm="foreshock", error="invalid_token"'})


def _certified(request: Request, server: State, configured: tuple[Token, ...]) -> Caller | None:
    """The caller of a client certificate: one of an authority of `client_ca`, whose DNS names are nodes."""
    names = (request.scope.get("extensions") or {}).get("tls", {}).get("client_names", ())
    nodes = NodePattern.exactly(server.names.now.canonical(name) for name in names if is_node_name(name))
    rule = next((token for token in configured if token.certificate), None)
    if rule is None or not nodes.text:
        return None
    return Caller(f"{rule.name}:{nodes.text[:200]}", rule.scopes, nodes)


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
Joiner = Annotated[Caller, Depends(requires("join"))]
Approver = Annotated[Caller, Depends(requires("act:approve"))]
Stopper = Annotated[Caller, Depends(requires("act:stop"))]
Resetter = Annotated[Caller, Depends(requires("act:reset"))]
Reporter = Annotated[Caller, Depends(requires("report"))]
TicketSystem = Annotated[Caller, Depends(requires("ticket"))]

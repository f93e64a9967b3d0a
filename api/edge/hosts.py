"""Under which names a server may be asked for: the answer to DNS rebinding.

A page of evil.example, open in a browser on this host, can have its own name lead to 127.0.0.1; the browser then asks
this server in good faith, and sends `Host: evil.example`. So a server that asks nobody who it is answers to the names
of the loopback alone, with its own port, on every address: `/livez` and `/metrics`, too. An `Origin` must be one of
them as well: a program on another port of this machine is another site. `hosts` adds names; with tokens it is the
whole list, and probes are free, since a kubelet asks for an address.
"""

from collections.abc import Sequence
from urllib.parse import urlsplit

from fastapi import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from api.edge.auth import is_open
from api.edge.problem import problem
from api.server.state import State

LOOPBACK = ("localhost", "127.0.0.1", "[::1]")
PROBES = ("/livez", "/readyz", "/healthz")
_DEFAULT_PORTS = {"http": 80, "https": 443}


class ServedHosts:
    """Pure ASGI: refuses what is asked for under another name (421) or by a page of another site (403)."""

    def __init__(self, app: ASGIApp, state: State) -> None:
        self._app = app
        self._state = state

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or refuse it."""
        if scope["type"] == "http":
            named, anybody = self._state.settings.hosts, is_open(self._state)
            if anybody or (named and scope["path"] not in PROBES):
                refused = _refused(Request(scope), named, anybody)
                if refused is not None:
                    await problem(Request(scope), *refused)(scope, receive, send)
                    return
        await self._app(scope, receive, send)


def _refused(request: Request, named: Sequence[str], anybody: bool) -> tuple[int, str] | None:
    """The status and why; None: it is asked for under a name of its own."""
    scheme, (_, port) = request.scope["scheme"], request.scope.get("server") or ("", None)
    own = [f"{name}:{port}" for name in LOOPBACK] if anybody else []
    served = {whole(name, scheme) for name in (*own, *named)}
    remedy = f"ask for {', '.join(own)}, or add the name to `hosts`" if anybody else "add the name to `hosts`"
    hosts = request.headers.getlist("host")
    if len(hosts) != 1 or whole(hosts[0], scheme) not in served:
        shown = hosts[0][:100] if len(hosts) == 1 else f"{len(hosts)} Host headers"
        return 421, f"{shown!r} is no name of this server: {remedy}"
    origins = request.headers.getlist("origin")
    if anybody and any(_origin(one) not in served for one in origins):
        return 403, f"pages of {origins[0][:100]!r} may not call this server: {remedy}"
    return None


def whole(name: str, scheme: str) -> str:
    """A host with its port, in small letters: `Foreshock.example` of https is `foreshock.example:443`."""
    lower = name.strip().lower()
    bare = lower.rpartition("]")[2] if lower.startswith("[") else lower
    return lower if ":" in bare else f"{lower}:{_DEFAULT_PORTS.get(scheme, 80)}"


def _origin(text: str) -> str:
    """An origin's host with its port; empty where it is none, as of a page without an address (`null`)."""
    try:
        parts = urlsplit(text)
    except ValueError:
        return ""
    return whole(parts.netloc, parts.scheme) if parts.scheme in _DEFAULT_PORTS else ""

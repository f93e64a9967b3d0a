"""An OpenID provider whose private key the attacker lacks: its published documents, and tokens of every kind."""

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from joserfc import jwt
from joserfc.jwk import RSAKey

AUDIENCE = "foreshock"


@dataclass(frozen=True)
class Issuer:
    """A provider at an address of the loopback."""

    address: str
    key: RSAKey = field(repr=False)

    def claims(self, **changes: Any) -> dict[str, Any]:
        """Of a sign-in of alice, who is an operator; None leaves a claim out."""
        now = int(time.time())
        found = {
            "iss": self.address,
            "aud": AUDIENCE,
            "sub": "u-1",
            "iat": now,
            "exp": now + 600,
            "email": "alice@example.com",
            "email_verified": True,
            "groups": ["oncall"],
        }
        return {name: value for name, value in (found | changes).items() if value is not None}

    def token(self, header: dict[str, Any] | None = None, key: Any = None, **changes: Any) -> str:
        """A signed token; with the provider's own key unless another is given."""
        head = {"alg": "RS256", "kid": "k1", **(header or {})}
        return jwt.encode(head, self.claims(**changes), key or self.key, algorithms=["RS256", "HS256", "none"])


@contextmanager
def issuer() -> Iterator[Issuer]:
    """A provider that answers; its key is called `k1`."""
    key = RSAKey.generate_key(2048, {"kid": "k1", "use": "sig"})
    pages: dict[str, bytes] = {"/jwks": json.dumps({"keys": [key.as_dict(private=False)]}).encode()}

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:  # the library's name
            page = pages.get(self.path)
            self.send_response(404 if page is None else 200)
            self.end_headers()
            self.wfile.write(page or b"")

        def log_message(self, *_: Any) -> None:
            """Quiet."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    address = f"http://127.0.0.1:{server.server_port}"
    document = {"issuer": address, "jwks_uri": f"{address}/jwks"}
    pages["/.well-known/openid-configuration"] = json.dumps(document).encode()
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield Issuer(address, key)
    finally:
        server.shutdown()
        server.server_close()
        thread.join()

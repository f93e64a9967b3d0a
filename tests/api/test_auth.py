"""Tokens and scopes."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime

import pytest
import sqlalchemy as sa
from fastapi.testclient import TestClient

from api.app import create_app
from api.server.known_tokens import KnownTokens
from api.server.settings import Token, expand_scopes
from store.nodes.tokens import digest_of

from .conftest import QUIET, Clock

TOKENS = (
    Token("sidecars", digest_of("ingest-secret"), frozenset({"ingest"})),
    Token("people", digest_of("people-secret"), expand_scopes({"read", "act"})),
)


@pytest.fixture
def guarded(engine: sa.Engine, clock: Clock) -> Iterator[TestClient]:
    """A server with two tokens."""
    with TestClient(create_app(replace(QUIET, tokens=TOKENS), engine, clock)) as client:
        yield client


def bearer(text: str) -> dict[str, str]:
    """The header of a token."""
    return {"authorization": f"Bearer {text}"}


def test_without_a_token_nothing_is_told(guarded: TestClient) -> None:
    """401, with the challenge that RFC 6750 asks for."""
    answer = guarded.get("/api/v1/nodes")
    assert answer.status_code == 401
    assert answer.headers["www-authenticate"] == 'Bearer realm="foreshock"'
    assert answer.headers["content-type"] == "application/problem+json"


@pytest.mark.parametrize("header", ["Bearer wrong", "Bearer ", "Basic cGVvcGxlOng=", "people-secret", "Bearer \xfc"])
def test_a_wrong_token_is_refused(guarded: TestClient, header: str) -> None:
    """Whatever is wrong with it."""
    answer = guarded.get("/api/v1/nodes", headers={"authorization": header.encode("latin-1")})
    assert answer.status_code == 401


@pytest.mark.parametrize(
    ("method", "path", "token", "status"),
    [
        ("GET", "/api/v1/nodes", "people-secret", 200),
        ("GET", "/api/v1/nodes", "ingest-secret", 403),
        ("POST", "/api/v1/events", "ingest-secret", 200),
        ("POST", "/api/v1/events", "people-secret", 403),
        ("POST", "/api/v1/hints/x/withdraw", "people-secret", 404),
        ("POST", "/api/v1/hints/x/withdraw", "ingest-secret", 403),
    ],
)
def test_a_token_may_do_what_its_scopes_say(
    guarded: TestClient, method: str, path: str, token: str, status: int
) -> None:
    """And no more."""
    answer = guarded.request(method, path, headers=bearer(token))
    assert answer.status_code == status
    if status == 403:
        assert "insufficient_scope" in answer.headers["www-authenticate"]


def test_an_unknown_caller_cannot_make_the_server_read_a_body(guarded: TestClient) -> None:
    """The token is looked at before the body is: 401, not 413 or 400."""
    answer = guarded.post("/api/v1/events", content=b"x", headers={"content-encoding": "gzip"})
    assert answer.status_code == 401


@pytest.mark.parametrize("path", ["/livez", "/readyz", "/healthz", "/metrics"])
def test_probes_need_no_token(guarded: TestClient, path: str) -> None:
    """Load balancers and Prometheus have none."""
    assert guarded.get(path).status_code == 200


def test_without_tokens_pages_of_other_sites_are_refused(client: TestClient) -> None:
    """A browser on this host must not be made to act by a page of elsewhere."""
    assert client.post("/api/v1/hints/x/withdraw", headers={"sec-fetch-site": "cross-site"}).status_code == 403
    assert client.post("/api/v1/hints/x/withdraw", headers={"sec-fetch-site": "same-origin"}).status_code == 404


def test_tokens_are_found_by_their_hash() -> None:
    """The text itself is kept nowhere."""
    known, now = KnownTokens(), datetime(2026, 1, 1, tzinfo=UTC)
    assert known.find(TOKENS, "people-secret", now) is TOKENS[1]
    assert not isinstance(known.find(TOKENS, digest_of("people-secret"), now), Token)
    assert "secret" not in repr(TOKENS)
    assert TOKENS[1].sha256 not in repr(TOKENS)

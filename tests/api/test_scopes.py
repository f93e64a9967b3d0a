"""Every published operation asks for its scope, and for nothing else."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import sqlalchemy as sa
from fastapi import FastAPI
from fastapi.testclient import TestClient

from api.app import create_app
from api.edge.auth import ANONYMOUS
from api.server.settings import SCOPES, Token
from store.database.connections import writing
from store.hints.hint_log import audit_page, save_hint
from store.nodes.tokens import digest_of
from store.records.hint import Hint

from .conftest import NOW, QUIET, Clock

PUBLIC = {"livez", "readyz", "healthz", "metrics"}
SCOPE_OF = dict.fromkeys(
    ("approve_hint", "withdraw_hint", "replay_delivery", "check_verdict", "step_incident", "step_verdict"),
    "act:approve",
)
SCOPE_OF |= {"reset_breaker": "act:reset", "post_stop": "act:stop", "ack_hint": "report", "report_validation": "report"}
SCOPE_OF |= {"post_outages": "ingest:fleet", "post_alerts": "ingest:fleet", "ask_placement": "read", "enroll": "join"}
SCOPE_OF |= {"close_ticket": "ticket"}
TOKENS = tuple(Token(scope, digest_of(f"{scope}-secret"), frozenset({scope})) for scope in SCOPES)


@pytest.fixture
def guarded_app(engine: sa.Engine, clock: Clock) -> FastAPI:
    """An application with a token for each scope."""
    return create_app(replace(QUIET, tokens=TOKENS), engine, clock)


@pytest.fixture
def guarded(guarded_app: FastAPI) -> Iterator[TestClient]:
    """A client of it."""
    with TestClient(guarded_app, raise_server_exceptions=False) as client:
        yield client


def operations(app: FastAPI) -> list[tuple[str, str, str]]:
    """Every (method, address, operation id), parameters filled in."""
    found = []
    for path, item in app.openapi()["paths"].items():
        for method, operation in item.items():
            address = path.replace("{node}", "n1").replace("{run}", "r1").replace("{hint}", "h1")
            found.append((method.upper(), address, operation["operationId"]))
    return found


def scope_of(method: str, operation: str) -> str:
    """The scope that the design asks for."""
    return SCOPE_OF.get(operation) or ("ingest" if method == "POST" else "read")


def bearer(text: str) -> dict[str, str]:
    """The header of a token."""
    return {"authorization": f"Bearer {text}"}


def test_each_operation_lets_its_own_scope_pass_and_no_other(guarded: TestClient, guarded_app: FastAPI) -> None:
    """Over the whole published description, so that a new route cannot be forgotten."""
    seen = set()
    for method, address, operation in operations(guarded_app):
        if operation in PUBLIC:
            continue
        needed = scope_of(method, operation)
        seen.add(needed)
        for scope in SCOPES:
            headers = bearer(f"{scope}-secret") | {"last-event-id": "none"}  # a stream that is let pass would not end
            answer = guarded.request(method, address, headers=headers, content=b"")
            if scope == needed or (needed, scope) == ("ingest", "ingest:fleet"):
                assert answer.status_code not in (401, 403), (operation, scope)
            else:
                assert answer.status_code == 403, (operation, scope)
                assert f'scope="{needed}"' in answer.headers["www-authenticate"]
                assert f"lacks the scope {needed}" in answer.json()["detail"]
    assert seen == set(SCOPES) - {"on_behalf"}  # lets nothing pass by itself


def test_each_operation_refuses_who_has_no_token(guarded: TestClient, guarded_app: FastAPI) -> None:
    """401 with a challenge, as a problem; also before parameters and bodies are looked at."""
    for method, address, operation in operations(guarded_app):
        address += "?limit=nonsense&cursor=none"
        answer = guarded.request(method, address, content=b"{\x00", headers={"content-type": "application/json"})
        if operation in PUBLIC:
            assert answer.status_code == 200, operation
            continue
        assert answer.status_code == 401, operation
        assert answer.headers["content-type"] == "application/problem+json"
        assert answer.headers["www-authenticate"] == 'Bearer realm="foreshock"'


def test_each_operation_with_a_body_refuses_one_over_the_limit(engine: sa.Engine, clock: Clock) -> None:
    """413, before it is read to its end; also those that take a few words only."""
    app = create_app(replace(QUIET, tokens=TOKENS, body_limit_bytes=1000), engine, clock)
    bodies = {
        operation["operationId"]
        for item in app.openapi()["paths"].values()
        for operation in item.values()
        if "requestBody" in operation
    }
    assert bodies >= {"reset_breaker", "post_stop", "report_validation", "ack_hint", "ask_placement", "post_events"}
    with TestClient(app, raise_server_exceptions=False) as client:
        for method, address, operation in operations(app):
            if operation in bodies:
                headers = bearer(f"{scope_of(method, operation)}-secret") | {"content-type": "application/json"}
                answer = client.request(method, address.replace("{seq}", "1"), headers=headers, content=b" " * 1001)
                assert answer.status_code == 413, operation


def test_a_token_that_is_not_known_is_told_apart_from_none(guarded: TestClient) -> None:
    """`invalid_token`, so that a sender knows that its token is the trouble."""
    answer = guarded.get("/api/v1/nodes", headers=bearer("nobody"))
    assert answer.headers["www-authenticate"] == 'Bearer realm="foreshock", error="invalid_token"'
    assert "nobody" not in answer.text


@pytest.mark.parametrize(
    "text", ["READ-SECRET", "read-secre", "read-secrett", digest_of("read-secret"), "read-secret,act-secret"]
)
def test_only_the_very_text_of_a_token_passes(guarded: TestClient, text: str) -> None:
    """Not its hash, which lies in a file, nor another case."""
    assert guarded.get("/api/v1/nodes", headers=bearer(text)).status_code == 401


@pytest.mark.parametrize("word", ["bearer", "BEARER", "Bearer"])
def test_the_word_before_a_token_is_taken_in_any_case(guarded: TestClient, word: str) -> None:
    """RFC 9110: schemes have no case."""
    assert guarded.get("/api/v1/nodes", headers={"authorization": f"{word} read-secret"}).status_code == 200


@pytest.mark.parametrize("place", ["?token=read-secret", "?access_token=read-secret", "?authorization=read-secret"])
def test_a_token_in_an_address_is_no_token(guarded: TestClient, place: str) -> None:
    """Addresses end up in logs."""
    assert guarded.get(f"/api/v1/nodes{place}").status_code == 401


def test_a_cookie_is_no_token(guarded: TestClient) -> None:
    """A browser would send it for any page."""
    assert guarded.get("/api/v1/nodes", headers={"cookie": "authorization=read-secret"}).status_code == 401


def test_who_acts_is_in_the_audit_by_the_token_s_name(guarded: TestClient, engine: sa.Engine) -> None:
    """Never by its text; nobody without a token is `loopback`."""
    hint = Hint("h1", "n1", "cordon", "proposed", "foreshock: t", "foreshock", NOW, NOW.replace(day=2))
    with writing(engine).begin() as connection:
        save_hint(connection, hint, NOW, {})
    assert guarded.post("/api/v1/hints/h1/withdraw", headers=bearer("act:approve-secret")).status_code == 200
    with engine.connect() as connection:
        entries = audit_page(connection, 10, None, "h1")
    assert [entry["actor"] for entry in entries] == ["act:approve", "policy"]
    assert "secret" not in str(entries)


def test_nobody_without_a_token_is_called_loopback(client: TestClient, engine: sa.Engine) -> None:
    """On a server without tokens."""
    hint = Hint("h1", "n1", "cordon", "proposed", "foreshock: t", "foreshock", NOW, NOW.replace(day=2))
    with writing(engine).begin() as connection:
        save_hint(connection, hint, NOW, {})
    client.post("/api/v1/hints/h1/withdraw")
    with engine.connect() as connection:
        assert audit_page(connection, 1, None, "h1")[0]["actor"] == ANONYMOUS.name


@pytest.mark.parametrize(
    ("site", "status"), [("cross-site", 403), ("same-origin", 200), ("same-site", 200), ("none", 200), (None, 200)]
)
def test_pages_of_elsewhere_are_refused_on_every_operation(
    client: TestClient, app: FastAPI, site: Any, status: int
) -> None:
    """Where no token is asked for; programs send no such header, and one's own pages say `same-origin`."""
    headers = {} if site is None else {"sec-fetch-site": site}
    for method, address, operation in operations(app):
        if operation not in PUBLIC:
            answer = client.request(method, address, headers=headers | {"last-event-id": "none"})
            assert (answer.status_code == 403) == (status == 403), (operation, answer.text)


def test_with_a_token_the_page_does_not_matter(guarded: TestClient) -> None:
    """Who holds the token may call from anywhere."""
    headers = {**bearer("read-secret"), "sec-fetch-site": "cross-site"}
    assert guarded.get("/api/v1/nodes", headers=headers).status_code == 200


def test_a_refused_sender_stores_nothing(guarded: TestClient) -> None:
    """The body is not even read."""
    body = b'[{"time": "2025-03-01T11:00:00Z", "node": "n1", "source": "kernel", "kind": "xid"}]'
    for headers in ({}, bearer("read-secret"), bearer("wrong")):
        assert guarded.post("/api/v1/events", content=body, headers=headers).status_code in (401, 403)
    assert guarded.get("/api/v1/events", headers=bearer("read-secret")).json()["items"] == []

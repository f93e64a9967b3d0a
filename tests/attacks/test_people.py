"""Nobody acts as a person who did not sign in, nor beyond that person's role."""

import base64
import hashlib
import hmac
import json
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import sqlalchemy as sa
from attacks.id_tokens import AUDIENCE, Issuer, issuer
from fastapi.testclient import TestClient
from joserfc.jwk import RSAKey

from api.app import create_app
from api.server.people_settings import PeopleSettings, RoleMembers
from api.server.settings import ApiSettings, Intervals, Token, expand_scopes
from schedulers.policy.settings import ApprovalRule, Policy
from store.database.connections import writing
from store.events.append import append_nodes
from store.hints.hint_log import audit_page, save_hint
from store.records.hint import Evidence, Hint
from store.records.node import Node

NOW = datetime(2025, 3, 1, 12, 0, tzinfo=UTC)
ROLES = RoleMembers(viewer=("users",), operator=("oncall", "bob@example.com"), admin=("root@example.com",))
WORDS = {"dashboard": ("read", "act", "on_behalf"), "eyes": ("read", "on_behalf"), "hand": ("read", "act")}
TOKENS = tuple(
    Token(name, hashlib.sha256(name.encode()).hexdigest(), expand_scopes(words)) for name, words in WORDS.items()
)
QUIET = Intervals(score_s=0, policy_s=0, dispatch_s=0, ledgers_s=0, lemons_s=0, models_s=0)
APPROVE = "/api/v1/hints/h-{}/approve"


@pytest.fixture(scope="module")
def signer() -> Iterator[Issuer]:
    """The site's provider."""
    with issuer() as found:
        yield found


def proposed(number: int, action: Any = "cordon") -> Hint:
    """A hint that waits for a person."""
    life = (NOW - timedelta(minutes=5), NOW + timedelta(hours=20))
    name = f"gpu-{number:03}"
    return Hint(f"h-{number}", name, action, "proposed", "foreshock: xid 79", "foreshock", *life, Evidence())


def site(engine: sa.Engine, signer: Issuer, most: int | None = None) -> TestClient:
    """A server with people and tokens, and six hints that wait."""
    with writing(engine).begin() as connection:
        append_nodes(connection, [Node(f"gpu-{number:03}", gpus=8) for number in range(1, 7)])
        for number in range(1, 7):
            save_hint(connection, proposed(number), NOW, {"change": "made"})
    settings = ApiSettings(
        tokens=TOKENS,
        people=PeopleSettings(signer.address, AUDIENCE, roles=ROLES),
        policy=Policy(mode="approve", approval=ApprovalRule(most)),
        intervals=QUIET,
    )
    app = create_app(settings, engine, lambda: NOW, wall=lambda: datetime.now(UTC))
    return TestClient(app, raise_server_exceptions=False)


def bearer(text: str, **more: str) -> dict[str, str]:
    """The headers of a request."""
    return {"Authorization": f"Bearer {text}", **more}


def named(token: str, person: str, groups: str = "") -> dict[str, str]:
    """What a proxy's dashboard sends."""
    return bearer(token, **{"Foreshock-Person": person, "Foreshock-Groups": groups})


def actors(engine: sa.Engine, hint: str = "h-1") -> list[str]:
    """Who did something to a hint, the newest first."""
    with engine.connect() as connection:
        return [row["actor"] for row in audit_page(connection, 20, None, hint)]


def states(client: TestClient, headers: dict[str, str]) -> dict[str, str]:
    """Each hint's state."""
    items = client.get("/api/v1/hints", headers=headers).json()["items"]
    return {item["id"]: item["state"] for item in items}


def unsigned(claims: dict[str, Any]) -> str:
    """A token of `alg: none`, as RFC 7519 has it."""
    parts = ({"alg": "none", "typ": "JWT"}, claims)
    return ".".join(base64url(json.dumps(part).encode()) for part in parts) + "."


def base64url(content: bytes) -> str:
    """As a token has it: without padding."""
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()


def confused(signer: Issuer) -> str:
    """A token of HS256 whose secret is the provider's public key, which everybody has."""
    head = base64url(json.dumps({"alg": "HS256", "typ": "JWT", "kid": "k1"}).encode())
    text = f"{head}.{base64url(json.dumps(signer.claims()).encode())}"
    return f"{text}.{base64url(hmac.digest(signer.key.as_pem(private=False), text.encode(), 'sha256'))}"


def forgeries(signer: Issuer) -> dict[str, str]:
    """Tokens that are no sign-in of anybody at this dashboard, by what is wrong with them."""
    now, other = int(time.time()), RSAKey.generate_key(2048, {"kid": "k1"})
    good = signer.token()
    head, body, signature = good.split(".")
    raised = base64url(json.dumps(signer.claims(groups=["oncall"], sub="x")).encode())
    return {
        "signed with the attacker's key": signer.token(key=other),
        "signed with the attacker's key, which the header brings along": signer.token(
            {"jwk": other.as_dict(private=False)}, key=other
        ),
        "signed with a key that the provider does not have": signer.token({"kid": "k2"}, key=other),
        "not signed at all": unsigned(signer.claims()),
        "the signature cut off": f"{head}.{body}.",
        "other claims under a good signature": f"{head}.{raised}.{signature}",
        "HS256 with the public key as its secret": confused(signer),
        "expired": signer.token(iat=now - 7200, exp=now - 3600),
        "without an end": signer.token(exp=None),
        "of the future": signer.token(iat=now + 3600, exp=now + 7200),
        "of another issuer": signer.token(iss="https://evil.example"),
        "for another program": signer.token(aud="grafana"),
        "for another program of several": signer.token(aud=["grafana", AUDIENCE], azp="grafana"),
        "without an audience": signer.token(aud=None),
        "without a subject": signer.token(sub=None),
        "an access token": signer.token({"typ": "at+jwt"}),
        "a logout token": signer.token(events={"http://schemas.openid.net/event/backchannel-logout": {}}),
        "no token but its form": "eyJhbGciOiJSUzI1NiJ9.e30.AAAA",
        "no base64": "eyJ$.%%.&&",
        "huge": signer.token(groups=["x" * 100] * 1000),
    }


def test_a_forged_sign_in_is_nobody(engine: sa.Engine, signer: Issuer) -> None:
    """Whatever is wrong with it: 401, nothing is approved, and a counter says so."""
    client = site(engine, signer)
    for wrong, text in forgeries(signer).items():
        answer = client.post(APPROVE.format(1), headers=bearer(text))
        assert answer.status_code == 401, wrong
        assert "invalid_token" in answer.headers["WWW-Authenticate"], wrong
    assert actors(engine) == ["policy"]
    page = client.get("/metrics").text
    refused = [line for line in page.splitlines() if line.startswith("foreshock_callers_refused_total{")]
    assert any("sign_in_invalid" in line for line in refused), refused
    assert any("sign_in_expired" in line for line in refused), refused


def test_a_true_sign_in_acts_under_the_persons_name(engine: sa.Engine, signer: Issuer) -> None:
    """By an ID token alone, as a command line of a person would send it."""
    client = site(engine, signer)
    answer = client.post(APPROVE.format(1), headers=bearer(signer.token()))
    assert (answer.status_code, answer.json()["state"]) == (200, "approved")
    assert actors(engine) == ["person:alice@example.com", "policy"]


def test_an_address_that_is_not_verified_gives_no_role_and_no_name(engine: sa.Engine, signer: Issuer) -> None:
    """At some providers anybody may write any address into the own account."""
    client = site(engine, signer)
    for verified in (False, "true", None):
        text = signer.token(email="bob@example.com", email_verified=verified, groups=None)
        answer = client.post(APPROVE.format(1), headers=bearer(text))
        assert (answer.status_code, actors(engine)) == (403, ["policy"])
    text = signer.token(email="root@example.com", email_verified=None)
    assert client.get("/api/v1/whoami", headers=bearer(text)).json()["person"] == "u-1"


@pytest.mark.parametrize(
    ("groups", "status"),
    [
        (["users"], 403),
        ([], 403),
        ("oncall", 200),
        (["users", "oncall"], 200),
        ({"oncall": 1}, 403),
        ([["oncall"]], 403),
    ],
)
def test_the_role_decides_not_the_dashboard(engine: sa.Engine, signer: Issuer, groups: Any, status: int) -> None:
    """A viewer approves nothing, whatever is sent to the API."""
    client = site(engine, signer)
    assert client.post(APPROVE.format(1), headers=bearer(signer.token(groups=groups))).status_code == status


def test_an_operator_resets_no_breaker(engine: sa.Engine, signer: Issuer) -> None:
    """That is an admin's."""
    client = site(engine, signer)
    text = signer.token()
    answer = client.post("/api/v1/breaker/1/reset", headers=bearer(text), json={"backlog": "drop"})
    assert answer.status_code == 403
    assert "alice@example.com is operator here" in answer.json()["detail"]
    root = signer.token(email="root@example.com")
    answer = client.post("/api/v1/breaker/1/reset", headers=bearer(root), json={"backlog": "drop"})
    assert answer.status_code == 404  # there is no such trip


def test_a_token_that_may_not_name_a_person_is_refused_with_its_name(engine: sa.Engine, signer: Issuer) -> None:
    """Though it could have approved by itself: who lies about a person is stopped."""
    client = site(engine, signer)
    answer = client.post(APPROVE.format(1), headers=named("hand", "root@example.com"))
    assert answer.status_code == 403
    assert "on_behalf" in answer.json()["detail"]
    assert actors(engine) == ["policy"]


def test_a_named_person_may_do_what_both_may(engine: sa.Engine, signer: Issuer) -> None:
    """The token's scopes and the person's role together; the audit names both."""
    client = site(engine, signer)
    assert client.post(APPROVE.format(1), headers=named("eyes", "bob@example.com")).status_code == 403
    assert client.post(APPROVE.format(1), headers=named("dashboard", "vera@x", "users")).status_code == 403
    assert client.post(APPROVE.format(1), headers=named("dashboard", "eve@x")).status_code == 403
    assert client.post(APPROVE.format(1), headers=bearer("dashboard")).status_code == 403  # it names nobody
    assert client.get("/api/v1/hints", headers=bearer("dashboard")).status_code == 200
    assert actors(engine) == ["policy"]
    assert client.post(APPROVE.format(1), headers=named("dashboard", "bob@example.com")).status_code == 200
    assert actors(engine) == ["person:bob@example.com token:dashboard", "policy"]


@pytest.mark.parametrize("name", ["", "a b", "bob@example.com token:hand", "x" * 256, "bób"])
def test_a_name_that_could_deceive_the_audit_is_none(engine: sa.Engine, signer: Issuer, name: str) -> None:
    """Neither empty nor long, no space, no letter beyond ASCII."""
    client = site(engine, signer)
    headers = {**named("dashboard", "", "oncall"), "Foreshock-Person": name.encode()}
    answer = client.post(APPROVE.format(1), headers=headers)  # type: ignore[arg-type]  # bytes are sent as they are
    assert answer.status_code == 401
    assert actors(engine) == ["policy"]


def test_the_same_person_is_no_second_one(engine: sa.Engine, signer: Issuer) -> None:
    """By another session, by the proxy's word, by a new token: it is the person who counts."""
    client = site(engine, signer, most=0)
    again = [bearer(signer.token()), bearer(signer.token(iat=int(time.time()) - 5)), bearer(signer.token())]
    again.append(named("dashboard", "alice@example.com", "oncall"))
    for headers in again:
        answer = client.post(APPROVE.format(1), headers=headers)
        assert answer.status_code == 200
        assert (answer.json()["state"], answer.json()["approvals_needed"]) == ("proposed", 2)
        assert [each["by"] for each in answer.json()["approvals"]] == ["person:alice@example.com"]
    assert actors(engine) == ["person:alice@example.com", "policy"]
    bob = bearer(signer.token(sub="u-2", email="bob@example.com"))
    assert client.post(APPROVE.format(1), headers=bob).json()["state"] == "approved"
    assert actors(engine)[0] == "person:bob@example.com"


def test_a_program_is_no_second_person(engine: sa.Engine, signer: Issuer) -> None:
    """A token that may approve gives neither of the two approvals where people sign in."""
    client = site(engine, signer, most=0)
    assert client.post(APPROVE.format(1), headers=bearer("hand")).status_code == 409
    client.post(APPROVE.format(1), headers=bearer(signer.token()))
    answer = client.post(APPROVE.format(1), headers=bearer("hand"))
    assert answer.status_code == 409
    assert "sign in" in answer.json()["detail"]
    assert states(client, bearer("hand"))["h-1"] == "proposed"


def test_many_small_approvals_are_one_large_one(engine: sa.Engine, signer: Issuer) -> None:
    """What people approved within the hour counts together, also what was withdrawn since; to withdraw takes one."""
    client = site(engine, signer, most=3)
    alice = bearer(signer.token())
    for number in (1, 2, 3):
        assert client.post(APPROVE.format(number), headers=alice).json()["state"] == "approved"
    assert client.post("/api/v1/hints/h-3/withdraw", headers=alice).json()["state"] == "withdrawn"
    assert client.post(APPROVE.format(4), headers=alice).json()["state"] == "proposed"
    assert client.post(APPROVE.format(4), headers=bearer(signer.token(sub="u-2", email="bob@example.com"))).json()[
        "state"
    ] == ("approved")
    shown = {item["id"]: item for item in client.get("/api/v1/hints", headers=alice).json()["items"]}
    assert shown["h-5"]["approvals_needed"] == 2
    assert shown["h-5"]["approvals"] == []


def test_an_approval_of_a_cordon_is_none_of_a_drain(engine: sa.Engine, signer: Issuer) -> None:
    """Where the policy raises the hint in between, the first approval is to be given again."""
    client = site(engine, signer, most=0)
    client.post(APPROVE.format(1), headers=bearer(signer.token()))
    with writing(engine).begin() as connection:
        connection.execute(sa.text("UPDATE hints SET action = 'drain' WHERE id = 'h-1'"))
    bob = bearer(signer.token(sub="u-2", email="bob@example.com"))
    answer = client.post(APPROVE.format(1), headers=bob).json()
    assert (answer["state"], [each["by"] for each in answer["approvals"]]) == ("proposed", ["person:bob@example.com"])


def test_no_word_of_a_provider_that_is_away_is_believed(engine: sa.Engine) -> None:
    """No keys, no people: 503, not 200; tokens go on."""
    gone = Issuer("http://127.0.0.1:9", RSAKey.generate_key(2048, {"kid": "k1"}))
    client = site(engine, gone)
    assert client.post(APPROVE.format(1), headers=bearer(gone.token())).status_code == 503
    assert client.get("/api/v1/hints", headers=bearer("hand")).status_code == 200


def test_a_certificate_names_no_person_and_acts_as_none(engine: sa.Engine, signer: Issuer) -> None:
    """With a certificate the same holds as with a token: to name somebody takes `on_behalf`, and then the role."""
    names = {
        ("read", "act", "on_behalf"): {"none": 403, "bob@example.com": 200, "nobody@example.com": 403},
        ("read", "act"): {"none": 200, "bob@example.com": 403},
    }
    inside = site(engine, signer).app

    async def with_certificate(scope: Any, receive: Any, send: Any) -> None:
        await inside({**scope, "extensions": {"tls": {"client_names": ("gpu-001",)}}}, receive, send)

    client = TestClient(with_certificate, raise_server_exceptions=False)
    state = inside.state.foreshock  # type: ignore[attr-defined]
    for words, expected in names.items():
        rule = Token("nodes", "", expand_scopes(words), certificate=True)
        object.__setattr__(state, "started", replace(state.started, tokens=(*TOKENS, rule)))
        for person, status in expected.items():
            headers = {} if person == "none" else {"Foreshock-Person": person}
            answer = client.post(APPROVE.format(1), headers=headers)
            assert answer.status_code == status, (words, person, answer.text)
    assert "person:bob@example.com token:nodes:gpu-001" in actors(engine)


def test_whoever_speaks_for_a_scheduler_that_pulls_is_in_the_audit(engine: sa.Engine, signer: Issuer) -> None:
    """The name of the scheduler is the sender's choice: the audit has the token, or the person, beside it."""
    client = site(engine, signer)
    assert client.post(APPROVE.format(1), headers=bearer(signer.token(groups=["oncall"]))).status_code == 200
    taken = {"scheduler": "slurm", "result": "taken", "detail": ""}
    assert client.post("/api/v1/hints/h-1/ack", json=taken, headers=bearer("hand")).status_code == 200
    word = {"scheduler": "slurm", "result": "released", "detail": "bob resumed it"}
    answer = client.post("/api/v1/hints/h-1/ack", json=word, headers=bearer("hand"))
    assert (answer.status_code, answer.json()["state"]) == (200, "withdrawn")
    with engine.connect() as connection:
        row = [row for row in audit_page(connection, 20, None, "h-1") if "ack" in row["detail"]][-1]
    assert (row["actor"], row["detail"]["by"]) == ("scheduler:pull:slurm", "hand")

"""Tokens made while the server runs: what a join token can do, once, and that a revoked one ends at once everywhere."""

import asyncio
import json
import stat
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import sqlalchemy as sa
from click.testing import CliRunner
from fastapi.testclient import TestClient
from real.foreshock import serve, sidecar
from real.patience import patience
from real.programs import wait_for

from api.server.known_tokens import TRUSTED_S, KnownTokens
from api.server.settings import Token, expand_scopes
from cli.main import foreshock
from store.database.connections import transact
from store.database.known_nodes import ARCHIVE, add_known
from store.nodes.tokens import TokenOrder, TokenRefusedError, digest_of, issue, list_tokens
from store.tables import schema

from .token_site import bearer, beat, made_client

CONFIGURED = Token("people", digest_of("of-people"), expand_scopes(["read", "act"]))


def make(engine: sa.Engine, name: str, scope: str, node: str, uses: int | None = None) -> str:
    """A token of the database; its text."""
    order = TokenOrder(name, (scope,), node, uses=uses)
    return transact(engine, lambda connection: issue(connection, order, datetime.now(UTC), "alice"))[1]


def command(engine: sa.Engine, *words: str) -> str:
    """What `foreshock` prints."""
    url = engine.url.render_as_string(hide_password=False)
    done = CliRunner().invoke(foreshock, [*words, "--db", url])
    assert done.exit_code == 0, done.output
    return done.stdout


@pytest.fixture
def client(any_engine: sa.Engine) -> Iterator[TestClient]:
    """A server, one of whose tokens stands in its configuration."""
    with made_client(any_engine, (CONFIGURED,)) as client:
        yield client


def enrol(client: TestClient, secret: str, node: str) -> int:
    """The status of the answer."""
    return client.post("/api/v1/enroll", json={"node": node}, headers=bearer(secret)).status_code


def test_a_join_token_does_nothing_else(client: TestClient, any_engine: sa.Engine) -> None:
    """No record, no question, no decision."""
    join = bearer(make(any_engine, "rack7", "join", "gpu-[001-064]"))
    for path in ("events", "telemetry", "heartbeats", "outages", "alerts", "logs", "hints/x/approve", "stop"):
        assert client.post(f"/api/v1/{path}", json=[], headers=join).status_code == 403, path
    for path in ("nodes", "events", "hints", "audit"):
        assert client.get(f"/api/v1/{path}", headers=join).status_code == 403, path


def test_a_node_is_enrolled_once_and_speaks_for_itself_alone(client: TestClient, any_engine: sa.Engine) -> None:
    """A second time is refused with the remedy, and takes nothing from the first."""
    join = make(any_engine, "rack7", "join", "gpu-[001-064]")
    given = client.post("/api/v1/enroll", json={"node": "gpu-017"}, headers=bearer(join)).json()
    assert (given["name"], given["node"], given["scopes"]) == ("gpu-017", "gpu-017", ["ingest"])
    own = bearer(given["token"])
    beats = [beat("gpu-017"), beat("gpu-018")]
    taken = client.post("/api/v1/heartbeats", json=beats, headers=own).json()
    assert (taken["accepted"], len(taken["rejected"])) == (1, 1)
    again = client.post("/api/v1/enroll", json={"node": "gpu-017"}, headers=bearer(join))
    assert (again.status_code, "foreshock token revoke gpu-017" in again.json()["detail"]) == (409, True)
    assert client.post("/api/v1/heartbeats", json=[beat("gpu-017")], headers=own).status_code == 200
    assert enrol(client, join, "gpu-065") == 403
    assert enrol(client, join, "-rf") == 403
    assert enrol(client, given["token"], "gpu-018") == 403  # a node's token enrols nobody
    command(any_engine, "token", "revoke", "gpu-017")
    assert enrol(client, join, "gpu-017") == 200


def test_another_spelling_of_a_node_is_the_node(any_engine: sa.Engine) -> None:
    """A FQDN gets the token of the node that the inventory has: none that is refused everywhere, and no second one."""
    transact(any_engine, lambda connection: add_known(connection, ARCHIVE, ["gpu-001", "gpu-002"]))
    join = make(any_engine, "racks", "join", "gpu-*")
    with made_client(any_engine, (CONFIGURED,)) as client:
        wanted = {"node": "gpu-001.cluster.local"}
        given = client.post("/api/v1/enroll", json=wanted, headers=bearer(join)).json()
        assert (given["name"], given["node"]) == ("gpu-001", "gpu-001")
        beats = [beat("gpu-001.cluster.local"), beat("gpu-001"), beat("gpu-002.cluster.local")]
        taken = client.post("/api/v1/heartbeats", json=beats, headers=bearer(given["token"])).json()
        assert (taken["accepted"], len(taken["rejected"])) == (2, 1)
        for name in ("gpu-001", "gpu-001.elsewhere", "gpu-001."):
            assert enrol(client, join, name) == 409, name
        only = make(any_engine, "one", "join", "gpu-002.cluster.local,gpu-003")
        assert enrol(client, only, "gpu-002.cluster.local") == 403  # it is gpu-002, for which the token is not


@pytest.mark.parametrize("node", ["*", "**", "gpu-001,*"])
def test_a_join_token_says_for_which_nodes_it_is(engine: sa.Engine, node: str) -> None:
    """Every node is no answer, however it is written."""
    with pytest.raises(TokenRefusedError, match="for which nodes"):
        make(engine, "all", "join", node)


def test_uses_are_counted_and_a_join_token_expires(client: TestClient, any_engine: sa.Engine) -> None:
    """A refusal is no use."""
    join = make(any_engine, "two", "join", "gpu-[001-064]", uses=2)
    assert [enrol(client, join, f"gpu-00{n}") for n in (1, 1, 2)] == [200, 409, 200]
    assert enrol(client, join, "gpu-003") in (401, 409)  # as soon as this process knows it is a token no more
    order = TokenOrder("late", ("join",), "gpu-[001-064]", datetime.now(UTC) + timedelta(seconds=patience(0.5)))
    late = transact(any_engine, lambda connection: issue(connection, order, datetime.now(UTC), "alice"))[1]
    assert enrol(client, late, "gpu-003") == 200
    wait_for("it expires", lambda: enrol(client, late, "gpu-004") == 401, 10)


def test_every_change_is_in_the_audit_and_no_secret_is_in_the_database(any_engine: sa.Engine) -> None:
    """Who made what, and who ended it."""
    secret = command(any_engine, "token", "new", "rack7", "--scope", "join", "--node", "gpu-[001-064]").splitlines()[0]
    with made_client(any_engine, (CONFIGURED,)) as client:
        given = client.post("/api/v1/enroll", json={"node": "gpu-001"}, headers=bearer(secret)).json()["token"]
    command(any_engine, "token", "revoke", "gpu-001")
    with any_engine.connect() as connection:
        rows = connection.execute(sa.select(schema.audit).order_by(schema.audit.c.seq)).all()
        stored = repr(connection.execute(sa.select(schema.tokens)).all()) + repr(rows)
    assert [(row.action, row.subject) for row in rows] == [
        ("token_new", "token:rack7"),
        ("token_enrolled", "token:gpu-001"),
        ("token_revoked", "token:gpu-001"),
    ]
    assert rows[1].actor == "rack7"
    assert secret.startswith("fsk_") and len(secret) == 47
    assert secret not in stored and given not in stored


def test_the_first_token_shuts_an_open_server_and_revoking_it_opens_it_to_nobody(any_engine: sa.Engine) -> None:
    """A server without tokens serves this machine alone; it is not open again because somebody revoked the last one."""
    with made_client(any_engine) as client:
        assert client.get("/api/v1/nodes").status_code == 200
        secret = make(any_engine, "alice", "read", "*")
        wait_for("it asks for a token", lambda: client.get("/api/v1/nodes").status_code == 401, 10)
        assert client.get("/api/v1/nodes", headers=bearer(secret)).status_code == 200
        command(any_engine, "token", "revoke", "alice")
        revoked = "this token was revoked"
        wait_for(
            "it is refused",
            lambda: revoked in client.get("/api/v1/nodes", headers=bearer(secret)).text,
            10,
        )
        assert client.get("/api/v1/nodes").status_code == 401


def test_a_new_token_is_in_force_at_once_in_every_server(any_engine: sa.Engine) -> None:
    """A server that does not know it yet looks before it refuses; a revoked one ends in all of them."""
    with made_client(any_engine, (CONFIGURED,)) as one, made_client(any_engine, (CONFIGURED,)) as other:
        secret = make(any_engine, "alice", "read", "*")
        assert [each.get("/api/v1/nodes", headers=bearer(secret)).status_code for each in (one, other)] == [200, 200]
        command(any_engine, "token", "revoke", "alice")
        for each in (one, other):
            refused = lambda each=each: each.get("/api/v1/nodes", headers=bearer(secret)).status_code == 401  # noqa: E731
            wait_for("it is refused", refused, 10)


def test_when_a_token_was_last_used_is_known_to_the_minute(any_engine: sa.Engine) -> None:
    """Written once a minute, and when the server ends."""
    secret = make(any_engine, "alice", "read", "*")
    with made_client(any_engine, (CONFIGURED,)) as client:
        client.get("/api/v1/nodes", headers=bearer(secret))
    (row,) = json.loads(command(any_engine, "token", "list", "--json"))
    assert row["last_used"] is not None and row["last_used"].endswith(":00.000000Z")
    assert row["state"] == "in force"


def test_while_the_database_is_away_known_tokens_stay_for_a_bounded_time(engine: sa.Engine) -> None:
    """After that nobody is told that a token is wrong: nobody knows."""
    now, moment = datetime.now(UTC), [0.0]
    secret = make(engine, "alice", "read", "*")
    known = KnownTokens(lambda: moment[0])
    known.read(engine)
    engine.dispose()
    moment[0] = TRUSTED_S - 1
    assert isinstance(known.find((), secret, now), Token)
    moment[0] = TRUSTED_S + 1
    assert known.find((), secret, now) == "unreadable"
    assert known.find((CONFIGURED,), "of-people", now) is CONFIGURED


def test_before_the_first_reading_a_request_without_a_token_is_to_come_again(engine: sa.Engine) -> None:
    """Nobody knows yet whether one is asked for: 503, for a sidecar takes 401 as final. Nobody is let in either way."""
    known = KnownTokens()
    assert known.are_asked_for(())
    assert known.missing(()) == "unreadable"
    assert known.missing((CONFIGURED,)) == "missing"
    known.read(engine)
    assert not known.are_asked_for(())
    make(engine, "alice", "read", "*")
    known.read(engine)
    assert known.missing(()) == "missing"


def test_a_token_that_nobody_could_look_for_in_time_is_neither_known_nor_unknown(engine: sa.Engine) -> None:
    """On a busy machine the reading that a new token asks for may be late: 503, for a sidecar takes 401 as final."""
    known, now = KnownTokens(), datetime.now(UTC)
    known.read(engine)
    secret = make(engine, "rack7", "join", "gpu-[001-064]")
    assert known.find((), secret, now) == "unknown"
    known.wanted = threading.Event()  # a thread that has no turn
    assert asyncio.run(known.renewed((), secret, now)) == "unreadable"
    assert known.wanted.is_set()

    async def read_meanwhile() -> object:
        waiting = asyncio.create_task(known.renewed((), secret, now))
        await asyncio.sleep(0.05)
        known.read(engine)
        return await waiting

    assert isinstance(asyncio.run(read_meanwhile()), Token)
    assert asyncio.run(known.renewed((), "somebody's text", now)) == "unknown"  # no token of ours


@pytest.mark.integration
def test_a_sidecar_enrols_itself_and_keeps_its_token(engine: sa.Engine, tmp_path: Path) -> None:
    """At its first start; its file is for its user alone; a restart asks for nothing."""
    url = engine.url.render_as_string(hide_password=False)
    (tmp_path / "join").write_text(make(engine, "rack7", "join", "gpu-[001-064]") + "\n")
    log = tmp_path / "kernel.log"
    log.write_text(f"{datetime.now(UTC).isoformat()} gpu-017 kernel: NVRM: Xid (PCI:0000:0f:00): 79, GPU lost.\n")
    more = ["--join-token-file", str(tmp_path / "join")]
    with serve(url, tmp_path) as server:
        for start in (1, 2):
            with sidecar(server, tmp_path, f"file:{log}:kernel", more=more):
                wait_for("it reports", lambda start=start: len(_events(engine)) >= start, 60.0)  # type: ignore[misc]
            with log.open("a") as file:
                file.write(f"{datetime.now(UTC).isoformat()} gpu-017 kernel: NVRM: Xid (PCI:0000:0f:00): 48, more.\n")
    token = tmp_path / "spool" / "token"
    assert stat.S_IMODE(token.stat().st_mode) == 0o600
    with engine.connect() as connection:
        found = {one.name: one for one in list_tokens(connection)}
    assert found.keys() == {"rack7", "gpu-017"}
    assert (found["rack7"].used, found["gpu-017"].sha256) == (1, digest_of(token.read_text()))


@pytest.mark.integration
def test_a_sidecar_that_lost_its_disk_is_told_what_a_person_must_do(engine: sa.Engine, tmp_path: Path) -> None:
    """It reads on, and its records wait in the spool; once the old token is revoked it gets another."""
    url = engine.url.render_as_string(hide_password=False)
    secret = make(engine, "rack7", "join", "gpu-[001-064]")
    with made_client(engine, (CONFIGURED,)) as client:
        assert enrol(client, secret, "gpu-017") == 200
    (tmp_path / "join").write_text(secret)
    now = datetime.now(UTC).isoformat()
    (tmp_path / "kernel.log").write_text(f"{now} gpu-017 kernel: NVRM: Xid (PCI:0000:0f:00): 79, GPU lost.\n")
    more = ["--join-token-file", str(tmp_path / "join")]
    with (
        serve(url, tmp_path) as server,
        sidecar(server, tmp_path, f"file:{tmp_path / 'kernel.log'}:kernel", more=more),
    ):
        said = tmp_path / "sidecar.log"
        wait_for("it says so", lambda: "foreshock token revoke gpu-017" in said.read_text(), 60)
        assert _events(engine) == []
        command(engine, "token", "revoke", "gpu-017")
        wait_for("it reports", lambda: len(_events(engine)) == 1, 120.0)


def _events(engine: sa.Engine) -> list[str]:
    with engine.connect() as connection:
        return list(connection.scalars(sa.select(schema.events.c.node)))

"""A token that may say a word about some nodes, or for one scheduler, says nothing for others."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
import sqlalchemy as sa
from fastapi.testclient import TestClient

from api.app import create_app
from api.server.settings import ApiSettings, Token, expand_scopes
from diagnosis.incidents.incidents_table import update_incidents
from schedulers.policy.settings import CheckSettings
from store.database.connections import writing
from store.database.retention import RetentionPeriods, prune
from store.events.append import append_events, append_nodes
from store.hints.hint_log import read_hint, save_hint
from store.hints.holds import SchedulerHold, holds_of, save_holds
from store.hints.validations import report_validation
from store.nodes.tokens import digest_of
from store.records.event import Device, Event
from store.records.hint import Evidence, Hint
from store.records.hostlist import NodePattern
from store.records.node import Node
from store.records.verdict import Verdict
from store.verdicts.verdict_log import VerdictChange, save_changes

from .token_site import NOW, QUIET, bearer, made_client

TOKENS = (
    Token("one", digest_of("one"), expand_scopes(["read", "act:approve"]), NodePattern.of("gpu-001")),
    Token("tester", digest_of("tester"), expand_scopes(["report"])),
    Token("reader", digest_of("reader"), expand_scopes(["read"])),
)


@pytest.fixture
def client(engine: sa.Engine) -> Iterator[TestClient]:
    """A server that knows these tokens."""
    with made_client(engine, TOKENS) as client:
        yield client


@pytest.mark.parametrize("step", ["ack", "silence", "close"])
def test_a_step_on_a_verdict_is_none_on_incidents_of_other_nodes(
    client: TestClient, engine: sa.Engine, step: str
) -> None:
    """The verdict is of the token's own node, and names an incident of another's: that stays as open as it was."""
    events = [
        Event(NOW, node, "kernel", "xid", 79, "fatal", "hardware", device=Device("gpu"), id=node)
        for node in ("gpu-001", "gpu-002")
    ]
    rest: dict[str, Any] = {"node": "gpu-001", "nodes": ("gpu-001",), "incidents": ("gpu-001", "gpu-002"), "id": "v1"}
    cause = Verdict("node", "gpu-001", 0.9, "hardware", "drain_node", NOW, "why", **rest)
    with writing(engine).begin() as connection:
        update_incidents(connection, append_events(connection, events, NOW).new)
        save_changes(connection, [VerdictChange(cause, "opened")], NOW)
    assert client.post(f"/api/v1/verdicts/v1/{step}", headers=bearer("one")).status_code == 200
    threads = {
        node: client.get(f"/api/v1/incidents/{node}", headers=bearer("reader")).json()["thread"]
        for node in ("gpu-001", "gpu-002")
    }
    assert {node: len(thread) for node, thread in threads.items()} == {"gpu-001": 1, "gpu-002": 0}


def put(engine: sa.Engine, *schedulers: str) -> None:
    """A hold that stands, which these schedulers have taken."""
    hint = Hint("h1", "gpu-001", "cordon", "confirmed", "x", "foreshock", NOW, NOW + timedelta(days=1), Evidence())
    with writing(engine).begin() as connection:
        save_hint(connection, hint, NOW, {})
        save_holds(
            connection, [SchedulerHold("h1", name, "gpu-001", "cordon", "confirmed", 1, NOW) for name in schedulers]
        )


@pytest.mark.parametrize("words", [["released"], ["taken", "released"]])
@pytest.mark.parametrize("holder", ["slurm", "pull:volcano"])
def test_no_word_for_another_scheduler_releases_what_one_holds(
    client: TestClient, engine: sa.Engine, words: list[str], holder: str
) -> None:
    """A test system has the scope of schedulers that pull: with the name of none, it takes no hold off."""
    put(engine, holder)
    body = {"scheduler": "mine", "detail": "bob resumed it"}
    answers = [
        client.post("/api/v1/hints/h1/ack", json=body | {"result": word}, headers=bearer("tester")) for word in words
    ]
    assert answers[-1].status_code == 409
    with engine.connect() as connection:
        (held,) = (one for one in holds_of(connection, ["h1"])["h1"] if one.scheduler == holder)
    hint = client.get("/api/v1/hints", headers=bearer("reader")).json()["items"][0]
    assert (held.state, hint["state"]) == ("confirmed", "confirmed")


def test_a_node_s_old_incident_takes_no_verdict_s_thread_along_when_it_goes(
    client: TestClient, engine: sa.Engine
) -> None:
    """It bears the verdict's id, which its sender chose: what a person said of the verdict stays, silence and all."""
    old = Event(NOW - timedelta(days=100), "gpu-002", "kernel", "xid", 79, "fatal", "hardware", id="v1")
    rest: dict[str, Any] = {"node": "gpu-001", "nodes": ("gpu-001",), "id": "v1"}
    cause = Verdict("node", "gpu-001", 0.9, "hardware", "drain_node", NOW, "why", **rest)
    with writing(engine).begin() as connection:
        update_incidents(connection, append_events(connection, [old], NOW).new)
        save_changes(connection, [VerdictChange(cause, "opened")], NOW)
    assert client.post("/api/v1/verdicts/v1/silence", headers=bearer("one")).status_code == 200
    assert prune(engine, RetentionPeriods(incidents_days=91).before(NOW)) == {"incidents": 1}
    found = client.get("/api/v1/verdicts/v1", headers=bearer("reader")).json()
    assert (len(found["thread"]), found["life"]["silenced_until"] is None) == (1, False)


def test_a_check_of_a_suspect_takes_no_peer_of_another_s(engine: sa.Engine) -> None:
    """A test of two nodes runs the site's command on both: the second is one that the token speaks for, too."""
    checks = CheckSettings(pair="true {node} {peer}")
    token = Token("pair", digest_of("pair"), expand_scopes(["act:approve"]), NodePattern.of("gpu-[001,003]"))
    rest: dict[str, Any] = {"node": "gpu-001", "nodes": ("gpu-001",)}
    with writing(engine).begin() as connection:
        append_nodes(connection, [Node(f"gpu-00{n}", "r1", "leaf-1") for n in (1, 2, 3)])
        for ident in ("v1", "v2"):
            cause = Verdict("node", "gpu-001", 0.9, "hardware", "drain_node", NOW, "why", id=ident, **rest)
            save_changes(connection, [VerdictChange(cause, "opened")], NOW)
    app = create_app(ApiSettings(tokens=(*TOKENS, token), intervals=QUIET, checks=checks), engine, lambda: NOW)
    with TestClient(app) as client:
        begun = client.post("/api/v1/verdicts/v1/check", headers=bearer("pair")).json()["begun"]
        alone = client.post("/api/v1/verdicts/v2/check", headers=bearer("one")).json()
    assert [one["peer"] for one in begun] == ["gpu-003"]
    assert (alone["begun"], len(alone["left_out"])) == ([], 1)


def test_reports_without_end_are_a_hundred_of_each_reporter(client: TestClient, engine: sa.Engine) -> None:
    """Every turn of the policy reads them: 50,000 took it seconds. The newest stay, and those of others."""
    put(engine, "slurm")
    path = "/api/v1/hints/h1/validation"
    with writing(engine).begin() as connection:
        hint = read_hint(connection, "h1")
        assert hint is not None
        report_validation(connection, hint, "ci", NOW, (False, "12 GB/s"))
        for number in range(300):
            report_validation(connection, hint, "tester", NOW, (True, f"{number}"))
    assert client.post(path, json={"passed": True, "detail": "last"}, headers=bearer("tester")).status_code == 200
    found = [(one["command"], one["output"]) for one in client.get(path, headers=bearer("reader")).json()["items"]]
    assert found[0] == ("reported by ci", "12 GB/s")
    assert [output for _by, output in found[1:]] == [*map(str, range(201, 300)), "last"]


def test_a_hint_has_no_schedulers_without_end(client: TestClient, engine: sa.Engine) -> None:
    """Each name is a row that every turn reads; one that has taken the hint goes on saying what it does."""
    put(engine, "pull:volcano")

    def ack(name: str) -> int:
        body = {"scheduler": name, "result": "taken"}
        return client.post("/api/v1/hints/h1/ack", json=body, headers=bearer("tester")).status_code

    assert [ack(f"mine-{number}") for number in range(70)] == [200] * 63 + [409] * 7
    assert (ack("volcano"), ack("mine-1")) == (200, 200)


@pytest.mark.parametrize("node", ["gpu-005", "gpu-fleet"])
def test_a_join_token_gives_no_node_a_second_token_and_no_token_another_s_name(engine: sa.Engine, node: str) -> None:
    """Those of the configuration count as well: by its name a token is known in the audit, and has its rate."""
    tokens = (
        Token("five", digest_of("five"), expand_scopes(["ingest"]), NodePattern.of("gpu-005")),
        Token("gpu-fleet", digest_of("fleet"), expand_scopes(["ingest:fleet"])),
        Token("join", digest_of("join"), expand_scopes(["join"]), NodePattern.of("gpu-*")),
    )
    with made_client(engine, tokens) as client:
        answer = client.post("/api/v1/enroll", json={"node": node}, headers=bearer("join"))
        assert (answer.status_code, "of the configuration" in answer.json()["detail"]) == (409, True)
        assert client.post("/api/v1/enroll", json={"node": "gpu-006"}, headers=bearer("join")).status_code == 200

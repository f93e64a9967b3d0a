"""What one node says of its NVLinks and domain gets no neighbour held, and hides no fault that a neighbour tells."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
import sqlalchemy as sa
from fastapi.testclient import TestClient
from link_storms import held_nodes

from api.server.settings import Token, expand_scopes
from diagnosis.incidents.intake import fold_everything
from diagnosis.links.link_outliers import note_outliers
from store.database.connections import writing
from store.events.append import append_nodes
from store.nodes.domains import domain_of_each
from store.nodes.tokens import digest_of
from store.records.hostlist import NodePattern
from store.records.node import Node
from tests.attacks.token_site import NOW, bearer, made_client

LIAR, NEIGHBOUR = "n00", "n07"
RACK = [f"n{number:02}" for number in range(16)]


def token(node: str) -> Token:
    """A sidecar's, for its own node."""
    return Token(node, digest_of(f"of-{node}"), expand_scopes(["ingest"]), NodePattern.exactly([node]))


@pytest.fixture
def client(engine: sa.Engine) -> Iterator[TestClient]:
    """A rack that is one NVLink domain; each node has a token."""
    with writing(engine).begin() as connection:
        append_nodes(connection, [Node(node, nvlink_domain="rack-1") for node in RACK])
    with made_client(engine, tuple(map(token, RACK))) as made:
        yield made


def said(node: str, code: int, ident: str, after_s: float = 0.0, link: int | None = 3) -> dict[str, Any]:
    """An NVLink fault as a sidecar sends it."""
    device = {"type": "gpu", "pci": "0008:01:00.0", "index": None, "uuid": None, "port": None}
    event = {"kind": "xid", "code": code, "severity": "fatal", "cause": "hardware", "action": "reset_gpu"}
    time = (NOW - timedelta(minutes=5) + timedelta(seconds=after_s)).isoformat()
    return event | {
        "id": ident,
        "time": time,
        "node": node,
        "source": "kernel",
        "device": device,
        "message": f"Xid {code}",
        "attributes": {"link": link},
    }


def post(client: TestClient, by: str, *events: dict[str, Any]) -> int:
    """Send events by a node's token; returns how many were refused."""
    answer = client.post("/api/v1/events", json=list(events), headers=bearer(f"of-{by}"))
    assert answer.status_code == 200, answer.text
    return len(answer.json()["rejected"])


def held(engine: sa.Engine) -> set[str]:
    """Whom the policy would hold, nothing else in its way."""
    fold_everything(engine)
    return held_nodes(engine, NOW)


def test_a_node_that_claims_a_failed_link_gets_itself_held_alone(client: TestClient, engine: sa.Engine) -> None:
    """Any link, any number of them, every cause of Xid 149: its own node alone."""
    lies = [said(LIAR, code, f"lie-{code}-{link}", link, link) for code in range(144, 151) for link in range(18)]
    assert post(client, LIAR, *lies) == 0
    assert post(client, LIAR, *(said(node, 149, f"forged-{node}") for node in RACK[1:])) == 15
    assert held(engine) == {LIAR}


def test_a_neighbours_own_word_of_a_failed_link_is_not_drawn_into_a_lie(client: TestClient, engine: sa.Engine) -> None:
    """Whoever speaks first, the node that really failed has an incident of its own and is held."""
    post(client, LIAR, said(LIAR, 149, "early", -30.0))
    post(client, NEIGHBOUR, said(NEIGHBOUR, 149, "true", 0.0, 14))
    post(client, LIAR, said(LIAR, 149, "late", 30.0))
    assert NEIGHBOUR in held(engine)
    assert held(engine) <= {LIAR, NEIGHBOUR}


def test_felt_words_hold_nobody_and_move_no_neighbour(client: TestClient, engine: sa.Engine) -> None:
    """Xid 145 says that another one failed; nobody is known to have."""
    post(client, LIAR, *(said(LIAR, 145, f"felt-{number}", number / 100) for number in range(50)))
    assert held(engine) == set()


def test_a_forged_domain_moves_no_node_that_is_known(client: TestClient, engine: sa.Engine) -> None:
    """Neither the liar, whose domain an operator has named, nor a neighbour."""
    fabric = {"kind": "nvlink_fabric", "severity": "info", "cause": "fabric", "action": "none", "source": "nvidia_smi"}
    said: dict[str, Any] = {**fabric, "time": NOW.isoformat(), "message": "", "attributes": {"domain": "rack-2"}}
    whole = [{**said, "code": None, "id": f"f-{node}", "node": node, "device": {"type": "gpu"}} for node in RACK]
    assert post(client, LIAR, *whole) == 15
    with engine.begin() as connection:
        assert set(domain_of_each(connection).values()) == {"rack-1"}


def test_forged_counters_put_the_liar_alone_on_the_watch_list(client: TestClient, engine: sa.Engine) -> None:
    """A node that shows huge counters on few links is watched itself; its neighbours' links do not stand out for it."""
    events = []
    for number, node in enumerate(RACK):
        for gpu in range(4):
            counters = {"nvlink_recovery_event_l14": 10**9} if (node, gpu) == (LIAR, 0) else {}
            shown = {"kind": "nvlink_counters", "severity": "info", "cause": "hardware", "action": "none", "code": None}
            shown |= {"source": "nvidia_smi", "time": (NOW - timedelta(hours=1)).isoformat(), "message": ""}
            device = {"type": "gpu", "pci": None, "index": gpu, "uuid": None, "port": None}
            place = {"id": f"c-{number}-{gpu}", "node": node, "device": device}
            events.append((node, {**shown, **place, "attributes": {"links": 18, **counters}}))
    for node, event in events:
        assert post(client, node, event) == 0
    assert note_outliers(engine, NOW) == 1
    assert held(engine) == set()
    with engine.begin() as connection:
        told = connection.exec_driver_sql("SELECT node FROM events WHERE kind = 'nvlink_outlier'").scalars().all()
    assert told == [LIAR]

"""What one node says of the topology moves nothing of another's; what an operator says is taken once."""

import time
from collections.abc import Iterator
from typing import Any

import orjson
import pytest
import sqlalchemy as sa
from fastapi.testclient import TestClient
from real.patience import patience

from api.server.settings import Token, expand_scopes
from diagnosis.graph.place import Place
from diagnosis.graph.stored_graph import read_graph
from store.nodes.tokens import digest_of
from store.nodes.topology import MOST_OF_A_NODE, topology_version
from store.records.hostlist import NodePattern
from store.tables import schema, topology_tables
from tests.attacks.token_site import bearer, made_client

LIAR, VICTIM = "gpu-001", "gpu-002"
FLEET = Token("manager", digest_of("of-manager"), expand_scopes(["ingest:fleet"]), NodePattern.of("*"))
READER = Token("reader", digest_of("of-reader"), expand_scopes(["read"]), NodePattern.of("*"))
CABLE = {
    "switch": "leaf04",
    "port": 12,
    "peer": VICTIM,
    "peer_port": 1,
    "peer_type": "hca",
    "hca": "mlx5_3",
    "switch_guid": "0xb83fd20300100100",
    "peer_guid": "0xb83fd20300200200",
    "peer_port_guid": "0xb83fd20300200201",
    "peer_lid": 31,
}
NIC = Place("nic", f"{VICTIM}/mlx5_3")


def token(node: str) -> Token:
    """A sidecar's, for its own node."""
    return Token(node, digest_of(f"of-{node}"), expand_scopes(["ingest"]), NodePattern.exactly([node]))


@pytest.fixture
def client(engine: sa.Engine) -> Iterator[TestClient]:
    """A fabric of one cable, told by its manager."""
    with made_client(engine, (FLEET, READER, token(LIAR), token(VICTIM))) as made:
        assert post(made, "manager", CABLE) == (1, 0, 0)
        yield made


def send(client: TestClient, by: str, body: bytes, **query: str) -> Any:
    """Send a body, again where the server is too busy just now."""
    until = time.monotonic() + patience(30)
    while True:
        answer = client.post("/api/v1/topology", content=body, params=query, headers=bearer(f"of-{by}"))
        if answer.status_code != 503 or time.monotonic() > until:
            assert answer.status_code in (200, 422), answer.text
            return answer


def post(client: TestClient, by: str, *records: dict[str, Any]) -> tuple[int, int, int]:
    """Send records; how many were new, known and refused."""
    said = send(client, by, orjson.dumps(records)).json()
    return said["accepted"], said["known"], len(said["rejected"])


def test_what_is_sent_again_changes_nothing(client: TestClient, engine: sa.Engine) -> None:
    """Nor does the graph have to be read again."""
    groups = ({"node": VICTIM, "class": "power", "name": "pdu-a"}, {"node": VICTIM, "class": "rack", "name": "r1"})
    names = ({"class": "nic", "device": NIC.name, "kind": "pci", "name": "0000:4F:00.0"},)
    assert post(client, "manager", CABLE, *groups, *names) == (3, 1, 0)
    with engine.connect() as connection:
        before = topology_version(connection)
    assert post(client, "manager", CABLE, *groups, *names) == (0, 4, 0)
    with engine.connect() as connection:
        assert topology_version(connection) == before
        graph = read_graph(connection)
    assert graph.place_of(f"{VICTIM}/0000:4f:00.0") == NIC
    assert {Place("power", "pdu-a"), Place("rack", "r1"), Place("switch", "leaf04")} <= set(graph.above(NIC))


LIES: list[dict[str, Any]] = [
    {**CABLE, "peer": LIAR},
    {**CABLE, "peer": LIAR, "peer_guid": None, "peer_port_guid": None, "peer_lid": None},
    CABLE,
    {"class": "nic", "device": NIC.name, "kind": "pci", "name": "0000:01:00.0"},
    {"class": "switch", "device": "leaf04", "kind": "name", "name": LIAR},
    {"class": "node", "device": LIAR, "kind": "name", "name": VICTIM},
    {"node": VICTIM, "class": "power", "name": "gone"},
    {"node": LIAR, "class": "power", "name": "pdu-a"},
    {**CABLE, "peer": LIAR, "peer_type": "switch"},
]


def test_a_node_takes_no_other_s_port_cable_or_group(client: TestClient, engine: sa.Engine) -> None:
    """Each lie is refused, and the graph is as it was."""
    for lie in LIES:
        accepted, _, refused = post(client, LIAR, lie)
        assert (accepted, refused) == (0, 1), lie
    with engine.connect() as connection:
        graph = read_graph(connection)
    assert graph.far_end(Place("port", "leaf04/12")) == NIC
    assert graph.node_of(NIC) == VICTIM
    assert graph.place_of("0xb83fd20300200201") == NIC


def test_a_node_that_claims_another_s_names_gets_none_of_them(client: TestClient, engine: sa.Engine) -> None:
    """GUID, LID of the victim's adapter: both go on meaning the victim's."""
    claims = [
        {"class": "nic", "device": f"{LIAR}/mlx5_0", "kind": kind, "name": name}
        for kind, name in (("port_guid", "0xb83fd20300200201"), ("guid", "0xB83FD20300200200"), ("lid", "31"))
    ]
    assert post(client, LIAR, *claims) == (3, 0, 0)
    with engine.connect() as connection:
        graph = read_graph(connection)
    for name in ("0xb83fd20300200201", "0xb83fd20300200200", "lid 31"):
        assert graph.place_of(name) == NIC
    assert graph.nodes_below(Place("switch", "leaf04")) == (VICTIM,)


def test_a_node_tells_of_its_own_port_and_moves_it(client: TestClient, engine: sa.Engine) -> None:
    """As its LLDP neighbours say; the port that it left is free."""
    text = "lldp.eth2.chassis.name=leaf09\nlldp.eth2.port.ifname=Ethernet1/{}\n"
    for port in (5, 6):
        answer = send(client, LIAR, text.format(port).encode(), format="lldp")
        assert not answer.json()["rejected"]
    with engine.connect() as connection:
        graph = read_graph(connection)
        known = set(connection.scalars(sa.select(schema.inventory.c.node)))
    assert graph.far_end(Place("nic", f"{LIAR}/eth2")) == Place("port", "leaf09/Ethernet1/6")
    assert graph.far_end(Place("port", "leaf09/Ethernet1/5")) is None
    # Its own word puts no node into the inventory.
    assert known == {VICTIM}


def test_a_node_floods_the_topology_with_no_more_than_a_node_has(client: TestClient, engine: sa.Engine) -> None:
    """A hundred thousand names in bodies of thousands: few are held, and few of those that were."""
    for turn in range(12):
        names = [
            {"class": "nic", "device": f"{LIAR}/mlx5_{turn}_{number % 7}", "kind": "lid", "name": f"{turn}{number}"}
            for number in range(3000)
        ]
        cables = [
            {"switch": f"s{turn}-{number}", "port": 1, "peer": LIAR, "hca": f"x{number}"} for number in range(1000)
        ]
        post(client, LIAR, *names, *cables)
    with engine.connect() as connection:
        held = connection.scalar(sa.select(sa.func.count()).select_from(topology_tables.device_names))
        links = connection.scalar(sa.select(sa.func.count()).select_from(schema.links))
        former = connection.scalar(sa.select(sa.func.count()).select_from(topology_tables.former_links))
    assert 0 < (held or 0) <= 2 * MOST_OF_A_NODE
    assert 0 < (links or 0) <= MOST_OF_A_NODE + 1
    assert (former or 0) <= 2 * MOST_OF_A_NODE


NOTHING = [
    ("slurm_yaml", "{"),
    ("slurm_yaml", "&a [*a]"),
    ("kubernetes", "[" * 100_000),
    ("ufm", "{}"),
    ("lldp", "what is this"),
    ("nodes", "rack,leaf\nr1,l1"),
    ("ibnetdiscover", "\x00\xff"),
]


def test_a_body_that_is_nothing_of_its_form_is_refused_in_a_sentence(client: TestClient) -> None:
    """With 422, or with nothing in it that anybody could take."""
    for form, text in NOTHING:
        answer = send(client, "manager", text.encode(), format=form, node=LIAR)
        assert answer.status_code == 422 or answer.json()["accepted"] == 0, (form, text[:40])


BROKEN: list[Any] = [
    *(7, [], {}, {"switch": "s"}, {"switch": "s", "port": -1, "peer": "n"}),
    {"switch": "s", "port": True, "peer": "n"},
    {"switch": "s", "port": 2**40, "peer": "n"},
    {"switch": "s" * 70_000, "port": 1, "peer": "n"},
    {"switch": "s", "port": 1, "peer": "n", "peer_type": "dog"},
    {"class": "planned", "device": "x", "name": "y"},
    {"class": "nic", "device": "x", "kind": "scent", "name": "y"},
    {"node": "-rf", "class": "rack", "name": "r"},
    {"node": "n", "class": "job", "name": "r"},
]


def test_a_broken_record_is_refused_by_its_line_and_the_rest_is_taken(client: TestClient) -> None:
    """Wrong types, numbers beyond any port, texts beyond any name, classes of nothing."""
    said = send(client, "manager", orjson.dumps([*BROKEN, CABLE])).json()
    assert (said["known"], [one["line"] for one in said["rejected"]]) == (1, list(range(1, len(BROKEN) + 1)))


def test_the_answer_has_both_ends_of_each_cable(client: TestClient) -> None:
    """What was sent comes back, to those who may read."""
    assert client.get("/api/v1/topology", headers=bearer("of-manager")).status_code == 403
    [cable] = client.get("/api/v1/topology", headers=bearer("of-reader")).json()["links"]
    assert {name: cable[name] for name in CABLE} == CABLE

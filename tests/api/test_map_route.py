"""GET /map: every node inside its leaf, what is withheld, the links that err, and differences."""

import threading
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
import sqlalchemy as sa
from fabric_fleet import FAULTY, OUT, RISKY, SILENT, fill_fabric, name_of
from fastapi.testclient import TestClient
from real.patience import patience
from real.programs import wait_for
from wire_check import check_answer

from api.app import create_app
from api.server.map_revisions import MOST_REVISIONS, MapRevisions
from api.server.state import CachedAnswer
from store.database.connections import writing
from store.events.append import append_nodes
from store.records.node import Node
from store.tables import schema
from wire.nodes import MapJson

from .conftest import NOW, QUIET, Clock, Ticks

NODES = 64


@pytest.fixture
def ticking(engine: sa.Engine, clock: Clock, ticks: Ticks) -> Iterator[TestClient]:
    """A server whose map ages by `ticks` alone."""
    app = create_app(QUIET, engine, clock)
    app.state.foreshock = replace(app.state.foreshock, map=CachedAnswer(4.0, ticks))
    with TestClient(app) as client:
        yield client


def read(client: TestClient, **query: str) -> tuple[dict[str, Any], str]:
    """The map and its tag."""
    answer = client.get("/api/v1/map", params=query)
    assert answer.status_code == 200, answer.text
    check_answer(MapJson, answer.json())
    return answer.json(), answer.headers["etag"]


def test_every_node_stands_in_its_leaf_with_what_is_known(engine: sa.Engine, ticking: TestClient) -> None:
    """State, temperature, run and errors; the risk of one that failed or tells nothing is withheld."""
    fill_fabric(engine, NODES, NOW)
    found, _ = read(ticking)
    assert found["node"] == [name_of(number) for number in range(NODES)]
    assert (found["blocks_by"], found["blocks"]) == ("leaf", ["leaf-000", "leaf-001"])
    assert found["block"] == [0] * 32 + [1] * 32
    assert found["spines"] == [f"spine-{number:02}" for number in range(16)]
    states = [found["states"][place] for place in found["state"]]
    troubled = {FAULTY: "faulty", OUT: "out", RISKY: "at_risk", SILENT: "silent"}
    assert {number: state for number, state in enumerate(states) if state != "ok"} == troubled
    hidden = {number for number, risk in enumerate(found["risk"]) if risk is None}
    assert hidden == {FAULTY, OUT, SILENT}
    assert found["risk"][RISKY] == 0.4
    assert found["temperature_c"][:3] == [55, 56, 57]
    assert [found["runs"][run] for run in found["run"]] == ["llm-00"] * NODES


def test_the_map_and_the_list_of_nodes_say_the_same(engine: sa.Engine, ticking: TestClient) -> None:
    """One figure for one thing: of every node the same state, and the same risk or none."""
    fill_fabric(engine, NODES, NOW)
    found, _ = read(ticking)
    listed = ticking.get("/api/v1/nodes", params={"limit": "1000", "sort": "node"}).json()["items"]
    drawn = [found["states"][place] for place in found["state"]]
    assert list(zip(found["node"], drawn, found["risk"], strict=True)) == [
        (node["node"], node["state"], node["score_24h"]) for node in listed
    ]


def test_only_links_that_err_are_listed_with_the_errors_of_both_ends(engine: sa.Engine, ticking: TestClient) -> None:
    """A switch's word of a host's port is the host's error, too; a link between switches is no node's."""
    fill_fabric(engine, NODES, NOW)
    port = {"type": "port", "port": 24}
    row = {"id": "x", "node": "leaf-000", "device": port, "start": NOW, "end": NOW, "kind": "link_down"}
    row |= {"severity": "error", "cause": "fabric", "action": "watch", "message": "m", "count": 5, "kinds": {}}
    with writing(engine).begin() as connection:
        connection.execute(sa.insert(schema.incidents), [row, row | {"id": "y", "severity": "info", "count": 900}])
    found, _ = read(ticking)
    ends = {(one["switch"], one["port"], one["peer"], one["peer_type"], one["errors"]) for one in found["links"]}
    assert ends == {("leaf-000", 24, name_of(23), "hca", 8), ("leaf-000", 33, "spine-00", "switch", 3)}
    assert {number: count for number, count in enumerate(found["link_errors"]) if count} == {23: 8}


@pytest.mark.parametrize(
    ("nodes", "by", "blocks", "block"),
    [
        ([Node("b", rack="r2"), Node("a", rack="r1"), Node("c")], "rack", ["r1", "r2", "place not known"], [0, 1, 2]),
        ([Node(f"n{n:02}") for n in range(33)], "name", ["from n00", "from n32"], [0] * 32 + [1]),
        ([], "name", [], []),
    ],
)
def test_without_a_topology_blocks_are_racks_or_names_and_the_answer_says_so(
    engine: sa.Engine, ticking: TestClient, nodes: list[Node], by: str, blocks: list[str], block: list[int]
) -> None:
    """A cluster whose cables nobody told is drawn all the same."""
    with writing(engine).begin() as connection:
        append_nodes(connection, nodes)
    found, _ = read(ticking)
    assert (found["blocks_by"], found["blocks"], found["block"]) == (by, blocks, block)


def test_what_is_unchanged_is_not_sent_and_what_changed_is_sent_alone(
    engine: sa.Engine, ticking: TestClient, ticks: Ticks
) -> None:
    """By `If-None-Match` nothing at all; by `since` the rows that differ, which make the whole with those of before."""
    fill_fabric(engine, NODES, NOW)
    old, tag = read(ticking)
    assert ticking.get("/api/v1/map", headers={"If-None-Match": tag}).status_code == 304
    _fail(engine, 40)
    ticks.now = 60.0
    new, newer = read(ticking, since=tag)
    assert newer != tag
    assert (new["since"], new["rows"], new["node"]) == (tag, [40], [])
    whole, _ = read(ticking)
    for name in ("state", "risk", "temperature_c", "link_errors", "run"):
        assert [new[name][0] if row == 40 else old[name][row] for row in range(NODES)] == whole[name]
    assert new["states"][new["state"][0]] == "faulty"


def test_an_unknown_revision_a_moved_node_or_many_changes_are_answered_whole(
    engine: sa.Engine, ticking: TestClient, ticks: Ticks
) -> None:
    """Another server's tag, or anybody's words; and a difference that would mislead or gain nothing."""
    fill_fabric(engine, NODES, NOW)
    _, tag = read(ticking)
    assert len(read(ticking, since="nobody's")[0]["node"]) == NODES
    assert ticking.get("/api/v1/map", params={"since": "x" * 65}).status_code == 422
    with writing(engine).begin() as connection:
        append_nodes(connection, [Node(name_of(3), leaf="leaf-001")])
    ticks.now = 60.0
    moved, tag = read(ticking, since=tag)
    assert moved["since"] is None
    assert moved["blocks"][moved["block"][3]] == "leaf-001"
    for number in range(20, 40):
        _fail(engine, number)
    ticks.now = 120.0
    assert len(read(ticking, since=tag)[0]["node"]) == NODES


def _fail(engine: sa.Engine, number: int) -> None:
    moment = NOW - timedelta(minutes=1)
    row = {"id": f"g-{number}", "node": name_of(number), "device": {"type": "gpu"}, "start": moment, "end": moment}
    row |= {"kind": "xid", "code": 79, "severity": "fatal", "cause": "hardware", "action": "watch", "message": "m"}
    with writing(engine).begin() as connection:
        connection.execute(sa.insert(schema.incidents), [row | {"count": 1, "kinds": {}}])


def test_revisions_are_forgotten_so_that_memory_is_bounded() -> None:
    """Whoever asks with old tags costs no more than the bodies that are kept."""
    revisions, body = MapRevisions(), b'{"node": []}'
    for number in range(3 * MOST_REVISIONS):
        assert revisions.answer(str(number), body, since="gone") == body
    assert len(revisions._bodies) == MOST_REVISIONS
    assert revisions._differences == {}


def test_who_asks_again_gets_the_answer_of_before_while_the_next_is_made(ticks: Ticks) -> None:
    """Beside, in a thread; one that is too old is waited for, and one that fails is told to who waits."""
    made, go = list[int](), threading.Event()

    def make() -> bytes:
        go.wait(patience(10))
        made.append(len(made))
        if len(made) == 3:
            raise OSError("the database is away")
        return str(len(made)).encode()

    kept = CachedAnswer(4.0, ticks)
    go.set()
    assert kept.get_before(make, 15.0)[0] == b"1"
    go.clear()
    ticks.now = 5.0
    assert [kept.get_before(make, 15.0)[0] for _ in range(3)] == [b"1"] * 3
    go.set()
    wait_for("the next is made", lambda: kept.get_before(make, 15.0)[0] == b"2", patience(10))
    ticks.now = 30.0
    with pytest.raises(OSError, match="away"):
        kept.get_before(make, 15.0)

"""GET and POST /placement: over a store, as JSON and as Slurm reads it."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import sqlalchemy as sa
from fastapi.testclient import TestClient
from wire_check import check_answer

from api.app import create_app
from schedulers.policy.settings import Control, Policy, Thresholds
from store.database.connections import writing
from store.events.append import append_jobs, append_nodes, append_outages
from store.hints.hint_log import save_hint
from store.records.hint import Hint
from store.records.hostlist import expand
from store.records.job import Job
from store.records.node import Node
from store.records.outage import Outage
from store.tables import schema
from wire.policy import PlacementAdviceJson

from .conftest import NOW, QUIET, Clock

DAY = NOW.replace(day=2)


@pytest.fixture
def cluster(any_engine: sa.Engine, clock: Clock) -> Iterator[TestClient]:
    """Eight nodes on two leaves: one out, one cordoned, one at risk, one that has left, one that is not scored."""
    with writing(any_engine).begin() as connection:
        places = [Node(f"gpu-{i:03}", leaf=f"leaf-{i // 4}", rack="r1", gpus=8) for i in range(8)]
        places[7] = replace(places[7], in_service_until=NOW.replace(month=2, day=1))
        append_nodes(connection, places)
        append_outages(connection, [Outage("gpu-001", NOW.replace(hour=1), None, "DOWN", "t", None, False, "hardware")])
        hint = Hint("h", "gpu-002", "cordon", "confirmed", "foreshock: t", "foreshock", NOW, DAY)
        save_hint(connection, hint, NOW, {})
        scores = {0: 0.003, 1: 0.001, 2: 0.001, 3: 0.30, 4: 0.002, 5: 0.001}
        rows = [
            {"node": f"gpu-{i:03}", "horizon_h": hours, "time": NOW, "score": score * hours / 24}
            | {"reasons": [], "model": "m"}
            for i, score in scores.items()
            for hours in (24, 168)
        ]
        connection.execute(schema.scores.insert(), rows)
    policy = Policy(thresholds=Thresholds(avoid=0.07), control=Control(percent=0.0), opt_out=("login*",))
    with TestClient(create_app(replace(QUIET, policy=policy), any_engine, clock)) as client:
        yield client


def ask(client: TestClient, **query: Any) -> dict[str, Any]:
    """One question; the answer is of the published shape."""
    answer = client.get("/api/v1/placement", params=query)
    assert answer.status_code == 200, answer.text
    check_answer(PlacementAdviceJson, answer.json())
    found: dict[str, Any] = answer.json()
    return found


def test_all_in_service_are_sorted(cluster: TestClient) -> None:
    """With what is known of each, and why not."""
    found = ask(cluster)
    assert found["avoid"] == ["gpu-001", "gpu-002", "gpu-003"]
    assert found["prefer"] == ["gpu-005", "gpu-004", "gpu-000", "gpu-006"]
    assert (found["avoid_hostlist"], found["prefer_hostlist"]) == ("gpu-[001-003]", "gpu-[000,004-006]")
    nodes = {node["node"]: node for node in found["nodes"]}
    assert {name: node["avoid"] for name, node in nodes.items() if node["avoid"]} == {
        "gpu-001": "out",
        "gpu-002": "hint",
        "gpu-003": "risk",
    }
    assert nodes["gpu-002"]["hint"] == {"id": "h", "action": "cordon", "state": "confirmed"}
    assert (nodes["gpu-003"]["risk_24h"], nodes["gpu-003"]["risk_7d"]) == (0.30, pytest.approx(2.1))
    assert nodes["gpu-006"]["risk_24h"] is None
    assert (nodes["gpu-001"]["risk_24h"], nodes["gpu-001"]["risk_7d"]) == (None, None)  # withheld: it is out
    assert (nodes["gpu-000"]["leaf"], nodes["gpu-000"]["rack"], nodes["gpu-000"]["gpus"]) == ("leaf-0", "r1", 8)
    assert "gpu-007" not in nodes
    assert (found["avoid_from"], found["unknown"]) == (0.07, [])
    assert found["as_of"] == found["scored_at"] == "2025-03-01T12:00:00.000000Z"


def test_some_nodes_and_a_count(cluster: TestClient) -> None:
    """Packed on a leaf; those that nobody knows are named."""
    found = ask(cluster, nodes="gpu-[000-006,099],login1", count=2)
    assert (found["prefer"], found["leaves"], found["short"]) == (["gpu-005", "gpu-004"], 1, 0)
    assert found["unknown"] == ["gpu-099", "login1"]
    assert len(found["nodes"]) == 7
    assert ask(cluster, nodes="gpu-[000-003]", count=2)["short"] == 1
    assert ask(cluster, count=1, gpus_per_node=16)["short"] == 1


def test_of_many_nodes_the_first_are_told(cluster: TestClient) -> None:
    """Those to avoid all by name; in detail at most `limit`, those to avoid first; and how many would do."""
    found = ask(cluster, limit=2)
    assert (found["avoid"], found["prefer"]) == (["gpu-001", "gpu-002", "gpu-003"], ["gpu-005", "gpu-004"])
    assert [node["node"] for node in found["nodes"]] == ["gpu-001", "gpu-002"]
    assert found["nodes"][1]["risk_7d"] == pytest.approx(0.007)
    assert (found["usable"], found["short"]) == (4, 0)
    assert [node["node"] for node in ask(cluster, limit=4)["nodes"]] == ["gpu-001", "gpu-002", "gpu-003", "gpu-005"]
    counted = ask(cluster, limit=2, count=3)
    assert (len(counted["prefer"]), len(counted["nodes"])) == (3, 2)
    body = {"nodes": ["gpu-000", "gpu-004", "gpu-005"]}
    assert cluster.post("/api/v1/placement?limit=1", json=body).json()["prefer"] == ["gpu-005"]


def test_idle_nodes_come_first_where_jobs_are_known(cluster: TestClient, any_engine: sa.Engine) -> None:
    """Nobody tells of jobs: that is said. Who names nodes knows which are free."""
    unknown = ask(cluster)
    assert (unknown["jobs_known"], unknown["busy"], {node["idle"] for node in unknown["nodes"]}) == (False, 0, {None})
    job = Job("1", "llm", "RUNNING", NOW.replace(hour=1), NOW.replace(hour=1), None, 2, "gpu-[004-005]")
    with writing(any_engine).begin() as connection:
        append_jobs(connection, [job])
    found = ask(cluster)
    assert (found["prefer"], found["jobs_known"]) == (["gpu-000", "gpu-006", "gpu-005", "gpu-004"], True)
    assert (found["busy"], {node["node"] for node in found["nodes"] if not node["idle"]}) == (2, {"gpu-004", "gpu-005"})
    assert (ask(cluster, count=2)["busy"], ask(cluster, count=3)["busy"]) == (0, 1)
    named = ask(cluster, nodes="gpu-[000-006]")
    assert (named["prefer"], named["jobs_known"]) == (unknown["prefer"], None)


def test_a_list_may_come_in_the_body(cluster: TestClient) -> None:
    """The same answer."""
    body = {"nodes": ["gpu-000", "gpu-001", "gpu-005"], "count": 1}
    answer = cluster.post("/api/v1/placement", json=body)
    assert answer.status_code == 200, answer.text
    check_answer(PlacementAdviceJson, answer.json())
    assert answer.json() == ask(cluster, nodes="gpu-[000-001,005]", count=1)
    assert cluster.post("/api/v1/placement", content=b"").json() == ask(cluster)


def test_slurm_gets_one_line(cluster: TestClient) -> None:
    """For --exclude= and --nodelist=; nothing to avoid is an empty line."""
    answer = cluster.get("/api/v1/placement", params={"format": "hostlist"})
    assert answer.headers["content-type"].startswith("text/plain")
    assert answer.text == "gpu-[001-003]\n"
    line = cluster.get("/api/v1/placement", params={"format": "hostlist", "list": "prefer", "count": 2}).text
    assert expand(line.strip()) == ["gpu-004", "gpu-005"]
    posted = cluster.post("/api/v1/placement?format=hostlist", json={"nodes": ["gpu-000"]})
    assert posted.text == "\n"


@pytest.mark.parametrize(
    ("query", "word"), [({"nodes": "gpu-["}, "bracket"), ({"count": 0}, "count"), ({"format": "xml"}, "format")]
)
def test_a_question_that_makes_no_sense_is_told_so(cluster: TestClient, query: dict[str, Any], word: str) -> None:
    """422."""
    answer = cluster.get("/api/v1/placement", params=query)
    assert answer.status_code == 422
    assert word in answer.text


@pytest.mark.parametrize("body", [b"[", b'{"nodes": [1]}', b'{"nodes": ["a\\u0000"]}', b'{"count": -1}', b"[]"])
def test_a_body_that_makes_no_sense_is_told_so(cluster: TestClient, body: bytes) -> None:
    """422."""
    assert cluster.post("/api/v1/placement", content=body).status_code == 422


@pytest.mark.usefixtures("cluster")
def test_nodes_that_are_left_alone_are_not_avoided_for_their_risk(any_engine: sa.Engine, clock: Clock) -> None:
    """Of the control group, or opted out: else their outcome would tell nothing, or the operator was not heard."""
    for policy in (Policy(control=Control(percent=50.0)), Policy(opt_out=("gpu-003",))):
        with TestClient(create_app(replace(QUIET, policy=policy), any_engine, clock)) as client:
            found = ask(client)
            alone = {node["node"] for node in found["nodes"] if node["left_alone"]}
            assert alone
            assert not any(node["avoid"] == "risk" for node in found["nodes"] if node["left_alone"])
            assert "gpu-001" in found["avoid"], "an outage is no guess"
    assert "gpu-003" in found["prefer"]


def test_a_larger_job_avoids_at_a_lower_risk(any_engine: sa.Engine, clock: Clock) -> None:
    """A failure costs it more: the break-even precision falls with its size."""
    with TestClient(create_app(QUIET, any_engine, clock)) as client:
        small, large = ask(client, count=16, gpus_per_node=8), ask(client, count=128, gpus_per_node=8)
    assert small["avoid_from"] > large["avoid_from"] > 0.02
    assert large["avoid_from"] == pytest.approx(0.069, abs=0.001), "FIELD section C: 6.9 % at 1,024 GPUs"

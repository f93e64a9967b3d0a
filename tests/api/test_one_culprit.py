"""One interruption has one culprit: for diagnose, the live verdicts, the run's ledger, the losses and the hints."""

import json
from datetime import timedelta

import pytest
import sqlalchemy as sa
from click.testing import CliRunner
from fastapi.testclient import TestClient
from fault_events import at, iteration, job, lost_port, program_error, xid
from folding import fold_all

from api.app import create_app
from cli.main import foreshock
from diagnosis.incidents.intake import put_faults
from diagnosis.verdicts.engine import VerdictEngine
from goodput.stored.computation import compute
from schedulers.policy.fact_queries import gather
from schedulers.policy.proposal import proposal_of
from schedulers.policy.settings import Policy
from store.database.connections import writing
from store.events.append import append_events, append_jobs, append_nodes
from store.records.event import Event, format_time
from store.records.node import Node
from store.runs.ledgers import save_ledgers

from .conftest import QUIET

GPU = [iteration(90), xid(79, 100, "gpu-002"), program_error(104, "CUDA error: unknown error", "RuntimeError")]
LEAF = [iteration(90), *(lost_port(100 + n / 10, f"gpu-{n:03d}", guid=f"0xa{n}") for n in range(1, 5))]
BUG = [
    iteration(90),
    program_error(100, "CUDA error: an illegal memory access was encountered", "RuntimeError", "gpu-003"),
]


@pytest.mark.parametrize(
    ("events", "culprit", "held"), [(GPU, "gpu-002", {"gpu-002"}), (LEAF, "leaf-01", set()), (BUG, None, set())]
)
def test_everybody_names_the_same(engine: sa.Engine, events: list[Event], culprit: str | None, held: set[str]) -> None:
    """A GPU's node, the leaf of four nodes, and of a program's own error no part of the machine."""
    now = at(140)
    with writing(engine).begin() as connection:
        append_nodes(connection, [Node(f"gpu-{n:03d}", "r1", "leaf-01", "H100", 8, "550") for n in range(1, 5)])
        append_jobs(connection, [job(0, 130, "FAILED")])
        put_faults(connection, append_events(connection, events, now).new, now)
    fold_all(engine)
    VerdictEngine(engine, lambda: now).turn()
    with writing(engine).begin() as connection:
        ledger = compute(connection, "llm", now)
        assert ledger is not None
        save_ledgers(connection, [ledger])
    client = TestClient(create_app(QUIET, engine, lambda: now))
    found = client.get("/api/v1/verdicts", params={"state": "open"}).json()["items"]
    live = min((one for one in found if one["class"] != "unknown"), key=lambda one: one["rank"])
    asked = ("diagnose", "--db", str(engine.url), "--run", "llm", "--at", format_time(now), "--json")
    first, *_ = json.loads(CliRunner().invoke(foreshock, asked).stdout)
    (stop,) = client.get("/api/v1/runs/llm/goodput").json()["interruptions"]
    (loss,) = client.get("/api/v1/goodput/interruptions").json()["items"]
    named = {stop["culprit"] and stop["culprit"]["node"], loss["node"]}
    named |= {None if one["class"] == "application" else one["node"] or one["name"] for one in (live, first)}
    assert named == {culprit}
    assert live["action"] == first["action"]
    policy = Policy(mode="act")
    with engine.connect() as connection:
        inputs = gather(connection, policy, now + timedelta(seconds=1))
    hints = ((one.node, proposal_of(one, inputs, policy, None)) for one in inputs.nodes)
    assert {node for node, hint in hints if hint is not None and hint.action != "watch"} == held

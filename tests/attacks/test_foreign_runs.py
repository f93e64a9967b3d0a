"""A node's token may name any run; of another job's ranks its word makes no verdict, and asks nothing of anybody."""

from datetime import timedelta
from typing import Any

import pytest
import sqlalchemy as sa
from folding import fold_all

from api.server.settings import Token, expand_scopes
from diagnosis.verdicts.engine import VerdictEngine
from schedulers.lifecycle.policy_turn import run_policy
from schedulers.policy.settings import Policy
from store.database.connections import writing
from store.events.append import append_jobs, append_nodes
from store.hints.hint_log import recent_hints
from store.nodes.tokens import digest_of
from store.records.event import parse_time
from store.records.hostlist import NodePattern
from store.records.job import Job
from store.records.node import Node
from store.verdicts.verdict_log import open_verdicts
from tests.attacks.token_site import NOW, bearer, made_client

LIAR, OWN = "gpu-009", "gpu-001"
TOKENS = (
    *(Token(name, digest_of(name), expand_scopes(["ingest"]), NodePattern.exactly([name])) for name in (LIAR, OWN)),
)
TIME = "2025-03-01T11:55:00Z"


def claim(node: str | None, **more: Any) -> dict[str, Any]:
    """That rank 12, of gpu-002, has not come where the other fifteen wait."""
    told = {"run": "llm", "group": "0(default_pg)", "world": 16, "ranks": "0-11,13-15", **more}
    told |= {"last_enqueued": 21, "last_completed": 20}
    return {"time": TIME, "node": node, "source": "training", "kind": "collective_wait", "attributes": told}


def blamed(engine: sa.Engine, who: str, event: dict[str, Any]) -> list[Any]:
    """What is held of gpu-002 once this was sent: verdicts likelier than not, and hints."""
    start = parse_time("2025-03-01T09:00:00Z")
    with writing(engine).begin() as connection:
        append_nodes(connection, [Node(f"gpu-{n:03d}", "r1", "leaf-1", "H100", 8) for n in range(1, 11)])
        jobs = (("1", "llm", 2, "gpu-[001-002]"), ("2", "other", 2, "gpu-[009-010]"))
        append_jobs(connection, [Job(i, run, "RUNNING", start, start, None, n, on) for i, run, n, on in jobs])
    with made_client(engine, TOKENS) as client:
        answer = client.post("/api/v1/events", json=[event], headers=bearer(who)).json()
        assert answer["accepted"] == 1, answer
    fold_all(engine)
    VerdictEngine(engine, lambda: NOW).turn()  # the server's own has ended, whether it had its turn or not
    run_policy(engine, Policy(mode="act"), NOW)
    with engine.connect() as connection:
        found = [one for one in open_verdicts(connection) if one.probability > 0.5 and one.cause_class != "unknown"]
        return [*(one.node for one in found), *(one.node for one in recent_hints(connection, NOW, timedelta(hours=1)))]


@pytest.mark.parametrize("node", [None, LIAR])
def test_a_node_of_another_job_blames_no_rank_of_this_one(engine: sa.Engine, node: str | None) -> None:
    """Whether it names itself or nobody, and whomever it names as the sender."""
    assert blamed(engine, LIAR, claim(node, sender=OWN)) == []


def test_a_node_of_the_job_itself_is_heard(engine: sa.Engine) -> None:
    """Its log names no node: who is missing is told, and no hold follows from it."""
    assert blamed(engine, OWN, claim(None)) == ["gpu-002"]

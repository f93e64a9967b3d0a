"""A large fleet is scored by a process beside, which keeps what it knows and ends with the server."""

import os
from datetime import timedelta
from pathlib import Path

import pytest
import sqlalchemy as sa
from fleet_store import day, fill, fill_trained
from newest_scores import latest_scores
from real.programs import wait_for

from api.loops.scoring import FleetScorer
from predictor.live.scoring import score_nodes
from predictor.model.forest import ModelError
from store.tables import schema

AT = day(59)


def children() -> list[int]:
    """The processes that this one has spawned and that have not ended; not what keeps count of their semaphores."""
    tasks = Path(f"/proc/{os.getpid()}/task").iterdir()
    begun = [int(pid) for task in tasks for pid in (task / "children").read_text().split()]
    return [pid for pid in begun if b"spawn_main" in Path(f"/proc/{pid}/cmdline").read_bytes()]


def test_it_scores_as_it_would_here(engine: sa.Engine) -> None:
    """The same scores and reasons; one process for many scorings; killed, it is missed once and begun anew."""
    fill_trained(engine, nodes=32)
    scorer = FleetScorer(engine, apart_from=32)
    before = set(children())
    assert scorer.score(AT) == len(score_nodes(engine, AT))
    with engine.connect() as connection:
        here = latest_scores(connection)
    assert scorer.score(AT + timedelta(minutes=1)) == 2 * len(here)
    (beside,) = set(children()) - before
    with engine.connect() as connection:
        apart = latest_scores(connection)
    assert {node: scores[24].score for node, scores in apart.items()} == pytest.approx(
        {node: scores[24].score for node, scores in here.items()}, rel=0.05
    )
    os.kill(beside, 9)
    with pytest.raises(ModelError, match="ended with status -9"):
        scorer.score(AT + timedelta(minutes=2))
    assert scorer.score(AT + timedelta(minutes=2)) == 2 * len(here)
    del scorer
    wait_for("the process has ended with its pipe", lambda: not set(children()) - before)


def test_a_model_that_cannot_be_used_is_told(engine: sa.Engine) -> None:
    """In the process's own words, which goes on."""
    fill(engine, nodes=4, days=5)
    for apart_from in (1, 1_000):
        assert FleetScorer(engine, apart_from).score(AT) == 8, "by the prior, since there is no model"
    with engine.begin() as connection:
        connection.execute(sa.update(schema.models).values(sha256="0"))
    for apart_from in (1, 1_000):
        with pytest.raises(ModelError, match="damaged"):
            FleetScorer(engine, apart_from).score(AT)

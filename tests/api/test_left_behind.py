"""A scheduler that was taken out of the configuration and holds nodes for us is told of."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
import sqlalchemy as sa
from fastapi.testclient import TestClient

from api.app import create_app
from api.server.settings import ApiSettings, Intervals
from schedulers.slurm.commands import SlurmSettings
from store.database.connections import writing
from store.hints.hint_log import save_hint
from store.hints.holds import SchedulerHold, save_holds
from store.records.hint import Hint

NOW = datetime.now(UTC)
STILL = Intervals(score_s=0, policy_s=0, dispatch_s=0, observe_s=0, ledgers_s=0, lemons_s=0, models_s=0)
METRIC = "foreshock_scheduler_left_behind_nodes"


def put(engine: sa.Engine, *placements: SchedulerHold) -> None:
    """Placements, each with its hint."""
    with writing(engine).begin() as connection:
        for one in placements:
            made = Hint(one.hint, one.node, "cordon", "confirmed", "foreshock: x", "foreshock", NOW, NOW)
            job = "7" if one.hint == "job" else None
            save_hint(connection, replace(made, valid_until=NOW + timedelta(days=1), job=job), NOW, {})
        save_holds(connection, placements)


def placed(hint: str, scheduler: str, state: str = "confirmed") -> SchedulerHold:
    """What a scheduler has of a hint of the node of that name."""
    return SchedulerHold(hint, scheduler, f"gpu-{hint}", "cordon", state, 1, NOW, NOW, NOW)  # type: ignore[arg-type]


@pytest.fixture
def client(any_engine: sa.Engine) -> Iterator[TestClient]:
    """A server with one scheduler, `new`, and loops that stand still."""
    settings = ApiSettings(actuators=(SlurmSettings("new"),), intervals=STILL)
    with TestClient(create_app(settings, any_engine, lambda: NOW)) as made:
        yield made


def told(client: TestClient) -> tuple[str, list[str]]:
    """The check, and the series."""
    lines = [line for line in client.get("/metrics").text.splitlines() if line.startswith(METRIC)]
    return client.get("/readyz").json()["checks"]["schedulers"], lines


def test_nodes_that_nobody_will_release_are_told_of(client: TestClient, any_engine: sa.Engine) -> None:
    """By scheduler; also while the release was only asked for. The server is ready all the same."""
    put(any_engine, placed("a", "old"), placed("b", "old", "asked"), placed("c", "older"))
    check, series = told(client)
    assert check == "holding nodes, and not configured any more: old (2 nodes), older (1 node)"
    assert series == [f'{METRIC}{{scheduler="old"}} 2.0', f'{METRIC}{{scheduler="older"}} 1.0']
    assert client.get("/readyz").status_code == 200


def test_all_is_well_where_nothing_is_held_or_the_scheduler_is_there(client: TestClient, any_engine: sa.Engine) -> None:
    """What was let go of, what others hold, what a job was asked, and who pulls and lets go by itself."""
    put(any_engine, placed("a", "new"), placed("b", "old", "released"), placed("c", "old", "foreign"))
    put(any_engine, placed("job", "old"), placed("d", "pull:old"))
    assert told(client) == ("ok", [])

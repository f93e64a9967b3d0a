"""What one node says of itself moves the scores of the others no further than one honest node could."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest
import sqlalchemy as sa

from api.server.settings import Token, expand_scopes
from predictor.features import telemetry
from predictor.history.arrays import every
from predictor.history.store_reader import data_span, read_history
from predictor.live.scoring import score_nodes
from store.database.connections import migrate, open_database, writing
from store.nodes.tokens import digest_of
from store.records.hostlist import NodePattern
from store.records.telemetry import Rollup
from store.tables import schema
from tests.attacks.token_site import TIME, bearer, made_client
from tests.fleet_store import day, fill_trained, put, xid

LIAR = "gpu-001"
LONG_AGO = datetime(1970, 1, 2, tzinfo=UTC)
AT = day(60)


def of_1970(engine: sa.Engine) -> None:
    """One event and one hour of the node, dated half a century ago."""
    put(engine, [], [xid(LIAR, (LONG_AGO - day(0)).total_seconds() / 86400, 79)])
    put(engine, rollups=[Rollup(LIAR, LONG_AGO, 960, 8, 50.0)])


def of_a_work(engine: sa.Engine) -> None:
    """What a program says of a run, without a node: any token may post it."""
    with writing(engine).begin() as connection:
        row = {"id": "old", "time": LONG_AGO, "received": AT, "node": None, "source": "hook", "kind": "iteration"}
        row |= {"severity": "info", "cause": "unknown", "action": "none", "device": {}, "message": "", "attributes": {}}
        connection.execute(sa.insert(schema.events), [row])


def site(folder: Path) -> sa.Engine:
    """A store of forty nodes with trained models; nobody has told since when they serve."""
    engine = open_database(f"sqlite:///{folder / 'f.db'}")
    migrate(engine)
    fill_trained(engine, 40)
    with writing(engine).begin() as connection:
        connection.execute(sa.update(schema.nodes).values(in_service_since=None))
    return engine


def scores(engine: sa.Engine) -> dict[tuple[str, int], float]:
    """The scores of all but the liar."""
    return {(one.node, one.horizon_h): one.score for one in score_nodes(engine, AT) if one.node != LIAR}


@pytest.mark.parametrize("lie", [of_1970, of_a_work])
def test_a_date_of_1970_makes_no_node_look_half_a_century_old(tmp_path: Path, lie: Callable[[sa.Engine], None]) -> None:
    """The fleet's past begins where a second node bears it out, a week before that at the most."""
    engine = site(tmp_path)
    with engine.connect() as connection:
        honest = data_span(connection)
    before = scores(engine)
    lie(engine)
    with engine.connect() as connection:
        span = data_span(connection)
    after = scores(engine)
    engine.dispose()
    assert honest is not None
    assert span is not None
    assert span[0] >= honest[0] - timedelta(days=7)
    assert max(abs(after[key] - before[key]) for key in before) < 0.01


@pytest.mark.parametrize("lie", [-1e9, 1e30])
def test_one_reading_of_a_billion_degrees_moves_the_peers_by_a_few(tmp_path: Path, lie: float) -> None:
    """Among its leaf's other fifteen nodes a figure counts as no more than a GPU can have."""
    engine = site(tmp_path)
    with engine.connect() as connection:
        history = read_history(connection, AT, AT)
        before = telemetry.compute(history, every(len(history.fleet.names), [AT]))
    hours = [day(59) + timedelta(hours=hour) for hour in (0, 8, 16)]
    put(engine, rollups=[Rollup(LIAR, hour, 960, 8, lie, power_mean_w=lie, gpu_util_mean=lie) for hour in hours])
    with engine.connect() as connection:
        history = read_history(connection, AT, AT)
        after = telemetry.compute(history, every(len(history.fleet.names), [AT]))
    others = np.array([name != LIAR for name in history.fleet.names])
    engine.dispose()
    for name, most in (("gpu_temp_above_leaf_c", 5.0), ("power_above_leaf_w", 180.0)):
        assert np.nanmax(np.abs(after[name] - before[name])[others]) < most, name


@pytest.mark.parametrize(
    ("name", "value"),
    [("gpu_temp_mean_c", 1e30), ("gpu_temp_max_c", -1e9), ("power_mean_w", -5e6), ("gpu_util_mean", 1e9)],
)
def test_a_reading_that_no_sensor_gives_is_refused_by_name(tmp_path: Path, name: str, value: float) -> None:
    """The roll-up is left out, with the column and what it may be."""
    engine = open_database(f"sqlite:///{tmp_path / 'f.db'}")
    migrate(engine)
    token = Token("gpu-001", digest_of("secret"), expand_scopes(["ingest"]), NodePattern.exactly([LIAR]))
    rollup = {"node": LIAR, "time": TIME, "samples": 900, "gpus_seen": 8, "gpu_temp_mean_c": 60.0}
    with made_client(engine, (token,)) as client:
        answer = client.post(
            "/api/v1/telemetry", json=[rollup, rollup | {name: value}], headers=bearer("secret")
        ).json()
    engine.dispose()
    assert answer["accepted"] == 1
    assert name in answer["rejected"][0]["detail"]
    assert "no sensor measures that" in answer["rejected"][0]["detail"]

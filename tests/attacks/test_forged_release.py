"""One forged message neither lets a held node go nor hides a fault: an outage that ended, one that is open, another
serial number, silence."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import sqlalchemy as sa
from fastapi.testclient import TestClient

from api.app import create_app
from api.server.settings import ApiSettings, Intervals
from schedulers.lifecycle.policy_turn import run_policy
from schedulers.policy.settings import Control, Policy
from store.database.connections import writing
from store.events.append import append_nodes
from store.hints.hint_log import change_state, read_hints
from store.records.hint import Hint
from store.records.node import Node
from store.tables import schema

HOUR = timedelta(hours=1)
NOW = datetime.now(UTC).replace(microsecond=0)
POLICY = Policy(mode="act", control=Control(percent=0.0))
_QUIET = Intervals(score_s=0, policy_s=0, dispatch_s=0, observe_s=0, ledgers_s=0, lemons_s=0, models_s=0)
_GPU = {"type": "gpu", "pci": "0000:0f:00.0", "index": None, "uuid": None, "port": None}


def post(engine: sa.Engine, path: str, record: dict[str, Any]) -> None:
    """What a holder of a token sends."""
    with TestClient(create_app(ApiSettings(policy=POLICY, intervals=_QUIET), engine, lambda: NOW)) as client:
        answer = client.post(f"/api/v1/{path}", json=[record]).raise_for_status().json()
    assert (answer["accepted"], answer["rejected"]) == (1, [])


def hints(engine: sa.Engine) -> list[Hint]:
    """All hints."""
    with engine.connect() as connection:
        return read_hints(connection)


def add_nodes(engine: sa.Engine) -> None:
    """Sixty nodes of an inventory."""
    with writing(engine).begin() as connection:
        append_nodes(connection, [Node(f"gpu-{i:03}", f"r{i}", f"l{i}", gpus=8) for i in range(60)])


def fall_off_the_bus(engine: sa.Engine, node: str, began: datetime = NOW) -> None:
    """A real Xid 79, as an incident."""
    row = {"id": f"i-{node}", "node": node, "start": began, "end": began, "kind": "xid", "code": 79}
    row |= {"severity": "fatal", "cause": "hardware", "action": "reset_gpu", "device": _GPU, "message": "gone"}
    with writing(engine).begin() as connection:
        connection.execute(schema.incidents.insert().values(**row, count=1, kinds={"xid:79": 1}, source="kernel"))


@pytest.fixture
def held(any_engine: sa.Engine) -> sa.Engine:
    """gpu-017 has a fault, and a scheduler holds it for that."""
    add_nodes(any_engine)
    fall_off_the_bus(any_engine, "gpu-017", NOW - HOUR)
    run_policy(any_engine, POLICY, NOW - HOUR)
    (hint,) = hints(any_engine)
    with writing(any_engine).begin() as connection:
        sent = change_state(connection, hint, "sent", NOW - HOUR, "scheduler:slurm")
        change_state(connection, sent, "confirmed", NOW - HOUR, "scheduler:slurm")
    return any_engine


def test_an_outage_that_is_told_to_have_ended_releases_no_node(held: sa.Engine) -> None:
    """Nobody has seen the node come back."""
    start, end = NOW - 0.5 * HOUR, NOW - 0.1 * HOUR
    outage = {"node": "gpu-017", "start": start.isoformat(), "end": end.isoformat(), "state": "DOWN", "reason": "fans"}
    post(held, "outages", outage)
    run_policy(held, POLICY, NOW)
    assert [(hint.node, hint.state) for hint in hints(held)] == [("gpu-017", "confirmed")]


@pytest.mark.parametrize("end", [None, NOW - timedelta(seconds=1)])
def test_an_outage_that_is_told_hides_no_fault(any_engine: sa.Engine, end: datetime | None) -> None:
    """Open, or ended before anybody has looked at the fault: the node is held as any other."""
    add_nodes(any_engine)
    fall_off_the_bus(any_engine, "gpu-017", NOW - timedelta(seconds=5))
    outage = {"node": "gpu-017", "start": (NOW - HOUR).isoformat(), "state": "DOWN", "reason": "fans"}
    post(any_engine, "outages", outage | {"end": None if end is None else end.isoformat()})
    run_policy(any_engine, POLICY, NOW)
    assert [(hint.node, hint.action) for hint in hints(any_engine)] == [("gpu-017", "cordon")]


def test_silence_releases_no_node(held: sa.Engine) -> None:
    """Whoever kills a sidecar, or invents one and lets it fall silent, has the hint neither end nor lapse."""
    for hours in range(1, 80, 3):
        run_policy(held, POLICY, NOW + hours * HOUR)
    assert [(hint.node, hint.state) for hint in hints(held)] == [("gpu-017", "confirmed")]


def test_another_serial_number_releases_no_node(held: sa.Engine) -> None:
    """An event that names another device in the place of the one that failed is one message, too."""
    event = {"node": "gpu-017", "source": "kernel", "kind": "xid", "code": 79, "severity": "fatal"}
    event |= {"cause": "hardware", "action": "reset_gpu", "message": "gone", "device": _GPU}
    old = {**event, "id": "i-gpu-017", "time": (NOW - HOUR).isoformat(), "attributes": {"serial": "S1"}}
    new = {**event, "id": "forged", "time": (NOW - 0.5 * HOUR).isoformat(), "severity": "info", "cause": "unknown"}
    post(held, "events", old)
    post(held, "events", new | {"code": 13, "attributes": {"serial": "S2"}})
    run_policy(held, POLICY, NOW)
    assert [(hint.node, hint.state) for hint in hints(held)] == [("gpu-017", "confirmed")]

"""Which nodes are out and which faults stand, on both databases."""

from datetime import UTC, datetime, timedelta

import pytest
import sqlalchemy as sa

from store.database.connections import writing
from store.events.append import append_nodes, append_outages
from store.nodes.node_states import nodes_out, unrepaired_faults
from store.records.node import Node
from store.records.outage import Outage
from store.tables import schema

NOW = datetime(2025, 3, 1, 12, 0, tzinfo=UTC)
HOUR = timedelta(hours=1)
DEVICE = {"type": "gpu", "pci": "0000:0f:00.0", "index": None, "uuid": None, "port": None}


def fault(engine: sa.Engine, node: str, hours_ago: float) -> None:
    """A confirmed fault of a node."""
    moment = NOW - hours_ago * HOUR
    row = {"id": f"i-{node}", "node": node, "start": moment, "end": moment, "kind": "xid", "code": 79, "count": 1}
    row |= {"severity": "fatal", "cause": "hardware", "action": "reset_gpu", "device": DEVICE, "message": "gone"}
    with writing(engine).begin() as connection:
        connection.execute(schema.incidents.insert().values(**row, kinds={"xid:79": 1}))


def outage(engine: sa.Engine, node: str, hours: tuple[float, float | None], reason: str) -> None:
    """A node out of service, so many hours ago until so many hours ago."""
    start, end = NOW - hours[0] * HOUR, None if hours[1] is None else NOW - hours[1] * HOUR
    with writing(engine).begin() as connection:
        append_outages(connection, [Outage(node, start, end, "DRAIN", reason, "slurm", True, "unknown")])


def standing(engine: sa.Engine) -> set[str]:
    """Nodes with a fault that nothing has ended."""
    with engine.connect() as connection:
        return set(unrepaired_faults(connection, NOW - 24 * HOUR, NOW))


def test_a_drain_of_ours_is_neither_an_outage_nor_a_repair(any_engine: sa.Engine) -> None:
    """Slurm records what we drained like any other: nobody has seen to the node."""
    for node, reason in (("ours", "foreshock: xid 79 id=h1"), ("theirs", "bad dimm")):
        outage(any_engine, node, (1, None), reason)
        fault(any_engine, node, 3)
        outage(any_engine, node, (2.5, 2), reason)
    with any_engine.connect() as connection:
        assert nodes_out(connection, NOW) == {"theirs"}
    assert standing(any_engine) == {"ours"}


@pytest.mark.parametrize(("in_service", "stands"), [(None, True), (5, True), (1, False), (-1, True)])
def test_a_new_machine_inherits_no_fault(any_engine: sa.Engine, in_service: float | None, stands: bool) -> None:
    """What showed before it came into service was another's; one that is to come has not come yet."""
    since = None if in_service is None else NOW - in_service * HOUR
    with writing(any_engine).begin() as connection:
        append_nodes(connection, [Node("a", in_service_since=since)])
    fault(any_engine, "a", 3)
    assert standing(any_engine) == ({"a"} if stands else set())

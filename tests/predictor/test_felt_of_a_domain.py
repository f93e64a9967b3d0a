"""What a node prints because another one's NVLink failed is no sign of its own."""

from datetime import UTC, datetime, timedelta

import pytest
import sqlalchemy as sa

from predictor.history.precursor_log import precursor_query
from store.database.connections import writing
from store.events.append import append_events, append_nodes
from store.records.event import Device, Event
from store.records.node import Node

OWN = {("n0", 149), ("n1", 79)}
NOW = datetime(2026, 9, 10, 8, tzinfo=UTC)


def xid(node: str, code: int) -> Event:
    """A fatal Xid of a node."""
    return Event(
        time=NOW, node=node, source="kernel", kind="xid", code=code, severity="fatal", cause="hardware",
        device=Device("gpu", "0008:01:00.0"), message=f"Xid {code}", id=f"{node}-{code}",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("size", "counted"),
    [(2, OWN), (1, OWN | {("n0", 145), ("n0", 154), ("n1", 145), ("n1", 154)})],
    ids=["of a domain of two", "of nodes by themselves"],
)
def test_xid_145_of_a_domain_counts_for_nobody(any_engine: sa.Engine, size: int, counted: set[tuple[str, int]]) -> None:
    """Its own faults do; a node whose domain is itself alone prints Xid 145 of its own links."""
    with writing(any_engine).begin() as connection:
        domains = ["d0", "d0" if size == 2 else "d1"]
        append_nodes(connection, [Node(f"n{n}", nvlink_domain=domain) for n, domain in enumerate(domains)])
        events = [xid("n0", 149), xid("n1", 79), *(xid(node, code) for node in ("n0", "n1") for code in (145, 154))]
        append_events(connection, events, received=NOW)
    with any_engine.connect() as connection:
        rows = connection.execute(precursor_query(connection, NOW - timedelta(days=1))).all()
    assert {(row[0], row[3]) for row in rows} == counted

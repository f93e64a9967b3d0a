"""An event's `count` is what its sender wrote: one that is no number stops nobody's scoring."""

from typing import Any

import numpy as np
import pytest
import sqlalchemy as sa
from fleet_store import RECEIVED, day, node

from predictor.history.arrays import to_ms
from predictor.history.store_reader import read_fleet, read_precursors
from predictor.links.subjects import link_history
from store.database.connections import writing
from store.events.append import append_events, append_nodes
from store.records.event import Device, Event

LIES: list[Any] = [
    "abc",
    "",
    "NaN",
    "Infinity",
    "1e999",
    " 7 ",
    "0x10",
    True,
    False,
    None,
    10**18,
    1e30,
    -3,
    1e308,
    "9" * 400,
]


def told(count: Any, at_d: float, kind: str) -> Event:
    """Corrected errors, or a port's, of a node that says how many."""
    device = Device("port", uuid="0xa1") if kind == "counter" else Device("gpu", index=1)
    return Event(
        day(at_d), "gpu-1", "kernel", kind, None, "error", "hardware", "none", device, attributes={"count": count}
    )


def check(engine: sa.Engine) -> None:
    """What is a number counts as it is, all else as one event; of nodes and of links."""
    with writing(engine).begin() as connection:
        append_nodes(connection, [node("gpu-1"), node("gpu-2")])
        lies = [told(count, 1 + at / 10, kind) for kind in ("ecc_dbe", "counter") for at, count in enumerate(LIES)]
        append_events(connection, [*lies, told(5, 9, "ecc_dbe"), told(5, 9, "counter")], RECEIVED)
    with engine.connect() as connection:
        window_ms = (to_ms(day(0)), to_ms(day(10)))
        of_nodes = read_precursors(connection, read_fleet(connection), window_ms)
        of_links = link_history(connection, day(10), day(10)).precursors
    assert len(of_nodes.weight) == 2 * len(of_links.weight) == 2 * (len(LIES) + 1)
    for weight in (of_nodes.weight, of_links.weight):
        assert np.isfinite(weight).all()
        assert weight[-1] == 5


def test_a_count_that_is_none_stops_nothing(engine: sa.Engine) -> None:
    """On SQLite."""
    check(engine)


@pytest.mark.integration
def test_nor_on_postgresql(postgres_engine: sa.Engine) -> None:
    """Where a cast that fails ends the query."""
    check(postgres_engine)

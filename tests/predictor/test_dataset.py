"""Datasets: rows, nodes, chunks, an empty store."""

import numpy as np
import pandas as pd
import pytest
import sqlalchemy as sa
from fleet_store import day, fill, node, outage, put, xid

from predictor import dataset
from predictor.dataset import build, build_cube
from predictor.reading import data_span
from store.append import append_events
from store.database import writing
from store.event import Event


def test_rows_are_the_nodes_at_risk_of_each_moment(engine: sa.Engine) -> None:
    """A node that is out has no row."""
    put(engine, [node("a"), node("b")], outages=[outage("a", 5, 24)])
    with engine.connect() as connection:
        frame = build(connection, [day(5.5), day(4)])
    assert frame.index.tolist() == [(day(4), "a"), (day(4), "b"), (day(5.5), "b")]
    assert frame.index.names == ["time", "node"]


def test_some_nodes_have_the_rows_they_have_among_all(engine: sa.Engine) -> None:
    """Neighbours count though they are not asked for."""
    fill(engine, nodes=20, days=30)
    with engine.connect() as connection:
        everybody = build(connection, [day(25)])
        some = build(connection, [day(25)], nodes=["gpu-003", "gpu-007", "nobody"])
    pd.testing.assert_frame_equal(some, everybody.loc[(slice(None), ["gpu-003", "gpu-007"]), :])


def test_reading_in_steps_changes_nothing(engine: sa.Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """However few moments are read at once; progress tells of every step."""
    fill(engine, nodes=10, days=20)
    moments = [day(5 + i / 2) for i in range(20)]
    told: list[tuple[int, int]] = []
    with engine.connect() as connection:
        whole = build_cube(connection, moments)
        monkeypatch.setattr(dataset, "_CHUNK_MOMENTS", 7)
        steps = build_cube(connection, moments, lambda done, of: told.append((done, of)))
    np.testing.assert_array_equal(whole.values, steps.values)
    assert told == [(7, 20), (14, 20), (20, 20)]


def test_an_empty_store_gives_an_empty_dataset(engine: sa.Engine) -> None:
    """No nodes, no rows, no span; no moments, no rows."""
    with engine.connect() as connection:
        assert build(connection, [day(1)]).empty
        assert build(connection, []).empty
        assert data_span(connection) is None


def test_events_without_a_time_of_their_own_do_not_stretch_the_data(engine: sa.Engine) -> None:
    """They stand at their receipt, long after an old archive's end."""
    put(engine, [node("a")], events=[xid("a", 5, 79), xid("a", 9, 79)], outages=[outage("a", 9.5, 12)])
    undated = Event(None, "a", "kernel", "xid", 79, "fatal", "hardware")
    with writing(engine).begin() as connection:
        append_events(connection, [undated], received=day(300))
    with engine.connect() as connection:
        assert data_span(connection) == (day(5), day(10))

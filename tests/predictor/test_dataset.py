"""Datasets: rows, nodes, samples, an empty store."""

import numpy as np
import pandas as pd
import pytest
import sqlalchemy as sa
from fleet_store import day, fill, node, outage, put, rollup, xid

from predictor.dataset.dataset import build, dataset
from predictor.dataset.labels import label, rows_at, sample
from predictor.history.arrays import every, to_ms
from predictor.history.store_reader import data_span, read_population
from store.database.connections import writing
from store.events.append import append_events
from store.records.event import Event


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


def test_a_sample_has_every_positive_and_a_known_share_of_the_rest(engine: sa.Engine) -> None:
    """The same ones every time; of few rows, all."""
    fill(engine, nodes=30, days=40)
    moments = [day(2 + i) for i in range(35)]
    with engine.connect() as connection:
        population = read_population(connection, to_ms(day(40)))
    whole = sample(population, moments, 24)
    apart_h = (moments[1] - moments[0]).total_seconds() / 3600
    assert (whole.cadence_h, sample(population, moments[::2], 24).cadence_h) == (apart_h, 2 * apart_h)
    assert sample(population, moments[:1], 24).cadence_h == 24
    part = sample(population, moments, 24, most=100)
    positives = int(whole.labels.positive.sum())
    assert positives == int(part.labels.positive.sum()) > 0
    assert whole.negative_share == 1.0
    assert len(part.rows) == positives + 100
    assert part.negative_share == pytest.approx(100 / (len(whole.rows) - positives))
    assert (np.diff(part.rows.time_ms) >= 0).all()
    np.testing.assert_array_equal(sample(population, moments, 24, most=100).rows.node, part.rows.node)
    assert part.labels.known.all()


@pytest.mark.parametrize("at_once", [1, 70, 10_000])
def test_a_sample_is_the_same_however_many_rows_are_labelled_at_once(
    engine: sa.Engine, monkeypatch: pytest.MonkeyPatch, at_once: int
) -> None:
    """A year of many links is more than memory holds."""
    fill(engine, nodes=30, days=40)
    moments = [day(2 + i) for i in range(35)]
    with engine.connect() as connection:
        population = read_population(connection, to_ms(day(40)))
    rows = every(len(population.fleet.names), moments)
    labels = label(population.fleet, population.outages, rows, 24, population.end_ms)
    monkeypatch.setattr("predictor.dataset.labels._ROWS_AT_ONCE", at_once)
    whole, part = sample(population, moments, 24), sample(population, moments, 24, most=100)
    assert whole.rows.node.tolist() == rows.node[labels.known].tolist()
    assert whole.labels.positive.tolist() == labels.positive[labels.known].tolist()
    monkeypatch.undo()
    np.testing.assert_array_equal(sample(population, moments, 24, most=100).rows.node, part.rows.node)


def test_rows_alone_have_what_they_have_among_others(engine: sa.Engine) -> None:
    """A dataset is a function of each of its rows; in whatever order they are asked for."""
    fill(engine, nodes=20, days=30)
    with engine.connect() as connection:
        population = read_population(connection, to_ms(day(30)))
        rows = rows_at(population, [day(10), day(25), day(29)])
        order = np.random.default_rng(3).permutation(len(rows))[:17]
        whole = dataset(connection, population, rows)
        some = dataset(connection, population, rows.only(order))
    np.testing.assert_array_equal(whole.values[order], some.values)
    assert whole.column("outages_all").tolist() == whole.values[:, whole.names.index("outages_all")].tolist()


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


def test_what_is_yet_to_come_does_not_stretch_the_data(any_engine: sa.Engine) -> None:
    """An end and a sample by a wrong clock, planned work: no score and no training is of those years."""
    put(
        any_engine,
        [node("a")],
        events=[xid("a", 5, 79)],
        outages=[outage("a", 9.5, 12), outage("a", 11, 40 * 365 * 24)],
    )
    put(any_engine, rollups=[rollup("a", 40 * 365)])
    put(any_engine, [node("b")], outages=[outage("b", 40 * 365, 1, planned=True)])
    with any_engine.connect() as connection:
        assert data_span(connection) == (day(5), day(11))

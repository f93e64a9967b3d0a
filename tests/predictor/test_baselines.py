"""What a model must beat."""

import sqlalchemy as sa
from fleet_store import day, node, outage, put, sbe, xid

from predictor.dataset.dataset import Dataset, dataset
from predictor.dataset.labels import rows_at
from predictor.history.store_reader import read_population
from predictor.model.baselines import BASELINES, LINK_BASELINES, history_count, recency, rules
from store.records.event import Device, Event


def rows(engine: sa.Engine) -> Dataset:
    """The fleet on day 60."""
    with engine.connect() as connection:
        population = read_population(connection, 0)
        return dataset(connection, population, rows_at(population, [day(60)]))


def test_the_count_ranks_recent_lemons_first(engine: sa.Engine) -> None:
    """An outage of the last 28 days counts twice, a planned one never."""
    put(engine, [node(name) for name in "abcd"])
    put(engine, outages=[outage("b", 5), outage("c", 50), outage("d", 50, planned=True)])
    assert history_count(rows(engine)).tolist() == [0, 1, 2, 0]


def test_recency_ranks_the_newest_outage_first(engine: sa.Engine) -> None:
    """Planned ones and those to come do not count; a node that never failed is last."""
    put(engine, [node(name) for name in "abcd"])
    put(engine, outages=[outage("a", 20), outage("a", 58, planned=True), outage("b", 50), outage("c", 61)])
    assert recency(rows(engine)).tolist() == [-40.0, -10.0, -1e6, -1e6]


def test_the_rules_fire_on_hardware_only(engine: sa.Engine) -> None:
    """A hardware Xid, a row remapping, a memory error, a flap: not a user's bug, a corrected error or old news."""
    flap = Event(day(59), "d", "opensm", "link_down", severity="error", device=Device("port", port=1))
    events = [xid("a", 59, 79), xid("b", 59, 63), xid("c", 59, 48), flap]
    events += [xid("e", 59, 31, "application"), sbe("f", 59), xid("g", 50, 79)]
    put(engine, [node(name) for name in "abcdefg"], events=events)
    assert rules(rows(engine)).tolist() == [1, 1, 1, 1, 0, 0, 0]


def test_every_baseline_scores_every_row(engine: sa.Engine) -> None:
    """As the model does, nothing missing."""
    put(engine, [node("a"), node("b")])
    for baseline in (*BASELINES.values(), *LINK_BASELINES.values()):
        assert baseline.rank(rows(engine)).tolist() == [0, 0]

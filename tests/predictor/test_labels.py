"""Who is at risk, who is positive, who is censored."""

import numpy as np
from fleet_store import day, node, outage, put
from sqlalchemy import Engine

from predictor.dataset.labels import Labels, label
from predictor.history.arrays import every, to_ms
from predictor.history.store_reader import read_fleet, read_outage_log


def labels_at(engine: Engine, moments_d: list[float], horizon_h: int = 24, end_d: float = 100) -> Labels:
    """The labels of the whole fleet, (moments, nodes)."""
    with engine.connect() as connection:
        fleet = read_fleet(connection)
        rows = every(len(fleet.names), [day(d) for d in moments_d])
        found = label(fleet, read_outage_log(connection, fleet), rows, horizon_h, to_ms(day(end_d)))
    shape = (len(moments_d), len(fleet.names))
    columns = (found.at_risk, found.known, found.positive, found.next_start_ms)
    return Labels(*(column.reshape(shape) for column in columns))


def test_an_unplanned_outage_within_the_horizon_is_positive(engine: Engine) -> None:
    """Begun after the blackout and up to the horizon's end, edges included."""
    put(engine, [node("a")], outages=[outage("a", 10)])
    minute = 1 / 1440
    found = labels_at(engine, [8.9, 9, 9.5, 10 - 11 * minute, 10 - 10 * minute, 10 - minute])
    assert found.positive[:, 0].tolist() == [False, True, True, True, False, False]
    assert found.known.all()
    assert found.next_start_ms[1, 0] == to_ms(day(10))


def test_a_planned_outage_is_no_positive_but_takes_a_node_out(engine: Engine) -> None:
    """Maintenance is nothing to predict; while it lasts there is nothing to ask."""
    put(engine, [node("a")], outages=[outage("a", 10, 24, planned=True)])
    found = labels_at(engine, [9.5, 10.0, 10.5, 11.0])
    assert not found.positive.any()
    assert found.at_risk[:, 0].tolist() == [True, False, False, True]


def test_a_node_that_is_out_is_not_at_risk(engine: Engine) -> None:
    """Not while any of its outages lasts, nor for ever if one stays open; one without length hides nothing."""
    overlapping = [outage("a", 10, 48), outage("a", 11, 1), outage("a", 20, 0), outage("a", 30, None)]
    put(engine, [node("a"), node("b")], outages=overlapping)
    found = labels_at(engine, [9.9, 11.5, 12.5, 20, 31, 60])
    assert found.at_risk[:, 0].tolist() == [True, False, True, True, False, False]
    assert found.at_risk[:, 1].all()


def test_a_node_is_at_risk_only_in_service(engine: Engine) -> None:
    """From in_service_since until before in_service_until."""
    put(engine, [node("a", in_service_since=day(5), in_service_until=day(20))])
    assert labels_at(engine, [4.9, 5, 18.9, 19.5, 20]).at_risk[:, 0].tolist() == [False, True, True, True, False]


def test_a_row_whose_answer_nobody_knows_is_censored(engine: Engine) -> None:
    """Beyond the end of the data, or of the node's service; an outage before the latter is an answer."""
    put(engine, [node("a", in_service_until=day(20)), node("b", in_service_until=day(20)), node("c")])
    put(engine, outages=[outage("b", 19.5)])
    found = labels_at(engine, [18, 19.2, 98.9, 99.1])
    assert found.known[:, 0].tolist() == [True, False, False, False]
    assert found.known[:, 1].tolist() == [True, True, False, False]
    assert found.known[:, 2].tolist() == [True, True, True, False]
    assert found.positive[1].tolist() == [False, True, False]


def test_the_first_outage_after_the_blackout_is_the_one_to_foresee(engine: Engine) -> None:
    """Of several outages the next one counts, of each node its own."""
    put(engine, [node("a"), node("b"), node("c")])
    put(engine, outages=[outage("a", 3, 1), outage("a", 5, 1), outage("b", 4, 1)])
    found = labels_at(engine, [2.5, 3.5], horizon_h=168)
    assert found.next_start_ms[:, 0].tolist() == [to_ms(day(3)), to_ms(day(5))]
    assert found.next_start_ms[:, 1].tolist() == [to_ms(day(4))] * 2
    assert np.isnan(found.next_start_ms[:, 2]).all()


def test_a_fleet_without_outages_has_no_positive(engine: Engine) -> None:
    """Nothing happened: every row is known and negative."""
    put(engine, [node("a")])
    found = labels_at(engine, [1, 2])
    assert found.known.all()
    assert not found.positive.any()

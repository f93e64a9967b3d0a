"""What is kept in memory gives what the whole store gives."""

from datetime import datetime, timedelta

import numpy as np
import pytest
import sqlalchemy as sa
from fleet_store import day, fill, node, outage, put, rollup, sbe, xid

from predictor.dataset.matrix import matrix
from predictor.history.store_reader import read_history
from predictor.live.live_history import FleetSnapshot, LiveHistory
from store.database.connections import writing
from store.events.append import append_events
from store.tables import schema

AT = day(40) + timedelta(hours=10, minutes=20)


def assert_as_read_anew(engine: sa.Engine, look: FleetSnapshot, at: datetime) -> None:
    """Feature by feature, and the events' ids."""
    with engine.connect() as connection:
        history = read_history(connection, at, at)
    whole = matrix(history, look.rows)
    for column, feature in enumerate(look.features):
        np.testing.assert_array_equal(look.values[:, column], whole[:, column], feature.name)
    assert set(look.history.precursors.ids) == set(history.precursors.ids)


def test_it_follows_what_comes(any_engine: sa.Engine) -> None:
    """Events, late ones too, outages, repairs, hours of telemetry, a new node: as if all were read anew."""
    engine = any_engine
    fill(engine, nodes=12, days=40)
    live = LiveHistory(engine)
    assert_as_read_anew(engine, live.look(AT), AT)
    late = [sbe("gpu-003", 39.9, 3, 40), xid("gpu-003", 30, 79), xid("gpu-005", 40.43, 48)]
    put(engine, [node("stranger")], events=[*late, sbe("stranger", 40.43)], outages=[outage("gpu-006", 40.2, None)])
    at = AT + timedelta(minutes=1)
    look = live.look(at)
    assert look.rows.node.tolist() == [i for i in range(13) if i != 6]
    assert_as_read_anew(engine, look, at)
    put(engine, rollups=[rollup("gpu-001", 40 + 10 / 24, 80.0), rollup("gpu-002", 40 + 9 / 24, 81.0)])
    with writing(engine).begin() as connection:
        connection.execute(schema.outages.update().where(schema.outages.c.node == "gpu-006").values(end=day(40.44)))
    for hours in (1, 2, 30, 24 * 20):
        at = AT + timedelta(hours=hours)
        assert_as_read_anew(engine, live.look(at), at)


def test_what_was_committed_late_is_found(any_engine: sa.Engine) -> None:
    """Received before the newest that was read, stored after it."""
    put(any_engine, [node("a")])
    live = LiveHistory(any_engine)
    with writing(any_engine).begin() as connection:
        append_events(connection, [xid("a", 39, 79)], received=day(40))
    assert len(live.look(AT).history.precursors.ids) == 1
    with writing(any_engine).begin() as connection:
        append_events(connection, [xid("a", 38, 79)], received=day(40) - timedelta(seconds=90))
    assert len(live.look(AT).history.precursors.ids) == 2


def test_telemetry_of_nodes_that_are_not_known_yet_is_theirs_once_they_are(any_engine: sa.Engine) -> None:
    """Two of them, in either half of the week that is read at first, one in both."""
    fill(any_engine, nodes=12, days=39)
    told = [("late-2", 33.0, 81.0), ("late-1", 33.0, 82.0), ("late-1", 38.0, 83.0)]
    put(any_engine, rollups=[rollup(*one) for one in told])
    with writing(any_engine).begin() as connection:
        connection.execute(schema.nodes.delete().where(schema.nodes.c.node.like("late-%")))
    live = LiveHistory(any_engine)
    live.look(AT)
    put(any_engine, nodes=[node("late-2"), node("late-1")])
    look = live.look(AT)
    assert_as_read_anew(any_engine, look, AT)
    telemetry, names = look.history.telemetry, look.history.fleet.names
    found = zip(telemetry.node.tolist(), telemetry.column("gpu_temp_mean_c").tolist(), strict=True)
    assert sorted((names[of], value) for of, value in found if names[of].startswith("late")) == [
        ("late-1", 82.0),
        ("late-1", 83.0),
        ("late-2", 81.0),
    ]


def test_telemetry_that_comes_days_late_is_found(any_engine: sa.Engine) -> None:
    """A sidecar was away for two days: its hours count with the next look at telemetry, and nobody else's are lost."""
    fill(any_engine, nodes=12, days=39)
    live = LiveHistory(any_engine)
    live.look(AT)
    for turn in range(1, 4):
        at = AT + timedelta(hours=turn)
        put(any_engine, rollups=[rollup("gpu-004", 38 + turn + hour / 24 - 1, 90.0 + turn) for hour in range(9)])
        look = live.look(at)
        assert_as_read_anew(any_engine, look, at)
        assert (look.history.telemetry.values == 90.0 + turn).sum() == 9


def test_late_telemetry_that_a_lost_connection_left_out_is_asked_for_again(
    any_engine: sa.Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of two nodes, the one that came ten minutes before the other, too."""
    fill(any_engine, nodes=12, days=39)
    live = LiveHistory(any_engine)
    live.look(AT)
    put(
        any_engine, rollups=[rollup(name, 38 + hour / 24, 95.0) for name in ("gpu-003", "gpu-004") for hour in range(3)]
    )
    late = schema.late_telemetry
    with writing(any_engine).begin() as connection:
        came = connection.scalars(sa.select(late.c.received)).first()
        assert came is not None
        connection.execute(late.update().where(late.c.node == "gpu-003").values(received=came - timedelta(minutes=10)))

    def lost(*_arguments: object) -> None:
        raise ConnectionError("gone")

    at = AT + timedelta(hours=1)
    with monkeypatch.context() as patch, pytest.raises(ConnectionError):
        patch.setattr("predictor.live.live_history.read_rollups", lost)
        live.look(at)
    look = live.look(at)
    assert_as_read_anew(any_engine, look, at)
    assert (look.history.telemetry.values == 95.0).sum() == 6


def test_old_events_are_given_back(engine: sa.Engine) -> None:
    """Once a day; those in the window stay."""
    put(engine, [node("a")], events=[xid("a", d, 79) for d in (13, 39)])
    live = LiveHistory(engine)
    live.look(AT)
    later = AT + timedelta(days=2)
    assert len(live.look(later).history.precursors.ids) == 1
    assert len(live._log._ids) == 1
    assert_as_read_anew(engine, live.look(later), later)


def test_an_empty_store_has_nobody_to_look_at(engine: sa.Engine) -> None:
    """No node, no row; no error."""
    assert len(LiveHistory(engine).look(AT).rows) == 0

"""No feature knows the future."""

from datetime import timedelta

import pandas as pd
import pytest
import sqlalchemy as sa
from fleet_store import day, fill, node, outage, put, rollup, sbe, xid
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from predictor.dataset.dataset import build
from predictor.dataset.matrix import FIXED, matrix
from predictor.history.arrays import every
from predictor.history.store_reader import read_history
from store.database.connections import writing
from store.tables import schema

MOMENT = day(40) + timedelta(hours=10, minutes=20)


def features(engine: sa.Engine) -> pd.DataFrame:
    """What is known at MOMENT."""
    with engine.connect() as connection:
        return build(connection, [MOMENT])


def truncate(engine: sa.Engine) -> None:
    """Take away all that was not known at MOMENT: later events, hours that had not ended, ends that had not come."""
    events, telemetry, outages = schema.events, schema.telemetry, schema.outages
    with writing(engine).begin() as connection:
        connection.execute(events.delete().where(events.c.time >= MOMENT))
        connection.execute(telemetry.delete().where(telemetry.c.time > MOMENT - timedelta(hours=1)))
        connection.execute(outages.delete().where(outages.c.start >= MOMENT))
        connection.execute(outages.update().where(outages.c.end >= MOMENT).values(end=None))


def test_truncating_the_store_at_a_moment_changes_no_feature(engine: sa.Engine) -> None:
    """A store that ends at the moment gives what the whole store gives."""
    fill(engine)
    before = features(engine)
    assert len(before) > 30
    truncate(engine)
    pd.testing.assert_frame_equal(features(engine), before)


def test_garbage_after_a_moment_changes_no_feature(engine: sa.Engine) -> None:
    """Whatever is appended for later, and at the very moment, is not seen."""
    fill(engine, days=40)
    truncate(engine)
    before = features(engine)
    at = (MOMENT - day(0)) / timedelta(days=1)
    name = "gpu-003"
    put(
        engine,
        events=[
            sbe(name, at, 1, 10_000),
            sbe(name, at + 0.001),
            xid(name, at + 1, 79),
            xid(name, at, 31, "application"),
        ],
        outages=[outage(name, at + 1e-5), outage(name, at + 3, None), outage("gpu-004", at + 2, planned=True)],
        rollups=[rollup(name, 40 + 10 / 24, 99.0, 3), rollup(name, 41, 120.0, 0)],
    )
    pd.testing.assert_frame_equal(features(engine), before)


def test_the_end_of_an_outage_is_hidden_until_it_has_come(engine: sa.Engine) -> None:
    """An outage's length and the repair's age come from its end: neither is known while it lasts."""
    put(engine, [node("a"), node("b")], outages=[outage("a", 10, 48), outage("b", 10, None)], events=[xid("a", 5, 79)])
    with engine.connect() as connection:
        during = day(11)
        values = matrix(read_history(connection, during, during), every(2, [during]))
    names = [feature.name for feature in FIXED]
    for name in ("out_share_28d", "repair_age_d"):
        a, b = values[:, names.index(name)]
        assert a == pytest.approx(b, nan_ok=True)


def test_one_moment_alone_and_among_others_is_the_same(engine: sa.Engine) -> None:
    """What is read at once for many moments gives each of them only its own past."""
    fill(engine)
    with engine.connect() as connection:
        many = build(connection, [day(d) for d in (20, 40.25, 41, 59)])
        for moment in (day(20), day(41)):
            alone = build(connection, [moment])
            pd.testing.assert_frame_equal(many.loc[[moment]], alone)


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(offset_ms=st.integers(-3_600_000, 3_600_000), kind=st.sampled_from(["sbe", "xid", "outage", "rollup"]))
def test_a_record_is_seen_only_when_it_lies_before_the_moment(engine: sa.Engine, offset_ms: int, kind: str) -> None:
    """Around the moment, to the millisecond: a record counts if and only if it is past."""
    clear(engine)
    put(engine, [node("a")], events=[xid("a", 1, 31, "application")], rollups=[rollup("a", 39)])
    before = features(engine)
    at = (MOMENT + timedelta(milliseconds=offset_ms) - day(0)) / timedelta(days=1)
    hour = MOMENT.replace(minute=0) + timedelta(hours=offset_ms // 1_800_000)
    records: dict[str, dict[str, list[object]]] = {
        "sbe": {"events": [sbe("a", at)]},
        "xid": {"events": [xid("a", at, 79)]},
        "outage": {"outages": [outage("a", at, 0.0)]},
        "rollup": {"rollups": [rollup("a", (hour - day(0)) / timedelta(days=1), 80.0)]},
    }
    put(engine, **records[kind])  # type: ignore[arg-type]
    stored = hour + timedelta(hours=1) <= MOMENT if kind == "rollup" else day(at) < MOMENT
    assert features(engine).equals(before) is not stored


def clear(engine: sa.Engine) -> None:
    """Empty the store between hypothesis' examples."""
    with writing(engine).begin() as connection:
        for table in (schema.events, schema.outages, schema.telemetry, schema.nodes):
            connection.execute(table.delete())

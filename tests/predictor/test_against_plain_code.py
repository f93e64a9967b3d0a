"""The vectorised features against the plainest code that one can write, on random histories."""

import numpy as np
import sqlalchemy as sa
from fleet_store import day, node, outage, put, rollup, sbe, xid
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from predictor.dataset.dataset import build
from store.database.connections import writing
from store.tables import schema

NODES = ("a", "b", "c")
MOMENTS_D = (12.0, 29.5, 41.25)
# Quarters of an hour: moments and events coincide often, which is where errors hide.
TIMES_D = st.integers(0, 45 * 96).map(lambda quarter: quarter / 96)
PLAIN = settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def fresh(engine: sa.Engine) -> None:
    """A store of three quiet nodes."""
    with writing(engine).begin() as connection:
        for table in (schema.events, schema.outages, schema.telemetry, schema.nodes):
            connection.execute(table.delete())
    put(engine, [node(name) for name in NODES])


@PLAIN
@given(
    errors=st.lists(st.tuples(st.sampled_from(NODES), TIMES_D, st.integers(0, 3), st.integers(1, 9)), max_size=40),
    faults=st.lists(st.tuples(st.sampled_from(NODES), TIMES_D), max_size=20),
)
def test_precursors_are_those_that_a_loop_counts(
    engine: sa.Engine, errors: list[tuple[str, float, int, int]], faults: list[tuple[str, float]]
) -> None:
    """Counts, sums, the worst device, ages."""
    fresh(engine)
    errors = list({(n, t, g): (n, t, g, c) for n, t, g, c in errors}.values())
    faults = sorted(set(faults))
    put(engine, events=[sbe(n, t, g, c) for n, t, g, c in errors] + [xid(n, t, 79) for n, t in faults])
    with engine.connect() as connection:
        frame = build(connection, [day(d) for d in MOMENTS_D])
    for (moment, name), row in frame.iterrows():
        now = (moment - day(0)).total_seconds() / 86_400
        mine = [(t, g, c) for n, t, g, c in errors if n == name and t < now]
        for window in (1, 7, 28):
            assert row[f"ecc_sbe_{window}d"] == sum(t >= now - window for t, _, _ in mine)
        assert row["ecc_sbe_sum_28d"] == sum(c for t, _, c in mine if t >= now - 28)
        devices = [sum(c for t, g, c in mine if t >= now - 7 and g == gpu) for gpu in range(4)]
        assert row["ecc_sbe_device_7d"] == max(devices)
        seen = [t for n, t in faults if n == name and now - 28 <= t < now]
        assert row["hardware_xid_28d"] == row["incident_28d"] == len(seen)
        expected = now - max(seen) if seen else np.nan
        np.testing.assert_allclose(row["hardware_xid_age_d"], expected, rtol=1e-5)


@PLAIN
@given(
    records=st.lists(
        st.tuples(st.sampled_from(NODES), TIMES_D, st.one_of(st.none(), st.integers(1, 200)), st.booleans()),
        max_size=15,
    )
)
def test_outages_are_those_that_a_loop_counts(
    engine: sa.Engine, records: list[tuple[str, float, int | None, bool]]
) -> None:
    """Counts by window, ages, who is at risk at all."""
    fresh(engine)
    unique = {(n, t): (n, t, hours, planned) for n, t, hours, planned in records}
    put(engine, outages=[outage(n, t, hours, planned) for n, t, hours, planned in unique.values()])
    with engine.connect() as connection:
        frame = build(connection, [day(d) for d in MOMENTS_D])
    for now in MOMENTS_D:
        for name in NODES:
            mine = [(t, np.inf if h is None else t + h / 24, p) for n, t, h, p in unique.values() if n == name]
            out = any(start <= now < end for start, end, _ in mine)
            assert ((day(now), name) in frame.index) is not out
            if out:
                continue
            row = frame.loc[(day(now), name)]
            past = [(start, end) for start, end, planned in mine if not planned and start < now]
            for window in (7, 28, 90):
                assert row[f"outages_{window}d"] == sum(start >= now - window for start, _ in past)
            assert row["outages_all"] == len(past)
            np.testing.assert_allclose(
                row["outage_age_d"], now - max(s for s, _ in past) if past else np.nan, rtol=1e-5, atol=1e-6
            )
            ends = [end for _, end in past if end < now]
            np.testing.assert_allclose(row["repair_age_d"], now - max(ends) if ends else np.nan, rtol=1e-4, atol=1e-4)
            assert row["planned_28d"] == sum(p and now - 28 <= s < now for s, _, p in mine)


@PLAIN
@given(
    hours=st.lists(
        st.tuples(st.sampled_from(NODES), st.integers(28 * 24, 42 * 24), st.integers(40, 60)), min_size=1, max_size=60
    )
)
def test_telemetry_means_are_those_of_the_hours_that_ended(
    engine: sa.Engine, hours: list[tuple[str, int, int]]
) -> None:
    """Of the last 24, gaps left out; NaN where all is gap."""
    fresh(engine)
    unique = {(name, hour): float(temp) for name, hour, temp in hours}
    put(engine, rollups=[rollup(name, hour / 24, temp) for (name, hour), temp in unique.items()])
    with engine.connect() as connection:
        frame = build(connection, [day(d) for d in MOMENTS_D])
    for (moment, name), row in frame.iterrows():
        end = int((moment - day(0)).total_seconds() // 3600)
        mine = [temp for (n, hour), temp in unique.items() if n == name and end - 24 <= hour < end]
        np.testing.assert_allclose(row["gpu_temp_mean_c"], np.mean(mine) if mine else np.nan, rtol=1e-5)
        np.testing.assert_allclose(row["gpu_temp_max_c"], max(mine) + 5 if mine else np.nan, rtol=1e-5)
        assert np.isnan(row["power_mean_w"]) == (not mine)

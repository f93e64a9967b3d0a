"""The words of telemetry: their tables hold only known words, hours begin where they should."""

from dataclasses import fields
from datetime import UTC, datetime, timedelta

import numpy as np
import sqlalchemy as sa
from hypothesis import given
from hypothesis import strategies as st

from store.records.telemetry import COUNTERS, GAUGES, Rollup, hour_of
from store.telemetry.hours import insert_rollups
from store.telemetry.rollups import roll_up


def test_field_names_are_dcgm_s() -> None:
    """As dcgm-exporter and Parquet archives bear them."""
    assert all(name.startswith("DCGM_FI_DEV_") for name in (*GAUGES, *COUNTERS))
    assert len({name for name, _ in GAUGES.values()}) == len(GAUGES)


def test_an_hour_begins_at_its_start() -> None:
    """Also on the edge and before 1970."""
    assert hour_of(datetime(2025, 3, 1, 4, 59, 59, 999_999, UTC)) == datetime(2025, 3, 1, 4, tzinfo=UTC)
    assert hour_of(datetime(2025, 3, 1, 4, tzinfo=UTC)) == datetime(2025, 3, 1, 4, tzinfo=UTC)
    assert hour_of(datetime(1969, 12, 31, 23, 30, tzinfo=UTC)) == datetime(1969, 12, 31, 23, tzinfo=UTC)


@given(st.datetimes(datetime(1990, 1, 1), datetime(2200, 1, 1), timezones=st.just(UTC)))  # noqa: DTZ001
def test_every_moment_lies_within_its_hour(moment: datetime) -> None:
    """At most an hour after its start."""
    assert timedelta(0) <= moment - hour_of(moment) < timedelta(hours=1)


def test_the_bulk_writer_knows_every_column_of_a_roll_up() -> None:
    """A field that is added to one must be added to all; an archive's table gives no values of single devices."""
    ones = {name: np.ones(1) for name in ("gpu_temp_c", "memory_temp_c", "power_w", "gpu_util_ratio", "sm_clock_mhz")}
    zero = np.zeros(1, dtype=np.int64)
    table = roll_up(zero, zero, zero, ones)
    assert {*table.values, "node", "time", "samples", "gpus_seen", "devices"} == {f.name for f in fields(Rollup)}


def test_no_roll_ups_are_no_work(engine: sa.Engine) -> None:
    """An empty file writes nothing."""
    nothing = np.empty(0, dtype=np.int64)
    with engine.begin() as connection:
        assert insert_rollups(connection, (), roll_up(nothing, nothing, nothing, {})) == 0

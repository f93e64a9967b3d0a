"""Features of measures that nobody wrote code for: against plain loops, and never of the future."""

from dataclasses import replace
from datetime import timedelta
from itertools import pairwise

import numpy as np
import pandas as pd
import pytest
import sqlalchemy as sa
from fleet_store import day, node, put, rollup
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from predictor.dataset.dataset import build
from predictor.features.device_measures import MAX_MEASURES, SUFFIXES, chosen_measures
from predictor.history.arrays import Series
from store.database.connections import writing
from store.records.telemetry import Rollup
from store.tables import schema

NAMES = ("a", "b")
MOMENTS_D = (12.0, 29.5, 41.26)
# Of each hour: the node, the hour since day 0, and what its two drives told (None: nothing).
HOURS = st.lists(
    st.tuples(
        st.sampled_from(NAMES),
        st.integers(0, 44 * 24),
        st.one_of(st.none(), st.integers(0, 9)),
        st.one_of(st.none(), st.integers(0, 9)),
    ),
    max_size=40,
)


def told(name: str, hour: int, first: int | None, second: int | None) -> Rollup:
    """An hour of two drives: `worn` and its highest, one above."""
    values = {"disk:0": first, "disk:1": second}
    devices = {
        device: {"worn": [value, value + 1, value, value, 0]} for device, value in values.items() if value is not None
    }
    return replace(rollup(name, hour / 24), devices=devices)


def frame_of(engine: sa.Engine, rollups: list[Rollup]) -> pd.DataFrame:
    """The features at MOMENTS_D of a store that holds nothing else."""
    with writing(engine).begin() as connection:
        connection.execute(schema.telemetry.delete())
    put(engine, [node(name) for name in NAMES], rollups=rollups)
    with engine.connect() as connection:
        return build(connection, [day(d) for d in MOMENTS_D])


def plain(series: list[tuple[float, float]], now: float) -> dict[str, float]:
    """What one drive's (day that its hour ended, value) say at a moment, in plain loops."""
    past = [(at, value) for at, value in series if at <= now + 1e-9]
    if not past:
        return dict.fromkeys(SUFFIXES, np.nan)
    rises = [(at, value - before) for (_, before), (at, value) in pairwise(past) if value > before]
    recent = [value for at, value in past if at > now - 1 + 1e-9]
    week = [value + 1 for at, value in past if at > now - 7 + 1e-9]
    found = {"last": past[-1][1], "untold_d": now - past[-1][0]}
    found["mean_1d"] = float(np.mean(recent)) if recent else np.nan
    found["high_7d"] = max(week) if week else np.nan
    for window in (1, 7, 28):
        found[f"up_{window}d"] = sum(by for at, by in rises if at > now - window + 1e-9)
    found["rises_28d"] = sum(at > now - 28 + 1e-9 for at, _ in rises)
    found["rise_age_d"] = now - rises[-1][0] if rises else np.nan
    before = [value for at, value in past if now - 29 + 1e-9 < at <= now - 1 + 1e-9]
    found["change_28d"] = found["mean_1d"] - float(np.mean(before)) if recent and before else np.nan
    usual = sum(now - 35 + 1e-9 < at <= now - 7 + 1e-9 for at, _ in past) / 4
    found["lost_7d"] = min(max(1 - len(week) / usual, 0.0), 1.0) if usual else np.nan
    return found


@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(hours=HOURS)
def test_they_are_those_of_a_plain_loop(
    engine: sa.Engine, hours: list[tuple[str, int, int | None, int | None]]
) -> None:
    """Of each node the drive that says most; of how long it was silent, the one that spoke last."""
    unique = {(name, hour): (first, second) for name, hour, first, second in hours}
    frame = frame_of(engine, [told(name, hour, *values) for (name, hour), values in unique.items()])
    ended = [pair for (_, hour), pair in unique.items() if hour + 1 <= MOMENTS_D[-1] * 24]
    values = [value for pair in ended for value in pair if value is not None]
    assert ("worn.last" in frame.columns) == (len(set(values)) > 1)
    if "worn.last" not in frame.columns:
        return
    for now in MOMENTS_D:
        for name in NAMES:
            drives = []
            for drive in (0, 1):
                mine = sorted((hour, pair[drive]) for (n, hour), pair in unique.items() if n == name)
                drives.append(plain([((hour + 1) / 24, v) for hour, v in mine if v is not None], now))
            row = frame.loc[(day(now), name)]
            everyone = [
                value
                for (_, hour), pair in unique.items()
                for value in pair
                if value is not None and now - 1 + 1e-9 < (hour + 1) / 24 <= now + 1e-9
            ]
            above = row["worn.mean_1d"] - np.mean(everyone) if everyone else np.nan
            np.testing.assert_allclose(row["worn.above_fleet"], above, rtol=1e-4, atol=1e-4)
            for suffix in (suffix for suffix in SUFFIXES if suffix != "above_fleet"):
                both = [drive[suffix] for drive in drives if not np.isnan(drive[suffix])]
                pick = min if suffix == "untold_d" else max
                expected = pick(both) if both else np.nan
                np.testing.assert_allclose(row[f"worn.{suffix}"], expected, rtol=1e-4, atol=1e-4, err_msg=suffix)


BOOT_S = 1_740_787_200.0  # 2025-03-01


def booted(name: str, hour: int, boot_s: float) -> Rollup:
    """An hour of a node that says when it was booted."""
    return replace(rollup(name, hour / 24), devices={"node": {"boot_time_s": [boot_s, boot_s, boot_s, boot_s, 0]}})


def test_boots_are_counted_and_dated_and_a_clock_that_is_set_is_none(engine: sa.Engine) -> None:
    """A boot time that moves by seconds is the same boot; one of 1970 is no boot time."""
    moments = [day(d).timestamp() for d in (1.0, 3.0, 10.0)]
    rollups = [booted("a", 0, BOOT_S), booted("a", 24, BOOT_S + 20), booted("a", 2 * 24, moments[0])]
    rollups += [booted("a", 4 * 24, moments[1]), booted("a", 11 * 24, moments[2]), booted("b", 5, 17.0)]
    put(engine, [node("a"), node("b")], rollups=rollups)
    with engine.connect() as connection:
        frame = build(connection, [day(d) for d in (1.5, 5.0, 12.0)])
    first = int(moments[0] - BOOT_S > 300)
    of_a = frame.xs("a", level="node")
    assert of_a["boot_time_s.boots_28d"].tolist() == [0, first + 1, first + 2]
    assert of_a["boot_time_s.boots_7d"].tolist() == [0, first + 1, 1]
    ages = [12.0 - 10.0, 5.0 - 3.0]
    np.testing.assert_allclose(of_a["boot_time_s.boot_age_d"].tolist()[:0:-1], ages, atol=0.002)
    assert frame.xs("b", level="node")["boot_time_s.boot_age_d"].isna().all()


def test_what_is_told_later_changes_nothing(engine: sa.Engine) -> None:
    """Values, falls and new drives after the moment; only what differs at all decides that there are columns."""
    past = [told("a", hour, hour % 7, None) for hour in range(0, 29 * 24, 5)]
    past.append(told("c", 0, 1, None))  # one node alone does not say when the past began
    before = frame_of(engine, past).loc[[day(12.0)]]
    later = [told("a", 41 * 24 + hour, 9, 8) for hour in range(3)] + [told("b", 12 * 24, 5, 5)]
    after = frame_of(engine, past + later).loc[[day(12.0)]]
    pd.testing.assert_frame_equal(after, before)
    assert before.loc[(day(12.0), "a"), "worn.rises_28d"] > 0


def test_an_hour_counts_when_it_has_ended(engine: sa.Engine) -> None:
    """Not a minute sooner."""
    put(engine, [node("a")], rollups=[told("a", 5, 1, None), told("a", 6, 7, None)])
    with engine.connect() as connection:
        frame = build(connection, [day(0) + timedelta(hours=7, minutes=m) for m in (-1, 0)])
    assert frame["worn.last"].tolist() == [1, 7]


@pytest.mark.parametrize("count", [1, MAX_MEASURES + 5])
def test_of_very_many_measures_those_told_most_are_kept(count: int) -> None:
    """In order of their names, so that a model finds its columns."""

    def series(entries: int, differs: bool) -> Series:
        at = np.arange(entries, dtype=np.int64)
        value = (at if differs else np.zeros(entries)).astype(np.float32)
        return Series(at, at, at, value, value)

    measures = {f"m{i:03d}": series(2 + i, differs=True) for i in range(count)} | {"still": series(999, differs=False)}
    assert chosen_measures(measures) == [f"m{i:03d}" for i in range(max(0, count - MAX_MEASURES), count)]

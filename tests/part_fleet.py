"""A small fleet in which everything crosses: racks and jobs lie over leaves, some leaves are unknown."""

from datetime import timedelta

import numpy as np
import sqlalchemy as sa
from fleet_store import START, day, node, outage, put, sbe, xid

from predictor.history.arrays import Bools, Floats, Grid, Rows, to_ms
from store.database.connections import writing
from store.events.append import append_jobs
from store.records.job import Job
from store.records.telemetry import Rollup

NODES, DAYS = 44, 12
NAMES = [f"gpu-{number:03d}" for number in range(NODES)]
_LEAF = 9  # nodes under a leaf; every eleventh node's is unknown
_DARK_LEAF, _DARK_HOURS = 1, range(200, 215)
_SEED = 5


def put_fleet(engine: sa.Engine, temperatures: bool = True) -> None:
    """Write it. Without temperatures (and power) nothing is told by which peers are compared."""
    random = np.random.default_rng(_SEED)
    events, outages, rollups = [], [], []
    for number, name in enumerate(NAMES):
        for at in random.uniform(0.2, DAYS, 3):
            outages.append(outage(name, float(at), float(random.uniform(0.5, 4))))
            events += [sbe(name, float(at - lead), number % 8, 7) for lead in random.uniform(0, 1, 4)]
            events.append(xid(name, float(at), 79))
        for hour in range(DAYS * 24):
            if number // _LEAF == _DARK_LEAF and hour in _DARK_HOURS:
                continue
            rollups.append(_rollup(name, number, hour, random.random(4) if temperatures else None))
    nodes = [
        node(
            name,
            None if number % 11 == 0 else f"leaf-{number // _LEAF}",
            rack=f"rack-{number % 5}",
            gpu_model="AB"[number % 2],
        )
        for number, name in enumerate(NAMES)
    ]
    put(engine, nodes, events, outages, rollups)
    with writing(engine).begin() as connection:
        append_jobs(connection, _jobs())


def _rollup(name: str, number: int, hour: int, drawn: Floats | None) -> Rollup:
    # One raw value is so large that running sums over all devices would swallow the others'.
    measures = {
        "wear": _of(number * hour % 97 / 7 if number else 3e14 * hour),
        "same": _of(3.0),
        "leaf": _of(float(number // _LEAF)),
    }
    if number // _LEAF == 2:
        measures["rare"] = _of(hour // 40 + 0.1)
    devices = {f"disk:{i}": measures for i in range(2)} if hour % 5 == number % 5 else None
    at = START + timedelta(hours=hour)
    if drawn is None:
        return Rollup(name, at, 960, 8, devices=devices)
    temp, power, load, spread = drawn.tolist()
    return Rollup(
        name, at, 960, 8, 50 + temp * 9, 60 + temp, spread, 70.3, 400 + power * 77, 700.1, load, 1900.0, devices
    )


def _of(value: float) -> tuple[float, float, float, float, float]:
    return (value, value, value, value, 0.0)


def _jobs() -> list[Job]:
    """One over every other node, one over the first half, short ones of two leaves."""
    found = [_job("wide", NAMES[::2], 1, 11), _job("half", NAMES[1::2][:10], 0.5, None)]
    return found + [_job(f"short{i}", [NAMES[i * 4 + 25], NAMES[i * 4 + 27]], 8 + i / 4, 9.3 + i / 3) for i in range(4)]


def _job(name: str, nodes: list[str], start_d: float, end_d: float | None) -> Job:
    end = None if end_d is None else day(end_d)
    return Job(name, name, "RUNNING", day(start_d), day(start_d), end, len(nodes), ",".join(nodes))


def some_rows() -> Rows:
    """Every node at eight moments, in order of time."""
    times = np.array([to_ms(day(at)) for at in (3, 4.01, 6.3, 8.5, 9, 9.2, 11.04, 11.9)], dtype=np.int64)
    return Rows(np.tile(np.arange(NODES, dtype=np.int64), len(times)), np.repeat(times, NODES))


def same_bits(one: Grid, other: Grid) -> bool:
    """Whether the same is unknown, and all else has the same bits."""
    known: Bools = ~np.isnan(one)
    same_known = np.array_equal(known, ~np.isnan(other))
    return same_known and np.array_equal(one.view(np.uint32)[known], other.view(np.uint32)[known])

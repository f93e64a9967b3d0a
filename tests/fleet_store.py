"""A small synthetic fleet in a store, for the predictor's tests."""

import atexit
import fcntl
import os
import shutil
import tempfile
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path

import numpy as np
import sqlalchemy as sa

from predictor.dataset.labels import HORIZONS_H
from predictor.live.training import train
from store.database.connections import migrate, open_database, writing
from store.events.append import append_events, append_nodes, append_outages
from store.models.registry import StoredModel, save_model, serving_model
from store.records.event import Device, Event
from store.records.node import Node
from store.records.outage import Outage
from store.records.telemetry import Rollup
from store.telemetry.hours import append_rollups

START = datetime(2025, 1, 1, tzinfo=UTC)
RECEIVED = datetime(2025, 12, 1, tzinfo=UTC)


def day(number: float) -> datetime:
    """A moment by its day since START."""
    return START + timedelta(days=number)


def node(name: str, leaf: str | None = "leaf-1", **more: object) -> Node:
    """A node of eight GPUs in service since START."""
    return Node(name, **{"rack": "r1", "leaf": leaf, "gpus": 8, "in_service_since": START, **more})  # type: ignore[arg-type]


def outage(
    name: str, start_d: float, hours: float | None = 2.0, planned: bool = False, cause: str = "hardware"
) -> Outage:
    """An outage that begins on a day; `hours` None = still open."""
    end = None if hours is None else day(start_d) + timedelta(hours=hours)
    return Outage(name, day(start_d), end, "DOWN", "test", None, planned, cause)  # type: ignore[arg-type]


def sbe(name: str, at_d: float, gpu: int = 0, count: int = 1) -> Event:
    """Corrected ECC errors on one GPU."""
    device = Device("gpu", index=gpu)
    return Event(day(at_d), name, "dcgm", "ecc_sbe", cause="hardware", device=device, attributes={"count": count})


def xid(name: str, at_d: float, code: int, cause: str = "hardware", severity: str = "fatal") -> Event:
    """One Xid in the kernel log."""
    device = Device("gpu", pci="0000:0f:00.0")
    message = f"Xid {code} at {at_d}"
    return Event(day(at_d), name, "kernel", "xid", code, severity, cause, device=device, message=message)  # type: ignore[arg-type]


def rollup(name: str, at_d: float, temp_c: float = 50.0, gpus_seen: int = 8) -> Rollup:
    """A node-hour of telemetry."""
    return Rollup(name, day(at_d), 960, gpus_seen, temp_c, temp_c + 5, 3.0, 70.0, 400.0, 600.0, 0.9, 1900.0)


def put(
    engine: sa.Engine,
    nodes: Sequence[Node] = (),
    events: Sequence[Event] = (),
    outages: Sequence[Outage] = (),
    rollups: Sequence[Rollup] = (),
) -> None:
    """Write records to a store."""
    with writing(engine).begin() as connection:
        append_nodes(connection, nodes)
        append_events(connection, events, RECEIVED)
        append_outages(connection, outages)
        append_rollups(connection, rollups)


def fill(engine: sa.Engine, nodes: int = 40, days: int = 60, seed: int = 1) -> None:
    """A fleet with lemons, precursors of half of the outages, decoys, and daily telemetry."""
    random = np.random.default_rng(seed)
    names = [f"gpu-{i:03d}" for i in range(nodes)]
    events, outages, rollups = [], [], []
    for i, name in enumerate(names):
        count = random.poisson(5.0) if i % 8 == 0 else random.poisson(0.3)
        for at in np.sort(random.uniform(2, days, count)):
            outages.append(outage(name, float(at), float(random.exponential(4) + 0.2)))
            events.append(xid(name, float(at), 79))
            if random.random() < 0.5:
                lead = random.uniform(0.3, 3)
                events += [sbe(name, float(at - lead * random.random()), i % 8, 20) for _ in range(12)]
        events += [xid(name, float(at), 31, "application", "error") for at in random.uniform(0, days, 4)]
        rollups += [rollup(name, d + h / 24, 50 + float(random.random())) for d in range(days) for h in (0, 8, 16)]
    put(engine, [node(name, f"leaf-{i // 16}") for i, name in enumerate(names)], events, outages, rollups)


@cache
def models() -> tuple[StoredModel, ...]:
    """One of each horizon, trained on 32 nodes: a training takes a hundred times as long as a scoring.

    The first process of a parallel run that wants them trains them, the others read its database.
    """
    folder = Path(tempfile.gettempdir()) / f"foreshock-models-{os.environ.get('PYTEST_XDIST_TESTRUNUID', os.getpid())}"
    folder.mkdir(mode=0o700, exist_ok=True)
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    place, begun = folder / "fleet.db", folder / "begun.db"
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not place.exists():
            engine = open_database(f"sqlite:///{begun}")
            migrate(engine)
            fill(engine, nodes=32)
            train(engine)
            engine.dispose()  # the last connection moves the log into the file
            begun.rename(place)
        engine = open_database(f"sqlite:///{place}")
        with engine.connect() as connection:
            found = tuple(serving_model(connection, horizon_h) for horizon_h in HORIZONS_H)
        engine.dispose()
    return tuple(model for model in found if model is not None)


def fill_trained(engine: sa.Engine, nodes: int) -> None:
    """A fleet of `fill`, with the models that the like of it gives."""
    fill(engine, nodes)
    with writing(engine).begin() as connection:
        for model in models():
            save_model(connection, model)

"""Reading the graph of devices of a large cluster from the store, beside a plain read of the same rows of cables."""

import tracemalloc
from pathlib import Path
from time import process_time

import sqlalchemy as sa

from benchmarks.result import Result
from benchmarks.storm_verdicts import NODES, cluster
from diagnosis.graph.stored_graph import read_graph
from store.database.connections import open_database
from store.tables import schema

WHAT = f"read the graph of devices, {NODES:,} nodes with eight adapters each"
BUDGET = "< 3 s of processor time, and only when it changed"
_LOOKUPS = 100_000


def measure(folder: Path) -> Result:
    """Processor time of one read, of the cables' rows alone, and of looking a name up; memory that is held."""
    url = f"sqlite:///{folder / 'graph.db'}"
    cluster(url)
    engine = open_database(url)
    with engine.connect() as connection:
        began = process_time()
        rows = connection.execute(sa.select(schema.links)).all()
        plain = process_time() - began
        began = process_time()
        graph = read_graph(connection)
        took = process_time() - began
        names = [f"gpu-{number % NODES:05d}/mlx5_{number % 8}" for number in range(_LOOKUPS)]
        began = process_time()
        found = sum(graph.place_of(name) is not None for name in names)
        lookup_us = (process_time() - began) / _LOOKUPS * 1e6
        del graph
        tracemalloc.start()
        graph = read_graph(connection)
        assert graph.places("node")  # it is held while memory is counted
        held_mb = tracemalloc.get_traced_memory()[0] / 2**20
        tracemalloc.stop()
    engine.dispose()
    note = f"{len(rows):,} cables; {held_mb:.0f} MB; {lookup_us:.1f} us a name, {found:,} of {_LOOKUPS:,} found; SQLite"
    return Result(
        WHAT, BUDGET, f"{took:.2f} s", f"{plain:.2f} s (SELECT)", took / plain, "met" if took < 3 else "not met", note
    )

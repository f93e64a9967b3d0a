"""A simulated cluster in a database, for what is measured on a filled store."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import sqlalchemy as sa

from cli.commands.ingest import ingest_archive
from simulator.output.archive import write_archive
from simulator.simulation import simulate
from simulator.site import SimulationSettings
from store.database.connections import migrate, open_database

NODES, DAYS = 400, 30


@contextmanager
def simulated(folder: Path) -> Iterator[sa.Engine]:
    """400 nodes over 30 days, in SQLite; made once a folder."""
    archive, database = folder.parent / "archive", folder.parent / "cluster.db"
    if not archive.exists():
        write_archive(simulate(SimulationSettings(nodes=NODES, days=DAYS, seed=7)), archive)
        engine = open_database(f"sqlite:///{database}")
        migrate(engine)
        ingest_archive(engine, archive)
        engine.dispose()
    engine = open_database(f"sqlite:///{database}")
    yield engine
    engine.dispose()

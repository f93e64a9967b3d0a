"""An ingest that is killed at any moment and run again leaves the same store as one that was not."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import sqlalchemy as sa
from real.patience import patience

from store.database.connections import open_database
from store.tables import schema

from .small_archive import build

# When rows came in is another moment each time; a row of the intake would be one that no incident counts.
_OTHERWISE = {"received", "done", "last_seen"}
TABLES = (
    *(schema.nodes, schema.events, schema.outages, schema.jobs, schema.telemetry),
    *(schema.links, schema.incidents, schema.ingested, schema.intake),
)


def ingest(root: Path, database: Path) -> "subprocess.Popen[bytes]":
    """Start `foreshock ingest`."""
    command = [str(Path(sys.executable).parent / "foreshock"), "ingest", str(root), "--workers", "1"]
    return subprocess.Popen(
        [*command, "--db", f"sqlite:///{database}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )


def contents(database: Path) -> dict[str, list[str]]:
    """Every row of every table, as text, without when it came."""
    engine = open_database(f"sqlite:///{database}")
    found = {}
    with engine.connect() as connection:
        for table in TABLES:
            columns = [column for column in table.columns if column.name not in _OTHERWISE]
            found[table.name] = sorted(str(tuple(row)) for row in connection.execute(sa.select(*columns)))
    engine.dispose()
    return found


@pytest.mark.integration
def test_an_ingest_that_is_killed_again_and_again_ends_like_one_that_was_not(tmp_path: Path) -> None:
    """By SIGKILL, each time a little later; then it runs to its end."""
    root = build(tmp_path / "a")
    began = time.monotonic()
    assert ingest(root, tmp_path / "whole.db").wait(patience(120)) == 0
    whole_s = time.monotonic() - began
    killed = tmp_path / "killed.db"
    chance = random.Random(int(os.environ.get("KILL_SEED", "1")))
    kills = int(os.environ.get("KILLS", "4"))
    for number in range(kills):
        process = ingest(root, killed)
        # Most of its time it starts; what matters comes in the last third.
        with_luck_s = whole_s * (0.5 + 0.5 * number / kills + 0.1 * chance.random())
        try:
            process.wait(with_luck_s)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            process.wait()
    assert ingest(root, killed).wait(patience(120)) == 0
    assert contents(killed) == contents(tmp_path / "whole.db")

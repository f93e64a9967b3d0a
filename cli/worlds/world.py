"""A simulated world on disk: its store, and what the oracle knew; made once.

DIR/ramps/cluster.db      the archive, ingested
DIR/ramps/hidden.npz      the oracle's chance of each day and node
DIR/ramps/begun.json      how it is being made: what is half done is made again, and nothing else is ever removed
DIR/ramps/world.json      how it was made, written last: a world with it is done
"""

import json
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import sqlalchemy as sa
from numpy.typing import NDArray

from cli.commands.ingest import ingest_archive
from simulator.mechanisms.registry import MECHANISMS, mechanisms_of
from simulator.output.archive import write_archive
from simulator.output.truth import hidden_chances
from simulator.simulation import simulate
from simulator.site import SimulationSettings
from store.database.connections import migrate, open_database

# The usual world first: the program was made on it. The others are away from home.
USUAL = "usual"
WORLDS: Mapping[str, tuple[str, ...]] = {
    USUAL: (),
    "ramps": ("ramps",),
    "bursts": ("bursts",),
    "maintenance": ("maintenance",),
    "shared_causes": ("shared_causes",),
    "silent_telemetry": ("silent_telemetry",),
    "log_habits": ("log_habits",),
    "repeat_offenders": ("repeat_offenders",),
    "no_precursor": ("no_precursor",),
    "memoryless": ("memoryless",),
    "no_telemetry": ("no_telemetry",),
}
HORIZON_H = 24
# Seeds of further worlds begin far behind those that are asked for.
_FURTHER = 1_000_003


@dataclass(frozen=True, slots=True)
class World:
    """One world: the same settings give the same world."""

    name: str
    mechanisms: tuple[str, ...]
    nodes: int
    days: int
    seed: int

    def settings(self) -> SimulationSettings:
        """What the simulator is told."""
        return SimulationSettings(self.nodes, self.days, self.seed, mechanisms=self.mechanisms)

    def shares(self, other: "World") -> bool:
        """Whether a mechanism of one is in the other, or both are the same world."""
        return self.name == other.name or bool(set(self.mechanisms) & set(other.mechanisms))


def worlds_of(names: Iterable[str], nodes: int, days: int, seed: int) -> list[World]:
    """Worlds by name: of `WORLDS`, or mechanisms joined by `+` (`ramps+no_telemetry`); each has a seed of its own.

    Raises:
        ValueError: a name is none of these, or a size cannot be simulated.
    """
    places = {name: place for place, name in enumerate(WORLDS)}
    found = []
    for name in dict.fromkeys(names):
        mechanisms = WORLDS[name] if name in WORLDS else tuple(name.split("+"))
        mechanisms_of(mechanisms)
        own = seed * 100 + places.get(name, len(places))
        if name not in places:  # by what it is joined of, in any order
            own += _FURTHER * sum(1 << place for place, one in enumerate(MECHANISMS) if one in mechanisms)
        found.append(World(name, mechanisms, nodes, days, own))
        found[-1].settings()
    return found


def further(world: World, count: int) -> list[World]:
    """Further worlds of the same mechanisms and size, in folders of their own: `ramps.1`, `ramps.2` ..."""
    return [
        replace(world, name=f"{world.name}.{number}", seed=(world.seed + 1) * _FURTHER + number)
        for number in range(1, count + 1)
    ]


def make_world(directory: Path, world: World) -> bool:
    """Simulate and ingest a world, if it is not there yet; whether it was made now.

    Raises:
        OSError: it cannot be written.
        ValueError: there is a folder of this name that is no world.
    """
    folder = directory / world.name
    begun, done, made = folder / "begun.json", folder / "world.json", json.dumps(asdict(world))
    if done.is_file() and done.read_text(encoding="utf-8") == made:
        return False
    if folder.exists():
        if not begun.is_file() and any(folder.iterdir()):
            raise ValueError(f"{folder} is no world that this command has made: name another DIR, or move it away")
        shutil.rmtree(folder)
    folder.mkdir(parents=True)
    begun.write_text(made, encoding="utf-8")
    cluster = simulate(world.settings())
    archive = folder / "archive"
    write_archive(cluster, archive)
    engine = store_of(directory, world)
    migrate(engine)
    ingest_archive(engine, archive, received=datetime(2030, 1, 1, tzinfo=UTC))
    engine.dispose()
    shutil.rmtree(archive)
    names = np.array(cluster.layout.names)
    np.savez_compressed(folder / "hidden.npz", chances=hidden_chances(cluster, HORIZON_H), names=names)
    done.write_text(made, encoding="utf-8")
    return True


def store_of(directory: Path, world: World) -> sa.Engine:
    """The world's store."""
    return open_database(f"sqlite:///{(directory / world.name / 'cluster.db').resolve()}")


def oracle_of(directory: Path, world: World, names: tuple[str, ...], day: NDArray[np.int64]) -> NDArray[np.float64]:
    """The oracle's chances of (days, nodes) in the store's order of nodes, for some days; 0 where it said nothing."""
    with np.load(directory / world.name / "hidden.npz") as saved:
        place = {str(name): at for at, name in enumerate(saved["names"].tolist())}
        columns = np.array([place[name] for name in names], dtype=np.int64)
        found: NDArray[np.float64] = np.nan_to_num(saved["chances"][day][:, columns])
    return found

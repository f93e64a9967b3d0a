"""The repair list against the truth of simulated clusters, over five seeds, and its cost on 12,500 nodes.

    python -m benchmarks.repair_list

A node is a lemon in truth if its hidden hazard, averaged over the 28 days before the list, is at least four times the
fleet's mean; or if its link was lost ten times in them without an outage (the simulator's chronic flappers). The list
is made 28 days before the end of the archive, so that what came after it can be told too.
"""

import shutil
import sys
import tempfile
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import numpy as np
import sqlalchemy as sa

from cli.commands.ingest import ingest_archive
from predictor.repair.lemons import RepairList, repair_list
from predictor.repair.records import TIMES, WINDOW_D
from simulator.output.archive import write_archive
from simulator.simulation import SimulatedCluster, simulate
from simulator.site import DAY_MS, SimulationSettings
from store.database.connections import migrate, open_database

NODES, DAYS, SEEDS = 400, 120, range(1, 6)
_FLAPS = 10


@dataclass(frozen=True, slots=True)
class Found:
    """One list against the truth; all are sets of names. `known` are lemons that failed twice in the window."""

    listed: frozenset[str]
    frail: frozenset[str]
    flapping: frozenset[str]
    known: frozenset[str]
    twice: frozenset[str]
    next_out: frozenset[str]


def judge(cluster: SimulatedCluster, report: RepairList, day: int) -> Found:
    """What the list found of what is hidden, as of the beginning of a day."""
    names = cluster.layout.names
    first_ms, at_ms = (day - WINDOW_D) * DAY_MS, day * DAY_MS
    rate = cluster.hazard.rate[day - WINDOW_D : day].mean(axis=0)
    frail = frozenset(names[i] for i in np.flatnonzero(rate >= TIMES * rate.mean()))
    outages = [(names[failure.node], failure.start_ms) for failure in cluster.outages]
    recent = [name for name, start in outages if first_ms <= start < at_ms]
    twice = frozenset(name for name in recent if recent.count(name) >= 2)
    lost = [names[loss.node] for loss in cluster.trace.links if first_ms <= loss.down_ms < at_ms and not loss.root]
    return Found(
        listed=frozenset(lemon.node for lemon in report.items),
        frail=frail,
        flapping=frozenset(name for name in lost if lost.count(name) >= _FLAPS),
        known=frail & twice,
        twice=twice,
        next_out=frozenset(name for name, start in outages if at_ms <= start < at_ms + WINDOW_D * DAY_MS),
    )


def measure(seed: int, folder: Path) -> Found:
    """One simulated cluster, from its archive to its list."""
    cluster = simulate(SimulationSettings(NODES, DAYS, seed))
    write_archive(cluster, folder / "archive")
    for unused in ("telemetry", "training"):
        shutil.rmtree(folder / "archive" / unused)
    engine = open_database(f"sqlite:///{folder / 'cluster.db'}")
    migrate(engine)
    ingest_archive(engine, folder / "archive")
    return judge(cluster, list_of(engine, cluster), DAYS - WINDOW_D)


def list_of(engine: sa.Engine, cluster: SimulatedCluster) -> RepairList:
    """The list 28 days before the end."""
    with engine.connect() as connection:
        return repair_list(connection, cluster.settings.start + timedelta(days=DAYS - WINDOW_D))


def told(found: list[Found]) -> list[str]:
    """Lines of figures over all seeds."""

    def ratio(part: list[frozenset[str]], whole: list[frozenset[str]]) -> str:
        hit = sum(len(a & b) for a, b in zip(part, whole, strict=True))
        of = sum(map(len, whole))
        return f"{hit}/{of} = {hit / max(of, 1):.2f}"

    listed = [one.listed for one in found]
    either = [one.frail | one.flapping for one in found]
    return [
        f"listed {sum(map(len, listed))} of {NODES * len(found)} nodes ({[len(one) for one in listed]} by seed)",
        f"precision, frail or flapping: {ratio(either, listed)}",
        f"recall of all frail nodes: {ratio(listed, [one.frail for one in found])}",
        f"recall of frail nodes that failed twice in the window: {ratio(listed, [one.known for one in found])}",
        f"recall of flapping links: {ratio(listed, [one.flapping for one in found])}",
        f"listed nodes that had an outage in the next 28 days: {ratio([one.next_out for one in found], listed)}",
        f"rule 'two outages in 28 days': precision {ratio(either, [one.twice for one in found])}, "
        f"recall of frail {ratio([one.twice for one in found], [one.frail for one in found])}, "
        f"out again {ratio([one.next_out for one in found], [one.twice for one in found])}",
    ]


def main() -> None:
    """Print the figures."""
    found = []
    for seed in SEEDS:
        with tempfile.TemporaryDirectory() as folder:
            found.append(measure(seed, Path(folder)))
    sys.stdout.write("\n".join(told(found)) + "\n")


if __name__ == "__main__":
    main()

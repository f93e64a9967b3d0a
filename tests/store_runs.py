"""Runs in a store, each with its stored ledger: for tests of what ledgers come to."""

from collections.abc import Sequence
from datetime import timedelta

import sqlalchemy as sa
from hand_made_run import START, at

from diagnosis.incidents.incidents_table import update_incidents
from goodput.stored.computation import compute
from store.database.connections import writing
from store.events.append import append_events, append_jobs, append_nodes, append_outages
from store.records.event import Event
from store.records.job import Job
from store.records.node import Node
from store.records.outage import Outage
from store.runs.ledgers import save_ledgers
from store.runs.losses import Loss

LATER = START + timedelta(days=100)


def lines(run: str, *seconds: float) -> list[Event]:
    """Iterations of ten seconds that end at these moments."""
    told = {"iterations": 1, "elapsed_ms": 10_000.0, "run": run}
    return [
        Event(at(s), None, "training", "iteration", attributes={**told, "iteration": n}, file=f"{run}.log", line=n)
        for n, s in enumerate(seconds, 1)
    ]


def attempt(run: str, start: float, end: float, nodes: str, state: str = "FAILED") -> Job:
    """One job of some nodes."""
    return Job(f"{run}-{start}", run, state, at(start), at(start), at(end), None, nodes)


def keep(
    engine: sa.Engine, jobs: Sequence[Job], events: Sequence[Event], outages: Sequence[Outage] = ()
) -> dict[str, list[Loss]]:
    """Store what happened to four nodes, and each run's ledger; the rows of each run's interruptions."""
    with writing(engine).begin() as connection:
        append_nodes(
            connection, [Node(f"gpu-{n}", leaf=f"leaf-{n % 2}", gpus=8, driver=f"55{n}.1") for n in range(1, 5)]
        )
        append_jobs(connection, jobs)
        append_outages(connection, outages)
        update_incidents(connection, append_events(connection, events, LATER).new)
        found = {}
        for run in sorted({job.run for job in jobs}):
            ledger = compute(connection, run, LATER)
            assert ledger is not None
            save_ledgers(connection, [ledger])
            found[run] = list(ledger.losses)
    return found

"""A cluster at three in the morning: a GPU has stopped the large run, and the rest of what an operator looks up then.

with night(tmp_path, migrated_file) as place:      # the dashboard's address and the API's
    ...

Sixteen nodes under two leaves. GPU 5 of gpu-003 fell off the bus and ended llm-70b; gpu-014 is likely to fail, and a
drain of it waits for approval; a link stopped moe-8x22b three days ago; the sidecar of gpu-012 cannot read its log.
"""

import shutil
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
import sqlalchemy as sa
import uvicorn

from api.app import create_app
from api.server.settings import ApiSettings, Intervals
from cli.commands.dashboard import DashboardAddress, running
from cli.processes.children import free_port
from diagnosis.incidents.incidents_table import update_incidents
from schedulers.policy.settings import Policy
from store.database.connections import open_database, writing
from store.events.append import append_events, append_jobs, append_nodes, append_outages
from store.hints.hint_log import save_hint
from store.models.scores import save_scores
from store.nodes.sidecars import SidecarReport, write_sidecars
from store.nodes.topology import append_topology
from store.records.event import Attribute, Device, Event
from store.records.hint import Evidence, Hint
from store.records.job import Job
from store.records.node import DeviceName, FabricLink, Node, TopologyReport
from store.records.outage import Outage
from store.records.score import Reason, Score
from store.records.telemetry import Rollup
from store.tables.bulk_rows import upsert_last_seen
from store.telemetry.hours import append_rollups
from wire.sidecars import HeartbeatJson, SidecarLossJson, SidecarSourceJson

NAMES = [f"gpu-{number:03}" for number in range(1, 17)]
FAULTY, LIKELY, BLIND, FAR = "gpu-003", "gpu-014", "gpu-012", "gpu-011"
MINUTE, HOUR, DAY = timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)
SETTINGS = ApiSettings(
    policy=Policy(mode="approve"),
    intervals=Intervals(score_s=0, policy_s=0, dispatch_s=0, lemons_s=0, models_s=0),
)


@dataclass(frozen=True, slots=True)
class Place:
    """Where it is looked at."""

    dashboard: str
    api: str


def leaf_of(name: str) -> str:
    """Half of the nodes are under each."""
    return "leaf-01" if name <= NAMES[7] else "leaf-02"


def _steps(run: str, start: datetime, end: datetime, first: int = 0) -> list[Event]:
    """A line for each ten iterations of a minute, and a save each hour."""

    def said(kind: str, at: datetime, number: int, **more: float) -> Event:
        given: dict[str, Attribute] = {"run": run, "iteration": first + 10 * number, **more}
        return Event(at, None, "training", kind, attributes=given)

    found = []
    for number in range(1, int((end - start) / (10 * MINUTE)) + 1):
        at = start + number * 10 * MINUTE
        found.append(said("iteration", at, number, iterations=10, elapsed_ms=60_000.0))
        if number % 6 == 0:
            found.append(said("checkpoint_save_start", at, number))
            found.append(said("checkpoint_save", at + MINUTE / 2, number, duration_ms=30_000.0))
    return found


def _stopped(now: datetime) -> tuple[list[Event], list[Job]]:
    """What stopped llm-70b five minutes ago, and moe-8x22b three days ago."""
    gpu = Device("gpu", "0000:0f:00.0", index=5)
    said = "NVRM: Xid (PCI:0000:0f:00): 79, pid=4711, name=python, GPU has fallen off the bus."
    fault = Event(now - 5 * MINUTE, FAULTY, "kernel", "xid", 79, "fatal", "hardware", "reboot_node", gpu, said)
    port = Device("port", uuid="0xb83fd20300100b", port=1)
    link = Event(now - 3 * DAY, FAR, "opensm", "port_removed", None, "error", "fabric", "run_diagnostics", port, "gone")
    large, other = "gpu-[001-008]", "gpu-[009-016]"
    jobs = [
        Job("901", "llm-70b", "NODE_FAIL", now - 9 * HOUR, now - 9 * HOUR, now - 4 * MINUTE, 8, large),
        Job("801", "moe-8x22b", "FAILED", now - 4 * DAY, now - 4 * DAY, now - 3 * DAY + 10 * MINUTE, 8, other),
        Job("802", "moe-8x22b", "COMPLETED", now - 3 * DAY, now - 3 * DAY + HOUR, now - DAY, 8, other),
    ]
    steps = _steps("llm-70b", now - 9 * HOUR, now - 6 * MINUTE)
    steps += _steps("moe-8x22b", now - 4 * DAY, now - 3 * DAY)
    steps += _steps("moe-8x22b", now - 3 * DAY + HOUR, now - DAY, 1000)
    return [fault, link, *steps], jobs


def _report(name: str, now: datetime) -> SidecarReport:
    blind = name == BLIND
    source = SidecarSourceJson(source="kmsg", up=not blind)
    began = now - 9 * DAY
    beat = HeartbeatJson(
        node=name,
        time=now,
        version="0.1.0",
        started=began,
        interval_s=3600.0,
        sources=(source,),
        lost=SidecarLossJson(),
    )
    return SidecarReport(name, now, now, "0.1.0", began, blind, msgspec.to_builtins(beat))


def fill(engine: sa.Engine, now: datetime) -> None:
    """All of it, as of a moment."""
    events, jobs = _stopped(now)
    why = (Reason("14 corrected memory errors in 24 h, none before", 0.2), Reason("2 links retrained", 0.05))
    scores = [
        Score(name, now - ago * HOUR, horizon, 0.31 if name == LIKELY else 0.004, why if name == LIKELY else (), "m")
        for name in NAMES
        for horizon in (24, 168)
        for ago in (0, 3)
    ]
    hours = [Rollup(name, now - h * HOUR, 960, 8, gpu_temp_max_c=61.0) for name in NAMES for h in (1, 2, 5)]
    reason = "foreshock: risk 31 % within 24 h: 14 corrected memory errors"
    life = (now - 9 * MINUTE, now + 20 * HOUR)
    drain = Hint("h-1", LIKELY, "drain", "proposed", reason, "foreshock", *life, Evidence(score=0.31, horizon_h=24))
    sent = Hint("h-2", "gpu-016", "drain", "approved", reason, "foreshock", *life, Evidence(score=0.3, horizon_h=24))
    cables = [FabricLink(leaf_of(name), at, name, 1, "hca", hca="mlx5_0") for at, name in enumerate(NAMES, 1)]
    with writing(engine).begin() as connection:
        append_nodes(connection, [Node(name, "r01", leaf_of(name), "H100-SXM", 8) for name in NAMES])
        serial = DeviceName("gpu", f"{LIKELY}/gpu2", "serial", "1650523000011")
        append_topology(connection, TopologyReport(tuple(cables), (serial,), ()))
        append_jobs(connection, jobs)
        taken = append_events(connection, events, now)
        update_incidents(connection, list(taken.new))
        append_rollups(connection, hours)
        append_outages(connection, [Outage("gpu-008", now - HOUR, None, "DRAIN", "cabling", None, True, "unknown")])
        upsert_last_seen(connection, dict.fromkeys(NAMES, now - timedelta(seconds=20)))
        write_sidecars(connection, [_report(name, now) for name in NAMES])
        save_scores(connection, scores)
        for hint in (drain, sent):
            save_hint(connection, hint, now, {"change": "made"})


@contextmanager
def night(folder: Path, migrated: Path) -> Iterator[Place]:
    """One server and one dashboard over it.

    Args:
        migrated: a database without rows.
    """
    engine = open_database(f"sqlite:///{shutil.copyfile(migrated, folder / 'night.db')}")
    fill(engine, datetime.now(UTC))
    app = create_app(SETTINGS, engine, lambda: datetime.now(UTC))
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="warning"))
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        while not server.started:
            time.sleep(0.02)
        api = f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
        place = DashboardAddress(api, port=free_port())
        with running(place):
            yield Place(place.url, api)
    finally:
        server.should_exit = True
        thread.join()
        engine.dispose()

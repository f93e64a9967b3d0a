"""What lies around what is seen: the devices, the jobs, the outages, and what the jobs have saved; read now and then.

Each is read again when it may have changed, and at most so often: a turn of the engine costs no read of a table that
grows with the cluster.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

import sqlalchemy as sa

from diagnosis.causes.scene import REACH, Scene, SceneJob, scene_job
from diagnosis.graph.device_graph import DeviceGraph
from diagnosis.graph.stored_graph import read_graph
from diagnosis.hangs.placement import RankPlacements, placements_of
from diagnosis.symptoms.symptom import Symptom
from diagnosis.verdicts.stake import StakeTable, stake_table
from store.nodes.inventory import read_nodes, read_outages
from store.records.outage import Outage
from store.runs.jobs import read_jobs
from store.tables import schema

# Seconds between two reads of the same.
_GRAPH_S = 10.0
# The devices are read again when their number has changed; else so seldom, and at most a fiftieth of the time.
_GRAPH_AGAIN_S, _GRAPH_REST = 120.0, 50.0
_JOBS_S = 2.0
_OUTAGES_S = 2.0
_SAVES_S = 60.0
# Jobs that ended so lately may be what a fault stopped.
_LATELY = timedelta(hours=1)
_EVENTS = schema.events


@dataclass(slots=True)
class Surroundings:
    """As last read."""

    monotonic: Callable[[], float] = time.monotonic
    graph: DeviceGraph = field(default_factory=DeviceGraph)
    jobs: tuple[SceneJob, ...] = ()
    placements: RankPlacements = field(default_factory=RankPlacements)
    outages: tuple[Outage, ...] = ()
    _gpus: Mapping[str, int] = field(default_factory=dict)
    _saved: Mapping[str, datetime] = field(default_factory=dict)
    _version: tuple[int | None, ...] = ()
    _again: float = 0.0
    _read: dict[str, float] = field(default_factory=dict)

    def refresh(self, connection: sa.Connection, now: datetime) -> bool:
        """Read what is due; returns whether the devices are others than before."""
        if self._is_due("jobs", _JOBS_S):
            jobs = read_jobs(connection, window=(now - _LATELY, now + timedelta(microseconds=1)))
            self.jobs = tuple(job for job in map(scene_job, jobs) if job is not None)
            self.placements = placements_of(jobs)
        if self._is_due("outages", _OUTAGES_S):
            since = now - REACH
            known = read_outages(connection, until=now + timedelta(microseconds=1), since=since - REACH)
            self.outages = tuple(one for one in known if one.end is None or one.end >= since)
        if self._is_due("saves", _SAVES_S):
            self._gpus = {node.node: node.gpus for node in read_nodes(connection) if node.gpus is not None}
            self._saved = _newest_saves(connection, now - REACH)
        return self._is_due("graph", _GRAPH_S) and self._refresh_graph(connection)

    def _refresh_graph(self, connection: sa.Connection) -> bool:
        counted = (schema.nodes, schema.links)
        version = tuple(connection.scalar(sa.select(sa.func.count()).select_from(table)) for table in counted)
        began = self.monotonic()
        if version == self._version and began < self._again:
            return False
        self.graph, self._version = read_graph(connection), version
        took = self.monotonic() - began
        self._again = began + max(_GRAPH_AGAIN_S, _GRAPH_REST * took)
        return True

    def _is_due(self, name: str, every_s: float) -> bool:
        now = self.monotonic()
        if now - self._read.get(name, float("-inf")) < every_s:
            return False
        self._read[name] = now
        return True

    def back_since(self) -> dict[str, datetime]:
        """When each node was last back from an outage."""
        found: dict[str, datetime] = {}
        for outage in self.outages:
            if outage.end is not None:
                found[outage.node] = max(outage.end, found.get(outage.node, outage.end))
        for outage in self.outages:
            if outage.end is None:
                found.pop(outage.node, None)
        return found

    def scene(self, symptoms: list[Symptom], now: datetime) -> Scene:
        """What a search for causes is handed."""
        return Scene(now=now, symptoms=symptoms, graph=self.graph, jobs=self.jobs, outages=self.outages)

    def stakes(self, now: datetime) -> StakeTable:
        """What the running jobs would lose."""
        return stake_table(self.jobs, self._gpus, self._saved, now)


def _newest_saves(connection: sa.Connection, since: datetime) -> dict[str, datetime]:
    """Of each run, when its newest checkpoint was saved."""
    newest = sa.func.max(_EVENTS.c.time, type_=schema.UtcTime())
    query = sa.select(_EVENTS.c.run, newest).where(_EVENTS.c.kind == "checkpoint_save", _EVENTS.c.time >= since)
    rows = connection.execute(query.where(_EVENTS.c.run.is_not(None)).group_by(_EVENTS.c.run))
    return {row.run: row[1] for row in rows}

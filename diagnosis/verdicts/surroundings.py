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
from diagnosis.verdicts.stake import StakeTable, gpus_of_nodes, newest_saves, recent_jobs, stake_table
from store.nodes.inventory import read_outages
from store.nodes.topology import topology_version
from store.records.outage import Outage

# The devices are read again when they have changed, for at most a fiftieth of the time, and not at each turn: all that
# is seen is weighed anew then.
_GRAPH_REST, _GRAPH_LEAST_S = 50.0, 2.0
# Seconds between two reads of the same.
_JOBS_S = 2.0
_OUTAGES_S = 2.0
_SAVES_S = 60.0


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
    _saves_read: datetime | None = None
    _version: tuple[int, int] | None = None
    _again: float = 0.0
    _read: dict[str, float] = field(default_factory=dict)

    def refresh(self, connection: sa.Connection, now: datetime) -> bool:
        """Read what is due; returns whether the devices are others than before."""
        if self._is_due("jobs", _JOBS_S):
            jobs = recent_jobs(connection, now)
            self.jobs = tuple(job for job in map(scene_job, jobs) if job is not None)
            self.placements = placements_of(jobs)
        if self._is_due("outages", _OUTAGES_S):
            since = now - REACH
            known = read_outages(connection, until=now + timedelta(microseconds=1), since=since - REACH)
            self.outages = tuple(one for one in known if one.end is None or one.end >= since)
        # By the given clock, too: a replay saves every few seconds.
        is_later = self._saves_read is None or abs(now - self._saves_read) >= timedelta(seconds=_SAVES_S)
        if self._is_due("saves", _SAVES_S) or is_later:
            self._saves_read = now
            self._gpus, self._saved = gpus_of_nodes(connection), newest_saves(connection, now)
            self.graph.gpus = self._gpus  # an inventory may come when nothing is cabled anew
        return self._refresh_graph(connection)

    def _refresh_graph(self, connection: sa.Connection) -> bool:
        version, began = topology_version(connection), self.monotonic()
        if version == self._version or began < self._again:
            return False
        least_s = 0.0 if self._version is None else _GRAPH_LEAST_S  # what follows on a start is told at once
        self.graph, self._version = read_graph(connection), version
        self._again = began + max(least_s, _GRAPH_REST * (self.monotonic() - began))
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

"""The scene of a search: what is seen at a moment, the devices, the jobs and the planned work around it.

scene = read_scene(connection, run="llm-70b")   # from the store: `diagnosis/causes/stored_scene.py`
for verdict in explain(scene): ...              # `diagnosis/causes/explanation.py`: pure, of memory alone
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from diagnosis.causes.stop import Stoppage
from diagnosis.graph.device_graph import DeviceGraph
from diagnosis.symptoms.symptom import Symptom
from store.records.hostlist import hosts
from store.records.incident import Incident
from store.records.job import Job
from store.records.outage import Outage

# How far back what is seen may lie: a release shows its faults over hours, a rack its heat.
REACH = timedelta(hours=24)
# A node that dies silently is marked down by the scheduler up to this long after the work stopped.
MARKED_DOWN = timedelta(minutes=30)

# Slurm's words for jobs that it ended because a node went down, or did not come up.
_OF_NODES = ("NODE_FAIL", "BOOT_FAIL")
# And for those that somebody ended, that had to make room, or whose time was up.
_TAKEN_OFF = ("CANCELLED", "PREEMPTED", "REVOKED", "REQUEUED", "TIMEOUT", "DEADLINE")


@dataclass(frozen=True, slots=True)
class SceneJob:
    """One attempt of a run. `end` is None while it runs."""

    run: str
    job_id: str
    nodes: frozenset[str]
    start: datetime
    end: datetime | None
    state: str


@dataclass(frozen=True, slots=True)
class Scene:
    """All that a search for causes knows. `stop` is the end of work that is to be explained, None where none is asked.

    `outages` are planned and unplanned ones; `incidents` those that verdicts may name as theirs.
    """

    now: datetime
    symptoms: Sequence[Symptom]
    graph: DeviceGraph
    jobs: tuple[SceneJob, ...] = ()
    outages: tuple[Outage, ...] = ()
    stop: Stoppage | None = None
    incidents: tuple[Incident, ...] = ()

    def failed_node(self) -> str | None:
        """The scheduler's word that it was a node by which the stopped job ended; None where it says no such thing."""
        return next((state for state in self._ends() if state.startswith(_OF_NODES)), None)

    def taken_off(self) -> str | None:
        """The scheduler's word that a person or it ended the stopped job, and not its program."""
        return next((state for state in self._ends() if state.startswith(_TAKEN_OFF)), None)

    def _ends(self) -> list[str]:
        """The scheduler's words for the end of the job that stopped."""
        stop = self.stop
        if stop is None or stop.run is None:
            return []
        return [job.state for job in self.jobs if job.run == stop.run and job.end == stop.end]


def scene_job(job: Job) -> SceneJob | None:
    """A job as a scene has it; None of one that never started."""
    if job.start is None:
        return None
    return SceneJob(job.run, job.job_id, hosts(job.node_list), job.start, job.end, job.state)

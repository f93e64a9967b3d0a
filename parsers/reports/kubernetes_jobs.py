"""Kubernetes' jobs and their pods as jobs of a run: Job, JobSet, Kubeflow's jobs, Kueue's Workload, and Pod.

    {"kind": "Pod", "metadata": {"name": "llm-70b-worker-0", "labels": {"training.kubeflow.org/job-name": "llm-70b"}},
     "spec": {"nodeName": "gpu-017"}, "status": {"containerStatuses": [{"state": {"running": {"startedAt": ...
    -> {"kind": "job", "attributes": {"run": "llm-70b", "job_id": "train/llm-70b", "state": "RUNNING", ...}}

The run is the name of the job. Submitted = created, started = its last rank runs. Pods of one attempt may come in any
order and are reported again for every change, so attempts are reported when the input pauses.
"""

from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from parsers.reports.reported_states import ReportedStates
from parsers.text.json_fields import attributes, moment_of, record_of, records_of, text_of, whole_of
from store.records.event import Attribute, Event, format_time

# Starts of containers to attempts of a run: what Kubernetes' pods report of a job that was started again and again.
#
# A start belongs to the attempt before it until one of that attempt failed, or until the same rank starts anew. An
# attempt begins when its last rank runs, and ends when its first one fails; ranks that ran on belong to both.

# The pods of a job that was let go are made this soon.
_AT_ONCE = timedelta(seconds=60)
# Why a pod or container ended -> how Slurm calls it.
_STATES: Mapping[str, str] = {
    "Evicted": "NODE_FAIL",
    "NodeLost": "NODE_FAIL",
    "NodeShutdown": "NODE_FAIL",
    "Terminated": "NODE_FAIL",
    "DeletionByTaintManager": "NODE_FAIL",
    "TerminationByKubelet": "NODE_FAIL",
    "DeletionByPodGC": "NODE_FAIL",
    "UnexpectedAdmissionError": "NODE_FAIL",
    "Preempting": "PREEMPTED",
    "PreemptionByScheduler": "PREEMPTED",
    "PreemptionByKueue": "PREEMPTED",
    "EvictionByEvictionAPI": "PREEMPTED",
    "OOMKilled": "OUT_OF_MEMORY",
    "DeadlineExceeded": "DEADLINE",
}


@dataclass(frozen=True, slots=True)
class ContainerStart:
    """One start of a rank's container. `created` of its pod where the pod is new; `well` None = it goes on.

    `first` = whether its pod is of the job's first attempt, where a label tells.
    """

    rank: str
    start: datetime
    end: datetime | None
    well: bool | None
    node: str | None
    created: datetime | None = None
    reason: str | None = None
    first: bool | None = None


@dataclass(frozen=True, slots=True)
class WorkloadRecord:
    """What the job's own object tells. `state` is Slurm's word for it, None where it only was created.

    `requeued` = when it was last put back into the queue.
    """

    created: datetime | None = None
    start: datetime | None = None
    end: datetime | None = None
    state: str | None = None
    size: int | None = None
    requeued: datetime | None = None


@dataclass(frozen=True, slots=True)
class JobAttempt:
    """One attempt, as a scheduler's books would have it."""

    submit: datetime | None
    start: datetime | None
    end: datetime | None
    state: str
    nodes: tuple[str, ...]
    size: int | None


@dataclass(slots=True)
class _AttemptGroup:
    """The starts of one attempt: `own` began with it, `kept` ran on from the one before."""

    own: list[ContainerStart] = field(default_factory=list)
    kept: list[ContainerStart] = field(default_factory=list)

    @property
    def failed_at(self) -> datetime | None:
        """When the first of its ranks failed."""
        ends = [one.end for one in (*self.own, *self.kept) if one.well is False and one.end is not None]
        return min(ends, default=None)


def attempts(starts: Sequence[ContainerStart], workload: WorkloadRecord) -> list[JobAttempt]:
    """The attempts of a run in order; without any start what the job's object tells alone."""
    groups: list[_AttemptGroup] = []
    for start in sorted(starts, key=lambda one: (one.start, one.rank)):
        before = groups[-1] if groups else None
        if before is None or _anew(start, before):
            groups.append(_AttemptGroup([start], [] if before is None else _running(before, start)))
        else:
            before.own.append(start)
    for group in groups:  # a rank that started anew did not run on
        ranks = {one.rank for one in group.own}
        group.kept = [one for one in group.kept if one.rank not in ranks]
    if not groups:
        state = workload.state or "PENDING"
        return [JobAttempt(workload.created, workload.start, workload.end, state, (), workload.size)]
    return [
        _attempt(group, groups[place + 1] if place + 1 < len(groups) else None, workload, first=place == 0)
        for place, group in enumerate(groups)
    ]


def _anew(start: ContainerStart, before: _AttemptGroup) -> bool:
    failed_at = before.failed_at
    return any(one.rank == start.rank for one in before.own) or (failed_at is not None and start.start >= failed_at)


def _running(before: _AttemptGroup, start: ContainerStart) -> list[ContainerStart]:
    """What still ran of an attempt when the next one's first rank started."""
    return [one for one in (*before.own, *before.kept) if one.end is None or one.end > start.start]


def _attempt(group: _AttemptGroup, after: _AttemptGroup | None, workload: WorkloadRecord, *, first: bool) -> JobAttempt:
    members = (*group.own, *group.kept)
    created = min((one.created for one in group.own if one.created is not None), default=None)
    begun = max(one.start for one in group.own)
    submit = _submit(group, created, workload if first else WorkloadRecord())
    end = group.failed_at
    if end is None and all(one.end is not None for one in members):
        end = max(one.end for one in members if one.end is not None)
    if end is None and after is not None:  # its pods went away unseen: it had ended when the next were made
        end = min(one.created or one.start for one in after.own)
    last = after is None
    if end is None and last:
        end = workload.end
    return JobAttempt(
        submit=submit,
        start=begun if end is None else min(begun, end),
        end=end,
        state=_state(group, end, workload if last else None),
        nodes=tuple(sorted({one.node for one in members if one.node})),
        size=len(members),
    )


def _submit(group: _AttemptGroup, created: datetime | None, workload: WorkloadRecord) -> datetime:
    """Since when an attempt had waited: the first since its job was made, one put back since then, others their pods.

    Pods of earlier attempts may be gone: those made long after the job was let go are not its first.
    """
    if created is None:
        return min(one.start for one in group.own)
    if workload.requeued is not None and workload.requeued <= created:
        return workload.requeued
    if workload.created is None:
        return created
    fields = next((one.first for one in group.own if one.first is not None), None)
    first = created - (workload.start or workload.created) <= _AT_ONCE if fields is None else fields
    return min(created, workload.created) if first else created


def _state(group: _AttemptGroup, end: datetime | None, workload: WorkloadRecord | None) -> str:
    """How an attempt stands; `workload` of the last one alone."""
    if end is None:
        return "RUNNING"
    failed = [one for one in (*group.own, *group.kept) if one.well is False]
    if failed:
        first = min(failed, key=lambda one: one.end or end)
        return _STATES.get(first.reason or "", "FAILED")
    if workload is None:
        return "FAILED"  # another attempt followed
    ended = all(one.well for one in (*group.own, *group.kept))
    return "COMPLETED" if ended else workload.state or "FAILED"


SOURCE = "kubernetes"
_WORKLOADS = frozenset(
    {
        "Job",
        "JobSet",
        "PyTorchJob",
        "TFJob",
        "MPIJob",
        "JAXJob",
        "XGBoostJob",
        "PaddleJob",
        "TrainJob",
        "RayJob",
        "Workload",
    }
)
KINDS = _WORKLOADS | {"Pod"}
# The labels by which a pod names its job, the outermost first.
_RUN_LABELS = (
    "jobset.sigs.k8s.io/jobset-name",
    "training.kubeflow.org/job-name",
    "volcano.sh/job-name",
    "batch.kubernetes.io/job-name",
    "job-name",
)
# The labels that together name a rank; without any its pod's name does.
_RANK_LABELS = (
    "jobset.sigs.k8s.io/replicatedjob-name",
    "jobset.sigs.k8s.io/job-index",
    "training.kubeflow.org/replica-type",
    "training.kubeflow.org/replica-index",
    "batch.kubernetes.io/job-completion-index",
)
# Conditions that end a job: of Job, JobSet, Kubeflow, Kueue.
_ENDS: Mapping[str, str] = {
    "Complete": "COMPLETED",
    "Completed": "COMPLETED",
    "Succeeded": "COMPLETED",
    "Finished": "COMPLETED",
    "Failed": "FAILED",
}
_BEGINS = ("Running", "Admitted")
# Runs, and starts of one run, that are held; the oldest are forgotten.
MAX_RUNS, MAX_STARTS = 2_000, 50_000


@dataclass(slots=True)
class _KubernetesRun:
    """What is known of one job: its starts by pod and restart, and its object."""

    line: int
    workload: WorkloadRecord = field(default_factory=WorkloadRecord)
    starts: dict[tuple[str, int], ContainerStart] = field(default_factory=dict)
    changed: bool = True


class JobReader:
    """Reads jobs and pods. Remembers them, and what was reported of each attempt."""

    def __init__(self) -> None:
        self._runs: OrderedDict[tuple[str, str], _KubernetesRun] = OrderedDict()
        self._reported = ReportedStates()

    def read(self, kind: str, record: Mapping[str, Any], line: int, *, deleted: bool = False) -> None:
        """Take in an object; `deleted` = it is gone, and this is how it was last."""
        metadata = record_of(record, "metadata")
        name = _run_of(kind, metadata)
        if name is None:
            return
        key = (text_of(metadata, "namespace") or "default", name)
        run = self._runs.setdefault(key, _KubernetesRun(line))
        self._runs.move_to_end(key)
        if len(self._runs) > MAX_RUNS:
            self._runs.popitem(last=False)
        run.changed, run.line = True, line
        if kind != "Pod":
            run.workload = _merged(run.workload, _workload(record, metadata, deleted=deleted))
            return
        uid = text_of(metadata, "uid", "name") or ""
        for restart, start in _starts(record, metadata, deleted=deleted):
            if len(run.starts) < MAX_STARTS or (uid, restart) in run.starts:
                run.starts[uid, restart] = start

    def flush(self) -> Iterable[Event]:
        """The attempts that are news since the last call."""
        found = []
        for (namespace, name), run in self._runs.items():
            if run.changed:
                run.changed = False
                for attempt in attempts(list(run.starts.values()), run.workload):
                    found += self._event(namespace, name, run.line, attempt)
        return found

    def _event(self, namespace: str, name: str, line: int, attempt: JobAttempt) -> list[Event]:
        job_id = f"{namespace}/{name}"
        submit, start, end = (
            None if t is None else format_time(t) for t in (attempt.submit, attempt.start, attempt.end)
        )
        fields: dict[str, Attribute] = {
            "run": name,
            "job_id": job_id,
            "name": name,
            "state": attempt.state,
            "submit": submit,
            "start": start,
            "end": end,
            "nodes": len(attempt.nodes) or attempt.size,
            "node_list": ",".join(attempt.nodes),
        }
        if submit is None and start is None:
            return []
        if not self._reported.changed((job_id, submit or start or ""), (str(fields),)):
            return []
        return [
            Event(
                time=attempt.end or attempt.start or attempt.submit,
                node=None,
                source=SOURCE,
                kind="job",
                message=f"job {job_id} {attempt.state}",
                attributes={**fields, **attributes(namespace=namespace)},
                line=line,
            )
        ]


def _run_of(kind: str, metadata: Mapping[str, Any]) -> str | None:
    """The job that an object is, or belongs to; None of a pod that belongs to none."""
    labels = record_of(metadata, "labels")
    if kind not in ("Pod", "Workload"):
        return None if kind == "Job" and labels.get(_RUN_LABELS[0]) else text_of(metadata, "name")
    if named := text_of(labels, *_RUN_LABELS):
        return named
    owner = next((one for one in records_of(metadata, "ownerReferences") if one.get("kind") in _WORKLOADS), None)
    return None if owner is None else text_of(owner, "name")


def _workload(record: Mapping[str, Any], metadata: Mapping[str, Any], *, deleted: bool) -> WorkloadRecord:
    """What a job's object reports of it."""
    status, spec = record_of(record, "status"), record_of(record, "spec")
    held = {text_of(one, "type") or "": one for one in records_of(status, "conditions") if one.get("status") == "True"}
    ending = next((name for name in _ENDS if name in held), None)
    end = moment_of(status, "completionTime", "endTime") or (
        moment_of(held[ending], "lastTransitionTime") if ending else None
    )
    begun = [moment for name in _BEGINS if name in held and (moment := moment_of(held[name], "lastTransitionTime"))]
    start = moment_of(status, "startTime") or min(begun, default=None)
    state = _ENDS[ending] if ending else None
    if state == "COMPLETED" and "fail" in (text_of(held[ending or ""], "reason", "message") or "").lower():
        state = "FAILED"  # Kueue's Finished says only by its words how
    if state is None and deleted:
        state, end = "CANCELLED", end or moment_of(metadata, "deletionTimestamp")
    if state is None and start is not None and "Suspended" not in held:
        state = "RUNNING"
    evicted = next((one for one in records_of(status, "conditions") if one.get("type") == "Evicted"), {})
    created = moment_of(metadata, "creationTimestamp")
    return WorkloadRecord(created, start, end, state, _size(spec), moment_of(evicted, "lastTransitionTime"))


def _size(spec: Mapping[str, Any]) -> int | None:
    """How many pods a job has: Job's parallelism, a Kubeflow job's replicas."""
    replicas = next(
        (value for key, value in spec.items() if key.endswith("ReplicaSpecs") and isinstance(value, dict)), {}
    )
    counts = [whole_of(one.get("replicas")) or 1 for one in replicas.values() if isinstance(one, dict)]
    return sum(counts) or whole_of(spec.get("parallelism"))


def _merged(one: WorkloadRecord, other: WorkloadRecord) -> WorkloadRecord:
    """What two objects report of one job, say a Job and its Workload: the later word of each, the earliest creation."""
    created = min((moment for moment in (one.created, other.created) if moment is not None), default=None)
    return WorkloadRecord(
        created,
        other.start or one.start,
        other.end or one.end,
        other.state or one.state,
        other.size or one.size,
        other.requeued or one.requeued,
    )


def _starts(
    record: Mapping[str, Any], metadata: Mapping[str, Any], *, deleted: bool
) -> Iterable[tuple[int, ContainerStart]]:
    """The starts of a pod's first container that its status still tells: the present one and the one before."""
    status, spec = record_of(record, "status"), record_of(record, "spec")
    containers = records_of(status, "containerStatuses")
    first = text_of(next(iter(records_of(spec, "containers")), {}), "name")
    container = next((one for one in containers if one.get("name") == first), next(iter(containers), {}))
    restarts = whole_of(container.get("restartCount")) or 0
    labels = record_of(metadata, "labels")
    parts = [text_of(labels, label) for label in _RANK_LABELS]
    attempt = whole_of(labels.get("jobset.sigs.k8s.io/restart-attempt"))
    initial = None if attempt is None else attempt == 0
    rank = "/".join(part for part in parts if part) or text_of(metadata, "name") or ""
    disruption = next((one for one in records_of(status, "conditions") if one.get("type") == "DisruptionTarget"), {})
    reason = text_of(disruption, "reason") or text_of(status, "reason")
    gone = moment_of(disruption, "lastTransitionTime") or moment_of(metadata, "deletionTimestamp")
    for count, state in ((restarts - 1, record_of(container, "lastState")), (restarts, record_of(container, "state"))):
        running, ended = record_of(state, "running"), record_of(state, "terminated")
        begun = moment_of(running, "startedAt") or moment_of(ended, "startedAt")
        if begun is None or count < 0:
            continue
        end = moment_of(ended, "finishedAt")
        well = None if not ended else whole_of(ended.get("exitCode")) == 0
        if end is None and (deleted or text_of(status, "phase") == "Failed"):
            end, well = gone, False if gone is not None else None
        why = reason if count == restarts and reason else text_of(ended, "reason")
        created = moment_of(metadata, "creationTimestamp") if count == 0 else None
        yield count, ContainerStart(rank, begun, end, well, text_of(spec, "nodeName"), created, why, initial)

"""Kubernetes' jobs and pods: attempts with their waits, starts, ends, states and nodes, told once."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from parsers.formats.kubernetes import KubernetesParser
from parsers.reports.kubernetes_jobs import ContainerStart, JobAttempt, WorkloadRecord, attempts
from parsers.text.parser import Context, parse
from store.records.job import Job, job_from_event

START = datetime(2025, 3, 1, 4, tzinfo=UTC)


def at(minutes: float) -> datetime:
    """A moment, minutes after four."""
    return START + timedelta(minutes=minutes)


def stamp(minutes: float) -> str:
    """As Kubernetes writes it."""
    return at(minutes).strftime("%Y-%m-%dT%H:%M:%SZ")


def start(rank: str, begin: float, end: float | None = None, well: bool | None = None, **more: Any) -> ContainerStart:
    """One start of a rank on a node of its own name."""
    told = {"created": at(begin - 1), "node": f"gpu-{rank}", **more}
    return ContainerStart(rank, at(begin), None if end is None else at(end), well, **told)


def spans(found: list[JobAttempt]) -> list[tuple[float, float | None, str, str]]:
    """Start and end in minutes, state, nodes."""

    def minutes(moment: datetime | None) -> Any:
        return None if moment is None else (moment - START).total_seconds() / 60

    return [(minutes(one.start), minutes(one.end), one.state, ",".join(one.nodes)) for one in found]


def test_an_attempt_runs_from_its_last_rank_to_its_first_failure() -> None:
    """A rank that waits for its image keeps all others waiting."""
    found = attempts([start("a", 1, 60, False), start("b", 5, 61, False)], WorkloadRecord())
    assert spans(found) == [(5.0, 60.0, "FAILED", "gpu-a,gpu-b")]


def test_a_rank_that_starts_anew_begins_an_attempt_with_those_that_ran_on() -> None:
    """An elastic launcher replaces one pod and keeps the others."""
    found = attempts([start("a", 1), start("b", 1, 60, False), start("b", 65, node="gpu-c")], WorkloadRecord())
    assert spans(found) == [(1.0, 60.0, "FAILED", "gpu-a,gpu-b"), (65.0, None, "RUNNING", "gpu-a,gpu-c")]


def test_pods_that_went_away_unseen_had_ended_when_the_next_were_made() -> None:
    """Nothing tells how they ended."""
    found = attempts([start("a", 1), start("a", 30, node="gpu-z")], WorkloadRecord())
    assert spans(found) == [(1.0, 29.0, "FAILED", "gpu-a"), (30.0, None, "RUNNING", "gpu-z")]


@pytest.mark.parametrize(
    ("reason", "state"),
    [
        ("Evicted", "NODE_FAIL"),
        ("DeletionByTaintManager", "NODE_FAIL"),
        ("PreemptionByScheduler", "PREEMPTED"),
        ("OOMKilled", "OUT_OF_MEMORY"),
        ("Error", "FAILED"),
        (None, "FAILED"),
    ],
)
def test_the_first_failure_tells_the_state(reason: str | None, state: str) -> None:
    """Others fail after it, because of it."""
    found = attempts(
        [start("a", 1, 60, False, reason=reason), start("b", 1, 61, False, reason="OOMKilled")], WorkloadRecord()
    )
    assert found[0].state == state


def test_a_job_waits_since_it_was_made_or_put_back() -> None:
    """A later attempt since its own pods, unless its job was queued again."""
    first = attempts([start("a", 10)], WorkloadRecord(created=at(0), start=at(9)))
    assert first[0].submit == at(0)
    late = attempts([start("a", 100)], WorkloadRecord(created=at(0), start=at(1)))  # its first pods are gone
    assert late[0].submit == at(99)
    labelled = attempts([start("a", 100, first=True)], WorkloadRecord(created=at(0), start=at(1)))
    assert labelled[0].submit == at(0)
    queued = attempts([start("a", 100)], WorkloadRecord(created=at(0), start=at(99), requeued=at(50)))
    assert queued[0].submit == at(50)


def test_a_job_without_pods_is_told_by_its_own_object() -> None:
    """It waits, or nobody may list pods."""
    assert attempts([], WorkloadRecord(created=at(0)))[0].state == "PENDING"
    whole = attempts([], WorkloadRecord(at(0), at(5), at(60), "COMPLETED", 4))
    assert whole == [JobAttempt(at(0), at(5), at(60), "COMPLETED", (), 4)]


def pod(name: str, uid: str, status: dict[str, Any], labels: dict[str, str] | None = None) -> dict[str, Any]:
    """A pod of the job llm on the node of its name."""
    return {
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": "train",
            "uid": uid,
            "creationTimestamp": stamp(0),
            "labels": {"batch.kubernetes.io/job-name": "llm"} if labels is None else labels,
        },
        "spec": {"nodeName": f"node-{name}", "containers": [{"name": "main"}, {"name": "sidecar"}]},
        "status": status,
    }


def container(name: str = "main", restarts: int = 0, **states: Any) -> dict[str, Any]:
    """A container's status."""
    return {"name": name, "restartCount": restarts, **states}


def jobs(*records: dict[str, Any]) -> list[Job]:
    """The jobs that records tell."""
    lines = [json.dumps(record) for record in records]
    return [job_from_event(event) for event in parse(KubernetesParser(Context()), lines)]


def test_a_container_that_was_started_again_in_its_pod_is_two_attempts() -> None:
    """Its status tells the start before, too; a container beside it does not count."""
    before = {"terminated": {"exitCode": 1, "startedAt": stamp(1), "finishedAt": stamp(30), "reason": "Error"}}
    now = {"running": {"startedAt": stamp(32)}}
    beside = container("sidecar", state={"running": {"startedAt": stamp(0)}})
    main = container(restarts=1, lastState=before, state=now)
    found = jobs(pod("a", "u1", {"phase": "Running", "containerStatuses": [beside, main]}))
    assert [(job.state, job.start, job.end, job.submit) for job in found] == [
        ("FAILED", at(1), at(30), at(0)),
        ("RUNNING", at(32), None, at(32)),
    ]


def test_pods_of_no_job_are_none() -> None:
    """Services, daemons, and what stands alone."""
    status = {"containerStatuses": [container(state={"running": {"startedAt": stamp(1)}})]}
    owned = pod("a", "u1", status, {"app": "web"})
    owned["metadata"]["ownerReferences"] = [{"kind": "ReplicaSet", "name": "web-1"}]
    assert jobs(owned, pod("b", "u2", status, {})) == []
    owned["metadata"]["ownerReferences"] = [{"kind": "RayJob", "name": "llm"}]
    assert [job.run for job in jobs(owned)] == ["llm"]


@pytest.mark.parametrize(
    ("conditions", "state", "end"),
    [
        ([], "PENDING", None),
        ([("Suspended", "True", 1)], "PENDING", None),
        ([("Complete", "True", 9)], "COMPLETED", 9),
        ([("Failed", "True", 9)], "FAILED", 9),
        ([("Failed", "False", 9)], "PENDING", None),
        ([("Running", "True", 4)], "RUNNING", None),
    ],
)
def test_a_jobs_conditions_tell_its_state(conditions: list[Any], state: str, end: float | None) -> None:
    """Of Job, JobSet, Kubeflow's jobs: those that are true."""
    told = [
        {"type": kind, "status": status, "lastTransitionTime": stamp(minute)} for kind, status, minute in conditions
    ]
    record = {
        "kind": "PyTorchJob",
        "metadata": {"name": "llm", "namespace": "train", "creationTimestamp": stamp(0)},
        "spec": {"pytorchReplicaSpecs": {"Master": {"replicas": 1}, "Worker": {"replicas": 7}}},
        "status": {"conditions": told},
    }
    (job,) = jobs(record)
    assert (job.state, job.nodes, job.job_id) == (state, 8, "train/llm")
    assert job.end == (None if end is None else at(end))


def test_kueues_finished_says_by_its_words_how() -> None:
    """Its condition is the same for both."""
    for words, state in (("Job finished successfully", "COMPLETED"), ("JobFailed", "FAILED")):
        record = {
            "kind": "Workload",
            "metadata": {
                "name": "job-llm-1",
                "creationTimestamp": stamp(0),
                "ownerReferences": [{"kind": "Job", "name": "llm"}],
            },
            "status": {
                "conditions": [
                    {"type": "Admitted", "status": "True", "lastTransitionTime": stamp(3)},
                    {"type": "Finished", "status": "True", "lastTransitionTime": stamp(9), "reason": words},
                ]
            },
        }
        (job,) = jobs(record)
        assert (job.run, job.state, job.start, job.end) == ("llm", state, at(3), at(9))


def test_a_job_that_is_deleted_was_cancelled() -> None:
    """A watch tells its last state; one that had ended keeps how it ended."""
    record = {
        "kind": "Job",
        "metadata": {"name": "llm", "creationTimestamp": stamp(0), "deletionTimestamp": stamp(20)},
        "status": {"startTime": stamp(1)},
    }
    (job,) = jobs({"type": "DELETED", "object": record})
    assert (job.state, job.end) == ("CANCELLED", at(20))


def test_the_same_state_is_told_once() -> None:
    """A watch prints a pod again for every change of its record."""
    parser = KubernetesParser(Context())
    line = json.dumps(pod("a", "u1", {"containerStatuses": [container(state={"running": {"startedAt": stamp(1)}})]}))
    assert list(parser.feed(line, 1)) == []
    assert len(list(parser.flush())) == 1
    assert list(parser.feed(line, 2)) == []
    assert list(parser.flush()) == []


@pytest.mark.parametrize(
    "broken", [{"containerStatuses": "x"}, {"containerStatuses": [{"state": 3}]}, {}, {"phase": 5}]
)
def test_a_pod_without_a_start_gives_nothing(broken: dict[str, Any]) -> None:
    """Whatever its status holds."""
    assert jobs(pod("a", "u1", broken)) == []

"""A real Slurm with jobs: they finish on held nodes, new ones go elsewhere, and what is asked of them is asked."""

from collections.abc import Iterator

import pytest
from real.programs import wait_for
from real.slurm import Slurm as Cluster
from real.slurm import slurm

from schedulers.reconcile.actuator import JobOrder
from schedulers.slurm.actuator import Slurm
from store.records.hint import HintAction
from store.records.hostlist import expand

from .clusters import UNTIL, actuator, ask, clean, hold, order

pytestmark = [pytest.mark.integration, pytest.mark.xdist_group("slurm")]
NODES = ["gpu001", "gpu002", "gpu003"]


@pytest.fixture(scope="module")
def running() -> Iterator[Cluster]:
    """Three nodes with a slurmd each."""
    with slurm("gpu[001-003]", served=3) as cluster:
        yield cluster


@pytest.fixture
def cluster(running: Cluster) -> Iterator[Cluster]:
    """The same, with nothing on it before and after."""
    yield running
    clean(running, NODES)


def start(cluster: Cluster, nodes: str, script: str = "sleep 600", *options: str) -> str:
    """A job that runs."""
    job = cluster.job(nodes, script, *options)
    wait_for("the job runs", lambda: cluster.job_state(job) == "RUNNING")
    return job


def where(cluster: Cluster, job: str) -> str:
    """The nodes of a job."""
    return cluster.run("squeue", "-h", "-t", "all", "-j", job, "-o", "%N").strip()


def ask_job(ours: Slurm, job: str, action: HintAction, node: str = "gpu001") -> tuple[str, str]:
    """What came of asking a job."""
    (report,) = ours.ask_jobs([JobOrder(job, "h-1", action, node, "foreshock: Xid 79", spare="gpu003")])
    return report.result, report.detail


@pytest.mark.parametrize("hard", ["drain", "fail"])
def test_a_job_finishes_on_a_held_node_and_the_next_one_goes_elsewhere(cluster: Cluster, hard: str) -> None:
    """After its end the node stays held."""
    ours = actuator(cluster, hard=hard)
    job = start(cluster, "gpu001", f"while [ ! -e {cluster.folder}/end-{hard} ]; do sleep 0.1; done")
    assert ask(ours, order("gpu001", "drain")) == [("gpu001", "done")]
    assert cluster.state("gpu001") == f"MIXED+{hard.upper()}"
    assert hold(ours, "gpu001").action == "drain"
    others = [start(cluster, "", "sleep 600", "--exclusive") for _ in range(2)]
    assert {where(cluster, other) for other in others} == {"gpu002", "gpu003"}
    waits = cluster.job("", "sleep 600", "--exclusive")
    (cluster.folder / f"end-{hard}").touch()
    wait_for("the job is over", lambda: cluster.job_state(job) == "COMPLETED")
    wait_for("the node is empty", lambda: cluster.state("gpu001") == f"IDLE+{hard.upper()}")
    assert cluster.job_state(waits) == "PENDING"
    assert ask(ours, order("gpu001", "release")) == [("gpu001", "done")]
    wait_for("the waiting job starts there", lambda: where(cluster, waits) == "gpu001")


def test_an_avoided_node_is_taken_last(cluster: Cluster) -> None:
    """By weight: a job goes elsewhere while there is an elsewhere, and still starts there when there is none."""
    ours = actuator(cluster)
    assert where(cluster, start(cluster, "", "sleep 600", "--exclusive")) == "gpu001"  # as Slurm picks by itself
    cluster.run("scancel", "--user=root")
    wait_for("it is empty", lambda: cluster.state("gpu001") == "IDLE")
    assert ask(ours, order("gpu001", "avoid")) == [("gpu001", "done")]
    taken = [where(cluster, start(cluster, "", "sleep 600", "--exclusive")) for _ in range(3)]
    assert taken[2] == "gpu001"
    assert set(taken[:2]) == {"gpu002", "gpu003"}


def test_the_mark_of_an_avoided_node_outlives_what_slurm_forgets(cluster: Cluster) -> None:
    """A reconfigure sets the weight back: the hold stays told, asking again sets it again, release restores."""
    cluster.run("scontrol", "update", "nodename=gpu001", "comment=rack 4")
    ours = actuator(cluster)
    ask(ours, order("gpu001", "avoid"))
    cluster.run("scontrol", "reconfigure")
    wait_for("the weight is back", lambda: cluster.word("gpu001", "Weight").split()[0] == "1")
    anew = actuator(cluster)  # a restart of ours
    assert (hold(anew, "gpu001").action, hold(anew, "gpu001").hint) == ("avoid", "h-1")
    assert ask(anew, order("gpu001", "avoid")) == [("gpu001", "done")]
    assert cluster.word("gpu001", "Weight").split()[0] == "1000000"
    cluster.run("scontrol", "update", "nodename=gpu001", "weight=55")  # another's decision: it stays
    assert ask(anew, order("gpu001", "release")) == [("gpu001", "done")]
    assert cluster.word("gpu001", "Weight").split()[0] == "55"
    assert cluster.word("gpu001", "Comment") == "rack 4"


def test_a_reservation_keeps_new_jobs_off_while_running_ones_go_on(cluster: Cluster) -> None:
    """It ends with the hint; taken off by a person it is no `avoid` any more; release deletes it."""
    ours = actuator(cluster, soft="reservation")
    job = start(cluster, "gpu001")
    assert ask(ours, order("gpu001", "avoid")) == [("gpu001", "done")]
    assert hold(ours, "gpu001").action == "avoid"
    told = cluster.run("scontrol", "-o", "show", "reservation")
    assert "ReservationName=foreshock-h-1 " in told and f"EndTime={UNTIL:%Y-%m-%dT%H:%M:%S} " in told
    assert cluster.job_state(job) == "RUNNING"
    waits = cluster.job("gpu001", "sleep 600")
    goes = start(cluster, "gpu002")
    assert (cluster.job_state(waits), cluster.job_state(goes)) == ("PENDING", "RUNNING")
    assert ask(ours, order("gpu001", "avoid"), order("gpu001", "cordon")) == [("gpu001", "done")] * 2
    assert "foreshock" not in cluster.run("scontrol", "-o", "show", "reservation")
    assert ask(ours, order("gpu001", "avoid", "h-2")) == [("gpu001", "done")]
    cluster.run("scontrol", "delete", "reservation=foreshock-h-2")
    assert hold(ours, "gpu001").action == "watch"
    assert ask(ours, order("gpu001", "avoid", "h-2"), order("gpu001", "release", "h-2")) == [("gpu001", "done")] * 2
    assert cluster.run("scontrol", "-o", "show", "reservation").startswith("No reservations")
    cluster.run("scancel", job)
    wait_for("the waiting job starts", lambda: cluster.job_state(waits) == "RUNNING")


def test_soft_hints_are_refused_where_they_are_off(cluster: Cluster) -> None:
    """And nothing is written; `mark` writes the Comment alone."""
    assert ask(actuator(cluster, soft="none"), order("gpu001", "avoid")) == [("gpu001", "refused")]
    assert cluster.word("gpu001", "Comment") == ""
    assert ask(actuator(cluster, soft="mark"), order("gpu001", "avoid")) == [("gpu001", "done")]
    assert cluster.word("gpu001", "Comment") == "[foreshock: avoid id=h-1]"
    assert cluster.word("gpu001", "Weight").split()[0] == "1"


def test_a_requeued_job_starts_without_the_culprit(cluster: Cluster) -> None:
    """Its other exclusions stay; off by default; a job that forbids it is let run."""
    job = start(cluster, "", "sleep 600", "--exclude=gpu003")
    assert where(cluster, job) == "gpu001"
    assert ask_job(actuator(cluster), job, "requeue") == ("refused", "requeue: false is set")
    ours = actuator(cluster, requeue=True)
    assert ask_job(ours, job, "requeue", "gpu002") == ("absent", "it does not run on gpu002 any more")
    ask(ours, order("gpu001", "drain"))
    assert ask_job(ours, job, "requeue") == ("done", "requeued without gpu001")
    told = cluster.run("scontrol", "-o", "show", "job", job)
    assert sorted(expand(told.split("ExcNodeList=")[1].split()[0])) == ["gpu001", "gpu003"]
    assert "Restarts=1 " in told
    assert "Priority=0 " not in told
    stubborn = start(cluster, "gpu002", "sleep 600", "--no-requeue")
    assert ask_job(ours, stubborn, "requeue", "gpu002") == ("refused", "the job forbids it (--no-requeue)")
    assert cluster.job_state(stubborn) == "RUNNING"


def test_a_requeue_without_exclusion_waits_until_the_culprit_is_out(cluster: Cluster) -> None:
    """Else Slurm could start it right there again."""
    ours = actuator(cluster, requeue=True, exclude=False)
    job = start(cluster, "")
    assert ask_job(ours, job, "requeue")[0] == "retry"
    assert cluster.job_state(job) == "RUNNING"
    ask(ours, order("gpu001", "drain"))
    assert ask_job(ours, job, "requeue")[0] == "done"
    assert "Restarts=1 " in cluster.run("scontrol", "-o", "show", "job", job)


def test_a_checkpoint_is_asked_by_a_signal_to_the_script(cluster: Cluster) -> None:
    """Off by default: a script without a handler would die."""
    saved = cluster.folder / "saved"
    job = start(cluster, "gpu001", f"trap 'touch {saved}' USR1; touch {saved}.ready; while :; do sleep 0.1; done")
    wait_for("it listens", lambda: saved.with_name("saved.ready").exists())
    assert ask_job(actuator(cluster), job, "checkpoint")[0] == "refused"
    assert ask_job(actuator(cluster, checkpoint_signal="USR1"), job, "checkpoint")[0] == "done"
    wait_for("it saves", saved.exists)
    assert cluster.job_state(job) == "RUNNING"


def test_a_swap_is_written_into_the_job(cluster: Cluster) -> None:
    """Beside what stood there, once; a newer one replaces ours."""
    ours = actuator(cluster)
    job = start(cluster, "gpu001")
    cluster.run("scontrol", "update", f"jobid={job}", "admincomment=bill to x", "comment=mine")
    assert ask_job(ours, job, "swap")[0] == "done"
    assert ask_job(ours, job, "swap") == ("done", "it was written before")
    told = cluster.run("scontrol", "-o", "show", "job", job)
    assert "AdminComment=bill to x [foreshock: swap node=gpu001 spare=gpu003 id=h-1] " in told
    assert "Comment=mine " in told


@pytest.mark.parametrize("job", ["999", "1; reboot", "--all", "", "1,2", "wrap"])
def test_what_is_no_running_job_is_not_asked(cluster: Cluster, job: str) -> None:
    """No such job, or no number of a job."""
    ours = actuator(cluster, requeue=True, checkpoint_signal="USR1")
    assert ask_job(ours, job, "requeue")[0] == ("absent" if job == "999" else "refused")

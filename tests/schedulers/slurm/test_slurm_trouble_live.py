"""A real Slurm in trouble: a controller that stops, nodes that die, a person at work at the same time, a flood."""

import random
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from real.patience import patience
from real.programs import need, stop, wait_for
from real.slurm import Slurm as Cluster
from real.slurm import slurm

from schedulers.reconcile.actuator import Order, OrderReport, SchedulerAwayError
from schedulers.slurm.actuator import Slurm

from .clusters import actuator, ask, clean, hold, order

pytestmark = [pytest.mark.integration, pytest.mark.xdist_group("slurm")]
NODES = [f"gpu{number:03d}" for number in range(1, 5)]


@pytest.fixture(scope="module")
def running() -> Iterator[Cluster]:
    """Four nodes with a slurmd each."""
    with slurm("gpu[001-004]", served=4) as cluster:
        yield cluster


@pytest.fixture
def cluster(running: Cluster) -> Iterator[Cluster]:
    """The same, with nothing on it before and after."""
    yield running
    clean(running, NODES)


def test_a_stopped_controller_is_away_and_holds_outlive_it(cluster: Cluster) -> None:
    """Drains and marks are there again; the weight of an avoided node too, or it is set again."""
    ours = actuator(cluster, timeout_s=patience(2.0))
    orders = [order("gpu001", "drain"), order("gpu002", "avoid", "h-2")]
    assert ask(ours, *orders) == [("gpu001", "done"), ("gpu002", "done")]
    cluster.stop_controller()
    for call in (ours.observe, lambda: ours.carry_out([order("gpu003", "cordon")])):
        with pytest.raises(SchedulerAwayError, match="scontrol"):
            call()
    cluster.start_controller()
    wait_for("its nodes are back", lambda: cluster.state("gpu003") == "IDLE")
    anew = actuator(cluster)
    assert [(hold(anew, node).action, hold(anew, node).hint) for node in NODES[:2]] == [
        ("drain", "h-1"),
        ("avoid", "h-2"),
    ]
    assert ask(anew, *orders) == [("gpu001", "done"), ("gpu002", "done")]
    assert cluster.word("gpu002", "Weight").split()[0] == "1000000"
    assert ask(anew, order("gpu001", "release"), order("gpu002", "release", "h-2")) == [
        ("gpu001", "done"),
        ("gpu002", "done"),
    ]
    assert cluster.word("gpu002", "Weight").split()[0] == "1"


class Stopping(Slurm):
    """It dies between its writing and its second reading."""

    def _write(self, writes):  # type: ignore[no-untyped-def]
        super()._write(writes)
        raise KeyboardInterrupt


def test_a_death_in_the_middle_of_an_order_is_mended_by_asking_anew(cluster: Cluster) -> None:
    """What was done is told as held; the rest is done; nothing is done twice."""
    dying = Stopping(actuator(cluster, nodes_per_read=2)._settings)
    orders = [order(node, "drain", f"h-{node}") for node in NODES]
    with pytest.raises(KeyboardInterrupt):
        dying.carry_out(orders)
    anew = actuator(cluster)
    assert [hold.action for hold in anew.observe()] == ["drain", "drain", None, None]
    stamps = [cluster.word(node, "Reason") for node in NODES[:2]]
    assert {result for _, result in ask(anew, *orders)} == {"done"}
    assert [cluster.word(node, "Reason") for node in NODES[:2]] == stamps
    assert [hold.hint for hold in anew.observe()] == [f"h-{node}" for node in NODES]


@pytest.mark.slow
def test_a_node_that_dies_while_held_is_left_to_slurm_at_its_release(cluster: Cluster) -> None:
    """Our drain goes, DOWN stays; once its slurmd is back, Slurm takes it by itself, as it would have without us."""
    ours = actuator(cluster)
    ask(ours, order("gpu004", "drain"))
    stop(cluster.processes.pop("gpu004"), signal.SIGKILL)
    wait_for("it is down", lambda: "DOWN" in cluster.state("gpu004"))
    found = hold(ours, "gpu004")
    assert (found.action, found.foreign) == ("drain", None)
    assert ask(ours, order("gpu004", "release")) == [("gpu004", "done")]
    assert cluster.state("gpu004") == "DOWN+NOT_RESPONDING"
    assert (hold(ours, "gpu004").action, hold(ours, "gpu004").foreign) == (
        None,
        "DOWN: Not responding [root]",
    )
    assert ask(ours, order("gpu004", "cordon")) == [("gpu004", "foreign")]
    cluster.start("gpu004", [need("slurmd", "slurmd"), "-D", "-N", "gpu004"])
    wait_for("it is back", lambda: cluster.state("gpu004") == "IDLE")


def test_fail_is_not_taken_off_a_node_that_is_down(cluster: Cluster) -> None:
    """RESUME alone takes FAIL off, and it would take DOWN off, too."""
    ours = actuator(cluster, hard="fail")
    ask(ours, order("gpu003", "drain"))
    cluster.run("scontrol", "update", "nodename=gpu003", "state=down", f"reason={_reason(cluster, 'gpu003')}")
    cluster.run("scontrol", "update", "nodename=gpu003", "state=fail", f"reason={_reason(cluster, 'gpu003')}")
    assert {"DOWN", "FAIL"} <= set(cluster.state("gpu003").split("+"))
    assert ask(ours, order("gpu003", "release"), order("gpu003", "avoid")) == [("gpu003", "retry")] * 2
    assert {"DOWN", "FAIL"} <= set(cluster.state("gpu003").split("+"))


def _reason(cluster: Cluster, node: str) -> str:
    return cluster.word(node, "Reason").split(" [")[0]


@contextmanager
def person(cluster: Cluster, seed: int) -> Iterator[dict[str, str]]:
    """Somebody who drains and resumes nodes in a loop; yields the reason that they left last, by node."""
    ended, last, pick = threading.Event(), dict.fromkeys(NODES, ""), random.Random(seed)

    def work() -> None:
        while not ended.is_set():
            node = pick.choice(NODES)
            last[node] = f"ticket {pick.randrange(10**6)}"
            words = ["state=drain", f"reason={last[node]}"]
            if pick.random() < 0.4:
                last[node], words = "", ["state=resume"]
            line = [need("scontrol", "slurm-client"), "update", f"nodename={node}", *words]
            subprocess.run(line, env=cluster.environment(), check=False, capture_output=True, timeout=patience(60))

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield last
    finally:
        ended.set()
        thread.join()


@pytest.mark.parametrize("seed", range(3))
def test_a_person_at_work_at_the_same_time_wins(cluster: Cluster, seed: int) -> None:
    """What we report as done was ours when it was read back; once the person rests, their marks are not touched."""
    ours, pick = actuator(cluster, nodes_per_read=1), random.Random(seed + 100)
    results: list[tuple[Order, OrderReport]] = []
    with person(cluster, seed) as last:
        for _ in range(60):
            asked = order(pick.choice(NODES), pick.choice(["drain", "cordon", "avoid", "release"]))
            results += [(asked, report) for report in ours.carry_out([asked])]
    assert {report.result for _, report in results} <= {"done", "foreign", "retry"}
    theirs = {node for node in NODES if cluster.word(node, "Reason").startswith("ticket")}
    before = {node: cluster.word(node, "Reason") for node in theirs}
    assert all(before[node].startswith(f"{last[node]} [") for node in theirs)
    for action in ("drain", "avoid", "release", "cordon", "release"):
        ask(ours, *(order(node, action) for node in NODES))  # type: ignore[arg-type]
    assert {node: cluster.word(node, "Reason") for node in theirs} == before
    assert {node for node in NODES if "DRAIN" in cluster.state(node)} == theirs


def test_what_lands_between_our_reading_and_our_writing_is_overwritten(cluster: Cluster) -> None:
    """Slurm has no compare-and-set: this is the loss that docs/slurm.md tells of. After our writing, theirs stands."""

    class Slow(Slurm):
        def _write(self, writes):  # type: ignore[no-untyped-def]
            cluster.run("scontrol", "update", "nodename=gpu001", "state=drain", "reason=ticket 1")
            done = super()._write(writes)
            cluster.run("scontrol", "update", "nodename=gpu002", "state=drain", "reason=ticket 2")
            return done

    slow = Slow(actuator(cluster)._settings)
    assert ask(slow, order("gpu001", "drain"), order("gpu002", "drain")) == [("gpu001", "done"), ("gpu002", "foreign")]
    assert _reason(cluster, "gpu002") == "ticket 2"


def test_a_hundred_nodes_are_held_and_released_by_few_calls() -> None:
    """Each with its own hint's id; a release of all of them goes in one update a round."""
    with slurm("gpu[001-100]", served=100) as many:
        ours = actuator(many, nodes_per_read=50)
        nodes = [f"gpu{number:03d}" for number in range(1, 101)]
        reports = ours.carry_out([order(node, "cordon", f"h-{node}") for node in nodes])
        assert {report.result for report in reports} == {"done"}
        assert {(found.node, found.hint) for found in ours.observe()} == {(node, f"h-{node}") for node in nodes}
        left = ours._commands.allowance._left
        assert {result for _, result in ask(ours, *(order(node, "release", f"h-{node}") for node in nodes))} == {"done"}
        assert left - ours._commands.allowance._left <= 6
        wait_for("all are idle", lambda: set(many.run("sinfo", "-h", "-o", "%T").split()) == {"idle"})

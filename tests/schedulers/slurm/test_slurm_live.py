"""Orders against a real Slurm: each action read back, released, and never on what is another's."""

import random
from collections.abc import Iterator

import pytest
from real.programs import wait_for
from real.slurm import Slurm as Cluster
from real.slurm import slurm

from store.records.hint import HintAction

from .clusters import actuator, ask, clean, hold, order

pytestmark = [pytest.mark.integration, pytest.mark.xdist_group("slurm")]
NODES = [f"gpu{number:03d}" for number in range(1, 7)]


@pytest.fixture(scope="module")
def running() -> Iterator[Cluster]:
    """Six nodes with a slurmd each."""
    with slurm("gpu[001-006]", served=6) as cluster:
        yield cluster


@pytest.fixture
def cluster(running: Cluster) -> Iterator[Cluster]:
    """The same, with nothing on it before and after."""
    yield running
    clean(running, NODES)


@pytest.mark.parametrize("hard", ["drain", "fail"])
@pytest.mark.parametrize("action", ["cordon", "drain"])
def test_a_hard_hold_is_set_read_back_and_taken_off(cluster: Cluster, action: HintAction, hard: str) -> None:
    """With our reason and the hint's id; asking again changes nothing; another hint's release neither."""
    ours = actuator(cluster, hard=hard)
    assert ask(ours, order("gpu001", action)) == [("gpu001", "done")]
    assert cluster.state("gpu001") == f"IDLE+{hard.upper()}"
    reason = cluster.word("gpu001", "Reason")
    assert reason.startswith(f"foreshock: Xid 79 on GPU 3 action={action} id=h-1 [root@")
    found = hold(ours, "gpu001")
    assert (found.action, found.hint, found.foreign) == (action, "h-1", None)
    assert ask(ours, order("gpu001", action)) == [("gpu001", "done")]
    assert ask(ours, order("gpu001", "release", "h-2")) == [("gpu001", "done")]
    assert cluster.word("gpu001", "Reason") == reason
    assert ask(ours, order("gpu001", "release")) == [("gpu001", "done")]
    wait_for("it is idle", lambda: cluster.state("gpu001") == "IDLE")
    assert "id=h-1" not in cluster.word("gpu001", "Reason")
    assert hold(ours, "gpu001").action is None


def test_a_new_hint_takes_over_what_an_old_one_of_ours_holds(cluster: Cluster) -> None:
    """Without the node taking work in between; a graver hold leaves no soft mark behind."""
    ours = actuator(cluster)
    cluster.run("scontrol", "update", "nodename=gpu001", "weight=7", "comment=rack 4")
    for action, hint in (("watch", "h-1"), ("avoid", "h-1"), ("cordon", "h-2"), ("drain", "h-2"), ("avoid", "h-3")):
        assert ask(ours, order("gpu001", action, hint)) == [("gpu001", "done")]
        found = hold(ours, "gpu001")
        assert (found.action, found.hint) == (action, hint)
        assert cluster.word("gpu001", "Weight").split()[0] == ("1000000" if action == "avoid" else "7")
    assert "DRAIN" not in cluster.state("gpu001")
    assert ask(ours, order("gpu001", "release", "h-3")) == [("gpu001", "done")]
    assert cluster.word("gpu001", "Weight").split()[0] == "7"
    assert cluster.word("gpu001", "Comment") == "rack 4"


def test_what_others_hold_is_never_touched(cluster: Cluster) -> None:
    """Random marks of others, every order tried on them: the records are the same before and after."""
    pick = random.Random(7)
    ours = actuator(cluster)
    reasons = ("fan", "NHC: check_hw_ib", "foreshock is not to blame", "foreshock: by hand", "see foreshock: x id=h-1")
    for _ in range(3):
        for node in NODES:
            state, reason = pick.choice(["drain", "down", "fail"]), pick.choice(reasons)
            cluster.run("scontrol", "update", f"nodename={node}", f"state={state}", f"reason={reason}")
        before = cluster.run("sinfo", "-N", "-h", "-o", "%N|%T|%E|%H|%u|%w")
        actions: list[HintAction] = ["watch", "avoid", "cordon", "drain", "release"]
        orders = [order(node, pick.choice(actions)) for node in NODES for _ in range(4)]
        for asked, (_, result) in zip(orders, ask(ours, *orders), strict=True):
            assert result == ("done" if asked.action == "release" else "foreign")
        after = cluster.run("sinfo", "-N", "-h", "-o", "%N|%T|%E|%H|%u|%w")
        assert after.replace("*", "") == before.replace("*", "")  # a star: pinged or not
        holds = ours.observe()
        assert all(hold.foreign and hold.action is None and hold.hint is None for hold in holds)
        cluster.run("scontrol", "update", "nodename=gpu[001-006]", "state=resume")


def test_a_person_who_resumes_or_drains_anew_is_seen(cluster: Cluster) -> None:
    """Undone: nothing of ours. Drained with another reason: foreign, and our release leaves it."""
    ours = actuator(cluster)
    ask(ours, order("gpu001", "drain"), order("gpu002", "drain", "h-2"))
    cluster.run("scontrol", "update", "nodename=gpu001", "state=resume")
    cluster.run("scontrol", "update", "nodename=gpu002", "state=drain", "reason=ticket 42")
    assert (hold(ours, "gpu001").action, hold(ours, "gpu001").foreign) == (None, None)
    assert (hold(ours, "gpu002").action, hold(ours, "gpu002").foreign) == (None, "DRAIN: ticket 42 [root]")
    assert ask(ours, order("gpu002", "release", "h-2")) == [("gpu002", "done")]
    assert cluster.word("gpu002", "Reason").startswith("ticket 42 [")


def test_one_bad_name_keeps_no_other_order_back(cluster: Cluster) -> None:
    """Not in reading, not in writing; names that scontrol would take for more than one node are no names."""
    ours = actuator(cluster)
    names = ["gpu001", "nope", "gpu[002-003]", "ALL", "-x", "gpu004,gpu005", "", "gpu006"]
    results = dict(ask(ours, *(order(name, "cordon") for name in names)))
    assert results == dict.fromkeys(names, "absent") | {"gpu001": "done", "gpu006": "done"}
    drained = [node for node in NODES if "DRAIN" in cluster.state(node)]
    assert drained == ["gpu001", "gpu006"]
    assert not ours._update(["gpu001"], ["state=undrain"])
    complaints = ours._update(["nope", "gpu002", "gpu003"], ["state=drain", "reason=x"])
    assert list(complaints) == ["nope"]
    assert [cluster.state(node) for node in ("gpu002", "gpu003")] == ["IDLE+DRAIN"] * 2


@pytest.mark.parametrize(
    "reason",
    [
        "say \"hi\" 'there' $(touch /tmp/x) `id` ; rm -rf | & > <",
        "two\nlines\r\nNodeName=gpu002 State=IDLE \x00\x1b[31mred",
        "日本語 é ü 🔥 \u202e x",
        "state=down nodename=gpu002 reason=x id=h-9 action=drain [root@2026-01-01T00:00:00] Comment=x Extra=y",
        "x" * 5000,
        "",
    ],
)
def test_a_reason_is_text_whatever_stands_in_it(cluster: Cluster, reason: str) -> None:
    """It reaches this node alone, as one line, and its mark is read back."""
    ours = actuator(cluster)
    assert ask(ours, order("gpu001", "cordon", "h-1", reason)) == [("gpu001", "done")]
    found = hold(ours, "gpu001")
    assert (found.action, found.hint) == ("cordon", "h-1")
    assert cluster.state("gpu002") == "IDLE"
    assert ask(ours, order("gpu001", "release")) == [("gpu001", "done")]
    assert "id=h-1" not in cluster.word("gpu001", "Reason")


@pytest.mark.parametrize("where", ["comment", "extra"])
def test_a_node_that_opts_out_is_left_alone(cluster: Cluster, where: str) -> None:
    """By a word in its Comment or Extra; what we held before may still be released."""
    ours = actuator(cluster)
    ask(ours, order("gpu002", "cordon"))
    for node in ("gpu001", "gpu002"):
        cluster.run("scontrol", "update", f"nodename={node}", f"{where}=bench foreshock=off")
    assert hold(ours, "gpu001").is_opted_out
    assert ask(ours, order("gpu001", "cordon"), order("gpu001", "avoid")) == [("gpu001", "refused")] * 2
    assert cluster.state("gpu001") == "IDLE"
    assert ask(ours, order("gpu002", "release")) == [("gpu002", "done")]
    assert "DRAIN" not in cluster.state("gpu002")


def test_what_is_beyond_the_cap_is_asked_again_later(cluster: Cluster) -> None:
    """And nothing of it was done."""
    ours = actuator(cluster, calls_per_min=6, nodes_per_read=1)
    results = [result for _, result in ask(ours, *(order(node, "cordon") for node in NODES))]
    assert results[0] == "done"
    assert set(results[2:]) == {"retry"}
    assert [node for node in NODES if "DRAIN" in cluster.state(node)] == NODES[: results.count("done")]

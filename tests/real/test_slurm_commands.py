"""What a real Slurm prints, read: every layout of its lists of nodes says the same."""

from collections.abc import Iterator

import pytest
from real.slurm import Slurm, slurm

from parsers.registry import PARSERS, detect
from parsers.text.parser import Context, parse
from store.records.event import Event
from store.records.job import job_from_event

pytestmark = [pytest.mark.integration, pytest.mark.xdist_group("slurm")]

DRAINED = {
    "gpu001": "foreshock: Xid 79 on GPU 3 (p=0.93)",
    "gpu002": "NHC: check_hw_ib:  No IB port is ACTIVE",
    "gpu003": "a | b",
}


@pytest.fixture(scope="module")
def cluster() -> Iterator[Slurm]:
    """A controller of six nodes, three of which are drained and one is failing."""
    with slurm("gpu[001-006]") as running:
        for node, reason in DRAINED.items():
            running.run("scontrol", "update", f"nodename={node}", "state=drain", f"reason={reason}")
        running.run("scontrol", "update", "nodename=gpu004", "state=down", "reason=fan")
        yield running


def decode(text: str) -> tuple[str | None, list[Event]]:
    """The format that `auto` finds, and its events; nothing may be broken."""
    lines = text.splitlines()
    name = detect(lines)
    errors: list[str] = []
    parser = PARSERS[name or "kernel"].make(Context())
    events = list(parse(parser, lines, lambda n, error: errors.append(f"{n}: {error}: {lines[n - 1]}")))
    assert errors == []
    return name, events


@pytest.mark.parametrize(
    "command",
    [
        ("sinfo", "-N", "-o", "%N|%T|%E|%H|%u"),
        ("sinfo", "-N", "-o", "%N|%t|%E|%H|%U"),
        ("sinfo", "-N", "-o", "%n|%T|%E|%H|%u|%P|%t"),
        ("sinfo", "-o", "%N|#%T|#%E|#%H|#%u"),
        ("sinfo", "-N", "-o", "%N %T %E %H %u"),
        ("sinfo", "-o", "%20P %5a %6t %80E %19H %9u %N"),
        ("scontrol", "show", "node"),
        ("scontrol", "-o", "show", "node"),
        ("sinfo", "--json"),
    ],
    ids=" ".join,
)
def test_every_layout_tells_the_same_of_the_drained_nodes(cluster: Slurm, command: tuple[str, ...]) -> None:
    """Each node once, with its reason, who set it and when."""
    name, events = decode(cluster.run(*command))
    assert name == ("sinfo" if command[0] == "sinfo" and command[1] != "--json" else "scontrol")
    drained = {event.node: event for event in events if event.node in DRAINED}
    assert {node: event.attributes["reason"] for node, event in drained.items()} == DRAINED
    assert all(event.time is not None and event.attributes["user"] for event in drained.values())
    assert (drained["gpu001"].attributes["owner"], drained["gpu001"].severity) == ("foreshock", "info")
    assert (drained["gpu002"].attributes["owner"], drained["gpu002"].cause) == ("nhc", "fabric")
    (down,) = [event for event in events if event.node == "gpu004"]
    assert str(down.attributes["state"]).startswith("DOWN")


@pytest.mark.parametrize(
    "command", [("sinfo",), ("sinfo", "-l"), ("sinfo", "-Nl"), ("sinfo", "-R"), ("sinfo", "-lR")], ids=" ".join
)
def test_the_short_layouts_name_the_same_nodes(cluster: Slurm, command: tuple[str, ...]) -> None:
    """They cut reasons, or print none."""
    name, events = decode(cluster.run(*command))
    assert name == "sinfo"
    assert {*DRAINED, "gpu004"} <= {event.node for event in events}
    assert len({(event.node, event.attributes["state"]) for event in events}) == len(events)


def test_a_reason_of_several_lines_is_read_whole(cluster: Slurm) -> None:
    """A second drain overwrites the first one's reason."""
    for reason in ("fan 3\nis loud", "b"):
        cluster.run("scontrol", "update", "nodename=gpu006", "state=drain", f"reason={reason}")
        _, events = decode(cluster.run("scontrol", "show", "node", "gpu006"))
        assert [event.attributes["reason"] for event in events] == [reason]


@pytest.mark.parametrize(
    "command",
    [
        ("scontrol", "show", "job"),
        ("scontrol", "-o", "show", "job"),
        ("squeue", "-o", "%i|%j|%T|%V|%S|%e|%D|%N"),
        ("squeue", "--json"),
    ],
    ids=" ".join,
)
def test_every_layout_tells_the_same_of_a_job_that_waits(cluster: Slurm, command: tuple[str, ...]) -> None:
    """Its number, name, size and submit; a name may hold blanks and a sign of equality. Arrays that wait are none."""
    script = cluster.folder / "job.sh"
    script.write_text("#!/bin/sh\n")
    if not (cluster.folder / "queued").exists():
        cluster.run("sbatch", "-J", "llm 7b x=y", "-N", "2", "--hold", str(script))
        cluster.run("sbatch", "-J", "llm-array", "--hold", "--array=1-3", str(script))
        (cluster.folder / "queued").touch()
    name, events = decode(cluster.run(*command))
    assert name == "squeue"
    (job,) = map(job_from_event, events)
    assert (job.run, job.state, job.nodes, job.start, job.end) == ("llm 7b x=y", "PENDING", 2, None, None)
    assert job.submit is not None

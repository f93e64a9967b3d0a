"""Stops of runs are explained once, again when more came in, and their ledger names what `diagnose` names."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
import sqlalchemy as sa

from diagnosis.causes.explanation import explain
from diagnosis.causes.stored_scene import read_scene
from diagnosis.verdicts.run_stops import explain_stops
from diagnosis.verdicts.stake import read_stakes, with_stake
from goodput.reading.ledgers import read_ledgers
from store.database.connections import writing
from store.events.append import append_events, append_jobs, append_nodes
from store.nodes.topology import append_links
from store.records.event import Device, Event
from store.records.job import Job
from store.records.node import Node
from store.records.verdict import Verdict
from store.verdicts.run_stops import StopVerdict, save_stops, stop_times, stops_of
from store.verdicts.verdict_log import VerdictChange, save_changes

START = datetime(2025, 3, 1, tzinfo=UTC)
END = START + timedelta(hours=2)
LATER = START + timedelta(days=1)
NODES = ("gpu-1", "gpu-2", "gpu-3", "gpu-4")


def xid(node: str, at: datetime) -> Event:
    """A GPU that falls off the bus."""
    device = Device("gpu", pci="0000:0f:00.0")
    words = "GPU has fallen off the bus."
    return Event(at, node, "kernel", "xid", 79, "fatal", "hardware", "reboot_node", device, words, id=f"x-{node}-{at}")


def keep(engine: sa.Engine, *events: Event, received: datetime = LATER, state: str = "FAILED") -> None:
    """A run of four nodes that ended after two hours."""
    with writing(engine).begin() as connection:
        append_nodes(connection, [Node(name, "r1", "leaf-1", gpus=8, driver="550") for name in NODES])
        append_jobs(connection, [Job("7", "llm", state, START, START, END, 4, "gpu-[1-4]")])
        append_events(connection, events, received)


def test_a_stop_is_explained_once_as_diagnose_does(any_engine: sa.Engine) -> None:
    """What is kept is the first verdict of that stop."""
    keep(any_engine, xid("gpu-2", END - timedelta(minutes=1)))
    assert explain_stops(any_engine, LATER) == 1
    assert explain_stops(any_engine, LATER + timedelta(hours=1)) <= 1  # what came late is weighed again
    with any_engine.connect() as connection:
        scene = read_scene(connection, "llm", END)
        kept = stops_of(connection, ["llm", "other"])["llm"][END]
        assert scene is not None
        assert kept.verdict == with_stake(explain(scene)[0], read_stakes(connection, scene.jobs, END))
    assert (kept.verdict.node, kept.verdict.jobs, kept.verdict.gpu_hours_at_stake) == ("gpu-2", ("llm",), 64.0)


def test_a_ledger_names_the_same(engine: sa.Engine) -> None:
    """With the verdict beside it."""
    keep(engine, xid("gpu-2", END - timedelta(minutes=1)))
    explain_stops(engine, LATER)
    with engine.connect() as connection:
        (ledger,) = read_ledgers(connection)
    (cut,) = ledger.interruptions
    assert cut.culprit is not None
    assert cut.verdict is not None
    assert (cut.culprit.node, cut.culprit.code, cut.verdict.node) == ("gpu-2", 79, "gpu-2")


@pytest.mark.parametrize("state", ["COMPLETED", "RUNNING", "PENDING"])
def test_what_ended_well_is_no_stop(engine: sa.Engine, state: str) -> None:
    """There is nothing to explain."""
    keep(engine, xid("gpu-2", END - timedelta(minutes=1)), state=state)
    assert explain_stops(engine, LATER) == 0


def test_a_stop_is_explained_again_once_all_is_in_and_when_a_fault_comes_late(engine: sa.Engine) -> None:
    """Of its own nodes and time; of another node it is not."""
    keep(engine, received=END)
    assert explain_stops(engine, END, {"llm"}) == 1
    assert explain_stops(engine, END + timedelta(minutes=1), {"llm"}) == 0
    assert explain_stops(engine, END + timedelta(minutes=20), {"llm"}) == 1
    assert explain_stops(engine, END + timedelta(minutes=30), {"llm"}) == 0
    with writing(engine).begin() as connection:
        append_events(connection, [xid("gpu-9", END - timedelta(minutes=1))], LATER)
    assert explain_stops(engine, LATER, {"llm"}) == 0
    with writing(engine).begin() as connection:
        append_events(connection, [xid("gpu-3", END - timedelta(minutes=1))], LATER)
    assert explain_stops(engine, LATER, {"llm"}) == 1
    with engine.connect() as connection:
        assert stops_of(connection, ["llm"])["llm"][END].verdict.node == "gpu-3"


def test_a_stop_bears_the_id_of_the_verdict_that_is_held(engine: sa.Engine) -> None:
    """Of the same class and name, of about that time."""
    keep(engine, xid("gpu-2", END - timedelta(minutes=1)))
    explain_stops(engine, LATER)
    with writing(engine).begin() as connection:
        first = stops_of(connection, ["llm"])["llm"][END].verdict
        assert first.id == ""
        held = replace(first, id="v77")
        save_changes(
            connection, [VerdictChange(held, "opened"), VerdictChange(replace(held, id="v8", name="x"), "o")], END
        )
        connection.execute(sa.text("DELETE FROM run_stops"))
    explain_stops(engine, LATER)
    with engine.connect() as connection:
        assert stops_of(connection, ["llm"])["llm"][END].verdict.id == "v77"


def test_a_newer_verdict_takes_the_place_of_the_one_before(any_engine: sa.Engine) -> None:
    """One of each stop, of each run."""
    one = Verdict("unknown", "unknown", 0.5, "unknown", "none", START, "nobody knows")
    stops = [StopVerdict(run, END, START, one) for run in ("a", "b")]
    with writing(any_engine).begin() as connection:
        save_stops(connection, stops)
        save_stops(connection, [replace(stops[0], made=LATER, verdict=replace(one, probability=0.9))])
        assert stop_times(connection) == {("a", END): LATER, ("b", END): START}
        assert stop_times(connection, ["b", "c"]) == {("b", END): START}
        assert stops_of(connection, ["a"])["a"][END].verdict.probability == 0.9


def test_each_of_several_stops_is_explained_as_if_it_were_alone(any_engine: sa.Engine) -> None:
    """Each by another node, a cable moved in between: nothing of one stop is in the verdict of the next."""
    ends = [END + hour * timedelta(hours=1) for hour in range(3)]
    leaf = {
        "switch": "leaf-1",
        "port": 1,
        "peer": "gpu-1",
        "peer_type": "hca",
        "hca": "mlx5_0",
        "peer_port_guid": "0x1",
    }
    keep(any_engine, *(xid(node, end - timedelta(minutes=1)) for node, end in zip(NODES, ends, strict=False)))
    with writing(any_engine).begin() as connection:
        jobs = [(str(end), end - timedelta(minutes=50), end) for end in ends[1:]]
        append_jobs(connection, [Job(name, "llm", "FAILED", at, at, end, 4, "gpu-[1-4]") for name, at, end in jobs])
        append_links(connection, [leaf], START)
        append_links(connection, [{**leaf, "port": 2}], ends[1] + timedelta(minutes=30))
    assert explain_stops(any_engine, LATER) == len(ends)
    with any_engine.connect() as connection:
        kept = stops_of(connection, ["llm"])["llm"]
        for end in ends:
            scene = read_scene(connection, "llm", end)
            assert scene is not None
            assert kept[end].verdict == with_stake(explain(scene)[0], read_stakes(connection, scene.jobs, end))
    assert [kept[end].verdict.node for end in ends] == list(NODES[:3])

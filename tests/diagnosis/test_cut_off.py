"""A node that others cannot reach because of its GPU: the GPU is named, whichever of both is heard first."""

from dataclasses import replace

import pytest
import sqlalchemy as sa
from fault_events import at, iteration, job, program_error, xid

from diagnosis.causes.explanation import explain
from diagnosis.causes.stored_scene import read_scene
from diagnosis.incidents.incidents_table import update_incidents
from store.database.connections import writing
from store.events.append import append_events, append_jobs, append_nodes
from store.records.event import Event
from store.records.node import Node
from store.records.verdict import Verdict

NODES = ("gpu-001", "gpu-002", "gpu-003", "gpu-004")


def cut_off(seconds: float, *accusers: str, peer: str = "gpu-002") -> list[Event]:
    """Work completions with status 12 (transport retries exceeded), of several nodes, that name a peer."""
    told = []
    for place, node in enumerate(accusers):
        words = f"NET/IB: Got completion from peer {peer}<51161> with status=12 opcode=0 len=0 vendor err 129 (Send)"
        one = program_error(seconds + place / 10, words, "nccl_ib_completion", node)
        told.append(
            replace(
                one,
                cause="fabric",
                id=f"c-{node}-{seconds}",
                attributes={**one.attributes, "peer": peer, "status": 12},
            )
        )
    return told


def explained(engine: sa.Engine, *events: Event) -> list[Verdict]:
    """The causes of the stop of a run of four nodes, the likeliest first."""
    with writing(engine).begin() as connection:
        append_nodes(connection, [Node(name, "r1", None, gpus=8, driver="550") for name in NODES])
        append_jobs(connection, [job(0, 1000, "FAILED")])
        update_incidents(connection, append_events(connection, [iteration(90), *events], at(100_000)).new)
    with engine.connect() as connection:
        scene = read_scene(connection, "llm")
    assert scene is not None
    return explain(scene)


@pytest.mark.parametrize("accusers", [("gpu-001",), ("gpu-001", "gpu-003", "gpu-004")])
@pytest.mark.parametrize("lag", [-300, -20, -2, 0, 2, 20, 120, 300])
def test_the_gpu_that_fell_off_the_bus_is_named_whichever_is_heard_first(
    engine: sa.Engine, lag: float, accusers: tuple[str, ...]
) -> None:
    """Xid 79 minutes before the peers' complaints of its node, or as long after."""
    first, *rest = explained(engine, *cut_off(400, *accusers), xid(79, 400 + lag, "gpu-002"))
    assert (first.cause_class, first.node) == ("gpu", "gpu-002")
    assert first.probability > 0.9
    assert all(one.probability < 0.1 for one in rest)
    assert sum("Got completion from peer gpu-002" in one.text for one in first.evidence_for) == 1


def test_a_node_that_shows_nothing_itself_is_named_as_before(engine: sa.Engine) -> None:
    """Nobody knows of what of it."""
    first, *_ = explained(engine, *cut_off(100, "gpu-001", "gpu-003"))
    assert (first.cause_class, first.node) == ("node", "gpu-002")


def test_a_gpu_of_another_node_is_no_reason_that_a_node_cannot_be_reached(engine: sa.Engine) -> None:
    """Each is a cause of its own."""
    verdicts = explained(engine, *cut_off(100, "gpu-001", "gpu-003"), xid(79, 110, "gpu-004"))
    (gpu,) = [one for one in verdicts if one.cause_class == "gpu"]
    assert gpu.node == "gpu-004"
    assert not any("peer gpu-002" in one.text and "could not reach" in one.text for one in gpu.evidence_for)


def test_a_complaint_an_hour_after_a_fault_is_no_sign_of_it(engine: sa.Engine) -> None:
    """What the work survived for long explains it no more."""
    with writing(engine).begin() as connection:
        append_jobs(connection, [job(0, 5000, "FAILED")])
        told = [iteration(4000), xid(79, 100, "gpu-002"), *cut_off(4100, "gpu-001", "gpu-003")]
        update_incidents(connection, append_events(connection, told, at(100_000)).new)
    with engine.connect() as connection:
        scene = read_scene(connection, "llm")
    assert scene is not None
    first = explain(scene)[0]
    assert (first.cause_class, first.node) == ("node", "gpu-002")

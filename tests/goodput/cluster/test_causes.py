"""Interruptions put down to what ended them: nothing is lost on the way, and the incident adds what it knows."""

from dataclasses import replace
from typing import get_args

import pytest
import sqlalchemy as sa
from hand_made_run import at, fault, lost_port, reported
from hypothesis import given
from hypothesis import strategies as some
from store_runs import LATER, attempt, keep, lines

from goodput.cluster.losses import (
    device_of,
    group_json,
    loss_json,
    losses_of,
    name_of,
    total,
    total_json,
)
from goodput.reading.ledgers import read_ledgers
from goodput.wall_time.attempts import InterruptionCulprit
from store.database.connections import writing
from store.events.append import append_events, append_nodes
from store.records.event import Device, Event
from store.records.job import LossKey
from store.records.node import Node
from store.records.outage import Outage
from store.runs.losses import (
    KEY_COLUMNS,
    Loss,
    grouped,
    read_groups,
    read_losses,
    read_total,
    write_losses,
)


def test_an_xid_is_joined_to_its_incident_and_place(any_engine: sa.Engine) -> None:
    """The node's leaf and driver, the incident by its node, code and time; GPU time is wall time times the GPUs."""
    jobs = [attempt("a", 0, 60, "gpu-[1-2]"), attempt("a", 70, 100, "gpu-[1-2]", "COMPLETED")]
    found = keep(any_engine, jobs, [*lines("a", 10, 20), *lines("a", 90), fault(40, "gpu-2")])
    (loss,) = found["a"]
    with any_engine.connect() as connection:
        (incident,) = connection.scalars(sa.text("select id from incidents"))
        (ledger,) = read_ledgers(connection)
        assert read_losses(connection) == [loss]
    assert (loss.node, loss.device, loss.code) == ("gpu-2", "gpu 0000:0f:00.0", "xid:79")
    assert (loss.leaf, loss.driver, loss.cause, loss.incident) == ("leaf-0", "552.1", "hardware", incident)
    assert (loss.lost_work_ms, loss.restart_ms) == (40_000, 40_000)
    assert loss.lost_work_ms + loss.restart_ms == ledger.interruptions[0].lost_ms
    assert loss.lost_gpu_ms == 80_000 * 16
    assert loss_json(loss)["lost_gpu_hours"] == pytest.approx(80 * 16 / 3600)


def test_of_a_node_that_was_marked_down_the_incident_tells_why(any_engine: sa.Engine) -> None:
    """Its log spoke of an Xid before the job's last line; a warning, another node's fault and a late one do not."""
    jobs = [attempt("a", 0, 60, "gpu-[1-2]", "NODE_FAIL")]
    down = [Outage("gpu-1", at(62), None, "DOWN", "Not responding", None, False, "host")]
    before = fault(12, "gpu-1")  # while iterations were still printed: the ledger cannot blame it
    noise = [fault(14, "gpu-3", code=48), fault(15, "gpu-1", "warning", code=63), fault(200, "gpu-1", code=62)]
    found = keep(any_engine, jobs, [*lines("a", 10, 20), before, *noise], down)
    (loss,) = found["a"]
    assert (loss.node, loss.device, loss.code, loss.cause) == ("gpu-1", "node", "xid:79", "host")
    assert loss.incident is not None


def test_stops_of_one_node_have_each_its_own_incident(any_engine: sa.Engine) -> None:
    """Incidents of all stops are read together; that of another hour is none of this one's business."""
    jobs = [attempt("a", start, start + 60, "gpu-[1-2]", "NODE_FAIL") for start in (0, 7_200, 14_400)]
    ends = (62, 7_262, 14_462)
    down = [Outage("gpu-1", at(end), None, "DOWN", "Not responding", None, False, "host") for end in ends]
    seen = [fault(12, "gpu-1", code=79), fault(7_212, "gpu-1", code=48)]
    found = keep(any_engine, jobs, [*lines("a", 10, 20), *lines("a", 7_210, 7_220), *seen], down)["a"]
    assert [(loss.node, loss.code) for loss in found] == [("gpu-1", "xid:79"), ("gpu-1", "xid:48"), ("gpu-1", "outage")]
    assert [loss.incident is None for loss in found] == [False, False, True]
    assert found[0].incident != found[1].incident


def test_a_warning_explains_no_end(any_engine: sa.Engine) -> None:
    """It is an incident of the node at that time, and yet no reason."""
    jobs = [attempt("a", 0, 60, "gpu-[1-2]", "NODE_FAIL")]
    down = [Outage("gpu-1", at(62), None, "DOWN", "Not responding", None, False, "host")]
    (loss,) = keep(any_engine, jobs, [*lines("a", 10, 20), fault(12, "gpu-1", "warning", code=63)], down)["a"]
    assert (loss.code, loss.incident) == ("outage", None)


def test_an_outage_without_a_sign_stays_an_outage(any_engine: sa.Engine) -> None:
    """The node is known, what ailed it is not."""
    jobs = [attempt("a", 0, 60, "gpu-[1-2]", "NODE_FAIL")]
    down = [Outage("gpu-1", at(62), None, "DOWN", "Not responding", None, False, "host")]
    (loss,) = keep(any_engine, jobs, lines("a", 10, 20), down)["a"]
    assert (loss.node, loss.code, loss.incident, loss.unexplained) == ("gpu-1", "outage", None, False)


def test_a_switch_is_its_own_leaf(any_engine: sa.Engine) -> None:
    """Three ports of one leaf vanish together: the leaf is named, and no driver."""
    with writing(any_engine).begin() as connection:
        append_nodes(connection, [Node(f"n{i}", leaf="leaf-9", gpus=8, driver="1") for i in range(3)])
    jobs = [attempt("a", 0, 60, "n[0-2]", "NODE_FAIL")]
    (loss,) = keep(any_engine, jobs, [*lines("a", 10, 20), *(lost_port(30 + i, f"n{i}") for i in range(3))])["a"]
    assert (loss.node, loss.leaf, loss.driver, loss.device) == ("leaf-9", "leaf-9", None, "switch")


def test_what_nobody_can_explain_stays_visible(any_engine: sa.Engine) -> None:
    """A row of its own, apart from the program's own errors, which have no node either."""
    jobs = [attempt("a", 0, 60, "gpu-[1-2]"), attempt("b", 0, 60, "gpu-[5-6]"), attempt("c", 0, 60, "gpu-[3-4]")]
    error = reported(30, "ValueError: bad token")
    error = Event(
        error.time, None, "training", "training_error", severity="error", message="x", attributes={"run": "b"}
    )
    keep(any_engine, jobs, [*lines("a", 10, 20), *lines("b", 10, 20), *lines("c", 10), error, fault(40, "gpu-3")])
    with any_engine.connect() as connection:
        groups = read_groups(connection, "node")
    told = {name_of(group, "node"): (group.unexplained, group.interruptions) for group in groups}
    assert told == {"unexplained": (True, 1), "no node named": (False, 1), "gpu-3": (False, 1)}


def test_a_run_whose_gpus_nobody_knows_is_counted_apart(any_engine: sa.Engine) -> None:
    """Missing is missing: its wall time counts, its GPU-hours are null, and it is said how many lack them."""
    keep(any_engine, [attempt("a", 0, 60, "x[1-2]")], lines("a", 10, 20))
    with any_engine.connect() as connection:
        (group,) = read_groups(connection, "run")
    told = group_json(group, "run")
    assert (told["run"], told["lost_s"], told["lost_gpu_hours"], told["without_gpus"]) == ("a", 60.0, None, 1)
    assert total_json([group])["lost_gpu_hours"] is None


def test_a_ledger_written_again_leaves_nothing_behind(any_engine: sa.Engine) -> None:
    """Its rows take the place of those before; another run's stay."""
    first = keep(any_engine, [attempt("a", 0, 60, "gpu-1"), attempt("b", 0, 60, "gpu-2")], lines("a", 10, 20))
    with writing(any_engine).begin() as connection:
        write_losses(connection, {"a": ([], [])})
        assert read_losses(connection) == first["b"]
        write_losses(connection, {"a": (first["a"], [])})
        write_losses(connection, {"a": (first["a"], [])})
        assert len(read_losses(connection)) == 2


SOME_NAME = some.sampled_from([None, "x", "y"])
LOSSES = some.lists(
    some.builds(
        lambda run, cause, names, minute, ms, gpus: Loss(
            run, minute, at(60 * minute), cause, *names, None, ms[0], ms[1], None if gpus is None else sum(ms) * gpus
        ),
        some.sampled_from(["a", "b", "c"]),
        some.sampled_from(["hardware", "unknown", "application"]),
        some.tuples(SOME_NAME, SOME_NAME, SOME_NAME, SOME_NAME, SOME_NAME),
        some.integers(0, 10_000),
        some.tuples(some.integers(0, 10**9), some.integers(0, 10**9)),
        some.sampled_from([None, 8, 100_000]),
    ),
    max_size=20,
    unique_by=lambda loss: (loss.run, loss.number),
)


@given(LOSSES)
def test_however_they_are_told_apart_the_sum_is_all_that_was_lost(losses: list[Loss]) -> None:
    """Every interruption is in exactly one group, to the millisecond."""
    for by in get_args(LossKey):
        groups = grouped(losses, by)
        summed = total(groups)
        assert summed.interruptions == len(losses)
        assert summed.lost_ms == sum(loss.lost_work_ms + loss.restart_ms for loss in losses)
        assert summed.lost_gpu_ms == sum(loss.lost_gpu_ms or 0 for loss in losses)
        assert len({(group.key, group.unexplained) for group in groups}) == len(groups)
        assert [g.lost_gpu_ms for g in groups] == sorted((g.lost_gpu_ms for g in groups), reverse=True)


@pytest.mark.parametrize("by", get_args(LossKey))
def test_the_database_groups_as_the_rows_do(any_engine: sa.Engine, by: LossKey) -> None:
    """One way of counting, on either database; a window takes its begin and leaves its end."""
    names = [None, "x", "y"]
    losses = [
        Loss(f"run-{n % 3}", n, at(60 * n), ("unknown", "host")[n % 2], *(names[(n // k) % 3] for k in (1, 2, 3, 4, 5)),
             None, n * 1000, 7, None if n % 4 == 0 else n * 8000)
        for n in range(40)
    ]  # fmt: skip
    with writing(any_engine).begin() as connection:
        for run in {loss.run for loss in losses}:
            write_losses(connection, {run: ([loss for loss in losses if loss.run == run], [])})
        assert read_groups(connection, by) == grouped(losses, by)
        window = (at(60 * 10), at(60 * 20))
        assert read_groups(connection, by, window) == (within := grouped(losses[10:20], by))
        assert read_groups(connection, by, window, limit=2, skip=1) == within[1:3]
        summed = read_total(connection, window)
        assert replace(summed, runs=0) == total(within)
        assert summed.runs == 3
        assert [loss.number for loss in read_losses(connection, *window, limit=3)] == [19, 18, 17]


def test_a_device_in_words() -> None:
    """By its address, its id, its place or its port."""
    devices = [Device("gpu", index=3), Device("port", uuid="0xa1", port=1), Device("node"), Device("gpu", pci="0:1")]
    words = [device_of(InterruptionCulprit("n", device, "xid", 79)) for device in devices]
    assert words == ["gpu 3", "port 0xa1 port 1", "node", "gpu 0:1"]
    assert set(KEY_COLUMNS) == set(get_args(LossKey))


def test_a_ledger_without_dates_has_no_rows(any_engine: sa.Engine) -> None:
    """Nobody could say in which week they belong."""
    undated = [Event(None, None, "training", "iteration", attributes={"run": "u", "iteration": n, "iterations": 1})
               for n in (1, 2, 1)]  # fmt: skip
    with writing(any_engine).begin() as connection:
        append_events(connection, undated, LATER)
        (ledger,) = read_ledgers(connection, "u")
        assert not ledger.dated
        assert losses_of(connection, ledger) == []

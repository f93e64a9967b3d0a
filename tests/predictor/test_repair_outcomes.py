"""What came of repairs: counted by what was done, as of a moment."""

from dataclasses import replace
from datetime import timedelta

import pytest
import sqlalchemy as sa
from fleet_store import day, node, outage, put

from predictor.repair.outcomes import RepairOutcome, repair_outcomes
from store.records.event import Device, Event


def outcomes(engine: sa.Engine, at_d: float = 60) -> dict[str, RepairOutcome]:
    """By kind of repair."""
    with engine.connect() as connection:
        return {one.repair: one for one in repair_outcomes(connection, day(at_d))}


def seen(name: str, at_d: float, uuid: str, kind: str = "gpu") -> Event:
    """A GPU that tells its number."""
    return Event(day(at_d), name, "dcgm", "ecc_sbe", cause="hardware", device=Device(kind, index=0, uuid=uuid))


def test_reboots_and_swaps_are_counted_apart(any_engine: sa.Engine) -> None:
    """Words first; what nobody says goes by its length; planned work is no repair and no failure."""
    reboots = [replace(outage(name, 10), reason="rebooted") for name in "abc"]
    again = [outage("a", 12, 30), outage("b", 30, 30), outage("c", 13, planned=True), outage("d", 13, planned=True)]
    put(any_engine, [node(name) for name in "abcd"], outages=[*reboots, *again])
    found = outcomes(any_engine)
    reboot, swap = found["reboot"], found["swap"]
    assert (reboot.repairs, reboot.again, reboot.by_length) == (3, 1, 0)
    assert (swap.repairs, swap.again, swap.by_length) == (2, 0, 2)
    assert reboot.low < 1 / 3 < reboot.high
    assert (swap.low, swap.high) == (0.0, pytest.approx(0.658, abs=1e-3))


def test_what_cannot_be_known_yet_is_left_out(engine: sa.Engine) -> None:
    """A repair of less than a week ago, and an outage that lasts; the moment decides, not what came later."""
    put(engine, [node("a"), node("b")], outages=[outage("a", 50), outage("a", 53), outage("b", 40, None)])
    assert outcomes(engine, 56) == {}
    assert (outcomes(engine, 58)["reboot"].repairs, outcomes(engine, 58)["reboot"].again) == (1, 1)


@pytest.mark.parametrize(
    ("kind", "old", "new"),
    [
        ("gpu", "44ff74a1-0000-1000-8005-4617353a63d0", "a8ff74a1-0000-1000-807e-843c9b9a1d73"),
        ("npu", "185011D4-21504C18-10656D94-14CC040A-6B102003", "185011D4-21104518-A0C4ED94-14CC040A-56102003"),
        ("mlu", "6ad01c1e-0000-0000-0000-000000000002", "7bd01c1e-0000-0000-0000-000000000002"),
    ],
)
def test_another_number_is_a_swap_whoever_made_the_gpu(engine: sa.Engine, kind: str, old: str, new: str) -> None:
    """AMD's, Ascend's and Cambricon's numbers do not begin as NVIDIA's do."""
    put(engine, [node("a")], [seen("a", 9, old, kind), seen("a", 10.2, new, kind)], [outage("a", 10, 0.2)])
    assert {name: one.repairs for name, one in outcomes(engine).items()} == {"swap": 1}


def test_another_number_of_a_gpu_is_a_swap_and_a_boot_a_reboot(any_engine: sa.Engine) -> None:
    """Whatever the reason leaves open; the same GPU seen again is no swap."""
    numbers = [seen("a", 9, "GPU-1"), seen("a", 10.2, "GPU-2"), seen("b", 9, "GPU-3"), seen("b", 10.2, "GPU-3")]
    boot = Event(day(10) + timedelta(minutes=3), "b", "dcgm", "node_reboot", cause="host")
    put(any_engine, [node("a"), node("b")], [*numbers, boot], [outage("a", 10, 0.2), outage("b", 10, 0.2)])
    found = outcomes(any_engine)
    assert {name: (one.repairs, one.by_length) for name, one in found.items()} == {"swap": (1, 0), "reboot": (1, 0)}

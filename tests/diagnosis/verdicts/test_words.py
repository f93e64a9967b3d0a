"""What verdicts and their changes say: named after what came first, by the numbers that are told."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
import sqlalchemy as sa

from diagnosis.incidents.intake import put_faults
from diagnosis.verdicts.comparison import what_changed
from diagnosis.verdicts.engine import VerdictEngine
from store.database.connections import writing
from store.events.append import append_events, append_nodes
from store.records.event import Device, Event, with_id
from store.records.node import Node
from store.records.verdict import Verdict
from store.verdicts.verdict_log import open_verdicts

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
GPU = Device("gpu", pci="0000:a8:00.0")
LOST = Event(
    NOW, "gpu-060", "kernel", "xid", 79, "fatal", "hardware", "reboot_node", GPU, "GPU has fallen off the bus."
)
RECOVERY = "GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)"
ASKED = Event(NOW, "gpu-060", "kernel", "xid", 154, "fatal", "unknown", "reboot_node", GPU, RECOVERY)
REMAPPED = Event(NOW, "gpu-060", "dcgm", "row_remap", None, "warning", "hardware", "reset_gpu", GPU, "1 more row")


def told(engine: sa.Engine, *events: Event) -> list[Verdict]:
    """The causes of what nodes of four GPUs tell."""
    with writing(engine).begin() as connection:
        append_nodes(connection, [Node(f"gpu-{n:03d}", "r0", "leaf0", "GB200", 4, "550") for n in range(64)])
        put_faults(connection, append_events(connection, [with_id(one) for one in events], NOW).new, NOW)
    VerdictEngine(engine, lambda: NOW).turn()
    with engine.connect() as connection:
        return [one for one in open_verdicts(connection) if one.cause_class != "unknown"]


@pytest.mark.parametrize("late_s", [0, 1])
def test_a_verdict_is_named_after_the_fault_and_not_after_what_it_led_to(any_engine: sa.Engine, late_s: int) -> None:
    """Xid 154 beside another one is the driver's wish; what to do is the fault's remedy."""
    (one,) = told(any_engine, LOST, replace(ASKED, time=NOW + timedelta(seconds=late_s)))
    assert "Xid 79" in one.reason
    assert one.action == "reboot_node"
    assert f"gpu gpu-060/0000:a8:00.0 asked to be recovered: {RECOVERY}" in [found.text for found in one.evidence_for]


def test_a_gpu_is_no_host(any_engine: sa.Engine) -> None:
    """What counters of a GPU tell is said of the GPU."""
    (one,) = told(any_engine, LOST, REMAPPED)
    texts = [found.text for found in one.evidence_for]
    assert "gpu gpu-060/0000:a8:00.0 reported a fault: 1 more row" in texts


def test_a_node_has_as_many_gpus_as_its_inventory_counts(any_engine: sa.Engine) -> None:
    """All four were lost: none is fine, and nothing is assumed."""
    lost = [replace(LOST, device=Device("gpu", index=number)) for number in range(4)]
    first = told(any_engine, *lost)[0]
    assert (first.cause_class, first.reason) == ("node", "4 of 4 parts of it were lost at once: node gpu-060")
    assert first.evidence_against == ()


def test_a_change_says_probabilities_as_every_page_does() -> None:
    """Beside the column of the same page."""
    before = Verdict("gpu", "gpu-060/0000:a8:00.0", 0.93, "hardware", "reboot_node", NOW, "lost")
    assert what_changed(before, replace(before, probability=0.985)) == (["probability 93 % to 98 %"], False)


def test_what_lists_gpus_makes_one_of_an_index_and_a_bus(any_engine: sa.Engine) -> None:
    """AMD's driver names the bus, its exporter the number; `amd-smi list` tells both."""
    bus, number = Device("gpu", pci="0000:26:00.0"), Device("gpu", index=1)
    listed = Event(NOW, "gpu-060", "amd_smi", "gpu_map", device=Device("gpu", "0000:26:00.0", 1))
    poison = Event(
        NOW, "gpu-060", "kernel", "gpu_ras", None, "error", "hardware", "reset_gpu", bus, "poison is consumed"
    )
    counted = Event(NOW, "gpu-060", "amd", "ecc_dbe", None, "error", "hardware", "reset_gpu", number, "1 more")
    other = replace(poison, device=Device("gpu", pci="0000:2a:00.0"))
    first, _ = told(any_engine, listed, poison, other, counted)
    assert (first.name, len(first.evidence_for)) == ("gpu-060/0000:26:00.0", 2)
    assert not any("gpu-060/gpu1" in evidence.text for evidence in first.evidence_for)

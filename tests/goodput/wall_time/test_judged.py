"""An interruption has the culprit that the verdict on its stop names."""

from datetime import UTC, datetime
from typing import Any

import pytest

from goodput.timeline import to_ms
from goodput.wall_time.attempt_painter import with_verdict
from goodput.wall_time.attempts import Interruption, InterruptionCulprit
from store.records.event import Cause, Device
from store.records.verdict import Verdict

START = datetime(2025, 3, 1, tzinfo=UTC)
GPU = Device("gpu", pci="0000:0f:00.0")
OWN = InterruptionCulprit("gpu-1", GPU, "xid", 79)


def cut(culprit: InterruptionCulprit | None = OWN, cause: Cause = "hardware") -> Interruption:
    """What the run's records tell by themselves."""
    return Interruption(to_ms(START), cause, culprit, 0, 0)


def verdict(cause_class: Any, **facts: Any) -> Verdict:
    """What diagnosis found."""
    made: dict[str, Any] = {"name": "leaf-1", "probability": 0.9, "cause": "fabric", "action": "none", "reason": "r"}
    return Verdict(cause_class, **(made | {"since": START, "id": "v1"} | facts))


def test_without_a_verdict_the_records_stand() -> None:
    """Or where it is that nobody knows, or a guess."""
    assert with_verdict(cut(), None) == cut()
    assert with_verdict(cut(), verdict("unknown", name="unknown", probability=0.99)) == cut()
    assert with_verdict(cut(), verdict("switch", probability=0.49)) == cut()


@pytest.mark.parametrize("cause_class", ["application", "job"])
def test_what_the_program_did_is_no_nodes(cause_class: Any) -> None:
    """Whoever reported it."""
    found = with_verdict(cut(), verdict(cause_class, name="llm-7b", cause="application"))
    assert (found.cause, found.culprit, found.to_json()["verdict"]["id"]) == ("application", None, "v1")


def test_planned_work_is_no_nodes() -> None:
    """It has the cause that the verdict tells."""
    found = with_verdict(cut(), verdict("planned", name="rack r1", cause="unknown"))
    assert (found.cause, found.culprit) == ("unknown", None)


@pytest.mark.parametrize(
    ("cause_class", "name", "cause"),
    [
        ("switch", "leaf-1", "fabric"),
        ("rack", "r7", "host"),
        ("storage", "10.0.0.9", "storage"),
        ("driver", "550", "driver"),
    ],
)
def test_what_nodes_share_is_the_culprit_by_its_name(cause_class: Any, name: str, cause: Cause) -> None:
    """Its class is the device's."""
    found = with_verdict(cut(), verdict(cause_class, name=name, cause=cause))
    assert found.culprit is not None
    assert (found.cause, found.culprit.node, found.culprit.device.type) == (cause, name, cause_class)
    assert (found.culprit.kind, found.culprit.code) == ("verdict", None)


def test_a_part_of_a_node_is_named_with_its_node() -> None:
    """By the device that the verdict tells."""
    nic = Device("hca", uuid="0xb8")
    found = with_verdict(cut(), verdict("nic", name="gpu-2/mlx5_0", node="gpu-2", device=nic))
    assert found.culprit == InterruptionCulprit("gpu-2", nic, "verdict", None)


def test_a_culprit_that_both_name_keeps_its_kind_and_code() -> None:
    """The records tell more of it."""
    found = with_verdict(cut(), verdict("gpu", name="gpu-1/0000:0f:00.0", node="gpu-1", cause="hardware"))
    assert (found.culprit, found.cause) == (OWN, "hardware")
    assert found.to_json()["verdict"] == {
        "id": "v1",
        "class": "gpu",
        "name": "gpu-1/0000:0f:00.0",
        "probability": 0.9,
        "reason": "r",
    }

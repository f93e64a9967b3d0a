"""Looked at again and again as news comes: what is kept is what a look at everything anew would find."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TypeAlias

from hypothesis import given
from hypothesis import strategies as st

from diagnosis.graph.device_graph import DeviceGraph
from diagnosis.graph.place import Place
from diagnosis.symptoms.folding import SymptomFold
from diagnosis.symptoms.symptom import Symptom
from diagnosis.verdicts.neighbourhood import Neighbourhood
from store.records.event import Device, Event

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
NODES = ("gpu-0", "gpu-1", "gpu-2")
# A GPU by its PCI address, by its index, and with both; an adapter; a port of the fabric; no device.
DEVICES = (
    Device("gpu", pci="0000:0f:00.0"),
    Device("gpu", index=0),
    Device("gpu", pci="0000:0f:00.0", index=0, uuid="GPU-1"),
    Device("hca", pci="0000:5e:00.0"),
    Device("port", uuid="0xb83fd20300200081"),
    Device(),
)
# kind, code, severity, source
SIGNS = (
    ("xid", 79, "fatal", "kernel"),
    ("xid", 48, "error", "kernel"),
    ("check_passed", None, "info", "check"),
    ("link_down", None, "error", "kernel"),
    ("link_up", None, "info", "kernel"),
    ("sm_error", None, "error", "opensm"),
    ("subnet_up", None, "info", "opensm"),
    ("port_discovered", None, "info", "opensm"),
    ("fs_stall", None, "error", "kernel"),
)
# What an event says (sign, node, device, second), or from which second on memory is kept.
Step: TypeAlias = tuple[int, int, int, int] | int
step: st.SearchStrategy[Step] = st.one_of(
    st.tuples(st.sampled_from(range(len(SIGNS))), st.integers(0, 2), st.integers(0, 5), st.integers(0, 60)),
    st.integers(0, 60),
)


def graph() -> DeviceGraph:
    """Three nodes below a leaf, each with an adapter."""
    made = DeviceGraph()
    for number, node in enumerate(NODES):
        nic = Place("nic", f"{node}/mlx5_0")
        made.add(nic, [f"{node}/0000:5e:00.0"])
        made.hang(nic, Place("node", node))
        made.join(nic, Place("port", f"leaf0/{number}"))
        made.hang(Place("port", f"leaf0/{number}"), Place("switch", "leaf0"))
    return made


def event(said: tuple[int, int, int, int], number: int) -> Event:
    """What a node or the fabric's manager tells."""
    (kind, code, severity, source), node, device, second = SIGNS[said[0]], NODES[said[1]], DEVICES[said[2]], said[3]
    made = Event(
        NOON + timedelta(seconds=second),
        node,
        source,
        kind,
        code,
        severity,
        "hardware",
        "none",
        device,
        id=f"e{number}",
    )
    if source == "opensm":
        error = {"error": "0D01"} if kind == "sm_error" else {}
        return replace(made, node=None, cause="fabric", attributes=error)
    return made


def told(fold: SymptomFold, step: Step, number: int) -> None:
    """One step."""
    if isinstance(step, int):
        fold.forget(NOON + timedelta(seconds=step))
    else:
        fold.take([event(step, number)])


def around(near: Neighbourhood, one: Symptom) -> list[Symptom]:
    """What has to do with a symptom."""
    return near.around([(one.kind, one.place, one.run, one.node)])


@given(st.lists(step, max_size=40), st.sets(st.integers(0, 39)))
def test_what_is_kept_is_what_a_look_at_everything_finds(steps: list[Step], looks: set[int]) -> None:
    """Symptoms that came, changed, were cured, forgotten, and found to be another's; read at any moments."""
    shape = graph()
    kept, anew, near = SymptomFold(shape), SymptomFold(shape), Neighbourhood(shape)
    for number, step in enumerate(steps):
        told(kept, step, number)
        told(anew, step, number)
        if number in looks:
            near.update(kept.as_known())
    symptoms = anew.symptoms()
    assert kept.symptoms() == symptoms
    near.update(kept.as_known())
    assert near.update(kept.as_known()) == []
    fresh = Neighbourhood(shape)
    assert len(fresh.update(symptoms)) == len(symptoms)
    for one in symptoms:
        assert around(near, one) == around(fresh, one)
        assert [near.of_event(name) for name in one.events] == [fresh.of_event(name) for name in one.events]

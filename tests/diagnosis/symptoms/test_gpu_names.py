"""A GPU that one line calls by its index and another by its PCI address is one device."""

import itertools
from datetime import UTC, datetime, timedelta

import pytest

from diagnosis.causes.explanation import explain
from diagnosis.causes.scene import Scene
from diagnosis.graph.device_graph import DeviceGraph
from diagnosis.graph.place import Place
from diagnosis.symptoms.folding import SymptomFold
from diagnosis.symptoms.gpu_names import NodeGpus
from diagnosis.symptoms.symptom import Symptom
from store.records.event import Device, Event

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
PCI, UUID = "0000:a8:00.0", "GPU-455d0f6e"


def said(seconds: float, kind: str, node: str = "gpu-042", source: str = "kernel", **device: object) -> Event:
    """A grave event of a GPU."""
    time, code = NOON + timedelta(seconds=seconds), 79 if kind == "xid" else None
    of = Device("gpu", **device)  # type: ignore[arg-type]
    ident = f"{kind} {node} {seconds}"
    return Event(time, node, source, kind, code=code, severity="fatal", cause="hardware", device=of, id=ident)


def folded(*events: Event) -> list[Symptom]:
    """The symptoms of events."""
    fold = SymptomFold(DeviceGraph())
    fold.take(events)
    return fold.symptoms()


XID = said(0, "xid", pci=PCI)
BOTH = said(9, "gpu_throttled", source="telemetry", pci=PCI, index=5, uuid=UUID)
LOST, MISSING = said(30, "gpu_lost", source="telemetry", index=5), said(5, "rank_missing", source="hangs", index=5)
BACK = said(60, "gpu_returned", source="telemetry", uuid=UUID)


@pytest.mark.parametrize("order", list(itertools.permutations((XID, BOTH, LOST))))
def test_one_line_that_bears_both_names_makes_them_one_device(order: tuple[Event, ...]) -> None:
    """Whenever it comes: what was told by the index before moves beside the rest."""
    found = {(one.kind, one.place.name, one.count, one.first) for one in folded(*order)}
    assert found == {
        ("gpu_lost", f"gpu-042/{PCI}", 2, NOON),
        ("heat_sign", f"gpu-042/{PCI}", 1, NOON + timedelta(seconds=9)),
    }


@pytest.mark.parametrize(
    "order", list(itertools.permutations((XID, BOTH, said(9.5, "gpu_throttled", pci=PCI, index=7))))
)
def test_what_the_kernel_tells_of_an_address_bears_the_index(order: tuple[Event, ...]) -> None:
    """Operators, `nvidia-smi` and schedulers count GPUs; of two indices that were told the least holds."""
    fold = SymptomFold(DeviceGraph())
    for event in order:
        fold.take([event])
        fold.symptoms()  # what was made before is made anew
    assert {one.device.index for one in fold.symptoms() if one.kind == "gpu_lost"} == {5}
    (lost,) = [one for one in explain(Scene(NOON, fold.symptoms(), DeviceGraph())) if one.probability >= 0.5]
    assert (lost.device.pci, lost.device.index) == (PCI, 5)
    assert folded(XID)[0].device.index is None


@pytest.mark.parametrize("uuid", ["gpu" + "9" * 25, "gpu\u0663", "gpu-1", "gpu"])
def test_a_uuid_that_is_made_up_is_no_index(uuid: str) -> None:
    """No number is made of it that no answer could hold."""
    both = said(9, "gpu_throttled", source="telemetry", pci=PCI, uuid=uuid)
    assert {one.device.index for one in folded(XID, both)} == {None}


def test_a_cure_by_another_name_cures() -> None:
    """The exporter sees it again, and names its UUID alone."""
    back = Event(BACK.time, BACK.node, "telemetry", "gpu_returned", device=BACK.device, id="back")
    for order in ((XID, back, BOTH), (BOTH, XID, back)):
        (lost,) = [one for one in folded(*order) if one.kind == "gpu_lost"]
        assert lost.cured == back.time


def test_a_node_s_own_line_teaches_its_own_devices_alone() -> None:
    """Another node's GPU 5 is another one."""
    other = said(9, "gpu_throttled", "gpu-001", "telemetry", pci=PCI, index=5)
    places = {one.place.name for one in folded(XID, LOST, other) if one.kind == "gpu_lost"}
    assert places == {f"gpu-042/{PCI}", "gpu-042/gpu5"}


def test_names_hold_from_the_time_they_were_told() -> None:
    """A GPU that was replaced is counted otherwise; before the first word the first holds; a liar is bounded."""
    names, place = NodeGpus(), Place("gpu", "gpu-042/gpu5")
    assert names.learn(said(0, "xid", pci=PCI, index=5), NOON) == [place]
    later = NOON + timedelta(hours=2)
    assert names.learn(said(0, "xid", pci="0000:b0:00.0", index=5), later) == [place]
    assert names.of(place, NOON - timedelta(hours=1)).name == f"gpu-042/{PCI}"
    assert names.of(place, later + timedelta(hours=1)).name == "gpu-042/0000:b0:00.0"
    taught = [names.learn(said(0, "xid", pci=PCI, index=number), NOON) for number in range(1000)]
    assert sum(map(len, taught)) < 64


def test_a_missing_rank_and_the_xid_of_its_node_are_one_cause_where_nobody_told_the_index() -> None:
    """The rank's GPU is told by its index; the Xid of the same node explains it, and no second GPU is accused."""
    scene = Scene(NOON + timedelta(minutes=1), folded(XID, MISSING), DeviceGraph())
    grave = [one for one in explain(scene) if one.cause_class == "gpu" and one.probability >= 0.5]
    assert [one.name for one in grave] == [f"gpu-042/{PCI}"]
    assert len(grave[0].evidence_for) == 2

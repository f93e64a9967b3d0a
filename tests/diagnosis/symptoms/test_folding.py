"""Events of one meaning at one place are one symptom, whatever their order."""

import random
import sys
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from diagnosis.graph.device_graph import DeviceGraph
from diagnosis.graph.graph_builder import TopologyRecords, build_graph
from diagnosis.graph.place import Place
from diagnosis.symptoms import folding
from diagnosis.symptoms.event_place import PLACING, EventPlaces, place_of_event
from diagnosis.symptoms.folding import SymptomFold
from diagnosis.symptoms.meaning import kinds_that_matter, meaning_of
from diagnosis.symptoms.symptom import SYMPTOM_KINDS, Symptom
from store.catalog_rows import rows
from store.records.event import Attribute, Device, Event, from_wire
from store.records.node import FabricLink

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
GUID = "0xb83fd203001000c0"


def at(seconds: float, node: str | None = "gpu-017", kind: str = "link_down", **extra: object) -> Event:
    """An event some seconds after noon."""
    time = NOON + timedelta(seconds=seconds)
    device = extra.pop("device", Device(type="hca", pci="0000:5e:00.0"))
    severity = "info" if kind in ("link_up", "port_discovered") else "error"
    event = Event(time, node, "kernel", kind, severity=severity, cause="fabric", device=device, id=f"{kind}{seconds}")
    return replace(event, **extra)


def folded(*events: Event, graph: DeviceGraph | None = None) -> list[Symptom]:
    """The symptoms of events."""
    fold = SymptomFold(graph or DeviceGraph())
    fold.take(events)
    return fold.symptoms()


def test_a_link_that_comes_up_is_cured_and_one_that_falls_again_began_anew() -> None:
    """A flap of six seconds is over; the next fall has its own begin, and knows of the one before."""
    (flap,) = folded(at(0), at(6, kind="link_up"))
    assert (flap.cured, flap.first, flap.relapses) == (NOON + timedelta(seconds=6), NOON, 0)
    (again,) = folded(at(0), at(6, kind="link_up"), at(60), at(61))
    assert again.cured is None
    assert (again.first, again.last) == (NOON + timedelta(seconds=60), NOON + timedelta(seconds=61))
    assert (again.relapses, again.ever, again.count) == (1, NOON, 3)


@given(st.randoms(use_true_random=False), st.lists(st.tuples(st.integers(0, 600), st.booleans()), min_size=1))
def test_the_order_of_events_changes_nothing(shuffle: random.Random, falls: list[tuple[int, bool]]) -> None:
    """However they arrive, the same symptoms come out."""
    events = [at(seconds, kind="link_up" if is_up else "link_down") for seconds, is_up in falls]
    mixed = list(events)
    shuffle.shuffle(mixed)
    assert folded(*mixed) == folded(*events)


def test_an_adapter_is_one_place_by_all_its_names() -> None:
    """Its PCI address, its device name, its port's GUID as the subnet manager prints it."""
    graph = DeviceGraph()
    nic = Place("nic", "gpu-017/mlx5_3")
    graph.add(nic, ["gpu-017/0000:5e:00.0", "0xb83fd20300200081"])
    graph.hang(nic, Place("node", "gpu-017"))
    by_manager = at(1, None, "port_removed", device=Device(type="port", uuid="0xb83fd20300200081"))
    by_name = at(2, attributes={"hca": "mlx5_3"}, device=Device(type="port", uuid="0x1"))
    (symptom,) = folded(at(0), by_manager, by_name, graph=graph)
    assert (symptom.place, symptom.count) == (nic, 3)


def test_a_node_cannot_speak_of_another_nodes_device() -> None:
    """A GPU's id of another node is not looked up in the graph."""
    graph = DeviceGraph()
    graph.add(Place("gpu", "gpu-001/0000:0f:00.0"), ["GPU-1"])
    graph.hang(Place("gpu", "gpu-001/0000:0f:00.0"), Place("node", "gpu-001"))
    (symptom,) = folded(at(0, kind="gpu_lost", device=Device(type="gpu", uuid="GPU-1")), graph=graph)
    assert symptom.place == Place("gpu", "gpu-017/GPU-1")


@pytest.mark.parametrize("kind", ["link_down", "port_discovered", "link_up"])
def test_a_node_neither_makes_nor_cures_what_another_shows(kind: str) -> None:
    """By its port's GUID, its switch, or a program's line without a node; the fabric's manager may."""
    graph = DeviceGraph()
    nic, port = Place("nic", "gpu-001/mlx5_0"), Place("port", "leaf04/12")
    graph.add(nic, ["0xb83fd20300200081"])
    graph.hang(nic, Place("node", "gpu-001"))
    graph.hang(port, Place("switch", "leaf04"))
    graph.join(nic, port)
    fold = SymptomFold(graph)
    own = at(0, None, "port_removed", device=Device(type="port", uuid="0xb83fd20300200081"), source="opensm")
    fold.take([own])
    forged = [
        at(9, "gpu-017", kind, device=Device(type="port", uuid="0xb83fd20300200081")),
        at(9, "gpu-017", kind, device=Device(type="port", port=12), attributes={"switch": "leaf04"}, id="b"),
        at(9, None, kind, device=Device(type="hca", uuid="0xb83fd20300200081"), source="training", id="c"),
    ]
    before = fold.symptoms()
    fold.take(forged)
    assert [one for one in fold.symptoms() if "gpu-017" not in one.place.name and one.place.kind != "unknown"] == before
    cure = at(
        12, None, "port_discovered", device=Device(type="port", uuid="0xb83fd20300200081"), source="opensm", id="d"
    )
    fold.take([cure])
    assert fold.symptoms()[0].cured == NOON + timedelta(seconds=12)


def test_a_switch_is_one_place_by_guid_and_by_name() -> None:
    """The manager prints GUIDs, the switch's own log its name."""
    graph = DeviceGraph()
    graph.add(Place("switch", "leaf04"), [GUID])
    notice = at(0, None, "link_state_change", device=Device(type="switch", uuid=GUID))
    port = at(1, None, device=Device(type="port", uuid=GUID, port=12))
    own = at(2, None, device=Device(type="port"), attributes={"switch": "leaf04", "name": "12"})
    first, second = folded(notice, port, own, graph=graph)
    assert first.place == Place("switch", "leaf04")
    assert (second.place, second.count) == (Place("port", "leaf04/12"), 2)


def test_who_complains_of_a_server_names_it() -> None:
    """The server is pointed at; the place is the node that waits."""
    (symptom,) = folded(at(0, kind="fs_stall", device=Device(), cause="storage", attributes={"peer": "10.0.0.5"}))
    assert (symptom.kind, symptom.place) == ("storage_complaint", Place("node", "gpu-017"))
    assert symptom.points_at == ("10.0.0.5",)


def test_the_nearest_row_decides() -> None:
    """Xid 79 is a lost GPU, Xid 13 a program's, Xid 45 follows; an unknown hardware Xid is a fault of the GPU."""
    kinds = [
        meaning_of(at(0, kind="xid", code=code, cause=cause)).symptom
        for code, cause in ((79, "hardware"), (13, "application"), (45, "unknown"), (48, "hardware"), (999, "unknown"))
    ]
    assert kinds == ["gpu_lost", "gpu_program", "gpu_follow_on", "gpu_fault", "gpu_fault"]


@pytest.mark.parametrize("kind", ["iteration", "job", "telemetry", "outage"])
def test_work_is_no_symptom(kind: str) -> None:
    """Whatever its severity."""
    assert folded(at(0, kind=kind)) == []


def test_what_is_held_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A sender of ever new devices makes the oldest go."""
    most = 2000
    monkeypatch.setattr(folding, "MOST_SYMPTOMS", most)
    fold = SymptomFold(DeviceGraph())
    fold.take(at(number, f"n{number}") for number in range(most + 1))
    assert len(fold) <= most
    assert fold.symptoms()[-1].node == f"n{most}"
    assert fold.forget(NOON + timedelta(seconds=most)) > 0
    assert [symptom.node for symptom in fold.symptoms()] == [f"n{most}"]


def test_the_table_names_known_kinds_of_events_and_symptoms() -> None:
    """A row that is misspelt would never fit."""
    known = {row["kind"] for row in rows("kinds")} | {"xid", "sxid", "sxid_detail", "quoted_xid", ""}
    table = list(rows("symptoms"))
    named = {row["kind"] for row in table} - {
        "fabricmanager_nvswitch",
        "rank_missing",
        "rank_slow",
        "node_slow",
        "numbers_wrong",
    }
    assert named <= known
    symptoms = {row["symptom"] for row in table} | {name for row in table for name in row["cures"].split("+")}
    assert symptoms - {""} <= set(SYMPTOM_KINDS)
    assert {"link_up", "port_discovered", "net_link"} <= kinds_that_matter()


def test_long_texts_are_not_remembered() -> None:
    """Whoever may send 64 KB of attributes with each event fills no memory by it."""
    places = EventPlaces(DeviceGraph())
    for number in range(100):
        assert places.of(at(number, attributes={"error": f"{number}" * 500})) == Place("nic", "gpu-017/0000:5e:00.0")
    tracked = sys.getsizeof(places._known) + sum(map(sys.getsizeof, places._known))
    assert tracked < 1000


class _Asked(dict[str, Attribute]):
    """Attributes that note which of them were asked for."""

    names: set[str]

    def get(self, key: str, default: Any = None) -> Any:
        self.names.add(key)
        return super().get(key, default)


def test_a_place_follows_from_nothing_that_its_memory_does_not_know() -> None:
    """Of every event of the fixtures: what decides of its place is a part of what it is remembered by."""
    graph, asked = build_graph(TopologyRecords(links=[FabricLink("leaf04", 12, "gpu-017", hca="mlx5_3")])), set[str]()
    found = 0
    for file in sorted(Path("fixtures").glob("*/*.jsonl")):
        for line in file.read_bytes().splitlines():
            told = orjson.loads(line)
            if not isinstance(told, dict) or "kind" not in told or "attributes" not in told:
                continue
            for node in (told.get("node"), None):
                event = from_wire(told | {"node": node})
                attributes = _Asked(event.attributes)
                attributes.names = asked
                place_of_event(replace(event, attributes=attributes), graph)
                found += 1
    assert found > 1000
    assert {"hca", "switch", "run", "error", "end_1"} <= asked <= set(PLACING)

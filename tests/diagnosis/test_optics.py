"""A module that shows bad light before its link goes is named before its cable; without such a sign the cable is."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from diagnosis.causes.explanation import explain
from diagnosis.causes.scene import Scene
from diagnosis.graph.device_graph import DeviceGraph
from diagnosis.graph.place import Place
from diagnosis.symptoms.folding import SymptomFold
from parsers.formats import optics
from parsers.text.parser import Context, parse
from store.records.event import Device, Event, with_id
from store.records.fault_catalog import with_kind_meaning
from store.records.verdict import Verdict

T0 = datetime(2026, 5, 4, 12, tzinfo=UTC)
NIC, PORT = Place("nic", "gpu-017/mlx5_3"), Place("port", "leaf07/17")


def event(second: int, kind: str, variant: str = "", device: str = "hca", **attributes: str | int) -> Event:
    """An event of the adapter."""
    time, where = T0 + timedelta(seconds=second), Device(type=device)
    found = Event(time, "gpu-017", "optics", kind, device=where, message=kind, attributes=attributes)
    return with_id(with_kind_meaning(found, variant))


def verdicts(*events: Event) -> list[Verdict]:
    """The causes of what the events show, an hour and a bit later."""
    graph = DeviceGraph()
    for rail in range(8):
        graph.hang(Place("nic", f"gpu-017/mlx5_{rail}"), Place("node", "gpu-017"))
    graph.hang(NIC, PORT)
    graph.hang(PORT, Place("switch", "leaf07"))
    graph.join(PORT, NIC)
    fold = SymptomFold(graph)
    fold.take(events)
    now = T0 + timedelta(seconds=3700)
    return explain(Scene(now=now, symptoms=fold.symptoms(now), graph=graph))


ALARM = event(0, "optics_alarm", "alarm", name="mlx5_3", reading="rx_power")
RATE = event(1800, "bit_errors", "error", name="mlx5_3")
GONE = event(3600, "port_removed", device="port", hca="mlx5_3")


@pytest.mark.parametrize("signs", [[ALARM], [ALARM, GONE], [ALARM, RATE, GONE]])
def test_the_optic_comes_before_its_cable_where_it_showed_signs(signs: list[Event]) -> None:
    """And the verdict says what to do first."""
    first, *others = verdicts(*signs)
    assert (first.cause_class, first.name, first.action) == ("optic", "gpu-017/mlx5_3", "replace_part")
    assert "clean and reseat the module, then replace it, then its cable" in first.reason
    assert "cable" in [one.cause_class for one in others]


@pytest.mark.parametrize("signs", [[GONE], [RATE, GONE]])
def test_without_a_sign_of_its_module_the_cable_comes_first(signs: list[Event]) -> None:
    """The module is named behind it."""
    found = [one.cause_class for one in verdicts(*signs)]
    assert found[0] == "cable"
    assert "optic" in found


def test_what_the_tools_print_of_a_module_comes_to_the_adapter_s_place() -> None:
    """The parser's events, with the node of the sidecar and the moment of reading."""
    lines = Path("fixtures/optics/modules.log").read_text().splitlines()
    printed = list(parse(optics.FORMAT.make(Context(node="gpu-017")), lines))
    fold = SymptomFold(DeviceGraph())
    fold.take(
        with_id(
            Event(
                T0, one.node, one.source, one.kind, severity=one.severity, device=one.device, attributes=one.attributes
            )
        )
        for one in printed
    )
    assert {(one.kind, one.place.name) for one in fold.symptoms()} == {
        ("optic_sign", "gpu-017/mlx5_3"),
        ("port_errors", "gpu-017/mlx5_3"),
        ("optic_sign", "gpu-017/eth2"),
    }

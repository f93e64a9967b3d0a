"""What a verdict asks for: what is likelier something else is looked at, and not taken out of service."""

from datetime import UTC, datetime

import pytest

from diagnosis.causes.effects import effects_of
from diagnosis.causes.explanation import search_of
from diagnosis.causes.scene import Scene
from diagnosis.causes.suspects import Suspect
from diagnosis.causes.verdict_words import verdict_of
from diagnosis.causes.weighing import SuspectFinding
from diagnosis.graph.device_graph import DeviceGraph
from diagnosis.graph.place import Place
from diagnosis.symptoms.folding import SymptomFold
from store.records.event import Action, Device, Event

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
GPU = Place("gpu", "gpu-017/0000:0f:00.0")


@pytest.mark.parametrize(
    ("kind", "place", "probability", "action"),
    [
        ("gpu", GPU, 0.97, "reset_gpu"),
        ("gpu", GPU, 0.5, "reset_gpu"),
        ("gpu", GPU, 0.49, "run_diagnostics"),
        ("node", Place("node", "gpu-017"), 0.9, "drain_node"),
        ("node", Place("node", "gpu-017"), 0.16, "run_diagnostics"),
    ],
)
def test_what_is_likelier_something_else_is_looked_at(
    kind: str, place: Place, probability: float, action: Action
) -> None:
    """A node is drained, and a GPU is reset, where the verdict is likelier right than wrong."""
    graph = DeviceGraph()
    graph.add(GPU)
    graph.hang(GPU, Place("node", "gpu-017"))
    fold = SymptomFold(graph)
    device = Device("gpu", pci="0000:0f:00.0")
    fold.take([Event(NOON, "gpu-017", "kernel", "xid", 48, "fatal", "hardware", "reset_gpu", device, "DBE", id="1")])
    scene = Scene(now=NOON, symptoms=fold.symptoms(), graph=graph)
    account = search_of(scene, effects_of(scene)).account(Suspect(kind, place))  # type: ignore[arg-type]
    assert account is not None
    assert verdict_of(SuspectFinding(account, 1.0, is_cause=True), probability, scene).action == action

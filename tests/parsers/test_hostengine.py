"""The log of DCGM's host engine: a driver that is not there, a GPU that is lost, and much that is no fault."""

import pytest

from parsers.formats.hostengine import HostengineParser
from parsers.registry import detect
from parsers.text.parser import Context, parse
from store.records.event import Event

PLACE = "[/builds/dcgm/dcgm/dcgmlib/src/DcgmCacheManager.cpp:945] [DcgmCacheManager::Run]"


def decode(text: str) -> list[Event]:
    """The events of one line."""
    return list(parse(HostengineParser(Context(node="n1")), [text]))


@pytest.mark.parametrize(
    ("level", "text", "kind"),
    [
        ("ERROR", "Cannot initialize the hostengine: Error: Failed to initialize NVML", "node_service"),
        ("ERROR", "nvmlInit_v2() returned Driver/library version mismatch", "nvrm_mismatch"),
        ("WARN ", "nvmlDeviceGetPowerUsage of gpuId 3 returned GPU is lost", "gpu_missing"),
        ("ERROR", "GetLatestSample returned No data is available for entityId 1 groupId 1 fieldId 230", None),
        ("ERROR", "DcgmHostEngineHandler::Init failed", None),
        ("DEBUG", "gpuId 3: GPU is lost is checked", None),
        ("INFO ", "Failed to initialize NVML is not an error here", None),
    ],
)
def test_a_line_tells_a_fault_or_nothing(level: str, text: str, kind: str | None) -> None:
    """By its level and words, in its own log and within the exporter's."""
    own = f"2025-01-23 22:23:53.664 {level} [46345:46345] {text} {PLACE}"
    within = f'time="2025-01-23T22:23:53Z" level=info msg="{text} {PLACE}" dcgm_level={level.strip()}'
    for line in (own, within):
        events = decode(line)
        assert [event.kind for event in events] == ([] if kind is None else [kind])
        assert detect([line]) == "hostengine"
        for event in events:
            assert event.node == "n1"
            assert str(event.time).startswith("2025-01-23 22:23:53")
            assert event.device.index == (3 if kind == "gpu_missing" else None)
            assert event.attributes["function"] == "DcgmCacheManager::Run"


@pytest.mark.parametrize(
    "line", ["GPU is lost", "2025-01-23 22:23:53.664 ERROR GPU is lost", "2025-01-23 ERROR [1:1] x"]
)
def test_a_line_of_another_form_gives_nothing(line: str) -> None:
    """Only the engine's own."""
    assert decode(line) == []

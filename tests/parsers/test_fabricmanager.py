"""The Fabric Manager's log, in its own file and in the system log."""

from datetime import UTC, datetime

import pytest

from parsers.registry import PARSERS
from parsers.text.parser import Context, parse
from store.records.event import Event

FATAL = "detected NVSwitch fatal error 20034 on fid 0 on NVSwitch pci bus id 00000000:86:00.0 physical id 3 port 33"
OWN = f"[Jul 23 2024 07:53:55] [ERROR] [tid 841] {FATAL}"
SYSLOG = f"Mar 03 18:39:57 a nv-fabricmanager[5183]: {FATAL}"


def decode(name: str, *lines: str) -> list[Event]:
    """The events of some lines in one format."""
    return list(parse(PARSERS[name].make(Context(year=2026, node="n")), lines))


@pytest.mark.parametrize("name", ["fabricmanager", "kernel"])
@pytest.mark.parametrize(("line", "node", "year"), [(OWN, "n", 2024), (SYSLOG, "a", 2026)])
def test_a_switch_fault_is_the_same_in_both_logs(name: str, line: str, node: str, year: int) -> None:
    """Code, switch, address and port; the source is the format's name."""
    (event,) = decode(name, line)
    assert (event.source, event.node, event.time and event.time.year) == (name, node, year)
    assert (event.kind, event.code, event.severity) == ("fabricmanager_nvswitch", 20034, "fatal")
    assert (event.device.type, event.device.pci, event.device.port) == ("nvswitch", "0000:86:00.0", 33)
    assert event.attributes == {"severity": "fatal", "fid": 0, "switch": 3, "link": 33}


def test_the_time_is_in_the_contexts_zone() -> None:
    """Fabric Manager writes the local time."""
    assert decode("fabricmanager", OWN)[0].time == datetime(2024, 7, 23, 7, 53, 55, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "kind", "severity", "cause"),
    [
        (FATAL.replace("fatal", "non-fatal").replace("20034", "22013"), "fabricmanager_nvswitch", "warning", "driver"),
        ("detected NVSwitch fatal error 98765", "fabricmanager_nvswitch", "fatal", "unknown"),
        (
            "detected number of NVSwitches don't match with any supported system topology, aborting fabric manager",
            "fabricmanager_failed",
            "fatal",
            "fabric",
        ),
        (
            "fabric manager NVIDIA GPU driver interface version 550.127.05 don't match with driver version 550.120.",
            "fabricmanager_failed",
            "error",
            "driver",
        ),
        (
            "request to query NVSwitch device information from NVSwitch driver failed with error:Generic Error",
            "fabricmanager_failed",
            "fatal",
            "fabric",
        ),
        (
            "failed to find the GPU handle 5410063385821516767 in the multicast team request setup 613028.",
            "fabricmanager_gpu",
            "error",
            "fabric",
        ),
        ("Successfully configured all the available NVSwitches to route", "fabricmanager_state", "info", "fabric"),
    ],
)
def test_a_sentence_is_an_event(text: str, kind: str, severity: str, cause: str) -> None:
    """With or without a thread's number."""
    for line in (f"[Jan 15 2025 09:12:34] [ERROR] {text}", f"[Jan 15 2025 09:12:34] [ERROR] [tid 5678] {text}"):
        (event,) = decode("fabricmanager", line)
        assert (event.kind, event.severity, event.cause) == (kind, severity, cause)


@pytest.mark.parametrize("name", ["fabricmanager", "kernel"])
@pytest.mark.parametrize(
    "line",
    [
        "[Jan 15 2025 09:12:34] [ERROR] [tid 5678] Some other error message not related to NVSwitch.",
        "[Feb 27 2025 14:10:02] [INFO] [tid 1808] multicast group 1 is allocated.",
        "[Feb 27 2025 14:10:02] [ERROR] [tid 1] request to query NVSwitch device information from NVSwitch driver "
        "failed with error:WARNING Nothing to do [NV_WARN_NOTHING_TO_DO]",
        f"Nov 05 18:40:01 a nhc[7]: {FATAL}",
        f"Nov 05 18:40:01 a nhc[7]: saw: {FATAL}",
    ],
)
def test_other_lines_are_no_events(name: str, line: str) -> None:
    """Notices, systems without a switch, other programs."""
    assert decode(name, line) == []


def test_a_setting_that_keeps_it_from_starting_is_told() -> None:
    """NVLink is not set up then; what to set is in the line."""
    text = "fabric manager config file item: FABRIC_NODE_CONFIG_FILE has an invalid value"
    (event,) = decode("kernel", f"Mar 03 18:39:57 a nv-fabricmanager[5183]: {text}")
    assert (event.kind, event.severity, event.cause) == ("fabricmanager_failed", "error", "driver")
    assert event.attributes["name"] == "FABRIC_NODE_CONFIG_FILE"
    assert decode("kernel", f"Mar 03 18:39:57 a user[5183]: {text}") == []

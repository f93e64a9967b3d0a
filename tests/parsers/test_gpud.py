"""gpud's pages: events, states that change, devices and actions in its words."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from parsers.formats.gpud import GpudParser
from parsers.text.parser import Context, parse
from store.records.event import Device, Event

XID, SXID, IB = "accelerator-nvidia-error-xid", "accelerator-nvidia-error-sxid", "accelerator-nvidia-infiniband"
UUID = "GPU-11111111-2222-3333-4444-555555555555"


def decoded(*pages: Any, node: str | None = "gpu-017") -> list[Event]:
    """The events of pages, one a line."""
    return list(parse(GpudParser(Context(node=node)), [json.dumps(page) for page in pages]))


def event(component: str = XID, name: str = "error_xid", **changes: Any) -> dict[str, Any]:
    """An event."""
    return {
        "component": component,
        "time": "2025-03-01T04:05:06Z",
        "name": name,
        "type": "Warning",
        "message": "",
    } | changes


def state(health: str = "Unhealthy", component: str = IB, **changes: Any) -> list[dict[str, Any]]:
    """A page of one component's state."""
    one = {"time": "2025-03-01T04:05:06Z", "name": component, "health": health, "reason": "mlx5_0 is down"} | changes
    return [{"component": component, "states": [one]}]


def test_a_page_of_events_is_read_and_a_bare_event() -> None:
    """A component's name may stand above its events alone."""
    bare = {key: value for key, value in event(name="reboot").items() if key != "component"}
    found = decoded([{"component": "os", "events": [bare, event("os", "reboot")]}], event("os", "reboot"))
    assert [e.kind for e in found] == ["node_reboot"] * 3
    assert {e.attributes["check"] for e in found} == {"os/reboot"}
    assert {(e.node, e.time) for e in found} == {("gpu-017", datetime(2025, 3, 1, 4, 5, 6, tzinfo=UTC))}


def test_the_page_of_both_is_read() -> None:
    """`/v1/info`; metrics are none of our business."""
    info = {
        "states": [state()[0]["states"][0]],
        "events": [event("os", "reboot")],
        "metrics": [{"name": "x", "value": 1}],
    }
    assert [e.kind for e in decoded([{"component": "os", "info": info}])] == ["health_event", "node_reboot"]


@pytest.mark.parametrize(
    "extra",
    [
        {"data": json.dumps({"xid": 79, "device_uuid": "PCI:0000:0f:00"})},
        {"data": "79", "device_uuid": "PCI:0000:0f:00"},
        {"data": "NVRM: Xid (PCI:0000:0f:00): 79, GPU has fallen off the bus.", "device_uuid": "PCI:0000:0f:00"},
        {"data": "not json", "device_uuid": "PCI:0000:0f:00"},
        None,
    ],
    ids=["record", "number", "line", "other", "none"],
)
def test_an_xid_is_found_in_what_every_release_wrote(extra: dict[str, str] | None) -> None:
    """A record as text, a bare number, or the message alone."""
    message = f"XID 79 (GPU has fallen off the bus) detected on GPU PCI:0000:0f:00 UUID:{UUID}"
    (found,) = decoded(event(type="Fatal", message=message, extra_info=extra))
    assert (found.kind, found.code, found.severity, found.action) == ("xid", 79, "fatal", "reboot_node")
    assert found.device == Device("gpu", pci="0000:0f:00.0", uuid=UUID)


def test_an_sxid_is_of_its_switch() -> None:
    """gpud calls the switch's address a device's uuid."""
    data = json.dumps({"sxid": 12028, "device_uuid": "PCI:0000:c1:00"})
    by_data, by_words = decoded(
        event(SXID, "error_sxid", type="Fatal", extra_info={"data": data}),
        event(SXID, "error_sxid", type="Warning", message="SXID 12028 (egress) detected on PCI:0000:c1:00"),
    )
    assert {(e.kind, e.code, e.device) for e in (by_data, by_words)} == {
        ("sxid", 12028, Device("nvswitch", pci="0000:c1:00.0"))
    }
    assert (by_data.severity, by_words.severity) == ("fatal", "warning")


@pytest.mark.parametrize(
    ("component", "name", "kind"),
    [
        ("accelerator-nvidia-remapped-rows", "row_remapping_pending", "row_remap"),
        ("accelerator-nvidia-remapped-rows", "row_remapping_failed", "row_remap_failure"),
        ("accelerator-nvidia-hw-slowdown", "hw_slowdown", "gpu_throttled"),
        (IB, "ib_port_drop", "link_down"),
        (IB, "ib_port_flap", "link_down"),
        (IB, "access_reg_failed", "mlx5_cmd_failed"),
        ("cpu", "cpu_soft_lockup", "soft_lockup"),
        ("disk", "filesystem_read_only", "fs_read_only"),
        ("memory", "memory_oom", "oom_kill"),
        ("some-plugin", "odd", "health_event"),
    ],
)
def test_names_of_its_events_are_our_kinds(component: str, name: str, kind: str) -> None:
    """The same fault bears the same kind."""
    assert [e.kind for e in decoded(event(component, name))] == [kind]


def test_a_quoted_log_line_says_most() -> None:
    """gpud keeps it beside its own words."""
    line = "oom-kill:constraint=CONSTRAINT_MEMCG,task_memcg=/kubepods,task=python3,pid=4711,uid=0"
    quoted = "NVRM: GPU 0000:91:00.0: GPU has fallen off the bus."
    lost, oom = decoded(
        event("some-plugin", "odd", extra_info={"log_line": quoted}),
        event("memory", "memory_oom_kill_constraint", extra_info={"log_line": line}),
    )
    assert (lost.kind, lost.device.pci) == ("gpu_lost", "0000:91:00.0")
    assert oom.kind == "oom_kill"


@pytest.mark.parametrize(
    ("word", "severity"),
    [("Info", "info"), ("Warning", "warning"), ("Critical", "error"), ("Fatal", "fatal"), ("Unknown", "warning")],
)
def test_its_types_are_our_severities(word: str, severity: str) -> None:
    """Where we have no judgement of our own."""
    assert [e.severity for e in decoded(event("some-plugin", "odd", type=word))] == [severity]


@pytest.mark.parametrize(
    ("actions", "action"),
    [
        (["REBOOT_SYSTEM"], "reboot_node"),
        (["HARDWARE_INSPECTION", "REBOOT_SYSTEM"], "run_diagnostics"),
        (["CHECK_USER_APP_AND_GPU"], "restart_app"),
        (["IGNORE_NO_ACTION_REQUIRED"], "none"),
        (["NEW", "REBOOT_SYSTEM"], "reboot_node"),
        ([], "watch"),
        ("REBOOT_SYSTEM", "watch"),
        ([None], "watch"),
    ],
    ids=str,
)
def test_its_suggestions_are_our_actions(actions: Any, action: str) -> None:
    """The first that we know."""
    suggested = {"description": "", "repair_actions": actions}
    assert [e.action for e in decoded(event("some-plugin", "odd", suggested_actions=suggested))] == [action]


def test_set_healthy_is_information() -> None:
    """An operator said so."""
    (found,) = decoded(event(name="SetHealthy", type="Info"))
    assert (found.kind, found.severity, found.code, found.attributes["state"]) == (
        "health_event",
        "info",
        None,
        "healthy",
    )


def test_a_state_is_told_when_it_changes() -> None:
    """A page is fetched again and again; a healthy one counts only after another."""
    found = decoded(
        state("Healthy"),
        state(),
        state(time="2025-03-01T04:06:06Z"),
        state("Degraded"),
        state("Initializing"),
        state("Healthy", reason="ok"),
        state("Healthy", reason="ok"),
    )
    assert [(e.kind, e.line, e.attributes["state"]) for e in found] == [
        ("link_down", 2, "unhealthy"),
        ("link_down", 4, "degraded"),
        ("link_up", 6, "healthy"),
    ]


def test_a_state_is_its_components_fault() -> None:
    """An Xid by its reason; what has no kind by its health."""
    reason = "XID 48 (Double Bit ECC Error) detected on GPU PCI:0000:3b:00"
    xid, other, degraded = decoded(
        state(component=XID, name="error_xid", reason=reason),
        state(component="tailscale", reason="", error="no unit"),
        state("Degraded", component="docker", reason=""),
    )
    assert (xid.kind, xid.code, xid.device.pci) == ("xid", 48, "0000:3b:00.0")
    assert (other.kind, other.severity, other.message, other.attributes["error"]) == (
        "health_event",
        "error",
        "no unit",
        "no unit",
    )
    assert (degraded.severity, degraded.message) == ("warning", "docker is degraded")


@pytest.mark.parametrize(
    ("words", "device", "name"),
    [
        ("mlx5_0 port 1 down", Device("hca", port=1), "mlx5_0"),
        ("mlx5_bond_0 is inactive", Device("hca"), "mlx5_bond_0"),
        (f"{UUID} detected pending row remapping", Device("gpu", uuid=UUID), None),
        ("at 00000000:3B:00.0", Device("gpu", pci="0000:3b:00.0"), None),
        ("nothing", Device(), None),
    ],
)
def test_devices_are_found_in_the_words(words: str, device: Device, name: str | None) -> None:
    """GPU by address or UUID, adapter by name."""
    (found,) = decoded(event("some-plugin", "odd", message=words))
    assert found.device == device
    assert found.attributes.get("name") == name


@pytest.mark.parametrize(
    "page",
    [
        [{"component": "os", "events": []}],
        [{"component": "os", "metrics": [{"name": "x", "value": 1, "time": 3}]}],
        [{"component": "os", "events": [{"name": "reboot"}, 3, None]}],
        {"component": "os"},
        {"name": "x", "type": "y"},
        [{"component": 3, "states": [{"health": "Unhealthy"}]}],
    ],
    ids=lambda page: json.dumps(page)[:50],
)
def test_other_objects_tell_nothing(page: Any) -> None:
    """Nor do events without a time or type."""
    assert decoded(page) == []

"""What the GPU driver says without an Xid."""

import pytest

from parsers.formats.kernel import KernelParser
from parsers.kernel_messages.families.gpu import decode_gpu
from parsers.text.parser import Context, parse
from store.records.event import Event

UUID = "GPU-509665ad-b600-ac93-3616-d754b23d636d"


def events_of(*lines: str) -> list[Event]:
    """The events of some lines of the kernel log."""
    return list(parse(KernelParser(Context(year=2026)), lines))


@pytest.mark.parametrize(
    ("message", "kind", "pci", "attributes"),
    [
        (f"NVRM: GPU at PCI:0000:9b:00: {UUID}", "gpu_map", "0000:9b:00.0", {}),
        (f"NVRM: GPU at 0000:01:00: {UUID}", "gpu_map", "0000:01:00.0", {}),
        ("NVRM: GPU 0000:91:00.0: GPU has fallen off the bus.", "gpu_lost", "0000:91:00.0", {}),
        ("NVRM: The NVIDIA GPU 0000:b3:00.0 fallen off the bus and is not", "gpu_lost", "0000:b3:00.0", {}),
        (
            "NVRM: GPU 0000:01:00.0: RmInitAdapter failed! (0x26:0x1a:1227)",
            "nvrm_init_failure",
            "0000:01:00.0",
            {"status": "0x26:0x1a:1227"},
        ),
        ("NVRM: RmInitAdapter failed! (0x27:0x38:1193)", "nvrm_init_failure", None, {"status": "0x27:0x38:1193"}),
        ("NVRM: rm_init_adapter(0) failed", "nvrm_init_failure", None, {}),
        ("NVRM: GPU 0000:01:00.0: rm_init_adapter failed, device minor", "nvrm_init_failure", "0000:01:00.0", {}),
        ("NVRM: RmInitAdapter: Cannot initialize GSP firmware RM", "nvrm_init_failure", None, {}),
        ("NVRM: The NVIDIA probe routine failed for 2 device(s).", "nvrm_init_failure", None, {"count": 2}),
        ("NVRM: None of the NVIDIA devices were initialized.", "nvrm_init_failure", None, {}),
        ("nvidia: probe of 0000:5d:00.0 failed with error -1", "nvrm_init_failure", "0000:5d:00.0", {"error": -1}),
        (
            "nvidia 0000:5d:00.0: probe with driver nvidia failed with error -1",
            "nvrm_init_failure",
            "0000:5d:00.0",
            {"error": -1},
        ),
        (
            "NVRM: GPU6 _kgspIsHeartbeatTimedOut: Heartbeat timed out, diff 6070",
            "nvrm_distress",
            None,
            {"gpu_index": 6},
        ),
        ("NVRM: _kgspRpcRecvPoll: GSP RM heartbeat timed out", "nvrm_distress", None, {}),
        ("NVRM: krcWatchdog_IMPL: RC watchdog: GPU is probably locked!  Notify", "nvrm_distress", None, {}),
        ("NVRM: _kgspLogXid119: ******************** GSP Timeout *****", "nvrm_distress", None, {}),
        ("NVRM: kgspHealthCheck_TU102: *********** GSP-CrashCat report", "nvrm_distress", None, {}),
        (
            "NVRM: knvlinkUpdatePostRxDetectLinkMask_IMPL: Failed to update Rx Detect Link mask!",
            "nvlink_train",
            None,
            {},
        ),
        ("NVRM: GPU2 knvlinkCoreTrain_IMPL: link 3 timed out", "nvlink_train", None, {"gpu_index": 2}),
        (
            "nvidia-peermem nv_get_p2p_free_callback:127 ERROR detected invalid context, x",
            "peermem_invalid_context",
            None,
            {},
        ),
    ],
)
def test_a_message_of_the_driver_is_an_event(
    message: str, kind: str, pci: str | None, attributes: dict[str, object]
) -> None:
    """Each form of the driver's sources."""
    event = decode_gpu(message)
    assert event is not None
    assert (event.kind, event.device.pci, event.attributes) == (kind, pci, attributes)
    assert event.message


@pytest.mark.parametrize(
    "message",
    [
        "NVRM: GPU Board Serial Number: 0",
        "NVRM: NVLink link training completed",
        "NVRM: GPU4 RPC history (CPU -> GSP):",
        "NVRM: GPU 0000:91:00.0: GPU serial number is 1653723052734.",
        "NVRM: knvlinkFilterBridgeLinks_IMPL: links 0x3 are connected",
        "NVRM: GPU at PCI:0000:9b:00: GPU-???????",
        "nvidia-peermem nv_get_p2p_free_callback: ok",
        "quoting NVRM: RmInitAdapter failed!",
        "NVRM: The NVIDIA probe routine was not called for 1 device(s).",
    ],
)
def test_ordinary_messages_of_the_driver_are_no_events(message: str) -> None:
    """Start-up, histories, quotations."""
    assert events_of(message) == []


def test_a_loss_over_three_records_is_named_by_the_first() -> None:
    """Syslog writes each line as its own record."""
    lines = [
        "NVRM: The NVIDIA GPU 0000:b3:00.0",
        "NVRM: (PCI ID: 10de:26b5) installed in this system has",
        "NVRM: fallen off the bus and is not responding to commands.",
    ]
    events = events_of(*(f"Nov 20 22:31:54 a kernel: {line}" for line in lines))
    assert [(event.kind, event.device.pci, event.line) for event in events] == [("gpu_lost", "0000:b3:00.0", 1)]


@pytest.mark.parametrize(
    "lines",
    [
        ["a kernel: NVRM: The NVIDIA GPU 0000:b3:00.0", "b kernel: NVRM: fallen off the bus and is not responding"],
        [
            "a kernel: NVRM: The NVIDIA GPU 0000:b3:00.0",
            *["a kernel: usb"] * 8,
            "a kernel: NVRM: fallen off the bus and is not responding",
        ],
        ["a kernel: NVRM: fallen off the bus and is not responding"],
    ],
)
def test_a_loss_that_no_line_nearby_names_is_no_event(lines: list[str]) -> None:
    """Another host's GPU, one named long ago, none."""
    assert events_of(*(f"Nov 20 22:31:54 {line}" for line in lines)) == []


def test_the_driver_release_tells_how_registers_are_read() -> None:
    """Registers in the layout before R575 mean nothing to a later driver; without a release both are tried."""
    xid = "NVRM: Xid (PCI:0000:04:00): 149, NETIR_LINK_EVT Nonfatal XC0 i0 Link 00 (0x004001c6 0x00000000 0x0 0x0)"
    loading = "NVRM: loading NVIDIA UNIX x86_64 Kernel Module  535.129.03  Thu"
    opened = "NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  580.86.15  Release Build"
    unknown, old, new = (events_of(*lines)[-1] for lines in ([xid], [loading, xid], [opened, xid]))
    assert [event.severity for event in (unknown, old, new)] == ["error", "error", "warning"]
    assert new.attributes == old.attributes


def test_a_driver_release_is_of_its_host() -> None:
    """Another host's driver says nothing of this one's registers."""
    xid = "NVRM: Xid (PCI:0000:04:00): 149, NETIR_LINK_EVT Nonfatal XC0 i0 Link 00 (0x004001c6 0x00000000 0x0 0x0)"
    lines = ("a kernel: NVRM: loading NVIDIA UNIX x86_64 Kernel Module  580.86.15  Thu", f"b kernel: {xid}")
    assert [event.severity for event in events_of(*(f"Nov 20 22:31:54 {line}" for line in lines))] == ["error"]


def test_libraries_of_another_version_than_the_driver_are_told_of_the_node() -> None:
    """An updated driver under a running node, or a container with its own; any program can cause it: a warning."""
    event = decode_gpu("NVRM: API mismatch: the client has the version 470.161.03, but")
    assert event is not None
    assert (event.kind, event.severity, event.cause, event.device.type) == (
        "nvrm_mismatch",
        "warning",
        "driver",
        "node",
    )
    assert event.attributes == {"version": "470.161.03"}
    assert decode_gpu("NVRM: this kernel module has the version 470.103.01.  Please") is None

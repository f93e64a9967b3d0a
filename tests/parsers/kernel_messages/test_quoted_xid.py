"""Xids that Node Health Check hands on."""

import pytest

from parsers.formats.kernel import KernelParser
from parsers.text.parser import Context, parse

XID = "NVRM: Xid (PCI:0002:00:00): 119, pid=7, name=nvidia-smi, Timeout waiting for RPC from GSP1!"
CHECK = f"Health check failed: check_gpu_xid: GPU Xid errors detected: [ 3606.8] {XID}"


@pytest.mark.parametrize(
    ("line", "node"),
    [
        (f"mynode-066 | ERROR: nhc: {CHECK}", "mynode-066"),
        (f"ERROR:  nhc:  {CHECK}", None),
        (f"Nov 20 22:31:54 vm nhc[4711]: {CHECK}", "vm"),
    ],
)
def test_a_handed_on_xid_is_a_notice(line: str, node: str | None) -> None:
    """The kernel has said it: this opens no incident."""
    (event,) = parse(KernelParser(Context(year=2026)), [line])
    assert (event.kind, event.code, event.severity, event.action) == ("quoted_xid", 119, "info", "none")
    assert (event.node, event.device.pci) == (node, "0002:00:00.0")
    assert "pid" not in event.attributes
    assert "process" not in event.attributes


@pytest.mark.parametrize(
    "line",
    [
        f"Nov 20 22:31:54 vm kubelet[12]: {CHECK}",
        f'node_problem_detector: rule "XidError" pattern "{XID}" loaded',
        f"Nov 20 22:31:54 vm nhc[4711]: {XID}",
        "ERROR: nhc: Health check failed: check_gpu_xid: GPU Xid errors detected: NVRM: Xid (PCI:0002:00:00): x",
        f"kubelet[1201]: {CHECK}",
    ],
)
def test_no_other_quotation_is_read(line: str) -> None:
    """Another program, another check, no code."""
    assert list(parse(KernelParser(Context(year=2026)), [line])) == []

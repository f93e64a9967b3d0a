"""Node health checks."""

import json
from datetime import UTC, datetime

import pytest

from parsers.formats.nhc import NhcParser
from parsers.registry import detect
from parsers.text.parser import Context, parse
from store.records.event import Event

FAILED = "ERROR:  nhc:  Health check failed:  "
IB = "check_hw_ib:  No IB port is ACTIVE (LinkUp 100 Gb/sec)."
MARK = "20250612 18:47:38 [slurm] /usr/libexec/nhc/node-mark-offline gpu007 "
MARKED = datetime(2025, 6, 12, 18, 47, 38, tzinfo=UTC)


def decode(*lines: str, node: str | None = None) -> list[Event]:
    """The events of some lines."""
    return list(parse(NhcParser(Context(node=node)), lines))


def test_the_helper_tells_when_and_where_a_check_failed() -> None:
    """Two lines, one event, on the first one's line; what the helper prints besides is nothing new."""
    events = decode(
        "Node Health Check starting.",
        FAILED + IB,
        MARK + IB,
        f"/usr/libexec/nhc/node-mark-offline:  Marking idle gpu007 offline:  NHC: {IB}",
        "20250612 18:52:38 [slurm] /usr/libexec/nhc/node-mark-online gpu007",
    )
    assert [(e.line, e.time, e.node, e.message) for e in events] == [(2, MARKED, "gpu007", IB)]


@pytest.mark.parametrize("text", [IB, f"Health check failed:  {IB}"])
@pytest.mark.parametrize("manager", ["[slurm] ", ""])
def test_the_helpers_line_alone_is_a_failure(text: str, manager: str) -> None:
    """The line before it went elsewhere, or speaks of another check."""
    mark = MARK.replace("[slurm] ", manager) + text
    assert [(e.line, e.time, e.node, e.message) for e in decode(mark)] == [(1, MARKED, "gpu007", IB)]
    events = decode(FAILED + "check_ps_cpu:  x", mark)
    assert [(e.line, e.time, e.attributes["check"]) for e in events] == [
        (1, None, "check_ps_cpu"),
        (2, MARKED, "check_hw_ib"),
    ]


def test_every_check_of_a_run_that_goes_on_is_told() -> None:
    """nhc -a; the sum at its end is no check."""
    events = decode(FAILED + "check_a: x", FAILED + "check_b: y", "ERROR:  nhc:  2 health checks failed.", node="gpu-3")
    assert [(e.line, e.node, e.attributes["check"]) for e in events] == [
        (1, "gpu-3", "check_a"),
        (2, "gpu-3", "check_b"),
    ]


@pytest.mark.parametrize(
    ("text", "time", "node"),
    [
        (FAILED + IB, None, None),
        ("ERROR: nhc: Health check failed: " + IB, None, None),
        ("ERROR:  nhc-gpu:  Health check failed:  " + IB, None, None),
        ("Health check failed:  " + IB, None, None),
        ("[1749753458] - " + FAILED + IB, datetime(2025, 6, 12, 18, 37, 38, tzinfo=UTC), None),
        ("gpu-021: " + FAILED + IB, None, "gpu-021"),
        ("gpu-021 | " + FAILED + IB, None, "gpu-021"),
        ("gpu-021:diagnosis:NHC: Health check failed:  " + IB, None, "gpu-021"),
        ("2025-06-12T18:47:38+00:00 gpu-021 nhc[77]: Health check failed:  " + IB, MARKED, "gpu-021"),
        ("2025-06-12T18:47:38+00:00 gpu-021 nhc(gpu)[77]: Health check failed:  " + IB, MARKED, "gpu-021"),
        (
            "2025-06-12T18:47:38+00:00 gpu-021 nhc[77]: "
            + json.dumps({"progname": "nhc", "exitcode": "1", "healthy": "false", "message": IB}),
            MARKED,
            "gpu-021",
        ),
    ],
)
def test_a_failure_is_read_in_every_form(text: str, time: datetime | None, node: str | None) -> None:
    """nhc.log, gathered logs, the system log, Grid Engine, JSON."""
    assert [(e.time, e.node, e.kind, e.message, e.attributes) for e in decode(text)] == [
        (time, node, "health_check_failed", IB, {"check": "check_hw_ib"})
    ]
    assert detect([text]) == "nhc"


@pytest.mark.parametrize(
    "text",
    [
        "SUCCESS:  nhc:  Health check passed:  check_gpu_count: Expected 8 and found 8",
        "Node Health Check completed successfully (2s).",
        "Nov 20 22:31:54 gpu-017 kubelet[12]: Health check failed: check_gpu_xid: x",
        "Nov 20 22:31:54 gpu-017 nhc[77]: " + json.dumps({"progname": "nhc", "healthy": "true", "message": "x"}),
        'Nov 20 22:31:54 gpu-017 nhc[77]: {"progname":"nhc","healthy":"false","mess',
        "Nov 20 22:31:54 gpu-017 nhc[77]: " + json.dumps({"healthy": "false"}),
        "WARNING:  nhc:  something else",
        "gpu-021:diagnosis:fine",
    ],
)
def test_what_is_no_failure_gives_nothing(text: str) -> None:
    """Passed, another program, cut short."""
    assert decode(text) == []


@pytest.mark.parametrize(
    ("text", "severity", "cause"),
    [
        ("check_hw_ib:  No IB port is ACTIVE (LinkUp 100 Gb/sec).", "error", "fabric"),
        ("check_hw_eth:  Ethernet device ib0 not detected.", "error", "fabric"),
        ("check_ib_bw_gdr: IB=mlx5_ib0, GPU=0, BW=1", "error", "fabric"),
        ("check_ib_link_flapping: IB link flapping detected", "error", "fabric"),
        ("check_nccl_allreduce_ib_loopback: BW=1", "error", "fabric"),
        ("check_net_ping:  no answer", "error", "fabric"),
        ("check_gpu_xid: GPU Xid errors detected: x", "error", "hardware"),
        ("check_nvsmi_healthmon:  nvidia-smi:  InfoROM is corrupted", "error", "hardware"),
        ("check_nvsmi_healthmon:  nvidia-smi:  NVIDIA driver not loaded", "error", "driver"),
        ("check_nvlink_status: GPU 3 has inactive nvlink", "error", "hardware"),
        ("check_hw_physmem:  Actual RAM size (0 kB) less than minimum allowed (1 kB).", "error", "hardware"),
        ("check_hw_physmem_free:  Not enough RAM free (1 kB < 2 kB).", "error", "host"),
        ("check_hw_mcelog:  MCEs found", "error", "hardware"),
        ("check_hw_cpuinfo:  Actual CPU socket count (1) does not match expected (2).", "error", "hardware"),
        ("check_dmi_data_match:  wrong BIOS", "error", "hardware"),
        ("check_fs_mount:  /gpudata not mounted", "error", "storage"),
        ("check_fs_free:  /tmp has only 0 kB free", "error", "storage"),
        ("check_nvme_count: found (7), expected (8)", "error", "storage"),
        ("check_ps_daemon:  Process sshd not running", "error", "host"),
        ("check_ps_service:  Service a not running; start in progress", "warning", "host"),
        ("check_cmd_output:  no match", "error", "host"),
        ("check_file_test:  /dev/nvidia0 missing", "error", "host"),
        ("check_job_alloc:  left over", "error", "application"),
        ("Script timed out.", "warning", "host"),
        ('Script timed out while executing "check_fs_mount -f /scratch".', "warning", "host"),
        ("Terminated by signal SIGTERM.", "warning", "host"),
        ("check_ours: something of this site", "error", "unknown"),
    ],
)
def test_a_checks_name_says_what_it_is_about(text: str, severity: str, cause: str) -> None:
    """The same table gives the cause of the outage that NHC makes of it."""
    assert [(e.severity, e.cause) for e in decode(FAILED + text)] == [(severity, cause)]


def test_a_check_names_its_device() -> None:
    """A GPU by its number or address, an adapter's port; else the node."""
    events = decode(
        FAILED + "check_gpu_ecc: GPU id 3: SRAM Uncorrectable ECC error count detected, (0,1). FaultCode: NHC2019",
        FAILED + "check_hw_ib:  No IB port mlx5_3:1 is ACTIVE (LinkUp 400 Gb/sec).",
        FAILED + "check_fs_mount:  /scratch not mounted",
    )
    assert [(e.device.type, e.device.index, e.device.port) for e in events] == [
        ("gpu", 3, None),
        ("hca", None, 1),
        ("node", None, None),
    ]
    assert events[0].attributes == {"check": "check_gpu_ecc", "fault_code": "NHC2019"}
    assert events[0].message.endswith("(0,1)")
    assert events[1].attributes["name"] == "mlx5_3"


def test_a_check_that_quotes_an_xid_names_it_and_is_no_xid() -> None:
    """The kernel log is the witness."""
    xid = "[ 12.5] NVRM: Xid (PCI:0001:00:00): 79, pid=1, GPU has fallen off the bus."
    events = decode(FAILED + f"check_gpu_xid: GPU Xid errors detected: {xid}. FaultCode: NHC2001")
    assert [(e.kind, e.code, e.attributes["xid"], e.device.pci) for e in events] == [
        ("health_check_failed", None, 79, "0001:00:00.0")
    ]

"""What NCCL and PyTorch's watchdog say of a failed collective."""

from datetime import UTC, datetime

import pytest

from diagnosis.symptoms.meaning import meaning_of
from parsers.formats.training import TrainingParser
from parsers.text.parser import Context, parse
from store.records.event import Event

GLOG = "[rank{0}]:[E1218 20:27:21.426415540 ProcessGroupNCCL.cpp:629] [Rank {0}] "


def decode(*lines: str) -> list[Event]:
    """The events of some lines."""
    return list(parse(TrainingParser(Context(run="r", year=2025)), lines))


@pytest.mark.parametrize(
    ("text", "status", "peer", "name"),
    [
        (
            "NET/IB : Got completion from peer 10.2.0.5<33092> with error 12, opcode 0, len 0, vendor err 129 (Recv)",
            12,
            "10.2.0.5",
            None,
        ),
        (
            "NET/IB: Got completion from peer n2<5> with status=12 opcode=0 len=0 vendor err 129 (Send) hca mlx5_0",
            12,
            "n2",
            "mlx5_0",
        ),
        (
            "NET/IB: Got completion from peer n2<5> with status=IBV_WC_RETRY_EXC_ERR(12) opcode=X(1) vendor_err=129",
            12,
            "n2",
            None,
        ),
        ("NET/IB: Got completion with error 12, opcode 0, len 0, vendor err 129", 12, None, None),
    ],
)
def test_a_failed_transfer_names_its_host_and_peer(text: str, status: int, peer: str | None, name: str | None) -> None:
    """In the spellings of NCCL 2.4 to 2.28."""
    (event,) = decode(f"[2026-03-03 12:11:38] gpu-007:185303:186751 [1] transport/net_ib.cc:2453 NCCL WARN {text}")
    assert (event.node, event.cause, event.attributes["error"]) == ("gpu-007", "fabric", "nccl_ib_completion")
    assert event.time == datetime(2026, 3, 3, 12, 11, 38, tzinfo=UTC)
    attributes = event.attributes
    assert (attributes["status"], attributes["vendor_err"]) == (status, 129)
    assert (attributes.get("peer"), attributes.get("name")) == (peer, name)


@pytest.mark.parametrize(
    ("status", "vendor_err", "error", "severity", "cause", "symptom"),
    [
        ("12", 129, "nccl_ib_completion", "error", "fabric", "peer_complaint"),
        ("IBV_WC_RESP_TIMEOUT_ERR(20)", 0, "nccl_ib_completion", "error", "fabric", "peer_complaint"),
        ("5", 249, "nccl_ib_flushed", "warning", "unknown", None),
        ("IBV_WC_WR_FLUSH_ERR(5)", 244, "nccl_ib_flushed", "warning", "unknown", None),
        ("4", 81, "nccl_ib_refused", "error", "unknown", "program_error"),
        ("IBV_WC_LOC_LEN_ERR(1)", 105, "nccl_ib_refused", "error", "unknown", "program_error"),
        ("10", 136, "nccl_ib_completion", "error", "unknown", "peer_complaint"),
        ("11", 137, "nccl_ib_completion", "error", "unknown", "peer_complaint"),
        ("13", 135, "nccl_ib_completion", "error", "unknown", "peer_complaint"),
    ],
)
def test_the_status_of_a_transfer_tells_whose_fault_it_is(
    status: str, vendor_err: int, error: str, severity: str, cause: str, symptom: str | None
) -> None:
    """By `enum ibv_wc_status`: a flushed request is what an earlier error leads to, and accuses nobody."""
    words = f"NET/IB: Got completion from peer 10.2.0.5<33092> with status={status} opcode=0 len=0 "
    words += f"vendor err {vendor_err} (Recv) hca mlx5_1"
    (event,) = decode(f"gpu-007:185303:186751 [1] transport/net_ib.cc:2453 NCCL WARN {words}")
    assert (event.attributes["error"], event.severity, event.cause) == (error, severity, cause)
    assert event.attributes["status"] == int(status.partition("(")[2].rstrip(")") or status)
    assert meaning_of(event).symptom == symptom


def test_a_watchdog_names_its_rank_and_collective() -> None:
    """And the time of PyTorch's own logger, whose year the log tells."""
    words = "Watchdog caught collective operation timeout: WorkNCCL(SeqNum=1, OpType=BROADCAST, NumelIn=131072000, "
    words += "NumelOut=131072000, Timeout(ms)=600000) ran for 600081 milliseconds before timing out."
    event, wait = decode(GLOG.format(5) + words)
    assert (wait.kind, wait.time) == ("collective_wait", event.time)
    assert event.time == datetime(2025, 12, 18, 20, 27, 21, 426415, tzinfo=UTC)
    told = {name: event.attributes[name] for name in ("rank", "sequence", "operation", "timeout_ms", "ran_ms")}
    assert told == {"rank": 5, "sequence": 1, "operation": "BROADCAST", "timeout_ms": 600_000, "ran_ms": 600_081}


HANGS = (
    "Watchdog caught collective operation timeout: WorkNCCL(SeqNum=4, OpType=ALLREDUCE, Timeout(ms)=600000) ran for 6"
)


@pytest.mark.parametrize(
    ("prefix", "rank"),
    [
        ("[rank17]:[E ProcessGroupNCCL.cpp:1182] [Rank 2] ", 17),
        ("gpu-008: [rank17]:[E ProcessGroupNCCL.cpp:1182] [PG 3 Rank 2] ", 17),
        ("12: [E ProcessGroupNCCL.cpp:458] [Rank 2] ", 2),  # of srun's tasks, which may hold eight ranks each
        ("[E ProcessGroupNCCL.cpp:458] [Rank 2] ", 2),
    ],
)
def test_the_watchdog_counts_within_its_group_and_its_prefix_in_the_job(prefix: str, rank: int) -> None:
    """Rank 2 of a process group is not rank 2 of the job: the blame goes to the job's."""
    event = decode(f"{prefix}{HANGS}")[0]
    assert (event.attributes["error"], event.attributes["rank"]) == ("nccl_watchdog", rank)


@pytest.mark.parametrize(
    ("text", "error", "cause"),
    [
        (
            "NET/OFI Request 0x7f45 completed with error. RC: 103. Error: 4126 (Unresponsive receiver (reachable by",
            "nccl_ofi_completion",
            "fabric",
        ),
        (
            "NET/OFI Request completed with error. RC: 107. Error: Inappropriate ioctl for device.",
            "nccl_ofi_completion",
            "unknown",
        ),
        ("NET/OFI Unable to register memory (type = 2) for device 4. RC: -22", "nccl_ofi_memory", "unknown"),
        ("NET/OFI Could not register memory on rail 0 with flag 0", "nccl_ofi_memory", "unknown"),
        ("Connect to 10.0.0.5<41113> failed: Network is unreachable", "nccl_socket", "unknown"),
    ],
)
def test_libfabric_under_nccl_and_old_sockets_are_read(text: str, error: str, cause: str) -> None:
    """A peer that does not answer is the fabric's, as with InfiniBand's status 12; other ends accuse nobody."""
    (event,) = decode(f"gpu-009:194:710 [0] ofi_process_cq(a*, b*):196 NCCL WARN {text}")
    assert (event.node, event.attributes["error"], event.cause) == ("gpu-009", error, cause)


@pytest.mark.parametrize(
    "text",
    [
        "NET/OFI Could not find ncclGetVersion symbol",
        "NET/OFI pciPath: Could not find real path of /sys",
        "NET/OFI Failed to initialize GDRCopy: Failed to open gdr handle",
    ],
)
def test_what_libfabric_tries_at_its_start_is_no_error(text: str) -> None:
    """The program goes on without it."""
    assert decode(f"gpu-009:194:710 [0] f:196 NCCL WARN {text}") == []

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

"""Crashes inside NCCL."""

import pytest

from parsers.kernel_messages.families.gpu import decode_nccl


@pytest.mark.parametrize(
    ("message", "process", "pid", "address"),
    [
        (
            "pt_main_thread[2536443]: segfault at 7f79 ip 00007f7c sp 00007f7c error 4 in libnccl.so.2[7f7c+d3d3000]",
            "pt_main_thread",
            2536443,
            "0x7f79",
        ),
        (
            "ray::WorkerDict[7]: segfault at 8 ip 0 sp 0 error 4 in libnccl.so.2.21.5[7f+b]",
            "ray::WorkerDict",
            7,
            "0x8",
        ),
        (
            "traps: python3[8] general protection fault ip:7f sp:7f error:0 in libnccl.so.2[7f+d]",
            "python3",
            8,
            None,
        ),
    ],
)
def test_a_crash_names_its_process(message: str, process: str, pid: int, address: str | None) -> None:
    """An application's own mistake: cause `application`."""
    event = decode_nccl(message)
    assert event is not None
    assert (event.kind, event.cause) == ("nccl_segfault", "application")
    assert (event.attributes["process"], event.attributes["pid"]) == (process, pid)
    assert event.attributes.get("address") == address


@pytest.mark.parametrize(
    "message",
    [
        "python3[7]: segfault at 8 ip 0 sp 0 error 4 in libc.so.6[7f+b]",
        "python3[7]: loaded in libnccl.so.2[0]",
        "segfault in libnccl.so.2[0]",
    ],
)
def test_other_crashes_are_not_nccls(message: str) -> None:
    """Another library, no crash, no process."""
    assert decode_nccl(message) is None

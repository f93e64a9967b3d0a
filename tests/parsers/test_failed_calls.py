"""Failed calls of CUDA and NCCL, as benchmarks, samples and trainers in C++ print them."""

import pytest

from parsers.formats.training import TrainingParser
from parsers.registry import detect
from parsers.text.parser import Context, parse
from store.records.event import Event


def decode(*lines: str) -> list[Event]:
    """The events of some lines."""
    return list(parse(TrainingParser(Context(year=2026)), lines))


@pytest.mark.parametrize(
    ("line", "error", "cause", "node"),
    [
        ("gpu-1: Test NCCL failure common.cu:1005 'unhandled cuda error / '", "nccl_error", "unknown", "gpu-1"),
        ("NCCL failure all_reduce.cu:95 'unhandled cuda error'", "nccl_error", "unknown", None),
        ("gpu-1: Test CUDA failure common.cu:892 'invalid device ordinal'", "cuda_error", "application", "gpu-1"),
        ("Cuda failure p2p.cu:189: 'uncorrectable NVLink error'", "cuda_error", "hardware", None),
        ('CUDA error at t.cu:256 code=802(cudaErrorSystemNotReady) "cudaSetDevice(0)"', "cuda_error", "fabric", None),
        ('CUDA error at t.cu:9 code=214(cudaErrorECCUncorrectable) "cudaFree(p)"', "cuda_error", "hardware", None),
        ('CUDA error at t.cu:9 code=13(CUBLAS_STATUS_EXECUTION_FAILED) "f()"', "cuda_error", "unknown", None),
        (
            "UserWarning: CUDA initialization: Unexpected error from cudaGetDeviceCount(). Did you run some functions"
            " before? Error 802: system not yet initialized (Triggered internally at CUDAFunctions.cpp:109.)",
            "cuda_error",
            "fabric",
            None,
        ),
        ("Exception: WorkerProc initialization failed due to an exception in a process.", "Exception", "unknown", None),
        ("(Worker pid=2) ERROR 01-06 19:37:15 [core.py:824] Exception: it failed", "Exception", "unknown", None),
    ],
)
def test_a_failed_call_tells_what_failed_and_where(line: str, error: str, cause: str, node: str | None) -> None:
    """Who is to blame only where the words or the name say it."""
    [event] = decode(line)
    assert (event.kind, event.attributes["error"], event.cause, event.node) == ("training_error", error, cause, node)


def test_the_number_that_cuda_gives_is_kept() -> None:
    """Of the sample's and of the warning's form."""
    [sample] = decode('CUDA error at t.cu:256 code=802(cudaErrorSystemNotReady) "cudaSetDevice(0)"')
    assert sample.attributes["status"] == 802


@pytest.mark.parametrize(
    "line",
    [
        "UserWarning: CUDA initialization: Found no NVIDIA driver on your system.",
        "Exception ignored in: <function Pool.__del__ at 0x7f>",
        "Exceptions: none",
        "0 CUDA failures, 0 NCCL failures",
        "# Avg bus bandwidth    : 12.5  NCCL failure rate 0",
    ],
)
def test_what_is_no_failed_call_tells_nothing(line: str) -> None:
    """A host without GPUs, what Python ignores, counts of zero."""
    assert decode(line) == []


@pytest.mark.parametrize(
    "line",
    [
        "gpu-1: Test NCCL failure common.cu:1005 'internal error'",
        'CUDA error at t.cu:256 code=802(cudaErrorSystemNotReady) "cudaSetDevice(0)"',
    ],
)
def test_auto_knows_a_log_by_such_a_line(line: str) -> None:
    """Where nothing else of the trainer is there."""
    assert detect([line]) == "training"

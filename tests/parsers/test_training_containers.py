"""What pyxis, Ray, UCX, RCCL and the runtimes of other accelerators print into a training log."""

import pytest

from parsers.formats.training import TrainingParser
from parsers.registry import detect
from parsers.text.parser import Context, parse
from store.records.event import Event


def decode(*lines: str) -> list[Event]:
    """The events of some lines."""
    return list(parse(TrainingParser(Context(year=2026)), lines))


DIED = (
    "(raylet) A worker died or was killed while executing a task by an unexpected system error. To troubleshoot the "
    "problem, check the logs. Worker ID: d893 Node ID: 8440 Worker IP address: 10.0.0.110 Worker port: 1 Worker PID: 9"
)


@pytest.mark.parametrize(
    ("line", "error", "cause", "node"),
    [
        ("slurmstepd: error: pyxis: couldn't start container", "container_start", "unknown", None),
        ("slurmstepd: error: pyxis: failed to import docker image", "container_start", "unknown", None),
        ("slurmstepd-gpu-016: error: pyxis: couldn't start container", "container_start", "unknown", "gpu-016"),
        (
            "srun: error: Task launch for StepId=23.0 failed on node gpu-017: Job prolog failed",
            "not_launched",
            "host",
            "gpu-017",
        ),
        (
            "srun: error: Task launch for 24.0 failed on node gpu-018: Unable to satisfy cpu bind request",
            "not_launched",
            "application",
            "gpu-018",
        ),
        ("slurmstepd: error: Prolog hung on node gpu-019", "prolog_hung", "host", "gpu-019"),
        (DIED, "ray_worker_died", "unknown", "10.0.0.110"),
        (
            "(raylet) node_manager.cc:3069: 2 Workers (tasks / actors) killed due to memory pressure (OOM), 0 Workers "
            "crashed due to other reasons at node (ID: 0a5d, IP: 10.0.0.44) over the last time period.",
            "ray_out_of_memory",
            "application",
            "10.0.0.44",
        ),
        (
            "[gpu-007:31337:0:31911] ib_mlx5_log.c:177  Transport retry count exceeded on mlx5_4:1/IB (synd 0x15)",
            "ucx_retries",
            "fabric",
            "gpu-007",
        ),
        (
            "gpu-021:2:4 [1] /src/transport/p2p.cc:220 NCCL WARN hipIpcGetMemHandle failed : invalid argument",
            "nccl_cuda",
            "unknown",
            "gpu-021",
        ),
        (
            "gpu-022:2:4 [0] /src/proxy.cc:1190 NCCL WARN Socket recv failed while polling for opId=0x7d9e",
            "nccl_socket",
            "unknown",
            "gpu-022",
        ),
        (
            "HPL ERROR: CUDART Error: cudaMemcpy( a) = 700 (an illegal memory access was encountered) on n46 at (x)",
            "cuda_error",
            "application",
            "n46",
        ),
        (
            "(Worker pid=2) ERROR 01-06 19:37:15 [executor.py:824] RuntimeError: ACL stream synchronize failed",
            "RuntimeError",
            "unknown",
            None,
        ),
        ("CUDA Error Prev: uncorrectable ECC error encountered: Success", "cuda_error", "hardware", None),
        (
            "F0409 20:04:50.702540 14581 mem.hpp:39] Check failed: error == cudaSuccess (700 vs. 0)  an illegal memory"
            " access was encountered",
            "cuda_error",
            "application",
            None,
        ),
        (
            "F0402 17:15:39.522164 20718 math.cu:422] Check failed: status == CURAND_STATUS_SUCCESS (201 vs. 0)  x",
            "cuda_error",
            "unknown",
            None,
        ),
        ("Call aclrtSynchronizeStream(s) failed : 507015 at file /w/runtime.cc line 408", "acl_call", "unknown", None),
        (
            "2026-10-21 09:21:39.667489: [cnrtError] [12905] [Card : 2] Error occurred during calling 'cnQueueSync'.",
            "cnrt_error",
            "unknown",
            None,
        ),
    ],
)
def test_a_line_tells_what_failed_and_where(line: str, error: str, cause: str, node: str | None) -> None:
    """Who is to blame only where the words say it."""
    [event] = decode(line)
    assert (event.kind, event.attributes["error"], event.cause, event.node) == ("training_error", error, cause, node)


def test_the_lines_of_one_container_are_one_error() -> None:
    """With their number."""
    [event] = decode(*("slurmstepd: error: pyxis: couldn't start container",) * 8)
    assert event.attributes["repeats"] == 8


def test_an_exception_of_a_collective_has_the_jobs_rank_and_the_collective() -> None:
    """The rank within its group is another."""
    line = (
        "[rank5]:[E1224 13:23:05.483840160 ProcessGroupNCCL.cpp:542] [Rank 12] Collective WorkNCCL(SeqNum=1, "
        "OpType=BROADCAST, Timeout(ms)=1800000) raised the following async exception: NCCL error: unhandled error"
    )
    [event] = decode(line)
    said = event.attributes
    assert (said["error"], said["rank"], said["operation"], said["sequence"]) == ("nccl_async", 5, "BROADCAST", 1)


@pytest.mark.parametrize(
    "line",
    [
        "I0409 20:04:50.702540 14581 check.cc:3] Checked: error == cudaSuccess",
        "pyxis: importing docker image: registry.example/train:7",
        "slurmstepd: pyxis: starting container ...",
        "slurmstepd: error: pyxis:     [INFO] Querying registry for permission grant",
        "(raylet) node_manager.cc:1: 0 Workers (tasks / actors) killed due to memory pressure (OOM), 1 Workers crashed",
        "(Worker pid=2) INFO 01-06 19:37:15 [utils.py:1055] RuntimeError: is a word here",
        'n:2:2 [0] /src/init.cc:179 NCCL WARN Missing "iommu=pt" from kernel command line which can lead to hang!',
        "hpc-25-14:1:1 [0] bootstrap.cc:131 NCCL WARN Bootstrap Root : rank 1 of 8 ranks has already checked in",
    ],
)
def test_what_is_no_failure_tells_nothing(line: str) -> None:
    """Progress, advice, counts of zero."""
    assert decode(line) == []


@pytest.mark.parametrize(
    "line",
    ["nvidia-container-cli: detection error: nvml error: unknown error", DIED, "[cnrtError] [1] [Card : 0] x"],
)
def test_auto_knows_a_log_by_such_a_line(line: str) -> None:
    """Where nothing else of the trainer is there."""
    assert detect([line]) == "training"

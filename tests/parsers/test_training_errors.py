"""Why an attempt ended, told by Slurm, NCCL, torchrun, other launchers and Python."""

import pytest
from registries import defined

from parsers import training
from parsers.formats.training import LITERALS, READERS, TrainingParser
from parsers.registry import detect
from parsers.text.parser import Context, parse
from parsers.training.error_report import MAX_ERRORS, MAX_LINES, ErrorReader
from store.records.event import Event

HANG = ("rocm_hw_exception", "unknown", "error")
GLOG = "[rank{0}]:[E1218 20:27:21.426415540 ProcessGroupNCCL.cpp:629] [Rank {0}] "


def decode(*lines: str) -> list[Event]:
    """The events of some lines."""
    return list(parse(TrainingParser(Context(run="r", year=2025)), lines))


def test_every_reader_is_registered_once() -> None:
    """A new launcher is a reader and its place in READERS; each of its signs lets a line through."""
    assert sorted(reader.name for reader in READERS) == sorted(reader.name for reader in defined(training, ErrorReader))
    assert {sign for reader in READERS for sign in reader.signs} <= set(LITERALS)


@pytest.mark.parametrize(
    ("line", "error", "cause", "severity"),
    [
        (
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB",
            "OutOfMemoryError",
            "application",
            "error",
        ),
        ("RuntimeError: CUDA error: an illegal memory access was encountered", "RuntimeError", "application", "error"),
        ("RuntimeError: CUDA error: device-side assert triggered", "RuntimeError", "application", "error"),
        ("RuntimeError: CUDA error: uncorrectable ECC error encountered", "RuntimeError", "hardware", "error"),
        ("torch.AcceleratorError: CUDA error: uncorrectable NVLink error", "AcceleratorError", "hardware", "error"),
        ("OSError: [Errno 28] No space left on device: '/c'", "OSError", "storage", "error"),
        ("OSError: [Errno 5] Input/output error: '/c'", "OSError", "storage", "error"),
        ("OSError: [Errno 116] Stale file handle", "OSError", "storage", "error"),
        ("PermissionError: [Errno 30] Read-only file system: '/c'", "PermissionError", "storage", "error"),
        ("OSError: [Errno 122] Disk quota exceeded: '/c'", "OSError", "storage", "error"),
        ("KeyError: 'tokens'", "KeyError", "application", "error"),
        ("AssertionError: batch size", "AssertionError", "application", "error"),
        ("RuntimeError: something else", "RuntimeError", "unknown", "error"),
        ("AssertionError", "AssertionError", "application", "error"),
        ("[rank3]: KeyboardInterrupt", "KeyboardInterrupt", "unknown", "warning"),
        (
            "torch.distributed.elastic.rendezvous.api.RendezvousTimeoutError",
            "RendezvousTimeoutError",
            "unknown",
            "error",
        ),
        (
            "Memory access fault by GPU node-1 (Agent handle: 0x556e9b7e3360) on address 0x7f52c3f5f000. Reason: Page "
            "not present or supervisor privilege.",
            "rocm_memory_fault",
            "application",
            "error",
        ),
        ("HW Exception by GPU node-9 (Agent handle: 0x631351bb5a20) reason :GPU Hang", *HANG),
        (
            ":0:rocdevice.cpp            :3588: 1945659664 us:  Callback: Queue 0x77791ea00000 aborting with error : "
            "HSA_STATUS_ERROR_EXCEPTION: An HSAIL operation resulted in a hardware exception. code: 0x1016",
            "HSA_STATUS_ERROR_EXCEPTION",
            "unknown",
            "error",
        ),
        (
            "Callback: Queue 0x1517ee00 Aborting with error : HSA_STATUS_ERROR_MEMORY_APERTURE_VIOLATION: The agent "
            "attempted to access memory beyond the largest legal address. code: 0x29",
            "HSA_STATUS_ERROR_MEMORY_APERTURE_VIOLATION",
            "application",
            "error",
        ),
        (" 41%|████    | 366/903 [5:15:39<6:53:09, 46.16s/it]HW Exception by GPU node-9 reason :GPU Hang", *HANG),
        ("ConnectionResetError: [Errno 104] Connection reset by peer", "ConnectionResetError", "unknown", "error"),
        (
            "torch.distributed.DistBackendError: NCCL error in: x.cpp:1, ncclRemoteError: remote process exited "
            "or there was a network error",
            "DistBackendError",
            "unknown",
            "error",
        ),
        (
            "torch.distributed.elastic.rendezvous.api.RendezvousTimeoutError: x",
            "RendezvousTimeoutError",
            "unknown",
            "error",
        ),
        ("torch.x.SignalException: Process 1 got signal: 15", "SignalException", "unknown", "warning"),
        ("  what():  CUDA error: uncorrectable ECC error encountered", "c10_error", "hardware", "error"),
        ("Fatal Python error: Bus error", "fatal_python_error", "unknown", "error"),
        ("Possible persistent error!", "persistent_error", "hardware", "error"),
        ("Possible transient error!", "transient_error", "hardware", "error"),
        (
            "Unexpected result tensor(nan) on rank 11 at iteration #150 invocation #1 (message='x')",
            "unexpected_result",
            "unknown",
            "warning",
        ),
        (
            GLOG.format(4) + "Watchdog caught collective operation timeout: WorkNCCL(",
            "nccl_watchdog",
            "unknown",
            "error",
        ),
        (
            GLOG.format(4)
            + "Process group watchdog thread terminated with exception: CUDA error: uncorrectable ECC error",
            "nccl_watchdog",
            "hardware",
            "error",
        ),
        (
            GLOG.format(4) + "ProcessGroupNCCL's watchdog got stuck for 480 seconds",
            "nccl_heartbeat",
            "unknown",
            "error",
        ),
        ("n1:1:2 [0] a.cc:1 NCCL WARN NET/IB : mlx5_1:1 async fatal event: x", "nccl_ib_async", "fabric", "error"),
        (
            "n1:1:2 [0] a.cc:1 NCCL WARN NET/IB : mlx5_1:1 Got async event : port error",
            "nccl_ib_async",
            "fabric",
            "warning",
        ),
        ("n1:1:2 [0] a.cc:1 NCCL WARN Call to ibv_reg_mr failed", "nccl_ib_call", "fabric", "error"),
        ("n1:1:2 [0] a.cc:1 NCCL WARN Cuda failure 'out of memory'", "nccl_cuda", "application", "error"),
        ("n1:1:2 [0] a.cc:1 NCCL WARN HIP failure 'out of memory'", "nccl_cuda", "application", "error"),
        ("n1:1:2 [0] a.cc:1 NCCL WARN HIP failure 'invalid argument'", "nccl_cuda", "unknown", "error"),
        (
            "n1:1:2 [0] a.cc:1 NCCL WARN Cuda failure 214 'uncorrectable ECC error encountered'",
            "nccl_cuda",
            "hardware",
            "error",
        ),
        (
            "n1:1:2 [0] a.cc:1 NCCL WARN Net : Connection closed by remote peer n2<4>",
            "nccl_socket",
            "unknown",
            "warning",
        ),
        ("slurmstepd: error: Detected 1 oom_kill event in StepId=4711.0. Some", "oom_kill", "application", "error"),
        ("slurmstepd: error: Detected 2 oom-kill event(s) in StepId=4711.0. Some", "oom_kill", "application", "error"),
        (
            "slurmstepd: error: *** STEP 1.0 STEPD TERMINATED ON n1 AT 2025-12-18T20:20:00 DUE TO JOB NOT ENDING",
            "not_ending",
            "host",
            "error",
        ),
        ("srun: error: n1: tasks 0-7: Bus error (core dumped)", "task_killed", "unknown", "error"),
        (
            " 41%|████    | 366/903 [5:15:39<6:53:09, 46.16s/it]slurmstepd: error: *** STEP 1.0 ON n1 CANCELLED AT "
            "2025-03-01T04:20:00 DUE TO TIME LIMIT ***",
            "time_limit",
            "unknown",
            "warning",
        ),
        (
            "mpirun noticed that process rank 3 with PID 4711 on node n1 exited on signal 9 (Killed).",
            "task_killed",
            "unknown",
            "error",
        ),
        ("pdsh@head: n1: ssh exited with exit code 255", "task_killed", "unknown", "error"),
        ("x] [default] Received SIGTERM death signal, shutting down workers", "stopped", "unknown", "warning"),
        (
            "[f0778:22924:0:22924] Caught signal 11 (Segmentation fault: address not mapped to object at address 0)",
            "signal_caught",
            "unknown",
            "error",
        ),
        ("[gpu-003:12345] Signal: Bus error (7)", "signal_caught", "unknown", "error"),
        ("(Worker pid=2) *** SIGSEGV received at time=1745480384 on cpu 3 ***", "signal_caught", "unknown", "error"),
        (
            "*** SIGTERM received by PID 16738 (TID 16738) on cpu 20 from PID 1; x: ***",
            "signal_caught",
            "unknown",
            "warning",
        ),
        ("[gpu-003:12345] Signal: Terminated (15)", "signal_caught", "unknown", "warning"),
    ],
)
def test_the_words_of_an_ending_tell_its_cause(line: str, error: str, cause: str, severity: str) -> None:
    """Where they fit several causes, none."""
    (event,) = decode(line)
    assert event.kind == "training_error"
    assert (event.attributes["error"], event.cause, event.severity) == (error, cause, severity)


@pytest.mark.parametrize(
    "line",
    [
        "n1:1:2 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/IB",
        "n1:1:2 [0] a.cc:1 NCCL WARN NET/IB : mlx5_1:1 Got async event : client reregistration",
        "n1:1:2 [0] a.cc:1 NCCL WARN NET/IB : mlx5_1:1 Got non-fatal async event: GID table change(18)",
        "n1:1:2 [0] a.cc:1 NCCL WARN NET/Plugin: Failed to find ncclNetPlugin symbol",
        "n1:1:2 [0] a.cc:1 NCCL WARN Call to bind failed: Address already in use",
        "[NeMo W 2025-08-19 14:27:47 rerun_state_machine:239] RerunStateMachine initialized in mode RerunMode.DISABLED",
        "W0813 22:08:39.776000 2585 torch/distributed/elastic/x.py:898] Sending process 1 closing signal SIGTERM",
        "[default] worker group successfully finished. Waiting 300 seconds for other agents to finish.",
        "UserWarning: an Error: is only mentioned",
        "the word ValueError: in a sentence",
        "ValueError in a sentence",
        "Retry on ConnectionError",
        "srun: Job step aborted: Waiting up to 32 seconds for job step to finish.",
        "[gpu-003:12345] Signal code: Address not mapped (1)",
        "[gpu-003:12345] *** Process received signal ***",
        "(EE) Caught signal 11 (Segmentation fault). Server aborting",
        "host      : gpu-017",
    ],
)
def test_what_only_mentions_an_error_is_none(line: str) -> None:
    """Chatter of NCCL, torchrun, Slurm and Python."""
    assert decode(line) == []


def test_ranks_that_repeat_an_error_are_counted() -> None:
    """The first one's record says how many told it."""
    events = decode(*(f"[rank{rank}]: RuntimeError: NCCL error {rank}" for rank in range(7, 1007)))
    assert [(e.line, e.attributes["rank"], e.attributes["repeats"]) for e in events] == [(1, 7, 1000)]


def test_an_error_is_not_held_for_ever() -> None:
    """A log that goes on without iterations lets it go; its repeats are told no more."""
    parser = TrainingParser(Context(run="r"))
    assert list(parser.feed("RuntimeError: x", 1)) == []
    assert list(parser.feed("RuntimeError: x", MAX_LINES + 1)) == []
    (event,) = parser.feed("RuntimeError: x", MAX_LINES + 2)
    assert (event.line, event.attributes["repeats"]) == (1, 2)
    assert list(parser.flush()) == []


def test_a_broken_line_loses_nothing_that_was_held() -> None:
    """The error before it comes with the next line that is whole."""
    broken: list[int] = []
    lines = ["RuntimeError: x", " iteration       20/    1000 | consumed samples:"]
    parser = TrainingParser(Context(run="r"))
    events = list(parse(parser, lines, lambda line, _error: broken.append(line)))
    assert ([event.kind for event in events], broken) == (["training_error"], [2])


def test_a_flush_tells_the_errors_held() -> None:
    """A live log that has gone quiet."""
    parser = TrainingParser(Context(run="r"))
    list(parser.feed("RuntimeError: x", 1))
    assert [event.line for event in parser.flush()] == [1]
    assert list(parser.flush()) == []


def test_errors_of_many_names_are_bounded() -> None:
    """Names that never end do not fill the memory."""
    assert len(decode(*(f"A{number}Error: x" for number in range(MAX_ERRORS + 50)))) == MAX_ERRORS


TASK = "/job:jax_worker/replica:0/task:37"


@pytest.mark.parametrize(
    ("line", "peer", "timed"),
    [
        (
            f"2022-11-15 16:03:15.140058: E x/coordination_service.cc:954] {TASK} has been set to ERROR in "
            f"coordination service: UNAVAILABLE: Task {TASK} heartbeat timeout. This indicates that it has failed",
            37,
            True,
        ),
        (
            "2024-04-12 23:39:41.656900: E x/client.cc:96] Coordination service agent in error status: "
            "DEADLINE_EXCEEDED: Deadline Exceeded",
            None,
            True,
        ),
        (
            "E0926 17:26:32.075402  157988 coordination_service_agent.cc:332] Polled an error from coordination "
            "service (this can be an error from this or another task).",
            None,
            True,
        ),
        (
            "F0926 17:26:32.075587  157988 client.h:77] Terminating process because the JAX distributed service "
            "detected fatal errors. This most likely indicates that another task died",
            None,
            True,
        ),
    ],
)
def test_jax_names_the_task_that_did_not_come(line: str, peer: int | None, timed: bool) -> None:
    """Why it did not is not known; the others are ended for it."""
    (event,) = decode(line)
    assert (event.severity, event.cause, event.attributes["error"]) == ("error", "unknown", "coordination_error")
    assert (event.attributes.get("peer_rank"), event.time is not None) == (peer, timed)


def test_jax_leaving_in_order_is_no_error() -> None:
    """At its end a task that cannot say good-bye goes on ending."""
    assert decode("E0926 17:26:32.075402 1 agent.cc:481] Failed to disconnect from coordination service") == []


def test_nodes_that_do_not_boot_are_the_hosts() -> None:
    """One by its name, several as Slurm lists them."""
    (event,) = decode("srun: error: Nodes hpc7a-dy-1 are still not ready")
    assert (event.node, event.cause, event.attributes["error"]) == ("hpc7a-dy-1", "host", "node_not_ready")
    (event,) = decode("srun: error: Nodes hpc7a-dy-[1-4] are still not ready")
    assert (event.node, event.cause) == (None, "host")


def test_a_program_that_was_not_built_for_the_gpu_is_at_fault() -> None:
    """No GPU and no network is."""
    (event,) = decode("torch.AcceleratorError: CUDA error: no kernel image is available for execution on the device")
    assert event.cause == "application"


def test_a_node_that_ray_lost_is_the_hosts() -> None:
    """By the name that Ray gives it; of several each is told."""
    lines = [
        f"(raylet) The node with node id: 5ad7fa and address: 10.0.0.{n} and node name: 10.0.0.{n} has been marked "
        "dead because the detector has missed too many heartbeats from it. This can happen when a \t(1) raylet crashes"
        for n in (21, 22)
    ]
    assert [(event.node, event.cause, event.attributes["error"]) for event in decode(*lines)] == [
        ("10.0.0.21", "host", "ray_node_dead"),
        ("10.0.0.22", "host", "ray_node_dead"),
    ]


def test_an_error_behind_the_head_of_torchrun_s_logger_is_read() -> None:
    """Its agent prints a traceback line by line."""
    head = "E0319 23:40:35.118955 139795948843008 torch/distributed/elastic/agent/server/api.py:951] "
    error = "torch.distributed.DistStoreError: Socket Timeout"
    (event,) = decode(f"{head}Traceback (most recent call last):", f"{head}{error}")
    assert (event.attributes["error"], event.message) == ("DistStoreError", error)
    assert event.time is not None


@pytest.mark.parametrize(
    "line",
    [
        "RuntimeError: HIP error: an illegal memory access was encountered",
        "RuntimeError: synStatus=26 [Generic failure] Device acquire failed.",
        "ray.exceptions.RayActorError: The actor died unexpectedly before finishing this task.",
        "npuSynchronizeDevice:NPUStream.cpp:370 NPU error, error code is 107020.",
        "srun: error: Node failure on gpu-017",
        "2024-04-12 23:39:41.656900: E x/client.cc:96] Coordination service agent in error status: CANCELLED: x",
    ],
)
def test_auto_knows_a_training_log_by_such_an_error(line: str) -> None:
    """What people paste is often the error alone."""
    assert detect([line]) == "training"

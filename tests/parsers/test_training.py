"""Training logs."""

from datetime import UTC, datetime

import pytest

from parsers.formats.training import TrainingParser
from parsers.text.parser import Context, ParseError, parse
from store.records.event import Event


def iteration(number: int, elapsed_ms: float = 5000.0, time: str = "", loss: str = "2.1") -> str:
    """An iteration line of present Megatron-LM."""
    return (
        f" {time}iteration {number:8d}/    1000 | consumed samples: 1 | "
        f"elapsed time per iteration (ms): {elapsed_ms} | "
        f"lm loss: {loss} | number of skipped iterations:   1 | number of nan iterations:   0 |"
    )


def decode(*lines: str) -> list[Event]:
    """The events of some lines."""
    return list(parse(TrainingParser(Context(run="r")), lines))


def test_an_iteration_line_gives_its_numbers() -> None:
    """And its time where it bears one."""
    (event,) = decode(iteration(1, time="[2025-03-01 04:05:06] "))
    assert event.time == datetime(2025, 3, 1, 4, 5, 6, tzinfo=UTC)
    assert event.attributes == {
        "run": "r",
        "iteration": 1,
        "total": 1000,
        "iterations": 1,
        "elapsed_ms": 5000.0,
        "loss": 2.1,
        "skipped": 1,
        "nan": 0,
    }


@pytest.mark.parametrize(
    ("prefix", "node"),
    [("", None), ("vm-07-14: ", "vm-07-14"), ("12: ", None), ("[default3]:", None), ("[rank0]: ", None)],
)
def test_a_launchers_prefix_is_taken_off(prefix: str, node: str | None) -> None:
    """pdsh puts the host, srun the rank."""
    (event,) = decode(prefix + iteration(1, time="[2025-03-01 04:05:06.5] "))
    assert event.node == node
    assert event.time == datetime(2025, 3, 1, 4, 5, 6, 500_000, tzinfo=UTC)


def test_parts_of_a_progress_bar_are_lines() -> None:
    """Carriage returns, and a line glued behind another."""
    events = decode(f"10%|##\r20%|####\r{iteration(1)}\r", f"[Rank 3] memory (MB) | max reserved: 1.0{iteration(2)}")
    assert [event.attributes["iteration"] for event in events] == [1, 2]


@pytest.mark.parametrize(
    ("before", "numbers", "covered"),
    [
        (["    will not load any checkpoints and will start from random"], [10, 20], [10, 10]),
        (["  successfully loaded checkpoint from /c [ t 0, p 0 ] at iteration 1000"], [1010, 1020], [10, 10]),
        ([" loading distributed checkpoint from /c at iteration 1000"], [1005], [5]),
        (["  log_interval ................... 10"], [500, 510], [10, 10]),
        ([], [1, 2, 5], [1, 1, 3]),
        ([], [400, 410, 390, 400], [1, 10, 10, 10]),
    ],
)
def test_a_line_covers_the_iterations_since_the_one_before(
    before: list[str], numbers: list[int], covered: list[int]
) -> None:
    """Since the checkpoint at first; where the beginning is unknown, no more than the log's interval."""
    events = [e for e in decode(*before, *(iteration(number) for number in numbers)) if e.kind == "iteration"]
    assert [event.attributes["iterations"] for event in events] == covered


def test_a_nan_loss_is_missing() -> None:
    """JSON has no NaN; the line counts nan iterations itself."""
    (event,) = decode(iteration(1, loss="nan"))
    assert "loss" not in event.attributes


def test_a_cut_iteration_line_is_an_error() -> None:
    """It names the iteration."""
    with pytest.raises(ParseError, match="iteration 20 bears no elapsed time"):
        list(TrainingParser(Context()).feed(" iteration       20/    1000 | consumed samples:", 1))


@pytest.mark.parametrize(
    ("timer", "duration_ms"),
    [
        ("    load-checkpoint ................................: (1.15, 16.61)", 16.61),
        ("time (ms) | load-checkpoint: 0.36", 0.36),
    ],
)
def test_a_load_is_told_with_its_slowest_rank(timer: str, duration_ms: float) -> None:
    """At the line that says that it was loaded, or at the timer."""
    loaded = "  successfully loaded checkpoint from /c [ t 0, p 0 ] at iteration 1000"
    with_line = decode(loaded, "(min, max) time across ranks (ms):", timer)
    assert [(e.kind, e.line, e.attributes["iteration"], e.attributes["duration_ms"]) for e in with_line] == [
        ("checkpoint_load", 1, 1000, duration_ms)
    ]
    assert [(e.kind, e.line, e.attributes["duration_ms"]) for e in decode(timer)] == [
        ("checkpoint_load", 1, duration_ms)
    ]


def test_a_save_is_told_at_its_start_and_end() -> None:
    """With the timer's duration, or without where no timer comes."""
    lines = [
        "saving checkpoint at iteration      10 to /c",
        "  successfully saved checkpoint at iteration      10 to /c",
    ]
    timer = ["(min, max) time across ranks (ms):", "    save-checkpoint ....: (21027.08, 21030.10)"]
    timed, untimed = decode(*lines, *timer), decode(*lines, iteration(11))
    assert [(e.kind, e.line) for e in timed] == [("checkpoint_save_start", 1), ("checkpoint_save", 2)]
    assert timed[1].attributes == {"run": "r", "iteration": 10, "duration_ms": 21030.10}
    assert [e.kind for e in untimed] == ["checkpoint_save_start", "checkpoint_save", "iteration"]
    assert "duration_ms" not in untimed[1].attributes


def test_a_save_that_never_finished_has_no_end() -> None:
    """It died inside."""
    assert [e.kind for e in decode("saving checkpoint at iteration      10 to /c")] == ["checkpoint_save_start"]


def test_an_evaluation_takes_the_timer_before_it() -> None:
    """And only that one."""
    lines = ["    evaluate .....: (9000.00, 9100.00)", " validation loss at iteration 10 | lm loss value: 1 |"]
    events = decode(*lines, " validation loss at iteration 20 | lm loss value: 1 |")
    assert [(e.kind, e.attributes.get("duration_ms")) for e in events] == [("evaluation", 9100.0), ("evaluation", None)]


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        ("[before the start of training step] datetime: 2023-11-29 08:51:14 ", "training_start"),
        ("vm-07-05: [after training is done] datetime: 2023-11-29 08:51:14", "training_end"),
        ("[exiting program at iteration 200] datetime: 2023-11-29 08:51:14", "training_end"),
    ],
)
def test_start_and_end_bear_times(line: str, kind: str) -> None:
    """The only ones in an old log."""
    (event,) = decode(line)
    assert (event.kind, event.time) == (kind, datetime(2023, 11, 29, 8, 51, 14, tzinfo=UTC))


CANCELLED = "slurmstepd: error: *** {} 18 ON r6i4n3 CANCELLED AT 2021-05-24T09:50:34{} ***"


@pytest.mark.parametrize(
    ("line", "error", "cause", "severity"),
    [
        (CANCELLED.format("JOB", ""), "cancelled", "unknown", "warning"),
        (CANCELLED.format("STEP", " DUE TO TIME LIMIT"), "time_limit", "unknown", "warning"),
        (CANCELLED.format("JOB", " DUE TO PREEMPTION"), "preempted", "unknown", "warning"),
        (
            CANCELLED.format("JOB", " DUE TO NODE FAILURE, SEE SLURMCTLD LOG FOR DETAILS"),
            "node_failure",
            "host",
            "error",
        ),
        ("RuntimeError: CUDA error: uncorrectable ECC error encountered", "RuntimeError", "hardware", "error"),
        ("torch.cuda.OutOfMemoryError: CUDA out of memory. Tried", "OutOfMemoryError", "application", "error"),
        ("[rank3]: torch.distributed.DistBackendError: NCCL error in: x", "DistBackendError", "unknown", "error"),
        ("3: ValueError: x", "ValueError", "application", "error"),
        ("[Rank 5] Watchdog caught collective operation timeout: WorkNCCL(", "nccl_watchdog", "unknown", "error"),
        ("srun: error: gpu-017: task 5: Segmentation fault (core dumped)", "task_killed", "unknown", "error"),
        ("srun: error: Node failure on gpu-017", "node_failure", "host", "error"),
        (
            "n1: [2023-11-29 08:57:32,304] [ERROR] [launch.py:321:x] ['--save-checkpoint'] exits with return code = 1",
            "process_exit",
            "unknown",
            "error",
        ),
    ],
)
def test_what_ends_an_attempt_is_an_error(line: str, error: str, cause: str, severity: str) -> None:
    """Named, with a cause where its words tell one."""
    (event,) = decode(line)
    assert (event.kind, event.attributes["error"], event.cause, event.severity) == (
        "training_error",
        error,
        cause,
        severity,
    )


def test_the_host_that_an_error_names_is_its_node() -> None:
    """srun says whose task it was."""
    assert decode("srun: error: gpu-017: task 5: Killed")[0].node == "gpu-017"


def test_a_thousand_ranks_with_one_error_are_one_event() -> None:
    """Until the next iteration."""
    lines = [f"[rank{rank}]: RuntimeError: NCCL error {rank}" for rank in range(1000)]
    events = decode(*lines, iteration(1), lines[0])
    assert [event.kind for event in events] == ["training_error", "iteration", "training_error"]


def test_an_attempt_that_died_early_does_not_hide_the_next_ones_error() -> None:
    """A crash loop in one log: no iteration stands between."""
    attempt = ["[after megatron is initialized] datetime: 2023-11-29 08:50:57", "RuntimeError: no space left"]
    ended = [CANCELLED.format("STEP", ""), CANCELLED.format("JOB", "")]
    later = [line.replace("09:50:34", "10:50:34") for line in ended]
    events = decode(*attempt, *ended, *attempt, *later)
    assert [event.attributes["error"] for event in events if event.kind == "training_error"] == [
        "RuntimeError",
        "cancelled",
    ] * 2


def test_a_glog_time_takes_its_year_from_the_log() -> None:
    """PyTorch's C++ log has month and day only."""
    line = "[rank5]:[E0101 00:14:25.500000 X.cpp:607] [Rank 5] Watchdog caught collective operation timeout: x"
    events = decode(iteration(1, time="[2025-12-31 23:59:00] "), line)
    assert events[1].time == datetime(2026, 1, 1, 0, 14, 25, 500_000, tzinfo=UTC)
    assert decode(line)[0].time is None
    assert decode(line.replace("E0101", "E9901"))[0].time is None


@pytest.mark.parametrize(
    "line",
    [
        "Traceback (most recent call last):",
        "WARNING: could not find the metadata file /c/latest_checkpointed_iteration.txt",
        "  use_checkpoint_args ............................. False",
        "r6i5n1:1:2 [0] NCCL INFO Ring 00 : 1[1] -> 2[2] via P2P/IPC error",
        "+++ export ERROR_HANDLER=x",
        "time (ms) | forward-compute: 1.0 | optimizer: 2.0",
        "setting training iterations to 5",
        "Killing subprocess 48040",
        "time (ms) | load-checkpoint: 1.2.3",
    ],
)
def test_chatter_is_no_event(line: str) -> None:
    """Bash traces, settings, timers of no interest."""
    assert decode(line) == []


def test_a_count_that_no_training_reaches_is_missing() -> None:
    """A damaged number; what stands beside it is read."""
    line = " iteration 10/ 100 | elapsed time per iteration (ms): 5.0 | number of skipped iterations: {} |"
    kept, left_out = (next(iter(decode(line.format(count)))).attributes for count in (7, 10**30))
    assert (kept["skipped"], kept["elapsed_ms"]) == (7, 5.0)
    assert "skipped" not in left_out
    assert left_out["elapsed_ms"] == 5.0

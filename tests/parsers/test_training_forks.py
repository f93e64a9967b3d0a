"""Lines as forks and old releases of the trainers print them, and several programs in one log."""

import pytest

from parsers.formats.training import TrainingParser
from parsers.text.parser import Context, ParseError, parse
from parsers.training.error_report import MAX_IGNORED
from store.records.event import Attribute, Event

NEMO = "[NeMo I 2024-08-15 10:{:02d}:{:02d} nemo_logging:393] "
ENGINE = (
    "[2023-06-07 15:{:02d}:{:02d},107] [INFO] [logging.py:96:log_dist] [Rank 0] [Torch] Checkpoint global_step{} is "
)
BAR = "  7%|7         | 200/2724 [7:23:41<93:12:48, 132.95s/it]"
LOSS = "{'loss': 2.5, 'grad_norm': 1.0, 'learning_rate': 4.9e-05, 'epoch': 0.1}"


def decode(*lines: str) -> list[Event]:
    """The events of some lines."""
    return list(parse(TrainingParser(Context(run="r")), lines))


def told(events: list[Event], *names: str) -> list[tuple[object, ...]]:
    """Kind and some attributes of each event."""
    return [(event.kind, *(event.attributes.get(name) for name in names)) for event in events]


@pytest.mark.parametrize(
    ("line", "iteration", "elapsed_ms", "loss"),
    [
        (
            "[default7]: iteration    94768/  115311 | consumed tokens: 364394676224 | elapsed time per iteration (s): "
            "215.82 | lm loss: 1.943883E+00 | grad norm: 0.128 | samples per second: 9.490 | TFLOPs: 145.31 |",
            94768,
            215820.0,
            1.943883,
        ),
        (
            " samples/sec: 7.799 | iteration       34/   10000 | elapsed time per iteration (ms): 4103.1 | "
            "approx flops per GPU: 112.9TFLOPS | lm_loss: 1.118665E+01 | number of nan iterations:   0 |",
            34,
            4103.1,
            11.18665,
        ),
        (
            "[2024-10-13 10:39:13.709465][INFO][training_log.py:661] -  iteration=      22/  105963 | "
            "consumed_samples=       14976 | elapsed_time_per_iteration_ms=20723.0 | lm loss=11.170107 |",
            22,
            20723.0,
            11.170107,
        ),
        (
            "==> iteration        7/    1000 | consumed samples: 7 | elapsed time per iteration (ms): 10.5 | "
            "lm-loss-training: 3.5 |",
            7,
            10.5,
            3.5,
        ),
        ("iteration 5/ 381 | consumed samples: 640 | number of nan iterations: 0 |", 5, None, None),
    ],
    ids=["seconds", "fields-before", "name=value", "arrow", "no-elapsed-time"],
)
def test_an_iteration_is_read_as_forks_print_it(
    line: str, iteration: int, elapsed_ms: float | None, loss: float | None
) -> None:
    """Milliseconds whatever the unit; a whole line without a time is no broken one."""
    assert told(decode(line), "iteration", "elapsed_ms", "loss") == [("iteration", iteration, elapsed_ms, loss)]


def test_an_iteration_that_is_cut_in_its_fields_is_broken() -> None:
    """It ends before the bar that ends every line."""
    with pytest.raises(ParseError, match="cut short"):
        list(TrainingParser(Context()).feed(" iteration 10/ 1000 | consumed samples: 40 | elapsed time per iter", 1))


@pytest.mark.parametrize("total", ["6922/45824", "6922/45824 = 15.1%"], ids=["of", "percent"])
def test_torchtitan_may_print_the_total(total: str) -> None:
    """As patched releases do."""
    line = f"[titan] 2026-02-11 00:54:25,545 - root - INFO - step: {total}  loss:  3.3222  tps: 5,902"
    assert told(decode(line), "iteration", "total", "loss") == [("iteration", 6922, 45824, 3.3222)]


def test_nemos_steps_count_on_over_its_epochs() -> None:
    """`iteration` begins anew in each; the total of an epoch is none of the run."""
    line = (
        "Training epoch {}, iteration {}/99 | lr: 3e-06 | global_batch_size: 512 | global_step: {} | "
        "reduced_train_loss: 11.03 | train_step_timing in s: 46.86"
    )
    events = decode(line.format(0, 99, 99), line.format(1, 0, 100), line.format(1, 10, 110))
    assert told(events, "iteration", "iterations", "total") == [
        ("iteration", 99, 1, 99),
        ("iteration", 100, 1, None),
        ("iteration", 110, 10, None),
    ]


SAVE = [("checkpoint_save_start", 100, None), ("checkpoint_save", 100, True)]


@pytest.mark.parametrize(
    "end", ["step 100 (/c/step=100.ckpt) finalized", "step 100 finalized"], ids=["with-path", "without-path"]
)
@pytest.mark.parametrize("begun", [True, False], ids=["begun", "scheduled-only"])
def test_saves_of_the_first_nemo_begin_and_end_at_one_step(begun: bool, end: str) -> None:
    """Its files bear the step that later releases print for the one before."""
    lines = [NEMO.format(30, 0) + "Checkpoint save for step 100 started at 2024-08-15T10:30:00.1."] if begun else []
    lines += [
        NEMO.format(30, 20) + "Scheduled async checkpoint save for /c/m--step=100-last.ckpt",
        NEMO.format(30, 25) + f"Async checkpoint save for {end} successfully.",
    ]
    assert told(decode(*lines), "iteration", "async") == SAVE


def test_a_save_told_when_it_had_stalled_began_before_that() -> None:
    """The line bears the time of the stall's end."""
    lines = [
        NEMO.format(30, 25) + "Global Checkpoint Save : Rank: 0 : Iteration: 24 : Start time: 17.135s : "
        "Save duration: 5.500s",
        NEMO.format(30, 26) + "Scheduled async checkpoint save for /ckpt/step=24.ckpt",
    ]
    (begun,) = decode(*lines)
    assert begun.time is not None
    assert begun.time.isoformat() == "2024-08-15T10:30:19.500000+00:00"


@pytest.mark.parametrize("leads", [True, False], ids=["after-a-loss", "first"])
def test_a_save_of_the_trainer_ends_where_deepspeed_ends_it(leads: bool) -> None:
    """The trainer writes little files first, and never says that it is done."""
    lines = [BAR, LOSS] if leads else []
    lines += [
        BAR + "[INFO|trainer.py:2868] 2023-06-07 15:39:20,107 >> Saving model checkpoint to out/checkpoint-200",
        "[INFO|tokenization_utils_base.py:2171] 2023-06-07 15:39:21,094 >> tokenizer config file saved in "
        "out/checkpoint-200/tokenizer_config.json",
        ENGINE.format(39, 21, 200) + "about to be saved!",
        ENGINE.format(41, 46, 200) + "ready now!",
    ]
    events = [event for event in decode(*lines) if event.kind != "iteration"]
    assert told(events, "iteration", "duration_ms") == [
        ("checkpoint_save_start", 200, None),
        ("checkpoint_save", 200, 146000.0),
    ]


def test_deepspeed_tells_the_saves_of_a_fork_that_does_not() -> None:
    """GPT-NeoX prints Megatron's iterations, and leaves the saves to DeepSpeed."""
    iteration = (
        " samples/sec: 7.7 | iteration       34/   10000 | elapsed time per iteration (ms): 4103.1 | lm_loss: 1 |"
    )
    lines = [iteration, ENGINE.format(39, 0, 34) + "about to be saved!", ENGINE.format(39, 9, 34) + "ready now!"]
    assert told(decode(*lines), "iteration", "duration_ms") == [
        ("iteration", 34, None),
        ("checkpoint_save_start", 34, None),
        ("checkpoint_save", 34, 9000.0),
    ]


def test_bars_of_other_things_are_no_steps() -> None:
    """A bar with a name, or of another total than the trainer said."""
    lines = [
        "  Total optimization steps = 2,724",
        BAR,
        "Loading checkpoint shards:  50%|#####     | 1/2 [00:00<00:00,  6.32it/s]",
        " 40%|####      | 20/50 [00:10<00:15,  2.00it/s]",
        LOSS,
    ]
    assert told(decode(*lines), "iteration", "total") == [("iteration", 200, 2724)]


ERROR = "torch.distributed.DistBackendError: NCCL error in: NCCLUtils.hpp:268, unhandled system error"
WATCHDOG = (
    "[Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=96120, OpType=ALLREDUCE, "
    "Timeout(ms)=1800000) ran for 1800001 milliseconds before timing out."
)


@pytest.mark.parametrize(
    ("line", "error", "told_too"),
    [
        (f"[E ProcessGroupNCCL.cpp:458] {WATCHDOG}", "nccl_watchdog", ("rank", 0)),
        (f"[rank0]:[E227 23:07:54.322446753 ProcessGroupNCCL.cpp:629] {WATCHDOG}", "nccl_watchdog", ("rank", 0)),
        (f"[rank3]: {ERROR}", "DistBackendError", ("rank", 3)),
        (
            "WARNING:torch.distributed.elastic.multiprocessing.api:Sending process 8 closing signal SIGTERM      "
            "ERROR:torch.distributed.elastic.multiprocessing.api:failed (exitcode: -9) local_rank: 4 (pid: 899509) of "
            "binary: /usr/bin/python",
            "process_exit",
            ("exitcode", -9),
        ),
        (
            "[2024-02-05 10:12:14,123] [ERROR] [launch.py:321:sigkill_handler] ['python'] exits with return code = 1",
            "process_exit",
            ("exitcode", 1),
        ),
    ],
    ids=["old-watchdog", "watchdog", "rank", "elastic", "deepspeed"],
)
def test_an_error_glued_to_a_bar_is_read(line: str, error: str, told_too: tuple[str, Attribute]) -> None:
    """The bar has no line's end when the error comes."""
    events = [event for event in decode(BAR + line) if event.kind != "collective_wait"]
    assert told(events, "error", told_too[0]) == [("training_error", error, told_too[1])]


def test_a_watchdogs_time_may_have_a_month_of_one_digit() -> None:
    """E227 is the 27th of February."""
    line = f"[rank0]:[E227 23:07:54.322446753 ProcessGroupNCCL.cpp:629] {WATCHDOG}"
    for event in parse(TrainingParser(Context(run="r", year=2025)), [line]):
        assert event.time is not None
        assert event.time.isoformat() == "2025-02-27T23:07:54.322446+00:00"


def test_an_address_before_the_line_is_the_host() -> None:
    """pdsh prints what the host file has."""
    (event,) = decode(f"10.223.4.143: {ERROR}")
    assert (event.node, event.attributes["error"]) == ("10.223.4.143", "DistBackendError")


def test_lightning_tells_of_a_child_that_ended() -> None:
    """Its launcher names the rank."""
    (event,) = decode("[rank: 3] Child process with PID 170 terminated with code 1. Forcefully terminating all other")
    assert told([event], "error", "rank", "pid", "exitcode") == [("training_error", "process_exit", 3, 170, 1)]


def test_an_iteration_glued_to_another_ranks_line_keeps_its_time() -> None:
    """Ranks write at once; the line's end comes later."""
    line = "[Rank 2] (after 1 iterations) memory (MB) | max reserved: 13236.0 [2025-08-01 07:19:37] iteration 1/ 50 | "
    (event,) = decode(line + "elapsed time per iteration (ms): 19138.8 |")
    assert event.time is not None
    assert event.time.isoformat() == "2025-08-01T07:19:37+00:00"


def test_an_exception_that_python_ignores_ends_nothing() -> None:
    """It was raised while an object was taken down; what comes after it counts again."""
    lines = [
        "Exception ignored in: <function Foo.__del__ at 0x7f6c>",
        "Traceback (most recent call last):",
        "AttributeError: 'NoneType' object has no attribute 'close'",
        "[rank1]: torch.OutOfMemoryError: CUDA out of memory.",
    ]
    assert told(decode(*lines), "error", "rank") == [("training_error", "OutOfMemoryError", 1)]


def test_an_ignored_exception_without_an_error_hides_none_for_long() -> None:
    """Its traceback was cut off."""
    lines = ["Exception ignored in: <function Foo.__del__>", *["x"] * MAX_IGNORED, "ValueError: broken"]
    assert told(decode(*lines), "error") == [("training_error", "ValueError")]


def test_an_old_torchtitans_save_names_its_step() -> None:
    """Releases of 2024 say `a checkpoint`."""
    head = "[rank0]:2024-07-24 20:05:{},100 - root - INFO - "
    lines = [
        head.format(40) + "Saving a checkpoint at step 500",
        head.format(42) + "Finished saving the checkpoint in ",
    ]
    lines[1] += "2.10 seconds"
    assert told(decode(*lines), "iteration", "duration_ms") == [
        ("checkpoint_save_start", 500, None),
        ("checkpoint_save", 500, 2100.0),
    ]

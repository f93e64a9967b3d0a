"""Errors of torch_npu and HCCL, and what a training program prints beside its iterations in logs that people paste."""

from datetime import UTC, datetime

import pytest

from parsers.formats.training import TrainingParser
from parsers.registry import detect
from parsers.text.parser import Context, parse
from store.records.event import Event


def decode(*lines: str) -> list[Event]:
    """The events of some lines."""
    return list(parse(TrainingParser(Context(run="r", year=2025)), lines))


@pytest.mark.parametrize(
    ("line", "code", "cause"),
    [
        (
            "EI0002: [PID: 29] 2025-10-11-15:09:34.713.335 The wait execution of the Notify register times out.",
            "EI0002",
            "unknown",
        ),
        (
            "[rank1]: EI0006: [PID: 12] 2025-04-08-18:07:20.444.436 Getting socket times out. Reason: x",
            "EI0006",
            "unknown",
        ),
        (
            "EI0013: [PID: 12] 2025-04-08-18:07:20.444.436 An error CQE occurred during operator execution.",
            "EI0013",
            "fabric",
        ),
        ("EJ0001: 2024-05-21-11:57:54.167.645 Failed to initialize the HCCP process.", "EJ0001", "application"),
        (
            "[PID: 6] 2025-12-04-14:46:07.669.968 Bind_Failed(EJ0003): Failed to bind the IP port.",
            "EJ0003",
            "application",
        ),
        (
            "[ERROR] 2025-03-26-17:01:03 (PID:159, Device:0, RankID:-1) ERR02200 DIST call hccl api failed.",
            "ERR02200",
            "unknown",
        ),
        (
            "EL0004: [PID: 9] 2025-03-26-17:01:03.123.456 Failed to allocate memory: out of memory",
            "EL0004",
            "application",
        ),
    ],
)
def test_an_error_of_the_npus_software_is_told_by_its_code(line: str, code: str, cause: str) -> None:
    """In the old and the new form; `auto` takes such a line for a training log."""
    (event,) = decode(line)
    assert (event.kind, event.attributes["error"], event.cause) == ("training_error", code, cause)
    assert event.message.startswith((code, "EJ0003"))
    if "PID" in line:
        assert detect([line]) == "training"


def test_an_npu_error_names_its_rank_and_the_one_that_did_not_come() -> None:
    """The rank before the line, or within; its time to the microsecond."""
    notify = "The Notify register has not received the Notify record from remote rank: [24]."
    (event,) = decode(f"[rank3]: EI0002: [PID: 29] 2025-10-11-15:09:34.713.335 {notify}")
    assert (event.attributes["rank"], event.attributes["peer_rank"], event.attributes["pid"]) == (3, 24, 29)
    assert event.time == datetime(2025, 10, 11, 15, 9, 34, 713335, tzinfo=UTC)
    assert event.node is None  # a code is no host's name


@pytest.mark.parametrize(
    "line",
    [
        "EI0002 is what HCCL prints when a notify times out",
        "see EI0006: Getting socket times out in the manual",
        "        Solution: 1. Check the rank service processes with other errors or no errors in the cluster.",
        "EZ9999: Inner Error!",
        "[INFO] 2025-03-26-17:01:03 (PID:159) worker started",
        "NCCL_NVLS_ENABLE=0 avoids 'Failed to bind NVLink SHARP (NVLS) Multicast memory'",
        "gpu-7:1:2 [0] NCCL INFO NVLS multicast support is available on dev 0",
        "gpu-7:1:2 [0] NCCL INFO transport/nvls.cc:158 -> 1",
        "CUDA_ERROR_OUT_OF_MEMORY: out of memory",
        "failed call to cuInit: CUDA_ERROR_NO_DEVICE: no CUDA-capable device is detected",
        "Epoch 1, global step 80: 'val_loss' was not in top 3",
        "Epoch 1: saving model to the bucket at the end",
        "slurmd: *** the daemon of a node ***",
        "STEPD TERMINATED DUE TO JOB NOT ENDING WITH SIGNALS, says the FAQ",
        "2024-05-21 11:57:54\tJob ID: 4711\t# GPUs: 512\tSomething else",
        "100%|##########| 1000/1000 [00:05<00:00, 200.00 examples/s]",
        "Map: 100%|##########| 1000/1000 [00:05<00:00, 200.00it/s]",
        "def test_found_nan(): assert not found NaN in local grad",
    ],
)
def test_a_line_that_only_looks_like_one_tells_nothing(line: str) -> None:
    """Advice, tables of contents, quotations and bars of other work."""
    assert decode(line) == []


def test_a_save_that_work_waits_for_is_done_when_work_goes_on() -> None:
    """Lightning says that it begins to save, and no more."""
    bar = "Epoch {}: 100%|##########| 40/40 [00:49<00:00,  1.24s/it, v_num=0, loss=0.0287]"
    save = (
        "Epoch {}, global step {}: 'val_loss' reached 0.04955 (best 0.04955), saving model to '/c/best.ckpt' as top 1"
    )
    events = decode(bar.format(0), save.format(0, 40), bar.format(1), save.format(1, 80))
    assert [(event.kind, event.attributes.get("iteration")) for event in events] == [
        ("iteration", 40),
        ("checkpoint_save_start", 40),
        ("checkpoint_save", 40),
        ("iteration", 80),
        ("checkpoint_save_start", 80),
    ]


def test_a_loss_that_is_no_number_is_told() -> None:
    """In every trainer's words; a finite loss is not marked."""
    lines = {
        "Epoch 0:  50%|#####     | 20/40 [00:24<00:24,  1.24s/it, v_num=7, loss=nan]": 1,
        "{'loss': nan, 'grad_norm': 1.0, 'learning_rate': 4.9e-05, 'epoch': 0.12}": 1,
        "{'loss': 0.0, 'grad_norm': nan, 'learning_rate': 4.9e-05, 'epoch': 0.12}": 1,
        "[titan] 2025-06-04 08:52:17,100 - root - INFO - step: 11  loss: nan  memory: 30.99GiB(32.62%)  tps: 7": 1,
        " iteration 5/ 10 | elapsed time per iteration (ms): 1.0 | lm loss: nan | number of nan iterations:   1 |": 1,
        "steps: 5 loss: nan iter time (s): 145.206 samples/sec: 7.052": 1,
        "steps: 5 loss: 2.1 iter time (s): 145.206 samples/sec: 7.052": None,
    }
    for line, nan in lines.items():
        plan = ["  Num Epochs = 1", "  Total optimization steps = 100"] if "'loss'" in line else []
        (event,) = (event for event in decode(*plan, line) if event.kind == "iteration")
        assert event.attributes.get("nan") == nan, line


def test_bars_alone_tell_iterations_a_minute_apart_and_the_last_one() -> None:
    """Of the trainer's own total; where loss lines come they tell."""
    bars = [
        f"  1%|          | {step}/1000 [{step // 30:02d}:{step * 2 % 60:02d}<30:00,  2.00s/it]"
        for step in range(0, 100, 5)
    ]
    plan = ["***** Running training *****", "  Num Epochs = 1", "  Total optimization steps = 1,000"]
    told = [event.attributes["iteration"] for event in decode(*plan, *bars) if event.kind == "iteration"]
    assert told == [30, 60, 90, 95]
    foreign = [
        event for event in decode(*plan, *(bar.replace("/1000", "/40") for bar in bars)) if event.kind == "iteration"
    ]
    assert foreign == []


def test_a_timer_of_micro_batches_adds_its_speed_to_the_step() -> None:
    """Its own count is told only where no step is."""
    step = (
        "[2022-08-29 06:59:18,633] [INFO] [logging.py:68:log_dist] [Rank 0] step=150, skipped=17, lr=[5e-05], mom=[1]"
    )
    timer = "[2021-07-01 01:24:59,852] [INFO] [timer.py:154:stop] 0/1200, SamplesPerSec=463.8644895928809"
    (both,) = decode(step, timer)
    assert (both.attributes["iteration"], both.attributes["samples_per_s"]) == (150, 463.8644895928809)
    (alone,) = decode(timer)
    assert alone.attributes["iteration"] == 1200


def test_a_save_that_another_process_took_over_ends_when_that_says_so() -> None:
    """And without its word it has not ended, whatever the staging took."""
    saving = "[titan] 2025-06-04 08:52:10,300 - root - INFO - Saving the checkpoint (or staging if async is enabled)."
    received = "Received async checkpoint request with id=outputs/checkpoint/step-10"
    staged = (
        "[titan] 2025-06-04 08:52:15,810 - root - INFO - Finished saving the checkpoint (or staging) in 5.51 seconds."
    )
    done = "Completed checkpoint save request for checkpoint_id=outputs/checkpoint/step-10"
    begun, ended = decode(saving, received, staged, done)
    assert (begun.kind, ended.kind) == ("checkpoint_save_start", "checkpoint_save")
    assert (ended.attributes["iteration"], ended.attributes["blocking_ms"]) == (10, 5510.0)
    assert [event.kind for event in decode(saving, received, staged)] == ["checkpoint_save_start"]


@pytest.mark.parametrize(
    ("line", "code", "cause"),
    [
        ("EE1002: 2024-09-03-16:50:00.041.231 Stream synchronize timeout. rtDeviceSynchronize", "EE1002", "unknown"),
        ("worker-1: EH9999: 2024-07-03-11:28:40.450.757  wait for compute device to finish", "EH9999", "unknown"),
        ("EI0002: The wait execution of the Notify register times out. Reason: The Notify", "EI0002", "unknown"),
        ("EE9999: rtDeviceSynchronizeWithTimeout execution failed, reason=vector core timeout", "EE9999", "unknown"),
        (
            "[PID: 4906] 2026-06-06-12:17:01.267.772 Memory_Allocation_Failure(EL0004): Failed to allocate memory",
            "EL0004",
            "application",
        ),
    ],
)
def test_codes_of_old_releases_are_read(line: str, code: str, cause: str) -> None:
    """Without a time, of the runtime and of the host's modules."""
    (event,) = decode(line)
    assert (event.attributes["error"], event.cause) == (code, cause)


@pytest.mark.parametrize(
    "line", ["EH9999: Inner Error!", "see EI0002: The wait", "EX0002: The wait", "EI002: The wait"]
)
def test_a_code_alone_or_within_a_sentence_is_no_error(line: str) -> None:
    """What it is stands in the line below it."""
    assert decode(line) == []


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("UCE ERROR", "hardware"),
        ("HBM MULTI BIT ECC ERROR", "hardware"),
        ("HCCS LINK ERROR", "hardware"),
        ("HCCL OP RETRY FAILED", "fabric"),
        ("SUSPECT REMOTE ERROR", "fabric"),
        ("FORCE STOP", "unknown"),
    ],
)
def test_a_device_error_of_torch_npu_is_judged_by_its_cause(text: str, cause: str) -> None:
    """The names that it gives errors of the NPU (NPUQueue.cpp), in the exception that ends the program."""
    (event,) = decode(f"[rank3]: RuntimeError: {text}.")
    assert (event.kind, event.cause, event.attributes["rank"]) == ("training_error", cause, 3)

"""The trainers' registry, and each trainer's own ways."""

from datetime import UTC, datetime
from pathlib import Path

import pytest
from registries import defined

from parsers import training
from parsers.formats.training import LITERALS, TRAINERS, TrainingParser
from parsers.text.parser import Context, parse
from parsers.training.trainer import Trainer
from store.records.event import Event

FIXTURES = Path(__file__).parents[2] / "fixtures" / "training"


def decode(*lines: str) -> list[Event]:
    """The events of some lines."""
    return list(parse(TrainingParser(Context(run="r")), lines))


def told(events: list[Event], *names: str) -> list[tuple[object, ...]]:
    """Kind and some attributes of each event."""
    return [(event.kind, *(event.attributes.get(name) for name in names)) for event in events]


def test_every_trainer_is_registered_once() -> None:
    """A new trainer is a table of rules and its place in TRAINERS."""
    assert sorted(trainer.name for trainer in TRAINERS) == sorted(found.name for found in defined(training, Trainer))


@pytest.mark.parametrize("trainer", TRAINERS, ids=lambda trainer: trainer.name)
def test_a_trainer_has_a_log_in_the_fixtures(trainer: Trainer) -> None:
    """In which it tells of iterations, and every sign of it lets a line through."""
    logs = {"megatron": "megatron.log", "deepspeed": "deepspeed_engine.log"}
    text = (FIXTURES / logs.get(trainer.name, f"{trainer.name}.log")).read_text(encoding="utf-8")
    found = {one.what for line in text.splitlines() for one in trainer.reports(line)}
    assert "iteration" in found
    assert set(trainer.signs) <= set(LITERALS)


TITAN = "[titan] 2025-06-04 08:51:{:02d},500 - root - INFO - "


def test_times_tell_how_long_an_iteration_took_where_no_number_does() -> None:
    """torchtitan: step 1, then every tenth; numbers with thousands and percent signs."""
    lines = [TITAN.format(8) + "Training starts at step 1"]
    for step, second in ((1, 10), (10, 28), (20, 48)):
        lines.append(TITAN.format(second) + f"step: {step:2d}  loss: 10.7  memory: 1GiB(2%)  tps: 7,034  mfu: 41.19%")
    events = decode(*lines)
    assert told(events, "iteration", "iterations", "elapsed_ms") == [
        ("training_start", None, None, None),
        ("iteration", 1, 1, None),
        ("iteration", 10, 9, 2000.0),
        ("iteration", 20, 10, 2000.0),
    ]
    assert events[3].attributes["tokens_per_s_per_gpu"] == 7034.0
    assert events[3].attributes["mfu_percent"] == 41.19


def test_an_attempts_first_line_has_no_time_before_it() -> None:
    """What lies between two attempts was no work."""
    step = TITAN.format(10) + "step: 20  loss: 10.7  memory: 1GiB(2%)"
    again = TITAN.format(40) + "step: 21  loss: 10.7  memory: 1GiB(2%)"
    start = TITAN.format(39) + "Training starts at step 21"
    assert "elapsed_ms" not in decode(step, start, again)[-1].attributes
    assert decode(step, again)[-1].attributes["elapsed_ms"] == 30_000.0


def test_ranks_that_print_the_same_step_tell_it_once() -> None:
    """As where torchtitan or the Trainer logs on several ranks."""
    line = TITAN.format(10) + "step: 20  loss: 10.7  memory: 1GiB(2%)"
    assert len(decode(f"[rank0]:{line}", f"[rank1]:{line}")) == 1


def test_a_coloured_line_is_read() -> None:
    """torchtitan's colours stand inside the line too."""
    line = "\x1b[31m[titan] 2025-06-04 08:51:10,500 - root - INFO - \x1b[31mstep:  5  \x1b[32mloss:  7.1  \x1b[39m"
    (event,) = decode(line)
    assert (event.attributes["iteration"], event.attributes["loss"]) == (5, 7.1)


@pytest.mark.parametrize(
    ("saved", "stall"),
    [
        ("Finished saving the checkpoint (or staging if async is enabled) in 5.51 seconds.", "duration_ms"),
        ("Finished saving the checkpoint (or staging if async is enabled)in 5.51 seconds.", "duration_ms"),
        ("Finished saving the checkpoint in 5.51 seconds.", "duration_ms"),
    ],
)
def test_each_spelling_of_torchtitans_save_gives_its_seconds(saved: str, stall: str) -> None:
    """Releases differ by a blank and a bracket; with async saves the seconds are the staging's."""
    start = TITAN.format(1) + "Saving the checkpoint (or staging if async is enabled)."
    assert told(decode(start, TITAN.format(7) + saved), stall) == [
        ("checkpoint_save_start", None),
        ("checkpoint_save", 5510.0),
    ]
    settings = TITAN.format(0) + 'Running with configs: {"checkpoint": {"async_mode": "async"}}'
    events = decode(settings, start, TITAN.format(7) + saved)
    assert told(events, "async", "blocking_ms", "duration_ms")[1] == ("checkpoint_save", True, 5510.0, None)


MEGATRON = " iteration {:8d}/    1000 | elapsed time per iteration (ms): 5000.0 | lm loss: 2.1 |"
DEEPSPEED = (
    "[2023-11-29 08:57:28,159] [INFO] [logging.py:96:log_dist] [Rank 0] step={}, skipped=1, lr=[6e-07], mom=[0.9]"
)


def test_deepspeed_is_silent_where_megatron_speaks() -> None:
    """Each prints every step; DeepSpeed's line comes first, also before the log has shown who runs it."""
    events = decode(DEEPSPEED.format(10), MEGATRON.format(10), DEEPSPEED.format(20), MEGATRON.format(20))
    assert told(events, "iteration", "iterations", "elapsed_ms") == [
        ("iteration", 10, 1, 5000.0),
        ("iteration", 20, 10, 5000.0),
    ]
    ready = "[2023-11-29 08:57:29,100] [INFO] [x.py:1:commit] [Torch] Checkpoint global_step20 is ready now!"
    saved = "  successfully saved checkpoint at iteration      20 to /c"
    assert told(decode(MEGATRON.format(20), ready, saved), "iteration")[1:] == [("checkpoint_save", 20)]


def test_deepspeed_alone_tells_its_steps() -> None:
    """The pipeline engine's line of the same step adds its numbers; step 0 is printed at startup."""
    steps = "steps: 20 loss: 2.8 iter time (s): 0.982 samples/sec: 203.666"
    events = decode(DEEPSPEED.format(0), DEEPSPEED.format(10), DEEPSPEED.format(20), steps)
    assert told(events, "iteration", "elapsed_ms", "loss", "skipped") == [
        ("iteration", 10, None, None, 1),
        ("iteration", 20, 982.0, 2.8, 1),
    ]


def test_every_rank_of_deepspeed_ends_a_save_that_is_told_once() -> None:
    """It lasts until the last one."""
    line = "[2023-07-24 13:21:{},000] [INFO] [logging.py:96:log_dist] [Rank 0] [Torch] Checkpoint global_step40 is {}!"
    ends = [line.format(41 + rank, "ready now") for rank in range(3)]
    events = decode(line.format(33, "about to be saved"), *ends)
    assert told(events, "iteration", "duration_ms") == [
        ("checkpoint_save_start", 40, None),
        ("checkpoint_save", 40, 10_000.0),
    ]


def bar(step: int, clock: str) -> str:
    """A bar of tqdm."""
    return f" 12%|█2        | {step}/1000 [{clock}<14:40,  1.00s/it]"


def test_a_loss_line_of_the_trainer_takes_its_step_from_the_bar() -> None:
    """And its time per step: the bar's hours, minutes and seconds."""
    loss = "{'loss': 2.1, 'grad_norm': 1.25, 'learning_rate': 4e-05, 'epoch': 0.12}"
    events = decode("\r".join([bar(110, "59:50"), bar(120, "1:00:10"), loss]), "\r".join([bar(130, "1:00:30"), loss]))
    assert told(events, "iteration", "total", "iterations", "elapsed_ms") == [
        ("iteration", 120, 1000, 1, None),
        ("iteration", 130, 1000, 10, 2000.0),
    ]


def test_without_a_bar_the_epoch_tells_the_step() -> None:
    """Release 5 prints strings; without any plan there is no step and no event."""
    loss = "{'loss': '2.1', 'grad_norm': '1.25', 'learning_rate': '4e-05', 'epoch': '0.25'}"
    plan = ["[INFO|trainer.py:1] 2024-05-25 06:38:26,285 >>   Num Epochs = 2"]
    plan.append("[INFO|trainer.py:1] 2024-05-25 06:38:26,285 >>   Total optimization steps = 1,000")
    assert told(decode(*plan, loss), "iteration", "loss") == [("iteration", 125, 2.1)]
    assert decode(loss) == []


def test_a_loggers_line_glued_to_a_bar_bears_its_time() -> None:
    """The bar ends without a line's end."""
    line = (
        bar(520, "00:21")
        + "[INFO|trainer.py:3410] 2024-05-25 06:38:48,424 >> Saving model checkpoint to o/checkpoint-520"
    )
    (event,) = decode(line)
    assert event.kind == "checkpoint_save_start"
    assert event.time == datetime(2024, 5, 25, 6, 38, 48, 424_000, tzinfo=UTC)


def test_a_model_saved_without_a_step_is_no_checkpoint() -> None:
    """The Trainer writes the model once more at its end."""
    assert decode("[INFO|trainer.py:1884] 2021-05-25 06:53:45,424 >> Saving model checkpoint to output_dir") == []


def test_a_start_and_an_end_that_every_rank_tells_are_one_each() -> None:
    """Until something fails, or work goes on."""
    start = "[INFO|trainer.py:1143] 2024-05-25 06:38:26,284 >> ***** Running training *****"
    end = "Training completed. Do not forget to share your model on huggingface.co/models =)"
    runtime = "{'train_runtime': 919.097, 'epoch': 1.0}"
    crash = "RuntimeError: x"
    kinds = [event.kind for event in decode(start, start, end, end, runtime, crash, start)]
    assert kinds == ["training_start", "training_end", "training_error", "training_start"]


def test_nemos_saves_go_on_in_the_background() -> None:
    """Stall, scheduled, finalized: the step of the last line counts from 1."""
    nemo = "[NeMo I 2026-02-17 17:58:{:02d} nemo_logging:393] "
    save = "Global Checkpoint Save : Rank: 0 : Iteration: 24 : Start time: 1771351120.135s : Save duration: 25.537s"
    lines = [nemo.format(40) + save, nemo.format(41) + "Scheduled async checkpoint save for /c/step=24.ckpt"]
    done = nemo.format(50) + "Async checkpoint save for step 25 (/c/step=24.ckpt) finalized successfully."
    also = nemo.format(50) + "Successfully saved checkpoint from iteration      24 to /c/step=24.ckpt"
    for end in ([done], [also, done], [done, also]):
        assert told(decode(*lines, *end), "iteration", "async", "blocking_ms", "duration_ms") == [
            ("checkpoint_save_start", 24, None, None, None),
            ("checkpoint_save", 24, True, 25_537.0, None),
        ]
    assert told(decode(lines[0]), "async", "duration_ms") == [("checkpoint_save", None, 25_537.0)]
    assert [event.kind for event in decode(*lines)] == ["checkpoint_save_start"]


def test_a_bar_of_nemo_tells_each_step_once() -> None:
    """Its count is exact where `global_step` is rounded to three digits."""
    text = "Epoch 0: :   0%|          | {0}/603000 [1:03:17<317:00:58, v_num=, reduced_train_loss=2.600, "
    text += "global_step=2e+3, consumed_samples=1.28e+6, train_step_timing in s=1.900]"
    events = decode("\r".join(["", text.format(2000), text.format(2000), text.format(2001)]))
    assert told(events, "iteration", "total", "elapsed_ms", "loss") == [
        ("iteration", 2000, 603_000, 1900.0, 2.6),
        ("iteration", 2001, 603_000, 1900.0, 2.6),
    ]


def test_other_bars_are_no_steps_of_training() -> None:
    """Downloads, shards, the bar before its first step."""
    lines = [
        "Loading checkpoint shards:  50%|█████     | 1/2 [00:49<00:49, 49.97s/it]",
        "Map: 100%|██| 9/9 [00:01<00:00]",
    ]
    lines.append("Epoch 0: :   0%|          | 0/60 [00:00<?]")
    assert decode(*lines) == []


@pytest.mark.parametrize(
    ("line", "phase"),
    [
        (
            "[after model, optimizer, and learning rate scheduler are built] datetime: 2025-03-01 04:00:41 ",
            "after model",
        ),
        (">>> done with compiling and loading fused kernels. Compilation time: 3.120 seconds", "done with compiling"),
        (TITAN.format(1) + "Compiling each TransformerBlock with torch.compile", "Compiling each TransformerBlock"),
        (
            "I1218 20:11:55.0 1 torch/distributed/elastic/x.py:525] [default] Rendezvous complete for workers.",
            "rendez",
        ),
    ],
)
def test_a_step_of_the_startup_is_a_phase(line: str, phase: str) -> None:
    """Told once, and of no weight."""
    (event,) = decode(line)
    assert event.kind == "training_phase"
    assert event.severity == "info"
    assert str(event.attributes["phase"]).startswith(phase)

"""Trainers that write their own training loop: torchtitan, Megatron-LM, DeepSpeed.

    [rank0]:[titan] 2025-06-04 08:51:58,557 - root - INFO - step: 10  loss: 10.7069  memory: 30.99GiB(32.62%)
      tps: 7,034  tflops: 407.35  mfu: 41.19%
    [titan] 2025-06-04 08:52:10,300 - root - INFO - Saving the checkpoint (or staging if async is enabled).
    [titan] 2025-06-04 08:52:15,810 - root - INFO - Finished saving the checkpoint (or staging ...) in 5.51 seconds.

Every line bears a time and may be coloured. With `"async_mode": "async"` in the settings the seconds are those of the
staging, which stalls; when the save itself is done is told only where PyTorch's own process of checkpoints logs, too
(`Received async checkpoint request with id=.../step-10`, `Completed checkpoint save request ...`). `tps` is per device.
Sources: torchtitan/components/metrics.py, checkpoint.py and train.py of pytorch/torchtitan, PyTorch's
distributed/checkpoint/_async_process_executor.py.
"""

import re

from parsers.training.trainer import LineRule, Trainer

# DeepSpeed's engine, where no trainer above it tells the same.
#
#     [2023-11-29 08:57:28,159] [INFO] [logging.py:96:log_dist] [Rank 0] step=5, skipped=0, lr=[6e-07], mom=[(0.9,
# 0.95)]
#     steps: 5 loss: 12.8004 iter time (s): 145.206 samples/sec: 7.052
#     [2022-08-29 06:58:56,176] [INFO] [timer.py:198:stop] 0/20, RunningAvgSamplesPerSec=232.7, CurrSamplesPerSec=227.4
#     [2023-07-24 13:21:33,261] [INFO] [logging.py:96:log_dist] [Rank 0] [Torch] Checkpoint global_step10 is about ...
#     [2023-07-24 13:21:41,902] [INFO] [torch_checkpoint_engine.py:33:commit] [Torch] Checkpoint global_step10 is ...
#
# Every rank says that a save is ready; step=0 is printed at startup. Old timers count micro-batches, of which a step
# may have several: where steps are told, too, only the speed is taken. Sources: deepspeed/runtime/engine.py,
# pipe/engine.py and checkpoint_engine/torch_checkpoint_engine.py of microsoft/DeepSpeed, real logs of bigscience and
# superbenchmark.


def _deepspeed_rule(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.ASCII)


DEEPSPEED = Trainer(
    name="deepspeed",
    signs=(
        "step=",
        "iter time (s)",
        "Checkpoint ",
        "oading checkpoint",
        "oaded checkpoint",
        "exits successfully",
        "SamplesPerSec=",
    ),
    rules=(
        LineRule(
            "iteration", _deepspeed_rule(r"\[Rank \d{1,7}\] step=(?P<iteration>[1-9]\d{0,11})(?P<fields>, skipped=.*)")
        ),
        LineRule(
            "iteration",
            _deepspeed_rule(r"(?:^|\s)steps: (?P<iteration>[1-9]\d{0,11}) (?P<fields>loss: .*iter time \(s\): .*)"),
        ),
        LineRule(
            "iteration",
            _deepspeed_rule(
                r":stop\] epoch=\d{1,9}/micro_step=\d{1,12}/global_step=(?P<iteration>[1-9]\d{0,11}), "
                r"(?P<fields>RunningAvgSamplesPerSec=.*)"
            ),
        ),
        LineRule(
            "speed",
            _deepspeed_rule(
                r":stop\] \d{1,9}/(?P<iteration>[1-9]\d{0,11}), (?:RunningAvgSamplesPerSec=[\d.]{1,24}, Curr)?"
                r"SamplesPerSec=(?P<samples_per_s>[\d.]{1,24})"
            ),
        ),
        LineRule("saving", _deepspeed_rule(r"\] Checkpoint global_step(?P<iteration>\d{1,12}) is about to be saved!")),
        LineRule("saved", _deepspeed_rule(r"\] Checkpoint global_step(?P<iteration>\d{1,12}) is ready now!")),
        LineRule("loading", _deepspeed_rule(r"Loading checkpoint from .{0,2000}global_step(?P<iteration>\d{1,12})/")),
        LineRule("loaded", _deepspeed_rule(r"Loaded checkpoint from .{0,2000}global_step(?P<iteration>\d{1,12})/")),
        LineRule("end", _deepspeed_rule(r"(?P<phase>Process) \d{1,10} exits successfully")),
    ),
    pair=re.compile(r"(?P<name>[a-zC][\w /()]{0,40}?)(?:=|: )(?P<value>nan|-?inf|[\d.e+-]{1,24})"),
    names={
        "skipped": ("skipped", 0),
        "loss": ("loss", 1),
        "iter time (s)": ("elapsed_ms", 1000),
        "samples/sec": ("samples_per_s", 1),
        "CurrSamplesPerSec": ("samples_per_s", 1),
    },
    waits=True,
)


# Megatron-LM and what is built on its loop: Megatron-DeepSpeed, Megatron-Bridge, NeMo's new recipes.
#
#      [2025-03-01 04:05:06] iteration     1200/  500000 | ... | elapsed time per iteration (ms): 8000.0 | throughput
# per
#      GPU (TFLOP/s/GPU): 402.1 | ... | lm loss: 1.930000E+00 | ... | grad norm: 0.412 | number of skipped iterations:
# 0 |
#     saving checkpoint at iteration    1200 to /ckpt in torch_dist format
#       scheduled an async checkpoint save at iteration    1200 to /ckpt          (--async-save: training goes on)
#     (min, max) time across ranks (ms):
#         save-checkpoint ................................: (910.08, 913.10)      what it stalled all the same
#       successfully saved checkpoint from iteration    1200 to /ckpt [ t 1/8, p 1/4 ]
#
#     2024-05-21 11:57:54  Job ID: 4711  # GPUs: 512  Saved checkpoint  Iteration: 1200  ...   (progress.txt, with tabs)
#
# Forks print seconds (`elapsed time per iteration (s)`, Megatron-DeepSpeed), `name=value` (Argonne's) or fields before
# the iteration (GPT-NeoX). Old releases print no time. The last rank prints the iterations, rank 0 the rest. Sources:
# training/training.py, training/checkpointing.py and core/timers.py of NVIDIA/Megatron-LM, real logs of bigscience and
# superbenchmark.

# A line of progress.txt, which `--log-progress` writes beside the checkpoints.
_PROGRESS = r"\s{0,8}Job ID: \S{0,40}\s{1,8}# GPUs: \d{1,7}\s{1,8}"
_PROGRESS_AT = r"Iteration: (?P<iteration>\d{1,12})"
_AT = r"(?:at|from) iteration +(?P<iteration>\d{1,12})"
_STAMP = r"\d{4}-\d{2}-\d{2} \d{2}:\d{2}:\d{2}(?:\.\d{1,6})?"
_DATED = rf"\] datetime: (?P<time>{_STAMP})"
# A word of its own; it comes first in the pattern, which is found faster so.
_ITERATION = (
    r"iteration(?<!\Siteration)(?<!,\siteration)[ =] *(?P<iteration>\d{1,12})/ *(?P<total>\d{1,12}) \|(?P<fields>.*)"
)


def _timer(name: str) -> re.Pattern[str]:
    """A timer's line: `(min, max)` over the ranks, or one time; the slowest rank counts."""
    return re.compile(
        rf"(?<![\w-])(?:{name})(?: \.{{1,80}})?: (?:\([\d.]{{1,24}}, (?P<duration_ms>[\d.]{{1,24}})\)"
        r"|(?P<only_ms>[\d.]{1,24}))",
        re.ASCII,
    )


def _megatron_rule(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.ASCII)


MEGATRON = Trainer(
    name="megatron",
    signs=(
        "iteration",
        "checkpoint",
        "datetime:",
        "log_interval",
        "num_layers",
        "hidden_size",
        "seq_length",
        "global_batch_size",
        "end of arguments",
        "evaluate",
        "eval-time",
        "validation loss",
        "validation results",
        "using world size",
        "building GPT model",
        "fused kernels",
        "batch-generator",
        "batch generator",
        "# GPUs: ",
    ),
    rules=(
        LineRule("iteration", _megatron_rule(rf"\[(?P<time>{_STAMP})\] {_ITERATION}")),
        LineRule("iteration", _megatron_rule(_ITERATION)),
        LineRule("saved", _megatron_rule(rf"{_PROGRESS}Saved (?:async )?(?:local )?checkpoint\s{{1,8}}{_PROGRESS_AT}")),
        LineRule("scheduled", _megatron_rule(rf"{_PROGRESS}Saving async (?:local )?checkpoint\s{{1,8}}{_PROGRESS_AT}")),
        LineRule("initialized", _megatron_rule(rf"{_PROGRESS}(?P<phase>Starting job)")),
        LineRule("saved", _megatron_rule(rf"uccessfully (?:async )?saved (?:local )?checkpoint {_AT}")),
        LineRule("scheduled", _megatron_rule(rf"scheduled an async checkpoint save {_AT}")),
        LineRule("saving", _megatron_rule(rf"saving checkpoint {_AT}")),
        LineRule(
            "loaded",
            _megatron_rule(r"successfully loaded checkpoint .{0,2000}?\bat iteration +(?P<iteration>\d{1,12})"),
        ),
        LineRule(
            "loading",
            _megatron_rule(r"loading (?:\w{1,40} )?checkpoint .{0,2000}?\bat iteration +(?P<iteration>\d{1,12})"),
        ),
        LineRule("fresh", _megatron_rule(r"will not load any checkpoints")),
        LineRule(
            "evaluated",
            _megatron_rule(
                r"validation (?:loss|results) at (?:iteration +(?P<iteration>\d{1,12})|the end of training)"
            ),
        ),
        LineRule("start", _megatron_rule(rf"\[(?P<phase>before the start of training step){_DATED}")),
        LineRule("end", _megatron_rule(rf"\[(?P<phase>after training is done|exiting program [^\]]{{1,80}}){_DATED}")),
        LineRule("initialized", _megatron_rule(rf"\[(?P<phase>after megatron is initialized){_DATED}")),
        LineRule("phase", _megatron_rule(rf"\[(?P<phase>after [^\]]{{1,80}} (?:is|are) built){_DATED}")),
        LineRule("phase", _megatron_rule(r">>> (?P<phase>done with compiling and loading fused kernels)")),
        LineRule("interval", _megatron_rule(r"(?:^|\s)log_interval \.+ (?P<interval>\d{1,9})")),
        LineRule(
            "argument",
            _megatron_rule(
                r"(?:^|\s)(?:global_batch_size \.+ (?P<batch>\d{1,12})|num_layers \.+ (?P<layers>\d{1,12})"
                r"|seq_length \.+ (?P<seq>\d{1,12})|hidden_size \.+ (?P<hidden>\d{1,12}))\s{0,400}$"
            ),
        ),
        LineRule("arguments", _megatron_rule(r"-{4} end of arguments -{4}")),
        LineRule("load_timer", _timer("load[- ]checkpoint"), also=True),
        LineRule("save_timer", _timer("save[- ]checkpoint(?:-non-persistent)?"), also=True),
        LineRule("evaluate_timer", _timer("evaluate|eval-time"), also=True),
        LineRule("data_timer", _timer("batch[- ]generator"), also=True),
        LineRule("spoke", _megatron_rule(r"^using world size: |building GPT model \.\.\.")),
    ),
    pair=re.compile(r"(?P<name>[^|:=]{1,80})(?:: |=)(?P<value>[^|]{1,40})"),
    names={
        "elapsed time per iteration (ms)": ("elapsed_ms", 1),
        "elapsed time per iteration (s)": ("elapsed_ms", 1000),
        "elapsed_time_per_iteration_ms": ("elapsed_ms", 1),
        "throughput per GPU (TFLOP/s/GPU)": ("tflops_per_gpu", 1),
        "TFLOPs": ("tflops_per_gpu", 1),
        "lm loss": ("loss", 1),
        "lm-loss": ("loss", 1),
        "lm_loss": ("loss", 1),
        "lm-loss-training": ("loss", 1),
        "grad norm": ("grad_norm", 1),
        "grad_norm": ("grad_norm", 1),
        "number of skipped iterations": ("skipped", 0),
        "number_of_skipped_iterations": ("skipped", 0),
        "number of nan iterations": ("nan", 0),
        "number_of_nan_iterations": ("nan", 0),
    },
    needs="elapsed_ms",
    once=False,
)


def _torchtitan_rule(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.ASCII)


TORCHTITAN = Trainer(
    name="torchtitan",
    signs=(
        "step:",
        "the checkpoint",
        "Saving a ",
        "Training ",
        "async_mode",
        "torch.compile",
        "total steps",
        "async checkpoint request",
        "checkpoint save request",
    ),
    rules=(
        LineRule("evaluated", _torchtitan_rule(r"validate +step: +(?P<iteration>\d{1,12}) ")),
        LineRule(
            "iteration",
            _torchtitan_rule(
                r"- INFO - +step: +(?P<iteration>\d{1,12})(?:/(?P<total>\d{1,12})(?: = [\d.]{1,12}%)?)?"
                r"(?P<fields>  ?\S.*)"
            ),
        ),
        LineRule(
            "saved", _torchtitan_rule(r"Finished saving the checkpoint.{0,60}? ?in (?P<seconds>[\d.]{1,24}) seconds")
        ),
        LineRule("saving", _torchtitan_rule(r"Saving the checkpoint(?: |\.)")),
        LineRule(
            "saving",
            _torchtitan_rule(r"Saving a (?:[a-z][ \w]{0,25} )?checkpoint .{0,80}\bstep (?P<iteration>\d{1,12})"),
        ),
        LineRule(
            "loaded", _torchtitan_rule(r"Finished loading the checkpoint.{0,60}? ?in (?P<seconds>[\d.]{1,24}) seconds")
        ),
        LineRule(
            "loading",
            _torchtitan_rule(r"Loading the checkpoint (?:from .{0,2000}?step-|at step )(?P<iteration>\d{1,12})"),
        ),
        LineRule(
            "handed",
            _torchtitan_rule(r"Received async checkpoint request with id=.{0,2000}?\bstep-(?P<iteration>\d{1,12})"),
        ),
        LineRule(
            "saved",
            _torchtitan_rule(
                r"Completed checkpoint save request for checkpoint_id=.{0,2000}?\bstep-(?P<iteration>\d{1,12})"
            ),
        ),
        LineRule("start", _torchtitan_rule(r"(?P<phase>Training starts at step) (?P<next>\d{1,12})")),
        LineRule("end", _torchtitan_rule(r"- INFO - (?P<phase>Training completed)")),
        LineRule("phase", _torchtitan_rule(r"(?P<phase>Compiling each \w{1,60}) with torch\.compile")),
        LineRule("background", _torchtitan_rule(r'"async_mode": "async')),
        LineRule("plan", _torchtitan_rule(r"\btotal steps (?P<total>\d{1,12})")),
    ),
    pair=re.compile(r"(?P<name>[a-z_]{1,40}): {1,4}(?P<value>nan|-?inf|[\d.,e+-]{1,24})%?"),
    names={
        "loss": ("loss", 1),
        "global_avg_loss": ("loss", 1),
        "grad_norm": ("grad_norm", 1),
        "tps": ("tokens_per_s_per_gpu", 1),
        "wps": ("tokens_per_s_per_gpu", 1),
        "tflops": ("tflops_per_gpu", 1),
        "mfu": ("mfu_percent", 1),
    },
)

"""Megatron-LM and what is built on its loop: Megatron-DeepSpeed, Megatron-Bridge, NeMo's new recipes.

     [2025-03-01 04:05:06] iteration     1200/  500000 | ... | elapsed time per iteration (ms): 8000.0 | throughput per
     GPU (TFLOP/s/GPU): 402.1 | ... | lm loss: 1.930000E+00 | ... | grad norm: 0.412 | number of skipped iterations: 0 |
    saving checkpoint at iteration    1200 to /ckpt in torch_dist format
      scheduled an async checkpoint save at iteration    1200 to /ckpt          (--async-save: training goes on)
    (min, max) time across ranks (ms):
        save-checkpoint ................................: (910.08, 913.10)      what it stalled all the same
      successfully saved checkpoint from iteration    1200 to /ckpt [ t 1/8, p 1/4 ]

Forks print seconds (`elapsed time per iteration (s)`, Megatron-DeepSpeed), `name=value` (Argonne's) or fields before
the iteration (GPT-NeoX). Old releases print no time. The last rank prints the iterations, rank 0 the rest. Sources:
training/training.py, training/checkpointing.py and core/timers.py of NVIDIA/Megatron-LM, real logs of bigscience and
superbenchmark.
"""

import re

from parsers.trainers.trainer import Rule, Trainer

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


def _rule(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.ASCII)


TRAINER = Trainer(
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
    ),
    rules=(
        Rule("iteration", _rule(rf"\[(?P<time>{_STAMP})\] {_ITERATION}")),
        Rule("iteration", _rule(_ITERATION)),
        Rule("saved", _rule(rf"uccessfully (?:async )?saved (?:local )?checkpoint {_AT}")),
        Rule("scheduled", _rule(rf"scheduled an async checkpoint save {_AT}")),
        Rule("saving", _rule(rf"saving checkpoint {_AT}")),
        Rule("loaded", _rule(r"successfully loaded checkpoint .{0,2000}?\bat iteration +(?P<iteration>\d{1,12})")),
        Rule("loading", _rule(r"loading (?:\w{1,40} )?checkpoint .{0,2000}?\bat iteration +(?P<iteration>\d{1,12})")),
        Rule("fresh", _rule(r"will not load any checkpoints")),
        Rule(
            "evaluated",
            _rule(r"validation (?:loss|results) at (?:iteration +(?P<iteration>\d{1,12})|the end of training)"),
        ),
        Rule("start", _rule(rf"\[(?P<phase>before the start of training step){_DATED}")),
        Rule("end", _rule(rf"\[(?P<phase>after training is done|exiting program [^\]]{{1,80}}){_DATED}")),
        Rule("initialized", _rule(rf"\[(?P<phase>after megatron is initialized){_DATED}")),
        Rule("phase", _rule(rf"\[(?P<phase>after [^\]]{{1,80}} (?:is|are) built){_DATED}")),
        Rule("phase", _rule(r">>> (?P<phase>done with compiling and loading fused kernels)")),
        Rule("interval", _rule(r"(?:^|\s)log_interval \.+ (?P<interval>\d{1,9})")),
        Rule(
            "argument",
            _rule(
                r"(?:^|\s)(?:global_batch_size \.+ (?P<batch>\d{1,12})|num_layers \.+ (?P<layers>\d{1,12})"
                r"|seq_length \.+ (?P<seq>\d{1,12})|hidden_size \.+ (?P<hidden>\d{1,12}))\s{0,400}$"
            ),
        ),
        Rule("arguments", _rule(r"-{4} end of arguments -{4}")),
        Rule("load_timer", _timer("load[- ]checkpoint"), also=True),
        Rule("save_timer", _timer("save[- ]checkpoint(?:-non-persistent)?"), also=True),
        Rule("evaluate_timer", _timer("evaluate|eval-time"), also=True),
        Rule("data_timer", _timer("batch[- ]generator"), also=True),
        Rule("spoke", _rule(r"^using world size: |building GPT model \.\.\.")),
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

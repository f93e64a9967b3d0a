"""torchtitan.

    [rank0]:[titan] 2025-06-04 08:51:58,557 - root - INFO - step: 10  loss: 10.7069  memory: 30.99GiB(32.62%)
      tps: 7,034  tflops: 407.35  mfu: 41.19%
    [titan] 2025-06-04 08:52:10,300 - root - INFO - Saving the checkpoint (or staging if async is enabled).
    [titan] 2025-06-04 08:52:15,810 - root - INFO - Finished saving the checkpoint (or staging ...) in 5.51 seconds.

Every line bears a time and may be coloured. With `"async_mode": "async"` in the settings the seconds are those of the
staging, which stalls; no line tells when the save itself was done. `tps` is per device. Sources: torchtitan/components/
metrics.py, checkpoint.py and train.py of pytorch/torchtitan.
"""

import re

from parsers.trainers.trainer import Rule, Trainer


def _rule(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.ASCII)


TRAINER = Trainer(
    name="torchtitan",
    signs=("step:", "the checkpoint", "Saving a ", "Training ", "async_mode", "torch.compile", "total steps"),
    rules=(
        Rule("evaluated", _rule(r"validate +step: +(?P<iteration>\d{1,12}) ")),
        Rule(
            "iteration",
            _rule(
                r"- INFO - +step: +(?P<iteration>\d{1,12})(?:/(?P<total>\d{1,12})(?: = [\d.]{1,12}%)?)?"
                r"(?P<fields>  ?\S.*)"
            ),
        ),
        Rule("saved", _rule(r"Finished saving the checkpoint.{0,60}? ?in (?P<seconds>[\d.]{1,24}) seconds")),
        Rule("saving", _rule(r"Saving the checkpoint(?: |\.)")),
        Rule("saving", _rule(r"Saving a (?:[a-z][ \w]{0,25} )?checkpoint .{0,80}\bstep (?P<iteration>\d{1,12})")),
        Rule("loaded", _rule(r"Finished loading the checkpoint.{0,60}? ?in (?P<seconds>[\d.]{1,24}) seconds")),
        Rule("loading", _rule(r"Loading the checkpoint (?:from .{0,2000}?step-|at step )(?P<iteration>\d{1,12})")),
        Rule("start", _rule(r"(?P<phase>Training starts at step) (?P<next>\d{1,12})")),
        Rule("end", _rule(r"- INFO - (?P<phase>Training completed)")),
        Rule("phase", _rule(r"(?P<phase>Compiling each \w{1,60}) with torch\.compile")),
        Rule("background", _rule(r'"async_mode": "async')),
        Rule("plan", _rule(r"\btotal steps (?P<total>\d{1,12})")),
    ),
    pair=re.compile(r"(?P<name>[a-z_]{1,40}): {1,4}(?P<value>[\d.,e+-]{1,24})%?"),
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

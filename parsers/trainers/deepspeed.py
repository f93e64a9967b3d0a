"""DeepSpeed's engine, where no trainer above it tells the same.

    [2023-11-29 08:57:28,159] [INFO] [logging.py:96:log_dist] [Rank 0] step=5, skipped=0, lr=[6e-07], mom=[(0.9, 0.95)]
    steps: 5 loss: 12.8004 iter time (s): 145.206 samples/sec: 7.052
    [2023-07-24 13:21:33,261] [INFO] [logging.py:96:log_dist] [Rank 0] [Torch] Checkpoint global_step10 is about ...
    [2023-07-24 13:21:41,902] [INFO] [torch_checkpoint_engine.py:33:commit] [Torch] Checkpoint global_step10 is ...

Every rank says that a save is ready; step=0 is printed at startup. Sources: deepspeed/runtime/engine.py,
pipe/engine.py and checkpoint_engine/torch_checkpoint_engine.py of microsoft/DeepSpeed, real logs of bigscience and
superbenchmark.
"""

import re

from parsers.trainers.trainer import Rule, Trainer


def _rule(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.ASCII)


TRAINER = Trainer(
    name="deepspeed",
    signs=("step=", "iter time (s)", "Checkpoint ", "oading checkpoint", "oaded checkpoint", "exits successfully"),
    rules=(
        Rule("iteration", _rule(r"\[Rank \d{1,7}\] step=(?P<iteration>[1-9]\d{0,11})(?P<fields>, skipped=.*)")),
        Rule(
            "iteration", _rule(r"(?:^|\s)steps: (?P<iteration>[1-9]\d{0,11}) (?P<fields>loss: .*iter time \(s\): .*)")
        ),
        Rule("saving", _rule(r"\] Checkpoint global_step(?P<iteration>\d{1,12}) is about to be saved!")),
        Rule("saved", _rule(r"\] Checkpoint global_step(?P<iteration>\d{1,12}) is ready now!")),
        Rule("loading", _rule(r"Loading checkpoint from .{0,2000}global_step(?P<iteration>\d{1,12})/")),
        Rule("loaded", _rule(r"Loaded checkpoint from .{0,2000}global_step(?P<iteration>\d{1,12})/")),
        Rule("end", _rule(r"(?P<phase>Process) \d{1,10} exits successfully")),
    ),
    pair=re.compile(r"(?P<name>[a-z][\w /()]{0,40}?)(?:=|: )(?P<value>[\d.e+-]{1,24})"),
    names={
        "skipped": ("skipped", 0),
        "loss": ("loss", 1),
        "iter time (s)": ("elapsed_ms", 1000),
        "samples/sec": ("samples_per_s", 1),
    },
    waits=True,
)

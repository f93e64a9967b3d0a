"""The Trainer of Hugging Face transformers, and what is built on it (TRL, LLaMA-Factory, Axolotl).

     12%|#2        | 120/1000 [02:00<14:40,  1.00s/it]
    {'loss': 2.1034, 'grad_norm': 1.25, 'learning_rate': 4.9e-05, 'epoch': 0.12}
    [INFO|trainer.py:1884] 2021-05-25 06:53:45,424 >> Saving model checkpoint to out/checkpoint-500
    {'train_runtime': 919.097, 'train_samples_per_second': 1.088, 'train_steps_per_second': 0.017, 'epoch': 1.0}

A loss line bears no step: the bar before it does (release 5 prints the numbers as strings); bars with a name
(`Loading checkpoint shards:`) or of another total (an evaluation) count other things. No line tells that a save
is done: the last file written is taken, or what DeepSpeed says. A model saved without a step is no checkpoint.
Sources: trainer.py and trainer_callback.py of huggingface/transformers, a real log of bigscience.
"""

import re

from parsers.trainers.trainer import Rule, Trainer


def _rule(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.ASCII)


TRAINER = Trainer(
    name="hf_trainer",
    signs=(
        "%|",
        "'loss':",
        "'eval_loss':",
        "'train_runtime':",
        "checkpoint-",
        "Running training",
        "Total optimization",
        "Num Epochs",
        "global step ",
        "Training completed.",
    ),
    rules=(
        Rule("iteration", _rule(r"(?P<fields>\{'loss': .*\})")),
        Rule("evaluated", _rule(r"\{'eval_loss': .{0,2000}?'eval_runtime': '?(?P<seconds>[\d.]{1,24})")),
        Rule("evaluated", _rule(r"\{'eval_loss': ")),
        Rule("end", _rule(r"(?P<phase>Training completed)\. Do not forget")),
        Rule("end", _rule(r"\{'(?P<phase>train_runtime)': ")),
        Rule("saving", _rule(r"Saving model checkpoint to .{0,2000}checkpoint-(?P<iteration>\d{1,12})\s{0,400}$")),
        Rule("saved", _rule(r"saved in .{0,500}checkpoint-(?P<iteration>\d{1,12})/[\w.-]{1,200}$")),
        Rule("loading", _rule(r"Loading model from .{0,2000}checkpoint-(?P<iteration>\d{1,12})")),
        Rule("loaded", _rule(r"Continuing training from global step (?P<iteration>\d{1,12})")),
        Rule("start", _rule(r"\*{5} (?P<phase>Running training) \*{5}")),
        Rule("plan", _rule(r"Num Epochs = (?P<epochs>\d{1,9})")),
        Rule("plan", _rule(r"Total optimization steps = (?P<total>[\d,]{1,15})")),
        Rule(
            "bar",
            _rule(
                r"^\s{0,400}\d{1,3}%\|[^|]{0,400}\| (?P<iteration>\d{1,12})/(?P<total>\d{1,12}) "
                r"\[(?:(?P<hours>\d{1,5}):)?(?P<minutes>\d{1,2}):(?P<second>\d{2})<[^\]]{0,80}(?:it/s|s/it)\]"
            ),
        ),
    ),
    pair=re.compile(r"'(?P<name>\w{1,60})': '?(?P<value>[^,'}\s]{1,40})"),
    names={"loss": ("loss", 1), "grad_norm": ("grad_norm", 1), "epoch": ("epoch", 1)},
    ends=False,
)

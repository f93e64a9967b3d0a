"""Trainers of frameworks: NeMo on PyTorch Lightning with Lightning's own bar, and the Hugging Face Trainer.

    Training epoch 0, iteration 9/99 | lr: 2e-06 | global_batch_size: 128 | global_step: 9 | reduced_train_loss: 10.2
      | train_step_timing in s: 12.22 | consumed_samples: 1280
    Epoch 0: :  60%|...| 60/100 [02:01<01:21, reduced_train_loss=6.37, global_step=59.00, train_step_timing in s=2.01]
    Epoch 1:  22%|...| 4/18 [00:17<01:02,  4.47s/it, loss=10.072, v_num=193315]
    Epoch 0, global step 9000: 'val_loss' reached 7.04238 (best 7.04238), saving model to '/c/step=9000.ckpt' as top 3
    [NeMo I 2025-04-11 14:48:45 nemo_logging:393] Global Checkpoint Save : Rank: 0 : Iteration: 50
      : Start time: 1744408121.151s : Save duration: 4.389s
    [NeMo I 2025-04-11 14:48:46 nemo_logging:393] Scheduled async checkpoint save for /ckpt/step=50.ckpt
    [NeMo I 2025-04-11 14:48:59 nemo_logging:393] Async checkpoint save for step 51 (/ckpt/step=50.ckpt) finalized ...

The duration of an asynchronous save is the stall alone; the save is safe when it is finalized. Steps count from 0 here,
but for the finalized line and the bar, which prints `global_step` in three digits (2e+3): its count is taken,
which begins anew with each epoch, as its clock does. Training waits for Lightning's own save; no line tells its end.
Sources: nemo/lightning/pytorch/callbacks/progress_printer.py and model_checkpoint.py of NVIDIA/NeMo,
callbacks/model_checkpoint.py of Lightning-AI/pytorch-lightning, public logs.
"""

import re

from parsers.training.trainer import LineRule, Trainer

# The Trainer of Hugging Face transformers, and what is built on it (TRL, LLaMA-Factory, Axolotl).
#
#      12%|#2        | 120/1000 [02:00<14:40,  1.00s/it]
#     {'loss': 2.1034, 'grad_norm': 1.25, 'learning_rate': 4.9e-05, 'epoch': 0.12}
#     [INFO|trainer.py:1884] 2021-05-25 06:53:45,424 >> Saving model checkpoint to out/checkpoint-500
#     {'train_runtime': 919.097, 'train_samples_per_second': 1.088, 'train_steps_per_second': 0.017, 'epoch': 1.0}
#
# A loss line bears no step: the bar before it does (release 5 prints the numbers as strings); bars with a name
# (`Loading checkpoint shards:`) or of another total (an evaluation) count other things. No line tells that a save
# is done: the last file written is taken, or what DeepSpeed says. A model saved without a step is no checkpoint.
# Sources: trainer.py and trainer_callback.py of huggingface/transformers, a real log of bigscience.


def _hf_trainer_rule(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.ASCII)


HF_TRAINER = Trainer(
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
        LineRule("iteration", _hf_trainer_rule(r"(?P<fields>\{'loss': .*\})")),
        LineRule("evaluated", _hf_trainer_rule(r"\{'eval_loss': .{0,2000}?'eval_runtime': '?(?P<seconds>[\d.]{1,24})")),
        LineRule("evaluated", _hf_trainer_rule(r"\{'eval_loss': ")),
        LineRule("end", _hf_trainer_rule(r"(?P<phase>Training completed)\. Do not forget")),
        LineRule("end", _hf_trainer_rule(r"\{'(?P<phase>train_runtime)': ")),
        LineRule(
            "saving",
            _hf_trainer_rule(r"Saving model checkpoint to .{0,2000}checkpoint-(?P<iteration>\d{1,12})\s{0,400}$"),
        ),
        LineRule("saved", _hf_trainer_rule(r"saved in .{0,500}checkpoint-(?P<iteration>\d{1,12})/[\w.-]{1,200}$")),
        LineRule("loading", _hf_trainer_rule(r"Loading model from .{0,2000}checkpoint-(?P<iteration>\d{1,12})")),
        LineRule("loaded", _hf_trainer_rule(r"Continuing training from global step (?P<iteration>\d{1,12})")),
        LineRule("start", _hf_trainer_rule(r"\*{5} (?P<phase>Running training) \*{5}")),
        LineRule("plan", _hf_trainer_rule(r"Num Epochs = (?P<epochs>\d{1,9})")),
        LineRule("plan", _hf_trainer_rule(r"Total optimization steps = (?P<total>[\d,]{1,15})")),
        LineRule(
            "bar",
            _hf_trainer_rule(
                r"^\s{0,400}\d{1,3}%\|[^|]{0,400}\| (?P<iteration>\d{1,12})/(?P<total>\d{1,12}) "
                r"\[(?:(?P<hours>\d{1,5}):)?(?P<minutes>\d{1,2}):(?P<second>\d{2})<[^\]]{0,80}(?:it/s|s/it)\]"
            ),
        ),
    ),
    pair=re.compile(r"'(?P<name>\w{1,60})': '?(?P<value>[^,'}\s]{1,40})"),
    names={"loss": ("loss", 1), "grad_norm": ("grad_norm", 1), "epoch": ("epoch", 1)},
    ends=False,
)


def _nemo_rule(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.ASCII)


NEMO = Trainer(
    name="nemo",
    signs=(
        "Training epoch",
        "train_step_timing",
        "reduced_train_loss",
        "v_num=",
        "heckpoint",
        "Trainer.fit",
        "Validation: iteration",
        "saving model to ",
    ),
    rules=(
        LineRule(
            "iteration",
            _nemo_rule(
                r"Training epoch \d{1,9}, iteration \d{1,12}/(?P<total>\d{1,12})"
                r"(?P<fields> \|.{0,400}\| global_step: (?P<iteration>\d{1,12})\b.*)"
            ),
        ),
        LineRule(
            "iteration",
            _nemo_rule(
                r"Training epoch \d{1,9}, iteration (?P<iteration>\d{1,12})/(?P<total>\d{1,12})(?P<fields> \|.*)"
            ),
        ),
        LineRule(
            "iteration",
            _nemo_rule(
                r"Epoch (?P<epochs_done>\d{1,9}): [^|]{0,40}\|[^|]{0,400}\| "
                r"(?P<iteration>[1-9]\d{0,11})/(?P<total>\d{1,12}) "
                r"\[(?:(?P<hours>\d{1,5}):)?(?P<minutes>\d{1,2}):(?P<second>\d{2})<"
                r"(?P<fields>[^\]]{0,2000}(?:train_(?:loss|step_timing)|v_num=)[^\]]{0,2000})"
            ),
        ),
        LineRule(
            "saved",
            _nemo_rule(
                r"Global Checkpoint Save : Rank: \d{1,7} : (?:Iteration: (?P<iteration>\d{1,12}) : )?"
                r"Start time: [\d.]{1,24}s : Save duration: (?P<seconds>[\d.]{1,24})s"
            ),
        ),
        LineRule(
            "pausing",
            _nemo_rule(
                r"Epoch \d{1,9}, global step (?P<iteration>\d{1,12}): .{1,200}? reached .{1,120}?, saving model to "
            ),
        ),
        LineRule("saving", _nemo_rule(r"Checkpoint save for step (?P<iteration>\d{1,12}) started")),
        LineRule(
            "scheduled", _nemo_rule(r"Scheduled async checkpoint save for .{0,2000}\bstep=(?P<iteration>\d{1,12})")
        ),
        LineRule("scheduled", _nemo_rule(r"Scheduled async checkpoint save for ")),
        LineRule(
            "saved",
            _nemo_rule(
                r"Async checkpoint save for step \d{1,12} \(.{0,2000}\bstep=(?P<iteration>\d{1,12})"
                r".{0,2000}\) finalized successfully"
            ),
        ),
        LineRule(
            "saved", _nemo_rule(r"Async checkpoint save for step (?P<next>\d{1,12}) .{0,2000}finalized successfully")
        ),
        LineRule("saved", _nemo_rule(r"Successfully saved checkpoint from iteration +(?P<iteration>\d{1,12})")),
        LineRule(
            "loaded",
            _nemo_rule(
                r"Global Checkpoint Load : Rank ?: \d{1,7} : Start time ?: [\d.]{1,24}s : "
                r"Time spent in load_checkpoint: (?P<seconds>[\d.]{1,24})s"
            ),
        ),
        LineRule("evaluated", _nemo_rule(r"Validation: iteration (?P<done>\d{1,9})/(?P=done)(?!\d)")),
        LineRule("end", _nemo_rule(r"(?P<phase>`Trainer\.fit` stopped): ")),
    ),
    pair=re.compile(r"(?P<name>[A-Za-z][\w /]{0,60}?)(?:: |=)(?P<value>[^\s,|\]]{1,40})"),
    names={
        "train_step_timing in s": ("elapsed_ms", 1000),
        "reduced_train_loss": ("loss", 1),
        "loss": ("loss", 1),
        "train_loss": ("loss", 1),
        "grad_norm": ("grad_norm", 1),
        "TFLOPS_per_GPU": ("tflops_per_gpu", 1),
        "tokens_per_sec_per_gpu": ("tokens_per_s_per_gpu", 1),
    },
)

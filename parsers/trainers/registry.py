"""The trainers: one line here, one file beside it, a log in `fixtures/training`.

A trainer that is built upon another stands before it: where both tell of an iteration or a save, the first has it.
"""

from parsers.trainers import deepspeed, hf_trainer, megatron, nemo, torchtitan
from parsers.trainers.trainer import Trainer

TRAINERS: tuple[Trainer, ...] = (
    megatron.TRAINER,
    nemo.TRAINER,
    torchtitan.TRAINER,
    hf_trainer.TRAINER,
    deepspeed.TRAINER,
)

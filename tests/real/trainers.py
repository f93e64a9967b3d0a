"""Training programs that a test starts: the Hugging Face Trainer, Lightning, and plain torch, with tiny random models.

    python trainers.py transformers FOLDER     its hook writes FOLDER/run.jsonl, its saves lie in FOLDER/saves
    python trainers.py lightning FOLDER
    python trainers.py plain FOLDER            saves distributed checkpoints of two ranks until it is killed in one

Steps, evaluations and saves that the trainers themselves count are printed as a line of JSON at the end.
"""

import json
import os
import sys
import time
from contextlib import suppress
from pathlib import Path

import torch
from foreshock_hook import TrainingHook

STEPS, EVERY = 12, 4


def transformers(folder: Path) -> None:
    """Gradients of two batches make a step; an evaluation and a save each fourth step."""
    import transformers as hf
    from foreshock_hook.callbacks import transformers_callback

    config = hf.LlamaConfig(
        vocab_size=64, hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2
    )
    rows = [{"input_ids": torch.arange(8), "labels": torch.arange(8)} for _ in range(64)]
    options = hf.TrainingArguments(
        str(folder / "saves"), max_steps=STEPS, per_device_train_batch_size=2, gradient_accumulation_steps=2,
        eval_strategy="steps", eval_steps=EVERY, save_steps=EVERY, report_to=[], use_cpu=True, disable_tqdm=True,
    )  # fmt: skip
    hook = TrainingHook("hf", str(folder / "run.jsonl"), write_s=0.0)
    trainer = hf.Trainer(
        hf.LlamaForCausalLM(config), options, train_dataset=rows, eval_dataset=rows[:4],
        callbacks=[transformers_callback(hook)],
    )  # fmt: skip
    trainer.train()
    _say(trainer.state.global_step, sum("eval_loss" in row for row in trainer.state.log_history), folder)


def lightning(folder: Path) -> None:
    """An evaluation in each fourth batch and a save in each fourth step; a check of sanity before the first."""
    import pytorch_lightning as pl
    from foreshock_hook.callbacks import lightning_callback
    from pytorch_lightning.callbacks import ModelCheckpoint

    class Model(pl.LightningModule):
        """One layer."""

        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(4, 1)
            self.evaluations = 0

        def training_step(self, batch: list[torch.Tensor], _index: int) -> torch.Tensor:
            return self.layer(batch[0]).square().mean()

        def validation_step(self, batch: list[torch.Tensor], _index: int) -> None:
            self.layer(batch[0])

        def on_validation_end(self) -> None:
            self.evaluations += not self.trainer.sanity_checking

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.SGD(self.parameters(), lr=0.1)

    rows = torch.utils.data.TensorDataset(torch.rand(64, 4))
    loader, model = torch.utils.data.DataLoader(rows, batch_size=2), Model()
    hook = TrainingHook("pl", str(folder / "run.jsonl"), write_s=0.0)
    saves = ModelCheckpoint(folder / "saves", every_n_train_steps=EVERY, save_top_k=-1)
    trainer = pl.Trainer(
        accelerator="cpu", max_steps=STEPS, val_check_interval=EVERY, logger=False, enable_progress_bar=False,
        callbacks=[saves, lightning_callback(hook)], default_root_dir=folder,
    )  # fmt: skip
    trainer.fit(model, loader, torch.utils.data.DataLoader(rows, batch_size=32))

    class Broken(Model):
        """One that fails in its first step."""

        def training_step(self, _batch: list[torch.Tensor], _index: int) -> torch.Tensor:
            raise ValueError("no loss")

    failing = lightning_callback(TrainingHook("pl", str(folder / "failed.jsonl")))
    with suppress(ValueError):
        pl.Trainer(accelerator="cpu", logger=False, enable_checkpointing=False, callbacks=[failing]).fit(
            Broken(), loader
        )
    _say(trainer.global_step, model.evaluations, folder)


def plain(folder: Path) -> None:
    """Two ranks over gloo that save a distributed checkpoint each fourth step; the last one never ends."""
    import torch.distributed as dist
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.filesystem import FileSystemWriter

    rank = int(sys.argv[3]) if len(sys.argv) > 3 else 0
    if len(sys.argv) == 3:
        os.posix_spawn(sys.executable, [sys.executable, *sys.argv, "1"], dict(os.environ))
    dist.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=2)

    class Stuck(FileSystemWriter):
        """A file system that stops to answer in the middle of the second rank's file."""

        def write_data(self, plan: object, planner: object) -> object:
            if rank == 1:
                (folder / "stuck").touch()
                time.sleep(3600)
            return super().write_data(plan, planner)

    model = torch.nn.Sequential(*[torch.nn.Linear(32, 32) for _ in range(4)])
    state = {f"rank{rank}.{name}": value for name, value in model.state_dict().items()}
    hook = TrainingHook("plain", str(folder / "run.jsonl"), rank=rank, write_s=0.0)
    for step in range(1, STEPS + 1):
        model(torch.rand(2, 32)).sum().backward()
        dist.barrier()
        hook.step(step)
        if step % EVERY == 0:
            writer = (Stuck if step == STEPS else FileSystemWriter)(folder / "saves" / f"step-{step}")
            with hook.saving(step):
                dcp.save(state, storage_writer=writer)


def _say(steps: int, evaluations: int, folder: Path) -> None:
    saves = sorted(path.name for path in (folder / "saves").iterdir())
    print(json.dumps({"steps": steps, "evaluations": evaluations, "saves": saves}))  # noqa: T201


if __name__ == "__main__":
    {"transformers": transformers, "lightning": lightning, "plain": plain}[sys.argv[1]](Path(sys.argv[2]))

"""A training program over gloo that a test starts, a process a rank: steps of work, all-reduces, through the hook.

    python gloo_train.py FOLDER WORLD TIMEOUT_S DUMP_S      PyTorch is loaded once; the ranks' process ids: FOLDER/pids

FOLDER/stepped-RANK is there when a rank has done its first step. FOLDER/slow says who works how much longer, and may
change: `3 1.5 0` rank 3, `all 2 0` every rank, `none 1 0.2` each rank's steps by chance (the spread of the logarithm).
A rank whose step lasts DUMP_S seconds writes its flight recorder's dump to FOLDER/dumps, as NCCL's watchdog does while
the rank still waits: gloo itself writes none, and after a failure its dump calls the failed collective completed.
"""

import os
import random
import sys
import threading
import time
from datetime import timedelta
from pathlib import Path

import torch
import torch._C._distributed_c10d as recorder
import torch.distributed as dist
from foreshock_hook import TrainingHook


def slowness(folder: Path, rank: int) -> float:
    """How much longer this rank works at this step."""
    try:
        who, factor, spread = (folder / "slow").read_text().split()
    except (OSError, ValueError):
        return 1.0
    by_chance = random.lognormvariate(0.0, float(spread))  # of each process's own seed
    return by_chance * (float(factor) if who in (str(rank), "all") else 1.0)


class Watchdog:
    """Dumps once, while this rank waits."""

    def __init__(self, folder: Path, rank: int, limit_s: float) -> None:
        self._folder, self._rank, self._limit_s = folder, rank, limit_s
        self.begun = time.monotonic()
        threading.Thread(target=self._watch, daemon=True).start()

    def _watch(self) -> None:
        while time.monotonic() - self.begun < self._limit_s:
            time.sleep(0.1)
        (self._folder / f".{self._rank}").write_bytes(recorder._dump_fr_trace())
        (self._folder / f".{self._rank}").rename(self._folder / f"nccl_trace_rank_{self._rank}")


def main() -> None:
    """Fork the ranks, and end when the first of them does."""
    folder, world = Path(sys.argv[1]), int(sys.argv[2])
    pids = []
    for rank in range(world):
        pids.append(os.fork())
        if pids[-1] == 0:
            return train(folder, rank, world, float(sys.argv[3]))
    (folder / "pids").write_text(" ".join(map(str, pids)))
    os.wait()
    return None


def train(folder: Path, rank: int, world: int, timeout_s: float) -> None:
    """Train until the folder says to end, or a collective fails."""
    os.environ |= {"RANK": str(rank), "WORLD_SIZE": str(world), "LOCAL_RANK": str(rank % 4)}
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo",
        init_method=f"file://{folder}/rendezvous",
        rank=rank,
        world_size=world,
        timeout=timedelta(seconds=timeout_s),
    )
    limit = timedelta(seconds=timeout_s)  # a group's own is half an hour
    pairs = [dist.new_group([2 * pair, 2 * pair + 1], timeout=limit) for pair in range(world // 2)]
    hook = TrainingHook("gloo", str(folder / "gloo.jsonl"))
    hook.share_state(str(folder / f"node-{rank // 4 + 1}"))
    model = torch.nn.Linear(64, 64)
    batch = torch.randn(16, 64)
    step = 0
    watchdog = Watchdog(folder / "dumps", rank, float(sys.argv[4]))
    try:
        while not (folder / "end").exists():
            watchdog.begun = time.monotonic()
            model.zero_grad()
            model(batch).square().mean().backward()
            time.sleep(0.05 * slowness(folder, rank))
            with hook.collective("pair"):
                dist.all_reduce(model.bias.grad, group=pairs[rank // 2])
            with hook.collective("world"):
                dist.all_reduce(model.weight.grad)
            step += 1
            hook.step(step)
            if step == 1:
                (folder / f"stepped-{rank}").touch()
        hook.close()
    except RuntimeError as error:
        print(f"[rank{rank}]: RuntimeError: {error}", flush=True)  # noqa: T201  # as Python does
        os._exit(1)


main()

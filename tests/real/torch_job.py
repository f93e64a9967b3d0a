"""A real training job over gloo, in an environment with PyTorch's CPU build, which is made once and kept.

    with torch_job(tmp_path, world=8) as job:
        job.stop_rank(3)                 # SIGSTOP
        job.slow_rank(5, 1.6)

The environment is no dependency of the project: FORESHOCK_TEST_TORCH names its python, else ~/.cache/foreshock/torch is
made by pip. Where neither gives a PyTorch a test says so and is skipped.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Literal

import pytest
from real.cached_programs import add_packages, locked
from real.programs import stop, wait_for

VERSION = "2.13.0"
TRAINERS = ("pytorch-lightning==2.6.6", "transformers==5.23.0", "accelerate==1.15.0", "numpy==2.4.6")
_HERE = Path(__file__).parent
_HOOK = _HERE.parents[1] / "hook"
_FOLDER = Path.home() / ".cache" / "foreshock" / "torch"
# Larger ones bring CUDA's libraries along.
_MOST_MINUTES = 8
# A rank that waits for so long dumps its flight recorder; a step takes a tenth of a second, on a busy machine some.
DUMP_S = 20.0


@cache
def torch_python() -> str:
    """The python of an environment in which PyTorch works over gloo; skips the test where there is none."""
    python = os.environ.get("FORESHOCK_TEST_TORCH") or str(_FOLDER / "bin" / "python")
    if _works(python):
        return python
    if "FORESHOCK_TEST_TORCH" in os.environ:
        pytest.skip(f"FORESHOCK_TEST_TORCH: {python} has no PyTorch with gloo")
    made = _made()
    if not _works(python):
        pytest.skip(f"no PyTorch for the CPU can be had here: {made[-300:]}")
    return python


def _works(python: str) -> bool:
    code = "import torch.distributed as d; assert d.is_gloo_available()"
    return Path(python).exists() and subprocess.run([python, "-W", "ignore", "-c", code], check=False).returncode == 0


def _made() -> str:
    """Make the environment; only a wheel of the CPU alone is taken: others are gigabytes."""
    subprocess.run([sys.executable, "-m", "venv", str(_FOLDER)], check=True)
    pip = [str(_FOLDER / "bin" / "python"), "-m", "pip", "install", "-q", "--only-binary=:all:"]
    try:
        dry = subprocess.run(
            [*pip, "--dry-run", f"torch=={VERSION}"], check=False, capture_output=True, text=True, timeout=120
        )
        if dry.returncode or "nvidia" in dry.stdout:
            return f"pip offers none without CUDA: {dry.stderr}"
        done = subprocess.run(
            [*pip, f"torch=={VERSION}"], check=False, capture_output=True, text=True, timeout=60 * _MOST_MINUTES
        )
    except subprocess.TimeoutExpired as error:
        return str(error)
    return done.stderr


@cache
def trainers_python() -> str:
    """The same python with numpy, Lightning and the Hugging Face Trainer; skips the test where they cannot be had."""
    python = torch_python()
    if not _has_trainers(python):
        with locked(_FOLDER.with_name("torch.lock")):
            if not _has_trainers(python):
                add_packages(Path(python), [f"torch=={VERSION}", *TRAINERS])
    return python


def _has_trainers(python: str) -> bool:
    code = "from importlib.metadata import version; " + "; ".join(
        f"assert version({name!r}) == {number!r}" for name, number in (one.split("==") for one in TRAINERS)
    )
    return subprocess.run([python, "-c", code], check=False, capture_output=True).returncode == 0


class TorchJob:
    """The ranks of a job; four of them are a node."""

    def __init__(self, folder: Path, world: int, timeout_s: float) -> None:
        self.folder, self.world, self.timeout_s = folder, world, timeout_s
        self._launcher: subprocess.Popen[bytes] | None = None
        self._ranks: list[int] = []

    def start(self) -> None:
        """Start every rank, and wait for their first steps."""
        for name in ("dumps", *(f"node-{node + 1}" for node in range((self.world + 3) // 4))):
            (self.folder / name).mkdir()
        environment = {**os.environ, "PYTHONPATH": str(_HOOK), "TORCH_FR_BUFFER_SIZE": "2000", "OMP_NUM_THREADS": "1"}
        command = [torch_python(), "-W", "ignore", str(_HERE / "gloo_train.py"), str(self.folder)]
        numbers = [str(self.world), str(self.timeout_s), str(DUMP_S)]
        with (self.folder / "output.log").open("wb") as log:
            self._launcher = subprocess.Popen(
                [*command, *numbers], env=environment, stdout=log, stderr=log, start_new_session=True
            )
        wait_for("every rank trains", lambda: self._trains() or self._ended(), 120)
        assert not self._ended(), (self.folder / "output.log").read_text()[-2000:]
        self._ranks = [int(pid) for pid in (self.folder / "pids").read_text().split()]

    def _trains(self) -> bool:
        return len(list(self.folder.glob("stepped-*"))) == self.world

    def _ended(self) -> bool:
        return self._launcher is not None and self._launcher.poll() is not None

    def stop_rank(self, rank: int) -> float:
        """Stop a rank's process; when that was."""
        os.kill(self._ranks[rank], signal.SIGSTOP)
        return time.time()

    def go_on(self, rank: int) -> None:
        """Let a stopped rank go on."""
        os.kill(self._ranks[rank], signal.SIGCONT)

    def slow_rank(self, rank: int | Literal["all", "none"], factor: float, spread: float = 0.0) -> None:
        """Let one rank work longer and no other, or all; the steps of every rank may vary."""
        (self.folder / "slow.new").write_text(f"{rank} {factor} {spread}")
        (self.folder / "slow.new").rename(self.folder / "slow")

    def kill(self) -> None:
        """End every rank, stopped ones, too."""
        if self._launcher is not None:
            os.killpg(self._launcher.pid, signal.SIGKILL)
            stop(self._launcher, signal.SIGKILL)


@contextmanager
def torch_job(folder: Path, world: int = 8, timeout_s: float = 600.0) -> Iterator[TorchJob]:
    """A job that trains."""
    job = TorchJob(folder, world, timeout_s)
    try:
        job.start()
        yield job
    finally:
        job.kill()

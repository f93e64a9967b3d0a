"""A hook for any training program: two lines, and the ledger knows each step, save, load, evaluation and wait for data.

    from foreshock_hook.hook import TrainingHook
    hook = TrainingHook("run-7", "/var/log/train/run-7.jsonl")
    ...
    hook.step(i)                               # iteration i is done
    with hook.saving(i): save()                # also loading(i), evaluating(i), waiting_for_data()

    hook.share_state("/dev/shm/foreshock")     # every rank: what it does now, for the sidecar
    with hook.collective("dp"): all_reduce()

It needs nothing but Python: no server, no package beside these files, no thread unless asked for. It never raises into
the training and writes lines from one rank. Steps are put together and written once a second at most, one line a write,
so that a killed program leaves whole lines; what is begun is written at once. A child made by fork stays silent.
What it could not write is counted in `lost` and reported by the next line that gets through.
"""

from __future__ import annotations  # trainers run on older Pythons than Foreshock

import atexit
import importlib
import json
import os
import socket
import sys
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime, timezone
from types import TracebackType
from typing import Any

# Who tells a process its rank: torchrun, Slurm, Open MPI, MPICH and Intel MPI, PMIx.
RANK_VARIABLES = ("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK")
# A file that cannot be written is tried again so much later, seconds.
_RETRY_S = 30.0
# Saves in the background whose end is awaited.
_MOST_STALLS = 64
_NEVER = float("-inf")
_HOOKS: weakref.WeakSet[TrainingHook] = weakref.WeakSet()


def _silence() -> None:
    for hook in _HOOKS:
        hook.off, hook._shared = True, None


def _write_rest() -> None:
    """The steps since the last line, where the program ends without a word."""
    for hook in _HOOKS:
        with suppress(Exception):
            hook.flush()


atexit.register(_write_rest)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_silence)


def rank_of_process() -> int:
    """This process's rank as its launcher tells it; 0 where none does."""
    fields = (os.environ.get(name, "") for name in RANK_VARIABLES)
    return next((int(text) for text in fields if text.isascii() and text.isdigit()), 0)


class TrainingHook:
    """Writes what one process of a run does. Its methods belong to the thread that trains; `saved` to any."""

    def __init__(
        self, run: str, path: str, *, rank: int | None = None, every_rank: bool = False, write_s: float = 1.0
    ) -> None:
        """Begin a start of the program.

        Args:
            run: the run's name; its restarts share it.
            path: the file, best on the node's own disk; with `every_rank` each rank writes `PATH.rankN`.
            rank: this process's; by default as the launcher tells it. Ranks beside 0 are silent, unless `every_rank`.
            every_rank: let each rank tell its steps, to find stragglers.
            write_s: steps are put together for so long, seconds.
        """
        self.off = False
        self.lost = 0  # lines that could not be written
        self._shared: Any = None  # a RankState
        self._run, self._path, self._write_s = str(run), str(path), write_s
        self._file: int | None = None
        self._torn = False
        self._retry_s = _NEVER
        self._count, self._iteration = 0, 0
        self._begin_s: float | None = None  # since when the steps that are not written lasted; None before the first
        self._end_s = self._written_s = _NEVER
        self._data_s = 0.0
        self._stalls: dict[int | None, float] = {}  # what saves in the background stalled, by iteration
        try:
            self._rank = rank_of_process() if rank is None else int(rank)
            self._node = socket.gethostname().split(".")[0]
            self.off = self._rank != 0 and not every_rank
            if every_rank and self._rank != 0:
                self._path += f".rank{self._rank}"
            _HOOKS.add(self)
            self._write("start", time.monotonic(), {"pid": os.getpid()})
        except Exception:  # noqa: BLE001 - training goes on without an account of it
            self.off = True

    def share_state(self, folder: str, thread: bool = False) -> None:
        """Let the sidecar see what this rank does now, in `FOLDER/RUN.rankN`; ranks that write no lines do it, too.

        Args:
            folder: on the node itself, best on /dev/shm; the sidecar reads it as `ranks:FOLDER`.
            thread: stamp it once a second, for a sidecar that does not see this process.
        """
        try:
            module = importlib.import_module("foreshock_hook.rank_state")
            self._shared = module.RankState(folder, self._run, self._rank, thread)
        except Exception as error:  # noqa: BLE001 - as above
            with suppress(Exception):
                print(f"foreshock: the state is not shared in {folder}: {error}; training goes on", file=sys.stderr)  # noqa: T201

    @contextmanager
    def collective(self, group: str = "default") -> Iterator[None]:
        """The rank is in a collective of a group: where it waits for the others. One that fails is never left."""
        self._share("enter", group)
        yield
        self._share("leave", group)

    def _share(self, what: str, *given: object) -> None:
        shared = self._shared
        if shared is not None:
            try:
                getattr(shared, what)(*given)
            except Exception:  # noqa: BLE001 - as above
                self._shared = None

    def step(self, iteration: int | None = None) -> None:
        """An iteration is done; without its number they are counted."""
        self._share("step", iteration)
        if self.off:
            return
        try:
            now_s = time.monotonic()
            self._count += 1
            self._iteration = self._iteration + 1 if iteration is None else iteration
            self._end_s = now_s
            if now_s - self._written_s >= self._write_s:
                self._steps()
        except Exception:  # noqa: BLE001 - as above
            self.lost += 1

    @contextmanager
    def saving(self, iteration: int | None = None, background: bool = False) -> Iterator[None]:
        """A checkpoint is saved. In the background: this is what stalls; say `saved(iteration)` once it is safe."""
        at = self._iteration if iteration is None else iteration
        began_s = self._begins("save_begin", {"iteration": at, "async": True} if background else {"iteration": at})
        try:
            yield
        except BaseException:
            self._ends("save_failed", began_s, {"iteration": at})
            raise
        if background:
            self._stalls[at] = time.monotonic() - began_s
            if len(self._stalls) > _MOST_STALLS:
                self._stalls.pop(next(iter(self._stalls)))
            self._begin_s = self._goes_on()
        else:
            self._ends("save", began_s, {"iteration": at})

    def saved(self, iteration: int | None = None) -> None:
        """A save in the background is safe now."""
        at = self._iteration if iteration is None else iteration
        stall_s = self._stalls.pop(at, None)
        fields = {} if stall_s is None else {"blocking_ms": round(stall_s * 1000, 3)}
        self._tell("save", time.monotonic(), {"iteration": at, "async": True, **fields})

    @contextmanager
    def loading(self, iteration: int | None = None) -> Iterator[None]:
        """A checkpoint is loaded; training goes on from its iteration."""
        began_s = self._begins("load_begin", {} if iteration is None else {"iteration": iteration})
        yield
        if iteration is not None:
            self._iteration = iteration
        self._ends("load", began_s, {} if iteration is None else {"iteration": iteration})

    @contextmanager
    def evaluating(self, iteration: int | None = None) -> Iterator[None]:
        """The model is evaluated."""
        at = self._iteration if iteration is None else iteration
        began_s = self._begins("eval_begin", {"iteration": at})
        yield
        self._ends("eval", began_s, {"iteration": at})

    @contextmanager
    def waiting_for_data(self) -> Iterator[None]:
        """The next batch is fetched: reported with the steps, as part of their time."""
        began_s = time.monotonic()
        yield
        self._data_s += time.monotonic() - began_s

    def phase(self, name: str) -> None:
        """A step of the startup begins: `rendezvous`, `compile` ..."""
        self._tell("phase", time.monotonic(), {"phase": str(name)[:200]})

    def flush(self) -> None:
        """Write the steps that are put together so far."""
        if not self.off:
            self._steps()

    def close(self) -> None:
        """The training has ended as planned; nothing more is written."""
        self._tell("end", time.monotonic(), {})
        self._share("end")
        self.off, self._shared = True, None
        with suppress(OSError):
            if self._file is not None:
                os.close(self._file)
        self._file = None

    def __enter__(self) -> TrainingHook:
        """The training, as a block: its end is reported, and the error that ends it."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _at: TracebackType | None
    ) -> None:
        """Tell the end."""
        if kind is None:
            self.close()
        elif getattr(error, "_foreshock_told", None) != id(self):  # a callback and the block around it may both see it
            with suppress(Exception):
                vars(error)["_foreshock_told"] = id(self)
            self._tell("error", time.monotonic(), {"error": kind.__name__, "message": str(error)[:500]})

    def _begins(self, what: str, fields: dict[str, object]) -> float:
        """Write at once that something is begun; when that was."""
        now_s = time.monotonic()
        self._share("pause")
        self._tell(what, now_s, fields)
        return now_s

    def _ends(self, what: str, began_s: float, fields: dict[str, object]) -> None:
        now_s = time.monotonic()
        self._tell(what, now_s, {**fields, "duration_ms": round((now_s - began_s) * 1000, 3)})
        self._begin_s = self._goes_on()

    def _goes_on(self) -> float | None:
        """From when the next steps count: from here, but before the first step of all that is start-up."""
        self._share("go_on")
        return None if self._begin_s is None else time.monotonic()

    def _tell(self, what: str, now_s: float, fields: dict[str, object]) -> None:
        """Write the steps so far, then this."""
        if self.off:
            return
        try:
            self._steps()
            self._write(what, now_s, fields)
        except Exception:  # noqa: BLE001 - as above
            self.lost += 1

    def _steps(self) -> None:
        """Write the steps that were not written. The first of a process has no length: it is compiled as it runs."""
        if not self._count:
            return
        count, self._count = self._count, 0
        fields: dict[str, object] = {"iteration": self._iteration, "iterations": count}
        if self._begin_s is not None:
            fields["elapsed_ms"] = round((self._end_s - self._begin_s) * 1000 / count, 6)
            if self._data_s:
                fields["data_ms"] = round(self._data_s * 1000 / count, 6)
        self._data_s, self._begin_s, self._written_s = 0.0, self._end_s, self._end_s
        self._write("step", self._end_s, fields)

    def _write(self, what: str, moment_s: float, fields: dict[str, object]) -> None:
        """One line, in one write: a reader sees it whole or not at all."""
        if self.off:
            return
        now_s, now = time.monotonic(), time.time()
        if now_s < self._retry_s:
            self.lost += 1
            return
        stamp = datetime.fromtimestamp(now - (now_s - moment_s), timezone.utc)
        lost = {"lost": self.lost} if self.lost else {}
        record = {
            "foreshock_hook": 1,
            "time": stamp.isoformat(timespec="microseconds").replace("+00:00", "Z"),
            "run": self._run,
            "what": what,
            **fields,
            **lost,
            "rank": self._rank,
            "node": self._node,
        }
        line = json.dumps(record, allow_nan=False, default=str).encode() + b"\n"
        try:
            if self._file is None:
                flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | getattr(os, "O_CLOEXEC", 0)
                self._file = os.open(self._path, flags, 0o644)
            data = b"\n" + line if self._torn else line
            self._torn = os.write(self._file, data) != len(data)
            self.lost = self.lost + 1 if self._torn else 0
        except OSError as error:
            self.lost += 1
            self._retry_s = now_s + _RETRY_S
            self._file = None
            with suppress(Exception):
                print(f"foreshock: {self._path} cannot be written: {error}; training goes on", file=sys.stderr)  # noqa: T201

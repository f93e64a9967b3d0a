"""Where pure functions run over parts: in this process, in local processes, or on a Ray cluster.

    with executor(processes=2) as run:
        found = run.map(partial(work, shared), items)     # a list, in the order of the items

What is shared goes with the function, once to each worker; items go one by one. The same function gives the same bits
wherever it runs. All of them must be picklable: functions of modules, arrays, records.
"""

import logging
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Hashable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import get_context
from typing import Any, Protocol, TypeAlias, TypeVar

Item = TypeVar("Item")
Found = TypeVar("Found")
Handle = TypeVar("Handle", bound=Hashable)
# Told after each item: how many are done, of how many.
Progress: TypeAlias = Callable[[int, int], None]
# From so many nodes on, local processes are worth their start (some three seconds of imports).
LARGE_FLEET = 500
# Items given out at once, for each worker: one that works and one that waits.
_AHEAD = 2
# What workers take longest to import: one process does it, and they begin as its copies.
_IMPORTED = ["pandas", "scipy.stats", "sklearn.ensemble", "sqlalchemy"]
# A worker may have hours of work; but none answers at all for so long only where none can be had.
PATIENCE_S = 3600.0


class ExecutorError(RuntimeError):
    """Work cannot be done where it was asked for; the message says what to do."""


class Executor(Protocol):
    """Runs a function on each item."""

    @property
    def workers(self) -> int:
        """How many items are worked on at once."""
        ...

    def map(
        self, function: Callable[[Item], Found], items: Sequence[Item], progress: Progress | None = None
    ) -> list[Found]:
        """What the function makes of each item, in their order; the first error ends it."""
        ...


@dataclass(frozen=True, slots=True)
class InProcess:
    """This process, one item after the other."""

    workers: int = 1

    def map(
        self, function: Callable[[Item], Found], items: Sequence[Item], progress: Progress | None = None
    ) -> list[Found]:
        """See Executor."""
        found = []
        for item in items:
            found.append(function(item))
            if progress is not None:
                progress(len(found), len(items))
        return found


@dataclass(frozen=True, slots=True)
class LocalProcesses:
    """Fresh local processes for each map: nothing of this process's threads and locks is inherited."""

    workers: int

    def map(
        self, function: Callable[[Item], Found], items: Sequence[Item], progress: Progress | None = None
    ) -> list[Found]:
        """See Executor."""
        if len(items) < 2:
            return InProcess().map(function, items, progress)
        size = min(self.workers, len(items))
        context = get_context("forkserver")
        context.set_forkserver_preload(_IMPORTED)
        with ProcessPoolExecutor(size, context, initializer=_keep, initargs=(function,)) as pool:

            def ready(pending: list["Future[Found]"]) -> list[tuple["Future[Found]", Found]]:
                return [(one, one.result()) for one in wait(pending, return_when=FIRST_COMPLETED).done]

            try:
                return _in_order(items, size * _AHEAD, lambda item: pool.submit(_apply, item), ready, progress)
            except BrokenProcessPool as error:
                raise ExecutorError(
                    "a worker process died, most likely for want of memory: take fewer with --processes"
                ) from error
            finally:
                pool.shutdown(wait=True, cancel_futures=True)


_function: Callable[[Any], Any] | None = None


def _keep(function: Callable[[Any], Any]) -> None:
    """In a worker: the function of all its items."""
    global _function
    _function = function


def _apply(item: Any) -> Any:
    if _function is None:
        raise ExecutorError("this worker was given no function")
    return _function(item)


def _in_order(
    items: Sequence[Item],
    ahead: int,
    submit: Callable[[Item], Handle],
    ready: Callable[[list[Handle]], list[tuple[Handle, Found]]],
    progress: Progress | None,
) -> list[Found]:
    """Results in order; only `ahead` items are given out at a time, so that not all wait in memory as bytes."""
    found: dict[int, Found] = {}
    pending: dict[Handle, int] = {}
    left = deque(enumerate(items))
    while left or pending:
        while left and len(pending) < ahead:
            number, item = left.popleft()
            pending[submit(item)] = number
        for handle, result in ready(list(pending)):
            found[pending.pop(handle)] = result
            if progress is not None:
                progress(len(found), len(items))
    return [found[number] for number in range(len(items))]


@dataclass(frozen=True, slots=True)
class RayExecutor:
    """The workers of a Ray cluster that this process is connected to."""

    ray: Any
    workers: int

    def map(
        self, function: Callable[[Item], Found], items: Sequence[Item], progress: Progress | None = None
    ) -> list[Found]:
        """See Executor."""
        shared = self.ray.put(function)
        remote = self.ray.remote(max_retries=1)(_call)

        def ready(pending: list[Any]) -> list[tuple[Any, Found]]:
            done = self.ray.wait(pending, num_returns=1, timeout=PATIENCE_S)[0]
            if not done:
                raise ExecutorError(f"no worker of the Ray cluster answered in {PATIENCE_S:.0f} s: see `ray status`")
            return [(one, self.ray.get(one)) for one in done]

        return _in_order(items, self.workers * _AHEAD, lambda item: remote.remote(shared, item), ready, progress)


def _call(function: Callable[[Item], Found], item: Item) -> Found:
    return function(item)


def suited_processes(nodes: int) -> int:
    """How many processes a fleet is worth: a small one is done before another has started."""
    return len(os.sched_getaffinity(0)) if nodes >= LARGE_FLEET else 1


@contextmanager
def executor(processes: int = 1, ray: str | None = None) -> Iterator[Executor]:
    """An executor for a while.

    Args:
        ray: the address of a Ray cluster (`HOST:PORT`, `ray://HOST:10001`, `auto`), or `local` for one of this
            machine that ends with it; it wins over `processes`.

    Raises:
        ExecutorError: Ray is not installed, or cannot be reached.
    """
    if ray is None:
        yield LocalProcesses(processes) if processes > 1 else InProcess()
        return
    with _connected(ray) as module:
        yield RayExecutor(module, max(1, int(module.cluster_resources().get("CPU", 1))))


@contextmanager
def _connected(address: str) -> Iterator[Any]:
    """Ray itself, connected; it tells nobody of its use."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    # Started by `uv run`, it would have the workers do the same, in a copy of the working directory.
    os.environ.setdefault("RAY_ENABLE_UV_RUN_RUNTIME_ENV", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # else it warns of what it will do one day
    try:
        import ray
    except ImportError as error:
        raise ExecutorError("Ray is not installed here: pip install 'foreshock[ray]', or leave --ray out") from error
    main_thread = threading.current_thread() is threading.main_thread()
    before = signal.getsignal(signal.SIGTERM)
    try:
        ray.init(
            address=address,
            include_dashboard=False if address == "local" else None,
            log_to_driver=False,
            logging_level=logging.ERROR,
            configure_logging=False,
        )
    except (ConnectionError, RuntimeError, ValueError, TimeoutError) as error:
        raise ExecutorError(f"no Ray cluster answers at {address}: {error}; start one with `ray start`") from error
    try:
        yield ray
    finally:
        ray.shutdown()
        if main_thread:  # it takes SIGTERM for itself, and keeps it
            signal.signal(signal.SIGTERM, before)

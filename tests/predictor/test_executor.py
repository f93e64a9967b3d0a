"""Work in this process and in local ones: in order, one function to each worker, errors told."""

import math
import operator
import os
import signal
import subprocess
import sys
from functools import partial

import pytest

from predictor.dataset.executor import LARGE_FLEET, Executor, ExecutorError, executor, suited_processes


@pytest.fixture(scope="module", params=[1, 2])
def processes(request: pytest.FixtureRequest) -> int:
    """How many."""
    return int(request.param)


def test_results_come_in_the_order_of_the_items(processes: int) -> None:
    """And progress is told after each."""
    told: list[tuple[int, int]] = []
    with executor(processes) as run:
        assert run.workers == processes
        assert run.map(partial(pow, 2), range(9), lambda done, of: told.append((done, of))) == [2**n for n in range(9)]
        assert run.map(math.sqrt, []) == []
        assert run.map(math.sqrt, [4.0]) == [2.0]
    assert told == [(n, 9) for n in range(1, 10)]


def test_an_error_of_the_work_is_the_callers(processes: int) -> None:
    """As if it had been done here."""
    with executor(processes) as run, pytest.raises(ZeroDivisionError):
        run.map(partial(operator.truediv, 1), [1, 0, 2])


def test_a_worker_that_dies_is_told_with_a_remedy() -> None:
    """Most likely the kernel took it for its memory."""
    with executor(2) as run, pytest.raises(ExecutorError, match="--processes"):
        run.map(signal.raise_signal, [signal.SIGKILL, signal.SIGKILL])


def test_processes_are_others_than_this_one() -> None:
    """What they do is not done here."""
    with executor(2) as run:
        assert str(os.getpid()) not in run.map(os.readlink, ["/proc/self", "/proc/self"])


def test_a_small_fleet_is_not_worth_processes() -> None:
    """They take longer to start than it takes."""
    assert suited_processes(LARGE_FLEET - 1) == 1
    assert suited_processes(LARGE_FLEET) == len(os.sched_getaffinity(0))


def test_without_ray_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray is imported only where it is asked for."""
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ExecutorError, match=r"foreshock\[ray\]"), executor(ray="local"):
        pass


def test_the_predictor_does_not_load_ray() -> None:
    """Nor do workers of local processes."""
    code = "import sys, predictor.evaluate.backtest, predictor.live.training; assert 'ray' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_an_executor_is_one(processes: int) -> None:
    """What is yielded keeps to the protocol."""
    with executor(processes) as run:
        asked: Executor = run
        assert asked.map(str, [1]) == ["1"]

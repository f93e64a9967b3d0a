"""Where a command's work is done: `--processes` and `--ray`."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import click
import sqlalchemy as sa

from cli.errors import Failure
from predictor.executor import Executor, ExecutorError, executor, suited
from store import schema


def worker_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """`--processes` and `--ray`, as arguments `processes` and `ray`."""
    processes = click.option(
        "--processes", type=click.IntRange(1, 256), help="Local processes [default: one a core, one for a small fleet]."
    )
    ray = click.option(
        "--ray", metavar="ADDRESS", help="Work on this Ray cluster instead (HOST:PORT, auto), or on a `local` one."
    )
    return processes(ray(command))


@contextmanager
def workers(engine: sa.Engine, processes: int | None, ray: str | None) -> Iterator[Executor]:
    """What runs the work on a store; every way to fail as a command fails."""
    if processes is None and ray is None:
        with engine.connect() as connection:
            processes = suited(connection.scalar(sa.select(sa.func.count()).select_from(schema.nodes)) or 0)
    try:
        with executor(processes or 1, ray) as run:
            yield run
    except ExecutorError as error:
        raise Failure(str(error)) from error

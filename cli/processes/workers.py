"""Where a command's work is done: `--processes` and `--ray`."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from cli.console.errors import Failure
from cli.processes.children import end_with_parent
from predictor.dataset.executor import Executor, ExecutorError, executor, suited_processes

if TYPE_CHECKING:
    import sqlalchemy as sa

# A command that a server runs beside itself: it gives way to others, and ends when the server does.

BACKGROUND_OPTION = click.option(
    "--background",
    type=(click.IntRange(0, 19), click.IntRange(1)),
    metavar="NICE PARENT",
    hidden=True,
    help="Give way so far to others, and end with the parent of this process id.",
)


def give_way(nice: int, parent: int) -> str:
    """Take a smaller share of the processor, and have the kernel end this process with its parent; whom it is for.

    What PostgreSQL does for it has no such share: one of its processes has to do, and none beside that.
    """
    os.nice(nice)
    os.environ["PGOPTIONS"] = f"{os.environ.get('PGOPTIONS', '')} -c max_parallel_workers_per_gather=0"
    end_with_parent()
    if os.getppid() != parent:  # it was gone before
        sys.exit(1)
    return "server"


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
    import sqlalchemy as sa

    from store.tables import schema

    if processes is None and ray is None:
        with engine.connect() as connection:
            processes = suited_processes(connection.scalar(sa.select(sa.func.count()).select_from(schema.nodes)) or 0)
    try:
        with executor(processes or 1, ray) as run:
            yield run
    except ExecutorError as error:
        raise Failure(str(error)) from error

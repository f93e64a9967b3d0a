"""A long run's ledger made in a process of its own: seconds of arithmetic would hold up every request of this one.

store_apart(engine.url, "llm-70b", now, keep_on)
"""

import multiprocessing
import os
from collections.abc import Callable
from datetime import datetime

import sqlalchemy as sa

from goodput.stored.making import keep, make, snapshot
from store.database import open_database, writing

_NICE = 10
_LOOK_S = 0.5


class ApartError(RuntimeError):
    """The process ended without having stored the ledger; its own words are on standard error."""


def store_apart(url: sa.URL, run: str, now: datetime, keep_on: Callable[[], bool], anew: bool = False) -> None:
    """Compute and store a run's ledger, and wait until that is done or nobody wants it any more.

    Raises:
        ApartError: it could not be done.
    """
    given = (url.render_as_string(hide_password=False), run, now, anew)
    process = multiprocessing.get_context("spawn").Process(target=_store, args=given, daemon=True)
    process.start()
    while process.is_alive():
        if not keep_on():
            process.terminate()
            process.join()
            return
        process.join(_LOOK_S)
    if process.exitcode != 0:
        raise ApartError(f"the process that computes the ledger of run {run!r} ended with {process.exitcode}")


def _store(url: str, run: str, now: datetime, anew: bool) -> None:
    os.nice(_NICE)
    engine = open_database(url)
    with snapshot(engine) as connection:
        made = make(connection, run, now, anew=anew)
    if made is not None:
        with writing(engine).begin() as connection:
            keep(connection, made)
    engine.dispose()

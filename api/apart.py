"""An answer that takes seconds of arithmetic, made in a process of its own: here it would hold up every request.

body = made_apart(listed, engine.url, now)

As `goodput/stored/apart.py` does it for the ledgers of long runs.
"""

import multiprocessing
import os
from collections.abc import Callable
from datetime import datetime
from multiprocessing.connection import Connection

import sqlalchemy as sa

from store.database import open_database

_NICE = 10
Make = Callable[[sa.Connection, datetime], bytes]


class ApartError(RuntimeError):
    """The process ended without an answer; its own words are on standard error."""


def made_apart(make: Make, url: sa.URL, now: datetime) -> bytes:
    """What a function of a module makes of the database of a URL, as of a moment.

    The process ends with this one.

    Raises:
        ApartError: it made nothing.
    """
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    given = (sender, make, url.render_as_string(hide_password=False), now)
    process = context.Process(target=_send, args=given, daemon=True)
    process.start()
    sender.close()  # so that the end of the process is the end of what comes
    try:
        return receiver.recv_bytes()
    except EOFError:
        raise ApartError(f"the process that was to make {make.__name__!r} ended without it") from None
    finally:
        receiver.close()
        process.join()


def _send(sender: Connection, make: Make, url: str, now: datetime) -> None:
    os.nice(_NICE)
    engine = open_database(url)
    try:
        with engine.connect() as connection:
            sender.send_bytes(make(connection, now))
    finally:
        engine.dispose()
        sender.close()

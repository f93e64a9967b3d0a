"""What can be wrong with the file or the disk of a database: damage, found at the start; a disk that is full, at once.

why = damage(engine, limit_s=10.0)     # SQLite's own check, cut off after so long; None: nothing was found
disk = DiskWatch(engine)
disk.problem()                         # "12 MB are left on the disk of /var/lib/foreshock: ..."; None: it has room
"""

import shutil
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.exc import DatabaseError as SqlError

# Less than that, and a transaction of SQLite's log may find no room.
LEAST_FREE_BYTES = 64 * 1024 * 1024
# A write that found the disk full counts for so long: readiness comes back by itself, and goes with the next one.
_FULL_S = 30.0
_MB = 1_000_000
_STEPS = 100_000  # of SQLite's machine between two looks at the clock
_DISK_FULL = "53100"  # PostgreSQL's
_DAMAGED = ("malformed", "not a database", "corrupt")


def damage(engine: sa.Engine, limit_s: float) -> str | None:
    """What SQLite's quick_check finds wrong with a file; None where it finds nothing in time, and on PostgreSQL.

    It reads the whole file: a large one is looked at for as long as there is time, and for damage at its head always.
    """
    if engine.dialect.name != "sqlite":
        return None
    deadline = time.monotonic() + limit_s
    try:
        with engine.connect() as connection:
            driver: Any = connection.connection.driver_connection
            driver.set_progress_handler(lambda: time.monotonic() > deadline, _STEPS)
            try:
                found = driver.execute("PRAGMA quick_check(1)").fetchone()
            finally:
                driver.set_progress_handler(None, 0)
    except (SqlError, sqlite3.DatabaseError) as error:
        why = str(getattr(error, "orig", error))
        if "interrupted" in why:
            return None
        if is_damage(error):
            return why
        raise
    return None if found is None or found[0] == "ok" else " ".join(str(found[0]).split())


def remedy(error: BaseException) -> str | None:
    """What an operator does about a file that SQLite finds damaged or may not use; None of any other error."""
    why = str(getattr(error, "orig", error))
    if "unable to open database file" in why:
        return (
            "the SQLite file cannot be opened: run this as the user whom the file and its folder belong to, or correct "
            "--db"
        )
    if "readonly database" in why:
        return (
            f"the SQLite file cannot be written: {why}: run this as the user whom the file and its folder belong to "
            "(reading, too, writes a lock beside it), or give a copy of your own"
        )
    return remedy_of(why) if is_damage(error) else None


def remedy_of(why: str) -> str:
    """What an operator does about a damaged file, or about one that never was a database."""
    other = "correct --db where it never was one; else " if "not a database" in why else ""
    return (
        f"the SQLite file is damaged: {why}: {other}stop what uses it, keep a copy, then put a backup in its place, "
        "or what `sqlite3 FILE .recover | sqlite3 NEW` saves of it"
    )


def is_damage(error: BaseException) -> bool:
    """Whether an error says that the file is not, or no longer, a database."""
    why = str(getattr(error, "orig", error))
    return any(word in why for word in _DAMAGED)


def file_of(engine: sa.Engine) -> Path | None:
    """The file of an SQLite database; None for one in memory, and on PostgreSQL."""
    name = engine.url.database if engine.dialect.name == "sqlite" else None
    return None if not name or name == ":memory:" or name.startswith("file:") else Path(name)


class DiskWatch:
    """Whether the database can still store: the room beside its file, and what its own writes met lately."""

    def __init__(self, engine: sa.Engine, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._file = file_of(engine)
        self._monotonic = monotonic
        self._full: tuple[float, str] | None = None
        sa.event.listen(engine, "handle_error", self._note)

    def free_bytes(self) -> int | None:
        """What is left on the disk of an SQLite file; None where nobody can tell from here."""
        try:
            return None if self._file is None else shutil.disk_usage(self._file.parent).free
        except OSError:
            return None

    def problem(self) -> str | None:
        """Why nothing more can be stored, and the remedy; None while there is room."""
        free = self.free_bytes()
        if free is not None and free < LEAST_FREE_BYTES:
            return (
                f"{free // _MB} MB are left on the disk of {self._file}, {LEAST_FREE_BYTES // _MB} MB are the least: "
                "make room (foreshock db prune, or a larger disk)"
            )
        full = self._full
        if full is None or self._monotonic() - full[0] > _FULL_S:
            return None
        return f"the database's disk is full ({full[1]}): make room there"

    def _note(self, context: Any) -> None:
        error = context.original_exception
        is_full = isinstance(error, sqlite3.Error) and getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_FULL
        if is_full or getattr(error, "sqlstate", None) == _DISK_FULL:
            self._full = self._monotonic(), " ".join(str(error).split())[:200]

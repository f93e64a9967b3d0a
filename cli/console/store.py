"""Opening the database that a command names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cli.console.errors import Failure

if TYPE_CHECKING:
    import sqlalchemy as sa
    from sqlalchemy.exc import SQLAlchemyError


def open_store(url: str, create: bool = False) -> sa.Engine:
    """The database of a URL, its schema up to date. `create` makes or migrates one; without it one must exist.

    Raises:
        Failure: it cannot be opened, or its schema is not this program's.
    """
    from sqlalchemy.exc import SQLAlchemyError

    from store.database.connections import DatabaseError, migrate, newest_revision, open_database, revision

    try:
        engine = open_database(url)
        if create:
            migrate(engine)
        at, newest = revision(engine), newest_revision()
    except DatabaseError as error:
        raise Failure(str(error)) from error
    except SQLAlchemyError as error:
        raise Failure(f"cannot open {shown(url)}: {said(error)}") from error
    if at != newest:
        raise Failure(
            f"the schema of {shown(url)} is at {at or 'nothing'}, this program needs {newest}: "
            f"run `foreshock db migrate --db {shown(url)}`"
        )
    return engine


def shown(url: str) -> str:
    """A URL as it may be printed: without its password."""
    import sqlalchemy as sa

    return sa.make_url(url).render_as_string(hide_password=True)


def said(error: SQLAlchemyError) -> str:
    """What a database said, on one line."""
    return " ".join(str(error.args[0] if error.args else error).split())

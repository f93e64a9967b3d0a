"""Opening the database that a command names."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, TypeVar

from cli.console.errors import Failure

if TYPE_CHECKING:
    from collections.abc import Callable

    import sqlalchemy as sa
    from sqlalchemy.exc import SQLAlchemyError

T = TypeVar("T")

# A file that is so large that it takes longer is looked at as far as that: a server shall be back soon.
_CHECK_S = 5.0


def open_store(url: str, create: bool = False) -> sa.Engine:
    """The database of a URL, its schema up to date. `create` makes or migrates one; without it one must exist.

    Raises:
        Failure: it cannot be opened, or its schema is not this program's.
    """
    from sqlalchemy.exc import SQLAlchemyError

    from store.database.connections import DatabaseError, migrate, newest_revision, open_database, revision, too_new
    from store.database.integrity import damage, remedy, remedy_of

    try:
        engine = open_database(url, create)
        if create:
            if (why := damage(engine, _CHECK_S)) is not None:
                raise Failure(f"cannot open {shown(url)}: {remedy_of(why)}")
            migrate(engine)
        at, newest = revision(engine), newest_revision()
    except DatabaseError as error:
        raise Failure(str(error)) from error
    except SQLAlchemyError as error:
        raise Failure(f"cannot open {shown(url)}: {remedy(error) or said(error)}") from error
    if (newer := too_new(at)) is not None:
        raise Failure(newer)
    if at != newest:
        raise Failure(
            f"the schema of {shown(url)} is at {at or 'nothing'}, this program needs {newest}: "
            f"run `foreshock db migrate --db {shown(url)}`"
        )
    return engine


def change_store(url: str, change: Callable[[sa.Connection, datetime], T], refusal: type[Exception]) -> T:
    """What `change` gives, in one transaction, of the present moment.

    Raises:
        Failure: as of `open_store`; or the words of a `refusal`, and nothing is changed.
    """
    from store.database.connections import writing

    engine = open_store(url)
    try:
        with writing(engine).begin() as connection:
            return change(connection, datetime.now(UTC))
    except refusal as error:
        raise Failure(str(error)) from error
    finally:
        engine.dispose()


def shown(url: str) -> str:
    """A URL as it may be printed: without its password."""
    from store.database.connections import masked

    return masked(url)


def said(error: SQLAlchemyError) -> str:
    """What a database said, on one line."""
    return " ".join(str(error.args[0] if error.args else error).split())

"""Marks: numbers that only grow, by which other processes see at the cost of one small read that there is news.

bump(connection, FAULTS)      # in the transaction that makes the news
read_marks(connection)        # {"faults": 7, "hints": 3}
"""

from collections.abc import Mapping

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from store import schema

FAULTS = "faults"  # grave incidents are new or have grown
HINTS = "hints"  # a person, or what a person set, has changed what is to be asked of schedulers
_TABLE = schema.marks


def bump(connection: sa.Connection, name: str) -> None:
    """Move a mark on; whoever else moves it waits for the end of this transaction, so call it late."""
    dialect = postgresql if connection.dialect.name == "postgresql" else sqlite
    statement = dialect.insert(_TABLE).values(name=name, number=1)
    grown = statement.on_conflict_do_update(index_elements=["name"], set_={"number": _TABLE.c.number + 1})
    connection.execute(grown)


def read_marks(connection: sa.Connection) -> Mapping[str, int]:
    """Every mark that was ever moved."""
    return {row.name: row.number for row in connection.execute(sa.select(_TABLE.c.name, _TABLE.c.number))}

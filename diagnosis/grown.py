"""Incidents that only count on: their rows are changed where they stand, but for what an incident keeps as it grows.

grow(connection, [incident])
"""

from collections.abc import Sequence
from operator import attrgetter
from typing import Any

import msgspec
import orjson
import sqlalchemy as sa

from store.bulk_rows import bound
from store.incident import Incident

# Each with its type on PostgreSQL. The id is the first event's, so the start stays with it; the heads stay by premise.
_TYPES = {
    "end": "timestamptz",
    "kind": "text",
    "code": "bigint",
    "severity": "text",
    "cause": "text",
    "action": "text",
    "device": "json",
    "message": "text",
    "count": "bigint",
    "kinds": "json",
    "blast_radius": "integer",
    "source": "text",
    "name": "text",
}
_fields = attrgetter(*_TYPES)
_SET = ", ".join(f'"{name}" = grown."{name}"' for name in _TYPES)
_GROWN = ", ".join(f'"{name}" {kind}' for name, kind in _TYPES.items())
_POSTGRESQL = (
    f"UPDATE incidents SET {_SET} FROM json_to_recordset(%s::json) AS grown (id text, {_GROWN})"  # noqa: S608  # our own names
    " WHERE incidents.id = grown.id"
)
_MARKS = ", ".join(f'"{name}" = ?' for name in _TYPES)
_SQLITE = f"UPDATE incidents SET {_MARKS} WHERE id = ?"  # noqa: S608


def grow(connection: sa.Connection, incidents: Sequence[Incident]) -> None:
    """Change the rows of incidents that are stored under the same id, with the same start, node and heads."""
    if not incidents:
        return
    if connection.dialect.name == "postgresql":
        connection.exec_driver_sql(_POSTGRESQL, (msgspec.json.encode(incidents).decode(),))
        return
    connection.exec_driver_sql(_SQLITE, [_row(incident) for incident in incidents])


def _row(incident: Incident) -> tuple[Any, ...]:
    named = zip(_TYPES, _fields(incident), strict=True)
    values = [orjson.dumps(value).decode() if _TYPES[name] == "json" else bound(value) for name, value in named]
    return (*values, incident.id)

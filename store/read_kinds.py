"""How the events of a time were judged, counted."""

from datetime import datetime

import sqlalchemy as sa

from store import schema
from store.event import Event

_EVENTS = schema.events


def judgements_since(connection: sa.Connection, since: datetime) -> list[tuple[Event, int]]:
    """Each kind, code and judgement of the events since a moment, as an event without time and place, and how many."""
    columns = (_EVENTS.c.kind, _EVENTS.c.code, _EVENTS.c.severity, _EVENTS.c.cause, _EVENTS.c.action)
    query = sa.select(*columns, sa.func.count()).where(_EVENTS.c.time >= since).group_by(*columns)
    return [
        (Event(None, None, "", kind, code, severity, cause, action), count)
        for kind, code, severity, cause, action, count in connection.execute(query)
    ]

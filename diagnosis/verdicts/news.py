"""Which of the events that come in are put before the engine, and which it reads again after a restart."""

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta

import sqlalchemy as sa

from diagnosis.symptoms.meaning import NOTHING, kinds_that_matter, meaning_of
from store.events.event_pages import event_of
from store.records.event import Event
from store.tables import schema
from store.verdicts.symptom_news import add_news

# Older events change no verdict that stands: an archive of last month is explained when somebody asks.
REACH = timedelta(hours=24)
# Events that are read again after a restart, the newest.
_MOST = 200_000
_EVENTS = schema.events


def put_symptoms(connection: sa.Connection, events: Sequence[Event], received: datetime) -> None:
    """Keep those of new events that may be symptoms, or cure one, for the engine."""
    since = received - REACH
    found = [event for event in events if event.time is not None and event.time >= since and _matters(event)]
    add_news(connection, found, received)


def recent_symptom_events(connection: sa.Connection, since: datetime) -> Iterator[Event]:
    """The stored ones of a time, newest first; a bounded number."""
    matters = sa.or_(_EVENTS.c.severity != "info", _EVENTS.c.kind.in_(kinds_that_matter()))
    query = sa.select(_EVENTS).where(_EVENTS.c.time >= since, matters).order_by(_EVENTS.c.time.desc()).limit(_MOST)
    with connection.execute(query.execution_options(yield_per=5_000)) as rows:
        for row in rows:
            event = event_of(row)
            if _matters(event):
                yield event


def _matters(event: Event) -> bool:
    return meaning_of(event) is not NOTHING

"""Which of the events that come in are put before the engine, and which it reads again after a restart."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import sqlalchemy as sa

from diagnosis.hangs.stuck_ranks import TELLING, WORK
from diagnosis.symptoms.meaning import NAMES, NOTHING, kinds_that_matter, lines_of, meaning_of
from store.events.event_pages import event_of
from store.records.event import Event
from store.tables import schema
from store.verdicts.symptom_news import add_news

# Older events change no verdict that stands: an archive of last month is explained when somebody asks.
REACH = timedelta(hours=24)
# Events that are read again after a restart, the newest.
_MOST = 200_000
# Fewer are no storm; of the same, two are kept anyway.
_FEW, _SEVERAL = 16, 3
_NEVER = datetime.min.replace(tzinfo=UTC)
_EVENTS = schema.events


def put_symptoms(connection: sa.Connection, events: Sequence[Event], received: datetime) -> None:
    """Keep those of new events that may be symptoms, or cure one, for the engine."""
    since = received - REACH
    dated = [event for event in events if event.time is not None and event.time >= since]
    found = without_repeats([event for event in dated if _matters(event)])
    add_news(connection, found + _newest_work(dated), received)


def _newest_work(events: Sequence[Event]) -> list[Event]:
    """Of each run the newest iteration: a job that works on waits for nobody, and one line says so as well as all."""
    newest: dict[str | None, Event] = {}
    for event in events:
        known = newest.get(event.run())
        if event.kind == WORK and (known is None or (event.time or _NEVER) >= (known.time or _NEVER)):
            newest[event.run()] = event
    return list(newest.values())


def without_repeats(events: Sequence[Event]) -> list[Event]:
    """Of lines that say the very same of the same device: the first and the last, the first with how many `repeats`.

    A storm is one line a thousand times. What a program's ranks say is left whole, and so is all around a cure.
    """
    if len(events) < _FEW:
        return list(events)
    found: list[Event] = []
    alike: dict[object, list[Event]] = {}
    for event in events:
        if meaning_of(event).cures:
            found += _put_together(alike)
            alike = {}
            found.append(event)
        elif event.run() is not None:
            found.append(event)
        else:
            where = (event.node, event.source, event.kind, event.code, event.severity, event.device)
            alike.setdefault((where, tuple(sorted(event.attributes.items()))), []).append(event)
    return found + _put_together(alike)


def _put_together(alike: Mapping[object, list[Event]]) -> list[Event]:
    found = []
    for events in alike.values():
        if len(events) < _SEVERAL:
            found += events
            continue
        ordered = sorted(events, key=lambda event: (event.time or _NEVER, event.id or ""))
        repeats = {"repeats": sum(lines_of(event) for event in ordered[:-1]) - 1}
        found += [replace(ordered[0], attributes={**ordered[0].attributes, **repeats}), ordered[-1]]
    return found


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
    return event.kind in TELLING or event.kind in NAMES or meaning_of(event) is not NOTHING

"""Pages of incidents since a moment, held against the plain rule: those whose last sign is not before it."""

from datetime import datetime, timedelta

import sqlalchemy as sa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from store.database.connections import writing
from store.events.event_pages import EventWindow, incident_page
from store.tables import schema
from store.tables.pages import moment_of

NOON = datetime.fromisoformat("2025-03-01T12:00:00+00:00")
DEVICE = {"type": "gpu", "pci": None, "index": None, "uuid": None, "port": None}
minutes = st.sampled_from((-300, -61, -60, -59, -1, 0, 1, 30))
lengths = st.sampled_from((0, 1, 59, 60, 61, 240))


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(
    st.lists(st.tuples(minutes, lengths, st.sampled_from(("fatal", "error"))), max_size=10),
    minutes,
    st.one_of(st.none(), minutes),
    st.integers(1, 4),
)
def test_what_showed_since_a_moment_is_listed_once_by_its_start(
    any_engine: sa.Engine, drawn: list[tuple[int, int, str]], since: int, until: int | None, limit: int
) -> None:
    """Short and long ones that began before it, and all later ones; page after page, onward and from the end."""
    rows = [
        {"id": f"i{place}", "node": "n", "kind": "xid", "severity": severity, "cause": "hardware", "action": "none"}
        | {"start": at(start), "end": at(start + length), "device": DEVICE, "message": "", "count": 1, "kinds": {}}
        for place, (start, length, severity) in enumerate(drawn)
    ]
    for severity in (None, "fatal"):
        expected = sorted(
            (start, f"i{place}")
            for place, (start, length, grave) in enumerate(drawn)
            if start + length >= since and (until is None or start < until) and severity in (None, grave)
        )
        with writing(any_engine).begin() as connection:
            connection.execute(sa.delete(schema.incidents))
            if rows:
                connection.execute(sa.insert(schema.incidents), rows)
            for newest in (False, True):
                found: list[str] = []
                mark = None
                for _ in range(len(rows) + 1):
                    window = EventWindow(at(since), None if until is None else at(until), after=mark)
                    page = incident_page(connection, window, severity, limit, newest)
                    found = [*(row["id"] for row in page), *found] if newest else [*found, *(row["id"] for row in page)]
                    if len(page) < limit:
                        break
                    edge = page[0] if newest else page[-1]
                    mark = (moment_of(edge, "start"), edge["id"])
                assert found == [ident for _start, ident in expected]


def at(minute: int) -> datetime:
    """A moment by its minute from noon."""
    return NOON + timedelta(minutes=minute)

"""Which rules were in force when."""

from datetime import UTC, datetime, timedelta

import sqlalchemy as sa

from store.events.append import append_events
from store.events.event_pages import judgements_since
from store.hints.policy_history import note_rules, rules_page
from store.records.event import Event

NOW = datetime(2026, 3, 1, tzinfo=UTC)


def test_only_a_change_is_written_down_and_a_return_is_one(any_engine: sa.Engine) -> None:
    """The newest first."""
    with any_engine.begin() as connection:
        noted = [note_rules(connection, name, f"text {name}", NOW) for name in ("a", "a", "b", "a")]
        rows = rules_page(connection, 10)
        older = rules_page(connection, 1, before=rows[0]["seq"])
    assert noted == [True, False, True, True]
    assert [row["version"] for row in rows] == ["a", "b", "a"]
    assert [(row["version"], row["text"], row["time"]) for row in older] == [("b", "text b", NOW)]


def test_events_are_counted_by_how_they_were_judged(any_engine: sa.Engine) -> None:
    """Those before the moment are left out."""
    events = [
        Event(NOW + timedelta(hours=hour), f"n{hour}", "kernel", "xid", 79, "fatal", "hardware", "reboot_node")
        for hour in (-1, 1, 2)
    ]
    with any_engine.begin() as connection:
        append_events(connection, events, received=NOW + timedelta(days=1))
        ((event, count),) = judgements_since(connection, NOW)
    assert (event.kind, event.code, event.severity, event.cause, event.action, count) == (
        "xid",
        79,
        "fatal",
        "hardware",
        "reboot_node",
        2,
    )

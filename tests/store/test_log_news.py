"""News of what came late: faults and outages that may change what is known of a stop long ago."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
import sqlalchemy as sa

from store.database.connections import writing
from store.events.append import append_events, append_outages
from store.events.ledger_intake import LATE, LateReport, read_late, read_news, remove_news
from store.records.event import Event
from store.records.outage import Outage

NOW = datetime(2025, 3, 1, tzinfo=UTC)
LONG_AGO = NOW - LATE - timedelta(seconds=1)
DOWN = Outage("gpu-1", LONG_AGO, None, "DOWN", "", None, False, "host")


def take(engine: sa.Engine, *outages: Outage) -> datetime | None:
    """Append outages; since when they say that something came late."""
    with writing(engine).begin() as connection:
        append_outages(connection, outages, NOW)
        seqs, late = read_late(connection)
        remove_news(connection, seqs)
    return min((one.since for one in late), default=None)


def test_an_outage_that_comes_late_is_news(any_engine: sa.Engine) -> None:
    """The earliest of several; one that has just begun finds the ledgers unsettled."""
    earlier = replace(DOWN, node="gpu-2", start=LONG_AGO - timedelta(days=1))
    assert take(any_engine, replace(DOWN, start=NOW - LATE)) is None
    assert take(any_engine, DOWN, earlier) == earlier.start
    assert take(any_engine) is None


@pytest.mark.parametrize(
    ("before", "after", "news"),
    [
        (DOWN, DOWN, False),
        (DOWN, replace(DOWN, end=NOW), False),
        (DOWN, replace(DOWN, cause="hardware"), True),
        (DOWN, replace(DOWN, planned=True), True),
        (replace(DOWN, planned=True), DOWN, True),
        (replace(DOWN, planned=True), replace(DOWN, planned=True, cause="hardware"), False),
        (replace(DOWN, node="gpu-2"), DOWN, True),
        (None, replace(DOWN, planned=True), False),
    ],
)
def test_only_what_may_change_who_is_blamed_is_news(
    engine: sa.Engine, before: Outage | None, after: Outage, news: bool
) -> None:
    """Whoever polls sends the same outages again and again, and each one's end comes late."""
    take(engine, *([] if before is None else [before]))
    assert (take(engine, after) is not None) is news


def test_an_outage_that_comes_as_an_event_is_news_once(any_engine: sa.Engine) -> None:
    """Its record is news, the event is not; its end, an event of its own, says nothing new."""
    told = {"start": "2025-02-01T00:00:00Z", "state": "DOWN", "reason": "Not responding"}
    began = datetime(2025, 2, 1, tzinfo=UTC)
    found = []
    for attributes in (told, {**told, "end": "2025-02-01T01:00:00Z"}):
        with writing(any_engine).begin() as connection:
            event = Event(began, "gpu-1", "sacctmgr", "outage", severity="error", attributes=attributes)
            assert append_events(connection, [event], NOW).known == 0
            seqs, late = read_late(connection)
            remove_news(connection, seqs)
            found.append((len(seqs), late))
    assert found == [(1, [LateReport("gpu-1", began, began)]), (0, [])]


def test_rows_that_are_known_are_left_out(any_engine: sa.Engine) -> None:
    """What is under way is not looked at again."""
    with writing(any_engine).begin() as connection:
        append_outages(connection, [DOWN], NOW)
        (first,), _ = read_late(connection)
        append_outages(connection, [replace(DOWN, node="gpu-2", start=LONG_AGO - timedelta(days=1))], NOW)
        seqs, late = read_late(connection, [first])
    assert first not in seqs
    before = LONG_AGO - timedelta(days=1)
    assert (len(seqs), late) == (1, [LateReport("gpu-2", before, before)])


def test_what_came_late_is_told_by_node(any_engine: sa.Engine) -> None:
    """From the first to the last of each; an event without a node is nobody's fault, one that is timely no news."""
    moments = [("gpu-1", LONG_AGO), ("gpu-2", LONG_AGO), ("gpu-1", LONG_AGO - LATE), (None, LONG_AGO), ("gpu-3", NOW)]
    with writing(any_engine).begin() as connection:
        faults = [Event(at, node, "kernel", "xid", code=79, severity="fatal", cause="hardware") for node, at in moments]
        append_events(connection, faults, NOW)
        _seqs, late = read_late(connection)
    assert sorted(late, key=lambda one: one.node or "") == [
        LateReport("gpu-1", LONG_AGO - LATE, LONG_AGO),
        LateReport("gpu-2", LONG_AGO, LONG_AGO),
    ]


def test_news_of_several_runs_are_read_at_once(any_engine: sa.Engine) -> None:
    """Each run's own, in the order in which they came."""
    with writing(any_engine).begin() as connection:
        for number, run in enumerate("abba"):
            line = Event(NOW, None, "training", "iteration", attributes={"run": run, "iteration": number})
            append_events(connection, [line], NOW)
        found = read_news(connection, ["a", "c", "b"])
    numbers = {run: [told[3]["iteration"] for one in news for told in one.lines or ()] for run, news in found.items()}
    assert numbers == {"a": [0, 3], "b": [1, 2]}

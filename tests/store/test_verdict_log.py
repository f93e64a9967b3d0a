"""Verdicts as they are stored: what stands, what stood, whom they name, and each change in its order."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import sqlalchemy as sa

from store.database.connections import writing
from store.database.retention import prune
from store.records.event import Device, Event
from store.records.verdict import Verdict, VerdictEvidence
from store.tables import verdict_tables
from store.verdicts.symptom_news import add_news, count_news, oldest_news, remove_news
from store.verdicts.verdict_log import (
    VerdictChange,
    VerdictWindow,
    closed,
    newest_seq,
    open_verdicts,
    revisions_after,
    revisions_of,
    save_changes,
    standing_ranks,
    stored_verdict,
    verdict,
    verdict_page,
    verdicts_between,
)

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
LEAF = Verdict(
    cause_class="switch",
    name="leaf004",
    probability=0.93,
    cause="fabric",
    action="run_diagnostics",
    since=NOW,
    reason="8 of its 8 nodes lost a rail",
    device=Device("switch", uuid="0xb83fd203001000c0"),
    names=("leaf004", "0xb83fd203001000c0"),
    nodes=("gpu-001", "gpu-002"),
    victims=("gpu-001", "gpu-002"),
    jobs=("llm-70b",),
    evidence_for=(VerdictEvidence("8 of 8", ("e1",), 3.5),),
    id="v1",
)
GPU = replace(
    LEAF, cause_class="gpu", name="gpu-009", probability=0.5, nodes=("gpu-009",), jobs=(), victims=(), id="v2"
)


def save(engine: sa.Engine, *changes: VerdictChange, now: datetime = NOW) -> None:
    """Write changes in a transaction of their own."""
    with writing(engine).begin() as connection:
        save_changes(connection, changes, now)


def test_a_verdict_comes_back_as_it_was_written_the_likeliest_first(any_engine: sa.Engine) -> None:
    """Evidence, device and all."""
    save(any_engine, VerdictChange(GPU, "opened"), VerdictChange(LEAF, "opened"))
    with any_engine.connect() as connection:
        assert open_verdicts(connection) == [LEAF, GPU]
        assert verdict(connection, "v1") == LEAF
        assert verdict(connection, "v9") is None
        assert standing_ranks(connection) == {"v1": 1, "v2": 2}


def test_a_change_takes_the_place_of_the_verdict_and_is_kept(any_engine: sa.Engine) -> None:
    """`opened` stays, `changed` moves on, and a verdict that ended says why."""
    save(any_engine, VerdictChange(LEAF, "opened"))
    revised = replace(LEAF, state="revised", revision=1, probability=0.99, nodes=("gpu-002", "gpu-003"), victims=())
    save(any_engine, VerdictChange(revised, "a third node", LEAF), now=NOW + timedelta(minutes=1))
    ended = closed(revised)
    save(any_engine, VerdictChange(ended, "its links are up again", revised), now=NOW + timedelta(minutes=2))
    with any_engine.connect() as connection:
        assert open_verdicts(connection) == []
        found = stored_verdict(connection, "v1")
        assert found is not None
        assert (found.opened, found.ended, found.why) == (NOW, NOW + timedelta(minutes=2), "its links are up again")
        assert [(one.what, one.verdict) for one in revisions_of(connection, "v1")] == [
            ("opened", LEAF),
            ("a third node", revised),
            ("its links are up again", ended),
        ]
        assert [one.id for one in verdicts_between(connection, NOW, NOW + timedelta(hours=1))] == ["v1"]
        assert verdicts_between(connection, NOW + timedelta(minutes=3), NOW + timedelta(hours=1)) == []
        assert verdicts_between(connection, NOW, NOW + timedelta(hours=1), node="gpu-001") == []
        assert len(verdicts_between(connection, NOW, NOW + timedelta(hours=1), node="gpu-003", run="llm-70b")) == 1


def test_who_listens_reads_on_from_the_number_it_has(any_engine: sa.Engine) -> None:
    """Numbers only grow, over prunes too."""
    save(any_engine, VerdictChange(LEAF, "opened"))
    with any_engine.connect() as connection:
        first = newest_seq(connection)
    save(any_engine, VerdictChange(GPU, "opened"), VerdictChange(closed(LEAF), "cured", LEAF))
    with any_engine.connect() as connection:
        after = revisions_after(connection, first, 10)
        assert [(one.verdict.id, one.verdict.state) for one in after] == [("v2", "open"), ("v1", "closed")]
        assert revisions_after(connection, after[-1].seq, 10) == []
    with any_engine.begin() as connection:
        connection.execute(sa.delete(verdict_tables.verdict_revisions))
    save(any_engine, VerdictChange(closed(GPU), "cured", GPU))
    with any_engine.connect() as connection:
        assert revisions_after(connection, after[-1].seq, 10)[0].seq > after[-1].seq


def test_pages_follow_each_other_and_filters_hold(any_engine: sa.Engine) -> None:
    """By class, node, run, state and time."""
    made = [replace(GPU, id=f"n{n}", since=NOW + timedelta(seconds=n), nodes=(f"gpu-{n}",)) for n in range(5)]
    save(any_engine, *(VerdictChange(one, "opened") for one in made), VerdictChange(LEAF, "opened"))
    with any_engine.connect() as connection:

        def page(window: VerdictWindow, newest: bool = True) -> list[str]:
            return [one.verdict.id for one in verdict_page(connection, window, None, (100, newest))]

        assert page(VerdictWindow(cause_class="switch")) == ["v1"]
        assert page(VerdictWindow(node="gpu-3")) == ["n3"]
        assert page(VerdictWindow(run="llm-70b")) == ["v1"]
        assert page(VerdictWindow(states=("closed",))) == []
        assert page(VerdictWindow(since=NOW + timedelta(seconds=3)), newest=False) == ["n3", "n4"]
        last = verdict_page(connection, VerdictWindow(states=("open", "revised")), None, (2, True))
        assert [one.verdict.id for one in last] == ["n3", "n4"]
        mark = (last[0].verdict.since, last[0].verdict.id)
        assert [one.verdict.id for one in verdict_page(connection, VerdictWindow(), mark, (2, True))] == ["n1", "n2"]


def test_what_ended_long_ago_goes_with_its_changes_and_what_stands_stays(any_engine: sa.Engine) -> None:
    """Retention counts from the end."""
    save(any_engine, VerdictChange(LEAF, "opened"), VerdictChange(GPU, "opened"))
    save(any_engine, VerdictChange(closed(LEAF), "cured", LEAF))
    assert prune(any_engine, {"verdicts": NOW + timedelta(days=1)}) == {"verdicts": 1}
    with any_engine.connect() as connection:
        assert [one.id for one in open_verdicts(connection)] == ["v2"]
        assert revisions_of(connection, "v1") == []
        subjects = verdict_tables.verdict_subjects
        assert connection.scalars(sa.select(subjects.c.verdict).distinct()).all() == ["v2"]


def test_news_is_read_in_order_whole_and_once(any_engine: sa.Engine) -> None:
    """A damaged row holds nobody up."""
    events = [
        Event(NOW, "gpu-017", "kernel", "xid", 79, "fatal", device=Device("gpu", pci="0000:0f:00.0"), id=f"e{n}")
        for n in range(3)
    ]
    with writing(any_engine).begin() as connection:
        add_news(connection, [replace(events[0], attributes={"pid": 12, "process": "python"})], NOW)
        add_news(connection, events[1:], NOW)
        table = verdict_tables.symptom_news
        connection.execute(sa.insert(table).values(received=NOW, count=1, events=b"no zstd"))
    with any_engine.connect() as connection:
        batches = oldest_news(connection, 3)
        assert [len(batch.events) for batch in batches] == [1, 2]
        assert batches[0].events[0].attributes == {"pid": 12, "process": "python"}
        assert batches[1].events == tuple(events[1:])
    with writing(any_engine).begin() as connection:
        remove_news(connection, batches)
    with any_engine.connect() as connection:
        (damaged,) = oldest_news(connection, 3)
        assert "damaged" in (damaged.error or "")
        assert count_news(connection) == 1

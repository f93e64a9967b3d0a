"""Scores and models: written, replaced, read as of a moment; and what `ingest` has taken."""

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import sqlalchemy as sa
from newest_scores import latest_scores

from store.database.connections import writing
from store.events.append import (
    IngestedFile,
    append_events,
    append_jobs,
    append_nodes,
    append_outages,
    note_ingested,
    read_ingested,
)
from store.models.registry import StoredModel, newest_champion, save_model, serving_model
from store.models.scores import ScoreRow, save_scores, save_scoring_in_blocks
from store.nodes.inventory import newest_run, recent_sources
from store.nodes.node_history import node_scores
from store.nodes.node_states import (
    heard_until,
    newest_scores,
    newest_scoring,
    nodes_out,
    score_reasons,
    unrepaired_faults,
)
from store.records.event import Event
from store.records.job import Job
from store.records.node import Node
from store.records.outage import Outage
from store.records.score import Reason, Score
from store.tables.schema import incidents

NOW = datetime(2025, 3, 1, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
WHY = (Reason("3 row remaps", 0.1, ("e1", "e2")), Reason("hot", -0.05))


def score(node: str = "n1", hours_ago: float = 0, value: float = 0.5, horizon_h: int = 24) -> Score:
    """One score with two reasons."""
    return Score(node, NOW - hours_ago * HOUR, horizon_h, value, WHY, "m1")


def model(ident: str = "m1", until: float = 0, created: float = 0, horizon_h: int = 24) -> StoredModel:
    """A model that learned until so many hours before noon."""
    moments = NOW - created * HOUR, NOW - until * HOUR
    return StoredModel(ident, *moments, horizon_h, ("a", "b"), {"auc": 0.9}, b"\x00\xff", "digest")


@pytest.fixture
def connection(any_engine: sa.Engine) -> Any:
    """A transaction on either kind of database."""
    with writing(any_engine).begin() as connection:
        yield connection


def test_a_score_comes_back_with_its_reasons(connection: sa.Connection) -> None:
    """In their order, with their events."""
    assert save_scores(connection, [score()]) == 1
    assert latest_scores(connection) == {"n1": {24: score()}}
    assert score_reasons(connection, 24, [("n1", NOW), ("n2", NOW)]) == {
        "n1": [
            {"text": "3 row remaps", "contribution": 0.1, "events": ["e1", "e2"]},
            {"text": "hot", "contribution": -0.05, "events": []},
        ],
        "n2": [],
    }


def test_no_scores_are_no_work(connection: sa.Connection) -> None:
    """Nothing in, nothing out."""
    assert save_scores(connection, []) == 0
    assert (latest_scores(connection), newest_scoring(connection, 24, NOW)) == ({}, None)
    assert newest_scores(connection, 24, NOW) == (None, {})


def row_of(one: Score) -> ScoreRow:
    """A score as a scorer writes it."""
    reasons = [{"text": why.text, "contribution": why.contribution, "events": why.events} for why in one.reasons]
    return one.node, one.horizon_h, one.time, one.score, json.dumps(reasons), one.model


def test_a_scoring_is_saved_as_it_is_made(connection: sa.Connection) -> None:
    """More than a block, of two horizons, with names and texts that COPY would take for its own; again, it replaces."""
    odd = (Reason('a "tab"\t, a line\n, a \\ and °C', 1e-7, ("\\.", "e\t1")),)
    names = ["\\N", "tab\there", *(f"n{number}" for number in range(1_200))]
    made = [replace(score(name, horizon_h=hours), reasons=odd) for hours in (24, 168) for name in names]
    assert save_scoring_in_blocks(connection, NOW, (24, 168), map(row_of, made)) == len(made)
    found = latest_scores(connection)
    assert [found[one.node][one.horizon_h] for one in made] == made
    assert sum(map(len, found.values())) == len(made)
    other = [replace(one, score=0.25) for one in made[:3]]
    assert save_scoring_in_blocks(connection, NOW, (24,), map(row_of, other)) == len(other)
    assert [latest_scores(connection)[one.node][24].score for one in made[2:4]] == [0.25, 0.5]
    assert save_scoring_in_blocks(connection, NOW + HOUR, (24,), []) == 0


def test_a_later_score_of_the_same_moment_replaces_the_earlier_one(connection: sa.Connection) -> None:
    """In one batch and over two; the count is of what is there."""
    assert save_scores(connection, [score(value=0.1), score(value=0.2)]) == 1
    save_scores(connection, [replace(score(value=0.3), reasons=(), model="m2")])
    assert latest_scores(connection) == {"n1": {24: replace(score(value=0.3), reasons=(), model="m2")}}


def test_each_horizon_has_its_own_newest_scoring(connection: sa.Connection) -> None:
    """A node that the newest scoring left out has none, rather than an old one."""
    save_scores(connection, [score("a", 2), score("b", 2), score("a", 5, horizon_h=168), score("a", 0)])
    found = latest_scores(connection)
    assert {node: sorted(horizons) for node, horizons in found.items()} == {"a": [24, 168]}
    assert found["a"][168].time == NOW - 5 * HOUR
    assert set(latest_scores(connection, NOW - HOUR)) == {"a", "b"}
    assert latest_scores(connection, NOW - 6 * HOUR) == {}


@pytest.mark.parametrize(("hours_ago", "expected"), [(0, 0), (0.5, 1), (1, 1), (2.5, None)])
def test_the_newest_scoring_is_that_of_the_moment_asked_for(
    connection: sa.Connection, hours_ago: float, expected: int | None
) -> None:
    """The moment itself counts; later ones are not known then."""
    save_scores(connection, [score("a", 2, 0.2), score("a", 1, 0.1), score("a", 0, 0.9), score("a", 0, 0.7, 168)])
    moment, scores = newest_scores(connection, 24, NOW - hours_ago * HOUR)
    assert moment == (None if expected is None else NOW - expected * HOUR)
    assert scores == {None: {}, 0: {"a": 0.9}, 1: {"a": 0.1}}[expected]
    assert newest_scores(connection, 24, NOW, "b") == (NOW, {})


def test_a_node_s_scores_over_time_join_both_horizons(connection: sa.Connection) -> None:
    """Oldest first; a horizon that was not scored is missing; others are not shown."""
    made = [score("a", 2), score("a", 1, 0.3), score("a", 1, 0.6, 168), score("a", 0, 0.9, 72), score("b", 1)]
    save_scores(connection, made)
    assert node_scores(connection, "a", NOW - 10 * HOUR) == [
        {"time": NOW - 2 * HOUR, "score_24h": 0.5, "score_7d": None},
        {"time": NOW - HOUR, "score_24h": 0.3, "score_7d": 0.6},
    ]


def test_a_model_comes_back_byte_for_byte_and_may_be_replaced(connection: sa.Connection) -> None:
    """By its id."""
    assert serving_model(connection, 24) is None
    save_model(connection, model())
    assert serving_model(connection, 24) == model()
    save_model(connection, replace(model(), blob=b"new", metrics={}))
    assert serving_model(connection, 24) == replace(model(), blob=b"new", metrics={})
    assert serving_model(connection, 168) is None


def test_the_newest_model_is_the_one_that_learned_most(connection: sa.Connection) -> None:
    """As of a moment only what could have been known; failing that, the newest after all."""
    for one in (model("old", until=48, created=1), model("new", until=2, created=3), model("week", horizon_h=168)):
        save_model(connection, one)
    assert getattr(serving_model(connection, 24), "id", None) == "new"
    assert getattr(serving_model(connection, 24, NOW - 2 * HOUR), "id", None) == "new"
    assert getattr(serving_model(connection, 24, NOW - 3 * HOUR), "id", None) == "old"
    assert getattr(serving_model(connection, 24, NOW - 99 * HOUR), "id", None) == "new"
    assert getattr(newest_champion(connection), "id", None) == "week"


def test_an_outage_holds_its_node_out_from_start_to_end(connection: sa.Connection) -> None:
    """The start counts, the end does not; one that is planned for later is not yet."""
    down = ("DOWN", "x", None, False, "hardware")
    append_outages(connection, [Outage("open", NOW - HOUR, None, *down), Outage("done", NOW - 2 * HOUR, NOW, *down)])  # type: ignore[arg-type]  # the fields in order
    append_outages(connection, [Outage("later", NOW + HOUR, None, *down), Outage("now", NOW, None, *down)])  # type: ignore[arg-type]  # the same
    assert nodes_out(connection, NOW) == {"open", "now"}
    assert nodes_out(connection, NOW - HOUR) == {"open", "done"}
    assert nodes_out(connection, NOW, "done") == set()


def add_fault(connection: sa.Connection, node: str | None, hours_ago: float, **changes: Any) -> None:
    """A fatal hardware incident."""
    moment = NOW - hours_ago * HOUR
    row = {"id": f"{node}{hours_ago}", "node": node, "start": moment, "end": moment, "kind": "xid", "code": 79}
    row |= {"severity": "fatal", "cause": "hardware", "action": "none", "device": {"type": "gpu"}, "message": "m"}
    connection.execute(incidents.insert().values(**row | {"count": 1, "kinds": {}} | changes))


def test_a_fault_stands_until_an_outage_after_it_has_ended(connection: sa.Connection) -> None:
    """Only a fatal one of the hardware, of a known node, and the newest of each."""
    down = ("DOWN", "x", None, False, "hardware")
    for node in ("plain", "repaired", "again", "inside"):
        add_fault(connection, node, 5)
    add_fault(connection, "again", 1)
    add_fault(connection, "plain", 4)
    add_fault(connection, None, 2)
    add_fault(connection, "soft", 2, severity="error")
    add_fault(connection, "program", 2, cause="application")
    add_fault(connection, "ahead", -1)
    add_fault(connection, "history", 30)
    for node, end in (("repaired", NOW - 3 * HOUR), ("again", NOW - 3 * HOUR), ("inside", None)):
        append_outages(connection, [Outage(node, NOW - 4 * HOUR, end, *down)])  # type: ignore[arg-type]  # the fields in order
    found = unrepaired_faults(connection, NOW - 24 * HOUR, NOW)
    assert set(found) == {"plain", "again", "inside", "ahead"}
    assert (found["plain"].id, found["again"].id) == ("plain4", "again1")


def test_what_is_known_of_a_cluster_is_as_old_as_what_three_nodes_reported(connection: sa.Connection) -> None:
    """One whose clock runs ahead, one that the inventory does not know: neither makes the rest look heard of."""
    assert heard_until(connection, NOW) is None
    append_nodes(connection, [Node(f"n{number:02}") for number in range(12)])
    append_events(connection, [Event(NOW, "a-stranger", "kernel", "note")], NOW)
    assert heard_until(connection, NOW) is None
    append_events(connection, [Event(NOW - hours * HOUR, f"n0{hours}", "kernel", "note") for hours in (2, 3, 4)], NOW)
    assert heard_until(connection, NOW) == NOW - 4 * HOUR
    append_events(connection, [Event(NOW + HOUR / 2, "n11", "kernel", "note")], NOW)
    assert heard_until(connection, NOW) == NOW - 3 * HOUR
    append_events(connection, [Event(NOW + HOUR / 2, f"n0{number}", "kernel", "note") for number in (5, 6)], NOW)
    assert heard_until(connection, NOW) == NOW


def test_a_cluster_of_few_nodes_is_heard_of_by_one_in_four(connection: sa.Connection) -> None:
    """Of two nodes one is enough."""
    append_nodes(connection, [Node("a"), Node("b")])
    append_events(connection, [Event(NOW - HOUR, "a", "kernel", "note")], NOW)
    assert heard_until(connection, NOW) == NOW - HOUR


def test_sources_are_counted_over_an_hour_and_known_over_a_day(connection: sa.Connection) -> None:
    """What is dated later than now is not counted yet."""
    spoke = [("kernel", 0.5), ("kernel", 1.5), ("opensm", 23), ("sacct", 25), ("dcgm", -0.5), ("kernel", 0)]
    append_events(connection, [Event(NOW - ago * HOUR, "n", source, "k", id=f"{ago}") for source, ago in spoke], NOW)
    assert recent_sources(connection, NOW) == [
        {"source": "kernel", "last_event": NOW, "events_1h": 2},
        {"source": "opensm", "last_event": NOW - 23 * HOUR, "events_1h": 0},
    ]


def test_the_newest_run_is_the_one_that_started_last(connection: sa.Connection) -> None:
    """One that still waits has not."""
    assert newest_run(connection) is None
    jobs = [Job(name, name, "X", NOW, None if h is None else NOW - h * HOUR, None, 1, "n") for name, h in RUNS]
    append_jobs(connection, jobs)
    assert newest_run(connection) == "b"


RUNS = (("a", 3.0), ("b", 1.0), ("c", 2.0), ("waiting", None))


def test_a_file_is_known_by_its_path_and_content(connection: sa.Connection) -> None:
    """Changed content is another file; taken again, it is noted anew."""
    file = IngestedFile("kernel/n1.log", "aa", 10, 1, NOW)
    changed = replace(file, sha256="bb", records=20)
    for one in (file, changed, replace(file, records=11, done=NOW + HOUR)):
        note_ingested(connection, one)
    assert read_ingested(connection) == {
        ("kernel/n1.log", "aa"): replace(file, records=11, done=NOW + HOUR),
        ("kernel/n1.log", "bb"): changed,
    }

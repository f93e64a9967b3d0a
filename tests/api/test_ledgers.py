"""The ledgers that a background loop computes, and what requests make of them."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest
import sqlalchemy as sa
from fastapi.testclient import TestClient
from wire_check import check_answer

from api.loops import ledgers
from api.loops.ledgers import REST, LedgerTurns
from goodput.stored import refresh
from goodput.stored.computation import store_in_subprocess
from store.database.connections import writing
from store.events.append import append_jobs, append_outages
from store.events.ledger_intake import read_late
from store.records.job import Job
from store.records.outage import Outage
from store.tables import run_tables, schema
from wire.goodput import LedgerJson, RunJson
from wire.message import Page

from .conftest import NOW, Clock, Ticks
from .made_ledgers import HOUR, always, log, slowly, start, stored


def test_a_run_with_news_is_computed_and_one_without_is_left_alone(
    engine: sa.Engine, turns: LedgerTurns, clock: Clock
) -> None:
    """A job that ended is news; a turn without any writes nothing."""
    start(engine, "a", "b")
    turns.turn(always)
    first = stored(engine, "a"), stored(engine, "b")
    assert None not in first
    clock.forward(seconds=10)
    turns.turn(always)
    assert (stored(engine, "a"), stored(engine, "b")) == first
    start(engine, "a", ended=True)
    turns.turn(always)
    assert stored(engine, "a").content["account"]["wall_s"] == 7200.0
    assert (stored(engine, "a").computed, stored(engine, "b")) == (clock(), first[1])


def test_lines_that_came_in_are_news(engine: sa.Engine, turns: LedgerTurns) -> None:
    """The account goes on to the newest line; as_of says so."""
    start(engine, "a")
    log(engine, "a", 60, 59)
    turns.turn(always)
    before = stored(engine, "a").until
    log(engine, "a", 5, 4)
    turns.turn(always)
    assert before == NOW - timedelta(minutes=59)
    assert stored(engine, "a").until == NOW - timedelta(minutes=4)


def test_a_costly_ledger_rests_twenty_times_as_long(
    engine: sa.Engine, turns: LedgerTurns, ticks: Ticks, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However often its run has news, a long one takes a twentieth of a processor at most."""
    made = slowly(ticks, 2.0, monkeypatch)
    start(engine, "long")
    turns.turn(always)
    log(engine, "long", 3)
    turns.turn(always)
    assert made == ["long"]
    ticks.now += REST * 2.0 - 0.1
    turns.turn(always)
    assert made == ["long"]
    ticks.now += 0.2
    turns.turn(always)
    assert made == ["long", "long"]


def test_a_long_log_is_accounted_in_a_process_of_its_own(
    engine: sa.Engine, turns: LedgerTurns, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It stores what this process would have; a server that stops does not wait for it."""
    monkeypatch.setattr(ledgers, "LONG_LINES", 2)
    monkeypatch.setattr(refresh, "make_all", lambda *_: pytest.fail("computed here"))
    start(engine, "long")
    log(engine, "long", 9, 8, 7)
    store_in_subprocess(engine.url, "long", NOW, lambda: False)
    assert stored(engine, "long") is None
    turns.turn(always)
    monkeypatch.undo()
    with engine.connect() as connection:
        assert stored(engine, "long") == ledgers.compute(connection, "long", NOW)


def test_one_run_that_cannot_be_accounted_keeps_no_other_from_it(
    engine: sa.Engine, turns: LedgerTurns, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is logged, and left until it has news again."""
    make_all = refresh.make_all

    def broken(connection: sa.Connection, runs: Sequence[str], *more: Any) -> Any:
        if "a" in runs:
            raise ArithmeticError("no such time")
        return make_all(connection, runs, *more)

    monkeypatch.setattr(refresh, "make_all", broken)
    start(engine, "a", "b")
    turns.turn(always)
    assert (stored(engine, "a"), stored(engine, "b") is None) == (None, False)


def test_a_pruned_log_leaves_the_ledger_as_it_was(engine: sa.Engine, clock: Clock, ticks: Ticks) -> None:
    """Fewer lines than there were are no news: what was computed from them stays."""
    start(engine, "a", hours=60, ended=False)
    log(engine, "a", 3000, 2999)
    LedgerTurns(engine, clock, ticks).turn(always)
    before = stored(engine, "a")
    with writing(engine).begin() as connection:
        connection.execute(sa.delete(schema.events))
    LedgerTurns(engine, clock, ticks).turn(always)
    assert stored(engine, "a") == before


def test_requests_read_the_row(client: TestClient, engine: sa.Engine, turns: LedgerTurns) -> None:
    """List, ledger and cluster show the stored ledger, of the published shape, with as_of."""
    start(engine, "a")
    turns.turn(always)
    start(engine, "a", ended=True)
    account = client.get("/api/v1/runs/a/goodput").json()
    check_answer(LedgerJson, account)
    assert account["as_of"] == "2025-03-01T10:00:00.000000Z"
    assert client.get("/api/v1/cluster").json()["goodput"] == account["goodput"]
    turns.turn(always)
    page = client.get("/api/v1/runs").json()
    check_answer(Page[RunJson], page)
    assert (page["items"][0]["wall_s"], page["items"][0]["as_of"]) == (7200.0, "2025-03-01T12:00:00.000000Z")


def test_a_long_log_without_a_ledger_is_not_read_in_a_request(
    client: TestClient, engine: sa.Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The list shows nulls, the ledger says when to ask again; a name that nobody knows is still not found."""
    monkeypatch.setattr(ledgers, "SMALL_LINES", 1)
    start(engine, "a")
    log(engine, "a", 3, 2)
    item = client.get("/api/v1/runs").json()["items"][0]
    assert (item["run"], item["state"], item["goodput"], item["attempts"]) == ("a", "RUNNING", None, None)
    answer = client.get("/api/v1/runs/a/goodput")
    assert (answer.status_code, answer.headers["Retry-After"]) == (503, "15")
    assert client.get("/api/v1/runs/b/goodput").status_code == 404


def test_the_topology_is_not_sent_twice(client: TestClient) -> None:
    """A client that has it is told so in a few bytes."""
    first = client.get("/api/v1/topology")
    again = client.get("/api/v1/topology", headers={"If-None-Match": first.headers["ETag"]})
    assert (first.status_code, again.status_code, again.content) == (200, 304, b"")
    assert client.get("/api/v1/topology", headers={"If-None-Match": '"other"'}).status_code == 200


def test_a_late_fault_stays_news_until_every_ledger_has_it(
    engine: sa.Engine, turns: LedgerTurns, ticks: Ticks, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that stops in between loses nothing; the next turn does not begin anew."""
    start(engine, "a", "b", hours=9, ended=True)
    turns.turn(always)
    ticks.now += 100
    with writing(engine).begin() as connection:
        late = Outage("n1", NOW - HOUR, None, "DOWN", "", None, False, "host")
        append_outages(connection, [late], NOW)
    monkeypatch.setattr(ledgers, "TOGETHER", 1)
    made = slowly(ticks, 5.0, monkeypatch)

    def waiting() -> int:
        with engine.connect() as connection:
            return len(read_late(connection)[0])

    turns.turn(lambda: not made)
    assert (len(made), waiting()) == (1, 1)
    turns.turn(always)
    assert (sorted(made), waiting()) == (["a", "b"], 0)
    turns.turn(always)
    assert len(made) == 2


def test_a_late_fault_of_a_long_log_outlives_a_server_that_stops(
    engine: sa.Engine, turns: LedgerTurns, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process that should have computed it was ended with the server."""
    start(engine, "a", hours=9, ended=True)
    turns.turn(always)
    with writing(engine).begin() as connection:
        append_outages(connection, [Outage("n1", NOW - HOUR, None, "DOWN", "", None, False, "host")], NOW)
        connection.execute(sa.delete(run_tables.folded_logs))
    monkeypatch.setattr(ledgers, "LONG_LINES", -1)
    monkeypatch.setattr(ledgers, "store_in_subprocess", lambda *_: None)
    asked = iter([True, False])
    turns = LedgerTurns(engine, turns.clock, turns.monotonic)
    turns.turn(lambda: next(asked, False))
    with engine.connect() as connection:
        assert [one.since for one in read_late(connection)[1]] == [NOW - HOUR]


def test_an_outage_that_is_posted_late_is_found(client: TestClient, engine: sa.Engine, turns: LedgerTurns) -> None:
    """A day after the stop that it explains."""
    end = NOW - 24 * HOUR
    with writing(engine).begin() as connection:
        append_jobs(connection, [Job("1", "a", "NODE_FAIL", end - HOUR, end - HOUR, end, 1, "n1")])
    turns.turn(always)
    outage = {"node": "n1", "start": (end - timedelta(seconds=9)).isoformat(), "state": "DOWN", "reason": "Xid 79"}
    assert client.post("/api/v1/outages", json=[outage]).status_code == 200
    turns.turn(always)
    (cut,) = stored(engine, "a").content["account"]["interruptions"]
    assert cut["culprit"]["node"] == "n1"


def test_sums_of_days_that_another_version_left_wrong_are_mended_at_the_first_turn(
    engine: sa.Engine, turns: LedgerTurns
) -> None:
    """And each hour from then on: a server of before may write until it is stopped."""
    days = run_tables.run_days
    with writing(engine).begin() as connection:
        connection.execute(sa.insert(days).values(run="a", day=NOW, bucket="productive", wall_ms=5, gpu_ms=None))
    turns.turn(always)
    with engine.connect() as connection:
        assert [row.wall_ms for row in connection.execute(sa.select(run_tables.cluster_days))] == [5]

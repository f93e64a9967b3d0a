"""GET /hints?since=: every change once at least, ends too, none left out under concurrent writers."""

import threading
from datetime import timedelta
from typing import Any

import pytest
import sqlalchemy as sa
from fastapi.testclient import TestClient
from real.patience import patience
from wire_check import check_answer

from schedulers.lifecycle.operator_actions import withdraw
from store.database.connections import writing
from store.hints.hint_log import changed_hints, close_hint, save_hint, settled_seq
from store.records.hint import Hint
from store.tables import schema
from wire.hints import HintJson
from wire.message import Page

from .conftest import NOW

HOUR = timedelta(hours=1)


def made(ident: str, state: Any = "approved") -> Hint:
    """A hint."""
    return Hint(ident, f"n-{ident}", "cordon", state, "foreshock: t", "foreshock", NOW, NOW + 24 * HOUR)


def put(engine: sa.Engine, *idents: str, at_h: float = 0) -> None:
    """Store hints."""
    with writing(engine).begin() as connection:
        for ident in idents:
            save_hint(connection, made(ident), NOW + at_h * HOUR, {})


def ask(client: TestClient, since: str, limit: int = 100) -> tuple[list[dict[str, Any]], str]:
    """One question."""
    answer = client.get("/api/v1/hints", params={"since": since, "limit": limit})
    assert answer.status_code == 200, answer.text
    check_answer(Page[HintJson], answer.json())
    return answer.json()["items"], answer.json()["next_cursor"]


def test_a_poller_sees_what_is_new_and_what_has_ended(any_client: TestClient, any_engine: sa.Engine) -> None:
    """Each as it is now; nothing, and the same cursor, while nothing happens."""
    put(any_engine, "a", "b")
    items, cursor = ask(any_client, "1970-01-01T00:00:00Z")
    assert [item["id"] for item in items] == ["a", "b"]
    assert ask(any_client, cursor) == ([], cursor)
    with writing(any_engine).begin() as connection:
        withdraw(connection, "a", NOW, "alice")
    put(any_engine, "c")
    items, later = ask(any_client, cursor)
    assert [(item["id"], item["state"]) for item in items] == [("a", "withdrawn"), ("c", "approved")]
    assert items[0]["job"] is None
    assert ask(any_client, later) == ([], later)
    assert ask(any_client, cursor)[0] == items, "an answer that was lost can be asked for again"


def test_pages_lead_through_many_changes(client: TestClient, engine: sa.Engine) -> None:
    """In the order of the changes; a hint that changed twice stands where it changed last."""
    put(engine, *"abcde")
    put(engine, "a")
    seen, cursor = [], "1970-01-01T00:00:00Z"
    for _ in range(10):
        items, following = ask(client, cursor, limit=2)
        seen += [item["id"] for item in items]
        if following == cursor:
            break
        cursor = following
    assert seen == ["a", "b", "c", "d", "e", "a"]
    assert [item["id"] for item in ask(client, "1970-01-01T00:00:00Z")[0]] == ["b", "c", "d", "e", "a"]


def test_since_may_be_a_time(client: TestClient, engine: sa.Engine) -> None:
    """Changes at that moment or later; one that lies ahead has none, and a cursor."""
    put(engine, "a", at_h=-2)
    put(engine, "b", at_h=-1)
    items, _ = ask(client, (NOW - HOUR).isoformat())
    assert [item["id"] for item in items] == ["b"]
    items, cursor = ask(client, (NOW + HOUR).isoformat())
    assert items == []
    put(engine, "c")
    assert [item["id"] for item in ask(client, cursor)[0]] == ["c"]


@pytest.mark.parametrize("more", [{"state": "open"}, {"node": "n"}, {"cursor": "x"}])
def test_since_goes_with_no_filter(client: TestClient, more: dict[str, str]) -> None:
    """A poller that leaves ends out would hold nodes for ever."""
    answer = client.get("/api/v1/hints", params={"since": "1970-01-01T00:00:00Z", **more})
    assert answer.status_code == 422
    assert "leave state, node and cursor out" in answer.json()["detail"]


@pytest.mark.parametrize("since", ["yesterday", "", "W10", "2025-13-01T00:00:00Z"])
def test_since_that_is_nothing_is_refused(client: TestClient, since: str) -> None:
    """Rather than read as the beginning."""
    assert client.get("/api/v1/hints", params={"since": since}).status_code == 422


def test_other_rows_of_the_audit_do_not_stop_a_poller(client: TestClient, engine: sa.Engine) -> None:
    """Of a switch, or of a hint that is gone: passed over."""
    with writing(engine).begin() as connection:
        row = {"time": NOW, "actor": "alice", "action": "stop", "subject": "switch", "detail": {}}
        connection.execute(schema.audit.insert(), [row] * 5)
    put(engine, "a")
    items, cursor = ask(client, "1970-01-01T00:00:00Z", limit=5)
    assert items == []
    assert [item["id"] for item in ask(client, cursor, limit=5)[0]] == ["a"]


@pytest.mark.integration
def test_a_lower_number_that_is_committed_later_is_not_passed_over(postgres_engine: sa.Engine) -> None:
    """The reader waits for the writer that has it; where that takes too long it tells nothing rather than a part."""
    slow = postgres_engine.connect()
    begun = slow.begin()
    save_hint(slow, made("slow"), NOW, {})
    put(postgres_engine, "fast")
    with postgres_engine.connect() as reader:
        page = changed_hints(reader, 0, 10, wait_s=0.05)
        assert (page.hints, page.seq) == ([], 0)
        assert settled_seq(reader, 0.0) is None
        timer = threading.Timer(0.2, begun.commit)
        timer.start()
        page = changed_hints(reader, 0, 10, wait_s=patience(30.0))
        timer.join()
    slow.close()
    assert {hint.id for hint in page.hints} == {"slow", "fast"}


@pytest.mark.integration
def test_no_change_is_lost_among_many_writers(postgres_engine: sa.Engine) -> None:
    """Four writers that hold their transactions open for a while, one poller."""

    def write(number: int) -> None:
        for turn in range(12):
            with writing(postgres_engine).begin() as connection:
                save_hint(connection, made(f"{number}-{turn}"), NOW, {})
                connection.execute(sa.text("SELECT pg_sleep(0.01)"))
                close_hint(connection, made(f"{number}-{turn}"), "withdrawn", NOW, "alice")

    writers = [threading.Thread(target=write, args=(number,)) for number in range(4)]
    for writer in writers:
        writer.start()
    seen: set[str] = set()
    cursor = 0
    with postgres_engine.connect() as reader:
        while any(writer.is_alive() for writer in writers) or len(seen) < 48:
            page = changed_hints(reader, cursor, 7)
            seen |= {hint.id for hint in page.hints}
            done = not page.more and not any(writer.is_alive() for writer in writers)
            if done and page.seq == cursor:
                break
            cursor = page.seq
    for writer in writers:
        writer.join()
    assert len(seen) == 48

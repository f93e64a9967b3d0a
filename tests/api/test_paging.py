"""Pages: each item once, in order, also while new ones come in between two of them."""

import base64
from datetime import datetime, timedelta
from typing import Any

import orjson
import pytest
import sqlalchemy as sa
from fastapi.testclient import TestClient
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from api.answers.paging import MAX_LIMIT, PageCursor, decode, page_of
from api.edge.problem import Problem
from store.database.connections import writing
from store.events.append import append_events, append_jobs, append_nodes
from store.hints.hint_log import save_hint
from store.models.scores import LinkScore, save_link_scores
from store.records.event import Event
from store.records.hint import Hint
from store.records.job import Job
from store.records.node import Node
from store.tables import schema

from .conftest import NOW, Clock

MINUTE = timedelta(minutes=1)


def add_events(engine: sa.Engine, *minutes: int, prefix: str = "e") -> None:
    """Events so many minutes before noon."""
    made = [Event(NOW - m * MINUTE, f"n{m}", "kernel", "note", id=f"{prefix}{m:03}") for m in minutes]
    with writing(engine).begin() as connection:
        append_events(connection, made, NOW)


def add_scores(engine: sa.Engine, moment: datetime, *nodes: str) -> None:
    """A scoring of these nodes."""
    rows = [
        {"node": n, "horizon_h": 24, "time": moment, "score": 0.5, "reasons": [], "model": str(moment)} for n in nodes
    ]
    with writing(engine).begin() as connection:
        connection.execute(schema.scores.insert(), rows)


def page(client: TestClient, path: str, cursor: str | None = None, **query: Any) -> tuple[list[Any], str | None]:
    """One page and the cursor of the next."""
    answer = client.get(f"/api/v1/{path}", params=query | ({"cursor": cursor} if cursor else {}))
    assert answer.status_code == 200, answer.text
    return answer.json()["items"], answer.json()["next_cursor"]


def walk(client: TestClient, path: str, between: Any = None, **query: Any) -> list[list[Any]]:
    """Every page; `between` is called after each but the last."""
    pages, cursor = [], None
    for number in range(100):
        items, cursor = page(client, path, cursor, **query)
        pages.append(items)
        if cursor is None:
            return pages
        if between is not None:
            between(number)
    raise AssertionError("the pages do not end")


def test_backward_pages_are_not_disturbed_by_what_comes_in(client: TestClient, engine: sa.Engine) -> None:
    """An operator who leafs back sees what was there when he began, each once, however much is new."""
    add_events(engine, *range(10, 30))
    pages = walk(client, "events", lambda n: add_events(engine, n, prefix="new"), limit=3)
    shown = [event["id"] for items in reversed(pages) for event in items]
    assert shown == [f"e{m:03}" for m in reversed(range(10, 30))]


def test_links_are_paged_by_score(client: TestClient, engine: sa.Engine) -> None:
    """Each once, the riskiest first, links of one score by name; a new scoring goes on after the same score."""

    def save(scores: dict[str, float]) -> None:
        made = [LinkScore(name, ("a", "b"), 24, NOW, score, (), "m") for name, score in scores.items()]
        with writing(engine).begin() as connection:
            save_link_scores(connection, 24, made)

    save({f"l{number}": 0.1 + number % 3 / 7 for number in range(10)})
    shown = [item["link"] for items in walk(client, "links", limit=4) for item in items]
    assert shown == ["l2", "l5", "l8", "l1", "l4", "l7", "l0", "l3", "l6", "l9"]
    items, cursor = page(client, "links", limit=4)
    save({"l1": 0.3, "l2": 0.2, "l3": 0.15})
    assert [item["link"] for item in page(client, "links", cursor)[0]] == ["l2", "l3"]
    assert items[-1]["link"] == "l1"
    for text in ("none of ours", PageCursor(NOW, "no score").encode()):
        assert client.get("/api/v1/links", params={"cursor": text}).status_code == 422


def test_onward_pages_show_what_comes_in_ahead_of_them_once(client: TestClient, engine: sa.Engine) -> None:
    """A follower that reads on with its cursor misses nothing newer and repeats nothing."""
    add_events(engine, *range(50, 60))
    pages = walk(
        client, "events", lambda n: add_events(engine, 20 - n, prefix="new"), limit=4, since="2025-03-01T00:00:00Z"
    )
    shown = [event["id"] for items in pages for event in items]
    assert len(shown) == len(set(shown))
    assert shown[:10] == [f"e{m:03}" for m in reversed(range(50, 60))]
    assert {name for name in shown if name.startswith("new")} >= {"new020", "new019"}


def test_a_full_last_page_has_no_successor(client: TestClient, engine: sa.Engine) -> None:
    """Ten by five are two pages, not three."""
    add_events(engine, *range(10))
    assert [len(items) for items in walk(client, "events", limit=5)] == [5, 5]
    assert [len(items) for items in walk(client, "events", limit=10)] == [10]
    assert [len(items) for items in walk(client, "events", limit=MAX_LIMIT)] == [10]


def test_incidents_of_one_moment_are_paged_by_id_both_ways(client: TestClient, engine: sa.Engine) -> None:
    """Many nodes fail in the same microsecond when a leaf does."""
    device = {"type": "gpu", "pci": None, "index": None, "uuid": None, "port": None}
    row = {"start": NOW, "end": NOW, "kind": "xid", "code": 79, "severity": "error", "cause": "hardware"}
    row |= {"action": "none", "device": device, "message": "m", "count": 1, "kinds": {}}
    with engine.begin() as connection:
        connection.execute(schema.incidents.insert(), [{**row, "id": f"i{i}", "node": f"n{i}"} for i in range(7)])
    names = [f"i{i}" for i in range(7)]
    back = walk(client, "incidents", limit=2)
    assert [one["id"] for items in reversed(back) for one in items] == names
    onward = walk(client, "incidents", limit=2, since="2025-03-01T00:00:00Z")
    assert [one["id"] for items in onward for one in items] == names


def test_hints_made_between_two_pages_do_not_shift_them(client: TestClient, engine: sa.Engine) -> None:
    """The cursor holds a place in time, not a number of rows."""

    def make(name: str, minutes: int) -> None:
        made = NOW - minutes * MINUTE
        with writing(engine).begin() as connection:
            hint = Hint(name, "n", "watch", "shadow", "foreshock: t", "foreshock", made, NOW + MINUTE)
            save_hint(connection, hint, made, {})

    for i in range(6):
        make(f"h{i}", 60 - i)
    pages = walk(client, "hints", lambda n: make(f"new{n}", 10 - n), limit=2)
    assert [hint["id"] for items in reversed(pages) for hint in items] == [f"h{i}" for i in range(6)]
    audit = walk(client, "audit", lambda n: make(f"more{n}", 5 - n), limit=2)
    seqs = [entry["seq"] for items in audit for entry in items]
    assert seqs == list(range(8, 0, -1))


def test_the_pages_of_one_scoring_stay_with_it(client: TestClient, engine: sa.Engine) -> None:
    """A new scoring between two pages is not mixed in."""
    add_scores(engine, NOW - 10 * MINUTE, *"abcde")
    pages = walk(client, "scores", lambda n: add_scores(engine, NOW - (5 - n) * MINUTE, *"abcdexyz"), limit=2)
    assert [score["node"] for items in pages for score in items] == list("abcde")
    assert len({score["time"] for items in pages for score in items}) == 1


def test_nodes_that_appear_between_two_pages_by_name_come_in_their_place(client: TestClient, engine: sa.Engine) -> None:
    """One behind the cursor is shown, one before it is not; none twice."""
    with writing(engine).begin() as connection:
        append_nodes(connection, [Node(name) for name in ("b", "d", "f", "h")])

    def appear(_number: int) -> None:
        with writing(engine).begin() as connection:
            append_nodes(connection, [Node("a"), Node("g")])

    pages = walk(client, "nodes", appear, limit=2, sort="node")
    assert [node["node"] for items in pages for node in items] == ["b", "d", "f", "g", "h"]


def test_a_node_that_is_gone_ends_its_list_rather_than_starts_it_again(client: TestClient, engine: sa.Engine) -> None:
    """A client must not go round in circles."""
    with writing(engine).begin() as connection:
        append_nodes(connection, [Node(name) for name in "abcd"])
    _, cursor = page(client, "nodes", limit=2, sort="node")
    with writing(engine).begin() as connection:
        connection.execute(sa.delete(schema.nodes).where(schema.nodes.c.node == "b"))
    assert page(client, "nodes", cursor, limit=2, sort="node") == ([], None)


def test_runs_are_paged_by_name(client: TestClient, engine: sa.Engine) -> None:
    """Each once, also when a run begins in between."""
    begin = NOW - 60 * MINUTE

    def start(*names: str) -> None:
        with writing(engine).begin() as connection:
            append_jobs(connection, [Job(name, name, "RUNNING", begin, begin, None, 1, "n1") for name in names])

    start("r1", "r2", "r3", "r5")
    pages = walk(client, "runs", lambda n: start("r0", "r4"), limit=2)
    assert [run["run"] for items in pages for run in items] == ["r1", "r2", "r3", "r4", "r5"]


@pytest.mark.parametrize("limit", ["0", "-1", "1001", "1.5", "", "all"])
@pytest.mark.parametrize("path", ["events", "incidents", "nodes", "scores", "runs", "hints", "audit"])
def test_a_limit_that_does_not_fit_is_refused_by_every_list(client: TestClient, path: str, limit: str) -> None:
    """422 that names the parameter."""
    answer = client.get(f"/api/v1/{path}", params={"limit": limit})
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["pointer"] == "query/limit"


def encoded(value: Any) -> str:
    """A cursor that somebody made up."""
    return base64.urlsafe_b64encode(orjson.dumps(value)).decode().rstrip("=")


@pytest.mark.parametrize(
    "text",
    [
        *("", "x", "====", "🙂", "A" * 500, "not base64!"),
        *(encoded(None), encoded({}), encoded([]), encoded([1, "a"]), encoded([1, "a", False, 0])),
        *(encoded(["1", "a", False]), encoded([1.0, "a", False]), encoded([True, "a", False])),
        *(encoded([1, 2, False]), encoded([1, "a", 1]), encoded([1, "a\x00", False]), encoded([2**62, "a", False])),
    ],
)
def test_a_cursor_that_is_none_of_ours_is_refused(text: str) -> None:
    """Whatever was made up; never a crash."""
    with pytest.raises(Problem) as caught:
        decode(text)
    assert caught.value.status_code == 422


@given(
    st.datetimes(datetime(1970, 1, 1), datetime(9000, 1, 1)),  # noqa: DTZ001  # made aware below
    st.text(max_size=40).filter(lambda text: "\x00" not in text),
    st.booleans(),
)
def test_a_cursor_comes_back_as_it_was(time: datetime, ident: str, backwards: bool) -> None:
    """To the microsecond, with any id."""
    cursor = PageCursor(time.replace(tzinfo=NOW.tzinfo), ident, backwards)
    assert decode(cursor.encode()) == cursor
    assert cursor.encode().replace("-", "").replace("_", "").isalnum()


@given(st.integers(0, 30), st.integers(1, 12), st.booleans())
def test_pages_of_any_size_show_each_row_once(count: int, limit: int, newest: bool) -> None:
    """`page_of` over rows read one beyond the limit, from either end."""
    rows = [{"time": NOW + i * MINUTE, "id": f"{i:02}"} for i in range(count)]
    shown: list[dict[str, Any]] = []
    mark: PageCursor | None = None
    while True:
        beyond = mark.id if mark else None
        rest = [row for row in rows if beyond is None or (row["id"] < beyond if newest else row["id"] > beyond)]
        kept, text = page_of(rest[-(limit + 1) :] if newest else rest[: limit + 1], limit, newest)
        shown = [*kept, *shown] if newest else [*shown, *kept]
        if text is None:
            break
        mark = decode(text)
        assert len(kept) == limit
    assert shown == rows


@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    moments=st.lists(st.integers(0, 5), min_size=1, max_size=25),
    limit=st.integers(1, 6),
    onward=st.booleans(),
)
def test_a_store_of_any_moments_is_listed_once_each(
    client: TestClient, engine: sa.Engine, moments: list[int], limit: int, onward: bool
) -> None:
    """Through the API and SQL, with many of one moment, both ways."""
    with writing(engine).begin() as connection:
        connection.execute(sa.delete(schema.events))
        made = [Event(NOW + m * MINUTE, "n", "kernel", "note", id=f"{i:02}") for i, m in enumerate(moments)]
        append_events(connection, made, NOW + 10 * MINUTE)
    query = {"since": "2025-01-01"} if onward else {}
    pages = walk(client, "events", limit=limit, **query)
    shown = [event["id"] for items in (pages if onward else reversed(pages)) for event in items]
    assert shown == [event.id for event in sorted(made, key=lambda event: (str(event.time), event.id))]


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("2025-03-01T11:00:00Z", 1),
        ("2025-03-01T12:00:00+01:00", 1),
        ("2025-03-01T12:00:00 01:00", 1),
        (" 2025-03-01T11:00:00Z ", 1),
        ("2025-03-01T11:00:00.000001Z", 0),
        ("2025-03-01", 1),
    ],
)
def test_a_moment_may_be_written_in_many_ways(
    client: TestClient, engine: sa.Engine, clock: Clock, written: str, meant: int
) -> None:
    """An event of exactly 11:00:00 lies within `since=11:00:00`, not a microsecond later."""
    add_events(engine, 60)
    assert len(page(client, "events", since=written)[0]) == meant

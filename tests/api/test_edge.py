"""What stands before the routes: rates, slots, deadlines; and what a database's errors become."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from sqlite3 import OperationalError as SqliteError
from typing import Any

import psycopg
import pytest
import sqlalchemy as sa
from fastapi import FastAPI
from fastapi.testclient import TestClient
from psycopg import errors
from real.patience import patience
from sqlalchemy.exc import DBAPIError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from api.app import create_app
from api.edge.admission import WAITING_PER_SLOT, RateLimiter, Slots, retry_after
from api.edge.problem import Problem, why_unavailable
from api.edge.turns import CallerTurns
from api.server.metrics import Metrics
from api.server.settings import RequestLimits, Token
from store.nodes.tokens import digest_of

from .conftest import QUIET, Clock

SECRET = {"authorization": "Bearer secret-of-the-sidecars"}
TOKENS = (
    Token("sidecars", digest_of("secret-of-the-sidecars"), frozenset({"ingest"})),
    Token("alerts", digest_of("secret-of-alertmanager"), frozenset({"ingest:fleet"})),
)
NOTICE = {"version": "4", "alerts": []}


class Seconds:
    """A clock of seconds that a test moves."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        """Now."""
        return self.now


@pytest.mark.parametrize("rate", [1.0, 4.0])
def test_a_caller_gets_its_rate_and_one_burst(rate: float) -> None:
    """And another has its own."""
    clock = Seconds()
    limiter = RateLimiter(RequestLimits(requests_per_s=rate, bytes_per_s=0, burst_s=3), clock)
    assert [limiter.wait_s("a")[0] for _ in range(int(rate * 3))] == [0.0] * int(rate * 3)
    assert limiter.wait_s("a") == (pytest.approx(1 / rate), "requests")
    assert limiter.wait_s("b") == (0.0, "")
    clock.now += 1 / rate
    assert limiter.wait_s("a") == (0.0, "")
    assert limiter.wait_s("a")[0] > 0
    clock.now += 1e6
    assert [limiter.wait_s("a")[0] for _ in range(int(rate * 3))] == [0.0] * int(rate * 3)
    assert limiter.wait_s("a")[0] > 0


def test_a_body_larger_than_the_burst_is_paid_back() -> None:
    """Its size is known when it was read: the next request waits for it."""
    clock = Seconds()
    limiter = RateLimiter(RequestLimits(requests_per_s=0, bytes_per_s=100, burst_s=2), clock)
    assert limiter.wait_s("a") == (0.0, "")
    limiter.charge("a", 500)
    assert limiter.wait_s("a") == (pytest.approx(3.0), "bytes")
    clock.now += 3.0
    assert limiter.wait_s("a") == (0.0, "")


def test_callers_beyond_those_remembered_are_forgotten() -> None:
    """Addresses that are made up fill no memory."""
    limiter = RateLimiter(RequestLimits(requests_per_s=1, burst_s=1), Seconds())
    for number in range(10_001):
        limiter.wait_s(f"address:{number}")
    assert limiter.wait_s("address:0")[0] == 0.0
    assert limiter.wait_s("address:10000")[0] > 0


@pytest.fixture
def limited(engine: sa.Engine, clock: Clock) -> Iterator[TestClient]:
    """A server that takes two requests of a token."""
    limits = RequestLimits(requests_per_s=0.001, bytes_per_s=1000, burst_s=2000)
    app = create_app(replace(QUIET, tokens=TOKENS, limits=limits), engine, clock)
    with TestClient(app, raise_server_exceptions=False) as client:
        yield client


def test_who_sends_too_much_is_told_when_to_go_on(limited: TestClient) -> None:
    """429 with Retry-After, as a problem, counted; another token is not concerned."""
    answers = [limited.post("/api/v1/events", json=[], headers=SECRET) for _ in range(3)]
    assert [answer.status_code for answer in answers] == [200, 200, 429]
    assert 900 <= int(answers[2].headers["retry-after"]) <= 1000
    assert answers[2].json()["detail"].startswith("too many requests")
    assert limited.app.state.foreshock.metrics.shed.labels("rate")._value.get() == 1  # type: ignore[attr-defined]
    other = {"authorization": "Bearer secret-of-alertmanager"}
    assert limited.post("/api/v1/alerts", json=NOTICE, headers=other).status_code == 200


def test_alertmanager_is_told_503_for_it_takes_429_as_final(limited: TestClient) -> None:
    """An alert that waits is sent again."""
    other = {"authorization": "Bearer secret-of-alertmanager"}
    answers = [limited.post("/api/v1/alerts", json=NOTICE, headers=other) for _ in range(3)]
    assert [answer.status_code for answer in answers] == [200, 200, 503]
    assert answers[2].headers["retry-after"]


def test_who_guesses_tokens_is_slowed_down_by_its_address(limited: TestClient) -> None:
    """The known tokens are not concerned."""
    wrong = {"authorization": "Bearer guess"}
    assert [limited.post("/api/v1/events", json=[], headers=wrong).status_code for _ in range(3)] == [401, 401, 429]
    assert limited.post("/api/v1/events", json=[], headers=SECRET).status_code == 200


def test_without_tokens_nobody_is_limited(engine: sa.Engine, clock: Clock) -> None:
    """Only this machine can call then."""
    app = create_app(replace(QUIET, limits=RequestLimits(requests_per_s=0.001, burst_s=1)), engine, clock)
    with TestClient(app) as client:
        assert [client.post("/api/v1/events", json=[]).status_code for _ in range(4)] == [200] * 4


def test_one_waits_for_a_slot_and_the_rest_are_refused_at_once() -> None:
    """Who waits gets the slot that is given back; in flight and waits are measured."""
    metrics = Metrics()

    async def scene() -> list[str]:
        slots = Slots("write", 1, patience(30.0), metrics)
        log: list[str] = []
        entered, leave = asyncio.Event(), asyncio.Event()

        async def work(name: str) -> None:
            try:
                async with slots.held():
                    log.append(f"{name} works")
                    entered.set()
                    await leave.wait()
            except Problem as error:
                log.append(f"{name} {error.status_code}")
                assert 1 <= int((error.headers or {})["Retry-After"]) <= 5

        first = asyncio.ensure_future(work("first"))
        await entered.wait()
        waiting = [asyncio.ensure_future(work(f"w{number}")) for number in range(WAITING_PER_SLOT)]
        await asyncio.sleep(0)
        assert (slots.waiting, metrics.in_flight.labels("write")._value.get()) == (WAITING_PER_SLOT, 1)
        await work("beyond")
        leave.set()
        await asyncio.gather(first, *waiting)
        assert (slots.waiting, metrics.in_flight.labels("write")._value.get()) == (0, 0)
        return log

    log = asyncio.run(scene())
    assert log == ["first works", "beyond 503", *(f"w{number} works" for number in range(WAITING_PER_SLOT))]
    assert metrics.shed.labels("writes")._value.get() == 1


def test_a_slot_that_does_not_come_in_time_is_a_503_and_lost_to_nobody() -> None:
    """The next one gets it."""

    async def scene() -> None:
        slots = Slots("write", 1, 0.001, Metrics())
        async with slots.held():
            with pytest.raises(Problem) as caught:
                async with slots.held():
                    pass
        assert caught.value.status_code == 503
        async with slots.held():
            pass

    asyncio.run(scene())


def test_who_is_patient_waits_where_others_are_refused() -> None:
    """Longer, and behind more of them."""

    async def scene() -> None:
        slots = Slots("write", 1, 0.001, Metrics())
        slots.waiting = WAITING_PER_SLOT  # of whom none counts for the slot itself

        async def work() -> None:
            async with slots.held(patience=1e6):
                pass

        async with slots.held():
            patient = asyncio.ensure_future(work())
            with pytest.raises(Problem):
                async with slots.held():
                    pass
            slots.waiting -= WAITING_PER_SLOT
            with pytest.raises(Problem):  # it has waited for its time, and the patient one longer than that
                async with slots.held():
                    pass
            assert not patient.done()
        await patient
        assert slots.waiting == 0

    asyncio.run(scene())


@pytest.mark.parametrize(("queue", "most"), [(0.0, 1), (0.5, 3), (1.0, 5), (7.0, 5), (-1.0, 1)])
def test_the_wait_grows_with_the_queue_and_differs(queue: float, most: int) -> None:
    """Seconds, whole."""
    assert {int(retry_after(queue)) for _ in range(400)} == set(range(1, most + 1))


class Stuck:
    """A route that waits until a test lets it go, as one does whose database is stopped."""

    def __init__(self, app: FastAPI, path: str) -> None:
        self.go = threading.Event()
        self.entered = threading.Event()

        @app.get(path)
        def stuck() -> dict[str, bool]:
            self.entered.set()
            return {"went": self.go.wait(patience(30))}


def test_an_answer_that_is_late_is_a_503_and_its_work_goes_on(engine: sa.Engine, clock: Clock) -> None:
    """Behind the answer; what it says then is heard by nobody."""
    app = create_app(replace(QUIET, limits=RequestLimits(answer_s=0.05)), engine, clock)
    stuck = Stuck(app, "/stuck")
    with TestClient(app, raise_server_exceptions=False) as client:
        answer = client.get("/stuck")
        assert answer.status_code == 503
        assert answer.json()["detail"].startswith("no answer within 0.05 s")
        assert answer.headers["retry-after"]
        assert stuck.entered.wait(patience(30))
        stuck.go.set()
        assert app.state.foreshock.metrics.shed.labels("late")._value.get() == 1


def test_an_answer_in_time_is_the_applications_own(engine: sa.Engine, clock: Clock) -> None:
    """Crashes, too."""
    app = create_app(replace(QUIET, limits=RequestLimits(answer_s=30)), engine, clock)

    @app.get("/crash")
    def crash() -> None:
        raise ZeroDivisionError

    with TestClient(app, raise_server_exceptions=False) as client:
        assert client.get("/crash").status_code == 500
        assert client.get("/livez").json()["status"] == "ok"


def test_a_body_that_does_not_come_is_a_408(engine: sa.Engine, clock: Clock) -> None:
    """And holds no slot meanwhile."""
    app = create_app(replace(QUIET, limits=RequestLimits(body_s=0.01, max_writes=1)), engine, clock)
    sent: list[dict[str, Any]] = []

    async def scene() -> None:
        async def receive() -> dict[str, Any]:
            if sent or not told:
                told.append(1)
                return {"type": "http.request", "body": b"[", "more_body": True}
            await asyncio.sleep(60)
            raise AssertionError

        async def send(message: Any) -> None:
            sent.append(message)

        told: list[int] = []
        headers = [(b"host", b"127.0.0.1:1")]
        scope = {"type": "http", "method": "POST", "path": "/api/v1/events", "headers": headers, "query_string": b""}
        more = {"client": ("10.0.0.1", 1), "server": ("x", 1), "scheme": "http", "root_path": "", "http_version": "1.1"}
        await app({**scope, **more, "asgi": {"version": "3.0"}}, receive, send)

    asyncio.run(scene())
    assert sent[0]["status"] == 408
    assert (b"connection", b"close") in sent[0]["headers"]
    assert app.state.foreshock.metrics.in_flight.labels("write")._value.get() == 0


def wrapped(error: Exception) -> DBAPIError:
    """As SQLAlchemy hands it on."""
    return DBAPIError("insert", {}, error)


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (wrapped(errors.DiskFull("could not extend file")), "disk_full"),
        (wrapped(errors.ReadOnlySqlTransaction("cannot execute INSERT")), "read_only"),
        (wrapped(errors.TooManyConnections("sorry")), "connections"),
        (wrapped(errors.AdminShutdown("terminating")), "database_away"),
        (wrapped(errors.CannotConnectNow("starting up")), "database_away"),
        (wrapped(errors.QueryCanceled("statement timeout")), "database_slow"),
        (wrapped(errors.DeadlockDetected("deadlock")), "database_busy"),
        (wrapped(errors.LockNotAvailable("lock timeout")), "database_busy"),
        (wrapped(errors.OutOfMemory("oom")), "resources"),
        (wrapped(errors.IoError("io")), "disk"),
        (wrapped(errors.UndefinedTable("no table")), "schema"),
        (errors.DiskFull("COPY, straight from the driver"), "disk_full"),
        (psycopg.OperationalError("server closed the connection unexpectedly"), "database_away"),
        (
            OperationalError("select", {}, psycopg.OperationalError("FATAL: sorry, too many clients already")),
            "connections",
        ),
        (OperationalError("select", {}, SqliteError("database is locked")), "database_away"),
        (OperationalError("insert", {}, SqliteError("database or disk is full")), "disk_full"),
        (OperationalError("insert", {}, SqliteError("attempt to write a readonly database")), "read_only"),
        (PoolTimeoutError("QueuePool limit"), "connections"),
        (wrapped(errors.UniqueViolation("twice")), None),
        (wrapped(errors.SyntaxError("ours")), None),
        (ZeroDivisionError(), None),
    ],
    ids=lambda value: value if isinstance(value, str) else type(getattr(value, "orig", value)).__name__,
)
def test_every_way_that_a_database_fails_has_its_name(error: Exception, reason: str | None) -> None:
    """None: a fault of ours, which no waiting mends."""
    found = why_unavailable(error)
    assert (found.reason if found else None) == reason


@pytest.mark.parametrize("error", [errors.DiskFull("full"), wrapped(errors.ReadOnlySqlTransaction("standby"))])
def test_a_database_that_fails_is_a_503_with_its_reason(
    app: FastAPI, error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Counted by reason; never a 500."""

    def fail(*_: Any) -> None:
        raise error

    monkeypatch.setattr("api.routes.events.send_events", fail)
    with TestClient(app, raise_server_exceptions=False) as client:
        answer = client.post("/api/v1/events", json=[])
        reason = why_unavailable(error)
        assert reason is not None
        assert (answer.status_code, answer.json()["detail"]) == (503, reason.detail)
        assert 2 <= int(answer.headers["retry-after"]) <= 5
        assert f'foreshock_shed_total{{reason="{reason.reason}"}} 1.0' in client.get("/metrics").text


def test_lines_are_served_in_rotation_whoever_stands_in_them_often() -> None:
    """Of eight bodies of two nodes a third node waits for two, not for eight."""
    order: list[str] = []

    async def scene() -> None:
        slots = Slots("write", 1, patience(30.0), Metrics())

        async def one(name: str) -> None:
            async with slots.held(whose=name):
                order.append(name)
                await asyncio.sleep(0)

        async with slots.held(whose="first"):
            flood = [asyncio.create_task(one(name)) for name in "aaaabbbb"]
            await asyncio.sleep(0)
            late = asyncio.create_task(one("c"))
            await asyncio.sleep(0)
        await asyncio.gather(*flood, late)
        assert (slots.waiting, slots._turns.is_full) == (0, False)

    asyncio.run(scene())
    assert order == ["a", "b", "c", "a", "b", "a", "b", "a", "b"]


def test_where_no_place_is_left_the_last_of_the_longest_line_goes() -> None:
    """Who has none waiting is not told 503 because one node fills all places; who fills them is."""

    async def scene() -> list[str]:
        slots = Slots("write", 1, patience(30.0), Metrics())
        told: list[str] = []

        async def one(name: str) -> None:
            try:
                async with slots.held(whose=name):
                    told.append(name)
            except Problem as refused:
                told.append(f"{name} {refused.status_code}")

        async with slots.held(whose="first"):
            flood = [asyncio.create_task(one("a")) for _ in range(WAITING_PER_SLOT + 1)]
            await asyncio.sleep(0)
            assert told == ["a 503"], "its own line is the longest"
            late = asyncio.create_task(one("c"))
            await asyncio.sleep(0.01)
            assert told == ["a 503", "a 503"]
        await asyncio.gather(*flood, late)
        return told

    told = asyncio.run(scene())
    assert told[2:4] in (["a", "c"], ["c", "a"])
    assert len(told) == WAITING_PER_SLOT + 2


def test_a_turn_that_comes_as_its_taker_goes_is_lost_to_nobody() -> None:
    """Cancelled in the moment in which it is given; and fewer slots, then more, lose none."""

    async def scene() -> None:
        turns = CallerTurns(1)
        await turns.take("a")
        waiting = asyncio.create_task(turns.take("b"))
        await asyncio.sleep(0)
        turns.give_back()
        waiting.cancel()
        with suppress(asyncio.CancelledError):
            await waiting
        assert not turns.is_full
        turns.resize(2)
        await turns.take("a")
        await turns.take("a")
        turns.resize(1)
        third = asyncio.create_task(turns.take("c"))
        await asyncio.sleep(0)
        turns.give_back()
        await asyncio.sleep(0)
        assert not third.done()
        turns.resize(2)
        await third

    asyncio.run(scene())

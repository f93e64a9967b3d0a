"""A real PostgreSQL that stands still, is killed, and comes back: answers are 503; what was acknowledged is there."""

import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from fastapi.testclient import TestClient
from real.postgres import Postgres, postgres
from real.programs import wait_for

from api.app import create_app
from api.server.settings import RequestLimits
from store.database.connections import migrate, open_database
from store.tables import schema

from .conftest import QUIET, Clock

pytestmark = pytest.mark.integration
EVENTS = "/api/v1/events"


@pytest.fixture
def server() -> Iterator[Postgres]:
    """One of this test's own: it is stopped. A commit is on the disk, as operators have it."""
    with postgres(fsync=True) as running:
        yield running


@pytest.fixture
def client(server: Postgres, clock: Clock) -> Iterator[TestClient]:
    """A server whose patience is short."""
    engine = open_database(server.new_database())
    migrate(engine)
    limits = RequestLimits(answer_s=1.0, slot_wait_s=0.1, max_writes=2, max_reads=2)
    with TestClient(create_app(replace(QUIET, limits=limits), engine, clock), raise_server_exceptions=False) as client:
        yield client
    engine.dispose()


def processes(server: Postgres) -> list[int]:
    """The postmaster and its children."""
    parent = int((server.folder / "data" / "postmaster.pid").read_text().split()[0])
    found = [parent]
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                stat = (entry / "stat").read_text()
            except OSError:
                continue
            if int(stat.rpartition(")")[2].split()[1]) == parent:
                found.append(int(entry.name))
    return found


def event(number: int) -> dict[str, Any]:
    """A fault."""
    return {"id": f"e{number}", "time": "2025-03-01T11:00:00Z", "node": "n1", "source": "kernel", "kind": "xid"}


def stored(client: TestClient) -> set[str]:
    """The ids in the database, once it reads: a pooled session may have been killed, and the database recover."""
    engine, found = client.app.state.foreshock.engine, set[str]()  # type: ignore[attr-defined]

    def reads() -> bool:
        with suppress(sa.exc.OperationalError), engine.connect() as connection:
            found.update(connection.scalars(sa.select(schema.events.c.id)))
            return True
        return False

    wait_for("the database reads", reads)
    return found


def refused(answer: Any) -> None:
    """A 503 that says when to come again."""
    assert answer.status_code == 503, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    assert 1 <= int(answer.headers["retry-after"]) <= 5


def test_a_database_that_stands_still_makes_nobody_wait_for_ever(client: TestClient, server: Postgres) -> None:
    """Writes, reads, probes: each is answered; the process lives; afterwards all goes on, and each is there once."""
    wait_for("it answers", lambda: taken(client, 1))
    stopped = processes(server)
    for pid in stopped:
        os.kill(pid, signal.SIGSTOP)
    try:
        # Two are being written, one waits; two more keep their slots, since what waits is late; the others find none.
        for number in range(2, 9):
            refused(client.post(EVENTS, json=[event(number)]))
        for _ in range(3):
            refused(client.get("/api/v1/nodes"))
        refused(client.get("/readyz"))
        assert client.get("/livez").status_code == 200
        assert client.post("/api/v1/heartbeats", json=[]).status_code == 200
    finally:
        for pid in stopped:
            os.kill(pid, signal.SIGCONT)
    wait_for("it answers again", lambda: client.post(EVENTS, json=[event(n) for n in range(1, 9)]).status_code == 200)
    assert stored(client) == {f"e{number}" for number in range(1, 9)}
    assert client.get("/readyz").status_code == 200
    metrics = client.app.state.foreshock.metrics  # type: ignore[attr-defined]
    assert metrics.shed.labels("writes")._value.get() >= 2
    assert metrics.shed.labels("reads")._value.get() >= 1
    wait_for("what was late has ended", lambda: metrics.in_flight.labels("write")._value.get() == 0)


def test_a_killed_session_costs_a_try_and_no_event(client: TestClient, server: Postgres) -> None:
    """PostgreSQL ends every session when one is killed, and recovers: 503 meanwhile, never 500."""
    number = 0
    for _ in range(2):
        for _ in range(3):
            number += 1
            wait_for("it answers", lambda number=number: taken(client, number))  # type: ignore[misc]
        children = processes(server)[1:]
        backends = [pid for pid in children if b"postgres: postgres" in Path(f"/proc/{pid}/cmdline").read_bytes()]
        os.kill(backends[0], signal.SIGKILL)
        number += 1
        wait_for("it answers again", lambda number=number: taken(client, number))  # type: ignore[misc]
    assert stored(client) == {f"e{n}" for n in range(1, number + 1)}


def taken(client: TestClient, number: int) -> bool:
    """Whether an event is taken; if not, it is refused as it should be."""
    answer = client.post(EVENTS, json=[event(number)])
    if answer.status_code != 200:
        refused(answer)
    return bool(answer.status_code == 200)


def test_a_standby_is_named(client: TestClient, server: Postgres) -> None:
    """Reading goes on; writing is refused with the reason."""
    engine = client.app.state.foreshock.engine  # type: ignore[attr-defined]
    with engine.connect() as connection:
        name = connection.scalar(sa.text("SELECT current_database()"))
        connection.execute(sa.text(f'ALTER DATABASE "{name}" SET default_transaction_read_only = on'))
        connection.commit()
        # Sessions of before may still write: all of them end. The server's loops hold some, so the pool stays.
        others = "datname = current_database() AND pid <> pg_backend_pid()"
        connection.execute(sa.text(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {others}"))  # noqa: S608
        connection.invalidate()
    answer = client.post(EVENTS, json=[event(1)])
    refused(answer)
    assert "read-only" in answer.json()["detail"]
    assert client.get("/api/v1/nodes").status_code == 200

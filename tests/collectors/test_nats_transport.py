"""Batches through a real NATS JetStream: accepted once they are on its disk, stored once whatever dies."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from hypothesis import given
from hypothesis import strategies as st
from real.foreshock import free_port
from real.nats import Nats, nats
from real.patience import patience
from real.programs import stop, wait_for

from collectors.ship import nats_transport
from collectors.ship.nats_transport import NatsTransport, _secrets_of, node_of, subjects_of, token_of
from collectors.ship.transport import ServerAccess, make_client
from store.tables import schema

EVENTS, TELEMETRY, BEATS = (f"/api/v1/{kind}" for kind in ("events", "telemetry", "heartbeats"))
pytestmark = pytest.mark.xdist_group("nats")


def event(number: int, node: str = "gpu-017", **changes: Any) -> dict[str, Any]:
    """A fault event with an id, as a sidecar sends it."""
    time = f"2025-03-01T{number // 3600 % 24:02}:{number // 60 % 60:02}:{number % 60:02}Z"
    known = {"id": f"{node}-{number:08}", "time": time, "node": node, "source": "kernel", "kind": "xid", "code": 79}
    return known | {"severity": "fatal", "cause": "hardware", "message": f"m{number}"} | changes


@pytest.mark.parametrize(
    ("who", "said", "expected"),
    [
        ("", None, {}),
        ("", "t\n", {"token": "t"}),
        ("t@", None, {"token": "t"}),
        ("u@", "p\n", {"user": "u", "password": "p"}),
        ("u:p%40@", None, {"user": "u", "password": "p@"}),
        ("u@", "-----BEGIN NATS USER JWT-----\n", {}),
    ],
)
def test_what_is_sent_to_a_queue_as_it_stands(
    tmp_path: Path, who: str, said: str | None, expected: dict[str, str]
) -> None:
    """A token, or a user and its password, of the address or of the file; of a credentials file nothing."""
    file = None if said is None else tmp_path / "token"
    if file is not None:
        file.write_text(said or "")
    assert _secrets_of(f"nats://{who}queue:4222", ServerAccess(token_file=file)) == ("nats://queue:4222", expected)


@given(st.text(max_size=300))
def test_any_name_is_one_part_of_a_subject(node: str) -> None:
    """Never empty, never a wildcard, never two parts."""
    token = token_of(node)
    assert 0 < len(token) <= 200
    assert not set(token) & set(" .*>\t\r\n\x00")


@given(st.text(max_size=20), st.text(max_size=20))
def test_names_that_differ_differ_as_parts(one: str, other: str) -> None:
    """Except the empty one, which is no name."""
    assert (token_of(one) == token_of(other)) == (one == other)
    assert not one or node_of(token_of(one)) == one


def test_a_batch_goes_where_its_kind_and_node_say() -> None:
    """A host name with dots is one part; what names no node goes to `=`."""
    long = {"node": "gpu-017.example.org"}
    assert subjects_of(EVENTS, [long]) == {"foreshock.events.gpu-017=2Eexample=2Eorg": [long]}
    assert subjects_of(BEATS, [{"node": None}]) == {"foreshock.heartbeats.=": [{"node": None}]}
    assert subjects_of(EVENTS, []) == {}
    assert subjects_of("/api/v1/outages", [{}]) is None
    assert subjects_of("/elsewhere/events", [{}]) is None


def test_what_is_of_several_nodes_goes_to_each_of_them_and_what_speaks_of_the_fleet_to_its_own() -> None:
    """NATS decides by the subject who may say it."""
    one, other = {"node": "n1", "source": "dcgm"}, {"node": "n2", "source": "dcgm"}
    fabric = {"node": "n1", "source": "opensm"}
    assert subjects_of(EVENTS, [one, fabric, other, one]) == {
        "foreshock.events.n1": [one, one],
        "foreshock.events.=": [fabric],
        "foreshock.events.n2": [other],
    }


def test_a_queue_that_is_away_is_an_answer() -> None:
    """The batch stays in the spool; what is too large is to be halved, what has no queue is said."""
    client = make_client(f"nats://127.0.0.1:{free_port()}", ServerAccess(timeout_s=2))
    assert isinstance(client, NatsTransport)
    assert client.post(EVENTS, [event(1)]).status == 0
    assert client.post("/api/v1/outages", [{}]).status == 404
    assert client.post(EVENTS, [{"message": os.urandom(1_100_000).hex()}]).status == 413
    client.close()
    client.close()


def test_a_credentials_file_that_is_not_there_is_an_answer(tmp_path: Path) -> None:
    """It may come."""
    client = NatsTransport("nats://127.0.0.1:1", ServerAccess(token_file=tmp_path / "none.creds", timeout_s=2))
    assert "none.creds" in client.post(EVENTS, [event(1)]).text
    client.close()


def test_a_message_that_nobody_waits_for_any_more_ends_with_its_client(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was destroyed with its loop, whenever Python came by it: in another test, as an error of that one."""
    ended: list[str] = []

    async def hang(*_given: Any, **_options: Any) -> Any:
        try:
            await asyncio.sleep(3600)
        finally:
            for _ in range(100):  # as a connection takes its time to close
                await asyncio.sleep(0.005)
            ended.append("in its loop")

    monkeypatch.setattr(nats_transport, "connect", hang)
    client = NatsTransport("nats://127.0.0.1:1", ServerAccess(timeout_s=0.3))
    assert client.post(EVENTS, [event(1)]).status == 0
    assert ended == []
    client.close()
    assert ended == ["in its loop"]


@pytest.fixture
def queue(tmp_path: Path) -> Iterator[Nats]:
    """A server."""
    with nats(tmp_path) as server:
        yield server


@pytest.fixture
def client(queue: Nats) -> Iterator[NatsTransport]:
    """A client of it."""
    transport = NatsTransport(queue.url, ServerAccess(timeout_s=patience(5)))
    yield transport
    transport.close()


def start_consumer(
    queue: Nats, database: sa.Engine, *arguments: str, stdout: int = subprocess.DEVNULL
) -> subprocess.Popen[bytes]:
    """`foreshock consume`."""
    url = database.url.render_as_string(hide_password=False)
    program = str(Path(sys.executable).parent / "foreshock")
    command = [program, "consume", "--nats", queue.url, "--db", url, "--ack-wait-s", "3", *arguments]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("FORESHOCK_")}
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=stdout, env=environment)


@contextmanager
def consuming(queue: Nats, database: sa.Engine, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """The same, to its good end."""
    process = start_consumer(queue, database, *arguments)
    try:
        yield process
    finally:
        stop(process, signal.SIGTERM)
    assert process.returncode == 0


def ids(database: sa.Engine) -> list[str]:
    """Every event's id, sorted."""
    with database.connect() as connection:
        return sorted(connection.scalars(sa.select(schema.events.c.id)))


def count(database: sa.Engine, table: sa.Table) -> int:
    """Rows."""
    with database.connect() as connection:
        return int(connection.scalar(sa.select(sa.func.count()).select_from(table)) or 0)


def await_stream(client: NatsTransport) -> None:
    """Until the consumer has made the stream: before, nothing is accepted."""
    wait_for("the stream is there", lambda: client.post(EVENTS, [event(0, "first")]).status == 202)


@pytest.mark.integration
def test_every_kind_is_stored_and_what_does_not_fit_is_kept_apart(
    queue: Nats, client: NatsTransport, any_engine: sa.Engine
) -> None:
    """Beside its good neighbours; a message that is no batch ends there, too."""
    assert client.post(EVENTS, [event(1)]).status == 503  # no stream yet: not taken
    port = free_port()
    with consuming(queue, any_engine, "--port", str(port), "--listen", "127.0.0.2"):
        await_stream(client)
        with urllib.request.urlopen(f"http://127.0.0.2:{port}/metrics") as answer:
            assert b"foreshock_consumed_messages_total" in answer.read()
        bad = event(2, code="many")
        assert client.post(EVENTS, [event(1), bad, event(3)]).status == 202
        assert client.post(EVENTS, [event(1), bad, event(3)]).status == 202  # the same batch: JetStream drops it
        assert client.post(EVENTS, [event(1), event(4)]).status == 202  # another batch with a known event
        rollup = {"node": "gpu-017", "time": "2025-03-01T04:00:00Z", "samples": 960, "gpus_seen": 8}
        assert client.post(TELEMETRY, [rollup]).status == 202
        beat = {"node": "gpu-017", "time": "2025-03-01T04:05:06Z", "version": "0.1.0", "interval_s": 60}
        beat |= {"started": "2025-03-01T00:00:00Z", "sources": [], "lost": {}, "rejected": 0}
        assert client.post(BEATS, [beat]).status == 202
        publish(queue, "foreshock.events.x", b"no batch at all")
        publish(queue, "foreshock.events.x", b'{"no": "array"}')
        wait_for("all is stored", lambda: len(ids(any_engine)) == 4 and count(any_engine, schema.sidecars) == 1)
        wait_for("all is put aside", lambda: len(parked(queue)) == 3)
    assert ids(any_engine) == ["first-00000000", "gpu-017-00000001", "gpu-017-00000003", "gpu-017-00000004"]
    assert count(any_engine, schema.telemetry) == 1
    records = parked(queue)
    assert sorted(record["reason"][:7] for record in records) == ["'code' ", "a batch", "no JSON"]
    assert bad in [record["item"] for record in records]


@pytest.mark.integration
def test_nothing_is_lost_or_doubled_when_queue_and_consumers_are_killed(
    queue: Nats, client: NatsTransport, engine: sa.Engine
) -> None:
    """kill -9 of both in mid-flight, with two consumers side by side."""
    consumers = [start_consumer(queue, engine, "--batch", "5") for _ in range(2)]
    try:
        await_stream(client)
        accepted = {"first-00000000"}
        for turn in range(2):
            for number in range(25):
                batch = [event(turn * 1000 + number * 10 + item, f"gpu-{number % 7:03}") for item in range(3)]
                if number == 12:
                    queue.kill()
                    queue.start()
                wait_for("the queue takes it", lambda batch=batch: client.post(EVENTS, batch).status == 202)  # type: ignore[misc]
                accepted |= {record["id"] for record in batch}
            if turn == 0:
                consumers[0].kill()
                consumers[0].wait()
                consumers[0] = start_consumer(queue, engine, "--batch", "5")
        wait_for("all is stored", lambda: len(ids(engine)) >= len(accepted))
    finally:
        for process in consumers:
            stop(process, signal.SIGTERM)
    assert ids(engine) == sorted(accepted)


def nats_run(queue: Nats, work: Any) -> Any:
    """Something done with nats-py."""
    import asyncio

    from nats import connect

    async def run() -> Any:
        connection = await connect(queue.url)
        try:
            return await work(connection.jetstream())
        finally:
            await connection.close()

    return asyncio.run(run())


def publish(queue: Nats, subject: str, data: bytes) -> None:
    """A message as another program sends it."""
    nats_run(queue, lambda stream: stream.publish(subject, data))


def parked(queue: Nats) -> list[dict[str, Any]]:
    """What was put aside."""

    async def read(stream: Any) -> list[dict[str, Any]]:
        state = (await stream.stream_info("foreshock-rejected")).state
        messages = [await stream.get_msg("foreshock-rejected", seq) for seq in range(1, state.last_seq + 1)]
        return [json.loads(message.data) for message in messages]

    found: list[dict[str, Any]] = nats_run(queue, read)
    return found


@pytest.mark.integration
def test_a_consumer_that_waits_for_its_queue_ends_when_told_and_begins_when_it_comes(
    tmp_path: Path, engine: sa.Engine
) -> None:
    """A unit may start before NATS does, and is stopped while it waits: at once, and well."""
    queue = Nats(tmp_path)
    for comes in (False, True):
        process = start_consumer(queue, engine, stdout=subprocess.PIPE)
        assert process.stdout is not None
        assert b"Consuming" in process.stdout.readline()  # from here on it can be told to end
        if comes:
            queue.start()
            client = NatsTransport(queue.url, ServerAccess(timeout_s=patience(5)))
            await_stream(client)
            client.close()
        stop(process, signal.SIGTERM)
        process.stdout.close()
        assert process.returncode == 0
    queue.end()

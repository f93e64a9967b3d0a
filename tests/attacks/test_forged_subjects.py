"""Through NATS the subject says whose records they are: its permissions, and the consumer, hold a node to its own."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson
import pytest
import sqlalchemy as sa
from real.nats import Nats, nats
from real.patience import patience
from real.programs import stop, wait_for

from cli.queue.nats_stream import MOST_OF_A_SUBJECT, StreamSettings, ensure_stream
from collectors.ship.nats_transport import NatsTransport, connect
from collectors.ship.transport import ServerAccess
from store.tables import schema

EVENTS = "/api/v1/events"
TIME = datetime.now(UTC).isoformat()
pytestmark = [pytest.mark.integration, pytest.mark.xdist_group("nats")]

# As docs/tokens.md shows it: each node publishes to its own subjects, a fabric's collector to those of the fleet.
ACCOUNTS = """
authorization {
  users = [
    { user: gpu-001, password: one, permissions: {
        publish: [ "foreshock.*.gpu-001" ], subscribe: [ "_INBOX.>" ] } }
    { user: fabric, password: two, permissions: {
        publish: [ "foreshock.*.=" ], subscribe: [ "_INBOX.>" ] } }
    { user: store, password: three }
  ]
}
"""


@pytest.fixture
def queue(tmp_path: Path) -> Iterator[Nats]:
    """A server with accounts."""
    (tmp_path / "nats.conf").write_text(ACCOUNTS)
    with nats(tmp_path, "-c", str(tmp_path / "nats.conf")) as server:
        yield server


def address(queue: Nats, user: str) -> str:
    """Where a user of the accounts connects."""
    return queue.url.replace("//", f"//{user}@")


@contextmanager
def client(queue: Nats, user: str) -> Iterator[NatsTransport]:
    """A sidecar's way out."""
    made = NatsTransport(address(queue, user), ServerAccess(timeout_s=patience(1)))
    try:
        yield made
    finally:
        made.close()


@contextmanager
def consuming(queue: Nats, engine: sa.Engine) -> Iterator[None]:
    """`foreshock consume`."""
    url = engine.url.render_as_string(hide_password=False)
    command = [str(Path(sys.executable).parent / "foreshock"), "consume", "--ack-wait-s", "3"]
    given = {"FORESHOCK_DB": url, "FORESHOCK_NATS": address(queue, "store:three")}
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, env={**os.environ, **given})
    try:
        yield
    finally:
        stop(process, signal.SIGTERM)


def xid(node: str | None, **changes: Any) -> dict[str, Any]:
    """A GPU that fell off the bus."""
    return {"time": TIME, "node": node, "source": "kernel", "kind": "xid", "code": 79, "severity": "fatal"} | changes


def nodes(engine: sa.Engine) -> set[tuple[str, str]]:
    """Node and source of every stored event."""
    with engine.connect() as connection:
        rows = connection.execute(sa.select(schema.events.c.node, schema.events.c.source)).all()
    return {(row.node, row.source) for row in rows}


def parked(queue: Nats) -> list[dict[str, Any]]:
    """What was put aside."""

    async def read() -> list[dict[str, Any]]:
        from nats import connect

        connection = await connect(address(queue, "store:three"))
        try:
            stream = connection.jetstream()
            state = (await stream.stream_info("foreshock-rejected")).state
            found = [await stream.get_msg("foreshock-rejected", seq) for seq in range(1, state.last_seq + 1)]
            return [json.loads(message.data) for message in found]
        finally:
            await connection.close()

    return asyncio.run(read())


def test_the_token_file_holds_the_password_of_the_user_in_the_address(
    queue: Nats, engine: sa.Engine, tmp_path: Path
) -> None:
    """It stands in no argument; a wrong one is refused."""
    file = tmp_path / "password"
    file.write_text("one\n")

    def posted() -> int:
        made = NatsTransport(address(queue, "gpu-001"), ServerAccess(token_file=file, timeout_s=patience(1)))
        status = made.post(EVENTS, [xid("gpu-001")]).status
        made.close()
        return status

    with consuming(queue, engine):
        wait_for("the stream is there", lambda: posted() == 202)
        file.write_text("two\n")
        assert posted() != 202


def test_a_node_cannot_publish_for_another_nor_for_the_fleet(queue: Nats, engine: sa.Engine) -> None:
    """NATS itself refuses; what will never be taken is put aside by the shipper and blocks nothing."""
    with consuming(queue, engine), client(queue, "gpu-001:one") as own, client(queue, "fabric:two") as fabric:
        wait_for("the stream is there", lambda: own.post(EVENTS, [xid("gpu-001")]).status == 202)
        assert own.post(EVENTS, [xid("gpu-002")]).status == 401
        refused = own.post(EVENTS, [xid("gpu-001", source="opensm")])
        assert (refused.status, "foreshock.events.=" in refused.text) == (422, True)
        assert own.post(EVENTS, [xid("gpu-001", code=48)]).status == 202
        assert fabric.post(EVENTS, [xid("gpu-003", source="opensm"), xid("gpu-004", source="ufm")]).status == 202
        expected = {("gpu-001", "kernel"), ("gpu-003", "opensm"), ("gpu-004", "ufm")}
        wait_for("all is stored", lambda: nodes(engine) == expected)


def test_records_of_another_node_in_a_nodes_own_subject_are_put_aside(queue: Nats, engine: sa.Engine) -> None:
    """A program that is no sidecar of ours may write what it likes into its message."""
    forged = [xid("gpu-002"), xid("gpu-001"), xid("gpu-001", source="opensm"), xid(None)]

    async def publish() -> None:
        from nats import connect

        connection = await connect(address(queue, "gpu-001:one"))
        try:
            await connection.jetstream().publish("foreshock.events.gpu-001", orjson.dumps(forged))
        finally:
            await connection.close()

    with consuming(queue, engine):
        with client(queue, "gpu-001:one") as own:
            wait_for("the stream is there", lambda: own.post(EVENTS, [xid("gpu-001")]).status == 202)
        asyncio.run(publish())
        wait_for("three are put aside", lambda: len(parked(queue)) == 3, 30)
    assert nodes(engine) == {("gpu-001", "kernel")}
    assert sorted(record["item"]["node"] or "" for record in parked(queue)) == ["", "gpu-001", "gpu-002"]
    assert all(record["subject"] == "foreshock.events.gpu-001" for record in parked(queue))


def test_a_node_can_neither_read_what_others_send_nor_delete_the_queue(queue: Nats, engine: sa.Engine) -> None:
    """By its own user, which only publishes; what was stored before and comes after is untouched."""
    refused: list[str] = []

    async def noted(error: Exception) -> None:
        refused.append(str(error).lower())

    async def attack() -> None:
        from nats import connect
        from nats.errors import TimeoutError as NoAnswerError

        connection = await connect(address(queue, "gpu-001:one"), error_cb=noted)
        try:
            await connection.subscribe("foreshock.>")
            with pytest.raises(NoAnswerError):
                await connection.request("$JS.API.STREAM.DELETE.foreshock", b"", timeout=1)
        finally:
            await connection.close()

    with consuming(queue, engine), client(queue, "gpu-001:one") as own:
        wait_for("the stream is there", lambda: own.post(EVENTS, [xid("gpu-001")]).status == 202)
        asyncio.run(attack())
        assert own.post(EVENTS, [xid("gpu-001", code=48)]).status == 202
    assert sorted(("subscription" in error, "publish" in error) for error in refused) == [(False, True), (True, False)]


def test_a_node_that_floods_the_queue_fills_its_own_subject_alone(queue: Nats) -> None:
    """Nobody takes anything: its next message is refused for now, and what others send is taken all the same."""
    asyncio.run(_made(queue))
    with client(queue, "gpu-001:one") as node, client(queue, "fabric:two") as fabric:
        answers = [
            node.post(EVENTS, [{"node": "gpu-001", "source": "kernel", "kind": "xid", "time": TIME, "line": number}])
            for number in range(MOST_OF_A_SUBJECT + 3)
        ]
        assert [one.status for one in answers] == [202] * MOST_OF_A_SUBJECT + [503] * 3, answers[-1]
        beat = node.post("/api/v1/heartbeats", [{"node": "gpu-001", "time": TIME}])
        assert beat.status == 202, "its heartbeats have places of their own"
        assert fabric.post(EVENTS, [{"node": None, "source": "opensm", "kind": "sm_state", "time": TIME}]).status == 202


async def _made(queue: Nats) -> None:
    """The stream, as `foreshock consume` makes it."""
    store = await connect(address(queue, "store:three"), ServerAccess(timeout_s=patience(5)))
    await ensure_stream(store.jetstream(), StreamSettings("foreshock", "store", 100_000_000, 1, 30.0, 100))
    await store.close()

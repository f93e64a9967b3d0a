"""What one node takes of the server with its own token: its share, and nobody else's."""

import socket
import sqlite3
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from urllib.error import HTTPError
from urllib.parse import urlsplit

import orjson
import pytest
import sqlalchemy as sa
from real.foreshock import Running, serve
from real.programs import wait_for

from api.server.settings import RequestLimits, Token, expand_scopes
from store.nodes.tokens import digest_of
from store.records.hostlist import NodePattern

from .token_site import TIME, bearer, beat, made_client

LIMITS = RequestLimits()


def own(node: str) -> Token:
    """The token of a node; its text is the node's name and more."""
    return Token(node, digest_of(f"secret of {node}"), expand_scopes(["ingest"]), NodePattern.of(node))


def fault(node: str, number: int) -> bytes:
    """One event of a node."""
    return orjson.dumps(
        [{"time": TIME, "node": node, "source": "kernel", "kind": "xid", "code": 79, "message": str(number)}]
    )


def line(number: int) -> bytes:
    """One fault of the kernel's log."""
    return b"2025-03-01T11:00:00.%06d+00:00 gpu-001 kernel: NVRM: Xid (PCI:0000:0f:00): 79, pid=%d" % (number, number)


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Running]:
    """A server that knows two nodes' tokens."""
    tokens = "".join(
        f"  - {{name: {one.name}, sha256: {one.sha256}, scopes: [ingest], node: {one.name}}}\n"
        for one in map(own, ("gpu-001", "gpu-002"))
    )
    (tmp_path / "server.yaml").write_text(f"tokens:\n{tokens}")
    with serve(f"sqlite:///{tmp_path}/a.db", tmp_path, "--config", str(tmp_path / "server.yaml")) as running:
        yield running


def status(site: Running, node: str, body: bytes = b"[]") -> int:
    """What the server answers to a body of events."""
    try:
        site.post("/api/v1/events", body, bearer(f"secret of {node}"))
    except HTTPError as error:
        return error.code
    return 200


@contextmanager
def begun(site: Running, node: str, size: int, sent: int) -> Iterator[socket.socket]:
    """A body that does not go on after so many bytes."""
    address = urlsplit(site.url)
    with socket.create_connection((str(address.hostname), int(address.port or 0))) as peer:
        peer.settimeout(60)
        head = f"POST /api/v1/events HTTP/1.1\r\nHost: {address.netloc}\r\nContent-Length: {size}\r\n"
        head += f"Authorization: Bearer secret of {node}\r\n\r\n"
        with suppress(ConnectionError):  # who is refused on the way need not read on
            peer.sendall(head.encode() + b" " * sent)
        yield peer


def test_slow_bodies_of_one_node_take_its_own_places_alone(site: Running) -> None:
    """The next of the node is told 429, another node's is taken; with the bodies gone the node sends again."""
    with ExitStack() as peers:
        for _ in range(LIMITS.node_requests):
            peers.enter_context(begun(site, "gpu-001", 100, 10))
        wait_for("the server has begun to read them", lambda: status(site, "gpu-001") == 429)
        assert status(site, "gpu-002", fault("gpu-002", 1)) == 200
        assert 'foreshock_shed_total{reason="node_share"}' in site.text("/metrics")
    wait_for("the places are free again", lambda: status(site, "gpu-001") == 200)


def test_bodies_of_one_node_do_not_take_all_room_for_bodies(site: Running) -> None:
    """Two of 20 MB each are more than one body may have: the second is refused, another node's is taken."""
    size = 20 * 1024 * 1024
    with begun(site, "gpu-001", size, size - 1) as first, begun(site, "gpu-001", size, size - 1) as second:
        for peer in (first, second):
            peer.setblocking(False)
        refused: list[bytes] = []

        def answered() -> bool:
            for peer in (first, second):
                try:
                    refused.append(peer.recv(4096))
                except BlockingIOError:
                    continue
                except ConnectionError:
                    refused.append(b"")
            return bool(refused)

        wait_for("one of them is refused", answered)
        assert [answer for answer in refused if answer and b" 429 " not in answer.split(b"\r\n")[0]] == []
        assert 'foreshock_shed_total{reason="node_share"} 1.0' in site.text("/metrics")
        assert status(site, "gpu-002", fault("gpu-002", 1)) == 200


BODIES = {
    "events": lambda number: fault("gpu-001", number),
    "logs?format=kernel": line,
    "telemetry": lambda number: orjson.dumps(
        [{"node": "gpu-001", "time": TIME, "samples": 1, "gpus_seen": 8, "gpu_temp_max_c": 50.0 + number}]
    ),
}


@pytest.mark.parametrize("path", sorted(BODIES))
def test_records_of_one_node_are_counted_whatever_way_they_come(engine: sa.Engine, path: str) -> None:
    """More than its share is refused before it is read; its heartbeats are taken, and so is what others send."""
    limits = replace(LIMITS, node_records_per_s=0.0001, burst_s=100_000)  # ten records at once
    with made_client(engine, (own("gpu-001"), own("gpu-002")), limits) as client:

        def send(body: bytes, to: str = path, node: str = "gpu-001") -> int:
            return client.post(f"/api/v1/{to}", content=body, headers=bearer(f"secret of {node}")).status_code

        answers = [send(BODIES[path](number)) for number in range(14)]
        assert answers == [200] * 11 + [429] * 3
        assert send(b"\xff{") == 429  # not read at all
        beats = client.post("/api/v1/heartbeats", json=[beat("gpu-001")], headers=bearer("secret of gpu-001"))
        assert beats.status_code == 200
        assert send(fault("gpu-002", 1), "events", "gpu-002") == 200


def test_what_is_refused_of_a_node_s_own_token_counts_for_it(engine: sa.Engine) -> None:
    """Nobody shares the token: who goes on after a refusal comes to the end of its requests, too."""
    limits = replace(LIMITS, node_records_per_s=0.0001, requests_per_s=0.001, burst_s=20_000)  # 2 records, 20 requests
    with made_client(engine, (own("gpu-001"),), limits) as client:
        told = [
            client.post("/api/v1/events", content=fault("gpu-001", number), headers=bearer("secret of gpu-001"))
            for number in range(24)
        ]
        assert [answer.status_code for answer in told] == [200] * 3 + [429] * 21
        assert "too many records" in told[19].json()["detail"]
        assert "too many requests" in told[20].json()["detail"]


CROWD = [f"bad-{number:02}" for number in range(12)]


def test_several_nodes_together_take_their_own_turns_alone(tmp_path: Path) -> None:
    """Twelve nodes fill the line while the database stands still; what a thirteenth sends then, last of all, goes as
    its line comes: after one of each, not after all."""
    tokens = "".join(
        f"  - {{name: {one.name}, sha256: {one.sha256}, scopes: [ingest], node: {one.name}}}\n"
        for one in map(own, (*CROWD, "gpu-001"))
    )
    (tmp_path / "server.yaml").write_text(f"tokens:\n{tokens}limits: {{max_writes: 1}}\n")
    done: list[str] = []

    def send(site: Running, node: str, number: int) -> None:
        name = {"class": "gpu", "device": f"{node}/gpu{number}", "kind": "serial", "name": f"{node}-{number}"}
        taken = False
        while not taken:  # who looks whether all stand in line takes a place of theirs for a moment
            try:
                site.post("/api/v1/topology", orjson.dumps([name]), bearer(f"secret of {node}"))
                taken = True
            except HTTPError as error:
                assert error.code == 429
        done.append(node)

    with (
        serve(f"sqlite:///{tmp_path}/a.db", tmp_path, "--config", str(tmp_path / "server.yaml")) as site,
        closing(sqlite3.connect(tmp_path / "a.db", timeout=60, isolation_level=None)) as lock,
        ThreadPoolExecutor(60) as senders,
    ):
        send(site, "gpu-001", 0)
        done.clear()
        lock.execute("BEGIN IMMEDIATE")
        flood = [senders.submit(send, site, node, number) for node in CROWD for number in range(4)]
        # Who has four bodies in line is told 429: so it is seen that they stand in it.
        wait_for("the crowd stands in line", lambda: all(status(site, node) == 429 for node in CROWD))
        last = [senders.submit(send, site, "gpu-001", number) for number in range(1, 5)]
        wait_for("so does the last", lambda: status(site, "gpu-001") == 429)
        assert done == []
        lock.execute("ROLLBACK")
        for one in (*flood, *last):
            one.result()
    assert len(done) == 4 * len(CROWD) + 4
    assert done.index("gpu-001") <= 2 * len(CROWD), done

"""A header names a person only where the site's proxy set it, and no caller's address: on the real programs."""

import hashlib
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
import sqlalchemy as sa
import uvicorn
from real.foreshock import serve
from real.patience import patience
from streamlit.proto.BackMsg_pb2 import BackMsg
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg
from websockets.sync.client import connect
from websockets.typing import Origin, Subprotocol

from api.app import create_app
from api.server.people_settings import PeopleSettings, RoleMembers
from api.server.settings import ApiSettings, Intervals, Token
from cli.commands.dashboard import DashboardAddress, running
from cli.config.dashboard import DashboardSignIn
from cli.processes.children import free_port
from dashboard.bar.sign_in import SignIn, proxied
from store.database.connections import writing
from store.events.append import append_nodes
from store.records.node import Node

NOW = datetime(2025, 3, 1, 12, 0, tzinfo=UTC)
PROXY = "127.0.0.9"
TOKEN = Token("dashboard", hashlib.sha256(b"the dashboard's").hexdigest(), frozenset({"read", "on_behalf"}))


@pytest.fixture
def page(engine: sa.Engine, tmp_path: Path) -> Iterator[int]:
    """The port of a dashboard behind a proxy at 127.0.0.9, over a real API with one node."""
    with writing(engine).begin() as connection:
        append_nodes(connection, [Node("gpu-017", gpus=8)])
    settings = ApiSettings(
        tokens=(TOKEN,),
        people=PeopleSettings(roles=RoleMembers(viewer=("users",))),
        intervals=Intervals(score_s=0, policy_s=0, dispatch_s=0, ledgers_s=0, lemons_s=0, models_s=0),
    )
    server = uvicorn.Server(uvicorn.Config(create_app(settings, engine, lambda: NOW), port=0, log_level="warning"))
    thread = threading.Thread(target=server.run)
    thread.start()
    while not server.started:
        time.sleep(0.02)
    token = tmp_path / "token"
    token.write_text("the dashboard's\n")
    sign_in = DashboardSignIn("proxy", proxies=(PROXY,), hosts=("foreshock.example",))
    api = f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    place = DashboardAddress(api, port=free_port(), token_file=token, sign_in=sign_in)
    try:
        with running(place):
            yield place.port
    finally:
        server.should_exit = True
        thread.join()


def drawn(port: int, source: str, headers: list[tuple[str, str]]) -> str:
    """All that a page draws for a browser at an address that sends these headers."""
    with connect(
        f"ws://127.0.0.1:{port}/_stcore/stream",
        source_address=(source, 0),
        origin=Origin(f"http://127.0.0.1:{port}"),
        subprotocols=[Subprotocol("streamlit")],
        additional_headers=headers,
        proxy=None,
        max_size=None,
    ) as socket:
        asked = BackMsg()
        asked.rerun_script.query_string = ""
        socket.send(asked.SerializeToString())
        seen, until = "", time.monotonic() + patience(60)
        while time.monotonic() < until:
            message = ForwardMsg()
            message.ParseFromString(bytes(socket.recv(timeout=patience(60))))  # type: ignore[arg-type]  # it sends bytes
            seen += str(message)
            if message.WhichOneof("type") == "script_finished":
                return seen
    raise TimeoutError(seen[-2000:])


@pytest.mark.integration
def test_a_header_counts_from_the_proxy_alone(page: int) -> None:
    """Not from another address, nor by X-Forwarded-For, nor twice."""
    person = [("X-Forwarded-Email", "vera@example.com"), ("X-Forwarded-Groups", "users")]
    signed = drawn(page, PROXY, person)
    assert "vera@example.com" in signed
    assert "Nobody is signed in" not in signed
    spoofed = {
        "from elsewhere": ("127.0.0.1", person),
        "from elsewhere with X-Forwarded-For": ("127.0.0.1", [*person, ("X-Forwarded-For", PROXY)]),
        "from another machine": ("127.0.0.8", [*person, ("X-Forwarded-For", PROXY), ("X-Real-IP", PROXY)]),
        "beside the proxy's own": (PROXY, [*person, ("X-Forwarded-Email", "root@example.com")]),
        "without a name": (PROXY, [("X-Forwarded-Groups", "users")]),
        "in another header": (PROXY, [("Foreshock-Person", "vera@example.com"), ("Foreshock-Groups", "users")]),
    }
    for how, (source, headers) in spoofed.items():
        shown = drawn(page, source, headers)
        assert "Nobody is signed in" in shown, how
        assert "vera@example.com" not in shown, how
        assert "gpu-017" not in shown, how


def test_whose_word_counts() -> None:
    """Networks, and IPv4 written as IPv6; a name that cannot be sent is none."""
    way = SignIn("proxy", ("10.1.0.0/16", "fd00::7"))
    named = {way.person_header: ["vera@example.com"], way.groups_header: ["users", "oncall"]}
    told = {"Foreshock-Person": "vera@example.com", "Foreshock-Groups": "users,oncall"}
    for address in ("10.1.2.3", "::ffff:10.1.2.3", "fd00::7"):
        assert proxied(way, address, named) == told, address
    for address in ("10.2.0.1", "::ffff:10.2.0.1", "fd00::8", "unix", ""):
        assert proxied(way, address, named) is None, address
    for name in ("", "vera\r\nForeshock-Groups: root", "vëra", "x" * 9000):
        assert proxied(way, "10.1.2.3", named | {way.person_header: [name], way.groups_header: []}) is None, name


def test_who_guesses_tokens_cannot_change_its_address_by_a_header(tmp_path: Path) -> None:
    """As through a TLS proxy of the same machine, which passes on what a client says of itself."""
    config = tmp_path / "foreshock.yaml"
    secret = hashlib.sha256(b"a secret").hexdigest()
    token = f"tokens: [{{name: a, sha256: {secret}, scopes: [read]}}]"
    config.write_text(f"{token}\nlimits: {{requests_per_s: 0.001, burst_s: 2000}}\n")
    with serve(f"sqlite:///{tmp_path}/x.db", tmp_path, "--config", str(config)) as server:

        def guess(number: int) -> int:
            named = {"X-Forwarded-For": f"198.51.100.{number}", "Authorization": f"Bearer guess-{number}"}
            request = Request(f"{server.url}/api/v1/nodes", headers={**named, "X-Forwarded-Proto": "https"})
            with pytest.raises(HTTPError) as told:
                urlopen(request, timeout=patience(30))  # our own loopback
            told.value.close()
            return told.value.code

        assert [guess(number) for number in range(3)] == [401, 401, 429]

"""DNS rebinding: a page of elsewhere whose name leads to this machine gets no word of a server that asks nobody who it
is, nor of the dashboard.
"""

import http.client
import json
import socket
from collections.abc import Iterator
from datetime import UTC, datetime
from urllib.parse import urlsplit

import pytest
import sqlalchemy as sa
from fastapi.testclient import TestClient
from real.foreshock import Running, serve
from real.patience import patience
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect
from websockets.typing import Origin, Subprotocol

from api.app import create_app
from api.server.settings import ApiSettings, Intervals, Token
from cli.commands.dashboard import DashboardAddress, running
from cli.processes.children import free_port
from store.database.connections import migrate, open_database

PATHS = (
    "/api/v1/cluster",
    "/api/v1/audit",
    "/metrics",
    "/docs",
    "/openapi.json",
    "/livez",
    "/readyz",
    "/healthz",
    "/x",
)
NOW = datetime(2025, 3, 1, 12, 0, tzinfo=UTC)
QUIET = Intervals(score_s=0, policy_s=0, dispatch_s=0, ledgers_s=0, lemons_s=0, models_s=0)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """`foreshock serve` without tokens."""
    folder = tmp_path_factory.mktemp("server")
    url = f"sqlite:///{folder}/x.db"
    engine = open_database(url)
    migrate(engine)
    engine.dispose()
    with serve(url, folder) as running_server:
        yield running_server


def asked(server: Running, headers: list[tuple[str, str]], method: str = "GET", path: str = "/livez") -> int:
    """The status of a request with exactly these headers."""
    place = urlsplit(server.url)
    connection = http.client.HTTPConnection(str(place.hostname), place.port, timeout=patience(30))
    connection.putrequest(method, path, skip_host=True)
    body = json.dumps({"stop": "all", "reason": "a page of elsewhere"}).encode() if method == "POST" else b""
    for name, value in headers:
        connection.putheader(name, value)
    connection.putheader("Content-Length", str(len(body)))
    connection.putheader("Content-Type", "application/json")
    connection.endheaders(body)
    status = connection.getresponse().status
    connection.close()
    return status


@pytest.mark.integration
def test_no_page_is_served_under_another_name(server: Running) -> None:
    """Whatever the address; the port alone makes no name ours, nor does one that begins or ends with ours."""
    port = urlsplit(server.url).port
    names = ("evil.example", f"evil.example:{port}", f"localhost.evil.example:{port}", f"evil-localhost:{port}")
    for name in (
        *names,
        "127.0.0.1",
        "localhost",
        f"127.0.0.1:{(port or 0) + 1}",
        f"127.0.0.1:{port}@evil",
        "",
        "[::1",
    ):
        assert {asked(server, [("Host", name)], path=path) for path in PATHS} == {421}, name
    assert asked(server, [("Host", f"127.0.0.1:{port}"), ("Host", "evil.example")]) in (400, 421)
    assert asked(server, []) in (400, 421)


@pytest.mark.integration
def test_its_own_names_are_served(server: Running) -> None:
    """With its port, in any letters."""
    port = urlsplit(server.url).port
    for name in ("127.0.0.1", "localhost", "LocalHost", "[::1]"):
        assert asked(server, [("Host", f"{name}:{port}")]) == 200, name


@pytest.mark.integration
def test_a_page_of_elsewhere_stops_nothing(server: Running) -> None:
    """Not by its origin, not as a page without one, not from another port of this machine."""
    port = urlsplit(server.url).port
    own = ("Host", f"127.0.0.1:{port}")
    for origin in (
        "http://evil.example",
        f"http://evil.example:{port}",
        "null",
        "http://127.0.0.1:3000",
        "file://",
        "x",
    ):
        assert asked(server, [own, ("Origin", origin)], "POST", "/api/v1/stop") == 403, origin
        assert asked(server, [own, ("Origin", origin)]) == 403, origin
    assert server.get("/api/v1/stop")["stop"] == "none"
    assert asked(server, [own, ("Origin", f"http://localhost:{port}")], "POST", "/api/v1/stop") == 200
    assert server.get("/api/v1/stop")["stop"] == "all"
    page = server.text("/metrics")
    assert 'operation="unmatched",status="403"' in page  # refused, and counted


def test_hosts_is_the_whole_list_with_tokens_and_probes_are_free(engine: sa.Engine) -> None:
    """A kubelet asks an address; everybody else names the server as its operator does."""
    token = Token("ops", "0" * 64, frozenset({"read"}))
    settings = ApiSettings(tokens=(token,), hosts=("foreshock.example", "10.0.0.7:8443"), intervals=QUIET)
    client = TestClient(create_app(settings, engine, lambda: None), base_url="http://10.1.2.3:10870")  # type: ignore[arg-type, return-value]  # no route here asks the time
    for name, status in (("foreshock.example", 401), ("10.0.0.7:8443", 401), ("10.0.0.7", 421), ("evil.example", 421)):
        assert client.get("/api/v1/cluster", headers={"Host": name}).status_code == status, name
    assert client.get("/livez").status_code == 200
    assert client.get("/docs").status_code == 421


@pytest.fixture(scope="module")
def page(server: Running) -> Iterator[int]:
    """A dashboard's port."""
    with running(DashboardAddress(server.url, port=free_port())) as _child:
        yield _port_of(_child.args)


def _port_of(arguments: object) -> int:
    given = [str(word) for word in arguments] if isinstance(arguments, list) else []
    return int(next(word for word in given if word.startswith("--server.port=")).removeprefix("--server.port="))


def shaken(port: int, host: str, origin: str | None) -> int:
    """The status of a WebSocket's handshake with the dashboard: 101 where it is taken."""
    place = socket.create_connection(("127.0.0.1", port), timeout=patience(30))
    try:
        with connect(
            f"ws://{host}/_stcore/stream",
            sock=place,
            origin=None if origin is None else Origin(origin),
            subprotocols=[Subprotocol("streamlit")],
            proxy=None,
        ):
            return 101
    except InvalidStatus as refused:
        return refused.response.status_code


@pytest.mark.integration
def test_the_dashboards_socket_is_its_own_pages_alone(page: int) -> None:
    """Streamlit draws every page over it: a page of elsewhere gets none, under whatever name it asks."""
    assert shaken(page, f"127.0.0.1:{page}", f"http://127.0.0.1:{page}") == 101
    assert shaken(page, f"localhost:{page}", f"http://localhost:{page}") == 101
    assert shaken(page, f"evil.example:{page}", f"http://evil.example:{page}") == 403  # rebound
    assert shaken(page, f"evil.example:{page}", None) == 403


@pytest.mark.integration
def test_the_dashboards_program_interface_is_off(page: int) -> None:
    """Streamlit can be driven without a browser: not here."""
    connection = http.client.HTTPConnection("127.0.0.1", page, timeout=patience(30))
    connection.request("POST", "/_stcore/agent/interact", b"{}", {"Content-Type": "application/json"})
    assert connection.getresponse().status in (403, 404)
    connection.close()


@pytest.mark.parametrize("path", ["/api/v1/events/", "/api/v1/nodes/", "/livez/", "/docs/"])
def test_no_address_leads_to_the_host_that_a_request_names(any_engine: sa.Engine, path: str) -> None:
    """A slash too many is no redirect: a cache, or a client behind a terminator, would go there with its token."""
    settings = ApiSettings(tokens=(Token("a", "0" * 64, frozenset({"read"})),), intervals=QUIET)
    with TestClient(create_app(settings, any_engine, lambda: NOW), follow_redirects=False) as client:
        for method in ("GET", "POST"):
            answer = client.request(method, path, headers={"host": "evil.example"})
            assert (answer.status_code, answer.headers.get("location")) == (404, None)

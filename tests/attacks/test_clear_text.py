"""Who listens on the way reads no token: nothing of ours sends one over plain HTTP beyond its own machine."""

import http.server
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from foreshock_hook.save_request import SaveRequests
from real.foreshock import free_port
from real.patience import patience

from collectors.collector import SourceError, SourceSettings
from collectors.ship.transport import ServerAccess, Transport
from collectors.sources.prometheus import PrometheusAccess, PrometheusClient, PrometheusCollector
from dashboard.client import ApiAddress, ApiClient, ApiProblem
from schedulers.kubernetes.access import AccessError, of_kubeconfig
from wire.access.address import clear_text

FORESHOCK = str(Path(sys.executable).parent / "foreshock")
AWAY = "http://foreshock.example.org:10870"


@pytest.fixture
def token(tmp_path: Path) -> Path:
    """A token's file."""
    file = tmp_path / "token"
    file.write_text("a-secret-of-many-letters")
    file.chmod(0o600)
    return file


@pytest.mark.parametrize(
    ("url", "is_safe"),
    [
        ("https://foreshock.example.org", True),
        ("http://127.0.0.1:10870", True),
        ("http://localhost:10870", True),
        ("http://[::1]:10870", True),
        ("http://foreshock.example.org", False),
        ("http://10.0.0.7:10870", False),
        ("http://127.0.0.1.example.org", False),
        ("http://localhost.example.org", False),
        ("http://127.0.0.1@example.org", False),
        ("nats://queue:4222", False),
        ("tls://queue:4222", True),
    ],
)
def test_an_address_is_safe_where_tls_or_nobody_else_is_on_the_way(url: str, is_safe: bool) -> None:
    """By the host, not by how its name begins; the sentence names the remedy and no password."""
    why = clear_text(url)
    assert (why is None) is is_safe
    assert why is None or "docs/tls.md" in why
    assert "s3cret" not in (clear_text("http://u:s3cret@example.org") or "")


@pytest.mark.parametrize(
    "command",
    [
        ["sidecar", "--server", AWAY, "--source", "kmsg", "--spool", "spool", "--port", "0"],
        ["health", "gpu-001", "--server", AWAY],
        ["dashboard", "--server", AWAY, "--port", "0"],
    ],
)
def test_a_command_with_a_token_refuses_plain_http(tmp_path: Path, token: Path, command: list[str]) -> None:
    """Exit 2 at once, with the remedy. Without a token there is nothing to lose."""
    done = subprocess.run(
        [FORESHOCK, *command, "--token-file", str(token)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=patience(60),
    )
    assert done.returncode == 2, done.stderr
    assert "would carry the token in clear text" in done.stderr
    assert "https://" in done.stderr
    assert "--insecure-http" in done.stderr


def test_the_transport_itself_sends_nothing(token: Path) -> None:
    """Whoever made it, and whatever it was told before."""
    with closing(Transport(AWAY, ServerAccess(token_file=token))) as transport:
        answer = transport.post("/api/v1/events", [])
    assert answer.status == 0
    assert "clear text" in answer.text
    assert ServerAccess(token_file=token, insecure_http=True).refusal(AWAY) is None
    assert ServerAccess().refusal(AWAY) is None


def test_the_other_clients_refuse_it_too(tmp_path: Path, token: Path) -> None:
    """The dashboard's client, the reader of Prometheus, a kubeconfig's token, the hook of a training program."""
    with pytest.raises(ApiProblem, match="clear text"):
        ApiClient(ApiAddress(AWAY, "a-secret"))
    with pytest.raises(SourceError, match="clear text"):
        PrometheusCollector(f"{AWAY}#token_file={token}", SourceSettings(node="n"))
    with pytest.raises(ValueError, match="clear text"):
        SaveRequests(AWAY, "run-7", token_file=str(token))
    config = tmp_path / "kubeconfig"
    config.write_text(
        "{current-context: a, contexts: [{name: a, context: {cluster: c, user: u}}],"
        f" clusters: [{{name: c, cluster: {{server: '{AWAY}'}}}}], users: [{{name: u, user: {{token: x}}}}]}}"
    )
    with pytest.raises(AccessError, match="clear text"):
        of_kubeconfig(config, None)


class Redirecting(http.server.BaseHTTPRequestHandler):
    """Sends everybody elsewhere, and keeps what tokens came."""

    seen: list[tuple[str, str | None]]
    to: str

    def do_GET(self) -> None:
        """One request."""
        self.seen.append((self.path, self.headers.get("Authorization")))
        self.send_response(302)
        self.send_header("Location", f"{self.to}/stolen")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def do_POST(self) -> None:
        """As above."""
        self.do_GET()

    def log_message(self, *_: object) -> None:
        """Nothing."""


@pytest.fixture
def redirecting() -> Iterator[type[Redirecting]]:
    """A server that redirects to itself; `seen` are its requests."""
    port = free_port()
    handler = type("Handler", (Redirecting,), {"seen": [], "to": f"http://127.0.0.1:{port}"})
    with http.server.ThreadingHTTPServer(("127.0.0.1", port), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield handler
        server.shutdown()
        thread.join()


def test_no_token_follows_a_redirect(redirecting: type[Redirecting], token: Path) -> None:
    """One request each: where a redirect leads, the token does not go."""
    done = subprocess.run(
        [FORESHOCK, "health", "gpu-001", "--server", redirecting.to, "--token-file", str(token)],
        capture_output=True,
        text=True,
        check=False,
        timeout=patience(60),
    )
    assert done.returncode == 0, "a server that does not answer is no fault of the node"
    assert "302" in done.stderr
    client = PrometheusClient(PrometheusAccess(redirecting.to, None, token, patience(5)), sleep=lambda _s: None)
    with pytest.raises(SourceError, match="302"):
        list(client.query("up", 0))
    assert [path for path, _ in redirecting.seen if path == "/stolen"] == []
    assert {bearer for _, bearer in redirecting.seen} == {f"Bearer {token.read_text()}"}

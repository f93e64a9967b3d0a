"""`foreshock verdicts`: the list of a server, and its stream, over cuts and restarts of the server."""

import json
import ssl
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from real.certificates import Authority

from cli.commands import verdicts as command
from cli.main import foreshock

ONE = {"id": "v1", "state": "open", "rank": 1, "probability": 0.93, "class": "switch", "name": "leaf004"}
ONE |= {"since": "2026-03-01T12:00:00.000000Z", "nodes": ["a", "b"], "reason": "8 of 8 lost a rail", "what": "opened"}


@dataclass
class CutServer:
    """A server whose streams end early, each another way; what it was asked."""

    streams: list[bytes] = field(default_factory=list)
    asked: list[tuple[str, str | None]] = field(default_factory=list)
    url: str = ""
    http: ThreadingHTTPServer | None = None
    token: str | None = None


def event(number: int, **changes: Any) -> bytes:
    """One event of the stream."""
    data = json.dumps(ONE | changes).encode()
    return b": heartbeat\n\nid: %d\nevent: open\ndata: %s\n\n" % (number, data)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[CutServer]:
    """On loopback, over real sockets."""
    monkeypatch.setattr(command, "_AGAIN_S", 0.01)
    found = CutServer()

    class Answers(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            found.asked.append((self.path, self.headers.get("Last-Event-ID")))
            is_stream = self.path.endswith("/stream")
            body = json.dumps({"items": [ONE], "next_cursor": None}).encode()
            status = 200
            if is_stream:
                body = found.streams.pop(0) if found.streams else b""
                status = 200 if body else 403
                body = body or b'{"detail": "token lacks the scope read"}'
            if found.token is not None and self.headers.get("Authorization") != f"Bearer {found.token}":
                status, body = 401, b'{"detail": "send a known token"}'
            self.send_response(status)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            """Say nothing."""

    http = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
    thread = threading.Thread(target=http.serve_forever, daemon=True)
    thread.start()
    found.http = http
    found.url = f"http://127.0.0.1:{http.server_port}"
    yield found
    http.shutdown()
    http.server_close()
    thread.join()


def test_the_list_is_a_table_or_json(server: CutServer) -> None:
    """As the API has it."""
    done = CliRunner().invoke(foreshock, ["verdicts", "--server", server.url, "--state", "open", "--json"])
    assert (done.exit_code, json.loads(done.stdout)) == (0, [ONE])
    assert server.asked == [("/api/v1/verdicts?limit=100&state=open", None)]
    table = CliRunner().invoke(foreshock, ["verdicts", "--server", server.url]).stdout
    assert "leaf004" in table
    assert "8 of 8 lost a rail" in table


def test_a_stream_that_is_cut_goes_on_behind_its_last_event(server: CutServer) -> None:
    """At the end of an event, and within a line: nothing is lost, nothing comes twice. A refusal ends it."""
    server.streams = [event(7), event(8, state="closed") + event(9)[:-40], event(9, state="revised")]
    done = CliRunner().invoke(foreshock, ["verdicts", "--server", server.url, "--watch", "--json"])
    assert [json.loads(line)["state"] for line in done.stdout.splitlines()] == ["open", "closed", "revised"]
    assert [last for _path, last in server.asked] == [None, "7", "8", "9"]
    assert done.exit_code == 2
    assert "403: token lacks the scope read" in done.stderr


def test_what_is_watched_is_one_line_each_and_of_one_state_where_that_is_wanted(server: CutServer) -> None:
    """`open` means all that stand."""
    server.streams = [event(1) + event(2, state="closed") + event(3, state="revised", what="3 more nodes\x1b[31m")]
    done = CliRunner().invoke(foreshock, ["verdicts", "--server", server.url, "--watch", "--state", "open"])
    assert done.stdout.splitlines()[0] == "open 0.93 switch leaf004: opened: 8 of 8 lost a rail [v1]"
    assert len(done.stdout.splitlines()) == 2
    assert "\x1b" not in done.stdout


@pytest.mark.parametrize("more", [(), ("--watch",)])
def test_a_server_that_is_not_there_is_a_sentence(more: tuple[str, ...]) -> None:
    """Exit 2, with its address."""
    done = CliRunner().invoke(foreshock, ["verdicts", "--server", "http://127.0.0.1:9", *more])
    assert done.exit_code == 2
    told = "nothing listens there: start it with `foreshock serve`, or correct --server"
    assert done.stderr == f"Error: --server http://127.0.0.1:9: {told}\n"


def test_a_certificate_that_nobody_vouches_for_names_the_option(server: CutServer, tmp_path: Path) -> None:
    """A site's own authority is the usual case: the sentence says where it is given."""
    authority = Authority.make(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    signed = authority.sign("server", "DNS:localhost")
    context.load_cert_chain(signed.pem, signed.key)
    assert server.http is not None
    server.http.socket = context.wrap_socket(server.http.socket, server_side=True)
    port = server.url.rpartition(":")[2]
    done = CliRunner().invoke(foreshock, ["verdicts", "--server", f"https://localhost:{port}"])
    assert done.exit_code == 2
    assert done.stderr.endswith(
        "name the authority that signed it with --ca-file, and the host as the certificate does\n"
    )
    known = ["verdicts", "--server", f"https://localhost:{port}", "--ca-file", str(authority.pem)]
    assert CliRunner().invoke(foreshock, known).exit_code == 0


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (None, "--token-file: cannot read {file}: No such file or directory"),
        ("\n", "--token-file: {file} is empty: write the value into it"),
        ("wrong", "--token-file: the token in {file} is refused (401: send a known token): write a known one into it"),
    ],
)
def test_a_token_s_file_is_named_where_it_is_to_blame(
    server: CutServer, tmp_path: Path, text: str | None, told: str
) -> None:
    """And not the server's address."""
    file = tmp_path / "token"
    if text is not None:
        file.write_text(text)
    server.token = "right"
    done = CliRunner().invoke(foreshock, ["verdicts", "--server", server.url, "--token-file", str(file)])
    assert (done.exit_code, done.stderr) == (2, f"Error: {told.format(file=file)}\n")


def test_a_server_that_wants_a_token_says_which_option_gives_one(server: CutServer) -> None:
    """None was given."""
    server.token = "right"
    done = CliRunner().invoke(foreshock, ["verdicts", "--server", server.url])
    assert done.stderr == f"Error: --server {server.url}: 401: send a known token: give one with --token-file\n"

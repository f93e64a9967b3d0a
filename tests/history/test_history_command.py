"""What `foreshock ingest prometheus:URL` is given, and how it says what is wrong with it."""

import socket
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from cli.commands.ingest import ingest
from cli.console.errors import Failure
from cli.history.command import HistoryRange, length_of_option, moment_of_option
from cli.history.intake import whole_hours

NOW = datetime(2026, 3, 1, 12, 30, tzinfo=UTC)
NOTHING: dict[str, Any] = {
    "since": "1d",
    "until": None,
    "selectors": (),
    "step": None,
    "node_label": None,
    "tenant": None,
}


def run(tmp_path: Path, *words: str) -> Result:
    """The command with a database of its own."""
    return CliRunner().invoke(ingest, [*words, "--db", f"sqlite:///{tmp_path / 'x.db'}"])


@pytest.fixture
def guarded() -> Iterator[tuple[str, list[str]]]:
    """A server that lets nobody in, and the credentials that it was shown."""
    shown: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            shown.append(self.headers.get("Authorization", ""))
            self.send_response(401)
            self.end_headers()
            self.wfile.write(b"Unauthorized")

        def log_message(self, *_arguments: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}", shown
    server.shutdown()
    server.server_close()


def test_who_may_not_read_is_told_what_to_give(guarded: tuple[str, list[str]], tmp_path: Path) -> None:
    """Without credentials, with a token, with a password: each as it was given, and exit 2. No database is made."""
    url, shown = guarded
    (tmp_path / "token").write_text("sesame\n")
    (tmp_path / "basic").write_text("me:secret\n")
    for words in ([], ["--token-file", str(tmp_path / "token")], ["--basic-file", str(tmp_path / "basic")]):
        result = run(tmp_path, f"prometheus:{url}", "--since", "2d", *words)
        assert result.exit_code == 2
        assert f"{url} refuses: 401 Unauthorized: give --token-file, or --basic-file" in result.output
    assert shown == ["", "Bearer sesame", "Basic bWU6c2VjcmV0"]
    assert not (tmp_path / "x.db").exists()


def test_a_wrong_address_is_bad_input(tmp_path: Path) -> None:
    """In one sentence."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
    result = run(tmp_path, f"prometheus:{url}", "--since", "2d")
    assert result.exit_code == 2
    assert "gives no answer" in result.output
    assert "Traceback" not in result.output


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["prometheus:localhost:9090", "--since", "1d"], "give the server's address"),
        (["prometheus:", "--since", "1d"], "give the server's address"),
        (["prometheus:http://me:secret@host", "--since", "1d"], "and a password in --basic-file"),
        (["prometheus:http://host/#tenant=x", "--since", "1d"], "give the address alone"),
        (["prometheus:http://host"], "--since is missing"),
        (["prometheus:http://host", "--since", "yesterday"], "--since"),
        (["prometheus:http://host", "--since", "1d", "--until", "2d"], "is not before"),
        (["prometheus:http://host", "--since", "1d", "--step", "7m"], "a whole number of steps"),
        (["prometheus:http://host", "--since", "1d", "--step", "0s"], "write a length of time"),
        (["prometheus:http://host", "--since", "1d", "--match", "sum(up)"], "is no selector of series"),
        (["/nowhere", "--since", "1d"], "--since goes with prometheus:URL"),
        (["/nowhere", "--match", "up"], "--match goes with prometheus:URL"),
        (["/nowhere", "--insecure-http"], "--insecure-http goes with prometheus:URL"),
    ],
)
def test_options_that_cannot_be_meant_are_refused(words: list[str], said: str, tmp_path: Path) -> None:
    """Before anything is asked; a password is not printed."""
    result = run(tmp_path, *words)
    assert result.exit_code == 2
    assert said in result.output
    assert "secret@" not in result.output


@pytest.mark.parametrize(("minute", "is_over"), [(30, False), (5, False), (4, True), (0, True)])
def test_a_range_needs_an_hour_that_is_over(minute: int, is_over: bool) -> None:
    """Five minutes back from four minutes past reach into the hour before, which is read whole."""
    now = NOW.replace(minute=minute)
    if is_over:
        assert whole_hours(now - timedelta(minutes=5), now, now) == (
            NOW.replace(hour=11, minute=0),
            NOW.replace(minute=0),
        )
        return
    with pytest.raises(Failure, match="hold no whole hour that is over"):
        whole_hours(now - timedelta(minutes=5), now, now)


def test_a_secret_goes_over_no_open_way(tmp_path: Path) -> None:
    """Nor do two of them, nor one that is none."""
    (tmp_path / "token").write_text("sesame")
    (tmp_path / "bad").write_text("no-colon\nX: y")
    token, bad = str(tmp_path / "token"), str(tmp_path / "bad")
    for words, said in (
        (["prometheus:http://prometheus.example.org", "--token-file", token], "would carry the token in clear text"),
        (["prometheus:http://127.0.0.1:1", "--token-file", token, "--basic-file", token], "two ways in"),
        (["prometheus:http://127.0.0.1:1", "--basic-file", token], "is not USER:PASSWORD"),
        (["prometheus:http://127.0.0.1:1", "--token-file", bad], "holds what no token can"),
        (["prometheus:http://127.0.0.1:1", "--token-file", str(tmp_path / "none")], "cannot read"),
    ):
        result = run(tmp_path, *words, "--since", "2d")
        assert result.exit_code == 2
        assert said in result.output


def test_a_moment_is_a_time_a_day_or_so_long_ago() -> None:
    """In UTC where nothing else is said."""
    assert moment_of_option("2026-02-03", "--since", NOW) == datetime(2026, 2, 3, tzinfo=UTC)
    assert moment_of_option("2026-02-03T04:05:06+01:00", "--since", NOW) == datetime(2026, 2, 3, 3, 5, 6, tzinfo=UTC)
    assert moment_of_option("12h", "--since", NOW) == NOW - timedelta(hours=12)
    assert length_of_option("90s", "--step") == timedelta(seconds=90)
    with pytest.raises(Failure, match="--since 999999d"):
        moment_of_option("999999d", "--since", NOW)


def test_what_is_selected_otherwise_is_another_history() -> None:
    """What was taken of one choice says nothing of another's; the time does not count, nor the order of selectors."""
    url = "prometheus:http://host:9090/"

    def source(**changed: Any) -> str:
        return HistoryRange.of(url, NOTHING | changed, NOW).source

    assert source() == source(since="9d", until="1d") == "prometheus:http://host:9090"
    assert source(selectors=("b", "a")) == source(selectors=("a", "b"))
    different = {source(), source(step="5m"), source(tenant="x"), source(node_label="x"), source(selectors=("x",))}
    assert len(different) == 5

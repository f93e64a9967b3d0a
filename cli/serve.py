"""`foreshock serve`: the API and its background loops, until SIGTERM."""

import gc
import os
import resource
import signal
import socket
import sys
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from pathlib import Path

import click
import uvicorn

from api.app import create_app
from cli.clock import read_clock, real_clock
from cli.config import is_loopback, load_settings
from cli.errors import Failure
from cli.http_protocol import PatientProtocol
from cli.open import open_store
from cli.output import DB_OPTION
from parsers.rules import RulesError
from store.event import RecordError

DEFAULT_PORT = 10870
_SHUTDOWN_S = 5
# Longer than a sidecar's minute: a connection that rests costs 10 KB, one anew as much processor as its heartbeat.
_KEEP_ALIVE_S = 75
# Sidecars that all come back at once wait here; the kernel cuts it to net.core.somaxconn.
_BACKLOG = 4096
_MOST_CONNECTIONS = 20_000
_OTHER_FILES = 200
# Records have no cycles: looking for some after every 700 objects took a quarter of the processor of a flood.
_GC_AFTER = (50_000, 20, 100)
# A thread whose statement was answered waits so long for one that computes.
_SWITCH_S = 0.001


@click.command()
@DB_OPTION
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option(
    "--port", default=DEFAULT_PORT, show_default=True, type=click.IntRange(0, 65535), help="0 takes a free one."
)
@click.option("--config", "file", type=click.Path(path_type=Path), help="YAML file: tokens, policy, webhooks.")
@click.option("--replay-clock", hidden=True, help="START/END/EPOCH/SPEED: the present of a replay.")
def serve(url: str, host: str, port: int, file: Path | None, replay_clock: str | None) -> None:
    """Serve the API and run its background loops."""
    settings = load_settings(file, os.environ)
    if not settings.tokens and not is_loopback(host):
        raise Failure(
            f"--host {host} is open to others and no token is configured: "
            "add `tokens` to the --config file, or set FORESHOCK_TOKEN_FILE"
        )
    engine = open_store(url, create=True)
    try:
        app = create_app(settings, engine, _clock(replay_clock), wall=real_clock)
    except RulesError as error:
        raise Failure(str(error)) from error
    config = uvicorn.Config(
        app,
        host=host,
        port=port,
        http=PatientProtocol,
        log_level="warning",
        timeout_graceful_shutdown=_SHUTDOWN_S,
        timeout_keep_alive=_KEEP_ALIVE_S,
        limit_concurrency=_most_connections(),
        backlog=_BACKLOG,
        server_header=False,
        access_log=False,
    )
    _tune()
    # The server ends in good order on a signal and then raises it again: that, too, shall be a good end.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with suppress(KeyboardInterrupt):
        try:
            _Server(config).run()
        except SystemExit as error:
            raise Failure(f"cannot serve on {host}, port {port}: the line above says why") from error
        finally:
            engine.dispose()


def _tune() -> None:
    """Python for many records at once, in many threads."""
    gc.set_threshold(*_GC_AFTER)
    sys.setswitchinterval(_SWITCH_S)


def _most_connections() -> int:
    """As many as there are file descriptors for; what comes beyond is answered 503 at once."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _MOST_CONNECTIONS + _OTHER_FILES
    soft = max(soft, wanted) if hard == resource.RLIM_INFINITY or hard >= wanted else hard
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return max(1, min(_MOST_CONNECTIONS, soft - _OTHER_FILES))


class _Server(uvicorn.Server):
    """Says where it is once it answers."""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start listening, then print the address: with port 0 nobody knows it before."""
        await super().startup(sockets)
        # What is loaded by now stays. A full collection would look at all of it each time, and stop every request for
        # a tenth of a second.
        gc.collect()
        gc.freeze()
        if self.started and self.servers:
            host, port = self.servers[0].sockets[0].getsockname()[:2]
            shown = f"[{host}]" if ":" in host else host
            click.echo(f"API http://{shown}:{port}")


def _clock(replay: str | None) -> Callable[[], datetime]:
    """The present, or that of a replay."""
    if replay is None:
        return real_clock
    try:
        return read_clock(replay)
    except RecordError as error:
        raise Failure(f"--replay-clock: {error}") from error

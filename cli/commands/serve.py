"""`foreshock serve`: the API and its background loops, until SIGTERM."""

from __future__ import annotations

import gc
import os
import resource
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from cli.console.errors import Failure
from cli.console.output import DB_OPTION, print_text
from cli.console.store import open_store
from cli.processes.servers import MEMBER, MOST_PROCESSES, Member, Minded, listen, shown
from cli.replay.clock import read_clock, real_clock
from parsers.site_rules.rules import RulesError
from store.records.event import RecordError
from wire.access.address import is_loopback

if TYPE_CHECKING:
    import sqlalchemy as sa

    from api.server.settings import ApiSettings
    from cli.config.settings_file import Hangups, SettingsFile
    from cli.processes.tls import ServerTls

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
@click.option(
    "--processes",
    type=click.IntRange(1, MOST_PROCESSES),
    help="That share the port and the work, on PostgreSQL. [default: 1]",
)
@click.option("--replay-clock", hidden=True, help="START/END/EPOCH/SPEED: the present of a replay.")
def serve(
    url: str,
    host: str,
    port: int,
    file: Path | None,
    processes: int | None,
    replay_clock: str | None,
) -> None:
    """Serve the API and run its background loops."""
    from cli.config.server import load_settings
    from cli.config.settings_file import Hangups

    hangups = Hangups()
    signal.signal(signal.SIGHUP, hangups)  # from the first moment on: by itself it would be our end

    def read() -> ApiSettings:
        found = load_settings(file, os.environ)
        if not found.tokens and found.people is None and not is_loopback(host):
            raise Failure(
                f"--host {host} is open to others and no token is configured: "
                "add `tokens` to the --config file, or set FORESHOCK_TOKEN_FILE"
            )
        return found

    settings = read()
    started = _Start(settings, read, file, hangups, _clock(replay_clock))
    count = processes or settings.processes
    if (place := os.environ.pop(MEMBER, None)) is not None:
        _serve_one(started, open_store(url), Member.read(place))
    elif count > 1:
        _check_shareable(url, count)
        open_store(url, create=True).dispose()
        listener = listen(host, port, _BACKLOG)
        address = shown(listener, settings.tls.certificate is not None)
        # The database's password is nobody's who lists the processes.
        minded = Minded(listener, count, _handed_on(host, file, replay_clock), {"FORESHOCK_DB": url})
        minded.run(lambda: print_text(f"API {address}"))
    else:
        listen(host, port, _BACKLOG).close()  # said before anything is begun that would have to be ended
        _serve_one(started, open_store(url, create=True), (host, port))


def _check_shareable(url: str, count: int) -> None:
    if not url.startswith("postgresql"):
        raise Failure(
            f"{count} processes need PostgreSQL: SQLite has one writer at a time; leave --processes out, or name "
            "a --db postgresql+psycopg://..."
        )


def _handed_on(host: str, file: Path | None, replay_clock: str | None) -> list[str]:
    """The options of each of several processes."""
    given = {"--host": host, "--config": file, "--replay-clock": replay_clock}
    return [str(word) for pair in given.items() if pair[1] is not None for word in pair]


def share_of(settings: ApiSettings, count: int) -> ApiSettings:
    """The settings of one of several processes, whose rates together are those of the settings."""
    limits = settings.limits
    shared = replace(limits, requests_per_s=limits.requests_per_s / count, bytes_per_s=limits.bytes_per_s / count)
    return replace(settings, limits=shared)


@dataclass(frozen=True, slots=True)
class _Start:
    """What a process is started with: its settings, how they are read again, and what counts the signals for that."""

    settings: ApiSettings
    read: Callable[[], ApiSettings]
    file: Path | None
    hangups: Hangups
    clock: Callable[[], datetime]


def _followed(start: _Start, count: int) -> tuple[SettingsFile, ServerTls | None, ApiSettings]:
    """The settings of one of `count` processes, which a SIGHUP reads again; and its TLS."""
    from cli.config.settings_file import SettingsFile
    from cli.processes.tls import ServerTls

    settings = share_of(start.settings, count)
    try:
        tls = None if settings.tls.certificate is None else ServerTls(settings.tls)
    except Failure as error:
        raise Failure(f"{start.file or 'the environment'}, {error.message}") from error
    source = SettingsFile(settings, lambda: share_of(start.read(), count), start.file, tls)
    return source, tls, replace(settings, source=source)


def _serve_one(start: _Start, engine: sa.Engine, place: Member | tuple[str, int]) -> None:
    """Serve in this process, at an address or as one of several, until a signal."""
    # Modules are no garbage: to look for some while they load takes a fifth of the start's time. Begun again in Server.
    gc.disable()
    import uvicorn

    from api.app import create_app
    from api.server.metrics import Siblings
    from cli.config.settings_file import Reloader
    from cli.processes.http_server import PatientProtocol, Server

    member = place if isinstance(place, Member) else None
    source, tls, settings = _followed(start, 1 if member is None else member.count)
    try:
        app = create_app(settings, engine, start.clock, wall=real_clock)
    except RulesError as error:
        raise Failure(str(error)) from error
    sockets = None
    host, port = place if isinstance(place, tuple) else ("", 0)
    if member is not None:
        sockets = [member.take()]
        app.state.foreshock.metrics.share(Siblings(member.folder, member.number, member.count))
    config = uvicorn.Config(
        app,
        host=host,
        port=port,
        http=PatientProtocol,
        ws="none",
        loop="asyncio",  # uvloop takes one new connection a turn: in a flood of events nobody else got in
        ssl_context_factory=None if tls is None else lambda _config, _default: tls,
        log_level="warning",
        log_config=None,  # as every command logs
        timeout_graceful_shutdown=_SHUTDOWN_S,
        timeout_keep_alive=_KEEP_ALIVE_S,
        proxy_headers=False,  # who calls is the connection, whatever a client says of itself
        limit_concurrency=_most_connections(),
        backlog=_BACKLOG,
        server_header=False,
        access_log=False,
    )
    _tune()
    # The server ends in good order on a signal and then raises it again: that, too, shall be a good end.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with suppress(KeyboardInterrupt), Reloader(source, start.hangups, app.state.foreshock.reloaded):
        try:
            Server(config, member).run(sockets)
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


def _clock(replay: str | None) -> Callable[[], datetime]:
    """The present, or that of a replay."""
    if replay is None:
        return real_clock
    try:
        return read_clock(replay)
    except RecordError as error:
        raise Failure(f"--replay-clock: {error}") from error

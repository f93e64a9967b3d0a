"""`foreshock sidecar`: the node agent, until SIGTERM."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, get_args

import click

from cli.console.errors import Failure
from cli.console.output import LogFormatter
from collectors.agent.configuration import DEFAULT_PORT
from collectors.collector import SourceError
from collectors.registry import forms
from collectors.ship.transport import Compress
from collectors.spool.state import SpoolBusyError
from parsers.site_rules.rules import RulesError
from wire.access.address import shared_secret

if TYPE_CHECKING:
    from collectors.agent.sidecar import SidecarSettings

_PATH = click.Path(path_type=Path)


@click.command()
@click.option("--server", multiple=True, metavar="URL", help="The API's address; repeat for more: one is preferred.")
@click.option("--token-file", type=_PATH, help="File with a token of scope `ingest`.")
@click.option("--join-token-file", type=_PATH, help="File with a join token: the node gets a token of its own with it.")
@click.option("--ca-file", type=_PATH, help="File with the authority that signed the server's certificate.")
@click.option("--cert-file", type=_PATH, help="File with a client certificate (and its key, where no --key-file).")
@click.option("--key-file", type=_PATH, help="File with the client certificate's key.")
@click.option("--insecure-http", is_flag=True, help="Send the token over http:// too: a mesh or tunnel encrypts it.")
@click.option("--compress", type=click.Choice(get_args(Compress)), help="Of what is sent. [default: zstd]")
@click.option("--node", help="This node's name. [default: the host name]")
@click.option("--source", multiple=True, metavar="SPEC", help=f"{forms()}; repeat.")
@click.option(
    "--fleet-source",
    multiple=True,
    metavar="SPEC",
    help="A source that speaks of many nodes: a central syslog.",
)
@click.option("--spool", type=_PATH, help="Folder that keeps what the server has not taken yet.")
@click.option("--spool-fsync", metavar="WHEN", help="`always`, or every so many seconds. [default: always]")
@click.option(
    "--port", type=click.IntRange(0, 65535), help=f"Port of its own metrics; 0: none. [default: {DEFAULT_PORT}]"
)
@click.option("--listen", help="Address of its own metrics. [default: 127.0.0.1]")
@click.option("--textfile", type=_PATH, help="PATH.prom: its metrics for node_exporter's textfile collector.")
@click.option("--rules", type=_PATH, help="YAML file: how this site reads faults.")
@click.option("--scrape-interval", "scrape_interval_s", type=click.FloatRange(min=0.1), help="Seconds. [default: 15]")
@click.option(
    "--heartbeat-interval", "heartbeat_interval_s", type=click.FloatRange(min=0.1), help="Seconds. [default: 60]"
)
@click.option("--log-level", type=click.Choice(["debug", "info", "warning", "error"]), help="[default: info]")
@click.option("--config", "file", type=_PATH, help="YAML file with the same keys; options win. Read again on change.")
def sidecar(file: Path | None, **options: Any) -> None:
    """Follow this node's sources and ship what they say of faults to the server."""
    from cli.config.sidecar import load, settings_from
    from collectors.agent.configuration import ConfigError, Configuration
    from collectors.agent.sidecar import Notifier, run

    settings = settings_from(options, load(file), os.environ)

    def load_again() -> SidecarSettings:
        try:
            return settings_from(options, load(file), os.environ)
        except Failure as error:
            raise ConfigError(error.message) from error

    stop, again = threading.Event(), threading.Event()

    def end() -> None:
        stop.set()
        again.set()  # what waits for this one sees the other

    with (
        _logging(),
        _on_signals({signal.SIGTERM: end, signal.SIGINT: end, signal.SIGHUP: again.set}),
        Notifier(os.environ.get("NOTIFY_SOCKET")) as notifier,
    ):
        for secret in (settings.token_file, settings.key_file):
            if (why := shared_secret(secret)) is not None:
                logging.getLogger("foreshock.sidecar").warning("%s", why)
        try:
            run(settings, stop, notifier.alive, Configuration(file, load_again, again, notifier.reloading))
        except (SourceError, SpoolBusyError, RulesError) as error:
            raise Failure(str(error)) from error
        except OSError as error:
            raise Failure(
                f"cannot start: {error}; check --spool {settings.spool} and --port {settings.port}"
            ) from error


@contextmanager
def _logging() -> Iterator[None]:
    """What the sidecar says goes to standard error, where the service manager keeps it."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(LogFormatter())
    logger = logging.getLogger("foreshock.sidecar")
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    logger.propagate = False  # not a second time, by the handler of every command
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.propagate = True


@contextmanager
def _on_signals(actions: dict[signal.Signals, Callable[[], None]]) -> Iterator[None]:
    """Signals do these; as it was before, afterwards."""

    def act(number: int, _frame: FrameType | None) -> None:
        actions[signal.Signals(number)]()

    before = {number: signal.signal(number, act) for number in actions}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)

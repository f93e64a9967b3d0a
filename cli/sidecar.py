"""`foreshock sidecar`: the node agent, until SIGTERM."""

import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, tzinfo
from pathlib import Path
from types import FrameType
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import click

from cli.errors import Failure
from collectors.collector import SourceError
from collectors.notify import Notifier
from collectors.sidecar import DEFAULT_PORT, SidecarSettings, run
from collectors.spool import SpoolBusyError
from parsers.rules import RulesError

_TEXTS = ("server", "node", "listen", "zone")
_PATHS = ("token_file", "spool", "rules")
_NUMBERS = ("port", "scrape_interval_s", "rollup_interval_s", "spool_max_bytes", "linger_s")
_KEYS = (*_TEXTS, *_PATHS, *_NUMBERS, "source")


@click.command()
@click.option("--server", help="The API's address, as in https://foreshock.example.org.")
@click.option("--token-file", type=click.Path(path_type=Path), help="File with a token of scope `ingest`.")
@click.option("--node", help="This node's name. [default: the host name]")
@click.option("--source", multiple=True, metavar="SPEC", help="kmsg, journal, file:PATH[:FORMAT], scrape:URL; repeat.")
@click.option("--spool", type=click.Path(path_type=Path), help="Folder that keeps what the server has not taken yet.")
@click.option(
    "--port", type=click.IntRange(0, 65535), help=f"Port of its own metrics; 0: none. [default: {DEFAULT_PORT}]"
)
@click.option("--listen", help="Address of its own metrics. [default: 127.0.0.1]")
@click.option("--rules", type=click.Path(path_type=Path), help="YAML file: how this site reads faults.")
@click.option("--scrape-interval", "scrape_interval_s", type=click.FloatRange(min=0.1), help="Seconds. [default: 15]")
@click.option("--config", "file", type=click.Path(path_type=Path), help="YAML file with the same keys; options win.")
def sidecar(file: Path | None, **options: Any) -> None:
    """Follow this node's sources and ship what they say of faults to the server."""
    settings = settings_from(options, load(file), os.environ)
    stop = threading.Event()
    with _logging(), _stopping_on_signals(stop), Notifier(os.environ.get("NOTIFY_SOCKET")) as notifier:
        try:
            run(settings, stop, notifier.alive)
        except (SourceError, SpoolBusyError, RulesError) as error:
            raise Failure(str(error)) from error
        except OSError as error:
            raise Failure(
                f"cannot start: {error}; check --spool {settings.spool} and --port {settings.port}"
            ) from error


def load(file: Path | None) -> dict[str, Any]:
    """The configuration file's keys, `-` read as `_`.

    Raises:
        Failure: it cannot be read, is no YAML mapping, or holds a key that is not known.
    """
    if file is None:
        return {}
    import yaml  # only here: without a file the sidecar does without its memory

    try:
        content = yaml.safe_load(file.read_text(encoding="utf-8")) or {}
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise Failure(f"{file} cannot be read: {str(error).splitlines()[0]}") from error
    if not isinstance(content, dict):
        raise Failure(f"{file} holds no keys: write `server: https://...` and the like")
    found = {str(key).replace("-", "_"): value for key, value in content.items()}
    unknown = sorted(found.keys() - set(_KEYS))
    if unknown:
        raise Failure(f"{file}: {unknown[0]!r} is no key: use {', '.join(_KEYS)}")
    return found


def settings_from(options: Mapping[str, Any], file: Mapping[str, Any], environ: Mapping[str, str]) -> SidecarSettings:
    """Options over environment over file over defaults.

    Raises:
        Failure: something is missing or of the wrong kind.
    """
    values = dict(file)
    values.update(
        {
            key[10:].lower(): text
            for key, text in environ.items()
            if key[10:].lower() in _KEYS and key.startswith("FORESHOCK_")
        }
    )
    values.update({key: value for key, value in options.items() if value not in (None, ())})
    sources = values.pop("source", ())
    chosen: dict[str, Any] = {"sources": _sources(sources), "node": socket.gethostname(), "spool": _spool(environ)}
    for key, value in values.items():
        chosen[key] = _typed(key, value)
    if not chosen.get("server"):
        raise Failure("--server is missing: give the API's address, as in --server http://127.0.0.1:10870")
    if not str(chosen["server"]).startswith(("http://", "https://")):
        raise Failure(f"--server {chosen['server']!r} is no address: it begins with http:// or https://")
    chosen["zone"] = _zone(chosen.get("zone"), environ)
    return SidecarSettings(**chosen)


def _typed(key: str, value: Any) -> Any:
    try:
        if key in _PATHS:
            return Path(value)
        if key in _NUMBERS:
            number = float(value)
            if number >= 0:
                return int(number) if key in ("port", "spool_max_bytes") else number
        else:
            return str(value)
    except (TypeError, ValueError) as error:
        raise Failure(f"{key} is {value!r}: that does not fit") from error
    raise Failure(f"{key} is {value!r}: it must not be negative")


def _sources(value: Any) -> tuple[str, ...]:
    specs = tuple(value.split()) if isinstance(value, str) else tuple(map(str, value or ()))
    if not specs:
        raise Failure("--source is missing: give kmsg, journal, file:PATH[:FORMAT] or scrape:URL")
    return specs


def _spool(environ: Mapping[str, str]) -> Path:
    """Where systemd says, else the system's place for root, else the user's."""
    if environ.get("STATE_DIRECTORY"):
        return Path(environ["STATE_DIRECTORY"].split(":")[0])
    if os.geteuid() == 0:
        return Path("/var/lib/foreshock")
    return Path(environ.get("XDG_STATE_HOME") or Path.home() / ".local/state") / "foreshock"


def _zone(name: str | None, environ: Mapping[str, str]) -> tzinfo:
    """The zone of timestamps that bear none: as told, else this machine's."""
    link = Path("/etc/localtime").resolve()
    for candidate in (name, environ.get("TZ"), str(link).partition("zoneinfo/")[2]):
        if candidate:
            try:
                return ZoneInfo(candidate.removeprefix(":"))
            except (ZoneInfoNotFoundError, ValueError, OSError) as error:
                if candidate == name:
                    raise Failure(f"zone {name!r} is not known: write it as Europe/Berlin") from error
    return datetime.now(UTC).astimezone().tzinfo or UTC


@contextmanager
def _logging() -> Iterator[None]:
    """What the sidecar says goes to standard error, where the service manager keeps it."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(levelname)s %(message)s"))
    logger = logging.getLogger("foreshock.sidecar")
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.removeHandler(handler)


@contextmanager
def _stopping_on_signals(stop: threading.Event) -> Iterator[None]:
    """SIGTERM and SIGINT set the event; as it was before, afterwards."""

    def ask(_number: int, _frame: FrameType | None) -> None:
        stop.set()

    before = {number: signal.signal(number, ask) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)

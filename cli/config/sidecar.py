"""What `foreshock sidecar` is told: options over environment over file over defaults."""

import os
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, datetime, tzinfo
from pathlib import Path
from typing import Any, get_args
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from cli.console.errors import Failure
from collectors.agent.sidecar import SidecarSettings
from collectors.agent.supervisor import Hosts, SourceSpec
from collectors.collector import SourceError
from collectors.registry import forms
from collectors.ship.transport import Compress
from collectors.trust import checked_trust
from store.records.event import RecordError
from store.records.event_sources import Trust
from store.records.hostlist import check_node_name
from wire.access.address import INSECURE_OPTION

_TEXTS = ("node", "listen", "zone")
_PATHS = ("token_file", "join_token_file", "ca_file", "cert_file", "key_file", "spool", "rules", "textfile")
_NUMBERS = (
    "port",
    "scrape_interval_s",
    "rollup_interval_s",
    "heartbeat_interval_s",
    "turn_limit_s",
    "spool_max_bytes",
    "linger_s",
)
_WHOLE = frozenset({"port", "spool_max_bytes"})
_POSITIVE = frozenset({"scrape_interval_s", "heartbeat_interval_s", "turn_limit_s", "spool_max_bytes"})
_YES, _NO = frozenset({"true", "yes", "on", "1"}), frozenset({"false", "no", "off", "0"})
_WORDS: Mapping[str, Sequence[str]] = {
    "compress": get_args(Compress),
    "log_level": ("debug", "info", "warning", "error"),
}
_FLAGS = ("insecure_http",)
KEYS = ("server", "source", "fleet_source", *_TEXTS, *_PATHS, *_NUMBERS, *_WORDS, *_FLAGS, "spool_fsync")
_SOURCE_KEYS = ("source", *(each.name for each in fields(SourceSpec) if each.name != "spec"))


@dataclass(frozen=True, slots=True)
class File:
    """A configuration file's keys, `-` read as `_`, and the line of each."""

    values: Mapping[str, Any] = field(default_factory=dict)
    places: Mapping[str, str] = field(default_factory=dict)  # key to FILE:LINE


def load(path: Path | None) -> File:
    """A configuration file.

    Raises:
        Failure: it cannot be read, is no YAML mapping, or holds a key that is not known.
    """
    if path is None:
        return File()
    import yaml  # only here: without a file the sidecar does without its memory

    try:
        text = path.read_text(encoding="utf-8")
        content = yaml.safe_load(text)
        node = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        line = "" if mark is None else f":{mark.line + 1}"
        raise Failure(f"{path}{line}: this is no YAML: {error.problem or error.context}; correct the line") from error
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise Failure(f"{path} cannot be read: {str(error).splitlines()[0]}") from error
    if content is None:
        return File()
    if not isinstance(content, dict) or not isinstance(node, yaml.MappingNode):
        raise Failure(f"{path} holds no keys: write `server: https://...` and the like")
    places = {_name(key.value): f"{path}:{key.start_mark.line + 1}" for key, _value in node.value}
    found = {_name(key): value for key, value in content.items()}
    for key in found:
        if key not in KEYS:
            raise Failure(f"{places[key]}: {key!r} is no key: use {', '.join(KEYS)}")
    return File(found, places)


def _name(key: Any) -> str:
    return str(key).replace("-", "_")


def settings_from(options: Mapping[str, Any], file: File, environ: Mapping[str, str]) -> SidecarSettings:
    """Options over environment over file over defaults.

    Raises:
        Failure: something is missing or of the wrong kind.
    """
    values: dict[str, tuple[Any, str]] = {key: (value, file.places[key]) for key, value in file.values.items()}
    for name, text in environ.items():
        if name.startswith("FORESHOCK_") and (key := name[10:].lower()) in KEYS:
            values[key] = (text, name)
    for key, value in options.items():
        if value not in (None, ()) and value is not False:  # a flag that was not given
            values[key] = (value, "--" + key.removesuffix("_s").replace("_", "-"))
    chosen: dict[str, Any] = {"node": socket.gethostname(), "spool": _spool(environ), "sources": ()}
    for key, (value, place) in values.items():
        if key == "source":
            chosen["sources"] = (*chosen["sources"], *_sources(value, place))
        elif key == "fleet_source":
            fleet = (replace(source, hosts="many") for source in _sources(value, place))
            chosen["sources"] = (*chosen["sources"], *fleet)
        elif key == "spool_fsync":
            chosen["spool_fsync_s"] = _fsync_s(value, place)
        elif key == "server":
            chosen["server"] = _servers(value, place)
        else:
            chosen[key] = _typed(key, value, place)
    if not chosen["sources"]:
        raise Failure(f"--source is missing: give {forms()}")
    if not chosen.get("server"):
        raise Failure("--server is missing: give the API's address, as in --server http://127.0.0.1:10870")
    chosen["node"] = _node(chosen["node"], values["node"][1] if "node" in values else "the host name")
    chosen["zone"] = _zone(chosen.get("zone"), environ)
    settings = SidecarSettings(**chosen)
    _check_way(settings, values["server"][1])
    return settings


def _check_way(settings: SidecarSettings, place: str) -> None:
    """No token goes over http:// beyond this machine. What a queue asks for is known when it is reached."""
    if settings.join_token_file is not None and not any(url.startswith("http") for url in settings.servers):
        raise Failure(f"{place}: a queue gives no token: name the API's address too, or leave --join-token-file out")
    for url in settings.servers:
        why = None if url.startswith("nats://") else settings.access.refusal(url)
        if why is not None:
            raise Failure(f"{place}: {why}; or {INSECURE_OPTION}, where a mesh or tunnel encrypts the way")


def _typed(key: str, value: Any, place: str) -> Any:
    if key in _FLAGS:
        if str(value).lower() not in _YES | _NO:
            raise Failure(f"{place}: {key} is {value!r}: write true or false")
        return str(value).lower() in _YES
    if key in _NUMBERS:
        return _number(key, value, place)
    if not isinstance(value, str | Path | int | float) or isinstance(value, bool) or not str(value):
        raise Failure(f"{place}: {key} is {value!r}: write one value, as text")
    if key in _PATHS:
        return Path(str(value))
    if key in _WORDS and value not in _WORDS[key]:
        raise Failure(f"{place}: {key} is {value!r}: use one of {', '.join(_WORDS[key])}")
    return str(value)


def _number(key: str, value: Any, place: str) -> float | int:
    try:
        number = float("nan" if isinstance(value, bool) else value)
    except (TypeError, ValueError) as error:
        raise Failure(f"{place}: {key} is {value!r}: write a number") from error
    if not number >= 0 or number == float("inf") or (number == 0 and key in _POSITIVE):
        least = "above 0" if key in _POSITIVE else "that is not negative"
        raise Failure(f"{place}: {key} is {value!r}: write a number {least}")
    return int(number) if key in _WHOLE else number


def _fsync_s(value: Any, place: str) -> float:
    if value == "always":
        return 0.0
    return _number("spool_fsync (`always`, or seconds)", value, place)


def _servers(value: Any, place: str) -> tuple[str, ...]:
    found = tuple(value.replace(",", " ").split()) if isinstance(value, str) else value
    if not isinstance(found, list | tuple) or not all(isinstance(each, str) for each in found):
        raise Failure(f"{place}: server is {value!r}: write an address, or a list of them")
    for url in found:
        if not url.startswith(("http://", "https://", "nats://", "tls://")):
            raise Failure(f"{place}: {url!r} is no address: it begins with http:// or https:// (or nats://, tls://)")
    return tuple(found)


def _sources(value: Any, place: str) -> tuple[SourceSpec, ...]:
    given = value.split() if isinstance(value, str) else value
    if not isinstance(given, list | tuple):
        raise Failure(f"{place}: source is {value!r}: write a list of {forms()}")
    return tuple(_source(each, place) for each in given)


def _source(given: Any, place: str) -> SourceSpec:
    """A SPEC, or a mapping of `source` and what is its own."""
    if isinstance(given, str):
        return _spec(given, place)
    if not isinstance(given, dict) or not isinstance(given.get("source"), str):
        raise Failure(f"{place}: {given!r} is no source: write a SPEC, or {{source: SPEC, interval_s: 30}}")
    unknown = [str(key) for key in given if key not in _SOURCE_KEYS]
    if unknown:
        raise Failure(f"{place}: {unknown[0]!r} is no key of a source: use {', '.join(_SOURCE_KEYS)}")
    written = _spec(given["source"], place)
    trust = given.get("trust")
    return replace(
        written,
        interval_s=_seconds(given, "interval_s", place),
        timeout_s=_seconds(given, "timeout_s", place),
        format=None if given.get("format") is None else str(given["format"]),
        node=None if given.get("node") is None else _node(str(given["node"]), place),
        hosts=_hosts(given.get("hosts"), place),
        trust=written.trust if trust is None else _trust(trust, place),
    )


def _spec(text: str, place: str) -> SourceSpec:
    try:
        return SourceSpec.of(text)
    except SourceError as error:
        raise Failure(f"{place}: {error}") from error


def _trust(word: Any, place: str) -> Trust:
    try:
        return checked_trust(place, str(word))
    except SourceError as error:
        raise Failure(str(error)) from error


def _hosts(value: Any, place: str) -> Hosts | None:
    if value is not None and value not in get_args(Hosts):
        raise Failure(f"{place}: hosts is {value!r}: write one, or many for a log or page that speaks of many nodes")
    found: Hosts | None = value
    return found


def _node(text: str, place: str) -> str:
    try:
        return check_node_name(text)
    except RecordError as error:
        raise Failure(f"{place}: {error}; name it with --node") from error


def _seconds(given: Mapping[str, Any], key: str, place: str) -> float | None:
    if given.get(key) is None:
        return None
    number = _number(key, given[key], place)
    if number == 0:
        raise Failure(f"{place}: {key} is 0: write a number of seconds above 0")
    return number


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

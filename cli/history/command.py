"""`foreshock ingest prometheus:URL`: its options, what they mean together, and what is printed.

    foreshock ingest prometheus:https://prometheus.example.org --since 2026-10-01 --db sqlite:///foreshock.db

Imports what is heavy inside its functions: `foreshock ingest --help` comes at once.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import click

from cli.console.errors import Failure
from cli.console.files import secret_file
from cli.console.output import print_json, print_text, progress_bar
from cli.console.store import open_store
from store.plural import many
from store.records.event import RecordError, format_time, parse_time
from wire.access.address import clear_text, shared_secret

if TYPE_CHECKING:
    from cli.history.intake import HistorySummary

SCHEME = "prometheus:"
_LENGTH = re.compile(r"(?P<number>\d{1,6})(?P<unit>[smhd])", re.ASCII)
_UNITS = {"s": timedelta(seconds=1), "m": timedelta(minutes=1), "h": timedelta(hours=1), "d": timedelta(days=1)}
_MOST_TOLD = 20
_FILE = click.Path(path_type=Path, dir_okay=False)
_OPTIONS = (
    click.option("--since", help="Of prometheus:URL: from when on; 2026-10-01, 2026-10-01T12:00:00Z, or 30d ago."),
    click.option("--until", help="Of prometheus:URL: until when [default: now]."),
    click.option(
        "--match",
        "selectors",
        multiple=True,
        metavar="SELECTOR",
        help="Of prometheus:URL: series to take in place of the metrics that are known. May be given several times.",
    ),
    click.option("--step", help="Of prometheus:URL: keep the last sample of each 5m, 1h ... [default: every sample]."),
    click.option("--node-label", help="Of prometheus:URL: the label that names the node."),
    click.option("--token-file", type=_FILE, help="Of prometheus:URL: file with a bearer token."),
    click.option("--basic-file", type=_FILE, help="Of prometheus:URL: file with USER:PASSWORD."),
    click.option("--tenant", help="Of prometheus:URL: the header X-Scope-OrgID, for Mimir."),
    click.option(
        "--insecure-http", is_flag=True, help="Send the token over http:// too: a mesh or tunnel encrypts it."
    ),
)
# What an archive has no use for: given with one, it is a mistake.
_OF_HISTORY = {"selectors": "--match", "insecure_http": "--insecure-http"} | {
    name: f"--{name.replace('_', '-')}"
    for name in ("since", "until", "step", "node_label", "token_file", "basic_file", "tenant")
}


def history_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options of an import of history."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def refuse_history_options(given: Mapping[str, Any]) -> None:
    """See that an archive is given none of them.

    Raises:
        Failure: it is given one.
    """
    for name, option in _OF_HISTORY.items():
        if given[name]:
            raise Failure(f"{option} goes with prometheus:URL: an archive is taken whole")


@dataclass(frozen=True, slots=True)
class HistoryRange:
    """What the command line asks for. `step_ms` is 0 for every sample."""

    url: str
    since: datetime
    until: datetime
    selectors: tuple[str, ...] = ()
    step_ms: int = 0
    node_label: str | None = None
    tenant: str | None = None

    @property
    def source(self) -> str:
        """What tells stretches of one choice from others': no time, no secret."""
        words = [f"{SCHEME}{self.url}", *(f"match={text}" for text in sorted(self.selectors))]
        words += [f"step={self.step_ms}ms"] if self.step_ms else []
        words += [f"node_label={self.node_label}"] if self.node_label else []
        return " ".join([*words, *([f"tenant={self.tenant}"] if self.tenant else [])])

    @classmethod
    def of(cls, spec: str, given: Mapping[str, Any], now: datetime) -> HistoryRange:
        """The range of options as given.

        Raises:
            Failure: one cannot be read, or is missing.
        """
        url = spec.removeprefix(SCHEME).rstrip("/")
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise Failure(f"{spec}: give the server's address, as in prometheus:http://127.0.0.1:9090")
        if parts.username is not None or parts.fragment or parts.query:
            raise Failure(
                f"{SCHEME}{parts.scheme}://{parts.hostname}: give the address alone, and a password in --basic-file"
            )
        if given["since"] is None:
            raise Failure(f"{spec}: --since is missing: from when on, as in --since 30d")
        since = moment_of_option(given["since"], "--since", now)
        until = now if given["until"] is None else moment_of_option(given["until"], "--until", now)
        if since >= until:
            raise Failure(f"--since {format_time(since)} is not before --until {format_time(until)}")
        step = None if given["step"] is None else length_of_option(given["step"], "--step")
        if step is not None and timedelta(hours=1) % step:
            raise Failure(f"--step {given['step']}: an hour must be a whole number of steps: 1m, 5m, 10m, 1h ...")
        milliseconds = 0 if step is None else step // timedelta(milliseconds=1)
        return cls(url, since, until, tuple(given["selectors"]), milliseconds, given["node_label"], given["tenant"])


def ingest_history(spec: str, db: str, as_json: bool, given: Mapping[str, Any]) -> None:
    """Import what the options ask for, and print what came of it.

    Raises:
        Failure: an option, the server or the database stands against it.
    """
    from cli.history.intake import HistoryIntake, whole_hours
    from cli.history.server import HistoryAccess, HistoryServer
    from cli.history.windows import HistoryChoice, HistoryReader, read_selector

    now = datetime.now(UTC)
    wanted = HistoryRange.of(spec, given, now)
    for selector in wanted.selectors:
        read_selector(selector)
    since, until = whole_hours(wanted.since, wanted.until, now)
    access = HistoryAccess(wanted.url, _authorization(wanted.url, given), wanted.tenant)
    server = HistoryServer(access)
    server.first_contact()
    reader = HistoryReader(server, HistoryChoice(wanted.selectors, wanted.step_ms))
    engine = open_store(db, create=True)
    with progress_bar("Reading the history") as progress:
        summary = HistoryIntake(engine, reader, wanted.source, wanted.node_label).run(since, until, progress)
    _tell(summary)
    if as_json:
        print_json({"source": wanted.source, **_as_json(summary)})
    else:
        _print(summary)


def moment_of_option(text: str, option: str, now: datetime) -> datetime:
    """A time, a day, or so long ago.

    Raises:
        Failure: it is none of them.
    """
    if _LENGTH.fullmatch(text):
        try:
            return now - length_of_option(text, option)
        except OverflowError as error:
            raise Failure(f"{option} {text}: that is before all time") from error
    try:
        day = date.fromisoformat(text)
    except ValueError:
        pass
    else:
        return datetime(day.year, day.month, day.day, tzinfo=UTC)
    try:
        return parse_time(text)
    except RecordError as error:
        raise Failure(f"{option}: {error}") from error


def length_of_option(text: str, option: str) -> timedelta:
    """A length of time: 90s, 5m, 12h, 30d.

    Raises:
        Failure: it is none, or nothing.
    """
    match = _LENGTH.fullmatch(text)
    if match is None or not int(match["number"]):
        raise Failure(f"{option} {text}: write a length of time as in 90s, 5m, 12h or 30d")
    return int(match["number"]) * _UNITS[match["unit"]]


def _authorization(url: str, given: Mapping[str, Any]) -> str | None:
    from cli.history.server import basic

    token, password = given["token_file"], given["basic_file"]
    file = token or password
    if file is None:
        return None
    if token and password:
        raise Failure("--token-file and --basic-file are two ways in: give one of them")
    why = None if given["insecure_http"] else clear_text(url)
    if why is not None:
        raise Failure(f"{why}; or --insecure-http, where a mesh or tunnel encrypts the way")
    if (shared := shared_secret(file)) is not None:
        print_text(shared, err=True)
    if token:
        text = secret_file(token, "--token-file")
        if not text.isascii() or not text.isprintable():
            raise Failure(f"--token-file: {token} holds what no token can: write the token alone into it")
        return f"Bearer {text}"
    text = secret_file(password, "--basic-file")
    if ":" not in text:
        raise Failure(f"--basic-file: {password} is not USER:PASSWORD")
    return basic(text)


def _tell(summary: HistorySummary) -> None:
    """What was left out, on stderr."""
    told: Sequence[str] = list(summary.troubles)
    for text in told[:_MOST_TOLD]:
        print_text(f"Skipped: {text}", err=True)
    if len(told) > _MOST_TOLD:
        print_text(f"... and {len(told) - _MOST_TOLD} more: --json lists them all", err=True)


def _as_json(summary: HistorySummary) -> dict[str, Any]:
    return {
        **asdict(summary),
        "since": format_time(summary.since),
        "until": format_time(summary.until),
        "wall_s": round(summary.wall_s, 3),
    }


def _print(summary: HistorySummary) -> None:
    before = f" ({summary.taken_before:g} h were taken before)" if summary.taken_before else ""
    print_text(f"{format_time(summary.since)} to {format_time(summary.until)}: {summary.hours:g} h{before}")
    print_text(
        f"{many(summary.samples, 'sample')} ({summary.skipped} skipped) in {many(summary.questions, 'question')}; "
        f"{many(summary.rollups, 'roll-up')}, {many(summary.events, 'event')} ({summary.new} new); "
        f"{many(summary.incidents, 'incident')}; {summary.wall_s:.1f} s"
    )

"""`foreshock token new|list|revoke`: who may call the API, in force within two seconds and without a restart."""

from __future__ import annotations

import re
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import click

from cli.console.errors import Failure
from cli.console.output import DB_OPTION, JSON_OPTION, person, print_json, print_table, print_text
from cli.console.store import open_store
from store.records.event import RecordError, format_time, parse_time

if TYPE_CHECKING:
    from store.nodes.tokens import IssuedToken

# Scopes that a token of some nodes has for nothing.
_OF_ALL = frozenset(("act:stop", "act:reset"))
_COLUMNS = ("name", "scopes", "node", "created", "created_by", "expires", "uses", "last_used", "state")
_PERIOD = re.compile(r"(\d{1,6})([smhdw])", re.ASCII)
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


@click.group()
def token() -> None:
    """Make and end the tokens with which programs call the API."""


@token.command("new")
@click.argument("name")
@click.option(
    "--scope",
    "scopes",
    multiple=True,
    required=True,
    help="ingest, ingest:fleet, read, act:approve, act:stop, act:reset, report, act (the last four), ticket, join, "
    "on_behalf.",
)
@click.option("--node", metavar="PATTERN", help='Of which nodes it may speak: gpu-017, "gpu-[001-064]", "gpu-*", "*".')
@click.option("--expires", metavar="WHEN", help="After 30d, 12h ..., or at a time. [default: never]")
@click.option("--uses", type=click.IntRange(1), help="Of a join token: how many nodes it may enrol. [default: any]")
@DB_OPTION
@JSON_OPTION
def new_command(name: str, scopes: tuple[str, ...], node: str | None, url: str, as_json: bool, **given: Any) -> None:
    """Make a token and print its text, this once: nobody can find it out later."""
    from store.database.connections import transact
    from store.nodes.tokens import TokenOrder, TokenRefusedError, issue

    now = datetime.now(UTC)
    wanted = TokenOrder(name, _scopes(scopes, node), node or "*", _end(given["expires"], now), given["uses"])
    engine = open_store(url)
    try:
        made, secret = transact(engine, lambda connection: issue(connection, wanted, now, person()))
    except TokenRefusedError as error:
        raise Failure(str(error)) from error
    finally:
        engine.dispose()
    if as_json:
        print_json({**_row(made, now), "token": secret})
        return
    print_text(secret)
    until = "" if made.expires is None else f", until {format_time(made.expires)}"
    what = f"token {made.name}: {', '.join(made.scopes)} for node {made.node}{until}"
    print_text(f"{what}; keep its text, which is shown this once", err=True)
    if made.node != "*" and (refused := sorted(_OF_ALL.intersection(made.scopes))):
        print_text(f"{' and '.join(refused)} concern every node: they are refused to a token of some", err=True)


def _scopes(words: tuple[str, ...], node: str | None) -> tuple[str, ...]:
    from api.server.settings import SCOPE_GROUPS, SCOPES, expand_scopes

    try:
        found = expand_scopes(word for each in words for word in each.replace(",", " ").split())
    except ValueError as error:
        known = ", ".join((*SCOPES, *SCOPE_GROUPS))
        raise Failure(f"--scope {error}: there is no such scope; use one or more of {known}") from error
    if node is None and ({"ingest", "join"} & found) and "ingest:fleet" not in found:
        raise Failure(
            '--node is missing: say for which nodes the token speaks: gpu-017, "gpu-[001-064]", or "*" for all'
        )
    return tuple(sorted(found))


def _end(text: str | None, now: datetime) -> datetime | None:
    """When a token expires: after a period, or at a time."""
    if text is None:
        return None
    period = _PERIOD.fullmatch(text.strip())
    try:
        if period is not None:
            return now + timedelta(**{_UNITS[period[2]]: int(period[1])})
        return parse_time(text)
    except (RecordError, OverflowError) as error:
        raise Failure(f"--expires {text[:40]!r}: write a period as 30d or 12h, or a time as 2027-01-31") from error


@token.command("list")
@click.option("--all", "everything", is_flag=True, help="Those that have ended, too.")
@DB_OPTION
@JSON_OPTION
def list_command(everything: bool, url: str, as_json: bool) -> None:
    """List the tokens made with `token new` and by enrolment, the oldest first; not those of a configuration."""
    from store.nodes.tokens import list_tokens

    engine = open_store(url)
    with engine.connect() as connection:
        found = list_tokens(connection)
    engine.dispose()
    now = datetime.now(UTC)
    rows = [_row(one, now) for one in found if everything or as_json or one.trouble(now) is None]
    if as_json:
        print_json(rows)
    elif rows:
        print_table([_shown(row) for row in rows], _COLUMNS)
    else:
        print_text("no token is in force here; `foreshock token new` makes one")


def _row(one: IssuedToken, now: datetime) -> dict[str, Any]:
    times = ("created", "expires", "last_used", "revoked")
    row = {key: value for key, value in asdict(one).items() if key not in ("sha256", "changed")}
    row |= {key: None if row[key] is None else format_time(row[key]) for key in times}
    return {**row, "scopes": list(one.scopes), "state": one.trouble(now) or "in force"}


def _shown(row: dict[str, Any]) -> dict[str, Any]:
    """A row for people: to the minute, and the uses of those that are counted."""
    short = {key: row[key] and row[key][:16].replace("T", " ") for key in ("created", "expires", "last_used")}
    join = "join" in row["scopes"]
    of = "" if row["uses"] is None else f" of {row['uses']}"
    return {**row, **short, "scopes": ",".join(row["scopes"]), "uses": f"{row['used']}{of}" if join else None}


@token.command("revoke")
@click.argument("name")
@DB_OPTION
def revoke_command(name: str, url: str) -> None:
    """End a token; every server refuses it within two seconds."""
    from store.database.connections import transact
    from store.nodes.tokens import TokenRefusedError, revoke

    engine = open_store(url)
    try:
        transact(engine, lambda connection: revoke(connection, name, datetime.now(UTC), person()))
    except TokenRefusedError as error:
        raise Failure(str(error)) from error
    finally:
        engine.dispose()
    print_text(f"token {name} is revoked")

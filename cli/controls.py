"""`foreshock hints stop|resume|breaker`: what holds hints back, and your word on it."""

from collections.abc import Callable
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any, TypeVar

import click
import sqlalchemy as sa

from cli.errors import Failure
from cli.open import open_store
from cli.output import DB_OPTION, JSON_OPTION, print_json, print_table
from cli.person import person
from schedulers.controls import reset_breaker, set_switch
from schedulers.verdict import VerdictError
from store.database import writing
from store.event import format_time
from store.trips import Backlog, Trip, trips_page

_COLUMNS = ("seq", "time", "kind", "name", "count", "reset", "reset_by", "backlog", "why")
_MOST = 1000
_REASON = click.option("--reason", required=True, help="Why: the audit keeps it.")

T = TypeVar("T")


@click.command("stop")
@DB_OPTION
@click.option("--all", "everything", is_flag=True, help="Releases wait, too: hands off.")
@_REASON
def stop_command(url: str, everything: bool, reason: str) -> None:
    """Ask nothing new of any scheduler, at once; what is held may still be released."""
    stop = _carry_out(
        url, lambda connection, now: set_switch(connection, "all" if everything else "holds", reason, now, person())
    ).stop
    click.echo(f"stopped: {stop}; `foreshock hints resume` lets it go on")


@click.command("resume")
@DB_OPTION
@_REASON
def resume_command(url: str, reason: str) -> None:
    """Let go on what was stopped here or over the API."""
    _carry_out(url, lambda connection, now: set_switch(connection, "none", reason, now, person()))
    click.echo("the switch stops nothing any more; a stop file, or `stop` in the policy, still does where there is one")


@click.group("breaker")
def breaker_group() -> None:
    """Groups of nodes that called for a hold at once: nothing of them is held until you have looked."""


@breaker_group.command("list")
@DB_OPTION
@click.option("--all", "everything", is_flag=True, help="Those that were reset, too.")
@JSON_OPTION
def list_trips(url: str, everything: bool, as_json: bool) -> None:
    """List the breaker's trips, the newest first."""
    engine = open_store(url)
    with engine.connect() as connection:
        found = [_row(trip) for trip in trips_page(connection, _MOST, in_force=not everything)]
    engine.dispose()
    if as_json:
        print_json(found)
    elif found:
        print_table(found, _COLUMNS)
    else:
        click.echo("the breaker has never tripped" if everything else "the breaker has not tripped")


@breaker_group.command("reset")
@click.argument("seq", type=click.IntRange(1))
@DB_OPTION
@click.option(
    "--backlog",
    type=click.Choice(["drop", "review"]),
    required=True,
    help="Of the nodes that had called: let go of them, or have each wait for your yes.",
)
def reset_command(seq: int, url: str, backlog: Backlog) -> None:
    """End a trip."""
    trip = _carry_out(url, lambda connection, now: reset_breaker(connection, seq, backlog, now, person()))
    click.echo(f"trip {trip.seq} of {trip.kind} {trip.name} is reset; backlog: {trip.backlog}")


def _carry_out(url: str, word: Callable[[sa.Connection, datetime], T]) -> T:
    engine = open_store(url)
    try:
        with writing(engine).begin() as connection:
            return word(connection, datetime.now(UTC))
    except VerdictError as error:
        raise Failure(str(error)) from error
    finally:
        engine.dispose()


def _row(trip: Trip) -> dict[str, Any]:
    times = {"time": format_time(trip.time), "reset": None if trip.reset is None else format_time(trip.reset)}
    return {**asdict(trip), **times}

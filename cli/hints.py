"""`foreshock hints list|approve|withdraw|release`: what is asked of the scheduler, and your word on it.

`cli/controls.py` has `stop`, `resume` and `breaker`, `cli/hint_tests.py` `validated` and `outcomes`,
`cli/hint_deliveries.py` `deliveries` and `replay`.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import get_args

import click
import sqlalchemy as sa

from cli.controls import breaker_group, resume_command, stop_command
from cli.errors import Failure
from cli.hint_deliveries import deliveries_command, replay_command
from cli.hint_tests import outcomes_command, validated_command
from cli.open import open_store
from cli.output import DB_OPTION, JSON_OPTION, print_json, print_table
from cli.person import person
from schedulers.verdict import VerdictError, approve, release_node, withdraw
from store.database import writing
from store.event import format_time
from store.hint import OPEN_STATES, Hint, HintState
from store.hint_log import read_hints
from store.placements import Placement, placements_of

_COLUMNS = ("id", "node", "action", "state", "schedulers", "created", "valid_until", "reason")
_PLACED = ("scheduler", "action", "state", "attempts", "detail")


@click.group()
def hints() -> None:
    """What Foreshock asks of the scheduler."""


_MORE = (stop_command, resume_command, breaker_group, validated_command, outcomes_command, deliveries_command)
for _command in (*_MORE, replay_command):
    hints.add_command(_command)


@hints.command("list")
@DB_OPTION
@click.option("--state", type=click.Choice(["open", "all", *get_args(HintState)]), default="open", show_default=True)
@click.option("--node", help="Of this node alone.")
@JSON_OPTION
def list_command(url: str, state: str, node: str | None, as_json: bool) -> None:
    """List hints, the oldest first."""
    states = {"open": OPEN_STATES, "all": None}.get(state, (state,))
    engine = open_store(url)
    with engine.connect() as connection:
        listed = read_hints(connection, states, node)
        placed = placements_of(connection, [hint.id for hint in listed])
    engine.dispose()
    found = [_row(hint, placed.get(hint.id, ())) for hint in listed]
    if as_json:
        print_json(found)
    elif found:
        print_table([{**row, "schedulers": _told(placed.get(str(row["id"]), ()))} for row in found], _COLUMNS)
    else:
        click.echo("no hints" if state == "all" else f"no hints ({state}); --state all shows those that have ended")


@hints.command("approve")
@click.argument("ident", metavar="ID")
@DB_OPTION
def approve_command(ident: str, url: str) -> None:
    """Let a proposed hint be sent."""
    # Whether the server is in shadow mode is the server's to know: in that mode it sends nothing either way.
    _say(_carry_out(url, lambda connection, now: [approve(connection, ident, now, person(), "approve")]))


@hints.command("withdraw")
@click.argument("ident", metavar="ID")
@DB_OPTION
def withdraw_command(ident: str, url: str) -> None:
    """End a hint; a scheduler that took it is told to release the node."""
    _say(_carry_out(url, lambda connection, now: [withdraw(connection, ident, now, person())]))


@hints.command("release")
@click.argument("node")
@DB_OPTION
def release_command(node: str, url: str) -> None:
    """Say that a node is well: ends our open hints of it."""
    _say(_carry_out(url, lambda connection, now: release_node(connection, node, now, person())))


def _carry_out(url: str, verdict: Callable[[sa.Connection, datetime], list[Hint]]) -> list[Hint]:
    engine = open_store(url)
    try:
        with writing(engine).begin() as connection:
            return verdict(connection, datetime.now(UTC))
    except VerdictError as error:
        raise Failure(str(error)) from error
    finally:
        engine.dispose()


def _say(changed: list[Hint]) -> None:
    for hint in changed:
        click.echo(f"hint {hint.id} of node {hint.node} ({hint.action}) is {hint.state}")


def _row(hint: Hint, placements: Sequence[Placement]) -> dict[str, object]:
    times = {"created": format_time(hint.created), "valid_until": format_time(hint.valid_until)}
    placed = [{name: getattr(each, name) for name in _PLACED} for each in placements]
    return {**asdict(hint), **times, "placements": placed}


def _told(placements: Sequence[Placement]) -> str | None:
    """What each scheduler that is read back has of a hint, in few words; None where none was asked."""
    return ", ".join(f"{each.scheduler}: {each.state}" for each in placements) or None

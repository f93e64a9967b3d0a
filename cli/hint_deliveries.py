"""`foreshock hints deliveries` and `foreshock hints replay`: what receivers were sent, and once more by hand."""

from dataclasses import asdict
from datetime import UTC, datetime

import click

from cli.errors import Failure
from cli.open import open_store
from cli.output import DB_OPTION, JSON_OPTION, print_json, print_table
from cli.person import person
from schedulers.replay import replay
from schedulers.verdict import VerdictError
from store.database import writing
from store.delivery_log import attempts_of, newest_attempts
from store.event import format_time
from store.hint_log import read_hint
from store.outbox import deliveries_of

_COLUMNS = ("time", "delivery", "outcome", "status", "duration_s", "detail")


@click.command("deliveries")
@click.argument("ident", metavar="[ID]", required=False)
@DB_OPTION
@click.option("--limit", type=click.IntRange(1, 1000), default=50, show_default=True, help="Without an ID: so many.")
@JSON_OPTION
def deliveries_command(ident: str | None, url: str, limit: int, as_json: bool) -> None:
    """Show the attempts to deliver a hint (or the last ones of all), the oldest first, and what is still owed."""
    engine = open_store(url)
    with engine.connect() as connection:
        if ident is not None and read_hint(connection, ident) is None:
            raise Failure(f"no hint has the id {ident!r}: `foreshock hints list --state all` shows those there are")
        attempts = newest_attempts(connection, limit) if ident is None else attempts_of(connection, ident)
        owed = [] if ident is None else [one for one in deliveries_of(connection, ident) if one.state == "owed"]
    engine.dispose()
    rows = [asdict(one) | {"time": format_time(one.time), "duration_s": round(one.duration_s, 3)} for one in attempts]
    if as_json:
        print_json(rows)
        return
    if rows:
        print_table(rows, _COLUMNS)
    else:
        click.echo("no attempts")
    for one in owed:
        click.echo(f"owed to {one.scheduler}: {one.id}, due {format_time(one.due)}")


@click.command("replay")
@click.argument("delivery")
@DB_OPTION
def replay_command(delivery: str, url: str) -> None:
    """Deliver once more, under the same webhook-id; the server does it within seconds."""
    engine = open_store(url)
    try:
        with writing(engine).begin() as connection:
            # The mode is the server's to know: in shadow mode it sends nothing either way.
            made = replay(connection, delivery, datetime.now(UTC), person(), "approve")
    except VerdictError as error:
        raise Failure(str(error)) from error
    finally:
        engine.dispose()
    click.echo(f"{made.id} is owed to {made.scheduler} again")

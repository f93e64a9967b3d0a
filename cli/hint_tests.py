"""`foreshock hints validated|outcomes`: what a test said of a held node, and whether hints were right."""

from dataclasses import asdict
from datetime import UTC, datetime, timedelta

import click

from cli.errors import Failure
from cli.open import open_store
from cli.output import DB_OPTION, JSON_OPTION, print_json, print_table
from cli.person import person
from schedulers.hindsight import Tally
from schedulers.hindsight_turn import Hindsight, hindsight
from schedulers.reported import report_node
from schedulers.verdict import VerdictError
from store.database import writing
from store.event import format_time

_COLUMNS = ("action", "basis", "judged", "right", "precision", "lead", "held GPU-h", "saved GPU-h")


@click.command("validated")
@click.argument("node")
@DB_OPTION
@click.option("--passed/--failed", "passed", default=None, help="What the node's test said.")
@click.option("--detail", default="", help="What was seen: kept with the result.")
def validated_command(node: str, url: str, passed: bool | None, detail: str) -> None:
    """Say that a held node has passed its test, or has not."""
    if passed is None:
        raise click.UsageError("say what its test said: --passed or --failed")
    engine = open_store(url)
    try:
        with writing(engine).begin() as connection:
            row = report_node(connection, node, (passed, detail), datetime.now(UTC), person())
    except VerdictError as error:
        raise Failure(str(error)) from error
    finally:
        engine.dispose()
    after = "it is released once its healthy time is over" if passed else "it stays held"
    click.echo(f"hint {row.hint} of node {node}: its test has {'passed' if passed else 'failed'}; {after}")


@click.command("outcomes")
@DB_OPTION
@click.option("--days", type=click.FloatRange(0.0, 3650.0, min_open=True), default=30.0, show_default=True)
@JSON_OPTION
def outcomes_command(url: str, days: float, as_json: bool) -> None:
    """Tell whether hints were right: those of shadow mode, and of nodes that nobody acted on."""
    now = datetime.now(UTC)
    engine = open_store(url)
    with engine.connect() as connection:
        found = hindsight(connection, now - timedelta(days=days), now)
    engine.dispose()
    if as_json:
        times = {"since": format_time(found.since), "until": format_time(found.until)}
        print_json({**asdict(found), **times})
        return
    _print(found, days)


def _print(found: Hindsight, days: float) -> None:
    if not found.tallies:
        click.echo(f"no hint of the last {days:g} days has been judged: that is done 24 h after it was made")
        return
    print_table([_row(tally) for tally in found.tallies], _COLUMNS)
    if found.false_holds_per_1000_node_days is not None:
        click.echo(
            f"\n{found.false_holds_per_1000_node_days:.3g} false holds per 1000 node-days, over {found.node_days:.0f}"
        )
    if any(tally.basis == "acted" for tally in found.tallies):
        click.echo("acted: a held node cannot show whether it would have failed; it counts for no precision")


def _row(tally: Tally) -> dict[str, object]:
    told = None if tally.precision is None else f"{tally.precision:.0%} ({tally.low:.0%} to {tally.high:.0%})"
    return {
        "action": tally.action,
        "basis": tally.basis,
        "judged": tally.judged,
        "right": tally.right,
        "precision": told,
        "lead": None if tally.lead_s is None else f"{tally.lead_s / 3600:.1f} h",
        "held GPU-h": None if tally.unknown_held == tally.judged else f"{tally.held_gpu_h:.1f}",
        "saved GPU-h": None if tally.unknown_saved == tally.judged else f"{tally.saved_gpu_h:.1f}",
    }

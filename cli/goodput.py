"""`foreshock goodput`: where the hours went: run by run, by cause, for the whole cluster, or as a report to hand on."""

from collections.abc import Mapping, Sequence
from typing import Any

import click
import sqlalchemy as sa

from cli.clock import real_clock
from cli.errors import Failure
from cli.goodput_views import Asked, print_by, print_cluster, write_report
from cli.open import open_store
from cli.output import DB_OPTION, JSON_OPTION, print_json, print_table, span
from goodput.reading.ledgers import no_such_run, read_ledgers
from goodput.stored.refresh import read_all, refresh
from store.losses import BY

RUN_OPTION = click.option("--run", help="Only this training run.")


@click.command()
@DB_OPTION
@RUN_OPTION
@click.option("--by", type=click.Choice(BY), help="What interruptions cost, by what they are put down to.")
@click.option("--cluster", is_flag=True, help="The whole cluster's GPU-hours, from existing to productive.")
@click.option("--html", metavar="OUT", help="Write a report of the period, with plots, to this file.")
@click.option("--since", metavar="T", help="With --by, --cluster, --html: from this time (RFC 3339).")
@click.option("--until", metavar="T", help="Account as of this time (RFC 3339): what came later is left out.")
@click.option("--limit", type=click.IntRange(1), default=50, show_default=True, help="With --by: so many rows.")
@click.option(
    "--shape",
    "shapes",
    multiple=True,
    metavar="RUN:batch=B,layers=L,seq=S,hidden=H",
    help="With --cluster, --html: the model of runs of this name (with * and ?), for their MFU.",
)
@JSON_OPTION
def goodput(url: str, as_json: bool, **given: Any) -> None:
    """Split each run's wall time into buckets that sum to it exactly, and price each interruption."""
    asked = Asked.of(given)
    engine = open_store(url)
    if asked.until is None and not (asked.html or asked.by or asked.cluster):
        _print_all(_stored(engine, asked.run), as_json)
        return
    with engine.begin() as connection:
        ledgers = read_ledgers(connection, asked.run, asked.until)
        if not ledgers:
            raise Failure(no_such_run(connection, asked.run))
        if asked.html is not None:
            write_report(connection, ledgers, asked.html, asked)
            return
        if asked.by is not None:
            print_by(connection, ledgers, asked.by, asked, as_json)
            return
        if asked.cluster:
            print_cluster(connection, ledgers, asked, as_json)
            return
    _print_all([(ledger.to_json(), ledger.attempts) for ledger in ledgers], as_json)


def _stored(engine: sa.Engine, run: str | None) -> list[tuple[Mapping[str, Any], int]]:
    """The stored accounts, those that are behind made again; with how many attempts each has."""
    told = refresh(engine, real_clock(), run)
    if told.reason is not None:
        click.echo(f"the ledgers were made, but not stored for the next time: {told.reason}", err=True)
    found = [(one.content["account"], int(one.content["attempts"])) for one in read_all(engine, told, run)]
    if not found:
        with engine.connect() as connection:
            raise Failure(no_such_run(connection, run))
    return found


def _print_all(ledgers: Sequence[tuple[Mapping[str, Any], int]], as_json: bool) -> None:
    if as_json:
        print_json([told for told, _attempts in ledgers])
        return
    for i, (told, attempts) in enumerate(ledgers):
        if i:
            click.echo()
        _print_ledger(told, attempts)


def _print_ledger(told: Mapping[str, Any], attempts: int) -> None:
    """One run for people: its span, its buckets, its interruptions."""
    share = "unknown" if told["goodput"] is None else f"{told['goodput']:.2%}"
    when = "no date known" if told["start"] is None else f"{told['start']} to {told['end']}"
    click.echo(f"{told['run']}: goodput {share} of {span(told['wall_s'])} ({when})")
    click.echo(f"{told['nodes'] or '?'} nodes, {told['gpus'] or '?'} GPUs, {attempts} attempts")
    wall = told["wall_s"] or 1
    shares = [
        {"bucket": bucket, "time": span(seconds), "share": f"{seconds / wall:.2%}"}
        for bucket, seconds in told["buckets"].items()
        if seconds
    ]
    print_table(shares, ["bucket", "time", "share"])
    if told["interruptions"]:
        click.echo()
        print_table([_interruption_row(one) for one in told["interruptions"]], ["time", "cause", "culprit", "lost"])


def _interruption_row(told: Mapping[str, Any]) -> dict[str, Any]:
    culprit = told["culprit"]
    name = None
    if culprit is not None:
        port = None if culprit["port"] is None else f"port {culprit['port']}"
        code = culprit["kind"] if culprit["code"] is None else f"{culprit['kind']} {culprit['code']}"
        where = culprit["pci"] or culprit["uuid"] or culprit["index"]
        name = " ".join(str(x) for x in (culprit["node"], culprit["type"], where, port, f"({code})") if x is not None)
    return {"time": told["time"][:19] + "Z", "cause": told["cause"], "culprit": name, "lost": span(told["lost_s"])}

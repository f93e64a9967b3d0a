"""`foreshock lemons`: which nodes should go to repair, and the table for their vendor."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import orjson

from cli.console.errors import Failure
from cli.console.output import DB_OPTION, JSON_OPTION, print_json, print_table, print_text
from cli.console.store import open_store
from store.plural import many
from store.records.event import RecordError, parse_time

if TYPE_CHECKING:
    from predictor.repair.lemons import Lemon, RepairList
    from predictor.repair.outcomes import RepairOutcome


@click.command()
@DB_OPTION
@click.option("--at", metavar="T", help="As of this time, RFC 3339 (default: the newest record).")
@click.option(
    "--rma",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write the parts for their vendor to this file, .csv or .json.",
)
@click.option(
    "--tickets",
    "ticket_file",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write a ticket for each of these nodes, for held ones that fail their test, and for each link that is likely "
    "to be lost, to this file, .csv or .json.",
)
@click.option("--outcomes", is_flag=True, help="What came of repairs, by kind, in place of the list.")
@JSON_OPTION
def lemons(url: str, at: str | None, rma: Path | None, ticket_file: Path | None, outcomes: bool, as_json: bool) -> None:
    """List the nodes that should go to repair: those that fail far more often than their fleet."""
    from predictor.history.store_reader import data_span
    from predictor.repair.export import report_json, rma_csv, rma_rows, tickets, tickets_csv
    from predictor.repair.lemons import repair_list
    from predictor.repair.outcomes import repair_outcomes

    try:
        moment = None if at is None else parse_time(at)
    except RecordError as error:
        raise Failure(f"--at: {error}") from error
    for option, path in (("--rma", rma), ("--tickets", ticket_file)):
        if path is not None and path.suffix not in (".csv", ".json"):
            raise Failure(f"{option} {path}: name a file that ends in .csv or .json")
    with open_store(url).begin() as connection:
        span = data_span(connection)
        if span is None:
            raise Failure("the database holds no records: run `foreshock ingest` first")
        if outcomes:
            _print_outcomes(repair_outcomes(connection, moment or span[1]), as_json)
            return
        report = repair_list(connection, moment or span[1])
        wanted = [] if ticket_file is None else tickets(connection, report)
    if rma is not None:
        _write(rma, rma_csv(report), rma_rows(report))
    if ticket_file is not None:
        _write(ticket_file, tickets_csv(wanted), wanted)
    if as_json:
        print_json(report_json(report))
        return
    _print(report)


def _print_outcomes(found: list[RepairOutcome], as_json: bool) -> None:
    """How often nodes failed again within 7 days, by what had been done to them."""
    if as_json:
        print_json([asdict(one) for one in found])
        return
    rows = [
        {
            "repair": one.repair,
            "repairs": one.repairs,
            "failed again in 7 days": f"{one.again} ({one.again / one.repairs:.0%})",
            "95 %": f"{one.low:.0%} to {one.high:.0%}",
            "known by length alone": one.by_length,
        }
        for one in found
    ]
    print_table(rows, ["repair", "repairs", "failed again in 7 days", "95 %", "known by length alone"])


def _write(path: Path, table: str, rows: list[dict[str, Any]]) -> None:
    text = table if path.suffix == ".csv" else orjson.dumps(rows, option=orjson.OPT_INDENT_2).decode()
    try:
        path.write_text(text, encoding="utf-8", newline="")
    except OSError as error:
        raise Failure(f"cannot write {path}: {error.strerror or error}") from error


def _print(report: RepairList) -> None:
    from predictor.repair.lemons import FALSE_SHARE
    from predictor.repair.records import TIMES, WINDOW_D

    if not report.items:
        print_text(f"no node of {report.nodes} stands out in the {WINDOW_D} days before {report.at:%Y-%m-%d %H:%M}Z")
        return
    print_text(
        f"{report.found} of {many(report.nodes, 'node')} for repair, as of {report.at:%Y-%m-%d %H:%M}Z: they fail at "
        f"{TIMES:g} times the fleet's rate or more, but for at most {FALSE_SHARE:.0%} of the list"
    )
    print_table([_row(lemon) for lemon in report.items], ["node", "sure", "rate", "outages", "part", "next step"])
    for lemon in report.items:
        print_text()
        print_text(f"{lemon.node}:")
        for line in lemon.lines:
            print_text(f"  {line.text}")


def _row(lemon: Lemon) -> dict[str, object]:
    return {
        "node": lemon.node,
        "sure": f"{lemon.probability:.0%}",
        "rate": f"{lemon.times_fleet:.0f}x",
        "outages": lemon.signals["outages"],
        "part": None if lemon.part is None else lemon.part.words,
        "next step": lemon.next_step,
    }

"""`foreshock goodput`: where the hours went: run by run, by cause, for the whole cluster, or as a report to hand on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import click

from cli.console.errors import Failure
from cli.console.output import DB_OPTION, JSON_OPTION, PRICE_OPTION, print_json, print_table, print_text, span
from cli.console.store import open_store
from cli.replay.clock import real_clock
from goodput.formulas.shape import Shape, ShapeError, parse_shape
from goodput.ledger import Ledger
from goodput.timeline import from_ms
from store.plural import many
from store.records.event import RecordError, parse_time
from store.records.job import LossKey

if TYPE_CHECKING:
    import sqlalchemy as sa

    from store.runs.losses import Loss, LossKey
    from wire.money.price import GpuHourPrice

# What `foreshock goodput` shows beside the runs' ledgers: losses by cause, the cluster's levels, the report.

# The levels and what lies between them, as they are read from top to bottom.
_LEVELS = ("existing", "out_planned", "out_unplanned", "schedulable", "idle", "allocated", "running", "productive")
_LEVEL_WORDS = {
    "existing": "existing: nodes in service",
    "out_planned": "  - out, planned",
    "out_unplanned": "  - out, unplanned",
    "schedulable": "schedulable",
    "idle": "  - idle: no job",
    "allocated": "allocated: held by jobs",
    "running": "running: in the training loop",
    "productive": "productive: iterations that count",
}


@dataclass(frozen=True, slots=True)
class LedgerOptions:
    """The command's options, read."""

    run: str | None
    by: LossKey | None
    cluster: bool
    html: Path | None
    since: datetime | None
    until: datetime | None
    limit: int
    shapes: Mapping[str, Shape]
    price: GpuHourPrice | None

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> LedgerOptions:
        """Out of what was typed.

        Raises:
            Failure: a time or a shape cannot be read, or two views are asked for at once.
        """
        if sum((given["by"] is not None, given["cluster"], given["html"] is not None)) > 1:
            raise Failure("--by, --cluster and --html are three views: ask for one at a time")
        if given["since"] is not None and not (given["by"] or given["cluster"] or given["html"]):
            raise Failure("--since goes with --by, --cluster or --html: a run's ledger is of the whole run")
        return cls(
            run=given["run"],
            by=given["by"],
            cluster=given["cluster"],
            html=None if given["html"] is None else Path(given["html"]),
            since=_moment(given["since"], "--since"),
            until=_moment(given["until"], "--until"),
            limit=given["limit"],
            shapes=dict(_shape(text) for text in given["shapes"]),
            price=given["price"],
        )


def _moment(text: str | None, option: str) -> datetime | None:
    try:
        return None if text is None else parse_time(text)
    except RecordError as error:
        raise Failure(f"{option}: {error}") from error


def _shape(text: str) -> tuple[str, Shape]:
    name, _, figures = text.rpartition(":")
    try:
        return name or "*", parse_shape(figures)
    except ShapeError as error:
        raise Failure(f"--shape: {error}") from error


def within(losses: Sequence[Loss], since: datetime | None, until: datetime | None) -> list[Loss]:
    """The interruptions of [since, until)."""
    return [x for x in losses if (since is None or x.time >= since) and (until is None or x.time < until)]


def print_by(
    connection: sa.Connection, ledgers: Sequence[Ledger], by: LossKey, requested: LedgerOptions, as_json: bool
) -> None:
    """What interruptions cost by what they are put down to, the costliest first; the total is of all of them."""
    from goodput.cluster.losses import group_json, losses_of, total_json
    from store.runs.losses import grouped
    from wire.money.price import shown, with_money

    every = [loss for ledger in ledgers for loss in losses_of(connection, ledger)]
    groups = grouped(within(every, requested.since, requested.until), by)
    rows = [with_money(group_json(group, by), requested.price) for group in groups[: requested.limit]]
    total = with_money(total_json(groups), requested.price)
    if as_json:
        print_json({"by": by, "total": total, "items": rows})
        return
    if not rows:
        print_text("no interruption in that time")
        return
    hours = total["lost_gpu_hours"]
    print_text(
        f"{many(total['interruptions'], 'interruption')} cost {span(total['lost_s'])} of wall time"
        + ("" if hours is None else f", {hours:,.1f} GPU-hours")
        + (f", {shown(total['lost_money'])}" if total.get("lost_money") else "")
    )
    columns = [by, "gpu_hours", *_money_column(requested.price), "share", "time", "stops"]
    print_table([_by_row(row, by, total) for row in rows], columns)
    if len(groups) > len(rows):
        print_text(f"and {len(groups) - len(rows)} more: --limit")


def _money_column(price: GpuHourPrice | None) -> list[str]:
    return [] if price is None else ["money"]


def _by_row(row: Mapping[str, Any], by: LossKey, total: Mapping[str, Any]) -> dict[str, Any]:
    from wire.money.price import shown

    return {
        by: row["name"],
        "gpu_hours": None if row["lost_gpu_hours"] is None else f"{row['lost_gpu_hours']:,.1f}",
        "money": shown(row.get("lost_money")) or None,
        "share": f"{row['lost_s'] / total['lost_s']:.1%}" if total["lost_s"] else None,
        "time": span(row["lost_s"]),
        "stops": row["interruptions"],
    }


def window_of(
    connection: sa.Connection, ledgers: Sequence[Ledger], requested: LedgerOptions
) -> tuple[datetime, datetime]:
    """The period asked for, as of the newest record.

    Raises:
        Failure: it is empty or too long.
    """
    from goodput.cluster.account import PeriodError, period
    from predictor.history.store_reader import data_span

    ends = [from_ms(ledger.end_ms) for ledger in ledgers if ledger.dated]
    known = data_span(connection)
    now = max([*ends, *([] if known is None else [known[1]])], default=None)
    if now is None:
        raise Failure("no run has a date: there is no period to account")
    try:
        return period(requested.since, requested.until, now)
    except PeriodError as error:
        raise Failure(f"--since, --until: {error}") from error


def print_cluster(
    connection: sa.Connection, ledgers: Sequence[Ledger], requested: LedgerOptions, as_json: bool
) -> None:
    """The cluster's GPU-hours, level by level."""
    from goodput.cluster.account import cluster_json, fresh_runs, priced_levels
    from wire.money.price import shown

    window = window_of(connection, ledgers, requested)
    runs = fresh_runs(connection, ledgers, window, requested.shapes)
    reported = priced_levels(cluster_json(connection, window, runs), requested.price)
    if as_json:
        print_json(reported)
        return
    print_text(f"the cluster from {reported['since'][:16]}Z to {reported['until'][:16]}Z")
    existing = reported["gpu_hours"]["existing"]
    print_table(
        [
            {
                "level": _LEVEL_WORDS[name],
                "gpu_hours": None if hours is None else f"{hours:,.1f}",
                "money": shown(reported.get("money", {}).get(name)) or None,
                "share": None if hours is None or not existing else f"{hours / existing:.1%}",
            }
            for name in _LEVELS
            for hours in (reported["gpu_hours"][name],)
        ],
        ["level", "gpu_hours", *_money_column(requested.price), "share"],
    )
    print_text()
    print_table(_ratio_rows(reported), ["ratio", "value"])
    for doubt in reported["doubts"]:
        print_text(f"note: {doubt}")
    for one in reported["runs"]:
        said = f"MFU {one['mfu']:.1%}" if one["mfu"] is not None else f"no MFU: {', '.join(one['missing'])} not known"
        print_text(f"{one['run']}: {said}")


def _ratio_rows(reported: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Google's factors and Meta's ratio, as percentages."""
    ettr = reported["ettr"]
    rows = {
        "scheduling goodput (allocated / existing)": _percent(reported["scheduling_goodput"]),
        "runtime goodput (productive / allocated)": _percent(reported["runtime_goodput"]),
        "program goodput (MFU)": _percent(reported["program_goodput"]),
        "ML productivity goodput (their product)": _percent(reported["ml_productivity_goodput"]),
        "ETTR (Meta)": None if ettr is None else " to ".join(sorted({f"{ettr[k]:.2%}" for k in ("least", "most")})),
    }
    return [{"ratio": name, "value": value} for name, value in rows.items()]


def _percent(value: float | None) -> str | None:
    return None if value is None else f"{value:.2%}"


def write_report(connection: sa.Connection, ledgers: Sequence[Ledger], path: Path, requested: LedgerOptions) -> None:
    """The report of the period as one HTML page.

    Raises:
        Failure: the file cannot be written.
    """
    from goodput.cluster.report import report_html

    window = window_of(connection, ledgers, requested)
    text = report_html(connection, ledgers, window, requested.shapes, requested.price)
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise Failure(f"cannot write {path}: {error.strerror or error}") from error


RUN_OPTION = click.option("--run", help="Only this training run.")


@click.command()
@DB_OPTION
@RUN_OPTION
@click.option(
    "--by", type=click.Choice(get_args(LossKey)), help="What interruptions cost, by what they are put down to."
)
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
@PRICE_OPTION
@JSON_OPTION
def goodput(url: str, as_json: bool, **given: Any) -> None:
    """Split each run's wall time into buckets that sum to it exactly, and price each interruption."""
    from goodput.reading.ledgers import no_such_run, read_ledgers

    requested = LedgerOptions.of(given)
    engine = open_store(url)
    _explain_stops(engine, requested.run)
    if requested.until is None and not (requested.html or requested.by or requested.cluster):
        _print_all(_stored(engine, requested.run), requested.price, as_json)
        return
    with engine.begin() as connection:
        ledgers = read_ledgers(connection, requested.run, requested.until)
        if not ledgers:
            raise Failure(no_such_run(connection, requested.run))
        if requested.html is not None:
            write_report(connection, ledgers, requested.html, requested)
            return
        if requested.by is not None:
            print_by(connection, ledgers, requested.by, requested, as_json)
            return
        if requested.cluster:
            print_cluster(connection, ledgers, requested, as_json)
            return
        shown = [(_named(connection, ledger.to_json()), ledger.attempts) for ledger in ledgers]
    _print_all(shown, requested.price, as_json)


def _explain_stops(engine: sa.Engine, run: str | None) -> None:
    """Have the stops explained that nobody has yet, as far as the database can be written."""
    from sqlalchemy.exc import DBAPIError

    from diagnosis.verdicts.run_stops import explain_stops

    try:
        explain_stops(engine, real_clock(), None if run is None else {run})
    except DBAPIError as error:
        reason = str(error.orig).strip().splitlines()[0]
        print_text(f"verdicts on stops could not be stored: {reason}", err=True)


def _stored(engine: sa.Engine, run: str | None) -> list[tuple[Mapping[str, Any], int]]:
    """The stored accounts, those that are behind made again; with how many attempts each has."""
    from goodput.reading.ledgers import no_such_run
    from goodput.stored.refresh import read_all, refresh

    reported = refresh(engine, real_clock(), run)
    if reported.reason is not None:
        print_text(f"the ledgers were made, but not stored for the next time: {reported.reason}", err=True)
    found = [(one.content["account"], int(one.content["attempts"])) for one in read_all(engine, reported, run)]
    if not found:
        with engine.connect() as connection:
            raise Failure(no_such_run(connection, run))
    with engine.connect() as connection:
        return [(_named(connection, account), attempts) for account, attempts in found]


def _named(connection: sa.Connection, account: Mapping[str, Any]) -> Mapping[str, Any]:
    """An account that calls GPUs by their index where that was told."""
    from store.verdicts.gpu_index import named_culprits

    return {**account, "interruptions": named_culprits(connection, account["run"], account["interruptions"])}


def _print_all(ledgers: Sequence[tuple[Mapping[str, Any], int]], price: GpuHourPrice | None, as_json: bool) -> None:
    from wire.money.price import with_money

    priced = [(with_money(reported, price), attempts) for reported, attempts in ledgers]
    if as_json:
        print_json([reported for reported, _attempts in priced])
        return
    for i, (reported, attempts) in enumerate(priced):
        if i:
            print_text()
        _print_ledger(reported, attempts)


def _counted(count: int | None, noun: str) -> str:
    return many(count, noun) if count else f"? {noun}s"


def _print_ledger(reported: Mapping[str, Any], attempts: int) -> None:
    """One run for people: its span, its buckets, its interruptions."""
    from wire.money.price import shown

    share = "unknown" if reported["goodput"] is None else f"{reported['goodput']:.2%}"
    when = "no date known" if reported["start"] is None else f"{reported['start']} to {reported['end']}"
    print_text(f"{reported['run']}: goodput {share} of {span(reported['wall_s'])} ({when})")
    print_text(
        f"{_counted(reported['nodes'], 'node')}, {_counted(reported['gpus'], 'GPU')}, {many(attempts, 'attempt')}"
    )
    wall = reported["wall_s"] or 1
    money = reported.get("money") or {}
    shares = [
        {
            "bucket": bucket,
            "time": span(seconds),
            "share": f"{seconds / wall:.2%}",
            "money": shown(money.get(bucket)) or None,
        }
        for bucket, seconds in reported["buckets"].items()
        if seconds
    ]
    print_table(shares, ["bucket", "time", "share", *(["money"] if money else [])])
    if reported["interruptions"]:
        print_text()
        rows = [_interruption_row(one) for one in reported["interruptions"]]
        print_table(rows, ["time", "cause", "culprit", "lost", "kept"])


def _interruption_row(reported: Mapping[str, Any]) -> dict[str, Any]:
    culprit = reported["culprit"]
    name = None
    if culprit is not None:
        port = None if culprit["port"] is None else f"port {culprit['port']}"
        code = culprit["kind"] if culprit["code"] is None else f"{culprit['kind']} {culprit['code']}"
        address = culprit["pci"] or culprit["uuid"]
        parts = (culprit["node"], culprit["type"], culprit["index"], address, port, f"({code})")
        name = " ".join(str(part) for part in parts if part is not None)
    return {
        "time": reported["time"][:19] + "Z",
        "cause": reported["cause"],
        "culprit": name,
        "lost": span(reported["lost_s"]),
        "kept": _kept(reported),
    }


def _kept(reported: Mapping[str, Any]) -> str | None:
    """The newest whole save at a stop, how long before it that was, and a later one that is torn."""
    kept, torn = reported.get("kept"), reported.get("torn")
    words = [] if torn is None else [f"save {torn} is torn"]
    if kept is not None:
        before = parse_time(reported["time"]) - parse_time(kept["time"])
        save = "a save" if kept["iteration"] is None else f"save {kept['iteration']}"
        words.insert(0, f"{save}, {span(before.total_seconds())} before")
    return "; ".join(words) or None

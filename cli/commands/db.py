"""`foreshock db migrate`, `prune`, `export`, `copy`, `status`: the schema, what is kept and how long, ways out."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, time
from typing import TYPE_CHECKING, Any

import click

from cli.console.errors import Failure
from cli.console.output import DB_OPTION, JSON_OPTION, print_json, print_table, print_text
from cli.console.secret_arguments import SecretOption
from cli.console.store import open_store, said, shown
from store.plural import many, plural
from store.records.event import RecordError, format_time, parse_time

if TYPE_CHECKING:
    from store.database.retention import RetentionPeriods


@click.group()
def db() -> None:
    """Look after the database."""


@db.command("migrate")
@DB_OPTION
def migrate_command(url: str) -> None:
    """Bring the schema to the newest revision; run it once after each upgrade, before the new servers start."""
    from sqlalchemy.exc import SQLAlchemyError

    from store.database.connections import DatabaseError, migrate, newest_revision, open_database, revision
    from store.database.integrity import remedy
    from store.database.partitions import BusyError

    try:
        engine = open_database(url)
        before = revision(engine)
        migrate(engine)
    except DatabaseError as error:
        raise Failure(str(error)) from error
    except (SQLAlchemyError, BusyError) as error:
        again = f"{said(error) if isinstance(error, SQLAlchemyError) else error}; run it again, it goes on where it was"
        raise Failure(f"cannot migrate {shown(url)}: {remedy(error) or again}") from error
    after = newest_revision()
    engine.dispose()
    print_text(f"the schema is at {after}" + ("" if before == after else f"; it was at {before or 'nothing'}"))


@db.command("prune")
@DB_OPTION
@click.option("--keep-days", type=int, help="Keep so many days of each of these alike.")
@click.option("--events-days", type=int, help="Of events; too few for what looks back are refused.")
@click.option("--telemetry-days", type=int, help="Of telemetry by the hour; too few for what looks back are refused.")
@click.option("--scores-days", type=int, help="Of scores; too few for what looks back are refused.")
@click.option("--incidents-days", type=int, help="Of incidents since their end; at least 91, so --keep-days, too.")
@click.option("--deliveries-days", type=int, help="Of the delivery log; too few for what looks back are refused.")
@click.option("--verdicts-days", type=int, help="Of verdicts since their end; at least 91, so --keep-days, too.")
@click.option("--audit-days", type=int, help="Of the audit, which --keep-days leaves alone; at least 400.")
@click.option("--dry-run", is_flag=True, help="Only say how many rows would go.")
@JSON_OPTION
def prune_command(url: str, keep_days: int | None, dry_run: bool, as_json: bool, **days: int | None) -> None:
    """Delete old events, telemetry, scores, incidents, verdicts and attempts to deliver; counts by the day stay.

    Outages, jobs, hints and their audit stay.
    What no option names is kept for ever.
    """
    from sqlalchemy.exc import SQLAlchemyError

    from store.database.retention import count_old, prune

    keep = _keep(keep_days, days)
    engine = open_store(url)
    before = keep.before(datetime.now(UTC))
    try:
        gone = count_old(engine, before) if dry_run else prune(engine, before)
    except SQLAlchemyError as error:
        raise Failure(f"cannot prune {shown(url)}: {said(error)}; run it again, it goes on where it was") from error
    finally:
        engine.dispose()
    _print_counts(gone, "would go" if dry_run else "deleted", as_json)


def _keep(keep_days: int | None, days: Mapping[str, int | None]) -> RetentionPeriods:
    from store.database.retention import MINIMUM, RetentionPeriods, too_short

    alike = dict.fromkeys((name for name in days if name != "audit_days"), keep_days)
    if keep_days is not None:
        alike |= {name: max(keep_days, getattr(MINIMUM, name)) for name in ("incidents_days", "verdicts_days")}
    keep = RetentionPeriods(**{name: alike.get(name) if count is None else count for name, count in days.items()})
    if keep == RetentionPeriods():
        options = ", ".join(f"--{name.replace('_', '-')}" for name in days)
        raise click.UsageError(f"say what to keep: --keep-days, {options}")
    name = too_short(keep)
    if name is not None:
        option = f"--{name.replace('_', '-')}"
        raise click.UsageError(
            f"{option} must be at least {getattr(MINIMUM, name)}: so far is looked back, and a day is to spare"
        )
    return keep


@db.command("export")
@DB_OPTION
@click.argument("folder")
@click.option("--table", "tables", multiple=True, help="Only this table; may be given several times.")
@click.option("--since", help="Of what is a file a day: only this day (2025-03-01) and later ones.")
@click.option("--until", help="Of what is a file a day: only days before this one.")
@click.option("--force", is_flag=True, help="Write days anew that an earlier export has written whole.")
@click.option(
    "--daily", is_flag=True, help="Incidents and outages by the day, too; days again to which rows came late."
)
@JSON_OPTION
def export_command(
    url: str, folder: str, tables: tuple[str, ...], force: bool, daily: bool, as_json: bool, **ends: str | None
) -> None:
    """Write the tables as Parquet to FOLDER or s3://BUCKET/PREFIX: TABLE.parquet, and of events ... a file a day.

    Cut off, it goes on with the days that are missing when it is run again.
    """
    from sqlalchemy.exc import SQLAlchemyError

    from store.database.export import EXPORTED, ExportPlace, ExportPlaceError, ExportRange, export

    known = {table.name for table in EXPORTED}
    for name in tables:
        if name not in known:
            raise Failure(f"--table {name}: expected one of {', '.join(sorted(known))}")
    days = ExportRange(*(_day(f"--{name}", ends[name]) for name in ("since", "until")))
    engine = open_store(url)
    try:
        written = export(engine, ExportPlace.of(folder), tables or None, days, force, daily)
    except ExportPlaceError as error:
        raise Failure(f"FOLDER: {error}") from error  # what was given may hold a key
    except OSError as error:
        raise Failure(f"cannot write to {folder}: {error.strerror or error}") from error
    except SQLAlchemyError as error:
        raise Failure(f"cannot read {shown(url)}: {said(error)}; run it again, it goes on where it was") from error
    finally:
        engine.dispose()
    _print_counts(written, "rows", as_json)


def _day(option: str, text: str | None) -> datetime | None:
    """The midnight that a day begins with."""
    if text is None:
        return None
    try:
        moment = parse_time(text)
    except RecordError as error:
        raise Failure(f"{option} {text}: expected a day like 2025-03-01") from error
    if moment.time() != time(0):
        raise Failure(f"{option} {text}: expected a day like 2025-03-01")
    return moment


@db.command("copy")
@DB_OPTION
@click.option(
    "--to",
    "target",
    cls=SecretOption,
    required=True,
    envvar="FORESHOCK_TO_DB",
    help="The new database, empty; a password belongs into FORESHOCK_TO_DB_FILE.",
)
@JSON_OPTION
def copy_command(url: str, target: str, as_json: bool) -> None:
    """Copy everything into an empty database: from SQLite to PostgreSQL, or back. Stop the servers first.

    All of it is there at the end, or nothing; the number of rows of each table and the audit's chain are compared.
    """
    from sqlalchemy.exc import SQLAlchemyError

    from store.database.copy import CopyRefusedError, copy_database

    engine, new = open_store(url), open_store(target, create=True)
    try:
        if engine.url == new.url:
            raise Failure("--to names the same database: name a new one")
        counts = copy_database(engine, new)
    except CopyRefusedError as error:
        raise Failure(f"cannot copy {shown(url)} to {shown(target)}: {error}") from error
    except SQLAlchemyError as error:
        raise Failure(f"cannot copy {shown(url)} to {shown(target)}: {said(error)}; nothing was kept") from error
    finally:
        engine.dispose()
        new.dispose()
    _print_counts({name: count for name, count in counts.items() if count}, "rows", as_json)


@db.command("status")
@DB_OPTION
@JSON_OPTION
def status_command(url: str, as_json: bool) -> None:
    """How large the database is, what it holds, and who leads."""
    from store.database.status import store_status

    engine = open_store(url)
    try:
        with engine.connect() as connection:
            status = store_status(connection)
    finally:
        engine.dispose()
    if as_json:
        print_json(status)
        return
    columns = ("table", "rows", "bytes", "partitions", "oldest", "newest")
    print_table([_shown(row) for row in status["tables"]], columns)
    waiting, lead = status["intake"], status["leases"]
    aside = waiting["set_aside"]
    print_text()
    print_text(f"revision {status['revision']}, {status['bytes']} bytes")
    print_text(
        f"{many(waiting['events'], 'event')} {plural(waiting['events'], 'waits', 'wait')} to be counted in incidents, "
        f"{many(aside, 'batch is', 'batches are')} set aside"
    )
    for lease in lead:
        print_text(f"lease {lease['name']}: {lease['holder']}" + ("" if lease["is_held"] else " (lapsed)"))


def _shown(row: Mapping[str, Any]) -> dict[str, Any]:
    rows = f"about {row['rows']}" if row["is_estimate"] else row["rows"]
    ends = {name: None if row[name] is None else format_time(row[name]) for name in ("oldest", "newest")}
    return {**row, "rows": rows, **ends}


def _print_counts(counts: Mapping[str, int], word: str, as_json: bool) -> None:
    if as_json:
        print_json(counts)
    else:
        print_table([{"table": table, word: count} for table, count in counts.items()], ("table", word))

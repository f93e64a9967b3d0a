"""`foreshock db migrate`, `prune`, `export`: the schema, how long things are kept, and a way out."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import click
from sqlalchemy.exc import SQLAlchemyError

from cli.errors import Failure
from cli.open import open_store, said, shown
from cli.output import DB_OPTION, JSON_OPTION, print_json, print_table
from store.database import DatabaseError, migrate, newest_revision, open_database, revision
from store.retention import prune

_MIN_KEEP_DAYS = 8


@click.group()
def db() -> None:
    """Look after the database."""


@db.command("migrate")
@DB_OPTION
def migrate_command(url: str) -> None:
    """Bring the schema to the newest revision; run it once after each upgrade, before the servers start."""
    try:
        engine = open_database(url)
        before = revision(engine)
        migrate(engine)
    except DatabaseError as error:
        raise Failure(str(error)) from error
    except SQLAlchemyError as error:
        raise Failure(f"cannot migrate {shown(url)}: {said(error)}") from error
    after = newest_revision()
    engine.dispose()
    click.echo(f"the schema is at {after}" + ("" if before == after else f"; it was at {before or 'nothing'}"))


@db.command("prune")
@DB_OPTION
@click.option(
    "--keep-days",
    type=click.IntRange(min=_MIN_KEEP_DAYS),
    required=True,
    help="Keep so many days of events, telemetry roll-ups and scores; the features of a score look back a week.",
)
@JSON_OPTION
def prune_command(url: str, keep_days: int, as_json: bool) -> None:
    """Delete old events, roll-ups and scores. Outages, jobs, incidents, hints and the audit stay."""
    engine = open_store(url)
    gone = prune(engine, datetime.now(UTC) - timedelta(days=keep_days))
    engine.dispose()
    _print_counts(gone, "deleted", as_json)


@db.command("export")
@DB_OPTION
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False))
@JSON_OPTION
def export_command(url: str, folder: Path, as_json: bool) -> None:
    """Write every table as a Parquet file into FOLDER."""
    from store.export import export

    engine = open_store(url)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        written = export(engine, folder)
    except OSError as error:
        raise Failure(f"cannot write to {folder}: {error.strerror or error}") from error
    finally:
        engine.dispose()
    _print_counts(written, "rows", as_json)


def _print_counts(counts: dict[str, int], word: str, as_json: bool) -> None:
    if as_json:
        print_json(counts)
    else:
        print_table([{"table": table, word: count} for table, count in counts.items()], ("table", word))

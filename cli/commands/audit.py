"""`foreshock audit verify`, `export`: whether the audit is as it was written, and a copy to check anywhere."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cli.console.errors import CheckFailed, Failure
from cli.console.files import write_whole
from cli.console.output import JSON_OPTION, print_json, print_text
from cli.console.secret_arguments import SecretOption
from cli.console.store import open_store, said, shown
from store.plural import many

if TYPE_CHECKING:
    import sqlalchemy as sa

    from store.database.audit_chain import AuditCheck

_DB = click.option(
    "--db", "url", cls=SecretOption, envvar="FORESHOCK_DB", help="Database: sqlite:///PATH or postgresql+psycopg://..."
)


@click.group()
def audit() -> None:
    """Check the audit's hash chain, and write it out."""


@audit.command("verify")
@click.argument("file", type=click.Path(path_type=Path), required=False)
@_DB
@click.option("--head", help="A hash that was the head's at some time (13 digits or more): a row must still have it.")
@JSON_OPTION
def verify(file: Path | None, url: str | None, head: str | None, as_json: bool) -> None:
    """Compute the chain anew, of the database or of an exported FILE; exit 3 with the first row that does not fit.

    Without --head a tail that was cut off, or a chain that was written anew as a whole, cannot be seen.
    """
    from store.database.audit_chain import AuditFileError, verify_chain, verify_lines

    wanted = _digits(head)
    if file is not None:
        try:
            with file.open(encoding="utf-8", errors="surrogateescape") as lines:
                found = verify_lines(lines, wanted)
        except OSError as error:
            raise Failure(f"cannot read {file}: {error.strerror or error}") from error
        except AuditFileError as error:
            raise CheckFailed(f"{file}, {error}") from error
    elif url is None:
        raise click.UsageError("name a FILE of `foreshock audit export`, or --db URL")
    else:
        with _reading(url) as connection:
            found = verify_chain(connection, wanted)
    _tell(found, head, as_json)


def _digits(head: str | None) -> str | None:
    """What a hash begins with, as it was given."""
    from store.database.audit_chain import LEAST_DIGITS

    if head is None:
        return None
    text = head.strip().lower()
    if not LEAST_DIGITS <= len(text) <= 64 or set(text) - set("0123456789abcdef"):
        raise Failure(f"--head {head}: expected {LEAST_DIGITS} to 64 hex digits of a hash")
    return text


def _tell(found: AuditCheck, head: str | None, as_json: bool) -> None:
    is_whole = found.broken is None and found.is_anchored is not False
    if as_json:
        row: dict[str, Any] = {"is_whole": is_whole, **asdict(found)}
        print_json(row)
    elif is_whole:
        begun = f", those up to place {found.cut} were pruned" if found.cut else ""
        print_text(f"{many(found.rows, 'row')}, each as it was written{begun}")
        print_text(f"head: place {found.head.position}, {found.head.hash}")
    if found.broken is not None:
        place = "" if found.broken.position is None else f"place {found.broken.position}: "
        raise CheckFailed(f"the audit is not as it was written: {place}{found.broken.why}")
    if not is_whole:
        raise CheckFailed(f"no row has the hash {head}: the end of the audit was cut off, or all of it written anew")


@audit.command("export")
@_DB
@click.option("--out", type=click.Path(path_type=Path, dir_okay=False), help="A file; without it standard output.")
def export(url: str | None, out: Path | None) -> None:
    """Write every row as a line of JSON with its hash, and the head's hash last; `verify FILE` checks it anywhere."""
    from store.database.audit_chain import export_lines

    if url is None:
        raise click.UsageError("name the database: --db URL")
    with _reading(url) as connection:
        if out is None:
            for line in export_lines(connection):
                print_text(line)
        else:
            write_whole(out, (f"{line}\n".encode("ascii") for line in export_lines(connection)))


@contextmanager
def _reading(url: str) -> Iterator[sa.Connection]:
    """One reading of a database, in which nothing changes meanwhile."""
    from sqlalchemy.exc import SQLAlchemyError

    engine = open_store(url)
    options = {"isolation_level": "REPEATABLE READ"} if engine.dialect.name == "postgresql" else {}
    try:
        with engine.connect() as connection:
            yield connection.execution_options(**options)
    except SQLAlchemyError as error:
        raise Failure(f"cannot read {shown(url)}: {said(error)}") from error
    finally:
        engine.dispose()

"""What `foreshock ingest` has taken of archives: files by their path and content, so that it resumes where it was."""

from dataclasses import dataclass
from datetime import datetime

import sqlalchemy as sa

from store import schema
from store.append import upsert

# A row that earlier versions kept beside the files; no file of an archive bears this name.
_INCIDENTS = ".incidents"


@dataclass(frozen=True, slots=True)
class IngestedFile:
    """A file that was taken to its end."""

    path: str  # relative to the archive
    sha256: str
    records: int
    skipped: int
    done: datetime


def read_ingested(connection: sa.Connection) -> dict[tuple[str, str], IngestedFile]:
    """Every file taken, by path and content."""
    table = schema.ingested
    rows = connection.execute(sa.select(table).where(table.c.path != _INCIDENTS)).mappings()
    return {(row["path"], row["sha256"]): IngestedFile(**row) for row in rows}


def note_ingested(connection: sa.Connection, file: IngestedFile) -> None:
    """Note a file as taken; in the transaction that wrote its records."""
    row = {"path": file.path, "sha256": file.sha256, "records": file.records, "skipped": file.skipped}
    upsert(connection, schema.ingested, [{**row, "done": file.done}])

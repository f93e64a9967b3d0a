"""Export: each table as one Parquet file (zstd), read in batches; columns that hold JSON are JSON text.

Models and the server's own book-keeping are left out.
"""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import sqlalchemy as sa

from store import schema

EXPORTED = (
    schema.nodes,
    schema.events,
    schema.outages,
    schema.jobs,
    schema.telemetry,
    schema.links,
    schema.incidents,
    schema.scores,
    schema.hints,
    schema.audit,
    schema.rules,
    schema.sidecars,
    schema.event_days,
    schema.telemetry_days,
)
_BATCH = 50_000


def export(engine: sa.Engine, folder: Path) -> dict[str, int]:
    """Write every table to `folder/TABLE.parquet`; returns the rows of each. A file that is there is replaced."""
    return {f"{table.name}": _export_table(engine, table, folder / f"{table.name}.parquet") for table in EXPORTED}


def _export_table(engine: sa.Engine, table: sa.Table, file: Path) -> int:
    columns = pa.schema([(column.name, _arrow_type(column.type)) for column in table.columns])
    order = list(table.primary_key)
    unfinished = file.with_suffix(".part")
    count = 0
    with engine.connect() as connection, pq.ParquetWriter(unfinished, columns, compression="zstd") as writer:
        query = sa.select(table).order_by(*order).execution_options(yield_per=_BATCH)
        for rows in connection.execute(query).mappings().partitions():
            writer.write_table(pa.table({c.name: [_plain(c, row[c.name]) for row in rows] for c in table.c}, columns))
            count += len(rows)
    unfinished.replace(file)
    return count


def _arrow_type(kind: sa.types.TypeEngine[Any]) -> Any:
    if isinstance(kind, schema.UtcTime):
        return pa.timestamp("us", tz="UTC")
    for sql, arrow in ((sa.Boolean, pa.bool_()), (sa.Float, pa.float64()), (sa.Integer, pa.int64())):
        if isinstance(kind, sql):
            return arrow
    return pa.string()


def _plain(column: sa.Column[Any], value: Any) -> Any:
    return json.dumps(value) if isinstance(column.type, sa.JSON) and value is not None else value

"""A database copied whole: every row of every table, to the letter, whichever kind it goes to; or nothing of it."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import sqlalchemy as sa

from store.database.audit_chain import AuditEntry, append_audit, verify_chain
from store.database.connections import open_database, writing
from store.database.coordination import acquire
from store.database.copy import CopyRefusedError, copy_database
from store.database.partitions import partitions
from store.tables import schema
from store.tables.bulk_rows import insert_rows
from store.tables.verdict_tables import symptom_news

NOW = datetime(2025, 3, 1, 12, 0, 0, 1, tzinfo=UTC)
ODD = "ü\t\\N\n\"',;\\ x"
TABLES = [table for table in schema.metadata.sorted_tables if table.name not in ("leases", "audit", "keys")]


@pytest.fixture(params=["sqlite to postgresql", "postgresql to sqlite", "postgresql to postgresql"])
def pair(request: pytest.FixtureRequest, engine: sa.Engine) -> Iterator[tuple[sa.Engine, sa.Engine]]:
    """A database with a row in every table, and an empty one."""
    databases = request.getfixturevalue("migrated_databases")
    first, second = (open_database(databases.take()) for _ in range(2))
    chosen = {
        "sqlite to postgresql": (engine, first),
        "postgresql to sqlite": (first, engine),
        "postgresql to postgresql": (first, second),
    }[request.param]
    fill(chosen[0])
    with writing(chosen[1]).begin() as connection:
        connection.execute(sa.delete(schema.keys))
    yield chosen
    for made in (first, second):
        made.dispose()
        databases.give_back(made.url.database)


def value(column: sa.Column[Any], number: int) -> Any:
    """One that its column takes; texts that are awkward in COPY and in SQL."""
    kind = column.type
    if isinstance(kind, schema.UtcTime):
        return NOW + timedelta(days=number, microseconds=number)
    if isinstance(kind, sa.JSON):
        return '{"b": 1.50, "a": "\\u00fc\\\\n"}'
    for sql, found in ((sa.Boolean, number % 2 == 0), (sa.Float, number + 1 / 3), (sa.Integer, number)):
        if isinstance(kind, sql):
            return found
    return b"\x00\xff\\n" + bytes([number]) if isinstance(kind, sa.LargeBinary) else f"{ODD}{number}"


def fill(engine: sa.Engine) -> None:
    """Three rows in every table, a missing value where one may be, an audit, and numbers whose rows are gone."""
    with writing(engine).begin() as connection:
        for table in TABLES:
            names = [column.name for column in table.columns]
            for number in (1, 2, 3):
                row = [None if number == 3 and column.nullable else value(column, number) for column in table.columns]
                insert_rows(connection, table, names, [row])
        append_audit(connection, [AuditEntry(NOW, "ann", "approved", "h", {"reason": ODD}) for _ in range(3)])
        first = symptom_news.insert().values(received=NOW, count=1, events=b"x", seq=900)
        connection.execute(first)
        connection.execute(sa.delete(symptom_news).where(symptom_news.c.seq == 900))
        if engine.dialect.name == "postgresql":
            connection.execute(sa.text("SELECT setval(pg_get_serial_sequence('symptom_news', 'seq'), 900)"))


def rows_of(engine: sa.Engine, table: sa.Table) -> list[tuple[Any, ...]]:
    """All rows, JSON as its text."""
    columns = [sa.cast(c, sa.Text) if isinstance(c.type, sa.JSON) else c for c in table.columns]
    with engine.connect() as connection:
        return sorted((tuple(row) for row in connection.execute(sa.select(*columns))), key=repr)


@pytest.mark.integration
def test_every_row_of_every_table_comes_to_the_letter(pair: tuple[sa.Engine, sa.Engine]) -> None:
    """The audit's chain holds there, days have their partitions, and the next numbers are new."""
    source, target = pair
    told: dict[str, int] = {}
    counts = copy_database(source, target, lambda name, count: told.update({name: count}))
    assert counts == told
    for table in schema.metadata.sorted_tables:
        assert rows_of(target, table) == rows_of(source, table), table.name
        assert table.name == "leases" or counts[table.name] >= 1
    with writing(target).begin() as connection:
        checked = verify_chain(connection)
        assert (checked.broken, checked.rows) == (None, 3)
        append_audit(connection, [AuditEntry(NOW, "ann", "approved", "h2", {})])
        added = connection.execute(symptom_news.insert().values(received=NOW, count=1, events=b"x"))
        assert added.inserted_primary_key is not None
        assert added.inserted_primary_key[0] == 901
    with target.connect() as connection:
        assert (verify_chain(connection).broken, verify_chain(connection).rows) == (None, 4)


@pytest.mark.integration
def test_a_day_gets_its_partition(engine: sa.Engine, postgres_engine: sa.Engine) -> None:
    """As if the events had come one after the other."""
    now = datetime.now(UTC)
    with writing(postgres_engine).begin() as connection:
        connection.execute(sa.delete(schema.keys))
    with writing(engine).begin() as connection:
        rows = [{"node": "a", "time": now - timedelta(days=day), "horizon_h": 24, "score": 0.1} for day in (0, 1, 40)]
        connection.execute(schema.scores.insert(), [{**row, "reasons": [], "model": "m"} for row in rows])
    copy_database(engine, postgres_engine)
    with postgres_engine.connect() as connection:
        days = {part.name for part in partitions(connection, "scores")}
    assert len(days) >= 4


def test_a_database_that_holds_something_is_left_alone(engine: sa.Engine, tmp_path: Any, migrated_file: Any) -> None:
    """Nothing is mixed, and nothing of the copy stays."""
    other = open_database(f"sqlite:///{tmp_path / 'other.db'}")
    (tmp_path / "other.db").write_bytes(migrated_file.read_bytes())
    with pytest.raises(CopyRefusedError, match="holds rows already"):
        copy_database(engine, other)
    other.dispose()


def test_a_server_that_works_on_it_is_named(engine: sa.Engine, tmp_path: Any, migrated_file: Any) -> None:
    """What it wrote meanwhile would be missing; its lease lapses by itself once it is stopped."""
    other = open_database(f"sqlite:///{tmp_path / 'other.db'}")
    (tmp_path / "other.db").write_bytes(migrated_file.read_bytes())
    assert acquire(engine, "loops", "srv-1", None, 60.0)
    with pytest.raises(CopyRefusedError, match="srv-1 works on it: stop every server"):
        copy_database(engine, other)
    other.dispose()


def test_a_broken_chain_is_told_and_not_carried_on(engine: sa.Engine, tmp_path: Any, migrated_file: Any) -> None:
    """Of the new database nothing is kept."""
    other = open_database(f"sqlite:///{tmp_path / 'other.db'}")
    (tmp_path / "other.db").write_bytes(migrated_file.read_bytes())
    with writing(other).begin() as connection:
        connection.execute(sa.delete(schema.keys))
    with writing(engine).begin() as connection:
        append_audit(connection, [AuditEntry(NOW, "ann", "approved", "h", {}) for _ in range(3)])
    with writing(engine).begin() as connection:
        connection.execute(sa.update(schema.audit).where(schema.audit.c.seq == 2).values(actor="bob"))
    with pytest.raises(CopyRefusedError, match="chain is broken, in the source, too"):
        copy_database(engine, other)
    assert rows_of(other, schema.audit) == []
    other.dispose()

"""The schema and its migrations: one and the same, on both databases."""

from datetime import UTC, datetime, timedelta, timezone

import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy.dialects import postgresql, sqlite

from store.database.connections import migrate, newest_revision, revision
from store.tables import hint_tables, schema


def is_whole(name: str | None, kind: str, _parents: object) -> bool:
    """Whether a name is a table of ours, not a part of one."""
    return kind != "table" or name in hint_tables.metadata.tables


def only_on_postgresql(index: object) -> bool:
    """Whether an index is one that SQLite, which numbers its rows, does without."""
    return isinstance(index, sa.Index) and index.dialect_options["postgresql"]["using"] == "brin"


def test_the_migrations_make_the_schema(any_engine: sa.Engine) -> None:
    """Alembic finds no difference between a migrated database and schema.py, types included."""

    def is_here(item: object) -> bool:
        return any_engine.dialect.name == "postgresql" or not only_on_postgresql(item)

    with any_engine.connect() as connection:
        opts = {"compare_type": True, "include_name": is_whole, "include_object": lambda item, *_: is_here(item)}
        context = MigrationContext.configure(connection, opts=opts)
        assert compare_metadata(context, hint_tables.metadata) == []


def test_migrating_again_changes_nothing(any_engine: sa.Engine) -> None:
    """It is at the newest revision already."""
    assert revision(any_engine) == newest_revision()
    migrate(any_engine)
    assert revision(any_engine) == newest_revision()


def test_every_index_is_there_under_its_name(any_engine: sa.Engine) -> None:
    """A missing one shows only at scale."""
    inspector = sa.inspect(any_engine)
    everything = any_engine.dialect.name == "postgresql"
    for table in hint_tables.metadata.tables.values():
        wanted = {index.name for index in table.indexes if everything or not only_on_postgresql(index)}
        assert {index["name"] for index in inspector.get_indexes(table.name)} == wanted


def test_every_column_bears_the_name_of_its_record_s_field() -> None:
    """Rows become records by keyword."""
    from dataclasses import fields

    from store.records.incident import Incident
    from store.records.job import Job
    from store.records.node import Node
    from store.records.outage import Outage
    from store.records.telemetry import Rollup

    kept_beside = {"names", "groups"}  # of a node: rows of device_names and node_groups
    for table, record, more in (
        (schema.nodes, Node, {"last_seen"}),
        (schema.outages, Outage, set()),
        (schema.jobs, Job, {"attempt"}),
        (schema.telemetry, Rollup, {"packed"}),
        (schema.incidents, Incident, {"heads", "parts"}),
    ):
        named = {f.name for f in fields(record)} - kept_beside
        assert {column.name for column in table.columns} == named | more


@pytest.mark.parametrize("dialect", [sqlite.dialect(), postgresql.dialect()])
def test_a_moment_goes_to_the_database_and_back(dialect: sa.Dialect) -> None:
    """In microseconds on SQLite, as itself on PostgreSQL; from another zone in UTC."""
    kind = schema.UtcTime()
    moment = datetime(2025, 3, 1, 4, 5, 6, 789, tzinfo=timezone(timedelta(hours=2)))
    back = kind.process_result_value(kind.process_bind_param(moment, dialect), dialect)
    assert back == moment
    assert back is not None
    assert back.tzinfo is UTC
    assert kind.process_bind_param(None, dialect) is None
    assert kind.process_result_value(None, dialect) is None


def test_a_moment_without_a_zone_is_refused_on_sqlite() -> None:
    """Nobody can tell when it was."""
    with pytest.raises(TypeError):
        schema.UtcTime().process_bind_param(datetime(2025, 3, 1), sqlite.dialect())  # noqa: DTZ001

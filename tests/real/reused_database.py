"""A migrated PostgreSQL database that one test after another may use: emptied in a tenth of a new one's time.

migrated = MigratedDatabases(server, prepare)
name = migrated.take()
migrated.give_back(name)  # after every connection to it was closed

What a test left is gone: rows, day partitions, counters of sequences, the planner's statistics. A database that is not
the same again after that (a test changed the schema, or still reads) is dropped, and the next test has a new one. Each
time it has another name, so that what a test forgot to stop can write into no later test.
"""

import secrets
import time
from collections.abc import Callable
from typing import Any, LiteralString

import psycopg
from psycopg import sql
from psycopg.rows import tuple_row
from real.postgres import Postgres

Rows = list[tuple[Any, ...]]

# All that a migration makes, by the numbers that the server gave it; not where a table's rows lie, nor how many.
_SCHEMA = """
SELECT 'relation', oid, relname, relkind::text || array_to_string(reloptions, ',')
  FROM pg_class WHERE relnamespace = 'public'::regnamespace
UNION ALL SELECT 'column', attrelid, attname, attnum || ' ' || atttypid || attnotnull || attisdropped || atthasdef
  FROM pg_attribute JOIN pg_class ON pg_class.oid = attrelid WHERE relnamespace = 'public'::regnamespace AND attnum > 0
UNION ALL SELECT 'constraint', oid, conname, '' FROM pg_constraint WHERE connamespace = 'public'::regnamespace
UNION ALL SELECT 'trigger', pg_trigger.oid, tgname, tgenabled::text
  FROM pg_trigger JOIN pg_class ON pg_class.oid = tgrelid WHERE relnamespace = 'public'::regnamespace
UNION ALL SELECT 'function', oid, proname, md5(prosrc) FROM pg_proc WHERE pronamespace = 'public'::regnamespace
UNION ALL SELECT 'setting', setdatabase, setconfig::text, '' FROM pg_db_role_setting
UNION ALL SELECT 'namespace', oid, nspname, '' FROM pg_namespace WHERE nspname !~ '^pg_(toast|temp)'
UNION ALL SELECT 'role', oid, rolname, '' FROM pg_roles
ORDER BY 1, 2, 3, 4
"""
_PARTITIONS = """
SELECT oid, relname FROM pg_class WHERE relkind = 'r' AND relispartition AND relnamespace = 'public'::regnamespace
"""
_WRITTEN = """
SELECT relname FROM pg_class
WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace AND pg_relation_size(oid) > 0
"""
_COUNTED = "SELECT sequencename FROM pg_sequences WHERE schemaname = 'public' AND last_value IS NOT NULL"
_FORGET = """
DELETE FROM pg_statistic USING pg_class WHERE pg_class.oid = starelid AND relnamespace = 'public'::regnamespace
"""
_OTHERS = "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
_PATIENCE_S = 2.0


class MigratedDatabases:
    """Databases of one server, each the same as the first when a test takes it."""

    def __init__(self, server: Postgres, prepare: Callable[[str], None]) -> None:
        """`prepare` migrates the database of a URL, and leaves no connection to it."""
        self._server = server
        self._first = f"migrated_{secrets.token_hex(6)}"
        prepare(server.create(self._first))
        with self._connection(self._first) as connection:
            self._schema: Rows = connection.execute(_SCHEMA).fetchall()
            self._rows = {name: _rows(connection, name) for name in _names(connection, _WRITTEN)}
        self._free: list[str] = []

    def take(self) -> str:
        """The URL of a database that nobody else uses."""
        name = f"test_{secrets.token_hex(6)}"
        if not self._free:
            return self._server.create(name, self._first)
        with self._server.connection() as connection:
            old, new = sql.Identifier(self._free.pop()), sql.Identifier(name)
            connection.execute(sql.SQL("ALTER DATABASE {} RENAME TO {}").format(old, new))
        return self._server.url(name)

    def give_back(self, name: str) -> None:
        """Keep it for another test, if it can be made what it was."""
        try:
            same = self._emptied(name)
        except psycopg.Error:  # it is gone, or somebody holds a lock
            same = False
        if same:
            self._free.append(name)
        else:
            self._server.drop(name)

    def _connection(self, name: str) -> psycopg.Connection[tuple[Any, ...]]:
        return psycopg.connect(self._server.dsn(name), row_factory=tuple_row)

    def _emptied(self, name: str) -> bool:
        """Whether it is the same as the first again."""
        with self._connection(name) as connection:
            until = time.monotonic() + _PATIENCE_S
            while connection.execute(_OTHERS).fetchone():  # the server takes a moment to see that one has gone
                connection.rollback()
                if time.monotonic() > until:
                    return False
                time.sleep(0.002)
            connection.execute(sql.SQL("SET lock_timeout = {}").format(int(_PATIENCE_S * 1000)))
            known = {row[1] for row in self._schema if row[0] == "relation"}
            days = [name for number, name in connection.execute(_PARTITIONS).fetchall() if number not in known]
            _each(connection, "DROP TABLE {}", days)
            changed = [name for name in _names(connection, _WRITTEN) if not self._kept(connection, name)]
            _each(connection, "TRUNCATE {}", changed)
            for table in set(changed) & set(self._rows):
                _restore(connection, table, self._rows[table])
            for sequence in _names(connection, _COUNTED):
                connection.execute(sql.SQL("ALTER SEQUENCE {} RESTART").format(sql.Identifier(sequence)))
            connection.execute(_FORGET)
            return connection.execute(_SCHEMA).fetchall() == self._schema

    def _kept(self, connection: psycopg.Connection[tuple[Any, ...]], table: str) -> bool:
        return table in self._rows and _rows(connection, table) == self._rows[table]


def _names(connection: psycopg.Connection[tuple[Any, ...]], query: LiteralString) -> list[str]:
    return [row[0] for row in connection.execute(query).fetchall()]


def _rows(connection: psycopg.Connection[tuple[Any, ...]], table: str) -> Rows:
    return sorted(connection.execute(sql.SQL("SELECT * FROM {}").format(sql.Identifier(table))).fetchall(), key=repr)


def _each(connection: psycopg.Connection[tuple[Any, ...]], statement: LiteralString, tables: list[str]) -> None:
    """All tables in one statement: one may refer to another."""
    if tables:
        listed = sql.SQL(", ").join(map(sql.Identifier, tables))
        connection.execute(sql.SQL(statement).format(listed))


def _restore(connection: psycopg.Connection[tuple[Any, ...]], table: str, rows: Rows) -> None:
    for row in rows:
        places = sql.SQL(", ").join(sql.Placeholder() * len(row))
        connection.execute(sql.SQL("INSERT INTO {} VALUES ({})").format(sql.Identifier(table), places), row)

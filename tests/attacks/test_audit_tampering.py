"""Whoever can write to the database and changes the audit is found, whichever row it is and whatever is done to it."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import sqlalchemy as sa
from click.testing import CliRunner
from depth import deepened
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from real.postgres import Postgres

from cli.main import foreshock
from store.database.connections import migrate, open_database, writing
from store.hints.stops import note_trip, reset_trip, set_kill_switch
from store.tables import schema

NOW = datetime(2025, 3, 1, 12, tzinfo=UTC)
ROWS = 9
_TEXTS = ("actor", "action", "subject")
what = st.one_of(
    st.tuples(st.sampled_from(_TEXTS), st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=8)),
    st.tuples(st.just("detail"), st.dictionaries(st.text("ab", max_size=2), st.integers(), max_size=2)),
    st.tuples(st.just("time"), st.integers(1, 10**9).map(lambda count: NOW - timedelta(microseconds=count))),
    st.tuples(st.sampled_from(["deleted", "doubled", "swapped"]), st.integers(1, ROWS)),
)


def write(engine: sa.Engine) -> None:
    """What people and the policy did."""
    for i in range(3):
        with writing(engine).begin() as connection:
            set_kill_switch(connection, "holds", f"fans {i}", NOW, "alice")
            note_trip(connection, ("leaf", f"l{i}"), "4 nodes", 4, NOW, "policy")
            reset_trip(connection, i + 1, "drop", NOW, "alice")


def tamper(connection: sa.Connection, seq: int, done: tuple[str, Any]) -> bool:
    """Do something to a row; whether it is another audit then."""
    table, (name, value) = schema.audit, done
    mine = table.c.seq == seq
    if name == "deleted":
        connection.execute(sa.delete(table).where(mine))
        return seq < ROWS  # the newest row alone can be cut off unseen
    row = dict(connection.execute(sa.select(table).where(mine)).mappings().one())
    if name == "doubled":
        connection.execute(table.insert().values(**{**row, "seq": 100 + seq, "position": 100 + seq}))
        return True
    if name == "swapped":
        other = dict(connection.execute(sa.select(table).where(table.c.seq == value)).mappings().one())
        for one, of in ((seq, other), (value, row)):
            content = {key: of[key] for key in ("time", *_TEXTS, "detail")}
            connection.execute(sa.update(table).where(table.c.seq == one).values(**content))
        return any(row[key] != other[key] for key in ("time", *_TEXTS, "detail"))
    connection.execute(sa.update(table).where(mine).values(**{name: value}))
    return bool(row[name] != value)


def check(engine: sa.Engine, url: str, seq: int, done: tuple[str, Any]) -> None:
    """What was done is found, and what was not done is not; then it is as it was."""
    with writing(engine).begin() as connection:
        kept = [dict(row) for row in connection.execute(sa.select(schema.audit)).mappings()]
        is_other = tamper(connection, seq, done)
    found = CliRunner().invoke(foreshock, ["audit", "verify", "--db", url])
    with writing(engine).begin() as connection:
        connection.execute(sa.delete(schema.audit))
        connection.execute(schema.audit.insert(), kept)
    assert (found.exit_code, "is not as it was written" in found.stderr) == ((3, True) if is_other else (0, False))


@pytest.mark.hypothesis
@pytest.mark.parametrize("database", ["sqlite", pytest.param("postgresql", marks=pytest.mark.integration)])
def test_any_change_of_any_row_is_found(database: str, tmp_path_factory: Any, request: pytest.FixtureRequest) -> None:
    """Its content, its absence, another row with the same content, two rows in each other's place."""
    url = f"sqlite:///{tmp_path_factory.mktemp('audit') / 'foreshock.db'}"
    if database == "postgresql":
        server: Postgres = request.getfixturevalue("postgres_server")
        url = server.new_database()
    engine = open_database(url)
    migrate(engine)
    write(engine)

    @deepened(settings(max_examples=40, suppress_health_check=list(HealthCheck)))
    @given(st.integers(1, ROWS), what)
    def play(seq: int, done: tuple[str, Any]) -> None:
        check(engine, url, seq, done)

    play()
    engine.dispose()

"""The audit's hash chain: whatever is done to a row, a check finds the first place that is not as it was written."""

import json
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest
import sqlalchemy as sa
from real.postgres import Postgres

from store.database.audit_chain import (
    AuditCheck,
    AuditEntry,
    AuditFileError,
    append_audit,
    audit_head,
    export_lines,
    verify_chain,
    verify_lines,
)
from store.database.connections import migrate, open_database, writing
from store.database.coordination import move_mark
from store.database.retention import prune
from store.hints.hint_log import save_hint
from store.hints.policy_history import note_policy, note_rules
from store.hints.stops import note_trip, reset_trip, set_kill_switch
from store.models.registry import note_training
from store.records.hint import Hint
from store.tables import schema

NOW = datetime(2025, 3, 1, 12, tzinfo=UTC)
DAY = timedelta(days=1)
AUDIT = schema.audit
DETAIL = {"node": "gpu-017", "share": 0.1, "large": 2**70, "words": ["é", "\x00", "\ud800"], "none": None}


def write(engine: sa.Engine, count: int = 5, start: datetime = NOW) -> None:
    """Some rows, each in a transaction of its own."""
    for i in range(count):
        with writing(engine).begin() as connection:
            append_audit(connection, [AuditEntry(start + i * DAY, "alice", "approved", f"h{i}", {"i": i})])


def check(engine: sa.Engine, head: str | None = None) -> AuditCheck:
    """What a check finds."""
    with engine.connect() as connection:
        return verify_chain(connection, head)


def head_of(engine: sa.Engine) -> str:
    """The hash of the newest row."""
    with engine.connect() as connection:
        return audit_head(connection).hash


def tamper(engine: sa.Engine, *statements: str) -> None:
    """What somebody does with a database shell."""
    with writing(engine).begin() as connection:
        for statement in statements:
            connection.execute(sa.text(statement))


def test_every_writer_of_the_audit_is_in_the_chain(any_engine: sa.Engine) -> None:
    """Hints, switches, trips and their resets, trainings, policies and rules, in the order of the commits."""
    hint = Hint("h1", "gpu-017", "cordon", "approved", "foreshock: xid 79", "foreshock", NOW, NOW + DAY)
    with writing(any_engine).begin() as connection:
        save_hint(connection, hint, NOW, {"change": "made"})
        set_kill_switch(connection, "holds", "fans", NOW, "alice")
        note_trip(connection, ("leaf", "l1"), "4 nodes", 4, NOW, "policy")
        reset_trip(connection, 1, "drop", NOW, "alice")
    with writing(any_engine).begin() as connection:
        note_training(connection, NOW, "started", "alice", {})
        note_policy(connection, "v1", "{}", NOW)
        note_rules(connection, "r1", "faults: []", NOW)
    found = check(any_engine)
    assert (found.rows, found.broken, found.head.position) == (7, None, 7)
    with any_engine.connect() as connection:
        subjects = connection.scalars(sa.select(AUDIT.c.subject).order_by(AUDIT.c.position)).all()
    assert subjects == ["h1", "switch", "breaker", "breaker", "training", "policy", "rules"]


def test_any_content_that_a_database_keeps_gives_the_same_hash_when_it_is_read_again(any_engine: sa.Engine) -> None:
    """Large numbers, fractions, letters of any kind, moments of a microsecond."""
    detail = {name: value for name, value in DETAIL.items() if name != "words"} | {"words": ["é", "\u2028"]}
    moment = NOW.replace(microsecond=123457)
    with writing(any_engine).begin() as connection:
        append_audit(connection, [AuditEntry(moment, "a\u202eb", "said", "x", detail)] * 3)
    assert check(any_engine).broken is None
    with any_engine.connect() as connection:
        lines = list(export_lines(connection))
    assert verify_lines(lines).broken is None


def test_what_is_rolled_back_leaves_no_gap(any_engine: sa.Engine) -> None:
    """Neither of a transaction nor of a part of one."""
    write(any_engine, 1)
    with pytest.raises(RuntimeError), writing(any_engine).begin() as connection:
        append_audit(connection, [AuditEntry(NOW, "a", "b", "c", {})])
        raise RuntimeError
    with writing(any_engine).begin() as connection:
        append_audit(connection, [AuditEntry(NOW, "a", "kept", "c", {})])
        part = connection.begin_nested()
        append_audit(connection, [AuditEntry(NOW, "a", "lost", "c", {})])
        part.rollback()
    found = check(any_engine)
    assert (found.rows, found.broken) == (2, None)


# What is done to the third of five rows: (statement, the place where it shows, a word of what is said).
TAMPERED: dict[str, tuple[list[str], int | None, str]] = {
    "time": (["UPDATE audit SET time = (SELECT time FROM audit WHERE seq = 1) WHERE seq = 3"], 3, "content"),
    "actor": (["UPDATE audit SET actor = 'bob' WHERE seq = 3"], 3, "content of row 3 was changed"),
    "action": (["UPDATE audit SET action = 'withdrawn' WHERE seq = 3"], 3, "content"),
    "subject": (["UPDATE audit SET subject = 'h9' WHERE seq = 3"], 3, "content"),
    "detail": (["UPDATE audit SET detail = '{\"i\": 7}' WHERE seq = 3"], 3, "content"),
    "seq": (["UPDATE audit SET seq = 33 WHERE seq = 3"], 3, "content"),
    "hash": (["UPDATE audit SET hash = upper(hash) WHERE seq = 3"], 3, "hash of row 3"),
    "the newest row": (["UPDATE audit SET actor = 'bob' WHERE seq = 5"], 5, "is not what was written"),
    "place": (["UPDATE audit SET position = NULL WHERE seq = 3"], 4, "is missing"),
    "the last place": (["UPDATE audit SET position = NULL, hash = NULL WHERE seq = 5"], None, "not in the chain"),
    "deleted": (["DELETE FROM audit WHERE seq = 3"], 4, "place 3 is missing"),
    "the first deleted": (["DELETE FROM audit WHERE seq = 1"], 2, "place 1 is missing"),
    "two deleted": (["DELETE FROM audit WHERE seq IN (2, 3)"], 4, "place 2 to 3 is missing"),
    "inserted": (
        [
            "INSERT INTO audit (time, actor, action, subject, detail)"
            " SELECT time, 'x', 'y', 'z', detail FROM audit WHERE seq = 3"
        ],
        None,
        "is not in the chain",
    ),
    "inserted with a place": (
        [
            "INSERT INTO audit (time, actor, action, subject, detail, position, hash)"
            " SELECT time, 'x', 'y', 'z', detail, 6, hash FROM audit WHERE seq = 5"
        ],
        6,
        "is not what was written",
    ),
    "reordered": (
        [
            "UPDATE audit SET position = -1 WHERE seq = 3",
            "UPDATE audit SET position = 3 WHERE seq = 4",
            "UPDATE audit SET position = 4 WHERE seq = 3",
        ],
        3,
        "is not what was written",
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", TAMPERED)
def test_a_row_that_is_touched_is_found(any_engine: sa.Engine, what: str) -> None:
    """Changed, deleted, inserted or moved: the first broken place is told, and what is wrong with it."""
    statements, place, words = TAMPERED[what]
    write(any_engine)
    assert check(any_engine).broken is None
    tamper(any_engine, *statements)
    broken = check(any_engine).broken
    assert broken is not None
    assert broken.position == place
    assert words in broken.why


def test_a_tail_that_is_cut_off_shows_against_a_head_that_was_kept_elsewhere(any_engine: sa.Engine) -> None:
    """And only so: what is left is a chain as good as before."""
    write(any_engine)
    head = head_of(any_engine)
    assert check(any_engine, head).is_anchored is True
    assert check(any_engine, head[:13]).is_anchored is True
    write(any_engine, 2)
    assert check(any_engine, head).is_anchored is True, "the head of some time ago is still a row"
    tamper(any_engine, "DELETE FROM audit WHERE seq >= 5")
    found = check(any_engine, head)
    assert (found.broken, found.is_anchored) == (None, False)


def test_an_export_can_be_checked_without_the_database(any_engine: sa.Engine) -> None:
    """Every line that is touched shows, and so does an end that is cut off with the head's line."""
    write(any_engine)
    with any_engine.connect() as connection:
        lines = list(export_lines(connection))
    assert (verify_lines(lines).rows, verify_lines(lines).broken) == (5, None)
    assert json.loads(lines[-1])["head"]["hash"] == head_of(any_engine)
    changed = [*lines[:2], lines[2].replace('"alice"', '"mallory"'), *lines[3:]]
    broken = verify_lines(changed).broken
    assert broken is not None
    assert (broken.position, "content" in broken.why) == (3, True)
    for i in range(5):
        assert verify_lines([*lines[:i], *lines[i + 1 :]]).broken is not None, f"line {i + 1} is gone"
        assert verify_lines([*lines[: i + 1], lines[i], *lines[i + 1 :]]).broken is not None, f"line {i + 1} twice"
    assert verify_lines([lines[1], lines[0], *lines[2:]]).broken is not None
    assert verify_lines(lines[:-1]).broken is not None, "without its last line"
    assert verify_lines(lines, "f" * 64).is_anchored is False
    with pytest.raises(AuditFileError, match="line 2: no JSON"):
        verify_lines([lines[0], "{", *lines[2:]])
    with pytest.raises(AuditFileError, match="line 1: no position"):
        verify_lines(['{"seq": 1, "time": "2025-03-01", "actor": "", "action": "", "subject": "", "detail": {}}'])


def test_a_prune_leaves_a_row_that_says_up_to_where(any_engine: sa.Engine) -> None:
    """What is left is a whole chain; without that row, or with more gone than it says, it is not."""
    write(any_engine, 10)
    head = head_of(any_engine)
    assert prune(any_engine, {"audit": NOW + 4 * DAY}) == {"audit": 4}
    found = check(any_engine, head)
    assert (found.rows, found.cut, found.broken, found.is_anchored) == (7, 4, None, True)
    with any_engine.connect() as connection:
        lines = list(export_lines(connection))
    assert verify_lines(lines).broken is None
    assert prune(any_engine, {"audit": NOW + 4 * DAY}) == {"audit": 0}
    tamper(any_engine, "DELETE FROM audit WHERE position = 5")
    assert check(any_engine).broken is not None


def test_the_rows_of_a_hint_that_is_open_stay_whatever_their_age(any_engine: sa.Engine) -> None:
    """By them is told whether a scheduler has taken it."""
    write(any_engine, 2)
    hint = Hint("h1", "gpu-017", "cordon", "approved", "foreshock: xid 79", "foreshock", NOW, NOW + DAY)
    with writing(any_engine).begin() as connection:
        save_hint(connection, hint, NOW + 2 * DAY, {"change": "made"})
    write(any_engine, 2, NOW + 3 * DAY)
    assert prune(any_engine, {"audit": NOW + 100 * DAY}) == {"audit": 1}, "the row before that of h1"
    assert check(any_engine).broken is None


@pytest.mark.integration
def test_several_servers_on_one_database_keep_one_chain(postgres_server: Postgres) -> None:
    """Each writes and changes rows of others between its own audit rows: nobody waits in a circle, nothing is lost."""
    url = postgres_server.new_database()
    engines = [open_database(url) for _ in range(4)]
    migrate(engines[0])
    failures: list[BaseException] = []

    def work(number: int, engine: sa.Engine) -> None:
        try:
            for i in range(40):
                with writing(engine).begin() as connection:
                    entries = [AuditEntry(NOW, f"server {number}", "said", str(i), {"n": n}) for n in range(3)]
                    append_audit(connection, entries[:1])
                    move_mark(connection, "all")
                    append_audit(connection, entries[1:])
                    if i % 10 == 9:
                        connection.rollback()
        except BaseException as error:  # noqa: BLE001  # shown by the test
            failures.append(error)

    threads = [threading.Thread(target=work, args=pair) for pair in enumerate(engines)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = check(engines[0])
    for engine in engines:
        engine.dispose()
    assert failures == []
    assert (found.rows, found.broken) == (4 * 36 * 3, None)


def test_the_migration_chains_the_rows_of_before(any_engine: sa.Engine) -> None:
    """As they are, in the order of their numbers."""
    from alembic import command

    from store.database import connections

    write(any_engine, 3)
    config = connections._config()
    down: Callable[[sa.Connection], None] = lambda connection: _to(config, connection, "0001", command.downgrade)  # noqa: E731
    with writing(any_engine).begin() as connection:
        down(connection)
    tamper(any_engine, "UPDATE audit SET actor = 'carol' WHERE seq = 2")
    migrate(any_engine)
    found = check(any_engine)
    assert (found.rows, found.broken) == (3, None)
    write(any_engine, 1)
    assert check(any_engine).rows == 4


def _to(config: object, connection: sa.Connection, revision: str, go: Callable[..., None]) -> None:
    config.attributes["connection"] = connection  # type: ignore[attr-defined]
    go(config, revision)

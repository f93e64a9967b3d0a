"""Marks: whoever reads them sees that there is news."""

import threading

import sqlalchemy as sa

from store.database.connections import writing
from store.database.coordination import FAULTS, HINTS, move_mark, read_marks


def marks(engine: sa.Engine) -> dict[str, int]:
    """All of them."""
    with engine.connect() as connection:
        return dict(read_marks(connection))


def test_a_mark_grows_with_each_news(any_engine: sa.Engine) -> None:
    """Each by itself; one that was never moved is not there."""
    assert marks(any_engine) == {}
    for name in (FAULTS, FAULTS, HINTS):
        with writing(any_engine).begin() as connection:
            move_mark(connection, name)
    assert marks(any_engine) == {FAULTS: 2, HINTS: 1}


def test_news_that_were_taken_back_move_no_mark(any_engine: sa.Engine) -> None:
    """It is a part of the transaction."""
    with writing(any_engine).connect() as connection:
        move_mark(connection, HINTS)
        connection.rollback()
    assert marks(any_engine) == {}


def test_marks_that_are_moved_at_once_lose_no_count(any_engine: sa.Engine) -> None:
    """Of several threads."""

    def work() -> None:
        for _ in range(5):
            with writing(any_engine).begin() as connection:
                move_mark(connection, FAULTS)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert marks(any_engine) == {FAULTS: 20}

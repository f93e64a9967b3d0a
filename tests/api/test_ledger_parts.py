"""The loop makes the ledgers of many runs at once, as the command does."""

from typing import Any

import pytest
import sqlalchemy as sa

from api.loops import ledgers
from api.loops.ledgers import LedgerTurns
from goodput.stored import refresh
from goodput.stored.computation import compute

from .conftest import NOW
from .made_ledgers import always, log, start, stored


def test_many_runs_are_made_by_a_few_statements(engine: sa.Engine, turns: LedgerTurns) -> None:
    """Ten more runs cost a statement or two each, not all those of a turn; each has its own ledger."""
    asked: list[str] = []
    sa.event.listen(engine, "before_cursor_execute", lambda *told: asked.append(told[2]))
    start(engine, "alone")
    turns.turn(always)
    alone = len(asked)
    start(engine, *"abcdefghij")
    asked.clear()
    turns.turn(always)
    assert len(asked) <= alone + 2 * 10
    with engine.connect() as connection:
        for run in "abcdefghij":
            assert stored(engine, run) == compute(connection, run, NOW)


def test_runs_are_parted_by_what_must_be_read_of_them(
    engine: sa.Engine, turns: LedgerTurns, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Logs that are not folded yet, up to as many lines as a long one; then so many runs."""
    monkeypatch.setattr(ledgers, "LONG_LINES", 4)
    monkeypatch.setattr(ledgers, "TOGETHER", 2)
    parts: list[list[str]] = []
    bring_up = ledgers.bring_up
    monkeypatch.setattr(ledgers, "bring_up", lambda *told: (parts.append(list(told[2])), bring_up(*told))[1])
    start(engine, "a", "b", "c", "d")
    log(engine, "b", 5, 4)
    log(engine, "c", 5, 4, 3)
    turns.turn(always)
    assert parts == [["a", "d"], ["b"], ["c"]]


def test_ledgers_that_cannot_be_stored_fail_the_turn_and_stay_news(
    engine: sa.Engine, turns: LedgerTurns, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The loop counts it; the next turn makes them."""
    start(engine, "a", "b")
    keep_all = refresh.keep_all

    def full(*_told: Any) -> Any:
        raise sa.exc.OperationalError("INSERT", {}, Exception("disk full"))

    monkeypatch.setattr(refresh, "keep_all", full)
    with pytest.raises(ledgers.UnsavedError, match="disk full"):
        turns.turn(always)
    monkeypatch.setattr(refresh, "keep_all", keep_all)
    turns.turn(always)
    assert None not in (stored(engine, "a"), stored(engine, "b"))

"""Placements: what each scheduler holds for a hint."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import sqlalchemy as sa

from store.database.connections import writing
from store.hints.holds import (
    HOLD_STATES,
    SchedulerHold,
    holds_of,
    open_holds,
    save_holds,
)

NOW = datetime(2025, 3, 1, 12, 0, tzinfo=UTC)
ONE = SchedulerHold("h1", "slurm", "a", "cordon", "asked", 1, NOW + timedelta(seconds=1), NOW)


def save(engine: sa.Engine, *placements: SchedulerHold) -> None:
    """Write rows."""
    with writing(engine).begin() as connection:
        save_holds(connection, placements)


def test_a_row_is_read_as_it_was_written_and_written_over(any_engine: sa.Engine) -> None:
    """One of a hint and scheduler."""
    save(any_engine)
    other = replace(ONE, scheduler="kube", state="foreign", detail="cordoned by hand")
    save(any_engine, ONE, other, replace(ONE, hint="h2", node="b"))
    anew = replace(ONE, state="confirmed", observed=NOW, attempts=0)
    save(any_engine, anew)
    with any_engine.connect() as connection:
        found = holds_of(connection, ["h1", "h3"])
        assert holds_of(connection, []) == {}
    assert found == {"h1": [other, anew]}


def test_what_is_over_is_not_looked_at_again(any_engine: sa.Engine) -> None:
    """All of one scheduler that may still change or was released since, and none of another's."""
    save(any_engine, *(replace(ONE, hint=state, state=state, observed=NOW) for state in HOLD_STATES))
    save(any_engine, replace(ONE, scheduler="kube"))
    with any_engine.connect() as connection:
        late, early = (
            {placement.state for placement in open_holds(connection, "slurm", NOW + timedelta(seconds=seconds))}
            for seconds in (1, 0)
        )
    assert late == {"asked", "confirmed", "foreign", "absent", "refused"}
    assert early == late | {"released"}

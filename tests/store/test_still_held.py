"""Which nodes a scheduler still holds for us, whatever has become of their hints."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import sqlalchemy as sa

from store.database.connections import writing
from store.hints.hint_log import save_hint
from store.hints.holds import SchedulerHold, nodes_still_held, save_holds
from store.hints.outbox import Delivery, queue_deliveries
from store.records.hint import Hint

NOW = datetime(2025, 3, 1, 12, 0, tzinfo=UTC)
HOUR = timedelta(hours=1)


def put(engine: sa.Engine, state: Any, hours: float = 5) -> None:
    """A hint of node a, valid for so long."""
    made = Hint("h", "a", "cordon", state, "foreshock: x", "foreshock", NOW - HOUR, NOW + hours * HOUR)
    with writing(engine).begin() as connection:
        save_hint(connection, made, NOW, {})


def told(engine: sa.Engine, action: str, state: str = "delivered", attempts: int = 1, mode: str = "act") -> None:
    """A delivery to a webhook."""
    payload = {"data": {"action": action, "mode": mode}}
    with writing(engine).begin() as connection:
        queue_deliveries(connection, [Delivery(f"h.{action}.ops", "h", "ops", payload, attempts, NOW, state)])


def held(engine: sa.Engine, hours: float = 0) -> frozenset[str]:
    """What is held then."""
    with engine.connect() as connection:
        return nodes_still_held(connection, NOW + hours * HOUR)


@pytest.mark.parametrize(
    ("action", "state", "counts"),
    [
        ("cordon", "asked", True),
        ("drain", "confirmed", True),
        ("release", "asked", True),
        ("release", "refused", True),
        ("avoid", "confirmed", False),
        ("watch", "asked", False),
        ("cordon", "foreign", False),
        ("cordon", "undone", False),
        ("cordon", "refused", False),
        ("release", "released", False),
        ("cordon", "absent", False),
    ],
)
def test_a_placement_counts_until_it_is_seen_to_be_gone(
    any_engine: sa.Engine, action: Any, state: Any, counts: bool
) -> None:
    """What was ordered may hold; what others hold is theirs."""
    with writing(any_engine).begin() as connection:
        save_holds(connection, [SchedulerHold("h", "slurm", "a", action, state, 1, NOW)])
    assert held(any_engine) == (frozenset({"a"}) if counts else frozenset())


@pytest.mark.parametrize(
    ("action", "state"), [("cordon", "asked"), ("drain", "confirmed"), ("release", "asked"), ("release", "refused")]
)
def test_a_scheduler_that_pulls_lets_go_at_the_end_of_the_hint_s_time(
    any_engine: sa.Engine, action: Any, state: Any
) -> None:
    """One that is gone, or forgot to say so, would be charged to the budget for good; what is read back is known."""
    put(any_engine, "withdrawn")
    with writing(any_engine).begin() as connection:
        save_holds(connection, [SchedulerHold("h", "pull:volcano", "a", action, state, 0, NOW)])
    assert held(any_engine, hours=4.99) == {"a"}
    assert held(any_engine, hours=5) == frozenset()
    with writing(any_engine).begin() as connection:
        save_holds(connection, [SchedulerHold("h", "slurm", "a", action, state, 0, NOW)])
    assert held(any_engine, hours=5) == {"a"}


@pytest.mark.parametrize("state", ["delivered", "owed", "failed"])
def test_a_webhook_that_took_a_hold_keeps_it_until_it_takes_the_release(any_engine: sa.Engine, state: str) -> None:
    """One that may have taken it, too; and no longer than the hint would have stood."""
    put(any_engine, "withdrawn")
    told(any_engine, "cordon", state)
    assert held(any_engine) == {"a"}
    assert held(any_engine, hours=6) == frozenset()
    told(any_engine, "release", "owed")
    assert held(any_engine) == {"a"}
    with writing(any_engine).begin() as connection:
        connection.execute(sa.text("UPDATE outbox SET state = 'delivered' WHERE id = 'h.release.ops'"))
    assert held(any_engine) == frozenset()


def test_what_was_never_sent_or_was_a_shadow_holds_nothing(engine: sa.Engine) -> None:
    """Nor does an avoid; what was sent does, whether the hint still stands or not."""
    put(engine, "withdrawn")
    told(engine, "avoid")
    told(engine, "drain", attempts=0)
    told(engine, "cordon", mode="shadow")
    assert held(engine) == frozenset()
    put(engine, "sent")
    with writing(engine).begin() as connection:
        connection.execute(sa.text("UPDATE outbox SET attempts = 1"))
    assert held(engine) == {"a"}

"""The budget of an hour holds on what is carried out, not only on what is decided."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
import sqlalchemy as sa

from schedulers.policy.settings import Budgets, Policy
from store.database.connections import writing
from store.hints.hint_log import read_hint, save_hint
from store.hints.holds import RecentHolds, SchedulerHold, recent_holds, save_holds

from .cluster import HOUR, NOW, hint
from .holding import Holding
from .receivers import put
from .test_turn_actuator import Server

TWO = Policy(mode="act", budgets=Budgets(per_hour=2))
NODES = ("a", "b", "c", "d")


def server(engine: sa.Engine, *names: str, hours: float = 5, policy: Policy = TWO) -> Server:
    """Approved cordons that were decided long ago, as after an outage of the scheduler, or a morning of approvals."""
    put(engine, *(hint(node, state="approved", hours_ago=hours) for node in NODES))
    return Server(engine, tuple(Holding.of(*NODES, name=name) for name in names or ("slurm",)), policy)


def held(one: Server, which: int = 0) -> str:
    """The nodes that a scheduler holds."""
    return "".join(node for node in NODES if one.told[which].nodes[node].action is not None)


def test_what_is_beyond_the_hour_waits_and_says_so(engine: sa.Engine) -> None:
    """Two now, two an hour later; nothing is written while they wait."""
    one = server(engine)
    one.turn()
    assert held(one) == "ab"
    waiting = one.placements("h-c")["slurm"]
    assert (waiting.state, waiting.asked, waiting.attempts) == ("asked", None, 0)
    assert waiting.detail == "waits: budget: 2 nodes may be taken within an hour"
    one.turn(seconds=3599)
    assert held(one) == "ab"
    assert one.placements("h-c")["slurm"] == waiting
    one.turn(seconds=2)
    assert held(one) == "abcd"
    assert one.placements("h-c")["slurm"].detail is None


def test_a_drain_goes_before_cordons(engine: sa.Engine) -> None:
    """The gravest first."""
    one = server(engine)
    with writing(engine).begin() as connection:
        found = read_hint(connection, "h-d")
        assert found is not None
        save_hint(connection, replace(found, action="drain"), NOW, {})
    one.turn()
    assert held(one) == "ad"


def test_a_node_counts_once_over_schedulers_and_also_after_its_release(engine: sa.Engine) -> None:
    """The second scheduler takes the same two; a hold that is let go gives nothing back within its hour."""
    one = server(engine, "kube", "slurm")
    one.turn(0)
    one.turn(1)
    assert (held(one, 0), held(one, 1)) == ("ab", "ab")
    with writing(engine).begin() as connection:
        found = read_hint(connection, "h-a")
        assert found is not None
        save_hint(connection, replace(found, state="withdrawn"), NOW, {})
    one.turn(0, seconds=1800)
    one.turn(1)
    assert (held(one, 0), held(one, 1)) == ("b", "b")
    one.turn(0, seconds=1801)
    assert held(one, 0) == "bcd"


def test_a_scheduler_that_was_away_takes_what_another_holds_already(engine: sa.Engine) -> None:
    """Hours later, while other nodes fill the hour: the node is none anew."""
    one = server(engine, "kube", "slurm")
    one.turn(0)
    one.turn(0, seconds=3601)
    assert held(one, 0) == "abcd"
    one.turn(1)
    assert held(one, 1) == "abcd"


def test_an_order_without_effect_counts_when_it_is_given_again(engine: sa.Engine) -> None:
    """It may be taken only now: two hours after it was first given it needs room like any other."""
    one = server(engine)
    one.told[0].is_away = True
    one.told[0].before = lambda: None
    with pytest.raises(Exception, match="does not answer"):
        one.turn()
    one.told[0].is_away = False
    one.told[0].is_deaf = True
    with pytest.raises(Exception, match="hung up"):
        one.turn()
    one.told[0].nodes |= Holding.of(*NODES).nodes  # lost with the scheduler, before it was read back
    one.told[0].is_deaf = False
    one.turn(seconds=2 * 3600)
    assert held(one) == "ab"


def test_a_renewed_hold_is_none_anew(engine: sa.Engine) -> None:
    """Nor a raised one: both go out though the hour is full."""
    one = server(engine)
    one.turn()
    asked = one.placements("h-a")["slurm"].asked
    with writing(engine).begin() as connection:
        for ident, change in (("h-a", {"valid_until": NOW + 40 * HOUR}), ("h-b", {"action": "drain"})):
            found = read_hint(connection, ident)
            assert found is not None
            save_hint(connection, replace(found, **change), NOW, {})
    one.turn(seconds=5)
    assert one.told[0].actions()[2:] == ["drain b", "cordon a"]
    assert one.placements("h-a")["slurm"].asked == asked


def test_a_soft_hint_does_not_wait_nor_count(engine: sa.Engine) -> None:
    """An avoid that is raised keeps its mark until there is room."""
    one = server(engine)
    soft = hint("d", "avoid", "approved")
    with writing(engine).begin() as connection:
        save_hint(connection, soft, NOW, {})
    one.turn()
    assert held(one) == "abd"
    with writing(engine).begin() as connection:
        save_hint(connection, replace(soft, action="cordon"), NOW, {})
    one.turn(seconds=1)
    assert one.told[0].nodes["d"].action == "avoid"
    waiting = one.placements("h-d")["slurm"]
    assert (waiting.action, waiting.state) == ("avoid", "confirmed")
    assert waiting.detail is not None


def row(node: str, action: Any, state: Any, minutes_ago: float | None) -> Any:
    """A placement of a node's hint."""
    asked = None if minutes_ago is None else NOW - timedelta(minutes=minutes_ago)
    return SchedulerHold(f"h-{node}", "slurm", node, action, state, 1, NOW, asked)


@pytest.mark.parametrize(
    ("action", "state", "minutes_ago", "lately", "is_held"),
    [
        ("cordon", "asked", 59, True, False),
        ("cordon", "asked", 60, True, False),
        ("cordon", "asked", 61, False, False),
        ("cordon", "asked", None, False, False),
        ("drain", "confirmed", 61, False, True),
        ("release", "asked", 61, False, True),
        ("release", "released", 59, True, False),
        ("release", "refused", 59, True, False),
        ("cordon", "refused", 59, False, False),
        ("cordon", "absent", 59, False, False),
        ("cordon", "foreign", 59, True, False),
        ("avoid", "confirmed", 59, False, False),
    ],
)
def test_what_was_taken(
    engine: sa.Engine, action: Any, state: Any, minutes_ago: float | None, lately: bool, is_held: bool
) -> None:
    """By each state of a placement."""
    put(engine, hint("a"))
    with writing(engine).begin() as connection:
        save_holds(connection, [row("a", action, state, minutes_ago)])
        taken = recent_holds(connection, NOW - HOUR)
    node = frozenset({"a"})
    assert taken == RecentHolds(node if lately else frozenset(), node if is_held else frozenset())


@pytest.mark.parametrize("back_s", [5, 7200])
def test_a_lost_order_is_given_again_though_the_clock_was_set_back(engine: sa.Engine, back_s: float) -> None:
    """Not only once the clock has come again to where it was."""
    one = server(engine)
    one.told[0].is_deaf = True
    with pytest.raises(Exception, match="hung up"):
        one.turn()
    one.told[0].nodes |= Holding.of(*NODES).nodes
    one.told[0].is_deaf = False
    with writing(engine).begin() as connection:
        found = [replace(each, due=NOW + timedelta(seconds=1)) for each in one.placements("h-a").values()]
        save_holds(connection, found)
    one.turn(seconds=-back_s)
    assert "a" in held(one)


def test_what_a_scheduler_has_let_go_is_taken_anew(engine: sa.Engine) -> None:
    """A node whose release was carried out, but not seen yet, is held no more: its next hold needs room."""
    one = server(engine)
    one.turn()
    with writing(engine).begin() as connection:
        found = read_hint(connection, "h-a")
        assert found is not None
        save_hint(connection, replace(found, state="withdrawn"), NOW, {})
        save_hint(connection, hint("c", state="withdrawn"), NOW, {})
        save_hint(connection, hint("d", state="withdrawn"), NOW, {})
    one.told[0].is_deaf = True
    with pytest.raises(Exception, match="hung up"):
        one.turn(seconds=3601)
    one.told[0].is_deaf = False
    assert held(one) == "b"
    full = replace(TWO, budgets=Budgets(per_hour=0))
    one.policy = full
    with writing(engine).begin() as connection:
        save_hint(connection, replace(hint("a", state="approved"), id="h-a2"), NOW, {})
    one.turn(seconds=1)
    assert held(one) == "b"

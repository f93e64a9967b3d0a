"""What goes out by the look of the turn before, and what waits for a new one."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
import sqlalchemy as sa

from schedulers.lifecycle.operator_actions import withdraw
from schedulers.policy.settings import Budgets, Policy
from schedulers.reconcile.actuator import SchedulerAwayError
from schedulers.reconcile.turn import FRESH, ActuatorTurnResult, LastObservation, TurnContext, run_actuator
from store.database.connections import writing
from store.hints.holds import holds_of
from store.hints.stops import note_trip, set_kill_switch

from .cluster import NOW, hint
from .holding import Holding
from .receivers import put, state_of

SECOND = timedelta(seconds=1)


class Server:
    """One server's turns; `looks` are how often its scheduler had been observed as each order came."""

    def __init__(self, engine: sa.Engine, name: str = "slurm", **policy: Any) -> None:
        self.engine, self.now, self.last = engine, NOW, LastObservation()
        self.told = Holding.of("a", "b", "c", name=name)
        self.names: tuple[str, ...] = (name,)
        self.policy, self.looks = Policy(mode="act", **policy), list[int]()
        self.told.before = lambda: self.looks.append(self.told.observed)
        self.keep_on = True
        self.turn()

    def turn(self, seconds: float = 0.0) -> ActuatorTurnResult:
        """One turn, so much later."""
        self.now += seconds * SECOND
        acting = TurnContext(self.engine, self.told, self.names, lambda: self.policy, lambda: self.now, last=self.last)
        return run_actuator(acting, lambda: self.keep_on)

    def states(self, ident: str = "h-a") -> tuple[str, ...]:
        """Of a hint and of its placement."""
        with self.engine.connect() as connection:
            found = holds_of(connection, [ident]).get(ident, [])
        return state_of(self.engine, ident), *(each.state for each in found)


def test_a_new_hint_goes_out_before_all_nodes_are_read_again(any_engine: sa.Engine) -> None:
    """And the one look after it confirms it."""
    one = Server(any_engine)
    put(any_engine, hint("a", state="approved"))
    turned = one.turn(5)
    assert [report.result for report in turned.reports] == ["done"]
    assert (one.looks, one.told.observed) == ([1], 2)
    assert one.states() == ("confirmed", "confirmed")


def test_to_each_scheduler_though_another_has_it(any_engine: sa.Engine) -> None:
    """What one was asked says nothing of the other."""
    one, other = Server(any_engine), Server(any_engine, "kube")
    one.names = other.names = ("slurm", "kube")
    put(any_engine, hint("a", state="approved"))
    one.turn(1)
    other.turn(1)
    assert (one.looks, other.looks) == ([1], [1])
    assert one.states() == ("confirmed", "confirmed", "confirmed")


def test_so_does_what_asks_more_than_before(any_engine: sa.Engine) -> None:
    """A drain where an avoid was; what asks less waits for a look, as what has not changed does."""
    one = Server(any_engine)
    put(any_engine, hint("a", "avoid", state="approved"), hint("b", "drain", state="approved"))
    one.turn(1)
    put(any_engine, hint("a", "drain", state="approved"), hint("b", "avoid", state="approved"))
    one.turn(1)
    assert (one.looks, one.told.actions()[2:]) == ([1, 2, 3], ["drain a", "avoid b"])
    one.turn(1)
    assert (one.states(), one.states("h-b")) == (("confirmed", "confirmed"), ("confirmed", "confirmed"))


def test_a_release_waits_for_a_look(any_engine: sa.Engine) -> None:
    """It is no haste, and what is there is to be seen first."""
    one = Server(any_engine)
    put(any_engine, hint("a", state="approved"))
    one.turn(1)
    with writing(any_engine).begin() as connection:
        withdraw(connection, "h-a", one.now, "alice")
    one.turn(1)
    assert one.looks == [1, 3]
    assert one.states() == ("withdrawn", "released")


def test_what_others_took_meanwhile_is_left_to_them(any_engine: sa.Engine) -> None:
    """Whoever carries it out reads the node right before."""
    one = Server(any_engine)
    one.told.person("a", "maintenance")
    put(any_engine, hint("a", state="approved"))
    one.turn(1)
    assert (one.told.nodes["a"].foreign, one.told.held("a")) == ("maintenance", "")
    assert one.states() == ("confirmed", "foreign")


@pytest.mark.parametrize("case", ["old", "first", "unknown"])
def test_without_a_fresh_look_at_the_node_there_is_a_new_one_first(any_engine: sa.Engine, case: str) -> None:
    """The look is old, there was none, or the node was not among them."""
    one = Server(any_engine)
    if case == "first":
        one.last = LastObservation()
    if case == "unknown":
        one.told.nodes["d"] = replace(one.told.nodes["a"], node="d")
    put(any_engine, hint("d" if case == "unknown" else "a", state="approved"))
    one.turn(FRESH.total_seconds() + 1 if case == "old" else 1)
    assert one.looks == [2]


def test_after_an_outage_there_is_a_new_look_first(any_engine: sa.Engine) -> None:
    """What was held before it may not be any more."""
    one = Server(any_engine)
    put(any_engine, hint("a", state="approved"))
    one.told.is_away = True
    with pytest.raises(SchedulerAwayError):
        one.turn(1)
    one.told.is_away = False
    one.turn(2)
    assert one.looks == [1, 2]
    assert one.states() == ("confirmed", "confirmed")


def test_a_look_that_failed_leaves_none_of_before(any_engine: sa.Engine) -> None:
    """Also where the hint is made after it."""
    one = Server(any_engine)
    one.told.is_away = True
    with pytest.raises(SchedulerAwayError):
        one.turn(1)
    one.told.is_away = False
    put(any_engine, hint("a", state="approved"))
    one.turn(1)
    assert one.looks == [2]


def test_a_stop_counts(any_engine: sa.Engine) -> None:
    """Nothing new goes out."""
    one = Server(any_engine)
    put(any_engine, hint("a", state="approved"))
    with writing(any_engine).begin() as connection:
        set_kill_switch(connection, "holds", "drill", NOW, "alice")
    one.turn(1)
    assert (one.told.got, one.states()) == ([], ("approved",))


def test_a_trip_since_the_decision_counts(any_engine: sa.Engine) -> None:
    """It is looked at right before the order."""
    one = Server(any_engine)
    put(any_engine, hint("a", state="approved"))
    with writing(any_engine).begin() as connection:
        note_trip(connection, ("cluster", "all"), "too many", 9, NOW, "policy")
    one.turn(1)
    assert one.told.got == []


def test_the_hours_budget_counts(any_engine: sa.Engine) -> None:
    """Of two one goes out."""
    one = Server(any_engine, budgets=Budgets(per_hour=1))
    put(any_engine, hint("a", state="approved"), hint("b", state="approved"))
    one.turn(1)
    one.turn(1)
    assert one.told.actions() == ["cordon a"]


def test_who_has_lost_the_lease_orders_nothing(any_engine: sa.Engine) -> None:
    """What was written down is ordered by the next one."""
    one = Server(any_engine)
    put(any_engine, hint("a", state="approved"))
    one.keep_on = False
    one.turn(1)
    assert one.told.got == []
    one.keep_on = True
    one.turn(2)
    assert one.states() == ("confirmed", "confirmed")


def test_the_statements_do_not_grow_with_the_hints(any_engine: sa.Engine) -> None:
    """Hundreds may be open: what they cost is one row each, not one statement each."""
    counts = []
    for count in (1, 2):
        one = Server(any_engine)
        put(any_engine, *(hint(node, state="approved") for node in "abc"[:count]))
        texts: list[str] = []
        sa.event.listen(any_engine, "before_cursor_execute", lambda _c, _cu, text, *_r, into=texts: into.append(text))
        one.turn(1)
        one.turn(10)
        del texts[:]
        one.turn(10)
        counts.append(len([text for text in texts if text.startswith("SELECT")]))
    assert counts[0] == counts[1]

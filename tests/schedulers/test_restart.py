"""A hold that is gone: taken off by a person, or lost with a scheduler that was killed."""

from datetime import datetime, timedelta

import pytest
import sqlalchemy as sa

from schedulers.policy.settings import Policy
from schedulers.reconcile.actuator import Hold, SchedulerAwayError
from schedulers.reconcile.plan import is_forgotten
from schedulers.reconcile.turn import ActuatorTurnResult, LastObservation, TurnContext, run_actuator
from store.hints.hint_log import audit_page
from store.hints.holds import SchedulerHold, holds_of
from store.hints.stops import set_kill_switch

from .cluster import NOW, hint
from .holding import Holding
from .receivers import put, state_of

SECOND = timedelta(seconds=1)
ACT = Policy(mode="act")


def held(asked: float | None = 0.0, observed: float | None = 0.5, state: str = "confirmed") -> SchedulerHold:
    """A hold, by seconds from NOW: when it was ordered and when it was first seen."""
    moments = [None if moment is None else NOW + moment * SECOND for moment in (asked, observed)]
    return SchedulerHold("h-a", "slurm", "a", "cordon", state, 1, NOW, moments[0], moments[1])  # type: ignore[arg-type]


def at(seconds: float | None) -> datetime | None:
    """A moment by seconds from NOW."""
    return None if seconds is None else NOW + seconds * SECOND


@pytest.mark.parametrize(
    ("looked", "started", "forgotten"),
    [
        (2, 3, True),
        (2, 3600, True),  # however long the outage was
        (60, 61, True),
        (61, 62, False),  # it was saved long since
        (2, 1.5, True),  # told in whole seconds
        (2, 0.9, False),  # started before we saw it last: a person
        (2, -9999, False),
        (2, None, False),  # a scheduler that forgets nothing
        (-5, 3, True),  # another server saw it since
        (None, 3, True),  # our server was started anew, too
        (None, 900, True),
        (None, 901, False),
        (None, 0.2, True),
        (None, -9999, False),
    ],
)
def test_by_the_moments(looked: float | None, started: float | None, forgotten: bool) -> None:
    """Ordered at 0, seen at 0.5, seen last, started."""
    assert is_forgotten(held(), at(looked), at(started)) is forgotten


def test_only_what_was_confirmed_can_be_forgotten() -> None:
    """And only what was ordered."""
    assert not is_forgotten(held(state="foreign"), at(2), at(3))
    assert not is_forgotten(held(asked=None), at(2), at(3))


def test_a_look_of_before_it_was_seen_by_another_server_is_none() -> None:
    """That one saw it at 5: the scheduler was started at 2, so it had it then."""
    assert not is_forgotten(held(observed=5.0), at(-5), at(2))


class Server:
    """A server that goes on from turn to turn; `again` is its successor, who remembers nothing."""

    def __init__(self, engine: sa.Engine) -> None:
        self.engine, self.told, self.now, self.last = engine, Holding.of("a", "b"), NOW, LastObservation()

    def again(self) -> None:
        """Another process."""
        self.last = LastObservation()

    def turn(self, seconds: float = 0.0) -> ActuatorTurnResult:
        """One turn, so much later."""
        self.now += seconds * SECOND
        acting = TurnContext(self.engine, self.told, ("slurm",), lambda: ACT, lambda: self.now, last=self.last)
        return run_actuator(acting, lambda: True)

    def killed(self, *nodes: str, back: float = 3.0) -> None:
        """The scheduler is killed, comes back so much later, and has forgotten these nodes."""
        self.now += back * SECOND
        self.told.start = self.now
        self.told.nodes |= {node: Hold(node) for node in nodes}

    def states(self) -> tuple[str, str]:
        """Of the hint and of its placement."""
        with self.engine.connect() as connection:
            (placement,) = holds_of(connection, ["h-a"])["h-a"]
        return state_of(self.engine, "h-a"), placement.state


def server(engine: sa.Engine) -> Server:
    """With a cordon of `a`, confirmed."""
    put(engine, hint("a", state="approved"))
    made = Server(engine)
    made.told.start = NOW - 3600 * SECOND
    made.turn()
    assert made.states() == ("confirmed", "confirmed")
    assert made.told.asked_start == 0  # nothing is gone: nobody asks
    return made


def test_what_was_lost_is_ordered_again_and_the_audit_says_why(any_engine: sa.Engine) -> None:
    """And the hint stands."""
    one = server(any_engine)
    one.killed("a")
    one.turn(1)
    assert (one.states(), one.told.held("a")) == (("confirmed", "confirmed"), "cordon h-a")
    assert one.told.actions() == ["cordon a", "cordon a"]
    with any_engine.connect() as connection:
        said = [row["detail"].get("detail") for row in audit_page(connection, 100, None, "h-a")]
    assert "slurm was killed before it had saved it, and started anew" in said
    assert one.told.asked_start == 1


def test_by_a_server_that_was_killed_with_it_too(any_engine: sa.Engine) -> None:
    """As where both run on the head node that lost its power."""
    one = server(any_engine)
    one.again()
    one.killed("a", back=120)
    one.turn()
    assert (one.states(), one.told.held("a")) == (("confirmed", "confirmed"), "cordon h-a")


@pytest.mark.parametrize("quiet_s", [61.0, 3600.0])
def test_what_a_person_takes_off_stays_off_also_after_a_restart(any_engine: sa.Engine, quiet_s: float) -> None:
    """What had been ordered long before the scheduler was killed was saved."""
    one = server(any_engine)
    one.turn(quiet_s)
    one.killed("a")
    one.turn()
    assert (one.states(), one.told.held("a")) == (("withdrawn", "undone"), "")


def test_a_persons_word_counts_where_the_scheduler_ran_all_the_time(any_engine: sa.Engine) -> None:
    """A second after the order."""
    one = server(any_engine)
    one.told.person("a", None)
    one.turn(1)
    assert one.states() == ("withdrawn", "undone")
    assert one.told.asked_start == 1


def test_who_takes_it_off_once_more_is_heard(any_engine: sa.Engine) -> None:
    """It is ordered again once for one restart."""
    one = server(any_engine)
    one.killed("a")
    one.turn(2)
    one.told.person("a", None)
    one.turn(2)
    assert (one.states(), one.told.actions()) == (("withdrawn", "undone"), ["cordon a", "cordon a"])


def test_while_all_is_stopped_it_waits_and_is_no_persons_undoing(any_engine: sa.Engine) -> None:
    """Also when it is looked at once more meanwhile."""
    one = server(any_engine)
    one.killed("a")
    with any_engine.begin() as connection:
        set_kill_switch(connection, "holds", "drill", one.now, "alice")
    one.turn(1)
    one.turn(10)
    assert (one.states(), one.told.held("a")) == (("confirmed", "asked"), "")
    with any_engine.begin() as connection:
        set_kill_switch(connection, "none", "drill is over", one.now, "alice")
    one.turn(1)
    assert (one.states(), one.told.held("a")) == (("confirmed", "confirmed"), "cordon h-a")


def test_where_it_cannot_be_asked_nothing_is_decided(any_engine: sa.Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next turn tells."""
    one = server(any_engine)
    one.killed("a")

    def away(_self: Holding) -> None:
        raise SchedulerAwayError("no answer")

    with monkeypatch.context() as patched:
        patched.setattr(Holding, "started", away)
        with pytest.raises(SchedulerAwayError):
            one.turn(1)
    assert one.states() == ("confirmed", "confirmed")
    one.turn(1)
    assert one.told.held("a") == "cordon h-a"

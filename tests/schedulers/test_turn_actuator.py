"""A turn for one scheduler over a real database: what is written before and after an order, and what a crash leaves."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

import pytest
import sqlalchemy as sa

from schedulers.lifecycle.operator_actions import withdraw
from schedulers.policy.settings import Policy
from schedulers.reconcile.actuator import Hold, OrderReport, SchedulerAwayError
from schedulers.reconcile.placement_log import ABSENT_FOR
from schedulers.reconcile.turn import ActuatorTurnResult, TurnContext, run_actuator
from store.database.connections import writing
from store.hints.hint_log import audit_page, read_hint, save_hint
from store.hints.holds import SchedulerHold, holds_of
from store.hints.stops import set_kill_switch
from store.nodes.domains import domain_of_each
from store.records.hint import Hint

from .cluster import HOUR, NOW, hint
from .holding import Holding
from .receivers import put, state_of

ACT = Policy(mode="act")


@dataclass
class Server:
    """One server's turns, at moments of the test's choice."""

    engine: sa.Engine
    told: tuple[Holding, ...]
    policy: Policy = ACT
    now: datetime = NOW
    keep_on: Callable[[], bool] = lambda: True
    extra: Mapping[str, Any] = field(default_factory=dict)

    def turn(self, which: int = 0, seconds: float = 0.0) -> ActuatorTurnResult:
        """One turn of one of the schedulers."""
        self.now += timedelta(seconds=seconds)
        names = tuple(told.name for told in self.told)
        acting = TurnContext(self.engine, self.told[which], names, lambda: self.policy, lambda: self.now)
        return run_actuator(acting, lambda: self.keep_on())

    def placements(self, ident: str = "h-a") -> dict[str, SchedulerHold]:
        """A hint's placements by scheduler."""
        with self.engine.connect() as connection:
            return {each.scheduler: each for each in holds_of(connection, [ident]).get(ident, [])}

    def states(self, ident: str = "h-a") -> tuple[str, ...]:
        """The hint's state, then those of its placements."""
        found = self.placements(ident)
        return state_of(self.engine, ident), *(found[name].state for name in sorted(found))


def audit(engine: sa.Engine, ident: str = "h-a") -> list[tuple[str, str, str]]:
    """What the audit says of a hint: who, the hint's state, the step on a scheduler; the oldest first."""
    with engine.connect() as connection:
        rows = audit_page(connection, 1000, None, ident)
    return [(row["actor"], row["action"], row["detail"].get("step", "")) for row in reversed(rows)]


def one(engine: sa.Engine, *hints: Hint, nodes: tuple[str, ...] = ("a", "b")) -> Server:
    """A server with one scheduler of free nodes."""
    put(engine, *hints)
    return Server(engine, (Holding.of(*nodes),))


def both(engine: sa.Engine, *hints: Hint) -> Server:
    """A server with Slurm and Kubernetes over the same nodes."""
    put(engine, *hints)
    return Server(engine, (Holding.of("a", "b"), Holding.of("a", "b", name="kube")))


def end(engine: sa.Engine, ident: str = "h-a") -> None:
    """A person withdraws a hint."""
    with writing(engine).begin() as connection:
        withdraw(connection, ident, NOW, "alice")


def test_from_approved_to_confirmed_in_one_turn_and_every_step_in_the_audit(any_engine: sa.Engine) -> None:
    """With who, and the policy's version."""
    server = one(any_engine, replace(hint("a", state="approved"), policy="p1"))
    turned = server.turn()
    assert [report.result for report in turned.reports] == ["done"]
    assert (turned.ours, turned.foreign, turned.orphans) == (1, 0, ())
    assert server.states() == ("confirmed", "confirmed")
    assert audit(any_engine) == [
        ("policy", "approved", ""),
        ("dispatch", "approved", "asked"),
        ("scheduler:slurm", "sent", ""),
        ("scheduler:slurm", "sent", "confirmed"),
        ("scheduler:slurm", "confirmed", ""),
    ]
    with any_engine.connect() as connection:
        details = [row["detail"] for row in audit_page(connection, 100, None, "h-a")]
    assert {detail["policy"] for detail in details} == {"p1"}
    assert details[-1]["evidence"]["score"] == 0.5


def test_a_turn_that_finds_everything_in_place_writes_nothing(any_engine: sa.Engine) -> None:
    """And orders nothing."""
    server = one(any_engine, hint("a", state="approved"))
    server.turn()
    before = (audit(any_engine), server.placements())
    writes: list[str] = []
    sa.event.listen(
        any_engine,
        "before_cursor_execute",
        lambda _c, _cursor, statement, *_rest: writes.append(statement) if statement[:6] != "SELECT" else None,
    )
    server.turn(seconds=10)
    assert (audit(any_engine), server.placements()) == before
    assert not [text for text in writes if text.startswith(("INSERT", "UPDATE", "DELETE"))]
    assert len(server.told[0].got) == 1


def test_a_release_to_its_end(any_engine: sa.Engine) -> None:
    """A person withdraws; the node is free and the audit says so."""
    server = one(any_engine, hint("a", state="approved"))
    server.turn()
    end(any_engine)
    server.turn()
    assert (server.states(), server.told[0].held("a")) == (("withdrawn", "released"), "")
    assert audit(any_engine)[5:] == [
        ("alice", "withdrawn", ""),
        ("dispatch", "withdrawn", "asked"),
        ("scheduler:slurm", "withdrawn", "released"),
    ]


def test_a_persons_undoing_withdraws_the_hint_in_the_schedulers_name(any_engine: sa.Engine) -> None:
    """And lets the other scheduler's hold go."""
    server = both(any_engine, hint("a", state="approved"))
    server.turn(0)
    assert server.states() == ("sent", "confirmed")
    server.turn(1)
    assert server.states() == ("confirmed", "confirmed", "confirmed")
    server.told[1].person("a", None)
    server.turn(1)
    assert server.states() == ("withdrawn", "undone", "confirmed")
    assert ("scheduler:kube", "withdrawn", "") in audit(any_engine)
    server.turn(0)
    assert server.states() == ("withdrawn", "undone", "released")
    with any_engine.connect() as connection:
        ended = read_hint(connection, "h-a")
    assert ended is not None
    assert ended.evidence.closed and ended.evidence.closed.by == "scheduler:kube"
    server.turn(1, seconds=1000)
    assert server.told[1].actions() == ["cordon a"]


def test_one_schedulers_outage_does_not_keep_the_other_from_acting(any_engine: sa.Engine) -> None:
    """The hint is sent; it is confirmed when the other is back and holds the node, too."""
    server = both(any_engine, hint("a", state="approved"))
    server.told[1].is_away = True
    with pytest.raises(SchedulerAwayError):
        server.turn(1)
    server.turn(0)
    assert server.states() == ("sent", "confirmed")
    server.told[1].is_away = False
    server.turn(1)
    assert server.states() == ("confirmed", "confirmed", "confirmed")


def test_a_hint_is_confirmed_by_all_that_know_the_node(any_engine: sa.Engine) -> None:
    """One that lacks it, refuses it or finds it held by others is no obstacle."""
    put(any_engine, *(hint(node, state="approved") for node in "abc"))
    slurm, kube = Holding.of("a", "b", "c"), Holding.of("b", "c", name="kube")
    kube.person("b", "maintenance")
    kube.answers["c"] = OrderReport("c", "refused", "nothing for that")
    server = Server(any_engine, (slurm, kube))
    server.turn(1)
    assert [server.states(f"h-{node}") for node in "abc"] == [
        ("approved", "absent"),
        ("approved", "foreign"),
        ("approved", "refused"),
    ]
    server.turn(0)
    assert [server.states(f"h-{node}")[0] for node in "abc"] == ["confirmed"] * 3


def test_a_confirmation_of_less_is_none_of_more(any_engine: sa.Engine) -> None:
    """The other scheduler still stands at the avoid of before."""
    server = both(any_engine, hint("a", "avoid", state="approved"))
    server.turn(0)
    server.turn(1)
    put(any_engine, hint("a", "drain", state="approved"))
    server.turn(0)
    assert state_of(any_engine) == "sent"
    server.turn(1)
    assert state_of(any_engine) == "confirmed"


def test_a_node_that_no_scheduler_knows_for_long_ends_its_hint(any_engine: sa.Engine) -> None:
    """Not while one still knows it, and not at once: it may be installed anew."""
    server = both(any_engine, hint("z", state="approved"))
    for seconds in (0.0, ABSENT_FOR.total_seconds() - 1):
        server.turn(0, seconds)
        server.turn(1)
        assert server.states("h-z") == ("approved", "absent", "absent")
    server.told[1].nodes["z"] = Hold("z", foreign="new")
    server.turn(1, 2)
    server.turn(0)
    assert server.states("h-z")[0] == "confirmed"
    del server.told[1].nodes["z"]
    server.turn(1)
    assert state_of(any_engine, "h-z") == "confirmed"
    server.turn(1, ABSENT_FOR.total_seconds())
    assert server.states("h-z") == ("withdrawn", "absent", "absent")


def test_a_new_hold_is_stopped_by_the_switch_also_when_it_was_planned_before(any_engine: sa.Engine) -> None:
    """It is asked for right before the orders go out."""
    server = one(any_engine, hint("a", state="approved"))
    told = server.told[0]
    acting_checks: list[int] = []

    def keep_on() -> bool:
        acting_checks.append(1)
        with writing(any_engine).begin() as connection:
            set_kill_switch(connection, "holds", "enough", NOW, "alice")
        return True

    server.keep_on = keep_on
    server.turn()
    assert (acting_checks, told.got) == ([1], [])
    server.keep_on = lambda: True
    server.turn(seconds=5)
    assert told.got == []
    with writing(any_engine).begin() as connection:
        set_kill_switch(connection, "none", "go on", NOW, "alice")
    server.turn()
    assert told.actions() == ["cordon a"]


@pytest.mark.parametrize(("stop", "released"), [("holds", "released"), ("all", "confirmed")])
def test_the_switch_lets_releases_go_on_or_not(any_engine: sa.Engine, stop: str, released: str) -> None:
    """`all` is hands off entirely."""
    server = one(any_engine, hint("a", state="approved"))
    server.turn()
    end(any_engine)
    with writing(any_engine).begin() as connection:
        set_kill_switch(connection, stop, "enough", NOW, "alice")
    server.turn()
    assert server.states() == ("withdrawn", released)


def test_in_shadow_mode_nothing_is_held_anew_and_what_is_held_is_let_go(any_engine: sa.Engine) -> None:
    """Set back from act."""
    server = one(any_engine, hint("a", state="approved"))
    server.turn()
    put(any_engine, hint("b", state="approved"))
    server.policy = Policy(mode="shadow")
    end(any_engine)
    server.turn()
    assert server.told[0].actions() == ["cordon a", "release a"]
    assert server.placements("h-b") == {}


def test_a_server_that_lost_its_lease_orders_nothing(any_engine: sa.Engine) -> None:
    """What it wrote down is ordered by its successor."""
    server = one(any_engine, hint("a", state="approved"))
    server.keep_on = lambda: False
    server.turn()
    assert (server.told[0].got, server.states()) == ([], ("approved", "asked"))
    server.keep_on = lambda: True
    server.turn(seconds=1)
    assert server.states() == ("confirmed", "confirmed")


class KilledError(BaseException):
    """As a process that is killed: nothing after it is done."""


def _die() -> None:
    raise KilledError


@pytest.mark.parametrize("point", ["observe", "before the order", "after the order", "before it is read back"])
@pytest.mark.parametrize("ended", [False, True])
def test_wherever_a_server_dies_its_successor_ends_in_the_right_state(
    any_engine: sa.Engine, monkeypatch: pytest.MonkeyPatch, point: str, ended: bool
) -> None:
    """Held and confirmed, or released, whichever is asked then."""
    server = one(any_engine, hint("a", state="approved"))
    told = server.told[0]
    if ended:
        server.turn()
        end(any_engine)
    observe, carry_out = told.observe, told.carry_out
    seen: list[int] = []

    def dying_observe() -> Any:
        seen.append(1)
        if point == "observe" or len(seen) == 2:
            _die()
        return observe()

    def dying_after(orders: Any) -> Any:
        carry_out(orders)
        _die()

    if point in ("observe", "before it is read back"):
        monkeypatch.setattr(told, "observe", dying_observe)
    elif point == "before the order":
        monkeypatch.setattr(told, "before", _die)
    else:
        monkeypatch.setattr(told, "carry_out", dying_after)
    with pytest.raises(KilledError):
        server.turn()
    monkeypatch.undo()
    told.before = lambda: None
    anew = Server(any_engine, server.told, now=NOW + timedelta(seconds=1))
    anew.turn()
    assert anew.states() == (("withdrawn", "released") if ended else ("confirmed", "confirmed"))
    assert told.held("a") == ("" if ended else "cordon h-a")


def test_what_is_ordered_is_written_down_before_it_goes_out(any_engine: sa.Engine) -> None:
    """Seen by another connection while the order is under way."""
    server = one(any_engine, hint("a", state="approved"))
    found: list[tuple[str, ...]] = []
    server.told[0].before = lambda: found.append(server.states())
    server.turn()
    assert found == [("approved", "asked")]


def test_an_order_whose_answer_was_lost_is_seen_when_the_scheduler_is_back(any_engine: sa.Engine) -> None:
    """It is not given again; the audit has it as sent and confirmed all the same."""
    server = one(any_engine, hint("a", state="approved"))
    told = server.told[0]
    told.is_deaf = True
    with pytest.raises(SchedulerAwayError):
        server.turn()
    assert server.placements()["slurm"].detail == "the scheduler did not answer"
    told.is_deaf = False
    server.turn()
    assert server.states() == ("confirmed", "confirmed")
    assert len(told.got) == 1
    assert [row[1] for row in audit(any_engine)][-2:] == ["sent", "confirmed"]


def test_a_hint_withdrawn_while_its_order_is_under_way_is_released_in_the_same_turn(any_engine: sa.Engine) -> None:
    """The person's word wins over the late `sent`."""
    server = one(any_engine, hint("a", state="approved"))
    server.told[0].before = lambda: state_of(any_engine) == "approved" and end(any_engine)  # type: ignore[assignment]
    server.turn()
    assert server.told[0].actions() == ["cordon a", "release a"]
    assert server.states() == ("withdrawn", "released")


def test_what_lapsed_while_the_scheduler_was_away_is_never_sent(any_engine: sa.Engine) -> None:
    """However long it was."""
    server = one(any_engine, hint("a", state="approved"))
    server.told[0].is_away = True
    with pytest.raises(SchedulerAwayError):
        server.turn()
    server.told[0].is_away = False
    server.turn(seconds=25 * 3600)
    assert (server.told[0].got, server.placements()) == ([], {})


def test_orphans_are_told_and_left(any_engine: sa.Engine) -> None:
    """A mark of another database."""
    server = one(any_engine, hint("a", state="approved"))
    server.told[0].nodes["b"] = Hold("b", action="drain", hint="who", foreign=None)
    turned = server.turn()
    assert [hold.node for hold in turned.orphans] == ["b"]
    assert (turned.ours, server.told[0].held("b")) == (1, "drain who")


def test_a_mark_whose_hint_ended_long_ago_is_released_though_no_row_tells_of_it(any_engine: sa.Engine) -> None:
    """The hint is looked up by the id on the node."""
    server = one(any_engine, hint("a", state="expired", hours_ago=1000))
    server.told[0].nodes["a"] = Hold("a", action="cordon", hint="h-a")
    server.turn()
    assert (server.states(), server.told[0].held("a")) == (("expired", "released"), "")


def job(action: Any, ident: str = "j-1", **evidence: Any) -> Hint:
    """A hint of a job."""
    return replace(hint("a", action, state="approved", **evidence), id=ident, job="77")


def test_a_job_is_asked_once(any_engine: sa.Engine) -> None:
    """With the spare that it may take; the node's own hint is another."""
    server = one(any_engine, job("swap", spare="b"))
    server.turn()
    server.turn(seconds=1000)
    (asked,) = server.told[0].asked
    assert (asked.job, asked.node, asked.action, asked.spare) == ("77", "a", "swap", "b")
    assert server.states("j-1") == ("sent", "confirmed")
    assert server.told[0].got == []
    end(any_engine, "j-1")
    server.turn()
    assert server.states("j-1") == ("withdrawn", "released")


@pytest.mark.parametrize(("action", "times"), [("checkpoint", 2), ("requeue", 1), ("swap", 1)])
def test_a_job_whose_answer_was_lost_is_asked_again_only_to_save(
    any_engine: sa.Engine, action: str, times: int
) -> None:
    """A second requeue would cost it twice."""
    server = one(any_engine, job(action))
    server.told[0].is_deaf = True
    with pytest.raises(SchedulerAwayError):
        server.turn()
    server.told[0].is_deaf = False
    server.turn(seconds=60)
    assert len(server.told[0].asked) == times


@pytest.mark.parametrize(("result", "state", "times"), [("retry", "asked", 2), ("absent", "absent", 1)])
def test_a_job_is_asked_again_where_the_scheduler_says_later(
    any_engine: sa.Engine, result: Any, state: str, times: int
) -> None:
    """Not one that it does not know, and not while the switch is set."""
    server = one(any_engine, job("requeue"))
    server.told[0].jobs["77"] = OrderReport("77", result)
    server.turn()
    assert server.states("j-1") == ("approved", state)
    server.policy = replace(ACT, stop="holds")
    server.turn(seconds=60)
    server.policy = ACT
    assert len(server.told[0].asked) == 1
    server.turn()
    assert len(server.told[0].asked) == times


def test_a_job_s_hint_that_has_lapsed_is_not_asked(any_engine: sa.Engine) -> None:
    """Its trouble is over, one way or the other."""
    server = one(any_engine, replace(job("requeue"), valid_until=NOW - HOUR))
    server.turn()
    assert server.told[0].asked == []


def test_an_undoing_wins_over_a_renewal_at_the_same_moment(
    any_engine: sa.Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The hint is read again until it has ended."""
    from schedulers.reconcile import placement_log

    server = one(any_engine, hint("a", state="approved"))
    server.turn()
    server.told[0].person("a", None)
    real, renewed = placement_log.close_hint, []

    def renewing(connection: sa.Connection, current: Hint, *rest: Any) -> Hint:
        if not renewed:
            renewed.append(1)
            save_hint(connection, replace(current, valid_until=current.valid_until + HOUR), NOW, {})
        return real(connection, current, *rest)

    monkeypatch.setattr(placement_log, "close_hint", renewing)
    server.turn()
    assert server.states() == ("withdrawn", "undone")


def test_the_nvlink_domains_that_a_scheduler_labels_are_written_down(engine: sa.Engine) -> None:
    """They replace what was known, and are written again only when they change."""
    server = one(engine, nodes=("a", "b"))
    holding = server.told[0]
    holding.nodes = {name: replace(hold, nvlink_domain=f"c.{name}") for name, hold in holding.nodes.items()}
    server.turn()
    with engine.connect() as connection:
        assert domain_of_each(connection) == {"a": "c.a", "b": "c.b"}

"""Orders that bring a scheduler to where the hints want it, whatever has happened to it meanwhile."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from schedulers.policy.settings import Stop
from schedulers.reconcile.actuator import Hold, OrderReport, SchedulerAwayError
from schedulers.reconcile.placement_log import placement_after_report, placement_without_answer
from schedulers.reconcile.plan import AGAIN_S, WRITTEN_BACK_WITHIN, OrderPlan, ReconcileInputs, reconcile, stop_of
from store.hints.holds import FINAL_STATES, SchedulerHold
from store.records.hint import Hint

from .cluster import HOUR, NOW, hint
from .holding import Holding

SECOND = timedelta(seconds=1)


@dataclass
class Desk:
    """Hints and placements as a database would keep them, and one scheduler."""

    told: Holding
    hints: dict[str, Hint] = field(default_factory=dict)
    placements: dict[str, SchedulerHold] = field(default_factory=dict)
    now: datetime = NOW
    stop: Stop = "none"

    def put(self, *hints: Hint) -> None:
        """Hints as they are from now on."""
        self.hints |= {one.id: one for one in hints}

    def end(self, ident: str = "h-a", state: Any = "withdrawn") -> None:
        """A hint ends."""
        self.put(replace(self.hints[ident], state=state))

    def plan(self) -> OrderPlan:
        """What is to be done now; it is written down."""
        since = self.now - WRITTEN_BACK_WITHIN
        known = {
            ident: each
            for ident, each in self.placements.items()
            if each.state not in FINAL_STATES or (each.state == "released" and (each.observed or NOW) >= since)
        }
        plan = reconcile(ReconcileInputs(self.told.name, self.now, self.told.observe(), self.hints, known, self.stop))
        self.placements |= {placement.hint: placement for placement in plan.placements}
        for one in plan.undone:
            self.put(replace(self.hints[one.id], state="withdrawn"))
        return plan

    def turn(self, seconds: float = 0) -> list[str]:
        """Plan, order, read back, until nothing is left to order; returns what was ordered."""
        self.now += seconds * SECOND
        given = []
        for _ in range(3):
            orders = self.plan().orders
            given += [f"{order.action} {order.node}" for order in orders]
            try:
                reports = {report.subject: report for report in self.told.carry_out(orders)} if orders else {}
            except SchedulerAwayError:
                self.placements |= {o.hint: placement_without_answer(self.placements[o.hint], self.now) for o in orders}
                return given
            self.placements |= {
                o.hint: placement_after_report(self.placements[o.hint], reports[o.node], self.now) for o in orders
            }
        return given

    def state(self, ident: str = "h-a") -> str:
        """A placement's state."""
        return self.placements[ident].state


def desk(*hints: Hint, nodes: Sequence[str] = ("a", "b", "c")) -> Desk:
    """A scheduler of free nodes, and hints."""
    made = Desk(Holding.of(*nodes))
    made.put(*hints)
    return made


def test_a_live_hint_is_ordered_and_confirmed_by_reading_back() -> None:
    """And then left alone."""
    d = desk(hint("a", state="approved"), hint("b", "avoid"))
    assert d.turn() == ["cordon a", "avoid b"]
    assert (d.told.held("a"), d.told.held("b")) == ("cordon h-a", "avoid h-b")
    assert (d.state("h-a"), d.state("h-b")) == ("confirmed", "confirmed")
    assert d.turn(10) == []
    assert d.plan() == OrderPlan()


@pytest.mark.parametrize("state", ["shadow", "proposed", "withdrawn", "expired", "released"])
def test_what_is_not_agreed_upon_is_not_ordered(state: Any) -> None:
    """Nor what has ended."""
    d = desk(hint("a", state=state))
    assert d.turn() == []
    assert d.placements == {}


def test_what_has_lapsed_is_not_ordered_late() -> None:
    """The scheduler was away for a day: what comes back to it is not yesterday's."""
    d = desk(hint("a", state="approved"))
    assert d.turn(seconds=25 * 3600) == []
    assert d.told.got == []


def test_nothing_is_ordered_of_the_control_group() -> None:
    """Whatever state it is in."""
    d = desk(hint("a", state="approved", control=True))
    assert d.turn() == []


def test_an_escalation_is_ordered_at_once_over_what_is_held() -> None:
    """And a hint of less is brought down."""
    d = desk(hint("a", "avoid"))
    d.turn()
    d.put(hint("a", "drain", state="approved"))
    assert d.turn() == ["drain a"]
    assert (d.told.held("a"), d.placements["h-a"].action) == ("drain h-a", "drain")
    d.put(hint("a", "avoid"))
    assert d.turn() == ["avoid a"]


def test_while_an_escalation_waits_for_a_yes_the_hold_stays_as_it_is() -> None:
    """Neither more nor less."""
    d = desk(hint("a", "avoid"))
    d.turn()
    d.put(hint("a", "cordon", state="proposed"))
    assert d.turn() == []
    assert d.told.held("a") == "avoid h-a"


@pytest.mark.parametrize("state", ["withdrawn", "expired", "released"])
def test_however_a_hint_ends_its_hold_is_taken_off(state: Any) -> None:
    """Once."""
    d = desk(hint("a"))
    d.turn()
    d.end(state=state)
    assert d.turn() == ["release a"]
    assert (d.told.held("a"), d.state()) == ("", "released")
    assert d.turn(1000) == []


def test_a_hold_whose_hint_has_only_lapsed_stays_until_the_policy_ends_it() -> None:
    """It may have to pass a test first; and what was taken off meanwhile is not put back."""
    d = desk(hint("a"))
    d.turn()
    assert d.turn(23 * 3600) == []
    d.end(state="expired")
    assert d.turn() == ["release a"]


def test_a_release_is_asked_until_it_is_seen_and_never_given_up() -> None:
    """Less often each time; whatever the scheduler says."""
    d = desk(hint("a"))
    d.turn()
    d.end()
    for result in ("retry", "refused", "foreign", "absent", "done"):
        d.told.answers["a"] = _report("a", result)
        assert d.turn(600) == ["release a"], result
        assert d.state() == "asked"
    for _ in range(50):
        assert d.turn(301) == ["release a"]
    assert d.turn(299) == []
    d.told.answers.clear()
    assert d.turn(2) == ["release a"]
    assert d.state() == "released"


def test_a_mark_of_an_ended_hint_is_released_though_no_placement_tells_of_it() -> None:
    """The row was lost, or was written by a server whose transaction failed."""
    d = desk(hint("a", state="expired"))
    d.told.nodes["a"] = Hold("a", action="cordon", hint="h-a")
    assert d.turn() == ["release a"]
    assert d.state() == "released"


def test_what_another_wrote_back_without_its_hint_is_released_again() -> None:
    """Kubernetes' own controller writes a node's taints with what it had read before: ours among them."""
    d = desk(hint("a"))
    d.turn()
    d.end()
    d.told.answers["a"] = _report("a", "done")
    assert d.turn() == ["release a"]
    d.told.nodes["a"] = Hold("a", action="avoid")  # taken off, and put back before it was read
    assert d.turn(600) == ["release a"]
    assert d.state() == "asked"
    d.told.nodes["a"] = Hold("a")
    assert d.turn(600) == []
    assert d.state() == "released"
    d.told.nodes["a"] = Hold("a", action="avoid")  # put back after it was read
    assert d.turn(10) == ["release a"]
    d.told.nodes["a"] = Hold("a")
    assert (d.turn(10), d.state()) == ([], "released")
    d.told.nodes["a"] = Hold("a", action="avoid")  # so late that anybody may have put it there
    assert d.turn(600) == []
    assert [hold.node for hold in d.plan().orphans] == ["a"]


def test_a_hold_that_a_person_took_off_is_not_put_back() -> None:
    """The hint is withdrawn; the next turns ask nothing."""
    d = desk(hint("a"))
    d.turn()
    d.told.person("a", None)
    plan = d.plan()
    assert [one.id for one in plan.undone] == ["h-a"]
    assert (plan.orders, d.state()) == ((), "undone")
    assert d.turn(1000) == []
    assert d.told.actions() == ["cordon a"]


def test_a_hold_that_was_taken_off_is_told_again_until_the_hint_has_ended() -> None:
    """Its end may have been lost to a change at the same moment."""
    d = desk(hint("a"))
    d.turn()
    d.told.person("a", None)
    seen = ReconcileInputs(
        "slurm", NOW, d.told.observe(), d.hints, {"h-a": replace(d.placements["h-a"], state="undone")}
    )
    assert [one.id for one in reconcile(seen).undone] == ["h-a"]
    assert reconcile(seen).orders == ()


def test_half_a_hold_that_a_person_left_is_taken_off_too() -> None:
    """As after `kubectl uncordon`: our taint is still there."""
    d = desk(hint("a"))
    d.turn()
    d.told.nodes["a"] = Hold("a", action="avoid", hint="h-a")
    assert [one.id for one in d.plan().undone] == ["h-a"]
    assert d.turn() == ["release a"]
    assert d.told.held("a") == ""


def test_a_drain_that_is_told_as_a_cordon_is_no_undoing() -> None:
    """Both keep all new work off; it is ordered again."""
    d = desk(hint("a", "drain"))
    d.turn()
    d.told.nodes["a"] = Hold("a", action="cordon", hint="h-a")
    assert d.turn(2) == ["drain a"]


def test_what_others_hold_is_left_and_noted() -> None:
    """Until they let go: then the hint still stands."""
    d = desk(hint("a", state="approved"))
    d.told.person("a", "maintenance")
    assert d.turn() == []
    assert (d.state(), d.placements["h-a"].detail) == ("foreign", "maintenance")
    d.end()
    assert d.turn() == []
    assert d.state() == "released"
    d.put(hint("b"))
    d.told.person("b", "fan")
    d.turn()
    d.told.person("b", None)
    assert d.turn(1) == ["cordon b"]


def test_a_hold_that_a_person_made_their_own_is_theirs_to_the_end() -> None:
    """They put their own reason in place of ours: the hint stands, and when they let go it is withdrawn."""
    d = desk(hint("a"))
    d.turn()
    d.told.person("a", "I look into it")
    assert d.plan().undone == ()
    assert (d.state(), d.placements["h-a"].detail) == ("foreign", "taken over: I look into it")
    d.told.person("a", "still looking")
    assert d.plan().undone == ()
    d.told.person("a", None)
    assert [one.id for one in d.plan().undone] == ["h-a"]
    assert d.turn(1000) == []


def test_a_person_who_comes_first_in_the_same_moment_keeps_the_node() -> None:
    """The order finds it held; nothing of ours is there, nothing is withdrawn; later it is ours to ask again."""
    d = desk(hint("a"))
    d.told.before = lambda: d.told.person("a", "fan")
    assert d.turn() == ["cordon a"]
    assert (d.state(), d.told.held("a")) == ("foreign", "")
    assert d.turn(1000) == []
    d.told.before = lambda: None
    d.told.person("a", None)
    assert d.turn() == ["cordon a"]


def test_a_foreign_hold_over_our_lesser_one_is_left_and_ours_is_released_in_the_end() -> None:
    """Kubernetes: our taint, somebody's cordon."""
    d = desk(hint("a", "avoid"))
    d.turn()
    d.told.nodes["a"] = replace(d.told.nodes["a"], foreign="cordoned by hand")
    d.put(hint("a", "cordon"))
    assert d.turn() == []
    assert d.placements["h-a"].detail == "cordoned by hand"
    d.end()
    assert d.turn() == ["release a"]
    assert d.told.nodes["a"] == Hold("a", foreign="cordoned by hand")


def test_a_mark_that_we_do_not_know_is_left_and_told() -> None:
    """Of another database, or without an id: a person releases those."""
    d = desk(hint("a"))
    d.told.nodes["a"] = Hold("a", action="drain", hint="who")
    d.told.nodes["b"] = Hold("b", action="cordon", hint=None)
    plan = d.plan()
    assert [hold.node for hold in plan.orphans] == ["a", "b"]
    assert (plan.orders, d.state()) == ((), "foreign")


def test_a_node_that_is_not_there_is_noted_and_ordered_when_it_comes() -> None:
    """A node installed anew comes back without our hold: that is nobody's undoing."""
    d = desk(hint("z"), hint("a"))
    assert d.turn() == ["cordon a"]
    assert d.state("h-z") == "absent"
    del d.told.nodes["a"]
    assert d.turn() == []
    assert d.state("h-a") == "absent"
    d.told.nodes |= {"a": Hold("a"), "z": Hold("z")}
    assert d.turn() == ["cordon a", "cordon z"]


def test_a_hint_that_ends_while_its_node_is_away_is_over_and_what_comes_back_marked_is_released() -> None:
    """Nothing of ours is there, as far as anybody can tell; the mark itself tells otherwise later."""
    d = desk(hint("a"))
    d.turn()
    marked = d.told.nodes.pop("a")
    d.end()
    assert d.turn() == []
    assert d.state() == "released"
    d.told.nodes["a"] = marked
    assert d.turn() == ["release a"]
    assert (d.state(), d.told.held("a")) == ("released", "")


def test_a_node_that_opts_out_is_asked_nothing_but_is_let_go() -> None:
    """Its label may go again; what is held stays until its hint ends."""
    d = desk(hint("a"), hint("b"))
    d.told.nodes["a"] = Hold("a", is_opted_out=True)
    assert d.turn() == ["cordon b"]
    assert d.state("h-a") == "refused"
    d.told.nodes["b"] = replace(d.told.nodes["b"], is_opted_out=True)
    assert d.turn() == []
    d.end("h-b")
    assert d.turn() == ["release b"]
    d.told.nodes["a"] = Hold("a")
    assert d.turn() == ["cordon a"]


def test_what_was_refused_is_not_asked_again_but_more_is() -> None:
    """Slurm has nothing for `watch`."""
    d = desk(hint("a", "watch"))
    d.told.answers["a"] = _report("a", "refused")
    assert d.turn() == ["watch a"]
    assert d.turn(10_000) == []
    d.told.answers.clear()
    d.put(hint("a", "cordon"))
    assert d.turn() == ["cordon a"]


def test_an_order_without_effect_is_given_again_later_each_time() -> None:
    """In the rhythm of AGAIN_S."""
    d = desk(hint("a"))
    d.told.answers["a"] = _report("a", "retry")
    for wait_s in (0.0, *AGAIN_S, AGAIN_S[-1]):
        assert d.turn(max(0.0, wait_s - 0.5)) == ([] if wait_s else ["cordon a"])
        assert not wait_s or d.turn(0.5) == ["cordon a"]
    assert d.placements["h-a"].attempts == len(AGAIN_S) + 2


@pytest.mark.parametrize("result", ["foreign", "absent"])
def test_a_report_that_the_next_look_denies_is_not_acted_upon_in_a_circle(result: str) -> None:
    """The order is given again, in its rhythm."""
    d = desk(hint("a"))
    d.told.answers["a"] = _report("a", result)
    assert d.turn() == ["cordon a"]
    assert d.turn(0.5) == []
    assert d.turn(0.5) == ["cordon a"]


def test_an_order_that_was_carried_out_though_its_answer_was_lost_is_seen_and_not_given_again() -> None:
    """Nor a release."""
    d = desk(hint("a"))
    d.told.is_deaf = True
    assert d.turn() == ["cordon a"]
    assert d.turn() == []
    assert d.state() == "confirmed"
    d.end()
    assert d.turn() == ["release a"]
    assert d.turn() == []
    assert d.state() == "released"


def test_an_order_that_was_lost_is_due_as_soon_as_the_scheduler_is_back() -> None:
    """Its absence is no reason to wait longer."""
    d = desk(hint("a"))
    d.told.before = lambda: setattr(d.told, "is_away", True)
    assert d.turn() == ["cordon a"]
    d.told.is_away, d.told.before = False, lambda: None
    assert d.turn() == ["cordon a"]
    assert d.state() == "confirmed"


def test_a_hint_that_ends_while_its_order_is_under_way_is_released() -> None:
    """The order wins the race, the person the day."""
    d = desk(hint("a"))
    d.told.before = d.end
    assert d.turn() == ["cordon a", "release a"]
    assert d.state() == "released"


def test_a_new_hint_takes_the_old_ones_hold_over_without_a_gap() -> None:
    """Of a hint that lapsed and was made again: no job comes in between."""
    d = desk(hint("a"))
    d.turn()
    d.end(state="expired")
    d.put(replace(hint("a", state="approved"), id="h-2"))
    assert d.turn() == ["cordon a"]
    assert (d.told.held("a"), d.state("h-a"), d.state("h-2")) == ("cordon h-2", "released", "confirmed")


def test_a_hold_of_a_hint_that_still_stands_is_not_taken_over_by_another() -> None:
    """A node has one open hint; where a fault of ours makes two, they do not fight over it."""
    d = desk(hint("a", "avoid"))
    d.turn()
    d.put(hint("a", "cordon", state="proposed"), replace(hint("a", "cordon"), id="h-2"))
    assert d.turn() == []
    assert (d.told.held("a"), d.state("h-2")) == ("avoid h-a", "foreign")


@pytest.mark.parametrize("obstacle", ["stop", "foreign", "refused"])
def test_an_old_hold_is_released_where_the_new_hint_cannot_take_it_over(obstacle: str) -> None:
    """Nothing of an ended hint stays because another one stands."""
    d = desk(hint("a"))
    d.turn()
    d.end(state="expired")
    d.put(replace(hint("a", state="approved"), id="h-2"))
    if obstacle == "stop":
        d.stop = "holds"
    elif obstacle == "foreign":
        d.told.nodes["a"] = replace(d.told.nodes["a"], foreign="fan")
    else:
        d.told.answers["a"] = _report("a", "refused")
    assert d.turn()[-1] == "release a"
    d.told.answers.clear()
    d.turn(1)
    assert (d.state("h-a"), d.told.held("a")) == ("released", "")


def test_a_hint_that_is_renewed_is_ordered_anew_so_that_no_hold_runs_out() -> None:
    """A reservation has an end of its own."""
    d = desk(hint("a"))
    d.turn()
    d.put(replace(d.hints["h-a"], valid_until=NOW + 40 * HOUR))
    assert d.turn() == ["cordon a"]
    assert d.told.got[-1].valid_until == NOW + 40 * HOUR
    assert d.turn(10) == []


def test_the_kill_switch_stops_holds_or_everything() -> None:
    """Releases go on under `holds`; what is seen is written down under both."""
    d = desk(hint("a"), hint("b"))
    d.turn()
    d.end("h-b")
    d.put(hint("c"), hint("a", "drain"))
    d.stop = "all"
    assert d.turn() == []
    d.told.person("a", None)
    assert [one.id for one in d.plan().undone] == ["h-a"]
    d.stop = "holds"
    assert d.turn() == ["release b"]
    assert "h-c" not in d.placements, "nothing was asked, so nothing may be held"
    d.stop = "none"
    assert d.turn() == ["cordon c"]


@pytest.mark.parametrize(
    ("mode", "stop", "both"),
    [("shadow", "none", "holds"), ("shadow", "all", "all"), ("act", "none", "none"), ("approve", "holds", "holds")],
)
def test_shadow_mode_holds_nothing_anew(mode: Any, stop: Any, both: str) -> None:
    """And lets go of what is held."""
    assert stop_of(mode, stop) == both


def test_the_gravest_of_two_hints_of_a_node_counts_and_the_gravest_order_goes_first() -> None:
    """There should be one; a fault of ours must not make them fight."""
    d = desk(hint("a", "avoid"), replace(hint("a", "cordon"), id="h-2"), hint("b", "drain"), hint("c", "avoid"))
    assert d.turn() == ["drain b", "cordon a", "avoid c"]
    assert d.turn(1000) == []


def _report(node: str, result: Any) -> OrderReport:
    return OrderReport(node, result)

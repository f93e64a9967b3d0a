"""What a link's score asks of the host at its end: softly, by the node's economics, and beside its own score."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
import sqlalchemy as sa

from schedulers.lifecycle.policy_turn import run_policy
from schedulers.policy.decision import Decision, decide
from schedulers.policy.fact_queries import gather, look_back
from schedulers.policy.facts import Inputs, NodeFacts, Reporting
from schedulers.policy.kill_switch import STOPS
from schedulers.policy.settings import Breaker, Budgets, Control, Policy, Thresholds
from store.database.connections import writing
from store.events.append import append_nodes, append_outages
from store.hints.control_group import ControlGroup
from store.hints.hint_log import audit_page, read_hints
from store.models.scores import LinkScore, save_link_scores
from store.records.hint import Evidence, Hint, HintLink, evidence_of
from store.records.node import Node
from store.records.outage import Outage
from store.records.score import Reason

from .cluster import HOUR, NOW, fault, hint, sick

ACT = Policy(mode="act", budgets=Budgets(100, 100.0, 100, 100, 100), breaker=Breaker(nodes=100))
FLAPS = Reason("7 link flaps in 7 days, the last 2 h ago", 0.3, ("e1", "e2"))
REST = Reason("the base rate of links, and everything else that raises or lowers it", 0.01)
# With the largest job unknown, 1,024 GPUs: 6.9 %.
WATCHED, AVOIDED = 0.03, 0.08


def link(own: float | None, stop: float | None = None, name: str = "leaf-0/2", **more: Any) -> LinkScore:
    """A link of node a that flaps."""
    found = LinkScore(name, ("leaf-0 port 2", "a port 1"), 24, NOW, 0.31, (FLAPS, REST), "links-gbt-24h-x", "a")
    return replace(found, own_risk=own, stop_risk=stop, **more)


def decided(*links: LinkScore, hints: tuple[Hint, ...] = (), policy: Policy = ACT, **facts: Any) -> Decision:
    """The decision at noon about node a."""
    told = {"of_prior": facts.pop("of_prior", False), "avoid_takes": facts.pop("avoid_takes", False)}
    return decide(Inputs(NOW, [NodeFacts("a", links=links, **facts)], hints, **told), policy)


def asked(*links: LinkScore, **more: Any) -> str | None:
    """The action that is asked, None for none."""
    changed = decided(*links, **more).changed
    return changed[0][0].action if changed else None


def standing(action: Any, threshold: float, state: Any = "sent", hours_ago: float = 2) -> Hint:
    """An open hint of the link."""
    told = HintLink("leaf-0/2", ("leaf-0 port 2", "a port 1"), 0.31, 24, 0.3, 0.1, threshold, ("e1",), NOW)
    return hint("a", action, state, hours_ago, link=told, score=None)


def test_a_link_that_flaps_has_its_host_watched_and_says_why() -> None:
    """The reason names the link and what speaks against it, the evidence has its numbers."""
    ((made, word),) = decided(link(WATCHED), score=0.001).changed
    assert (made.action, made.state, word) == ("watch", "approved", "made")
    assert made.reason == (
        "foreshock: link leaf-0/2, which is 31 % likely to be lost within 24 h, as of 2025-03-01 12:00 UTC: "
        "7 link flaps in 7 days, the last 2 h ago"
    )
    told = made.evidence.link
    assert told is not None
    assert (told.name, told.ends, told.score, told.horizon_h) == ("leaf-0/2", ("leaf-0 port 2", "a port 1"), 0.31, 24)
    assert (told.own_risk, told.stop_risk, told.threshold, told.events) == (WATCHED, None, 0.02, ("e1", "e2"))
    assert (made.evidence.score, made.evidence.reasons) == (0.001, (FLAPS.text,))
    assert evidence_of(made.evidence.to_json()) == made.evidence


@pytest.mark.parametrize(
    ("own", "stop", "action"),
    [
        (0.019, None, None),
        (0.02, None, "watch"),
        (0.9, None, "watch"),  # a count serves, or nobody has seen what a loss does to jobs
        (0.9, 0.068, "watch"),
        (0.9, 0.07, "avoid"),
        (None, None, None),
    ],
)
def test_an_avoid_takes_that_a_loss_stops_jobs_here(own: float, stop: float | None, action: str | None) -> None:
    """Watching goes by what the link's own signs add, avoiding by what that does to the job, at the node's own line."""
    assert asked(link(own, stop)) == action


def test_no_link_holds_a_node_however_high() -> None:
    """A score alone holds nothing."""
    assert asked(link(1.0, 1.0)) == "avoid"


def test_a_base_rate_and_neighbours_make_no_hint() -> None:
    """Only what has events of the link's own behind it speaks against it."""
    others = Reason("9 other links of its switch were lost in 24 h", 0.3)
    assert asked(link(0.5, 0.5, reasons=(REST,))) is None
    assert asked(link(0.5, 0.5, reasons=(others, REST))) is None
    assert asked(link(0.5, 0.5, reasons=(replace(FLAPS, contribution=-0.1), REST))) is None


@pytest.mark.parametrize(
    ("score", "stop", "action", "of_link"),
    [
        (0.03, None, "watch", False),
        (0.03, AVOIDED, "avoid", True),
        (0.5, None, "avoid", False),
        (0.5, 0.9, "avoid", False),
        (None, AVOIDED, "avoid", True),
        (0.06, 0.06, "watch", False),  # they are not added up
    ],
)
def test_the_graver_of_both_is_asked(score: float | None, stop: float | None, action: str, of_link: bool) -> None:
    """Of two that ask for the same, the node's own."""
    ((made, _),) = decided(link(0.4, stop), score=score).changed
    assert (made.action, made.evidence.link is not None) == (action, of_link)


def test_a_prior_of_nodes_says_nothing_of_links() -> None:
    """Links learn here or not at all."""
    assert asked(link(0.4, AVOIDED), of_prior=True, score=0.5) == "avoid"
    assert asked(link(0.4), of_prior=True, score=0.5) == "watch"


def test_the_riskiest_link_speaks() -> None:
    """The reader has them in that order; one that nothing speaks against is passed over."""
    calm = link(0.9, 0.9, "leaf-0/1", reasons=(REST,))
    ((made, _),) = decided(calm, link(WATCHED), link(0.025, None, "leaf-0/3")).changed
    assert made.evidence.link is not None
    assert made.evidence.link.name == "leaf-0/2"


def test_a_confirmed_fault_goes_before_and_an_owner_who_opted_out_too() -> None:
    """The hold bears no link."""
    broken = replace(sick(NodeFacts("a")), links=(link(0.9, 0.9),))
    ((made, _),) = decide(Inputs(NOW, [broken]), ACT).changed
    assert (made.action, made.evidence.link) == ("cordon", None)
    assert asked(link(0.9, 0.9), policy=replace(ACT, opt_out=("a",))) is None
    assert decided(hints=(standing("avoid", 0.07),), policy=replace(ACT, opt_out=("a",))).released != ()


@pytest.mark.parametrize("mode", ["shadow", "approve", "act"])
def test_a_control_node_is_left_alone_in_every_mode(mode: Any) -> None:
    """As for its own score; and what it makes costs no budget."""
    policy = replace(ACT, mode=mode, budgets=Budgets(avoid_nodes=0))
    ((made, _),) = decided(link(0.9, 0.9), policy=policy, control=True).changed
    assert (made.action, made.state, made.is_control) == ("avoid", "shadow", True)


@pytest.mark.parametrize(
    ("action", "threshold", "own", "stop", "ends"),
    [
        ("watch", 0.02, 0.0101, None, False),
        ("watch", 0.02, 0.0099, None, True),
        ("avoid", 0.07, 0.9, 0.036, False),
        ("avoid", 0.07, 0.9, 0.03, True),
        ("avoid", 0.07, 0.9, None, True),  # a count serves again: it goes, and becomes a watch
        ("avoid", 0.02, 0.9, 0.0101, False),  # by the line that raised it, of a larger job
    ],
)
def test_a_hint_falls_at_half_the_line_that_raised_it(
    action: str, threshold: float, own: float, stop: float | None, ends: bool
) -> None:
    """Neither a score that moves around a line nor a job that ends makes hints flap."""
    assert bool(decided(link(own, stop), hints=(standing(action, threshold),)).released) == ends


def test_what_nobody_has_scored_of_late_ends_nothing() -> None:
    """It lapses; a calm link of which a score was read does end its hint, whatever the node's own score."""
    assert decided(hints=(standing("watch", 0.02),)) == Decision()
    assert decided(link(0.0, 0.0, "leaf-0/9"), hints=(standing("watch", 0.02),)) == Decision()
    calm = link(0.0, 0.0, reasons=(REST,))
    assert decided(calm, hints=(standing("watch", 0.02),)).released != ()
    assert decided(calm, hints=(standing("watch", 0.02),), score=0.001).released != ()
    assert decided(calm, hints=(standing("watch", 0.02),), score=0.015).released == ()
    assert decided(calm, hints=(standing("watch", 0.02),), silent=True) == Decision()
    ((renewed, word),) = decided(link(WATCHED), hints=(standing("watch", 0.02, hours_ago=13),)).changed
    assert (word, renewed.valid_until) == ("renewed", NOW + 24 * HOUR)


def test_a_hint_for_the_node_s_own_score_stands_while_a_link_speaks() -> None:
    """And names it then; a fault's or a verdict's word is not written over."""
    own = hint("a", "watch", threshold=0.02, score=0.03)
    ((named, word),) = decided(link(WATCHED), hints=(own,), score=0.001).changed
    assert (word, named.id, named.evidence.link is not None) == ("names a link", own.id, True)
    other = link(WATCHED, None, "leaf-0/7")
    ((renamed, _),) = decided(other, link(0.001), hints=(standing("watch", 0.02),)).changed
    assert "link leaf-0/7" in renamed.reason
    held = hint("a", "watch", incident="i1", held="budget: x")
    assert decided(link(WATCHED), hints=(held,)).changed == ()


def test_it_is_escalated_in_place() -> None:
    """From a watch to an avoid, the same hint."""
    ((raised, word),) = decided(link(0.5, 0.5), hints=(standing("watch", 0.02),)).changed
    assert (raised.id, raised.action, word) == ("h-a", "avoid", "escalated")


def test_a_person_s_no_stands() -> None:
    """Until its validity would have ended; more may be asked."""
    closed = evidence_of({"closed": {"by": "person:x", "time": "2025-03-01T11:00:00Z"}})
    no = replace(hint("a", "watch", "withdrawn"), evidence=closed)
    assert asked(link(WATCHED), hints=(no,)) is None
    assert asked(link(0.9, 0.9), hints=(no,)) == "avoid"


@pytest.mark.parametrize("stop", STOPS)
def test_the_kill_switch_stops_it(stop: Any) -> None:
    """New ones, as any."""
    found = decide(Inputs(NOW, [NodeFacts("a", links=(link(0.9, 0.9),))], stop=stop), ACT)
    assert bool(found.changed) == (stop == "none")


def fleet(engine: sa.Engine, *links: LinkScore) -> None:
    """Nodes a and b, and a scoring of links."""
    with writing(engine).begin() as connection:
        append_nodes(connection, [Node("a", "r", "leaf-0"), Node("b", "r", "leaf-0")])
        save_link_scores(connection, 24, list(links))


def seen(engine: sa.Engine, now: Any = NOW, policy: Policy = ACT) -> dict[str, tuple[str, ...]]:
    """The links that the policy sees, by node."""
    with engine.connect() as connection:
        return {one.node: tuple(each.link for each in one.links) for one in gather(connection, policy, now).nodes}


def test_the_reader_has_hosts_links_that_something_speaks_against(any_engine: sa.Engine) -> None:
    """The riskiest first; none between two switches, of a node that nobody knows, or with a base rate alone."""
    fleet(
        any_engine,
        link(0.02, None, "leaf-0/2"),
        link(0.5, 0.1, "leaf-0/3"),
        link(0.009, None, "leaf-0/4"),
        link(0.5, None, "leaf-0/5", reasons=(REST,)),
        link(0.5, None, "leaf-0/33", node=None),
        link(0.5, None, "x/1", node="x"),
        link(None, None, "leaf-0/6"),
    )
    assert seen(any_engine) == {"a": ("leaf-0/3", "leaf-0/2"), "b": ()}
    with any_engine.connect() as connection:
        assert all(not one.links for one in look_back(connection, ACT, NOW).nodes)


@pytest.mark.parametrize(("hours", "counts"), [(0, True), (23.9, True), (24, False), (-0.1, False)])
def test_a_link_s_score_counts_for_its_horizon(engine: sa.Engine, hours: float, counts: bool) -> None:
    """Neither one of yesterday nor one of tomorrow says anything of now."""
    fleet(engine, link(0.5))
    assert bool(seen(engine, NOW + hours * HOUR)["a"]) == counts


def test_of_a_node_that_is_out_no_link_is_told(engine: sa.Engine) -> None:
    """Its link falls for it."""
    fleet(engine, link(0.5))
    with writing(engine).begin() as connection:
        append_outages(connection, [Outage("a", NOW - HOUR, None, "DOWN", "x", None, False, "hardware")])
    assert seen(engine)["a"] == ()


def test_turns_make_and_end_it_in_shadow(any_engine: sa.Engine) -> None:
    """Written down with its audit; the scoring in which the link is calm ends it."""
    fleet(any_engine, link(0.5, 0.3))
    shadow = replace(ACT, mode="shadow", control=Control(0.0))
    run_policy(any_engine, shadow, NOW)
    run_policy(any_engine, shadow, NOW + timedelta(seconds=2))
    with any_engine.connect() as connection:
        (made,) = read_hints(connection)
        (entry,) = audit_page(connection, 9, None, None)
    assert (made.node, made.action, made.state) == ("a", "avoid", "shadow")
    assert entry["detail"]["change"] == "made"
    fleet(any_engine, link(0.0, 0.0, reasons=(REST,), time=NOW + 6 * HOUR))
    run_policy(any_engine, shadow, NOW + 7 * HOUR)
    with any_engine.connect() as connection:
        assert [one.state for one in read_hints(connection)] == ["released"]


def test_control_is_drawn_for_links_too(engine: sa.Engine) -> None:
    """Each node of which one speaks is in the group or not, by period."""
    group, drawn = ControlGroup(b"key", 0.5, timedelta(days=1)), set()
    for day in range(20):
        moment = NOW + timedelta(days=day)
        fleet(engine, link(0.5, 0.3, time=moment))
        with engine.connect() as connection:
            (facts,) = [one for one in gather(connection, ACT, moment, group).nodes if one.node == "a"]
        drawn.add(facts.control)
    assert drawn == {True, False}


def test_the_line_is_the_policy_s(engine: sa.Engine) -> None:
    """A higher `watch` is one for links, too."""
    fleet(engine, link(0.05))
    assert seen(engine, policy=replace(ACT, thresholds=Thresholds(watch=0.2)))["a"] == ()
    quiet = Inputs(NOW, [NodeFacts("a", links=(link(0.05),))], reporting=Reporting(10, 1))
    assert decide(quiet, replace(ACT, thresholds=Thresholds(watch=0.06))).changed == ()
    assert [made.action for made, _ in decide(quiet, ACT).changed] == ["watch"]


def test_evidence_of_an_older_program_has_no_link() -> None:
    """And what is no link is kept as it was."""
    assert Evidence().to_json() == {}
    assert evidence_of({"link": {"name": 3}}).other == {"link": {"name": 3}}


def test_what_is_told_of_a_fault_is_no_business_of_its_link() -> None:
    """A cordon by budget refused becomes an avoid that names the incident, not the link."""
    broken = replace(NodeFacts("a", links=(link(0.9, 0.9),)), fault=fault("a"))
    none = replace(ACT, budgets=Budgets(0, 100.0, 100, 100, 100))
    ((made, _),) = decide(Inputs(NOW, [broken]), none).changed
    assert (made.action, made.evidence.link, made.evidence.incident is not None) == ("avoid", None, True)

"""Whom a shared cause spares and whom it holds; what a node's own hardware says of itself no verdict takes back."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
import sqlalchemy as sa

from schedulers.lifecycle.policy_turn import run_policy
from schedulers.policy.fact_queries import gather, look_back
from schedulers.policy.proposal import proposal_of
from schedulers.policy.settings import Breaker, Budgets, Policy, SharedCauseRule
from store.database.connections import writing
from store.events.append import append_nodes
from store.hints.hint_log import read_hints
from store.models.scores import LinkScore, save_link_scores
from store.records.incident import Incident
from store.records.node import Node
from store.records.score import Reason
from store.records.verdict import Verdict
from store.tables import hint_tables, schema
from store.verdicts.verdict_log import VerdictChange, closed, save_changes

from .cluster import HOUR, NOW, fault

ACT = Policy(mode="act", budgets=Budgets(100, 100.0, 100, 100, 100), breaker=Breaker(nodes=100))
FOUR = ("n0", "n1", "n2", "n3")
MINUTE = timedelta(minutes=1)


def said(node: str, kind: str, minutes_ago: float = 10, **facts: Any) -> Incident:
    """An error that a node's incident tells of."""
    moment = NOW - minutes_ago * MINUTE
    made: dict[str, Any] = {"severity": "error", "cause": "fabric", "source": "kernel", "code": None} | facts
    base = replace(fault(node), id=f"i-{node}-{kind}-{minutes_ago}-{made['source']}", start=moment, end=moment)
    name = kind if made["code"] is None else f"{kind}:{made['code']}"
    return replace(base, kind=kind, kinds={name: 1}, **made)


def lost_link(node: str, minutes_ago: float = 10) -> list[Incident]:
    """What two detectors say of a node whose leaf is gone: without a verdict they hold it."""
    return [said(node, "ib_port", minutes_ago), said(node, "port_removed", minutes_ago, source="opensm")]


def xid(node: str, code: int, minutes_ago: float = 10) -> Incident:
    """A fatal fault of a node's GPU."""
    return said(node, "xid", minutes_ago, code=code, severity="fatal", cause="hardware")


def verdict(cause_class: Any = "switch", **facts: Any) -> Verdict:
    """A leaf from which four nodes suffer."""
    made: dict[str, Any] = {"name": "leaf004", "probability": 0.95, "cause": "fabric", "action": "run_diagnostics"}
    made |= {"since": NOW - 10 * MINUTE, "reason": "all nodes below it lost a link", "id": "v1"}
    return Verdict(cause_class, **(made | {"nodes": FOUR, "victims": FOUR} | facts))


def keep(engine: sa.Engine, incidents: list[Incident], *verdicts: Verdict) -> None:
    """Four nodes and a fifth, what they said, and the verdicts that stand."""
    with writing(engine).begin() as connection:
        append_nodes(connection, [Node(name, f"r-{name}", f"l-{name}", driver="550") for name in (*FOUR, "x")])
        for one in incidents:
            row = {name: getattr(one, name) for name in Incident.__slots__}
            row |= {"device": {"type": "gpu", "pci": None, "index": None, "uuid": None, "port": None}}
            connection.execute(sa.insert(schema.incidents).values(**row | {"nodes": list(one.nodes)}))
        save_changes(connection, [VerdictChange(one, "opened") for one in verdicts], NOW)


def asked(engine: sa.Engine, policy: Policy = ACT, now: Any = NOW) -> dict[str, str]:
    """What each node calls for, before any limit."""
    with engine.connect() as connection:
        inputs = gather(connection, policy, now)
    found = ((facts.node, proposal_of(facts, inputs, policy, None)) for facts in inputs.nodes)
    return {node: one.action for node, one in found if one is not None}


def test_the_nodes_below_a_leaf_are_watched_and_the_verdict_is_named(any_engine: sa.Engine) -> None:
    """Two detectors see each of them lose its link: without the verdict all four are cordoned."""
    gone = [one for node in FOUR for one in lost_link(node)]
    keep(any_engine, gone, verdict())
    assert asked(any_engine, replace(ACT, shared_causes=SharedCauseRule(None))) == dict.fromkeys(FOUR, "cordon")
    run_policy(any_engine, ACT, NOW)
    with any_engine.connect() as connection:
        hints = read_hints(connection)
    assert {(hint.node, hint.action, hint.evidence.verdict) for hint in hints} == {(n, "watch", "v1") for n in FOUR}
    assert all("not this node's fault: switch leaf004" in hint.reason for hint in hints)


@pytest.mark.parametrize("code", [48, 79, 94, 95, 64, 140])
@pytest.mark.parametrize("cause_class", ["switch", "cable", "storage", "application", "job", "planned", "nvswitch"])
def test_a_dead_gpu_is_the_node_s_own_whatever_else_is_down(engine: sa.Engine, cause_class: Any, code: int) -> None:
    """No verdict about the fabric, the files, the program or planned work takes it back."""
    gone = [one for node in FOUR for one in lost_link(node)]
    keep(engine, [*gone, xid("n2", code)], verdict(cause_class))
    assert asked(engine)["n2"] == "cordon"


def test_an_incident_that_counts_a_dead_gpu_beside_a_lost_link_is_the_node_s_own(engine: sa.Engine) -> None:
    """Whatever names it."""
    mixed = replace(xid("n2", 74), kinds={"nvlink_error": 3, "xid:79": 1})
    clean = [xid(node, 74) for node in ("n0", "n1", "n3")]
    keep(engine, [*clean, mixed], verdict("nvswitch"))
    assert asked(engine) == {"n0": "watch", "n1": "watch", "n2": "cordon", "n3": "watch"}


@pytest.mark.parametrize(
    ("cause_class", "code", "action"),
    [
        *(("power", 79, "watch"), ("rack", 79, "watch"), ("cooling", 48, "watch"), ("driver", 79, "watch")),
        *(("driver", 48, "cordon"), ("firmware", 95, "cordon"), ("driver", 119, "watch")),
    ],
)
def test_what_power_and_heat_and_a_release_do_is_theirs(
    engine: sa.Engine, cause_class: Any, code: int, action: str
) -> None:
    """A rack that loses power loses its GPUs; no driver breaks memory."""
    keep(engine, [xid(node, code) for node in FOUR], verdict(cause_class))
    assert asked(engine) == dict.fromkeys(FOUR, action)


@pytest.mark.parametrize("liars", [1, 2])
@pytest.mark.parametrize("cause_class", ["power", "rack", "driver", "switch", "cooling"])
def test_one_node_s_lines_free_nobody(engine: sa.Engine, cause_class: Any, liars: int) -> None:
    """Whatever verdict they lead to, and however sure: it takes the word of three, or of who speaks for the fleet."""
    told = [xid(node, 79) for node in FOUR[:liars]]
    keep(engine, told, verdict(cause_class, probability=1.0))
    assert asked(engine) == dict.fromkeys(FOUR[:liars], "cordon")


def test_one_node_that_says_a_thing_in_a_hundred_ways_is_one_node(engine: sa.Engine) -> None:
    """Many incidents, of many kinds and moments."""
    told = [said("n0", f"kind{i}", 1 + i / 100, severity="fatal", cause="hardware") for i in range(100)]
    keep(engine, told, verdict("power"))
    assert asked(engine) == {"n0": "cordon"}


def test_the_subnet_manager_s_word_is_enough(engine: sa.Engine) -> None:
    """No node's token may send what it says."""
    keep(engine, lost_link("n0"), verdict())
    assert asked(engine) == {"n0": "watch"}


@pytest.mark.parametrize(
    "facts", [{"probability": 0.79}, {"state": "explained"}, {"since": NOW + MINUTE}, {"nodes": ("n1",), "victims": ()}]
)
def test_a_verdict_that_does_not_hold_or_is_of_others_spares_nobody(engine: sa.Engine, facts: dict[str, Any]) -> None:
    """Not sure enough, taken in by another, of a later time, of other nodes."""
    keep(engine, [one for node in FOUR for one in lost_link(node)], verdict(**facts))
    assert asked(engine)["n0"] == "cordon"


def test_what_came_before_the_cause_is_not_explained_by_it(engine: sa.Engine) -> None:
    """A link that was lost an hour before the leaf is its own story; so is one after the leaf is back."""
    early, rest = lost_link("n0", 70), [one for node in FOUR[1:] for one in lost_link(node)]
    over = closed(verdict(last=NOW - 8 * MINUTE))
    keep(engine, [*early, *rest], over)
    assert asked(engine) == {"n0": "cordon"}
    keep_more = [one for node in ("n1",) for one in lost_link(node, -15)]
    keep(engine, keep_more)
    assert asked(engine, now=NOW + 16 * MINUTE)["n1"] == "cordon"


def test_the_part_from_which_others_suffer_holds_its_node(any_engine: sa.Engine) -> None:
    """An adapter that floods the fabric: its own node, by the verdict's id; not those that feel it."""
    storm = verdict("nic", name="x/mlx5_0", node="x", device=fault("x").device, reason="its adapter floods the fabric")
    keep(any_engine, [one for node in FOUR for one in lost_link(node)], storm)
    run_policy(any_engine, ACT, NOW)
    with any_engine.connect() as connection:
        hints = {hint.node: hint for hint in read_hints(connection)}
    assert {node: hint.action for node, hint in hints.items()} == {"x": "cordon", **dict.fromkeys(FOUR, "watch")}
    assert hints["x"].evidence.verdict == "v1"
    assert "floods the fabric" in hints["x"].reason


@pytest.mark.parametrize("facts", [{"probability": 0.89}, {"victims": ()}, {"action": "watch"}, {"state": "closed"}])
def test_a_verdict_holds_no_node_that_it_is_not_sure_of(engine: sa.Engine, facts: dict[str, Any]) -> None:
    """Or from which nobody suffers, or where nothing is to be done."""
    keep(engine, [one for node in FOUR for one in lost_link(node)], verdict("nic", node="x", **facts))
    assert "x" not in asked(engine)


def test_one_node_s_lines_hold_no_other(engine: sa.Engine) -> None:
    """Two that complain of a third are no three; its own program's error is no word of its machine."""
    told = [said("n0", "ib_port"), said("n1", "ib_port"), said("x", "oom", cause="application")]
    keep(engine, told, verdict("nic", node="x", probability=1.0))
    assert "x" not in asked(engine)
    keep(engine, [said("n2", "ib_port")])
    assert asked(engine)["x"] == "cordon"


def test_a_confirmed_fault_names_the_verdict_of_its_node(engine: sa.Engine) -> None:
    """Its own hold, with its own reason."""
    keep(engine, [xid("x", 79), *(said(node, "nvlink_error") for node in FOUR)], verdict("gpu", node="x", id="v9"))
    run_policy(engine, ACT, NOW)
    with engine.connect() as connection:
        (hint,) = [hint for hint in read_hints(connection) if hint.node == "x"]
    assert (hint.action, hint.evidence.verdict) == ("cordon", "v9")
    assert "xid 79" in hint.reason


def test_a_hold_whose_fault_turns_out_another_s_waits_to_be_released(engine: sa.Engine) -> None:
    """It is not dropped at once: its node must show that it works, as after any fault."""
    keep(engine, [one for node in FOUR for one in lost_link(node)])
    run_policy(engine, ACT, NOW)
    with engine.connect() as connection:
        assert {hint.action for hint in read_hints(connection)} == {"cordon"}
    with writing(engine).begin() as connection:
        connection.execute(sa.update(hint_tables.hints).values(state="sent"))
    keep(engine, [], verdict())
    later = NOW + MINUTE
    run_policy(engine, ACT, later)
    with engine.connect() as connection:
        hints = read_hints(connection)
    assert {(hint.action, hint.state) for hint in hints} == {("cordon", "sent")}
    assert all(hint.evidence.release is not None for hint in hints)
    assert set(asked(engine, now=later).values()) == {"watch"}


def test_a_look_back_sees_the_same(engine: sa.Engine) -> None:
    """The policy over stored history heeds the stored verdicts."""
    keep(engine, [one for node in FOUR for one in lost_link(node)], verdict())
    with engine.connect() as connection:
        then = look_back(connection, ACT, NOW)
        before = look_back(connection, ACT, NOW - HOUR)
    assert {facts.node for facts in then.nodes if facts.victim_of} == set(FOUR)
    assert not any(facts.is_confirmed for facts in (*then.nodes, *before.nodes))


@pytest.mark.parametrize(
    ("told", "asks"),
    [
        (verdict(), None),
        (verdict("power"), None),
        (verdict("planned"), None),
        (verdict("cable"), "watch"),  # it is the link itself
        (verdict("storage"), "watch"),
        (closed(verdict()), "watch"),
    ],
)
def test_while_a_switch_is_down_its_links_speak_against_no_host(
    engine: sa.Engine, told: Verdict, asks: str | None
) -> None:
    """They fall with it; a link of a node beside it speaks, and so they do once it is over."""
    keep(engine, [said(node, "ib_port") for node in FOUR], told)
    why = (Reason("9 link flaps in 24 h", 0.3, ("e",)),)
    with writing(engine).begin() as connection:
        for_nodes = [LinkScore(f"l/{node}", ("a", "b"), 24, NOW, 0.3, why, "m", node, 0.3) for node in ("n0", "x")]
        save_link_scores(connection, 24, for_nodes)
    assert asked(engine) == {"x": "watch"} | ({} if asks is None else {"n0": asks})

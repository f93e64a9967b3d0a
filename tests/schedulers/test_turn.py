"""A turn of the policy over a real database."""

from dataclasses import replace
from datetime import timedelta

import sqlalchemy as sa

from schedulers.lifecycle.policy_turn import run_policy
from schedulers.policy.decision import Decision
from schedulers.policy.settings import Policy
from store.database.connections import writing
from store.database.coordination import HINTS, read_marks
from store.events.append import append_nodes, append_outages
from store.hints.hint_log import audit_page, read_hints
from store.records.hint import Hint
from store.records.node import Node
from store.records.outage import Outage
from store.tables import hint_tables, schema

from .cluster import HOUR, NOW, show

POLICY = Policy(mode="approve")


def nodes(engine: sa.Engine, *names: str) -> None:
    """Known nodes."""
    with writing(engine).begin() as connection:
        append_nodes(connection, [Node(name, f"r-{name}", f"l-{name}") for name in names])


def score(engine: sa.Engine, node: str, value: float, hours_ago: float = 0) -> None:
    """A score of a node."""
    reasons = [{"text": "3 row remaps", "contribution": 0.1, "events": ["e"]}]
    row = {"node": node, "horizon_h": 24, "time": NOW - hours_ago * HOUR, "score": value, "reasons": reasons}
    with writing(engine).begin() as connection:
        connection.execute(schema.scores.insert().values(**row, model="m"))


def incident(engine: sa.Engine, node: str, hours_ago: float = 1) -> None:
    """A fatal hardware incident of a node."""
    moment = NOW - hours_ago * HOUR
    device = {"type": "gpu", "pci": "0000:0f:00.0", "index": None, "uuid": None, "port": None}
    row = {"id": f"i-{node}", "node": node, "start": moment, "end": moment, "kind": "xid", "code": 79}
    row |= {"severity": "fatal", "cause": "hardware", "action": "reset_gpu", "device": device, "message": "gone"}
    with writing(engine).begin() as connection:
        connection.execute(schema.incidents.insert().values(**row, count=1, kinds={"xid:79": 1}))


def hints(engine: sa.Engine) -> list[Hint]:
    """All hints."""
    with engine.connect() as connection:
        return read_hints(connection)


def test_a_turn_writes_hints_and_their_audit(engine: sa.Engine) -> None:
    """From scores and incidents to proposals."""
    nodes(engine, "a", "b", "c")
    score(engine, "a", 0.1)
    score(engine, "c", 0.001)
    incident(engine, "b")
    run_policy(engine, POLICY, NOW)
    found = {hint.node: (hint.action, hint.state) for hint in hints(engine)}
    assert found == {"a": ("avoid", "proposed"), "b": ("cordon", "proposed")}
    assert {(hint.evidence.reasons or ("",))[0] for hint in hints(engine) if hint.node == "a"} == {"3 row remaps"}
    with engine.connect() as connection:
        entries = audit_page(connection, 10, None, None)
    assert {(entry["actor"], entry["action"], entry["detail"]["change"]) for entry in entries} == {
        ("policy", "proposed", "made")
    }


def test_a_second_turn_changes_nothing(engine: sa.Engine) -> None:
    """Nor does it fill the audit."""
    nodes(engine, "a", "b")
    score(engine, "a", 0.5)
    run_policy(engine, POLICY, NOW)
    before = hints(engine)
    run_policy(engine, POLICY, NOW + timedelta(minutes=1))
    assert hints(engine) == before
    with engine.connect() as connection:
        assert len(audit_page(connection, 10, None, None)) == 1


def test_a_hint_expires_and_is_made_again_while_its_ground_lasts(engine: sa.Engine) -> None:
    """A server that was away for two days finds its hint lapsed."""
    nodes(engine, "a")
    score(engine, "a", 0.5)
    run_policy(engine, POLICY, NOW)
    score(engine, "a", 0.5, hours_ago=-48)
    run_policy(engine, POLICY, NOW + 48 * HOUR)
    assert [hint.state for hint in hints(engine)] == ["expired", "proposed"]


def test_a_score_of_yesterday_says_nothing_of_today(engine: sa.Engine) -> None:
    """No new hint on its ground, and no release either."""
    nodes(engine, "a", "b")
    score(engine, "a", 0.5, hours_ago=25)
    run_policy(engine, POLICY, NOW)
    assert hints(engine) == []


def test_an_outage_that_a_scheduler_saw_end_has_repaired_the_fault_before_it(engine: sa.Engine) -> None:
    """While it lasts there is nothing to ask; then the node is well. That it is told to have ended is not enough."""
    nodes(engine, "a")
    incident(engine, "a", hours_ago=2)
    run_policy(engine, POLICY, NOW)
    out = Outage("a", NOW - HOUR, None, "DOWN", "Xid 79", None, False, "hardware")
    with writing(engine).begin() as connection:
        append_outages(connection, [out])
    run_policy(engine, POLICY, NOW)
    assert [hint.state for hint in hints(engine)] == ["proposed"]
    with writing(engine).begin() as connection:
        append_outages(connection, [replace(out, end=NOW - timedelta(minutes=1))])
    run_policy(engine, POLICY, NOW)
    assert [hint.state for hint in hints(engine)] == ["proposed"]
    show(engine, "a", since=NOW - timedelta(minutes=1), until=NOW, back=NOW - timedelta(minutes=1))
    run_policy(engine, POLICY, NOW)
    assert [hint.state for hint in hints(engine)] == ["released"]
    run_policy(engine, POLICY, NOW + HOUR)
    assert [hint.state for hint in hints(engine)] == ["released"]


def test_a_fault_is_over_when_the_node_has_been_well_for_long_enough(engine: sa.Engine) -> None:
    """`healthy_s` without a fatal fault."""
    nodes(engine, "a")
    incident(engine, "a")
    run_policy(engine, POLICY, NOW)
    run_policy(engine, POLICY, NOW + 23.5 * HOUR)
    assert [(hint.state, hint.action) for hint in hints(engine)] == [("released", "cordon")]


def test_after_a_grave_fault_a_turn_decides_the_same_without_looking_first(any_engine: sa.Engine) -> None:
    """And where nothing has come of it, nothing is written."""
    nodes(any_engine, "a", "b")
    incident(any_engine, "a")
    made = run_policy(any_engine, POLICY, NOW, is_news=True)
    assert [(hint.node, word) for hint, word in made.changed] == [("a", "made")]
    written: list[str] = []
    sa.event.listen(
        any_engine, "before_cursor_execute", lambda _c, _cursor, text, *_rest: written.append(text.split()[0])
    )
    assert run_policy(any_engine, POLICY, NOW + HOUR / 60, is_news=True) == Decision()
    assert {"INSERT", "UPDATE", "DELETE"}.isdisjoint(written)


def test_who_acts_on_a_hint_that_has_only_lapsed_sees_it_by_the_mark(any_engine: sa.Engine) -> None:
    """Nothing else has changed that would tell."""
    nodes(any_engine, "a")
    incident(any_engine, "a", hours_ago=1)
    run_policy(any_engine, POLICY, NOW)
    with any_engine.connect() as connection:
        before = read_marks(connection).get(HINTS, 0)
    (made,) = hints(any_engine)
    with writing(any_engine).begin() as connection:
        connection.execute(sa.delete(schema.incidents))
        connection.execute(sa.update(hint_tables.hints).values(valid_until=NOW))
    assert run_policy(any_engine, POLICY, NOW + HOUR) == Decision()
    with any_engine.connect() as connection:
        assert read_marks(connection).get(HINTS, 0) == before + 1
    assert [hint.state for hint in hints(any_engine)] == ["expired"]
    assert made.state == "proposed"

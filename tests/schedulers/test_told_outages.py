"""Whatever outages are told: they take no fault out of sight and let no node go that a scheduler does not show."""

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest
import sqlalchemy as sa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from schedulers.policy.decision import decide
from schedulers.policy.fact_queries import gather
from schedulers.policy.facts import Inputs
from schedulers.policy.settings import Policy
from store.database.connections import writing
from store.nodes.shown_nodes import LONGEST_GAP, ShownNode, note_look, shown_out, shown_repairs, shown_up
from store.nodes.sidecars import SidecarReport, heard_since, write_sidecars

from .cluster import HOUR, NOW, show
from .model_draws import LOOSE, flood
from .model_world import NODES, add_fault, empty, memory, set_outage
from .test_turn import incident, nodes

OPEN = Policy(mode="act", budgets=LOOSE, quorum=0.0)
hours = st.sampled_from([None, 0.0, 0.2, 0.7, 3.0, -1.0])
told = st.lists(st.tuples(st.sampled_from(NODES), st.sampled_from([0.1, 0.5, 2.0, 20.0]), hours), max_size=12)


def look(engine: sa.Engine, now: datetime = NOW) -> Inputs:
    """What the policy sees."""
    with engine.connect() as connection:
        return gather(connection, OPEN, now)


@pytest.mark.hypothesis
@settings(max_examples=60, suppress_health_check=list(HealthCheck))
@given(flood, told, st.dictionaries(st.sampled_from(NODES), st.sampled_from([0.05, 0.3, 0.9])))
def test_outages_that_no_scheduler_shows_change_no_new_hint(faults: Any, outages: Any, ages: dict[str, float]) -> None:
    """The decision is the same as without them: each fault is answered as if nobody had told anything."""
    engine = memory()
    empty(engine)
    for i, (node, code) in enumerate(faults):
        add_fault(engine, f"i{i}", node, code, NOW - timedelta(hours=ages.get(node, 0.2)))
    plain = decide(look(engine), OPEN)
    for node, began, ended in outages:
        set_outage(engine, node, NOW - began * HOUR, None if ended is None else NOW - ended * HOUR)
    assert decide(look(engine), OPEN).changed == plain.changed


def test_an_outage_that_a_scheduler_shows_keeps_its_node_out_of_it(any_engine: sa.Engine) -> None:
    """As long as the scheduler is looked at; then nothing is known any more."""
    nodes(any_engine, "a")
    incident(any_engine, "a")
    set_outage(any_engine, "a", NOW - HOUR, None)
    show(any_engine, "a", since=NOW - 2 * HOUR, until=NOW, is_out=True)
    assert decide(look(any_engine), OPEN).changed == ()
    assert len(decide(look(any_engine, NOW + 2 * LONGEST_GAP), OPEN).changed) == 1


def test_a_look_notes_what_has_changed(any_engine: sa.Engine) -> None:
    """Since when a node responds, when it came back; a long gap begins all anew."""
    up, down, drained = ShownNode(False, True), ShownNode(True, False), ShownNode(True, True)
    names = ["a", "b", "c"]

    def at(minutes: float, **shown: ShownNode) -> datetime:
        now = NOW + timedelta(minutes=minutes)
        with writing(any_engine).begin() as connection:
            note_look(connection, "slurm", now, shown)
        return now

    def up_since(now: datetime, minutes: float) -> frozenset[str]:
        with any_engine.connect() as connection:
            return shown_up(connection, names, now - timedelta(minutes=minutes), now)

    at(0, a=up, b=down, c=drained)
    now = at(10, a=up, b=up, c=up)
    assert (up_since(now, 10), up_since(now, 0)) == ({"a", "c"}, {"a", "b", "c"})
    with any_engine.connect() as connection:
        assert shown_repairs(connection, {"a": now, "b": now, "c": NOW}) == {"b": now, "c": NOW}
        assert shown_out(connection, names, now) == frozenset()
    now = at(20, a=down, b=up)
    with any_engine.connect() as connection:
        assert shown_out(connection, names, now) == {"a"}
    assert up_since(now, 10) == {"b"}
    now = at(60, a=up, b=up)
    assert (up_since(now, 30), up_since(now, 0)) == (frozenset(), {"a", "b"}), "forty minutes without a look"
    assert up_since(now + 2 * LONGEST_GAP, 0) == frozenset()
    now = at(50, a=up, b=up)
    assert up_since(now, 5) == frozenset(), "the clock was set back"


def test_every_scheduler_that_knows_a_node_must_show_it_up(any_engine: sa.Engine) -> None:
    """One that shows it down is believed."""
    with writing(any_engine).begin() as connection:
        note_look(connection, "slurm", NOW, {"a": ShownNode(False, True), "b": ShownNode(False, True)})
        note_look(connection, "kube", NOW, {"a": ShownNode(True, False)})
        assert shown_up(connection, ["a", "b"], NOW, NOW) == {"b"}


def test_heartbeats_vouch_for_the_time_that_they_cover(any_engine: sa.Engine) -> None:
    """By our own clock, whatever the node says; a long gap begins anew."""

    def beat(minutes: float) -> datetime:
        now = NOW + timedelta(minutes=minutes)
        report = SidecarReport("a", now, NOW - 999 * HOUR, "1", NOW - 999 * HOUR, False, {"interval_s": 60})
        with writing(any_engine).begin() as connection:
            write_sidecars(connection, [report, replace(report, node="b")])
        return now

    def heard(now: datetime, minutes: float) -> frozenset[str]:
        with any_engine.connect() as connection:
            return heard_since(connection, ["a", "c"], now - timedelta(minutes=minutes), now)

    for minutes in (0, 10, 20):
        now = beat(minutes)
    assert (heard(now, 20), heard(now, 21)) == ({"a"}, frozenset())
    now = beat(40)
    assert (heard(now, 0), heard(now, 1)) == ({"a"}, frozenset())
    assert heard(now + timedelta(minutes=16), 0) == frozenset()

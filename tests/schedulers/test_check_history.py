"""The record of each check: what it said, what came of it, whose word counts, and what it weighs."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest
import sqlalchemy as sa

from diagnosis.incidents.incidents_table import update_incidents
from schedulers.checks.check_history import NodeHistory, note_checks, outcome_of
from schedulers.checks.check_weights import check_weights, record_of, weight_of
from schedulers.policy.fact_queries import gather, look_back
from schedulers.policy.facts import ENOUGH_WEIGHT, NodeFacts, check_of, corroborated
from schedulers.policy.settings import Policy
from store.database.connections import writing
from store.database.known_nodes import add_known
from store.events.append import append_events, append_nodes, append_outages
from store.hints.check_log import (
    HORIZON,
    MOST_OPEN,
    CheckCase,
    CheckRecord,
    CheckTally,
    Saying,
    add_sayings,
    check_records,
    due_cases,
    names_of,
    new_sayings,
    tallies,
)
from store.hints.hint_log import save_hint
from store.records.event import Event
from store.records.hint import StateChange
from store.records.node import Node
from store.records.outage import Outage
from store.tables import hint_tables, schema

from .cluster import HOUR, NOW, hint, sign

DAY = timedelta(days=1)


def event(node: str, days_ago: float, source: str = "kernel", kind: str = "xid", **more: Any) -> Event:
    """What a source said of a node."""
    facts: dict[str, Any] = {"severity": "error", "cause": "hardware", "code": 79 if kind == "xid" else None} | more
    return Event(time=NOW - days_ago * DAY, node=node, source=source, kind=kind, message=f"{kind} {days_ago}", **facts)


def store(engine: sa.Engine, *events: Event, received: datetime = NOW) -> None:
    """Append events as a server does."""
    with writing(engine).begin() as connection:
        append_events(connection, events, received=received)


def outage(node: str, days_ago: float, reason: str = "xid 79", planned: bool = False) -> Outage:
    """Out of service for two hours."""
    start = NOW - days_ago * DAY
    return Outage(node, start, start + 2 * HOUR, "DOWN", reason, None, planned, "hardware")


def fail(engine: sa.Engine, *outages: Outage) -> None:
    """Store outages."""
    with writing(engine).begin() as connection:
        append_outages(connection, outages)


def records(engine: sa.Engine) -> dict[tuple[str, str], CheckRecord]:
    """Each check's record by source and name."""
    with engine.connect() as connection:
        return {(one.tally.source, one.tally.name): one for one in check_records(connection)}


CASE = CheckCase("kernel", "xid 79", "a", NOW - 10 * DAY, NOW - 10 * DAY)


@pytest.mark.parametrize(
    ("outages", "came"),
    [
        ((), "cleared"),
        ((outage("a", 9),), "followed"),
        ((outage("a", 3.1),), "followed"),
        ((outage("a", 2.9),), "cleared"),  # more than seven days later
        ((outage("a", 10.004),), "followed"),  # a few minutes before: its books are not to the second
        ((outage("a", 10.1),), "cleared"),
        ((outage("a", 9, "foreshock: xid 79 id=h"),), "cleared"),  # our own drain proves nothing
        ((outage("a", 9, "maintenance", planned=True),), "unknown"),
    ],
)
def test_an_outage_within_seven_days_follows(outages: Sequence[Outage], came: str) -> None:
    """An unplanned one of somebody else's."""
    assert outcome_of(CASE, NodeHistory(outages)) == came


@pytest.mark.parametrize(
    ("source", "name", "reason", "came"),
    [
        ("nhc", "check_hw_ib", "NHC: check_hw_ib: No IB port", "unknown"),
        ("nhc", "check_hw_ib", "check_hw_ib: No IB port", "unknown"),
        ("nhc", "check_hw_ib", "not responding", "followed"),
        ("kernel", "xid 79", "NHC: check_nvsmi: gone", "followed"),
        ("kernel", "xid 79", "kernel xid 79", "followed"),  # the kernel marks no node down: people wrote that
    ],
)
def test_no_detector_confirms_itself(source: str, name: str, reason: str, came: str) -> None:
    """NHC marks the node down with its own words: that outage is its own doing, and nobody else's."""
    case = CheckCase(source, name, "a", CASE.said, CASE.last)
    assert outcome_of(case, NodeHistory([outage("a", 9.9, reason)])) == came


def person_ended(state: str = "withdrawn", by: str = "sre", **evidence: Any) -> Any:
    """A hint that somebody ended, made when the case was."""
    return hint("a", state=state, hours_ago=240, closed=StateChange(by, NOW - 9 * DAY), **evidence)


FOUNDED = {"h-a": frozenset({("kernel", "xid 79")})}


@pytest.mark.parametrize(
    ("known", "came"),
    [
        (NodeHistory(hints=[person_ended()], founded=FOUNDED), "contradicted"),  # type: ignore[arg-type]
        (NodeHistory(hints=[person_ended("released")], founded=FOUNDED), "contradicted"),  # type: ignore[arg-type]
        (NodeHistory(hints=[person_ended(by="policy")], founded=FOUNDED), "cleared"),  # type: ignore[arg-type]
        (NodeHistory(hints=[person_ended()], founded={}), "cleared"),
        (NodeHistory(hints=[person_ended()], founded=FOUNDED, outages=[outage("a", 5)]), "followed"),  # type: ignore[arg-type]
        (NodeHistory(hints=[person_ended("confirmed")], taken=frozenset({"h-a"})), "unknown"),
        (NodeHistory(tests=[(NOW - 8 * DAY, True)]), "contradicted"),
        (NodeHistory(tests=[(NOW - 8 * DAY, False)]), "cleared"),
        (NodeHistory(tests=[(NOW - 8 * DAY, True)], outages=[outage("a", 9, planned=True)]), "unknown"),
        (
            NodeHistory(tests=[(NOW - 8 * DAY, True)], hints=[person_ended("sent")], taken=frozenset({"h-a"})),
            "contradicted",
        ),
    ],
)
def test_a_person_and_the_sites_test_contradict_and_a_hold_hides(known: NodeHistory, came: str) -> None:
    """What a held node would have done nobody knows; what is repaired as planned was not tested before."""
    assert outcome_of(CASE, known) == came


def test_a_year_of_sayings_becomes_a_record(any_engine: sa.Engine) -> None:
    """Said, followed, cleared, too early; on both databases; what is said again within seven days is one case."""
    store(
        any_engine, *(event("a", 30 - hours / 24) for hours in range(5)), event("a", 20), event("b", 30), event("c", 2)
    )
    store(any_engine, event("b", 12, "dcgm", "thermal_violation", severity="warning"))
    store(any_engine, event("b", 12, "sidecar", "spool_full"), event("b", 12, "kernel", "link_up", severity="info"))
    fail(any_engine, outage("a", 28))
    assert note_checks(any_engine, NOW) == 0
    found = records(any_engine)
    assert set(found) == {("kernel", "xid 79"), ("dcgm", "thermal_violation")}
    xid = found["kernel", "xid 79"].tally
    assert (xid.said, xid.waiting, xid.followed, xid.cleared, xid.nodes) == (4, 1, 1, 2, 3)
    assert (xid.right, xid.wrong) == (0.5, 1.5)  # node a counts once: one of its two cases was followed
    assert found["kernel", "xid 79"].low < 0.43 < found["kernel", "xid 79"].high
    assert xid.last == NOW - 2 * DAY


def test_what_comes_later_is_added_and_nothing_twice(any_engine: sa.Engine) -> None:
    """Turn after turn, and after a turn that was cut off; an event of the past that comes late, too."""
    store(any_engine, event("a", 30))
    note_checks(any_engine, NOW, lambda: False)
    assert records(any_engine) == {}
    for _ in range(3):
        note_checks(any_engine, NOW)
    assert records(any_engine)["kernel", "xid 79"].tally.said == 1
    store(any_engine, event("b", 40), received=NOW + HOUR)
    note_checks(any_engine, NOW + HOUR)
    tally = records(any_engine)["kernel", "xid 79"].tally
    assert (tally.said, tally.cleared, tally.nodes) == (2, 2, 2)


def test_a_record_is_as_of_its_moment(any_engine: sa.Engine) -> None:
    """What came later is not in it: whoever looks back sees what was known then."""
    store(any_engine, event("a", 30), event("b", 12))
    fail(any_engine, outage("a", 28))
    note_checks(any_engine, NOW)
    with any_engine.connect() as connection:
        for days_ago, said, waiting, followed in (
            (31, 0, 0, 0),
            (29, 1, 1, 0),
            (22, 1, 0, 1),
            (11, 2, 1, 1),
            (0, 2, 0, 1),
        ):
            found = tallies(connection, NOW - days_ago * DAY, {("kernel", "xid 79")})
            (tally,) = found or [CheckTally("", "", 0, 0, 0, 0, 0, 0, 0, 0, 0, NOW)]
            assert (tally.said, tally.waiting, tally.followed) == (said, waiting, followed), days_ago


def test_what_is_older_than_a_year_is_forgotten(engine: sa.Engine) -> None:
    """Cases, and so records."""
    store(engine, event("a", 360))
    note_checks(engine, NOW)
    assert records(engine)["kernel", "xid 79"].tally.said == 1
    note_checks(engine, NOW + 10 * DAY)
    assert records(engine) == {}
    with engine.connect() as connection:
        assert connection.scalar(sa.select(sa.func.count()).select_from(hint_tables.check_cases)) == 0


def test_detectors_have_a_record_by_their_own_names(engine: sa.Engine) -> None:
    """NHC's also by what two detectors are weighed by; alerts by the alert's name."""
    assert names_of("alertmanager", "alert", None, "GPUXidError") == ["GPUXidError"]
    assert names_of("nhc", "health_check_failed", None, "check_hw_ib") == ["check_hw_ib", "health_check_failed"]
    assert names_of("nvsentinel", "xid", 79, None) == ["xid 79"]
    assert names_of("kernel", "xid", 79, "a node says so") == ["xid 79"]
    store(
        engine,
        event("a", 30, "nvsentinel", attributes={"check": "SysLogsXIDError", "detector": "nvsentinel"}),
        event("a", 30, "nhc", "health_check_failed", attributes={"check": "check_hw_ib"}),
    )
    note_checks(engine, NOW)
    assert {("nvsentinel", "SysLogsXIDError"), ("nhc", "check_hw_ib"), ("nhc", "health_check_failed")} == set(
        records(engine)
    )


def test_the_score_has_a_record(any_engine: sa.Engine) -> None:
    """Of the hints that were made for it alone; a person who withdraws one says that it was wrong."""
    made = hint("a", "watch", "withdrawn", hours_ago=24 * 6.9, closed=StateChange("sre", NOW - 6 * DAY))
    hard = hint("b", "cordon", incident="i")
    with writing(any_engine).begin() as connection:
        save_hint(connection, made, NOW - 6.9 * DAY, {})
        save_hint(connection, hard, NOW, {})
    note_checks(any_engine, NOW)
    assert records(any_engine)["model", "risk 24 h: watch"].tally.waiting == 1
    note_checks(any_engine, NOW + DAY)
    tally = records(any_engine)["model", "risk 24 h: watch"].tally
    assert (tally.contradicted, tally.said) == (1, 1)
    assert len(records(any_engine)) == 1


def test_one_node_adds_one_case_to_a_record_however_much_it_says(engine: sa.Engine) -> None:
    """A lying node neither spoils a check nor makes one: a hundred cases of it are one of its share."""
    store(engine, *(event("liar", 8 * k) for k in range(1, 40)))
    store(engine, event("a", 30), event("b", 30))
    fail(engine, outage("a", 29), outage("b", 29))
    note_checks(engine, NOW)
    record = records(engine)["kernel", "xid 79"]
    assert record.tally.said == 41
    assert (record.tally.right, record.tally.wrong) == (2.0, 1.0)
    assert weight_of(record, 0.25) == 1.0


def test_a_node_that_invents_checks_fills_nothing(engine: sa.Engine) -> None:
    """So many cases at a time, and names of bounded length; another node's go on."""
    said = NOW - 20 * DAY
    with writing(engine).begin() as connection:
        many = [Saying("kernel", f"xid {i}", "liar", said, said) for i in range(MOST_OPEN + 36)]
        assert add_sayings(connection, many) == (MOST_OPEN, 36)
        assert add_sayings(connection, [Saying("kernel", "xid 79", "a", said, said)]) == (1, 0)
        assert len(due_cases(connection, NOW, 1000)) == MOST_OPEN + 1
        later = said + HORIZON
        assert add_sayings(connection, [Saying("kernel", "xid 9999", "liar", later, later)]) == (1, 0)
    assert len(names_of("nvsentinel", "xid", 1, "x" * 10_000)[0]) == 200


def test_a_node_that_nobody_knows_is_in_no_record(any_engine: sa.Engine) -> None:
    """Where there is an inventory: names can be invented."""
    store(any_engine, event("a", 30), *(event(f"ghost-{i}", 30) for i in range(20)))
    with writing(any_engine).begin() as connection:
        add_known(connection, "operator", ["a"])
    note_checks(any_engine, NOW)
    assert records(any_engine)["kernel", "xid 79"].tally.nodes == 1


def record(right: float, wrong: float, source: str = "dcgm", name: str = "row_remap_failure") -> CheckRecord:
    """The record of so many nodes."""
    count = int(right + wrong)
    return record_of(CheckTally(source, name, count, 0, int(right), int(wrong), 0, 0, count, right, wrong, NOW))


def test_the_posterior_is_a_betas() -> None:
    """Without any history it is everything between never and always; figures of Beta(4, 8)."""
    nothing = record(0, 0)
    assert (nothing.precision, round(nothing.low, 3), round(nothing.high, 3)) == (0.5, 0.025, 0.975)
    some = record(3, 7)
    assert [some.precision, some.low, some.high] == pytest.approx([1 / 3, 0.1093, 0.6097], abs=1e-4)


def test_a_check_that_is_surely_bad_weighs_less() -> None:
    """It takes a good many nodes: a dozen that lie do not silence it; with 0 all weigh alike."""
    weights = {wrong: weight_of(record(0, wrong), 0.25) for wrong in (0, 5, 12, 13, 28, 100)}
    assert [weights[wrong] for wrong in (0, 5)] == [1.0, 1.0]
    assert 0.9 < weights[12] < 1.0
    assert weights[13] < weights[12]
    assert weights[28] < ENOUGH_WEIGHT - 1.0 < weights[13]
    assert weight_of(record(25, 75), 0.25) == 1.0
    assert weight_of(record(0, 100), 0.0) == 1.0


KERNEL, DCGM = sign("kernel", "nvlink_error", 1.0), sign("dcgm", "row_remap_failure", 0.5)


def test_two_detectors_confirm_by_their_weights() -> None:
    """None alone, however good; one that is nearly always wrong confirms with nobody; another pair is looked for."""
    assert corroborated([KERNEL, DCGM], 3600, {check_of(DCGM): 0.5}) == (KERNEL, DCGM)
    assert corroborated([KERNEL, DCGM], 3600, {check_of(DCGM): 0.49}) is None
    assert corroborated([KERNEL, DCGM], 3600, {check_of(DCGM): 0.1, check_of(KERNEL): 9.0}) is None
    assert corroborated([KERNEL, DCGM], 3600, {check_of(DCGM): 0.7, check_of(KERNEL): 0.7}) is None
    nhc = sign("nhc", "health_check_failed", 0.7)
    assert corroborated([KERNEL, nhc, DCGM], 3600, {check_of(DCGM): 0.1}) == (KERNEL, nhc)


def test_the_weights_are_of_now_or_as_of_a_moment(any_engine: sa.Engine) -> None:
    """A check without a record is left out: it weighs what it did."""
    store(any_engine, *(event(f"n{i}", 30, "dcgm", "row_remap_failure") for i in range(60)))
    note_checks(any_engine, NOW)
    asked = {("dcgm", "row_remap_failure"), ("kernel", "nvlink_error")}
    with any_engine.connect() as connection:
        now = check_weights(connection, asked, 0.25)
        assert set(now) == {("dcgm", "row_remap_failure")}
        assert now["dcgm", "row_remap_failure"] < 0.5
        then = check_weights(connection, asked, 0.25, NOW - 29 * DAY)
        assert then["dcgm", "row_remap_failure"] == 1.0
        assert check_weights(connection, asked, 0.0) == check_weights(connection, set(), 0.25) == {}


def test_the_policy_holds_no_node_on_the_word_of_a_check_that_cries_wolf(any_engine: sa.Engine) -> None:
    """Sixty nodes of which it said so, and nothing came; with the key at 0 it is as before. Looking back, too."""
    store(any_engine, *(event(f"n{i}", 30, "dcgm", "row_remap_failure") for i in range(60)))
    with writing(any_engine).begin() as connection:
        append_nodes(connection, [Node("a"), *(Node(f"n{i}") for i in range(60))])
        told = [event("a", 0.02, kind="nvlink_error"), event("a", 0.03, "dcgm", "row_remap_failure")]
        update_incidents(connection, append_events(connection, told, received=NOW).new)
    assert facts_of(any_engine).witnesses is not None
    note_checks(any_engine, NOW)
    assert facts_of(any_engine).witnesses is None
    assert facts_of(any_engine, replace(Policy(), corroborate_precision=0.0)).witnesses is not None
    with any_engine.connect() as connection:
        back = look_back(connection, Policy(), NOW)
    assert next(facts for facts in back.nodes if facts.node == "a").witnesses is None


def facts_of(engine: sa.Engine, policy: Policy = Policy()) -> NodeFacts:  # noqa: B008  # it is frozen
    """What the policy sees of node a."""
    with engine.connect() as connection:
        return next(facts for facts in gather(connection, policy, NOW).nodes if facts.node == "a")


def test_the_mark_is_found_where_the_rows_were_numbered_anew(engine: sa.Engine) -> None:
    """VACUUM may do so: what has a lower number than what was read is not missed for ever."""
    store(engine, event("a", 30))
    with writing(engine).begin() as connection:
        connection.execute(schema.marks.insert().values(name="checks", number=10**9))
    with engine.connect() as connection:
        parts = list(new_sayings(connection, NOW))
    assert [len(part) for part, _ in parts] == [1]
    assert parts[-1][1] == 1


@pytest.mark.integration
def test_a_reading_that_stops_halfway_leaves_no_cursor_open_on_the_server(postgres_engine: sa.Engine) -> None:
    """It would hold what it has found until its transaction ends."""
    store(postgres_engine, *(event(f"n{i}", 1) for i in range(1_100)))
    cursors = sa.text("SELECT count(*) FROM pg_cursors WHERE name LIKE 'c\\_%'")
    with postgres_engine.connect() as connection:
        parts = new_sayings(connection, NOW)
        assert len(next(parts)[0]) == 1_000
        assert connection.scalar(cursors) == 1
        parts.close()
        assert connection.scalar(cursors) == 0

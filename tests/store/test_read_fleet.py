"""Every node's state as the database judges it, held against the same rules in plain Python."""

from datetime import datetime, timedelta
from typing import Any

import pytest
import sqlalchemy as sa
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from store.database.connections import writing
from store.nodes.fleet import FleetQuery, NodePage, count_states, node_page
from store.records.hint import OPEN_STATES
from store.tables import hint_tables, schema

NOW = datetime.fromisoformat("2025-03-01T12:00:00+00:00")
HOUR = timedelta(hours=1)
SINCE, SILENT, WATCH = NOW - 24 * HOUR, NOW - HOUR / 4, 0.1
NAMES = ("a", "b", "c", "d")
DEVICE = {"type": "gpu", "pci": None, "index": None, "uuid": None, "port": None}

# Few, so that often two fall together.
hours = st.sampled_from((-40, -24, -23, -2, -1, 0, 1))
stores = st.fixed_dictionaries(
    {
        "nodes": st.lists(st.tuples(st.sampled_from(NAMES), st.one_of(st.none(), hours)), unique_by=lambda row: row[0]),
        "outages": st.lists(
            st.tuples(st.sampled_from(NAMES), hours, st.one_of(st.none(), hours)),
            max_size=5,
            unique_by=lambda row: row[:2],
        ),
        "incidents": st.lists(
            st.tuples(
                st.sampled_from(NAMES),
                hours,
                st.sampled_from(("fatal", "error")),
                st.sampled_from(("hardware", "fabric")),
            ),
            max_size=5,
        ),
        "hints": st.lists(
            st.tuples(
                st.sampled_from(NAMES),
                st.integers(-3, 0),
                st.sampled_from(("watch", "cordon", "drain")),
                st.sampled_from((*OPEN_STATES, "expired")),
            ),
            max_size=5,
        ),
        "scores": st.dictionaries(st.sampled_from(NAMES), st.sampled_from((0.0, 0.05, 0.1, 0.5))),
        "reporting": st.booleans(),
    }
)


def fill(connection: sa.Connection, drawn: dict[str, Any]) -> None:
    """Put a drawn store into the database, in the place of the one before."""
    for table in (schema.nodes, schema.outages, schema.incidents, hint_tables.hints, schema.scores):
        connection.execute(sa.delete(table))
    rows: dict[sa.Table, list[dict[str, Any]]] = {
        schema.nodes: [
            {"node": node, "gpus": 8, "last_seen": None if seen is None else NOW + seen * HOUR}
            for node, seen in drawn["nodes"]
        ],
        schema.outages: [
            {"node": node, "start": NOW + start * HOUR, "end": None if end is None else NOW + end * HOUR}
            | {"state": "DOWN", "reason": "", "planned": False, "cause": "hardware"}
            for node, start, end in drawn["outages"]
        ],
        schema.incidents: [
            {"id": f"i{place}", "node": node, "start": NOW + end * HOUR, "end": NOW + end * HOUR, "kind": "xid"}
            | {"severity": severity, "cause": cause, "action": "none", "device": DEVICE, "message": "", "count": 1}
            | {"kinds": {}}
            for place, (node, end, severity, cause) in enumerate(drawn["incidents"])
        ],
        hint_tables.hints: [
            {"id": f"h{place}", "node": node, "action": action, "state": state, "reason": "", "owner": "x"}
            | {"created": NOW + made * HOUR, "valid_until": NOW + HOUR, "evidence": {}}
            for place, (node, made, action, state) in enumerate(drawn["hints"])
        ],
        schema.scores: [
            {"node": node, "horizon_h": 24, "time": NOW, "score": score, "reasons": [], "model": "m"}
            for node, score in drawn["scores"].items()
        ],
    }
    for table, values in rows.items():
        if values:
            connection.execute(sa.insert(table), values)


def flags(drawn: dict[str, Any], node: str, seen: int | None) -> tuple[bool, bool, bool]:
    """Whether a node is out, faulty, silent: of such a one no score is told."""
    ends = [end for name, _, end in drawn["outages"] if name == node and end is not None and -24 <= end <= 0]
    faults = [
        end
        for name, end, severity, cause in drawn["incidents"]
        if name == node and end >= -24 and (severity, cause) == ("fatal", "hardware")
    ]
    return (
        any(name == node and start <= 0 and (end is None or end > 0) for name, start, end in drawn["outages"]),
        bool(faults) and (not ends or max(ends) < max(faults)),
        drawn["reporting"] and (seen is None or seen < -0.25),
    )


def judged(drawn: dict[str, Any], node: str, seen: int | None) -> tuple[str, str | None]:
    """The state of a node and its open hint, by the rules as docs/api.md words them."""
    open_hints = [
        (made, f"h{place}", action, state)
        for place, (name, made, action, state) in enumerate(drawn["hints"])
        if name == node and state in OPEN_STATES
    ]
    hint = max(open_hints, default=None)
    is_out, is_faulty, is_silent = flags(drawn, node, seen)
    if is_out:
        state = "out"
    elif hint is not None and hint[2] in ("cordon", "drain") and hint[3] in ("approved", "sent", "confirmed"):
        state = "cordoned"
    elif is_faulty:
        state = "faulty"
    elif is_silent:
        state = "silent"
    elif drawn["scores"].get(node, 0.0) >= WATCH:
        state = "at_risk"
    else:
        state = "ok"
    return state, None if hint is None else hint[1]


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@example(
    # The outage ended with the fault's last sign: it was seen to.
    {
        "nodes": [("a", 0)],
        "outages": [("a", -2, -1)],
        "incidents": [("a", -1, "fatal", "hardware")],
        "hints": [],
        "scores": {},
        "reporting": True,
    },
    1,
)
@given(stores, st.integers(1, 3))
def test_the_database_judges_as_the_rules_do(any_engine: sa.Engine, drawn: dict[str, Any], limit: int) -> None:
    """States, hints and counts; and pages of any size, by name and by risk, show every node once in order."""
    fleet = FleetQuery(NOW, SINCE, WATCH, SILENT if drawn["reporting"] else None, {24: NOW, 168: None})
    with writing(any_engine).begin() as connection:
        fill(connection, drawn)
        rows = node_page(connection, fleet, NodePage())
        expected = {node: judged(drawn, node, seen) for node, seen in drawn["nodes"]}
        assert {row["node"]: (row["state"], row["hint_id"]) for row in rows} == expected
        assert [row["node"] for row in rows] == sorted(expected)
        found = [state for state, _hint in expected.values()]
        counted = {state: (found.count(state), 8 * found.count(state)) for state in found}
        assert count_states(connection, fleet) == counted
        withheld = {node for node, seen in drawn["nodes"] if any(flags(drawn, node, seen))}
        told = {node: -1.0 if node in withheld else drawn["scores"].get(node, -1.0) for node in expected}
        by_risk = sorted(expected, key=lambda node: (-told[node], node))
        assert walked(connection, fleet, NodePage(by_score=True, limit=limit)) == by_risk
        for state in set(found):
            own = [node for node in by_risk if expected[node][0] == state]
            assert walked(connection, fleet, NodePage(by_score=True, state=state, limit=limit)) == own


def walked(connection: sa.Connection, fleet: FleetQuery, page: NodePage) -> list[str]:
    """The nodes of page after page."""
    names: list[str] = []
    for _ in range(len(NAMES) + 1):
        after = names[-1] if names else None
        rows = node_page(connection, fleet, NodePage(page.by_score, page.state, None, after, page.limit))
        names += [row["node"] for row in rows]
        if not rows:
            return names
    pytest.fail("the pages do not end")

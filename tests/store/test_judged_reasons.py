"""Which reasons were judged how, a site's own rows, and the driver that a planned outage brings."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import sqlalchemy as sa

from store.database.connections import migrate, open_database
from store.events.append import append_nodes, append_outages
from store.events.judged_reasons import judge_again, judged_reasons, reasons_told
from store.records.node import Node
from store.records.outage import SHIPPED_REASONS, Outage, OutageReasons, ReasonRule
from store.tables import schema

NOW = datetime(2026, 3, 1, tzinfo=UTC)


def outage(node: str, reason: str, hours: int = 0) -> Outage:
    """An outage as the shipped table judges it."""
    planned, cause = SHIPPED_REASONS.judge("DRAIN", reason)
    start = NOW - timedelta(hours=100 - hours)
    return Outage(node, start, start + timedelta(hours=1), "DRAIN", reason, "root", planned, cause)


@pytest.fixture
def engine(tmp_path: Path) -> sa.Engine:
    """A database with nodes a, b and c, of which b has a known driver."""
    made = open_database(f"sqlite:///{tmp_path}/s.db")
    migrate(made)
    with made.begin() as connection:
        append_nodes(connection, [Node("a"), Node("b", driver="550.90.07"), Node("c", driver="580.1")])
    return made


def own(pattern: str, planned: bool) -> ReasonRule:
    """A site's own row."""
    import re

    return ReasonRule(re.compile(pattern), planned, "storage", pattern, own=True)


def test_reasons_are_counted_with_who_judged_them(engine: sa.Engine) -> None:
    """By the table, by the site's own row, by nothing; the commonest first."""
    reasons = OutageReasons((own("ops-bot", True),))
    with engine.begin() as connection:
        append_outages(connection, [outage("a", "Xid 79"), outage("b", "Xid 79"), outage("a", "Xid 79", 9)])
        append_outages(connection, [outage("a", "ops-bot", 5), outage("b", "?????", 5)])
        found = judged_reasons(connection, reasons)
    assert [(one.reason, one.outages, one.nodes, one.planned, one.cause, one.by, one.stale) for one in found] == [
        ("Xid 79", 3, 2, False, "hardware", "table", 0),
        ("?????", 1, 1, False, "unknown", "nothing", 0),
        ("ops-bot", 1, 1, True, "storage", "site", 1),
    ]
    told = {"reasons": 3, "outages": 5, "planned": 1, "by_site": 1, "by_nothing": 1, "stale": 1}
    assert reasons_told(found) == told


def test_what_is_stored_can_be_judged_again(engine: sa.Engine) -> None:
    """Of every outage whose reason means something else today, and of no other."""
    reasons = OutageReasons((own("ops-bot", True),))
    with engine.begin() as connection:
        append_outages(connection, [outage("a", "ops-bot"), outage("b", "ops-bot"), outage("a", "Xid 79", 3)])
        assert judge_again(connection, reasons, NOW) == 2
        assert judge_again(connection, reasons, NOW) == 0
        table = schema.outages
        rows = connection.execute(sa.select(table.c.reason, table.c.planned, table.c.cause).order_by(table.c.reason))
        assert [tuple(row) for row in rows] == [("Xid 79", False, "hardware")] + [("ops-bot", True, "storage")] * 2


def test_no_row_of_a_site_makes_failures_of_our_own_hints() -> None:
    """Otherwise the model would learn its own hints."""
    assert OutageReasons((own("foreshock", False),)).judge("DRAIN", "foreshock: score 0.8") == (True, "unknown")


@pytest.mark.parametrize(
    ("reason", "version"),
    [
        ("planned: driver 570.124.06 rollout", "570.124.06"),
        ("driver release 550.90.07 (rolling)", "550.90.07"),
        ("driver upgrade 550", "550"),
        ("driver upgrade from 535.183.01 to 570.124.06", "570.124.06"),
        ("driver update 550 -> 570", "570"),
        ("planned: driver X rollout", None),
        ("driver rollout on 400 nodes", None),
        ("Xid 79 after driver 570.1 rollout", None),
        ("driver rollout " + "1" * 3000, None),
    ],
)
def test_the_version_of_a_drivers_release_is_read_from_its_reason(reason: str, version: str | None) -> None:
    """Where the text tells it, and the outage was planned work on the driver."""
    assert outage("a", reason).driver == version


def test_a_planned_outage_brings_its_node_a_newer_driver(engine: sa.Engine) -> None:
    """Not an older one than is known, not one to come, and no failure does."""
    to_come = replace(outage("a", "driver 590.1 rollout"), start=NOW + timedelta(days=9), end=None)
    with engine.begin() as connection:
        append_outages(connection, [outage("a", "driver 570.1 rollout"), to_come], NOW)
        append_outages(
            connection, [outage("b", "driver 570.124.06 rollout"), outage("b", "driver 560.1 rollout", 2)], NOW
        )
        append_outages(
            connection, [outage("c", "driver 570.1 rollout"), outage("unknown", "driver 570.1 rollout")], NOW
        )
        nodes = connection.execute(sa.select(schema.nodes.c.node, schema.nodes.c.driver).order_by(schema.nodes.c.node))
        assert [tuple(row) for row in nodes] == [("a", "570.1"), ("b", "570.124.06"), ("c", "580.1")]

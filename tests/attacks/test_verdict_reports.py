"""One node's lines about others make no verdict that anybody acts on: a report, said to be one, however loud."""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

import pytest
import sqlalchemy as sa

from diagnosis.incidents.intake import put_faults
from diagnosis.verdicts.engine import VerdictEngine
from store.database.connections import writing
from store.events.append import append_events, append_nodes
from store.records.event import Device, Event, with_id
from store.records.node import Node
from store.records.verdict import Verdict
from store.verdicts.symptom_news import count_news
from store.verdicts.verdict_log import open_verdicts

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
SERVER = "10.9.0.4"


@pytest.fixture
def site(engine: sa.Engine) -> sa.Engine:
    """32 nodes in two racks."""
    with writing(engine).begin() as connection:
        append_nodes(connection, [Node(f"gpu-{n:03d}", f"r{n // 16}", f"leaf{n // 16}", "H100", 8) for n in range(32)])
    return engine


def complaint(node: str, number: int, server: str = SERVER) -> Event:
    """A node that cannot reach a file server."""
    text = f"nfs: server {server} not responding, still trying"
    return Event(
        NOW + timedelta(milliseconds=number),
        *(node, "kernel", "nfs_not_responding", None, "error", "storage", "watch", Device("node"), text),
        attributes={"server": server},
    )


def verdicts(engine: sa.Engine, events: Iterable[Event]) -> list[Verdict]:
    """What the engine makes of them."""
    with writing(engine).begin() as connection:
        put_faults(connection, append_events(connection, [with_id(one) for one in events], NOW).new, NOW)
    work = VerdictEngine(engine, lambda: NOW + timedelta(seconds=5))
    work.turn()
    with engine.connect() as connection:
        assert count_news(connection) == 0
        return open_verdicts(connection)


def test_what_one_node_says_of_a_server_is_a_report_however_often_it_says_it(site: sa.Engine) -> None:
    """Five hundred lines of one node are one node's word."""
    for one in verdicts(site, [complaint("gpu-001", number) for number in range(500)]):
        if one.cause_class != "unknown":
            others = {*one.nodes, *([one.node] if one.node else [])} - {"gpu-001"}
            assert others <= set(one.victims)
            assert one.probability <= 0.5 or not others


def test_the_word_of_many_nodes_is_no_report(site: sa.Engine) -> None:
    """One server's name in sixteen complaints: that server."""
    found = verdicts(site, [complaint(f"gpu-{n:03d}", n) for n in range(0, 32, 2)])
    assert [(one.cause_class, one.name) for one in found if one.probability > 0.5] == [("storage", SERVER)]
    assert not any("alone says so" in why.text for why in found[0].evidence_against)


def test_a_node_that_invents_ten_thousand_devices_accuses_itself_alone(site: sa.Engine) -> None:
    """Whatever it makes up hangs on it."""
    made_up = [
        Event(
            NOW + timedelta(milliseconds=number),
            *("gpu-001", "kernel", "xid", 79, "fatal", "hardware", "reboot_node"),
            Device("gpu", pci=f"{number // 256:04x}:{number % 256:02x}:00.0"),
            "GPU has fallen off the bus.",
        )
        for number in range(10_000)
    ]
    for one in verdicts(site, made_up):
        assert one.node in (None, "gpu-001")
        assert {*one.nodes} - {"gpu-001"} <= {*one.victims}


def test_a_node_s_clock_in_the_far_future_or_past_hides_no_verdict(site: sa.Engine) -> None:
    """Its lines are odd; those of others count all the same."""
    what = ("kernel", "xid", 79, "fatal", "hardware", "reboot_node", Device("gpu", pci="0000:0f:00.0"), "x")
    odd = Event(datetime(2200, 1, 1, tzinfo=UTC), "gpu-001", *what)
    old = Event(datetime(1971, 1, 1, tzinfo=UTC), "gpu-002", *what)
    true = Event(NOW, "gpu-020", *what)
    assert "gpu-020" in {one.node for one in verdicts(site, [odd, old, true])}

"""Finding things by their names: whole ones first, each of its kind, nothing of strangers."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import sqlalchemy as sa

from api.answers.search import SearchResult, search
from diagnosis.incidents.incidents_table import update_incidents
from store.database.connections import writing
from store.events.append import append_events, append_jobs, append_nodes
from store.hints.hint_log import save_hint
from store.records.event import Device, Event
from store.records.hint import Evidence, Hint
from store.records.job import Job
from store.records.node import Node
from store.records.verdict import Verdict
from store.tables.topology_tables import device_names
from store.verdicts.verdict_log import VerdictChange, save_changes

NOW = datetime(2025, 3, 1, 12, tzinfo=UTC)
NIC = "gpu-017/mlx5_0"


@pytest.fixture
def site(any_engine: sa.Engine) -> sa.Engine:
    """Nodes, a fault, a verdict, a hint, a run, names of devices."""
    hint = Hint("h1", "gpu-017", "cordon", "proposed", "r", "o", NOW, NOW + timedelta(days=1), Evidence())
    with writing(any_engine).begin() as connection:
        names = ["gpu-017", "gpu-0171", "old-gpu-017", "gpu_018", "GPU-019"]
        append_nodes(connection, [Node(name, "r3", "leaf004") for name in names])
        event = Event(NOW, "gpu-017", "kernel", "xid", 79, "fatal", "hardware", device=Device("gpu"), id="e1")
        update_incidents(connection, append_events(connection, [event], received=NOW).new)
        cause = Verdict("switch", "leaf004", 0.9, "fabric", "run_diagnostics", NOW, "why", nodes=("gpu-017",), id="v1")
        save_changes(connection, [VerdictChange(cause, "opened")], NOW)
        save_hint(connection, hint, NOW, {})
        append_jobs(connection, [Job("4711", "llm-70b", "RUNNING", NOW, NOW, None, 1, "gpu-017", None)])
        rows = [
            ("gpu", "gpu-017/gpu3", "serial", "1650523000011"),
            ("nic", NIC, "port_guid", "0x248a0703009c0cfa"),
            ("switch", "leaf004", "guid", "0x248a0703009c0c00"),
        ]
        for kind, device, name_kind, name in rows:
            row: dict[str, Any] = {"class": kind, "device": device, "kind": name_kind, "name": name, "since": NOW}
            connection.execute(device_names.insert().values(row))
    return any_engine


def found(engine: sa.Engine, text: str, most: int = 20) -> list[SearchResult]:
    """What bears a name."""
    with engine.connect() as connection:
        return search(connection, text, most)


def test_the_very_name_comes_first(site: sa.Engine) -> None:
    """Then what begins so, then what has it inside; capitals do not matter, and `_` and `%` are letters."""
    assert [one.id for one in found(site, "gpu-017")] == ["gpu-017", "gpu-0171", "old-gpu-017"]
    assert [one.id for one in found(site, "Gpu-019")] == ["GPU-019"]
    assert [one.id for one in found(site, "gpu_")] == ["gpu_018"]
    assert found(site, "%") == []
    assert found(site, "gpu-017")[0] == SearchResult("node", "gpu-017", "gpu-017", "rack r3, leaf leaf004", "gpu-017")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("e1", SearchResult("incident", "e1", "xid 79", "fatal", "gpu-017")),
        ("v1", SearchResult("verdict", "v1", "leaf004", "switch, open")),
        ("h1", SearchResult("hint", "h1", "cordon", "proposed", "gpu-017")),
        ("4711", SearchResult("run", "llm-70b", "llm-70b", "job 4711")),
        ("70b", SearchResult("run", "llm-70b", "llm-70b")),
        ("1650523000011", SearchResult("device", "gpu-017/gpu3", "gpu-017/gpu3", "serial of a gpu", "gpu-017")),
        ("0X248A0703009C0CFA", SearchResult("device", NIC, NIC, "port_guid of a nic", "gpu-017")),
        ("0x248a0703009c0c00", SearchResult("device", "leaf004", "leaf004", "guid of a switch")),
        ("LEAF", SearchResult("verdict", "v1", "leaf004", "switch, open")),
    ],
)  # fmt: skip
def test_each_kind_is_found_by_what_it_is_called(site: sa.Engine, text: str, expected: SearchResult) -> None:
    """Ids, serial numbers, GUIDs and job numbers whole; runs and causes by a part."""
    assert found(site, text)[0] == expected


def test_a_list_is_short(site: sa.Engine) -> None:
    """Of each kind a few, and no more than were asked for."""
    with writing(site).begin() as connection:
        append_nodes(connection, [Node(f"many-{number:05}") for number in range(300)])
    assert len(found(site, "many")) == 8
    assert len(found(site, "gpu", 2)) == 2
    assert found(site, "nothing of that name") == []


def test_a_name_that_closed_finds_nothing(site: sa.Engine) -> None:
    """The GPU was swapped: its serial number is another node's business by now."""
    with writing(site).begin() as connection:
        connection.execute(sa.update(device_names).where(device_names.c.kind == "serial").values(until=NOW))
    assert found(site, "1650523000011") == []

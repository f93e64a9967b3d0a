"""Tickets of nodes that want repair."""

import csv
import io
from datetime import timedelta
from typing import Any

import pytest
import sqlalchemy as sa
from fleet_store import day, node, outage, put

from predictor.repair.export import TICKET_COLUMNS, tickets, tickets_csv
from predictor.repair.lemons import repair_list
from store.database.connections import writing
from store.events.append import append_events
from store.hints.hint_log import save_hint
from store.hints.validations import begin_validation, end_validation
from store.records.event import Device, Event
from store.records.hint import Evidence, Hint, RepairCase
from store.tables import schema

AT = day(100)
HOUR = timedelta(hours=1)


@pytest.fixture
def fleet(any_engine: sa.Engine) -> sa.Engine:
    """Three hundred nodes: gpu-000 fails every six days, gpu-007 is held and fails its test."""
    usual = [outage(f"gpu-{i:03}", 75 + i / 20) for i in range(5, 300, 10)]
    often = [outage("gpu-000", at) for at in (74, 80, 86, 92, 98)]
    put(any_engine, [node(f"gpu-{i:03}") for i in range(300)], (), [*usual, *often])
    incidents(any_engine)
    reason = "=foreshock: xid 79"
    case = Evidence(repair=RepairCase(AT, 3, "row remap failed"))
    hint = Hint("h1", "gpu-007", "cordon", "confirmed", reason, "foreshock", AT - 30 * HOUR, AT, case)
    before = Hint("h0", "gpu-007", "avoid", "expired", "risk", "foreshock", AT - 90 * HOUR, AT, case)
    with writing(any_engine).begin() as connection:
        for one in (hint, before):
            save_hint(connection, one, one.created, {})
        for hours, passed in ((20, False), (10, None)):
            row = begin_validation(connection, "h1", "gpu-007", "dcgmi diag", AT - hours * HOUR)
            end_validation(connection, row.seq, AT - hours * HOUR, passed, 3, "begin\nECC\n")
    return any_engine


def incidents(engine: sa.Engine) -> None:
    """Two Xids of one GPU and one of a program; the serial number stands in the event of the second."""
    for i, (hours, code, cause) in enumerate(((40, 79, "hardware"), (35, 79, "hardware"), (34, 13, "application"))):
        moment = AT - hours * HOUR
        device = {"type": "gpu", "pci": "0000:0f:00.0", "index": 3, "uuid": "GPU-1", "port": None}
        row = {"id": f"i{i}", "node": "gpu-007", "start": moment, "end": moment, "kind": "xid", "code": code}
        row |= {"severity": "fatal", "cause": cause, "action": "reset_gpu", "device": device, "message": "m"}
        told = {"source": "kernel", "kind": "note", "code": None, "severity": "info", "cause": "unknown"}
        event = Event(time=moment, node="gpu-007", action="none", device=Device(), message="m", id=f"i{i}", **told)  # type: ignore[arg-type]
        event.attributes["serial"] = f"S{i}"
        with writing(engine).begin() as connection:
            connection.execute(schema.incidents.insert().values(**row, count=1, kinds={}))
            append_events(connection, [event], AT)


def made(engine: sa.Engine) -> list[dict[str, Any]]:
    """The tickets as of day 100."""
    with engine.connect() as connection:
        return tickets(connection, repair_list(connection, AT))


def test_a_held_node_that_fails_its_test_has_a_ticket_beside_the_lemons(fleet: sa.Engine) -> None:
    """First: it waits for people. With its part, its faults, its hints and tests."""
    held, lemon = made(fleet)
    assert (held["node"], lemon["node"]) == ("gpu-007", "gpu-000")
    assert held["why"] == "failed its test 3 times: row remap failed"
    assert lemon["why"].endswith("times the fleet's rate")
    assert [held[key] for key in ("rack", "part", "pci", "index", "uuid", "serial")] == [
        *("r1", "gpu", "0000:0f:00.0", 3, "GPU-1", "S1")
    ]
    (fault,) = held["faults"]
    assert (fault["what"], fault["count"], fault["first"] == held["first_seen"]) == ("xid 79", 2, True)
    assert (fault["last"], held["last_seen"]) == ("2025-04-09T13:00:00.000000Z",) * 2
    assert [(one["action"], one["state"]) for one in held["hints"]] == [("avoid", "expired"), ("cordon", "confirmed")]
    assert [(one["passed"], one["output"]) for one in held["tests"]] == [
        (False, "begin\nECC\n"),
        (None, "begin\nECC\n"),
    ]
    assert "failed the site's own test" in held["next_step"]
    assert (lemon["hints"], lemon["tests"], lemon["part"]) == ([], [], None)


def test_the_table_says_the_same_in_sentences(fleet: sa.Engine) -> None:
    """And holds no formula."""
    rows = list(csv.DictReader(io.StringIO(tickets_csv(made(fleet)))))
    assert tuple(rows[0]) == TICKET_COLUMNS
    assert rows[0]["faults"] == "xid 79 x2 (2025-04-09T08:00:00.000000Z to 2025-04-09T13:00:00.000000Z)"
    assert "dcgmi diag: failed: ECC; 2025" in rows[0]["tests"]
    assert rows[0]["tests"].endswith("dcgmi diag: said nothing: ECC")
    assert rows[0]["hints"].endswith("cordon confirmed: =foreshock: xid 79")
    assert (rows[1]["faults"], rows[1]["tests"]) == ("", "")
    first = tickets_csv([made(fleet)[0] | {"why": "=cmd()"}]).splitlines()[1]
    assert "'=cmd()" in first


def test_a_quiet_fleet_has_no_ticket(engine: sa.Engine) -> None:
    """The header alone."""
    put(engine, [node("gpu-000")], (), [outage("gpu-000", 20)])
    assert made(engine) == []
    assert tickets_csv([]).splitlines() == [",".join(TICKET_COLUMNS)]

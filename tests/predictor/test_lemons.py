"""The repair list of hand-made fleets: who is on it, why, which part, and what is held against nobody."""

import csv
import io
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import orjson
import pytest
import sqlalchemy as sa
from fleet_store import RECEIVED, day, node, outage, xid

from diagnosis.incidents.incidents_table import update_incidents
from predictor.repair.export import RMA_COLUMNS, report_json, rma_csv
from predictor.repair.lemons import Lemon, RepairList, repair_list
from predictor.repair.records import NodeFault
from store.database.connections import writing
from store.events.append import append_events, append_jobs, append_nodes, append_outages
from store.records.event import Device, Event, with_id
from store.records.job import Job
from store.records.outage import Outage
from store.records.verdict import Verdict
from store.tables import schema
from store.verdicts.verdict_log import VerdictChange, save_changes

AT = day(100)
BAD = "gpu-000"


def fleet(
    engine: sa.Engine,
    outages: Sequence[Outage] = (),
    events: Sequence[Event] = (),
    jobs: Sequence[Job] = (),
    nodes: int = 300,
    per_leaf: int = 30,
) -> RepairList:
    """The list of a fleet of which every tenth node has failed once, with these records besides."""
    usual = [outage(f"gpu-{i:03}", 75 + i / 20) for i in range(5, nodes, 10)]
    kept = [with_id(event) for event in events]
    with writing(engine).begin() as connection:
        append_nodes(connection, [node(f"gpu-{i:03}", f"leaf-{i // per_leaf}") for i in range(nodes)])
        append_outages(connection, [*usual, *outages])
        append_events(connection, kept, RECEIVED)
        update_incidents(connection, kept)
        append_jobs(connection, jobs)
    with engine.connect() as connection:
        return repair_list(connection, AT)


def names(report: RepairList) -> list[str]:
    """Who is listed."""
    return [lemon.node for lemon in report.items]


def only(report: RepairList) -> Lemon:
    """The one node of the list."""
    assert names(report) == [BAD]
    return report.items[0]


def texts(lemon: Lemon) -> dict[str, str]:
    """Its sentences by signal."""
    return {line.signal: line.text for line in lemon.lines}


OFTEN = [outage(BAD, at) for at in (74, 80, 86, 92, 98)]


def test_a_node_that_fails_again_and_again_is_listed(engine: sa.Engine) -> None:
    """Five outages where a node has 0.12; nobody else is."""
    lemon = only(fleet(engine, OFTEN))
    assert lemon.probability > 0.9
    assert lemon.signals["outages"] == 5
    assert lemon.part is None
    assert texts(lemon)["failures"].startswith(
        "5 unplanned outages in 28 days, the last on 2025-04-09 00:00 UTC (test);"
    )
    assert "a node of this fleet has 0.1" in texts(lemon)["failures"]
    assert lemon.next_step.startswith("No single part stands out: take it out and test the whole machine")


@pytest.mark.parametrize(
    "outages",
    [
        [outage(BAD, at, planned=True) for at in (74, 80, 86, 92, 98)],
        [outage(BAD, at, cause="application") for at in (74, 80, 86, 92, 98)],
        [outage(BAD, at) for at in (14, 20, 26, 32, 38)],
        [outage(BAD, at) for at in (50, 54, 58, 62, 66, 70)],
        [outage(BAD, at) for at in (101, 102, 103, 104, 105)],
        [outage(BAD, 90)],
    ],
    ids=["planned", "users", "long ago", "repaired a month ago", "later", "once"],
)
def test_what_is_held_against_nobody(engine: sa.Engine, outages: list[Outage]) -> None:
    """Maintenance, users' errors, the past, the future, and what befell many."""
    assert names(fleet(engine, outages)) == []


@pytest.mark.parametrize(
    ("nodes", "apart"), [(4, 1), (30, 1), (12, 30)], ids=["part of a leaf", "a leaf", "many leaves"]
)
def test_a_switch_that_fails_makes_no_lemons_of_its_nodes(engine: sa.Engine, nodes: int, apart: int) -> None:
    """Five times they go down at once: a leaf or the site is bad, not its nodes."""
    times = (74, 80, 86, 92, 98)
    down = [outage(f"gpu-{apart * i % 300:03}", at + i / 50_000) for at in times for i in range(nodes)]
    assert names(fleet(engine, down)) == []


@pytest.mark.parametrize(
    ("change", "listed"),
    [
        ({}, False),
        ({"probability": 0.4}, True),
        ({"cause_class": "unknown"}, True),
        ({"victims": ()}, True),
        ({"victims": (), "cause_class": "application"}, False),
        ({"node": BAD}, True),
        ({"state": "explained"}, True),
    ],
    ids=["a switch", "hardly likely", "unknown", "no victim", "the program", "itself", "explained by another"],
)
def test_what_a_verdict_puts_down_to_something_else_is_not_held_against_a_node(
    engine: sa.Engine, change: dict[str, Any], listed: bool
) -> None:
    """Five times it lost its links, and each time a verdict named the switch above it."""
    made = []
    for at in (74, 80, 86, 92, 98):
        held = Verdict("switch", "leaf-0", 0.9, "fabric", "replace_part", day(at), "8 of 8", id=f"v{at}", last=day(at))
        held = replace(held, state="closed", nodes=(BAD, "gpu-001"), victims=(BAD, "gpu-001"))
        made.append(VerdictChange(replace(held, **change), "opened"))
    with writing(engine).begin() as connection:
        save_changes(connection, made, RECEIVED)
    assert (names(fleet(engine, OFTEN)) == [BAD]) == listed


def test_a_fault_that_comes_back_after_a_repair_names_the_part(engine: sa.Engine) -> None:
    """The same device and code, with a repair between: exchange it, with the incidents as evidence."""
    faults = [xid(BAD, at - 0.001, 79) for at in (74, 80, 86, 92, 98)]
    lemon = only(fleet(engine, OFTEN, faults))
    assert lemon.part is not None
    assert (lemon.part.device.pci, lemon.part.days, lemon.part.of) == ("0000:0f:00.0", 5, 5)
    assert lemon.signals["recurrences"] == 4
    line = next(line for line in lemon.lines if line.signal == "recurrences")
    assert "xid 79 of gpu 0000:0f:00.0 came back on 2025-04-08 23:58 UTC, after the repair that ended" in line.text
    assert "and 3 more times like this" in line.text
    with engine.connect() as connection:
        known = set(connection.scalars(sa.select(schema.incidents.c.id)))
    assert line.incidents
    assert set(line.incidents) <= known
    assert lemon.next_step == "Exchange gpu 0000:0f:00.0: the same fault came back after a repair."
    assert [repair.came_back for repair in lemon.repairs] == [True, True, True, True, False]


def test_a_fault_without_a_code_is_told_by_what_it_means() -> None:
    """A technician does not know our name of a kind; a vendor's count goes by it."""
    fault = NodeFault("i", BAD, AT, AT, "ecc_dbe", None, "none", "{}", None, "", "ecc_double", serious=True)
    assert fault.words == "GPU memory errors that could not be corrected (ecc_dbe)"
    assert replace(fault, kind="xid", code=48).words == "xid 48"
    assert replace(fault, kind="of_a_site").words == "of_a_site"


def test_a_part_that_only_shares_the_blame_is_not_accused(engine: sa.Engine) -> None:
    """Two faults of one device and three of others point at none."""
    faults = [
        with_device(xid(BAD, at - 0.001, 79), Device("gpu", pci=f"0000:0{i}:00.0"))
        for i, at in zip((0, 0, 1, 2, 3), (74, 80, 86, 92, 98), strict=True)
    ]
    assert only(fleet(engine, OFTEN, faults)).part is None


def with_device(event: Event, device: Device, **attributes: Any) -> Event:
    """The same event of another device."""
    return Event(
        event.time,
        event.node,
        event.source,
        event.kind,
        event.code,
        event.severity,
        event.cause,
        event.action,
        device,
        event.message,
        attributes,
    )


def test_hardware_faults_without_outages_count_by_the_day(engine: sa.Engine) -> None:
    """A scheduler that is told nothing: faults on six days list a node; the same on one day do not."""
    spread = [xid(BAD, 75 + 4 * i, 74) for i in range(6)]
    burst = [xid("gpu-001", 90 + i / 100, 74) for i in range(6)]
    others = [xid(f"gpu-{i:03}", 76 + i / 20, 74) for i in range(7, 300, 10)]
    lemon = only(fleet(engine, (), [*spread, *burst, *others]))
    assert lemon.signals["fault_days"] == 6
    assert texts(lemon)["fault_days"].startswith("hardware faults on 6 of 28 days: xid 74 (6);")


def test_users_faults_and_single_corrected_errors_are_no_evidence(engine: sa.Engine) -> None:
    """Application Xids are decoys."""
    noise = [xid(BAD, 75 + 2 * i, 31, "application", "error") for i in range(12)]
    assert names(fleet(engine, (), noise)) == []


def test_a_link_that_flaps_for_days_is_to_be_cleaned(engine: sa.Engine) -> None:
    """Not the machine: its optic, at the far end that the topology knows."""
    port = Device("port", uuid="0xb8")
    flaps = [
        Event(day(75 + 2 * i), BAD, "opensm", "port_removed", None, "error", "fabric", "none", port) for i in range(9)
    ]
    with writing(engine).begin() as connection:
        connection.execute(
            schema.links.insert().values(switch="leaf-0", port=7, peer=BAD, peer_port=1, peer_type="hca")
        )
    lemon = only(fleet(engine, (), flaps))
    assert lemon.signals["flap_days"] == 9
    assert lemon.part is not None
    assert lemon.part.words == "port 0xb8 (leaf-0 port 7)"
    assert lemon.next_step.startswith("Clean and reseat optic and cable of port 0xb8 (leaf-0 port 7) at both ends")


def job(number: int, end_d: float, hosts: str, state: str = "FAILED", nodes: int = 4, run: str = "llm") -> Job:
    """A job that ends on a day after six hours."""
    start = day(end_d) - timedelta(hours=6)
    return Job(str(number), run, state, start, start, day(end_d), nodes, hosts)


def test_a_job_is_blamed_on_the_node_that_broke_just_then(engine: sa.Engine) -> None:
    """Within ten minutes before its end or five after; the other hosts and other jobs are not touched."""
    jobs = [
        job(1, 98.002, "gpu-[000-003]"),
        job(2, 92.1, "gpu-[000-003]"),
        job(3, 86.0, "gpu-[010-013]"),
        job(4, 80.0, "gpu-[000-003]", state="COMPLETED"),
        job(5, 74.0, "gpu-[000-"),
    ]
    lemon = only(fleet(engine, OFTEN, (), jobs))
    assert lemon.signals["multi_node_job_failures"] == 1
    assert texts(lemon)["multi_node_job_failures"] == "1 job on several nodes failed as it broke (llm)"
    assert [line.jobs for line in lemon.lines if line.jobs] == [("1",)]


def test_one_node_jobs_that_fail_only_here_are_told_against_how_many_ran(engine: sa.Engine) -> None:
    """Eight of nine different jobs; elsewhere one in thirty. A user's loop on another node counts once."""
    jobs = [
        job(
            1000 + 40 * i + k,
            80 + k / 10,
            f"gpu-{i:03}",
            "FAILED" if k == 0 and i % 3 == 0 else "COMPLETED",
            1,
            f"r{k}",
        )
        for i in range(1, 60)
        for k in range(9)
    ]
    jobs += [job(k, 82 + k / 10, BAD, "FAILED" if k else "COMPLETED", 1, f"r{k}") for k in range(9)]
    jobs += [job(5000 + k, 83 + k / 100, "gpu-001", "FAILED", 1, "loop") for k in range(60)]
    lemon = only(fleet(engine, (), (), jobs))
    assert lemon.signals["single_node_job_failures"] == 8
    assert texts(lemon)["single_node_job_failures"].startswith("8 of 9 one-node jobs failed on it;")


def test_what_no_source_tells_is_unknown_not_zero(engine: sa.Engine) -> None:
    """Without jobs in the store, none failed is not what we know."""
    lemon = only(fleet(engine, OFTEN))
    assert lemon.signals["multi_node_job_failures"] is None
    assert lemon.signals["excluded_jobs"] is None


def test_an_empty_store_has_an_empty_list(engine: sa.Engine) -> None:
    """And says so in JSON."""
    with engine.connect() as connection:
        report = repair_list(connection, AT)
    told = report_json(report)
    assert (told["nodes"], told["found"], told["items"]) == (0, 0, [])
    assert orjson.loads(orjson.dumps(told)) == told


def test_a_node_out_for_most_of_the_window_is_judged_by_the_days_it_served(engine: sa.Engine) -> None:
    """An open outage takes the rest of the window from it; nothing becomes negative."""
    lemon = only(fleet(engine, [outage(BAD, 74, 24), outage(BAD, 76, 24), outage(BAD, 78, None)]))
    assert lemon.repairs[-1].end is None
    line = texts(lemon)["failures"]
    assert float(line.rsplit("has ", 1)[1].split()[0]) < 0.05


def test_a_time_out_before_the_window_takes_nothing_from_it_and_adds_nothing(engine: sa.Engine) -> None:
    """A month in repair, two months ago."""
    line = texts(only(fleet(engine, [outage(BAD, 20, 480), *OFTEN])))["failures"]
    assert 0.1 < float(line.rsplit("has ", 1)[1].split()[0]) < 0.13


def test_the_vendors_table_holds_the_part_and_obeys_no_log_line(engine: sa.Engine) -> None:
    """Numbers from the events; a reason that begins like a formula is only text."""
    faults = [
        with_device(xid(BAD, at - 0.001, 79), Device("gpu", pci="0000:0f:00.0", uuid="GPU-1"), serial="=2+5", n=at)
        for at in (74, 80, 86, 92, 98)
    ]
    report = fleet(engine, OFTEN, faults)
    rows = list(csv.DictReader(io.StringIO(rma_csv(report))))
    assert list(rows[0]) == list(RMA_COLUMNS)
    row = rows[0]
    assert (row["node"], row["part"], row["pci"], row["uuid"], row["serial"]) == (
        *(BAD, "gpu", "0000:0f:00.0", "GPU-1", "'=2+5"),
    )
    assert row["codes"] == "xid 79 x5"
    assert (row["outages_28d"], row["recurrences"], row["repairs_90d"]) == ("5", "4", "5")
    assert row["first_seen"] < row["last_seen"]
    assert "5 unplanned outages in 28 days" in row["evidence"]


def test_the_list_is_the_same_on_both_databases(any_engine: sa.Engine) -> None:
    """Times, arrays of names and JSON are read alike."""
    faults = [xid(BAD, at - 0.001, 79) for at in (74, 80, 86, 92, 98)]
    lemon = only(fleet(any_engine, OFTEN, faults, [job(1, 98.002, "gpu-[000-003]")]))
    assert lemon.signals | {"hardware_xids": 5, "recurrences": 4} == lemon.signals
    assert lemon.first_seen == day(74) - timedelta(seconds=86.4)
    assert isinstance(lemon.last_seen, datetime)

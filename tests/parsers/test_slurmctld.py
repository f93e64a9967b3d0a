"""The log of Slurm's controller: who does not answer, who is taken out and why, who was booted."""

import json
from datetime import UTC, datetime

import pytest

from parsers.formats.slurmctld import SlurmctldParser
from parsers.registry import detect
from parsers.text.parser import Context, ParseError, parse
from parsers.trust import RefusedLineError
from store.records.event import Event

AT = "[2026-08-26T09:12:03.501] "
WHEN = datetime(2026, 8, 26, 9, 12, 3, 501000, tzinfo=UTC)


def decode(*lines: str) -> list[Event]:
    """The events of some lines."""
    return list(parse(SlurmctldParser(Context(year=2026)), lines))


def told(*lines: str) -> list[tuple[str | None, object, object]]:
    """Node, state and reason of each event."""
    return [(event.node, event.attributes.get("state"), event.attributes.get("reason")) for event in decode(*lines)]


@pytest.mark.parametrize(
    ("prefix", "time"),
    [
        (AT, WHEN),
        ("[2026-08-26T11:12:03.501+02:00] ", WHEN),
        ("Aug 26 09:12:03 head slurmctld[483]: ", WHEN.replace(microsecond=0)),
        ("Aug 26 09:12:03 head slurmctld[483]: slurmctld: ", WHEN.replace(microsecond=0)),
        ("slurmctld: ", None),
    ],
)
def test_nodes_that_do_not_answer_are_told_one_by_one(prefix: str, time: datetime | None) -> None:
    """In its own file, the system log and what it prints; the node is the silent one, never the controller's host."""
    line = f"{prefix}error: Nodes gpu-[001-002] not responding, setting DOWN"
    events = decode(line)
    assert [(event.node, event.time) for event in events] == [("gpu-001", time), ("gpu-002", time)]
    assert {(event.kind, event.severity, event.cause) for event in events} == {("node_state", "warning", "host")}
    assert detect([line]) == "slurmctld"


def test_a_node_is_told_once_until_it_is_back() -> None:
    """Each round of pings says it again."""
    silent = f"{AT}error: Nodes n1 not responding"
    state = ("n1", "NOT_RESPONDING", "Not responding")
    assert told(silent, silent) == [state]
    assert told(silent, f"{AT}Node n1 now responding", silent) == [state, state]
    assert told(silent, f"{AT}node n1 returned to service", silent) == [state, state]
    assert told(silent, f"{AT}update_node: node n1 state set to IDLE", silent) == [state, state]


def test_a_reason_is_of_the_state_that_is_set_with_it() -> None:
    """Somebody's words, or what a node's daemon could not do; never those of other nodes or of an hour ago."""
    drain = f"{AT}update_node: node n1 state set to DRAINING"
    assert told(f"{AT}update_node: node n1 reason set to: Xid 79", drain) == [("n1", "DRAIN", "Xid 79")]
    failed = f"{AT}error: slurmd error running JobId=50 on node(s)=n1: Kill task failed"
    assert told(failed, f"{AT}drain_nodes: node n1 state set to DRAIN") == [("n1", "DRAIN", "Kill task failed")]
    assert told(f"{AT}update_node: node n2 reason set to: Xid 79", drain) == [("n1", "DRAIN", None)]
    assert told(f"{AT}update_node: node n1 reason set to: x", *[f"{AT}sched: y"] * 9, drain) == [("n1", "DRAIN", None)]
    assert told(f"{AT}update_node: node n1 reason set to: Xid 79") == []


def test_a_node_that_was_booted_meanwhile_is_told() -> None:
    """By whom is not known."""
    (event,) = decode(f"{AT}validate_node_specs: Node n1 unexpectedly rebooted boot_time=1781333310 last response=1")
    assert (event.kind, event.node, event.severity, event.time) == ("node_reboot", "n1", "warning", WHEN)


@pytest.mark.parametrize(
    "line",
    [
        f"{AT}sched: Allocate JobId=51 NodeList=n[5-6] #CPUs=32 Partition=dev",
        f"{AT}Killing JobId=4242 on failed node n1",
        f"{AT}update_node: node n1 state set to RESUME",
        "Aug 26 09:12:03 n1 slurmd[9]: error: Nodes n1 not responding, setting DOWN",
        "Aug 26 09:12:03 n1 user[9]: slurmctld: error: Nodes n1 not responding",
        f"{AT}_slurm_rpc_submit_batch_job: JobId=9 comment=error: Nodes n1 not responding, setting DOWN",
    ],
)
def test_what_takes_no_node_out(line: str) -> None:
    """Work, a node that returns, another program, a job's own words."""
    assert decode(line) == []


def test_a_list_of_nodes_that_is_none_is_an_error() -> None:
    """The line is lost, and no other."""
    parser = SlurmctldParser(Context())
    with pytest.raises(ParseError):
        parser.feed(f"{AT}error: Nodes n[1- not responding", 1)


RECORD = {"_TRANSPORT": "syslog", "SYSLOG_IDENTIFIER": "slurmctld", "_COMM": "slurmctld", "_UID": "64030"}
SILENT = {"MESSAGE": "error: Nodes gpu-001 not responding, setting DOWN", "__REALTIME_TIMESTAMP": "1787735523501000"}


@pytest.mark.parametrize("own", [{"_SYSTEMD_UNIT": "slurmctld.service"}, {"_UID": "0"}])
def test_a_record_of_journald_is_the_controllers_by_its_unit_or_by_root(own: dict[str, str]) -> None:
    """It runs as a user of its own."""
    line = json.dumps({**RECORD, **SILENT, **own})
    [event] = decode(line)
    assert (event.node, event.time) == ("gpu-001", WHEN)
    assert detect([line]) == "slurmctld"


@pytest.mark.parametrize("own", [{}, {"_SYSTEMD_UNIT": "user@1000.service"}, {"_COMM": "logger", "_UID": "1000"}])
def test_what_a_user_logs_as_the_controller_is_refused(own: dict[str, str]) -> None:
    """journald's own fields tell who wrote it."""
    with pytest.raises(RefusedLineError, match="writer"):
        list(SlurmctldParser(Context()).feed(json.dumps({**RECORD, **SILENT, **own}), 1))


def test_a_node_that_registers_with_less_is_told_with_its_reason() -> None:
    """And one that the controller drains for its prolog."""
    fewer = (
        f"{AT}error: Setting node n1 state to INVAL with reason:gres/gpu count reported lower than configured (7 < 8)"
    )
    assert told(fewer) == [("n1", "INVALID_REG", "gres/gpu count reported lower than configured (7 < 8)")]
    drained = f"{AT}error: _slurm_rpc: Prolog or job env setup failure on node n2, draining the node"
    assert told(drained) == [("n2", "DRAIN", "Prolog or job env setup failure")]

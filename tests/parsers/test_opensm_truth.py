"""Logs of the real subnet manager against what was done to its fabric, where they are at hand."""

import gzip
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from parsers.formats.opensm import OpensmParser
from parsers.text.parser import Context, ParseError, parse
from store.records.event import Event

DATA = Path(__file__).parents[2] / ".." / "shared" / "data" / "opensm"
pytestmark = pytest.mark.skipif(not DATA.is_dir(), reason="the real logs (../shared/data) are not on this machine")

SCENARIOS = ["all-default", "all-0x07-verbose", "flap-default"]
_CHANGES = (
    "link-down",
    "link-up",
    "switch-down",
    "switch-up",
    "node-down",
    "node-up",
    "mad-loss",
    "mad-loss-end",
    "sm-sweep",
)
# What is done is seen at once, or at the next periodic sweep (10 s).
SEEN = timedelta(seconds=11)
SOON = timedelta(seconds=1)


def decode(path: Path) -> list[Event]:
    """The events of a log, none of whose lines may be broken."""
    raw = path.read_bytes()
    lines = (gzip.decompress(raw) if path.suffix == ".gz" else raw).split(b"\n")
    broken: list[tuple[int, ParseError]] = []
    events = list(parse(OpensmParser(Context(year=2026)), lines, lambda line, error: broken.append((line, error))))
    assert broken == []
    return events


def log_of(folder: str) -> Path:
    """A scenario's log."""
    return next((DATA / folder).glob("opensm.log*"))


def truth(folder: str) -> list[dict[str, Any]]:
    """What was done, with its moment."""
    rows = [json.loads(line) for line in (DATA / folder / "truth.jsonl").read_text().splitlines()]
    return [row | {"at": datetime.fromtimestamp(row["ts"], UTC)} for row in rows]


def within(events: list[Event], at: datetime, span: timedelta) -> list[Event]:
    """The events of a span from a moment on."""
    return [event for event in events if event.time and at <= event.time <= at + span]


@pytest.mark.parametrize("folder", ["all-default", "all-0x07-verbose"])
def test_every_change_of_the_truth_is_an_event_at_its_switch_and_its_host(folder: str) -> None:
    """Links down, up and flapping, switches lost and back, a host that reboots."""
    events = decode(log_of(folder))
    checked = 0
    for row in truth(folder):
        if row["event"] not in ("link-down", "link-up", "switch-down", "switch-up", "node-down", "node-up"):
            continue
        if row.get("flap", 0) > 5:  # after ten traps in a row the manager ignores the switch
            continue
        seen = within(events, row["at"], SOON)
        gone = row["event"].endswith("down")
        named = {
            e.node or e.attributes.get("switch")
            for e in seen
            if e.kind == ("port_removed" if gone else "port_discovered")
        }
        traps = {event.device.uuid for event in seen if event.kind == "link_state_change"}
        if row["node_type"] == "ca":
            assert row["host"] in named, row
            assert row["peer_guid"] in traps, row
        elif row["event"].startswith("switch"):
            assert row["node"] in named, row
            assert traps, row
        else:  # a link between switches: the log names the switches alone
            assert traps & {row["node_guid"], row["peer_guid"]}, row
            assert named == set(), row
        checked += 1
    assert checked >= 20


@pytest.mark.parametrize("folder", SCENARIOS)
def test_nothing_of_the_fabric_is_told_that_was_not_done(folder: str) -> None:
    """Each link and port event follows a change."""
    moments = [row["at"] for row in truth(folder) if row["event"] in _CHANGES]
    for event in decode(log_of(folder)):
        if event.kind in (
            "link_state_change",
            "link_down",
            "link_up",
            "port_removed",
            "port_discovered",
            "smp_timeout",
            "sm_error",
        ):
            assert any(event.time and at <= event.time <= at + SEEN for at in moments), event


def test_every_flap_that_the_manager_noticed_is_told() -> None:
    """It ignores a switch after ten traps: its log names no host then, but each trap still the switch."""
    events = decode(log_of("flap-default"))
    flaps = [row for row in truth("flap-default") if row["event"] in ("link-down", "link-up")]
    told = [event for event in events if event.kind == "link_state_change"]
    assert len(told) == log_of("flap-default").read_text().count(" num:128 (Link state change)")
    assert {event.device.uuid for event in told} <= {row["peer_guid"] for row in flaps}
    for row in flaps[:10]:
        kind = "port_removed" if row["event"] == "link-down" else "port_discovered"
        assert row["host"] in {e.node for e in within(events, row["at"], SOON) if e.kind == kind}, row


def test_a_verbose_log_names_the_port_of_each_link_that_went() -> None:
    """Which the default one does not."""
    events = decode(log_of("all-0x07-verbose"))
    for row in truth("all-0x07-verbose"):
        if row["event"] == "link-down" and "flap" not in row:
            ends = {(row["node_guid"], row["port"]), (row["peer_guid"], row["peer_port"])}
            lost = [event for event in within(events, row["at"], SOON) if event.kind == "link_down"]
            assert {(event.device.uuid, event.device.port) for event in lost} <= ends, row
            assert len(lost) == 1, row
            assert lost[0].node == row.get("host"), row


def test_a_takeover_and_a_handover_are_in_the_standbys_log() -> None:
    """After the master was killed; a manager that starts with the higher priority is master from the start."""
    rows = truth("handover")
    killed = next(row["at"] for row in rows if row["event"] == "sm-kill")
    second = decode(DATA / "handover" / "opensm2.log")
    taken = [event for event in second if event.attributes.get("takeover")]
    assert len(taken) == 1
    assert taken[0].severity == "warning"
    assert taken[0].time
    assert killed < taken[0].time < killed + timedelta(seconds=60)
    first = [e for e in decode(DATA / "handover" / "opensm.log") if e.kind == "sm_state"]
    assert [event.attributes["state"] for event in first][-2:] == ["STANDBY", "EXITED"]
    assert first[-2].attributes["from"] == "MASTER"


def test_every_increase_of_a_counter_is_at_its_port() -> None:
    """PerfMgr tells the difference; waiting for credit it does not tell."""
    told = {
        (e.device.uuid, e.device.port, e.attributes["counter"], e.attributes["count"], e.node)
        for e in decode(log_of("perfmgr-5s"))
        if e.kind == "counter"
    }
    before: dict[tuple[str, int, str], int] = {}
    for row in truth("perfmgr-5s"):
        if row["event"] != "perf" or row["counter"] == "PortXmitWait":
            continue
        key = (row["node_guid"], row["port"], row["counter"])
        rise = row["value"] - before.get(key, 0)
        before[key] = row["value"]
        assert (*key, rise, row.get("host") or row["peer"].split("/")[0]) in told, row
    assert len(before) >= 9


def test_a_log_of_nvidias_build_tells_the_port_that_changed_state() -> None:
    """An unlink and a relink: trap, state, and the ports that went and came back."""
    events = decode(DATA.parent / "fabric" / "opensm_mlnx5_ibsim_unlink_relink.log")
    assert [event.kind for event in events] == [
        "link_state_change",
        "heavy_sweep",
        "link_down",
        "port_removed",
        "port_removed",
        "link_state_change",
        "heavy_sweep",
        "link_up",
        "port_discovered",
        "port_discovered",
    ]
    changed = [event for event in events if event.kind in ("link_down", "link_up")]
    assert {(event.device.uuid, event.device.port) for event in changed} == {("0x0000000000200000", 3)}
    assert {event.device.uuid for event in events if event.kind == "link_state_change"} == {"0x0000000000200000"}
    assert [event.node for event in events if event.kind == "port_removed"] == [None, "Hca2"]

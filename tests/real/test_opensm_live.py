"""The fabric's parsers over what a real subnet manager and real tools print while cables are pulled and put back."""

import re
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest
from real.opensm import Fabric, fabric, node_guid

from parsers.formats import iblinkinfo, ibnetdiscover, ibqueryerrors, opensm, perfquery
from parsers.formats.ibnetdiscover import links
from parsers.text.parser import Context, ParseError, parse
from store.records.event import Event

pytestmark = pytest.mark.integration

FORMATS = {each.FORMAT.name: each.FORMAT for each in (iblinkinfo, ibnetdiscover, ibqueryerrors, perfquery)}
# A standby manager gives the master up after half a second.
IMPATIENT = "sminfo_polling_timeout 250\npolling_retry_number 2\n"
# It looks for another manager when a test says so, and not at its first sign: one that has only begun may leave a
# question unanswered, and in ibsim nothing times out.
DEAF = "sweep_on_trap FALSE\n"
# "evicting entry": the manager forgets its oldest unanswered request where a busy machine leaves too many. No matter of
# the fabric.
FORGOTTEN = "5401"


def decoded(log: Path) -> tuple[list[Event], list[str]]:
    """The events of a log without requests that the manager forgot, and what was said of broken lines."""
    told: list[str] = []

    def tell(line: int, error: ParseError) -> None:
        told.append(f"{line}: {error}")

    now = datetime.now(UTC)
    parser = opensm.FORMAT.make(Context(year=now.year, until=now))
    with log.open("rb") as file:
        events = [event for event in parse(parser, file, tell) if event.attributes.get("error") != FORGOTTEN]
    return events, told


def printed(tool: str, text: str) -> list[Event]:
    """The events of a tool's output."""
    return list(parse(FORMATS[tool].make(Context()), text.splitlines()))


class Truth:
    """What was done to a fabric, and when: each act is waited for until the manager has swept."""

    def __init__(self, sim: Fabric) -> None:
        self._sim = sim
        self.acts: list[tuple[datetime, str]] = []

    def do(self, name: str, act: Callable[[], object]) -> None:
        """Do one thing and wait for the sweeps that it causes: a switch's loss is told by each of its neighbours."""
        sweeps = self._sim.sweeps()
        self.acts.append((datetime.now(UTC), name))
        act()
        self._sim.settle(sweeps + 1)

    def told(self, events: list[Event]) -> list[tuple[str, Counter[tuple[str, str]]]]:
        """The events of each act, and before them those before the first: by kind, and node or GUID."""
        began = [datetime.min.replace(tzinfo=UTC), *(moment for moment, _ in self.acts)]
        names = ["start", *(name for _, name in self.acts)]
        groups = [Counter[tuple[str, str]]() for _ in names]
        for event in events:
            assert event.time
            at = max(number for number, moment in enumerate(began) if moment <= event.time)
            groups[at][event.kind, event.node or event.device.uuid or str(event.attributes.get("state", ""))] += 1
        return list(zip(names, groups, strict=True))


def test_each_act_of_a_scenario_is_told_with_its_node_or_switch_and_nothing_else_is(tmp_path: Path) -> None:
    """Links down and up, a flap, an uplink, a spine, a leaf with its hosts, a host that reboots."""
    leaf1, leaf2, spine1, spine2 = map(node_guid, ("leaf01", "leaf02", "spine01", "spine02"))
    trap = ("link_state_change", leaf2)
    gone, found = ("port_removed", "host03"), ("port_discovered", "host03")
    also, back = ("port_removed", "host04"), ("port_discovered", "host04")
    other, away, home = ("link_state_change", leaf1), ("port_removed", "host02"), ("port_discovered", "host02")
    with fabric(tmp_path, spines=2) as sim:
        truth = Truth(sim)
        expected: list[tuple[str, set[tuple[str, str]]]] = []

        def act(name: str, what: Callable[[], object], *told: tuple[str, str]) -> None:
            truth.do(name, what)
            expected.append((name, set(told)))

        act("link down", lambda: sim.unlink("host03"), trap, gone)
        act("link up", lambda: sim.relink("host03"), trap, found)
        for number in range(2):  # of eleven traps of one switch in a row opensm ignores the last
            act(f"flap {number} down", lambda: sim.unlink("host02"), other, away)
            act(f"flap {number} up", lambda: sim.relink("host02"), other, home)
        act("uplink down", lambda: sim.unlink("leaf02", 8), trap, ("link_state_change", spine1))
        act("uplink up", lambda: sim.relink("leaf02", 8), trap, ("link_state_change", spine1))
        both = {other, trap}
        act("spine down", lambda: sim.unlink("spine02"), *both, ("port_removed", spine2))
        act("spine up", lambda: sim.relink("spine02"), *both, ("port_discovered", spine2))
        spines = {("link_state_change", spine1), ("link_state_change", spine2)}
        act("leaf down", lambda: sim.unlink("leaf02"), trap, *spines, gone, also, ("port_removed", leaf2))
        act("leaf up", lambda: sim.relink("leaf02"), *spines, found, back, ("port_discovered", leaf2))
        act("reboot", lambda: sim.reboot("host02"), other, away, home)
        sim.stop_opensm()
        events, broken = decoded(sim.log)
        log = sim.log.read_text()
    assert broken == []
    told = truth.told([event for event in events if event.attributes.get("state") != "EXITED"])
    assert told[0] == (
        "start",
        {("sm_state", "DISCOVERING"): 1, ("sm_state", "MASTER"): 1, ("subnet_up", ""): 1},
    )
    assert [name for name, _ in told[1:]] == [name for name, _ in expected]
    for (name, group), (_, whole) in zip(told[1:], expected, strict=True):
        traps = {key for key in group if key[0] == "link_state_change"}
        # A trap may be on a link that goes: where several go, not every switch is heard.
        assert traps, name
        assert traps <= whole, name
        assert set(group) - traps == {key for key in whole if key[0] != "link_state_change"}, name
        assert all(times == 1 for key, times in group.items() if key not in traps), name
    assert sum(e.kind == "link_state_change" for e in events) == log.count(" num:128 (Link state change)")
    switches = {e.device.type for e in events if e.device.uuid in (leaf2, spine2) and e.node is None}
    assert switches == {"switch"}


def test_a_pulled_cable_is_gone_from_the_topology(tmp_path: Path) -> None:
    """As the archive's reader and the format tell it."""
    with fabric(tmp_path) as sim:
        whole = list(links(sim.discover().splitlines()))
        sim.unlink("host03")
        sim.wait_for_log("Removed port with GUID")
        text = sim.discover()
        cut = list(links(text.splitlines()))
        rows = printed("ibnetdiscover", sim.diagnose("ibnetdiscover", "-p"))
    assert {(link["switch"], link["peer"]) for link in whole} - {(link["switch"], link["peer"]) for link in cut} == {
        ("leaf02", "host03")
    }
    assert len(whole) == 8
    cables = printed("ibnetdiscover", text)
    assert sorted(filter(None, (event.node for event in cables))) == ["host01", "host02", "host04"]
    assert len(cables) == len(rows) == 5


def test_a_standby_that_takes_over_and_one_that_hands_over_are_seen_in_their_logs(tmp_path: Path) -> None:
    """The master dies; it comes back with a higher priority and gets the subnet again."""
    with fabric(tmp_path) as sim, sim.manager("host04", "second", settings=IMPATIENT + DEAF) as second:
        sim.kill_opensm(second)
        sim.wait_for_log("SUBNET UP", log=second.log)
        with sim.manager("host01", "third", ["-p", "10"]) as heir:
            second.sweep()
            sim.wait_for_log("Entering STANDBY state", times=2, log=second.log)
            sim.wait_for_log("Entering MASTER state", log=heir.log)
        events, broken = decoded(second.log)
        third, _ = decoded(heir.log)
    assert broken == []
    states = [(e.attributes["state"], e.severity) for e in events if e.kind == "sm_state"]
    assert states[:5] == [
        ("DISCOVERING", "info"),
        ("STANDBY", "info"),
        ("DISCOVERING", "info"),
        ("MASTER", "warning"),
        ("STANDBY", "info"),
    ]
    assert "subnet_up" in {event.kind for event in events}
    silent = [event for event in events if event.kind == "smp_timeout"]
    assert {event.attributes["request"] for event in silent} == {"SMInfo"}
    assert {event.attributes["path"] for event in silent} == {"0,1,8,1,1"}
    assert "MASTER" in {event.attributes.get("state") for event in third}


def test_counters_and_threshold_traps_are_at_their_ports(tmp_path: Path) -> None:
    """PerfMgr tells increases; the traps 129 to 131 name a port, and 257 a key."""
    settings = "perfmgr_max_outstanding_queries 4\n"
    options = ["--perfmgr", "--perfmgr_sweep_time_s", "1", "-D", "0x07"]  # verbose: it logs each reading's begin
    with fabric(tmp_path, arguments=options, settings=settings) as sim:
        # The first asks for the ports' classes alone, the second takes the base, and is over as the third begins.
        sim.wait_for_log("Gathering PerfMgr stats", times=3)
        sim.count("leaf01", 2, SymbolErrorCounter=100, LinkDownedCounter=3)
        sim.count("host03", 1, PortRcvErrors=77)
        sim.wait_for_log("PortRcvErrors : 77")
        sim.wait_for_log("LinkDownedCounter : 3")
        for number in (129, 130, 131, 257):
            sim.trap("leaf02", number, 3)
        sim.wait_for_log("Bad P_Key:")
        sim.stop_opensm()
        events, broken = decoded(sim.log)
    assert broken == []
    counted = [e for e in events if e.kind == "counter"]
    assert {
        (e.node, e.device.uuid, e.device.port, e.attributes["counter"], e.attributes["count"]) for e in counted[:3]
    } == {
        ("host02", node_guid("leaf01"), 2, "SymbolErrorCounter", 100),
        ("host02", node_guid("leaf01"), 2, "LinkDownedCounter", 3),
        ("host03", node_guid("host03"), 1, "PortRcvErrors", 77),
    }
    assert [(e.attributes["trap"], e.device.type, e.device.port) for e in counted[3:]] == [
        (number, "port", 3) for number in (129, 130, 131)
    ]
    assert [e.attributes["key"] for e in events if e.kind == "key_violation"] == ["P_Key"]


def test_a_duplicate_guid_is_told_once_and_counted(tmp_path: Path) -> None:
    """Hundreds of records a second: two events, whose counts add up to them."""
    with fabric(tmp_path, arguments=["-y"]) as sim:
        sim.impersonate("host04", "host03")
        sim.sweep()
        sim.wait_for_log("Found duplicated node GUID", times=50)
        sim.stop_opensm()
        events, broken = decoded(sim.log)
        records = sim.log.read_text().count("Found duplicated node GUID")
    assert broken == []
    errors = [event for event in events if event.kind == "sm_error"]
    assert {(e.attributes["error"], e.device.uuid) for e in errors} == {("0D01", node_guid("host03"))}
    leaf = node_guid("leaf02")
    assert {(e.attributes["seen_at_1"], e.attributes["seen_at_2"]) for e in errors} == {
        (f"{leaf} port 1", f"{leaf} port 2")
    }
    assert sum(int(event.attributes.get("count") or 1) for event in errors) == records
    assert len(errors) <= 2


def test_the_tools_name_the_port_whose_counters_rose_and_the_link_that_waits(tmp_path: Path) -> None:
    """ibqueryerrors, perfquery and iblinkinfo of one fabric, whose manager is gone at last."""
    with fabric(tmp_path) as sim:
        sim.count("host03", 1, PortRcvErrors=77, PortXmitWait=9)
        errors = printed("ibqueryerrors", sim.diagnose("ibqueryerrors", "-r"))
        lid = re.search(r"Link info: +(\d+)", sim.diagnose("ibqueryerrors", "-r"))
        assert lid
        port = printed("perfquery", sim.diagnose("perfquery", lid[1], "1"))
        well = printed("iblinkinfo", sim.diagnose("iblinkinfo", "--line"))
        sim.unlink("host02")
        sim.stop_opensm()
        sim.relink("host02")
        waiting = [printed("iblinkinfo", sim.diagnose("iblinkinfo", *form)) for form in ([], ["--line"])]
    assert [(e.node, e.device.port, e.attributes["counter"], e.attributes["count"]) for e in errors] == [
        ("host03", 1, "PortRcvErrors", 77)
    ]
    assert errors[0].attributes["peer"] == "MF0;leaf02:MQM8700/U1"
    assert [(e.attributes["counter"], e.attributes["count"], e.attributes["lid"]) for e in port] == [
        ("PortRcvErrors", 77, int(lid[1]))
    ]
    assert {event.severity for event in well} <= {"info"}
    for found in waiting:
        assert [event.node for event in found if event.kind == "link_inactive"] == ["host02"]

"""Junos and OS10."""

import pytest

from parsers.formats.switch import SwitchParser
from parsers.text.parser import Context, parse
from store.records.event import Event

# Kind, severity; a message that tells nothing has none.
ROWS = """
link_down error | mib2d[2]: SNMP_TRAP_LINK_DOWN: ifIndex 5, ifAdminStatus up(1), ifOperStatus down(2), ifName et-0/0/12
link_down info | mib2d[2]: SNMP_TRAP_LINK_DOWN: ifIndex 5, ifAdminStatus down(2), ifOperStatus down(2), ifName et-0/0/12
link_up info | mib2d[2]: SNMP_TRAP_LINK_UP: ifIndex 5, ifAdminStatus up(1), ifOperStatus up(1), ifName et-0/0/12
- - | mib2d[2]: SNMP_TRAP_LINK_DOWN: ifIndex 5, ifAdminStatus up(1), ifOperStatus down(2), ifName et-0/0/12.0
switch_environment error | alarmd[2]: Alarm set: PS color=RED, class=CHASSIS, reason=PEM 0 Not OK
switch_environment warning | craftd[2]: Minor alarm set, PEM 0 Fan Failed
switch_environment info | craftd[2]: Major alarm cleared, PEM 0 Not OK
link_down error | dn_ifm[1]: x, Dell EMC (OS10) %IFM_OSTATE_DN: Interface operational state is down :ethernet1/1/12
link_up info | dn_ifm[1]: x, Dell EMC (OS10) %IFM_OSTATE_UP: Interface operational state is up :ethernet1/1/12
- - | dn_ifm[1]: x, Dell EMC (OS10) %IFM_OSTATE_DN: Interface operational state is down :vlan12
"""


def decode(text: str) -> list[Event]:
    """The events of one message, behind a head."""
    return list(parse(SwitchParser(Context(year=2026)), ["Jun 18 03:42:11 leaf41 " + text]))


@pytest.mark.parametrize("row", ROWS.strip().splitlines())
def test_links_and_alarms_are_told(row: str) -> None:
    """Units and virtual interfaces say what their ports say."""
    expected, _, text = row.partition(" | ")
    found = [(e.kind, e.severity) for e in decode(text)]
    assert found == ([] if expected.startswith("- ") else [tuple(expected.split())])


def test_an_alarm_names_its_reason() -> None:
    """The switch is the device."""
    (event,) = decode("alarmd[2]: Alarm set: PS color=RED, class=CHASSIS, reason=PEM 0 Not OK")
    assert (event.device.uuid, event.attributes["reason"]) == ("leaf41", "PEM 0 Not OK")

"""Cumulus Linux's daemons."""

import pytest

from parsers.formats.switch import SwitchParser
from parsers.text.parser import Context, parse
from store.records.event import Event

# Kind, severity; a message that tells nothing has none.
ROWS = """
link_down error | switchd[1]: nic.c:223 nic_set_carrier: swp51: setting kernel carrier: down
link_down error | kernel: [85412.763193] swp1s0: Link is Down
link_up info | kernel: [85412.763193] mlxsw_spectrum 0000:03:00.0 swp3: link up
- - | kernel: [85412.763193] device swp1 entered promiscuous mode
- - | /usr/sbin/smond : : Fan1(Fan Tray 1, Fan 1): state changed from UNKNOWN to OK
switch_environment warning | /usr/sbin/smond : : PSU2Fan1(PSU2 Fan): state changed from OK to BAD
switch_environment info | smond[7]: : PSU2Fan1(PSU2 Fan): state changed from BAD to OK
switch_environment error | smond[7]: : Temp1(CPU): state changed from HIGH to CRITICAL
switch_environment warning | smond[7]: : Temp2(Near the CPU (Right)): Temperature(91 C) is HIGH for last 720 secs
switch_environment warning | smond[7]: : Fan direction mismatch: 12 fans B2F; 1 fans F2B!
mlag_degraded warning | clagd[14003]: The peer switch is no longer active.
mlag_degraded info | clagd[14003]: The peer switch is active.
mlag_degraded warning | clagd[14003]: server01 is no longer dual connected
- - | clagd[14003]: Role is now secondary
- - | sysmonitor: Critically high CPU use: 99%
"""


def decode(text: str) -> list[Event]:
    """The events of one message, behind a head."""
    return list(parse(SwitchParser(Context(year=2026)), ["2026-05-22T11:21:07.153000-04:00 leaf11 " + text]))


@pytest.mark.parametrize("row", ROWS.strip().splitlines())
def test_each_daemon_tells_its_own(row: str) -> None:
    """Links, sensors, pairs of switches."""
    expected, _, text = row.partition(" | ")
    found = [(e.kind, e.severity) for e in decode(text)]
    assert found == ([] if expected.startswith("- ") else [tuple(expected.split())])


def test_a_sensor_names_its_part_and_state() -> None:
    """In the daemon's words."""
    (event,) = decode("smond[7]: : PSU2Fan1(PSU2 Fan): state changed from OK to BAD")
    assert event.attributes == {"switch": "leaf11", "part": "PSU2Fan1(PSU2 Fan)", "state": "BAD"}
    assert event.message == "PSU2Fan1(PSU2 Fan): state changed from OK to BAD"

"""SONiC's daemons."""

import pytest

from parsers.formats.switch import SwitchParser
from parsers.text.parser import Context, parse
from store.records.event import Event

# Kind, severity; a message that tells nothing has none.
ROWS = """
pfc_storm warning | swss#orchagent: :- f: PFC Watchdog detected PFC storm on port Ethernet4, queue index 3, queue id 0x1
pfc_storm warning | swss#orchagent: :- f: PFC Watchdog detected PFC storm on queue 0x15 port 0x1000013
pfc_storm info | swss#orchagent: :- f: PFC Watchdog storm restored on  port Ethernet24, queue index 3, queue id 0x1
link_down error | teamd#teamd_PortChannel0001[33]: carrier changed to DOWN
optics_alarm warning | pmon#xcvrd[27]: Ethernet0: Got SFP removed event
- - | pmon#xcvrd[27]: Ethernet0: Got SFP inserted event
optics_alarm warning | pmon#xcvrd[27]: CMIS: Ethernet4: timeout for 'AP_CONFIGURED'
switch_environment warning | pmon#psud: PSU absence warning: PSU 1 is not present.
switch_environment info | pmon#psud: PSU absence warning cleared: PSU 1 is inserted back.
switch_environment warning | pmon#psud: Power absence warning: PSU 2 is out of power.
switch_environment warning | pmon#thermalctld: Fan fault warning: Fan 3 is not working
switch_environment info | pmon#thermalctld: High temperature warning cleared, PSU 1 temperature restore to 75C
- - | pmon#thermalctld: Start thermal control loop
bgp_down warning | bgp#bgpd[45]: %ADJCHANGE: neighbor 10.0.0.1(spine01) in vrf default Down Interface down
bgp_up info | bgp#bgpd[45]: %ADJCHANGE: neighbor 10.0.0.1(spine01) in vrf default Up
switch_asic_error error | syncd#syncd: Unit 0: uncorrectable ECC error in memory L3_ENTRY
switch_asic_error warning | syncd#syncd: Unit 0: corrected parity error in memory L3_ENTRY
- - | syncd#syncd: :- processBulk: done
switch_reboot error | determine-reboot-cause: Reboot cause is Kernel Panic
switch_reboot info | determine-reboot-cause: Previous reboot cause: User issued 'reboot' command [User: admin]
switch_reboot info | reboot: User requested rebooting device ...
- - | myapp: Port Ethernet8 oper state set from up to down
"""


def decode(text: str) -> list[Event]:
    """The events of one message, behind a head."""
    return list(parse(SwitchParser(Context(year=2026)), ["May 23 09:17:00.000000 leaf01 NOTICE " + text]))


@pytest.mark.parametrize("row", ROWS.strip().splitlines())
def test_each_daemon_tells_its_own(row: str) -> None:
    """Storms, optics, fans, supplies, the chip, reboots."""
    expected, _, text = row.partition(" | ")
    found = [(e.kind, e.severity) for e in decode(text)]
    assert found == ([] if expected.startswith("- ") else [tuple(expected.split())])


def test_a_storm_names_its_port_and_queue() -> None:
    """Which priority was paused."""
    text = "swss#orchagent: :- f: PFC Watchdog detected PFC storm on port Ethernet24, queue index 3, queue id 0x1"
    assert decode(text)[0].attributes == {"switch": "leaf01", "name": "Ethernet24", "queue": 3}


def test_a_warning_names_its_part() -> None:
    """The fan or supply; a sum of them is of none."""
    (psu,), (fans,) = (
        decode("pmon#psud: PSU absence warning: PSU 1 is not present."),
        decode("pmon#thermalctld: Insufficient number of working fans warning: 1 fan is not working"),
    )
    assert (psu.attributes["part"], psu.device.type, psu.device.uuid) == ("PSU 1", "switch", "leaf01")
    assert "part" not in fans.attributes

"""Systems that name their messages: EOS, NX-OS, IOS, IOS-XR."""

import pytest

from parsers.fabric.switch_vendors import rules
from parsers.formats.switch import SwitchParser
from parsers.text.parser import Context, parse
from store.records.event import Event
from store.records.fault_catalog import kind_meanings

# Kind, severity, port; a message that tells nothing has none.
ROWS = """
link_down error Ethernet45 | %LINEPROTO-5-UPDOWN: Line protocol on Interface Ethernet45 (gpu-017), changed state to down
- - - | %LINEPROTO-5-UPDOWN: Line protocol on Interface Vlan100, changed state to down
- - - | %LINEPROTO-5-UPDOWN: Line protocol on Interface Loopback0, changed state to up
link_down warning Management1 | %LINEPROTO-5-UPDOWN: Line protocol on Interface Management1, changed state to down
- - - | %LINEPROTO-5-UPDOWN: Line protocol on Interface Vlan100 (by Ethernet5), changed state to down
- - - | %LINEPROTO-5-UPDOWN: something else
link_down error HundredGigE0/0/0/1 | %PKT_INFRA-LINK-3-UPDOWN : Interface HundredGigE0/0/0/1, changed state to Down
port_error_disabled error Ethernet5 | %ETH-4-ERRDISABLE: link-flap error detected on Ethernet5.
port_error_disabled error Gi1/0/6 | %PM-4-ERR_DISABLE: link-flap error detected on Gi1/0/6, shut down
link_down error Ethernet1/48 | %ETHPORT-5-IF_DOWN_LINK_FAILURE: Interface Ethernet1/48 is down (Link failure)
link_down warning mgmt0 | %ETHPORT-5-IF_DOWN_LINK_FAILURE: Interface mgmt0 is down (Link failure)
link_down info Ethernet1/1 | %ETHPORT-5-IF_DOWN_ADMIN_DOWN: Interface Ethernet1/1 is down (Administratively down)
link_up info port-channel12 | %ETHPORT-5-IF_UP: Interface port-channel12 is up in mode trunk
- - - | %ETHPORT-5-SPEED: Interface Ethernet1/1, operational speed changed to 100 Gbps
optics_alarm warning Ethernet8/9 | %ETHPORT-4-IF_XCVR_WARNING: Interface Ethernet8/9, Low Rx Power Warning
optics_alarm info Ethernet8/9 | %ETHPORT-4-IF_XCVR_WARNING: Interface Ethernet8/9, Low Rx Power Warning cleared
optics_alarm error Ethernet8/9 | %ETHPORT-3-IF_XCVR_ALARM: Interface Ethernet8/9, High Temperature Alarm
optics_alarm warning Te1/50 | %SFF8472-5-THRESHOLD_VIOLATION: Te1/50: Rx power low alarm; Operating value: -40.0 dBm
switch_environment error - | %PLATFORM-2-PS_FAIL: Power supply 1 failed or shutdown
switch_environment info - | %PLATFORM-2-PS_OK: Power supply 1 ok (Serial number X)
switch_environment error - | %PLATFORM-2-MOD_TEMPMAJALRM: Module-1 reported major temperature alarm
switch_environment info - | %PLATFORM-2-MOD_TEMPOK: Module-1 recovered from minor temperature alarm
switch_environment warning - | %ENVMON-3-FAN_FAILED: Fan 2 not rotating
switch_environment error - | %MODULE-2-MOD_DIAG_FAIL: Module 2 (Serial number: X) reported failure due to fatal error
switch_asic_error error - | %SAND-3-INTERRUPT_OCCURRED: Interrupt occurred on Jericho0
switch_asic_error error - | %HARDWARE-3-ERROR_DETECTED: x
switch_asic_error warning - | %HARDWARE-6-PERR_CORRECTED: x
switch_asic_error error - | %TAHUSD-SLOT1-2-TAHUSD_SYSLOG_CRIT: parity error
pfc_storm warning Ethernet1/21 | %TAHUSD-SLOT1-2-TAHUSD_PFCWD_QUEUE_SHUTDOWN: Ethernet1/21 queue 3 is shutdown
switch_reboot error - | %SYS-5-RESTART: System restarted --
switch_reboot info - | %SYS-5-RELOAD: Reload requested by admin
bgp_up info - | %BGP-5-ADJCHANGE: neighbor 10.1.1.1 Up
bgp_down warning - | %ROUTING-BGP-5-ADJCHANGE : neighbor 10.1.1.1 Down - Hold Timer Expired
- - - | %BGP-5-ADJCHANGE: peer 10.0.0.1 (VRF default AS 1) old state Idle event Start new state Connect
- - - | %AAA-5-LOGIN: user admin logged in
"""


def decode(text: str) -> list[Event]:
    """The events of one message, behind a head."""
    return list(parse(SwitchParser(Context(year=2026)), ["2026 Jun 18 03:42:11 leaf31 " + text]))


@pytest.mark.parametrize("row", ROWS.strip().splitlines())
def test_a_mnemonic_means_what_the_table_says(row: str) -> None:
    """The table's words, the text's direction."""
    expected, _, text = row.partition(" | ")
    found = [(e.kind, e.severity, e.attributes.get("name") or "-") for e in decode(text)]
    assert found == ([] if expected.startswith("- ") else [tuple(expected.split())])


def test_a_mnemonic_tells_why_and_who_is_at_the_other_end() -> None:
    """What the operator wrote of the port stands in brackets."""
    (eos,) = decode("%LINEPROTO-5-UPDOWN: Line protocol on Interface Et45 (gpu-017 mlx5_0), changed state to down")
    (nxos,) = decode(
        "%ETHPORT-5-IF_DOWN_ERROR_DISABLED: Interface Ethernet1/1 is down (Error disabled. Reason:BPDUGuard)"
    )
    assert (eos.attributes["description"], eos.attributes["mnemonic"]) == ("gpu-017 mlx5_0", "LINEPROTO-UPDOWN")
    assert nxos.attributes["reason"] == "Error disabled. Reason:BPDUGuard"


def test_every_mnemonic_has_a_kind_that_is_known() -> None:
    """The table agrees with the table of kinds, for cleared and for both directions too."""
    for rule in rules():
        if not rule.kind:
            continue
        assert (rule.kind, rule.variant) in kind_meanings(), rule
        assert rule.reading in ("", "clears", "updown"), rule
        if rule.reading == "clears":
            assert (rule.kind, "over") in kind_meanings(), rule

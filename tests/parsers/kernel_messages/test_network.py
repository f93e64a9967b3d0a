"""Network interfaces: bonds, links, stuck queues, full tables, EFA."""

# ruff: noqa: E501  # a row is one line of a log, kept whole

import pytest

from parsers.kernel_messages.families.network import NETWORK


@pytest.mark.parametrize(
    ("message", "kind", "severity", "name", "state"),
    [
        ("bond0: (slave enp83s0f0np0): link status definitely down, disabling slave", "bond_slave", "error", "enp83s0f0np0", "down"),
        ("bond0: (slave enp83s0f0np0): link status definitely up, 100000 Mbps full duplex", "bond_slave", "info", "enp83s0f0np0", "up"),
        ("bond0: link status definitely down for interface eth2, disabling it", "bond_slave", "error", "eth2", "down"),
        ("bond0: (slave enp83s0f0np0): speed changed to 0 on port 2", "bond_slave", "warning", "enp83s0f0np0", None),
        ("bond0: now running without any active interface!", "bond_down", "error", None, None),
        ("bond0: Warning: No 802.3ad response from the link partner for any adapters in the bond", "bond_no_partner", "warning", None, None),
        ("bnxt_en 0000:61:00.0 ens1f0np0: NIC Link is Down", "net_link", "error", "ens1f0np0", "down"),
        ("ice 0000:31:00.0 ens2: NIC Link is up 100 Gbps Full Duplex, Requested FEC: RS-FEC", "net_link", "info", "ens2", "up"),
        ("igb 0000:01:00.0 eno2: igb: eno2 NIC Link is Down", "net_link", "error", "eno2", "down"),
        ("tg3 0000:03:00.0 eth0: Link is down", "net_link", "error", "eth0", "down"),
        ("ionic 0000:b5:00.0 enp181s0: Link down", "net_link", "error", "enp181s0", "down"),
        ("ionic 0000:b5:00.0 enp181s0: Link up - 400 Gbps", "net_link", "info", "enp181s0", "up"),
        ("bnxt_en 0000:41:00.0 ens1: Fatal firmware reset event, data1: 0x2, data2: 0x8000, min wait 1 ms, max wait 2 ms", "net_firmware_reset", "error", "ens1", "fatal"),
        ("bnxt_en 0000:41:00.0 ens1: Firmware non-fatal reset event, data1: 0x1, data2: 0x0, min wait 1 ms, max wait 2 ms", "net_firmware_reset", "warning", "ens1", "non-fatal"),
        ("NETDEV WATCHDOG: ens1f0np0 (bnxt_en): transmit queue 7 timed out 5120 ms", "net_tx_timeout", "error", "ens1f0np0", None),
        ("ice 0000:31:00.0 ens2: NETDEV WATCHDOG: CPU: 3: transmit queue 1 timed out 5000 ms", "net_tx_timeout", "error", "ens2", None),
        ("bnxt_en 0000:61:00.0 ens1f0np0: TX timeout detected, starting reset task!", "net_tx_timeout", "error", "ens1f0np0", None),
        ("ena 0000:00:05.0 eth0: Keep alive watchdog timeout.", "net_tx_timeout", "error", "eth0", None),
        ("ib0: transmit timeout: latency 5120 msecs", "ib_tx_timeout", "error", "ib0", None),
        ("neighbour: arp_cache: neighbor table overflow!", "net_table_full", "warning", "arp_cache", None),
        ("neighbour: ndisc_cache: neighbour table overflow!", "net_table_full", "warning", "ndisc_cache", None),
        ("nf_conntrack: nf_conntrack: table full, dropping packet", "net_table_full", "warning", "nf_conntrack", None),
        ("infiniband rdmap0s6: Wait for completion (polling) timeout", "efa_failed", "error", "rdmap0s6", None),
        ("infiniband rdmap16s27: The device didn't send any completion for admin cmd CREATE_QP(6) status 0 (ctx 0x0)", "efa_failed", "error", "rdmap16s27", None),
        ("infiniband efa_0: Admin queue is closed", "efa_failed", "error", "efa_0", None),
        ("efa 0000:00:06.0: Reset indication didn't turn off", "efa_failed", "error", None, None),
        ("efa 0000:00:06.0: Device isn't ready, can't reset device", "efa_failed", "error", None, None),
        ("efa 0000:00:06.0: Device isn't ready, abort com init", "efa_failed", "error", None, None),
        ("infiniband rdmap0s6: Failed to process command CREATE_QP (opcode 6) comp_status 1 err -22", "efa_cmd_failed", "warning", "rdmap0s6", None),
        ("infiniband rdmap0s6: Failed to submit command REG_MR (opcode 9) err -12", "efa_cmd_failed", "warning", "rdmap0s6", None),
    ],
)  # fmt: skip
def test_an_interface_and_its_state(
    message: str, kind: str, severity: str, name: str | None, state: str | None
) -> None:
    """The same whatever the driver."""
    event = NETWORK.decode(message)
    assert event is not None
    assert (event.kind, event.severity) == (kind, severity)
    assert (event.attributes.get("name"), event.attributes.get("state")) == (name, state)


@pytest.mark.parametrize(
    "message",
    [
        "NETDEV WATCHDOG: eth0 (r8169): transmit queue 0 timed out",
        "NETDEV WATCHDOG: eno1 (igb): transmit queue 0 timed out",
        "NETDEV WATCHDOG: eth0 (mlx5_core): transmit queue 0 timed out",  # of mlx5's own family
        "bond0: active interface up!",
        "bond0: (slave eth0): link status up again after 100 ms",
        "bond0: (slave eth0): Enslaving as a backup interface with an up link",
        "r8169 0000:02:00.0: Link is odd",
        "ena 0000:00:05.0 eth0: Wait for completion (polling) timeout",
        "infiniband mlx5_0: Wait for completion (polling) timeout",
        "ena 0000:00:05.0: Device isn't ready, abort com init",
        "IPv6: ADDRCONF(NETDEV_CHANGE): bond0: link becomes ready",
    ],
)
def test_what_is_no_fault_of_the_network(message: str) -> None:
    """A management port's queue, another family's driver, a healthy start."""
    assert NETWORK.decode(message) is None


def test_a_stuck_queue_is_at_its_adapter() -> None:
    """Address, queue and how long."""
    event = NETWORK.decode("bnxt_en 0000:61:00.0 ens1: NETDEV WATCHDOG: CPU: 3: transmit queue 17 timed out 5000 ms")
    assert event is not None
    assert (event.device.type, event.device.pci) == ("nic", "0000:61:00.0")
    assert (event.attributes["queue"], event.attributes["waited_ms"], event.attributes["cpu"]) == (17, 5000, 3)


@pytest.mark.parametrize(
    ("message", "kind", "severity", "pci"),
    [
        ("bnxt_en 0000:41:00.0: QPLIB: cmdq[0xd3a]=0x9 status 0x3", "bnxt_cmd_failed", "warning", "0000:41:00.0"),
        ("bnxt_en 0000:19:00.0: QPLIB: cmdq[0x41d]=0x3 timedout (20000)msec", "bnxt_cmd_timeout", "error", "0000:19:00.0"),
        ("bnxt_en 0000:12:00.0: QPLIB: bnxt_re_is_fw_stalled: FW STALL Detected. cmdq[0xe]=0x3 waited (103641 > 100000) msec active 1 ", "bnxt_cmd_timeout", "error", "0000:12:00.0"),
        ("ice 0000:60:00.0: IRDMA hardware initialization FAILED init_state=4 status=-110", "net_init_failed", "error", "0000:60:00.0"),
        ("iavf 0000:00:05.0 enp0s5: NETDEV WATCHDOG: CPU: 1: transmit queue 0 timed out 5692 ms", "net_tx_timeout", "error", "0000:00:05.0"),
    ],
)  # fmt: skip
def test_rdma_of_broadcom_and_intel_is_at_its_adapter(message: str, kind: str, severity: str, pci: str) -> None:
    """A firmware that refuses, one that hangs, a driver that does not start."""
    event = NETWORK.decode(message)
    assert event is not None
    assert (event.kind, event.severity, event.device.type, event.device.pci) == (kind, severity, "nic", pci)

"""Network interfaces of other drivers, bonds, and tables that ran full.

    bond0: (slave enp83s0f0np0): link status definitely down, disabling slave
    -> Event(kind="bond_slave", device=Device("nic"),
             attributes={"bond": "bond0", "name": "enp83s0f0np0", "state": "down"})

Forms: drivers/net/bonding/bond_main.c, net/sched/sch_generic.c, drivers/net/ethernet/{broadcom,intel,amazon},
drivers/infiniband/ulp/ipoib of Linux 4.18 to 6.16.
"""

from parsers.kernel_messages.family import Family
from parsers.kernel_messages.form import PCI, Form, decoder, signs

# Adapters that carry training traffic. A stuck queue of a management port (r8169, igb ...) is no fault of the node.
_FABRIC_DRIVERS = r"(?P<driver>bnxt_en|ice|idpf|ionic|ena|gve|mlx4_en|cxgb4|hns3|enic|qede|be2net)"
# The EFA driver: by its address until it has a device, by the device's name then. The ENA driver says much the same.
_EFA = rf"(?:(?P<driver>efa) {PCI}|infiniband (?P<name>(?:rdmap|efa_)[\w-]{{1,40}})): "
_NIC = rf"(?P<driver>[a-z][\w-]{{1,20}}) {PCI} (?P<name>[^\s:]{{1,40}}): "

FORMS = (
    Form(
        "link status ",
        r"(?P<bond>[^\s:]{1,40}): link status (?P<state>definitely down|definitely up) for interface "
        r"(?P<name>[^\s,]{1,40}),",
        "bond_slave",
        device="nic",
        by="state",
        words={"definitely down": "down", "definitely up": "up"},
    ),
    Form(
        "link status ",
        r"(?P<bond>[^\s:]{1,40}): (?:\(slave (?P<name>[^\s()]{1,40})\): )?link status (?P<state>definitely "
        r"down|definitely up)\b",
        "bond_slave",
        device="nic",
        by="state",
        words={"definitely down": "down", "definitely up": "up"},
    ),
    Form(
        "speed changed to 0 on port",
        r"(?P<bond>[^\s:]{1,40}): \(slave (?P<name>[^\s()]{1,40})\): speed changed to 0 on port (?P<slave>\d{1,4})",
        "bond_slave",
        device="nic",
        variant="no_speed",
    ),
    Form(
        "without any active interface",
        r"(?P<bond>[^\s:]{1,40}): now running without any active interface",
        "bond_down",
        device="nic",
    ),
    Form(
        "No 802.3ad response",
        r"(?P<bond>[^\s:]{1,40}): Warning: No 802\.3ad response from the link partner",
        "bond_no_partner",
        device="nic",
    ),
    Form(
        " Link is ",
        rf"{_NIC}(?:[a-z][\w-]{{1,20}}: [^\s:]{{1,40}} )?(?:NIC )?Link is (?P<state>Down|Up|down|up)\b",
        "net_link",
        device="nic",
        by="state",
    ),
    Form(
        "NETDEV WATCHDOG: ",
        rf"{_FABRIC_DRIVERS} {PCI} (?P<name>[^\s:]{{1,40}}): NETDEV WATCHDOG: (?:CPU: (?P<cpu>\d{{1,5}}): )?transmit "
        r"queue (?P<queue>\d{1,6}) timed out(?: (?P<waited_ms>\d{1,12}) ms)?",
        "net_tx_timeout",
        device="nic",
    ),
    Form(
        "NETDEV WATCHDOG: ",
        rf"NETDEV WATCHDOG: (?P<name>\S{{1,40}}) \({_FABRIC_DRIVERS}\): transmit queue (?P<queue>\d{{1,6}}) timed out"
        r"(?: (?P<waited_ms>\d{1,12}) ms)?",
        "net_tx_timeout",
        device="nic",
    ),
    Form(
        "TX timeout detected",
        rf"{_FABRIC_DRIVERS} {PCI} (?P<name>[^\s:]{{1,40}}): TX timeout detected",
        "net_tx_timeout",
        device="nic",
    ),
    Form(
        "Keep alive watchdog timeout",
        rf"(?P<driver>ena|efa) {PCI}(?: (?P<name>[^\s:]{{1,40}}))?: Keep alive watchdog timeout",
        "net_tx_timeout",
        device="nic",
    ),
    Form(
        "Wait for completion (polling) timeout",
        rf"{_EFA}Wait for completion \(polling\) timeout",
        "efa_failed",
        device="hca",
    ),
    Form(
        "any completion for admin cmd",
        rf"{_EFA}The device didn't send any completion for admin cmd (?P<command>[\w-]{{1,40}})",
        "efa_failed",
        device="hca",
    ),
    Form("Admin queue is closed", rf"{_EFA}Admin queue is closed", "efa_failed", device="hca"),
    Form("Reset indication didn't turn", rf"{_EFA}Reset indication didn't turn (?:on|off)", "efa_failed", device="hca"),
    Form(
        "Device isn't ready, ",
        rf"{_EFA}Device isn't ready, (?:can't reset device|abort com init)",
        "efa_failed",
        device="hca",
    ),
    Form(
        "Failed to process command ",
        rf"{_EFA}Failed to process command (?P<command>\w{{1,40}}) \(opcode (?P<opcode>\d{{1,4}})\).{{0,40}}? err "
        r"(?P<err>-?\d{1,6})",
        "efa_cmd_failed",
        device="hca",
    ),
    Form(
        "Failed to submit command ",
        rf"{_EFA}Failed to submit command (?P<command>\w{{1,40}}) \(opcode (?P<opcode>\d{{1,4}})\).{{0,40}}? err "
        r"(?P<err>-?\d{1,6})",
        "efa_cmd_failed",
        device="hca",
    ),
    Form(
        "transmit timeout: latency",
        r"(?P<name>[^\s:]{1,40}): transmit timeout: latency (?P<waited_ms>\d{1,12}) msecs",
        "ib_tx_timeout",
        device="hca",
    ),
    Form(
        "table overflow!",
        r"(?:neighbour: )?(?P<name>[\w.-]{1,40}): [Nn]eighbou?r table overflow!",
        "net_table_full",
        device="nic",
    ),
    Form(
        "table full, dropping packet",
        r"(?P<name>nf_conntrack): (?:\S{1,40}: )?table full, dropping packet",
        "net_table_full",
        device="nic",
    ),
)

FAMILY = Family("network", signs(FORMS), decoder(FORMS))

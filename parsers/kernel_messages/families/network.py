"""Network adapters: NVIDIA's (Mellanox) ConnectX, interfaces of other drivers, bonds, and tables that ran full.

    bond0: (slave enp83s0f0np0): link status definitely down, disabling slave
    -> Event(kind="bond_slave", device=Device("nic"),
             attributes={"bond": "bond0", "name": "enp83s0f0np0", "state": "down"})

Forms: drivers/net/bonding/bond_main.c, net/sched/sch_generic.c, drivers/net/ethernet/{broadcom,intel,amazon},
drivers/infiniband/{ulp/ipoib,hw/hfi1} of Linux 4.18 to 6.16, HPE's cxi driver.
"""

from dataclasses import replace

from parsers.kernel_messages.family import PCI, MessageFamily, MessageForm, decoder, signs
from store.records.event import SEVERITIES, Event

# NVIDIA (Mellanox) ConnectX adapters: link, health, commands, modules, power.
#
#     mlx5_core 0000:d2:00.0: mlx5_cmd_out_err:838:(pid 1441871): ACCESS_REG(0x805) op_mod(0x1) failed, status bad ...
#     -> Event(kind="mlx5_cmd_failed", device=Device("hca", pci="0000:d2:00.0"),
#              attributes={"pid": 1441871, "command": "ACCESS_REG", "opcode": "0x805", ...})
#
# Forms: drivers/net/ethernet/mellanox/mlx5/core/{cmd,events,health,main}.c and en_main.c,
# drivers/infiniband/hw/mlx5/cq.c
# of Linux 4.18 to 6.16 and of MLNX_OFED, whose `Port: 1 Link DOWN` upstream has not.

# Address and interface stand where the driver knows them; the function and its line where it says them.
_HEAD = (
    r"(?=mlx5|wait_func|poll_health|print_health)"
    rf"(?:(?P<driver>mlx5_core)(?:\.sf\.\d{{1,6}})?(?: {PCI})?(?: (?P<name>[^\s:]{{1,40}}))?: (?:INFO: )?)?"
    r"(?:(?P<function>mlx5\w{0,60}|\w{1,60})(?::\d{1,6}|(?=: )): ?(?:\(pid (?P<pid>\d{1,10})\): )?)?"
)
_IB = r"(?:infiniband )?(?P<name>mlx5_\w{1,16})"

MLX5_FORMS = (
    MessageForm(
        ") op_mod(0x",
        rf"{_HEAD}(?P<command>[\w /-]{{1,60}})\((?P<opcode>0x[0-9a-f]{{1,8}})\) op_mod\("
        r"(?P<op_mod>0x[0-9a-f]{1,8})\)(?: uid\(?\s?\d{1,9}\)?)? failed(?:, status (?P<status>[^()]{1,60})\("
        r"(?P<status_code>0x[0-9a-f]{1,8}|-?\d{1,6})\)(?:, syndrome \((?P<syndrome>0x[0-9a-f]{1,8})\))?"
        r"(?:, err\((?P<err>-?\d{1,6})\))?)?",
        "mlx5_cmd_failed",
        device="hca",
    ),
    MessageForm(
        "leak of a command resource",
        rf"{_HEAD}(?:(?P<command>[\w /-]{{1,60}})\((?P<opcode>0x[0-9a-f]{{1,8}})\) )?timeout\. Will cause a leak",
        "mlx5_cmd_timeout",
        device="hca",
    ),
    MessageForm(
        "No done completion",
        rf"{_HEAD}(?:cmd\[\d{{1,4}}\]: )?(?P<command>[\w /-]{{1,60}})\((?P<opcode>0x[0-9a-f]{{1,8}})\) No done "
        r"completion",
        "mlx5_cmd_timeout",
        device="hca",
    ),
    MessageForm(
        "health compromised", rf"{_HEAD}device's health compromised", "mlx5_health", device="hca", variant="fatal"
    ),
    MessageForm(
        "Fatal error ",
        rf"{_HEAD}Fatal error (?P<sensor>\d{{1,4}}) detected",
        "mlx5_health",
        device="hca",
        variant="fatal",
    ),
    MessageForm(
        "Health issue observed",
        rf"{_HEAD}Health issue observed, (?P<error>[^,]{{1,80}}), severity\(\d{{1,2}}\) (?P<severity>\w{{1,16}})",
        "mlx5_health",
        device="hca",
        by="severity",
    ),
    MessageForm(
        "health recovery ",
        rf"{_HEAD}health recovery (?P<state>failed|succeeded|flow aborted)",
        "mlx5_health",
        device="hca",
        by="state",
    ),
    MessageForm("handling bad device here", rf"{_HEAD}handling bad device here", "mlx5_health", device="hca"),
    MessageForm(
        "Cold reset is required", rf"{_HEAD}Cold reset is required", "mlx5_health", device="hca", variant="fatal"
    ),
    MessageForm(
        "pre-initializing",
        rf"{_HEAD}Firmware over \d{{1,9}} MS in (?:pre-)?initializing state, aborting",
        "mlx5_health",
        device="hca",
        variant="fatal",
    ),
    MessageForm(
        "PCI slot is unavailable", rf"{_HEAD}PCI slot is unavailable", "mlx5_health", device="hca", variant="fatal"
    ),
    MessageForm(
        "synd 0x",
        rf"{_HEAD}synd (?P<synd>0x[0-9a-f]{{1,4}}): (?P<error>.{{1,60}}?)\.?$",
        "mlx5_health",
        device="hca",
        by="synd",
    ),
    MessageForm(
        "synd 0x",
        rf"{_HEAD}ext_synd (?P<ext_synd>0x[0-9a-f]{{1,8}})",
        "mlx5_health_detail",
        device="hca",
    ),
    MessageForm(
        "assert_",
        rf"{_HEAD}(?:assert_var\[0\] (?P<assert_var>0x[0-9a-f]{{1,8}})|assert_exit_ptr "
        r"(?P<assert_exit_ptr>0x[0-9a-f]{1,8})|assert_callra (?P<assert_callra>0x[0-9a-f]{1,8}))",
        "mlx5_health_detail",
        device="hca",
    ),
    MessageForm(
        "Port module event",
        rf"{_HEAD}Port module event(?:\[error\])?: module (?P<module>\d{{1,4}}), Cable error, High Temperature",
        "mlx5_module_temp",
        device="hca",
    ),
    MessageForm(
        "Port module event",
        rf"{_HEAD}Port module event(?:\[error\])?: module (?P<module>\d{{1,4}}), Cable (?P<state>error)(?:, "
        r"(?P<error>.{1,80}))?",
        "mlx5_module_error",
        device="hca",
    ),
    MessageForm(
        "Port module event",
        rf"{_HEAD}Port module event: module (?P<module>\d{{1,4}}), Cable (?P<state>unplugged)",
        "mlx5_module_unplugged",
        device="hca",
    ),
    MessageForm(
        "High temperature on sensors",
        rf"{_HEAD}High temperature on sensors with bit set (?P<sensors>.{{1,40}})",
        "mlx5_temp",
        device="hca",
    ),
    MessageForm(
        "insufficient power on the PCIe slot",
        rf"{_HEAD}Detected insufficient power on the PCIe slot \((?:(?P<watts>\d{{1,4}})[\d.]{{0,6}})?W\)",
        "mlx5_pcie_power",
        device="hca",
    ),
    MessageForm(
        "NETDEV WATCHDOG: ",
        rf"{_HEAD}NETDEV WATCHDOG: (?:CPU: (?P<cpu>\d{{1,5}}): )?transmit queue(?: (?P<queue>\d{{1,6}}))? timed out"
        r"(?: (?P<waited_ms>\d{1,12}) ms)?",
        "mlx5_tx_timeout",
        device="hca",
    ),
    MessageForm(
        "NETDEV WATCHDOG: ",
        r"NETDEV WATCHDOG: (?P<name>\S{1,40}) \((?P<driver>mlx5_core)\): transmit queue(?: (?P<queue>\d{1,6}))? timed "
        r"out(?: (?P<waited_ms>\d{1,12}) ms)?",
        "mlx5_tx_timeout",
        device="hca",
    ),
    MessageForm("TX timeout detected", rf"{_HEAD}TX timeout detected", "mlx5_tx_timeout", device="hca"),
    MessageForm(
        "TX timeout on ", rf"{_HEAD}TX timeout on (?:queue|SQ): (?P<queue>\d{{1,6}})", "mlx5_tx_timeout", device="hca"
    ),
    MessageForm(
        "RX timeout on channel", rf"{_HEAD}RX timeout on channel: (?P<queue>\d{{1,6}})", "mlx5_rx_timeout", device="hca"
    ),
    MessageForm(
        ": Link ",
        rf"(?P<driver>mlx5_core) {PCI} (?P<name>[^\s:]{{1,40}}): Link (?P<state>down|up)$",
        "net_link",
        device="hca",
        by="state",
    ),
    MessageForm(
        ": Port: ",
        rf"(?:(?P<driver>mlx5_core) {PCI} )?{_IB}: Port: (?P<port>\d{{1,4}}) Link (?P<state>[A-Za-z]{{1,16}})$",
        "ib_port",
        device="hca",
        by="state",
    ),
    MessageForm(
        "dump_cqe:",
        rf"{_IB}: ?dump_cqe:\d{{1,6}}:\(pid (?P<pid>\d{{1,10}})\): (?P<error>.{{1,120}})",
        "mlx5_cqe_error",
        device="hca",
    ),
    # A completion queue that overran; before Linux 5.1 `syndrom`.
    MessageForm(
        "CQ error on CQN",
        rf"{_HEAD}CQ error on CQN (?P<cqn>0x[0-9a-f]{{1,8}}), syndrome? (?P<syndrome>0x[0-9a-f]{{1,4}})",
        "mlx5_cqe_error",
        device="hca",
    ),
    MessageForm(
        "Error cqe on cqn",
        rf"{_HEAD}Error cqe on cqn (?P<cqn>0x[0-9a-f]{{1,8}}), .{{0,80}}?syndrome (?P<syndrome>0x[0-9a-f]{{1,4}})",
        "mlx5_cqe_error",
        device="hca",
    ),
    MessageForm(
        "_one failed with ",
        rf"{_HEAD}mlx5_(?:load|init)_one failed with(?: error code)?:? (?P<err>-?\d{{1,6}})",
        "mlx5_init_failed",
        device="hca",
    ),
    MessageForm(
        "mlx5_core: probe of",
        rf"(?P<driver>mlx5_core): probe of {PCI} failed with error (?P<err>-?\d{{1,6}})",
        "mlx5_init_failed",
        device="hca",
    ),
)


def merge_mlx5(head: Event, later: Event) -> Event | None:
    """A health report with its dump; a transmit timeout with the queue that stood still."""
    known, details = head.attributes, later.attributes
    if head.kind == "mlx5_health" and head.device == later.device:
        names_the_error = later.kind == head.kind and "synd" in details and "synd" not in known
        if not names_the_error and later.kind != "mlx5_health_detail":
            return None
        graver = SEVERITIES.index(later.severity) > SEVERITIES.index(head.severity)
        whole = replace(head, attributes={**details, **known})
        return replace(whole, severity=later.severity, action=later.action) if graver else whole
    same_interface = head.device.pci in (None, later.device.pci) and known.get("name") == details.get("name")
    if head.kind == later.kind == "mlx5_tx_timeout" and same_interface:
        return replace(head, attributes={**details, **known}, device=later.device)
    return None


MLX5 = MessageFamily(
    "mlx5", signs(MLX5_FORMS), decoder(MLX5_FORMS), merge_mlx5, heads=frozenset({"mlx5_health", "mlx5_tx_timeout"})
)


# Adapters that carry training traffic. A stuck queue of a management port (r8169, igb ...) is no fault of the node.
_FABRIC_DRIVERS = r"(?P<driver>bnxt_en|ice|iavf|idpf|ionic|ena|gve|mlx4_en|cxgb4|hns3|enic|qede|be2net)"
# The EFA driver: by its address until it has a device, by the device's name then. The ENA driver says much the same.
_EFA = rf"(?:(?P<driver>efa) {PCI}|infiniband (?P<name>(?:rdmap|efa_)[\w-]{{1,40}})): "
_NIC = rf"(?P<driver>[a-z][\w-]{{1,20}}) {PCI} (?P<name>[^\s:]{{1,40}}): "

NETWORK_FORMS = (
    MessageForm(
        "link status ",
        r"(?P<bond>[^\s:]{1,40}): link status (?P<state>definitely down|definitely up) for interface "
        r"(?P<name>[^\s,]{1,40}),",
        "bond_slave",
        device="nic",
        by="state",
        words={"definitely down": "down", "definitely up": "up"},
    ),
    MessageForm(
        "link status ",
        r"(?P<bond>[^\s:]{1,40}): (?:\(slave (?P<name>[^\s()]{1,40})\): )?link status (?P<state>definitely "
        r"down|definitely up)\b",
        "bond_slave",
        device="nic",
        by="state",
        words={"definitely down": "down", "definitely up": "up"},
    ),
    MessageForm(
        "speed changed to 0 on port",
        r"(?P<bond>[^\s:]{1,40}): \(slave (?P<name>[^\s()]{1,40})\): speed changed to 0 on port (?P<slave>\d{1,4})",
        "bond_slave",
        device="nic",
        variant="no_speed",
    ),
    MessageForm(
        "without any active interface",
        r"(?P<bond>[^\s:]{1,40}): now running without any active interface",
        "bond_down",
        device="nic",
    ),
    MessageForm(
        "No 802.3ad response",
        r"(?P<bond>[^\s:]{1,40}): Warning: No 802\.3ad response from the link partner",
        "bond_no_partner",
        device="nic",
    ),
    MessageForm(
        " Link is ",
        rf"{_NIC}(?:[a-z][\w-]{{1,20}}: [^\s:]{{1,40}} )?(?:NIC )?Link is (?P<state>Down|Up|down|up)\b",
        "net_link",
        device="nic",
        by="state",
    ),
    MessageForm(
        ": Link ",
        rf"(?P<driver>ionic) {PCI} (?P<name>[^\s:]{{1,40}}): Link (?P<state>down|up)(?:$| - \d{{1,6}} Gbps$)",
        "net_link",
        device="nic",
        by="state",
    ),
    MessageForm(
        " reset event",
        rf"(?P<driver>bnxt_en) {PCI} (?P<name>[^\s:]{{1,40}}): (?:Firmware )?"
        r"(?P<state>fatal|non-fatal|Fatal|Non-fatal) (?:firmware )?reset event\b",
        "net_firmware_reset",
        device="nic",
        by="state",
    ),
    # Firmware that answers no more: Broadcom's bnxt.c and bnxt_hwrm.c, Pensando's ionic_main.c and ionic_lif.c.
    MessageForm(
        "Firmware not responding, status: ",
        rf"(?P<driver>bnxt_en) {PCI} (?P<name>[^\s:]{{1,40}}): Firmware not responding, status: "
        r"(?P<status>0x[0-9a-f]{1,8})",
        "net_firmware_reset",
        device="nic",
        variant="silent",
    ),
    MessageForm(
        "Error (timeout: ",
        rf"(?P<driver>bnxt_en) {PCI} (?P<name>[^\s:]{{1,40}}): Error \(timeout: \d{{1,9}}\) msg "
        r"\{(?P<opcode>0x[0-9a-f]{1,4}) 0x[0-9a-f]{1,4}\} len:",
        "net_firmware_reset",
        device="nic",
        variant="silent",
    ),
    MessageForm(
        "FW Down: Stopping LIFs",
        rf"(?P<driver>ionic) {PCI}: FW Down: Stopping LIFs",
        "net_firmware_reset",
        device="nic",
        variant="silent",
    ),
    MessageForm(
        ": DEVCMD ",
        rf"(?P<driver>ionic) {PCI}: DEVCMD (?P<command>\w{{1,60}}) \((?P<opcode>\d{{1,5}})\) "
        r"timeout after \d{1,6} secs",
        "net_firmware_reset",
        device="nic",
        variant="silent",
    ),
    MessageForm(
        "NETDEV WATCHDOG: ",
        rf"{_FABRIC_DRIVERS} {PCI} (?P<name>[^\s:]{{1,40}}): NETDEV WATCHDOG: (?:CPU: (?P<cpu>\d{{1,5}}): )?transmit "
        r"queue (?P<queue>\d{1,6}) timed out(?: (?P<waited_ms>\d{1,12}) ms)?",
        "net_tx_timeout",
        device="nic",
    ),
    MessageForm(
        "NETDEV WATCHDOG: ",
        rf"NETDEV WATCHDOG: (?P<name>\S{{1,40}}) \({_FABRIC_DRIVERS}\): transmit queue (?P<queue>\d{{1,6}}) timed out"
        r"(?: (?P<waited_ms>\d{1,12}) ms)?",
        "net_tx_timeout",
        device="nic",
    ),
    MessageForm(
        "TX timeout detected",
        rf"{_FABRIC_DRIVERS} {PCI} (?P<name>[^\s:]{{1,40}}): TX timeout detected",
        "net_tx_timeout",
        device="nic",
    ),
    MessageForm(
        "Keep alive watchdog timeout",
        rf"(?P<driver>ena|efa) {PCI}(?: (?P<name>[^\s:]{{1,40}}))?: Keep alive watchdog timeout",
        "net_tx_timeout",
        device="nic",
    ),
    MessageForm(
        "Wait for completion (polling) timeout",
        rf"{_EFA}Wait for completion \(polling\) timeout",
        "efa_failed",
        device="hca",
    ),
    MessageForm(
        "any completion for admin cmd",
        rf"{_EFA}The device didn't send any completion for admin cmd (?P<command>[\w-]{{1,40}})",
        "efa_failed",
        device="hca",
    ),
    MessageForm("Admin queue is closed", rf"{_EFA}Admin queue is closed", "efa_failed", device="hca"),
    MessageForm(
        "Reset indication didn't turn", rf"{_EFA}Reset indication didn't turn (?:on|off)", "efa_failed", device="hca"
    ),
    MessageForm(
        "Device isn't ready, ",
        rf"{_EFA}Device isn't ready, (?:can't reset device|abort com init)",
        "efa_failed",
        device="hca",
    ),
    MessageForm(
        "Failed to process command ",
        rf"{_EFA}Failed to process command (?P<command>\w{{1,40}}) \(opcode (?P<opcode>\d{{1,4}})\).{{0,40}}? err "
        r"(?P<err>-?\d{1,6})",
        "efa_cmd_failed",
        device="hca",
    ),
    MessageForm(
        "Failed to submit command ",
        rf"{_EFA}Failed to submit command (?P<command>\w{{1,40}}) \(opcode (?P<opcode>\d{{1,4}})\).{{0,40}}? err "
        r"(?P<err>-?\d{1,6})",
        "efa_cmd_failed",
        device="hca",
    ),
    # Broadcom's RoCE: a command that the firmware refused, or that it did not answer.
    MessageForm(
        "QPLIB: cmdq[0x",
        rf"(?P<driver>bnxt_en) {PCI}: QPLIB: cmdq\[0x[0-9a-f]{{1,8}}\]=(?P<opcode>0x[0-9a-f]{{1,8}}) status "
        r"(?P<status>0x[0-9a-f]{1,8})$",
        "bnxt_cmd_failed",
        device="nic",
    ),
    MessageForm(
        "QPLIB: cmdq[0x",
        rf"(?P<driver>bnxt_en) {PCI}: QPLIB: cmdq\[0x[0-9a-f]{{1,8}}\]=(?P<opcode>0x[0-9a-f]{{1,8}}) timedout "
        r"\((?P<waited_ms>\d{1,9})\)msec",
        "bnxt_cmd_timeout",
        device="nic",
    ),
    MessageForm(
        "FW STALL Detected",
        rf"(?P<driver>bnxt_en) {PCI}: (?:QPLIB: )?bnxt_re_is_fw_stalled: FW STALL Detected\. cmdq\[0x[0-9a-f]{{1,8}}\]="
        r"(?P<opcode>0x[0-9a-f]{1,8}) waited \((?P<waited_ms>\d{1,9}) ",
        "bnxt_cmd_timeout",
        device="nic",
    ),
    MessageForm(
        "RDMA hardware initialization FAILED",
        rf"(?P<driver>ice|idpf|i40e) {PCI}: IRDMA hardware initialization FAILED(?: init_state=\d{{1,4}})?"
        r"(?: status=(?P<err>-?\d{1,6}))?",
        "net_init_failed",
        device="nic",
    ),
    MessageForm(
        "transmit timeout: latency",
        r"(?P<name>[^\s:]{1,40}): transmit timeout: latency (?P<waited_ms>\d{1,12}) msecs",
        "ib_tx_timeout",
        device="hca",
    ),
    # HPE Slingshot: the driver's name and a colon differ by release.
    MessageForm(
        "CXI_EVENT_LINK_",
        rf"(?P<driver>cxi_\w{{1,12}}) {PCI}: cxi\d{{1,3}}\[(?P<name>[\w.-]{{1,40}})\]:? CXI_EVENT_LINK_"
        r"(?P<state>DOWN|UP)\b",
        "net_link",
        device="nic",
        by="state",
    ),
    # Omni-Path: what lies between is on its way up.
    MessageForm(
        "state changed to PORT_",
        rf"(?P<driver>hfi1) {PCI}: (?P<name>hfi1_\d{{1,3}}): logical state changed to PORT_(?P<state>DOWN|ACTIVE) ",
        "ib_port",
        device="hca",
        by="state",
    ),
    MessageForm(
        "multicast join failed for",
        r"(?P<name>[\w.-]{1,40}): (?:sendonly )?multicast join failed for (?P<group>ff[0-9a-f]{2}:[0-9a-f:]{4,40}), "
        r"status (?P<err>-\d{1,6})",
        "ib_multicast",
        device="hca",
    ),
    MessageForm(
        "table overflow!",
        r"(?:neighbour: )?(?P<name>[\w.-]{1,40}): [Nn]eighbou?r table overflow!",
        "net_table_full",
        device="nic",
    ),
    MessageForm(
        "table full, dropping packet",
        r"(?P<name>nf_conntrack): (?:\S{1,40}: )?table full, dropping packet",
        "net_table_full",
        device="nic",
    ),
)

NETWORK = MessageFamily("network", signs(NETWORK_FORMS), decoder(NETWORK_FORMS))

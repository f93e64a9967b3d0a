r"""NVIDIA (Mellanox) ConnectX adapters: link, health, commands, modules, power.

    mlx5_core 0000:d2:00.0: mlx5_cmd_out_err:838:(pid 1441871): ACCESS_REG(0x805) op_mod(0x1) failed, status bad ...
    -> Event(kind="mlx5_cmd_failed", device=Device("hca", pci="0000:d2:00.0"),
             attributes={"pid": 1441871, "command": "ACCESS_REG", "opcode": "0x805", ...})

Forms: drivers/net/ethernet/mellanox/mlx5/core/{cmd,events,health,main}.c and en_main.c, drivers/infiniband/hw/mlx5/cq.c
of Linux 4.18 to 6.16 and of MLNX_OFED, whose `Port: 1 Link DOWN` upstream has not.
"""

from dataclasses import replace

from parsers.kernel_messages.family import Family
from parsers.kernel_messages.form import PCI, Form, decoder, signs
from store.event import SEVERITIES, Event

# Address and interface stand where the driver knows them; the function and its line where it says them.
_HEAD = (
    r"(?=mlx5|wait_func|poll_health|print_health)"
    rf"(?:(?P<driver>mlx5_core)(?:\.sf\.\d{{1,6}})?(?: {PCI})?(?: (?P<name>[^\s:]{{1,40}}))?: (?:INFO: )?)?"
    r"(?:(?P<function>mlx5\w{0,60}|\w{1,60})(?::\d{1,6}|(?=: )): ?(?:\(pid (?P<pid>\d{1,10})\): )?)?"
)
_IB = r"(?:infiniband )?(?P<name>mlx5_\w{1,16})"

FORMS = (
    Form(
        ") op_mod(0x",
        rf"{_HEAD}(?P<command>[\w /-]{{1,60}})\((?P<opcode>0x[0-9a-f]{{1,8}})\) op_mod\("
        r"(?P<op_mod>0x[0-9a-f]{1,8})\)(?: uid\(?\s?\d{1,9}\)?)? failed(?:, status (?P<status>[^()]{1,60})\("
        r"(?P<status_code>0x[0-9a-f]{1,8}|-?\d{1,6})\)(?:, syndrome \((?P<syndrome>0x[0-9a-f]{1,8})\))?"
        r"(?:, err\((?P<err>-?\d{1,6})\))?)?",
        "mlx5_cmd_failed",
        device="hca",
    ),
    Form(
        "leak of a command resource",
        rf"{_HEAD}(?:(?P<command>[\w /-]{{1,60}})\((?P<opcode>0x[0-9a-f]{{1,8}})\) )?timeout\. Will cause a leak",
        "mlx5_cmd_timeout",
        device="hca",
    ),
    Form(
        "No done completion",
        rf"{_HEAD}(?:cmd\[\d{{1,4}}\]: )?(?P<command>[\w /-]{{1,60}})\((?P<opcode>0x[0-9a-f]{{1,8}})\) No done "
        r"completion",
        "mlx5_cmd_timeout",
        device="hca",
    ),
    Form("health compromised", rf"{_HEAD}device's health compromised", "mlx5_health", device="hca", variant="fatal"),
    Form(
        "Fatal error ",
        rf"{_HEAD}Fatal error (?P<sensor>\d{{1,4}}) detected",
        "mlx5_health",
        device="hca",
        variant="fatal",
    ),
    Form(
        "Health issue observed",
        rf"{_HEAD}Health issue observed, (?P<error>[^,]{{1,80}}), severity\(\d{{1,2}}\) (?P<severity>\w{{1,16}})",
        "mlx5_health",
        device="hca",
        by="severity",
    ),
    Form(
        "health recovery ",
        rf"{_HEAD}health recovery (?P<state>failed|succeeded|flow aborted)",
        "mlx5_health",
        device="hca",
        by="state",
    ),
    Form("Cold reset is required", rf"{_HEAD}Cold reset is required", "mlx5_health", device="hca", variant="fatal"),
    Form(
        "pre-initializing",
        rf"{_HEAD}Firmware over \d{{1,9}} MS in (?:pre-)?initializing state, aborting",
        "mlx5_health",
        device="hca",
        variant="fatal",
    ),
    Form("PCI slot is unavailable", rf"{_HEAD}PCI slot is unavailable", "mlx5_health", device="hca", variant="fatal"),
    Form(
        "synd 0x",
        rf"{_HEAD}synd (?P<synd>0x[0-9a-f]{{1,4}}): (?P<error>.{{1,60}}?)\.?$",
        "mlx5_health",
        device="hca",
        by="synd",
    ),
    Form(
        "synd 0x",
        rf"{_HEAD}ext_synd (?P<ext_synd>0x[0-9a-f]{{1,8}})",
        "mlx5_health_detail",
        device="hca",
    ),
    Form(
        "assert_",
        rf"{_HEAD}(?:assert_var\[0\] (?P<assert_var>0x[0-9a-f]{{1,8}})|assert_exit_ptr "
        r"(?P<assert_exit_ptr>0x[0-9a-f]{1,8})|assert_callra (?P<assert_callra>0x[0-9a-f]{1,8}))",
        "mlx5_health_detail",
        device="hca",
    ),
    Form(
        "Port module event",
        rf"{_HEAD}Port module event(?:\[error\])?: module (?P<module>\d{{1,4}}), Cable error, High Temperature",
        "mlx5_module_temp",
        device="hca",
    ),
    Form(
        "Port module event",
        rf"{_HEAD}Port module event(?:\[error\])?: module (?P<module>\d{{1,4}}), Cable (?P<state>error)(?:, "
        r"(?P<error>.{1,80}))?",
        "mlx5_module_error",
        device="hca",
    ),
    Form(
        "Port module event",
        rf"{_HEAD}Port module event: module (?P<module>\d{{1,4}}), Cable (?P<state>unplugged)",
        "mlx5_module_unplugged",
        device="hca",
    ),
    Form(
        "High temperature on sensors",
        rf"{_HEAD}High temperature on sensors with bit set (?P<sensors>.{{1,40}})",
        "mlx5_temp",
        device="hca",
    ),
    Form(
        "insufficient power on the PCIe slot",
        rf"{_HEAD}Detected insufficient power on the PCIe slot \((?:(?P<watts>\d{{1,4}})[\d.]{{0,6}})?W\)",
        "mlx5_pcie_power",
        device="hca",
    ),
    Form(
        "NETDEV WATCHDOG: ",
        rf"{_HEAD}NETDEV WATCHDOG: (?:CPU: (?P<cpu>\d{{1,5}}): )?transmit queue(?: (?P<queue>\d{{1,6}}))? timed out"
        r"(?: (?P<waited_ms>\d{1,12}) ms)?",
        "mlx5_tx_timeout",
        device="hca",
    ),
    Form(
        "NETDEV WATCHDOG: ",
        r"NETDEV WATCHDOG: (?P<name>\S{1,40}) \((?P<driver>mlx5_core)\): transmit queue(?: (?P<queue>\d{1,6}))? timed "
        r"out(?: (?P<waited_ms>\d{1,12}) ms)?",
        "mlx5_tx_timeout",
        device="hca",
    ),
    Form("TX timeout detected", rf"{_HEAD}TX timeout detected", "mlx5_tx_timeout", device="hca"),
    Form(
        "TX timeout on ", rf"{_HEAD}TX timeout on (?:queue|SQ): (?P<queue>\d{{1,6}})", "mlx5_tx_timeout", device="hca"
    ),
    Form(
        "RX timeout on channel", rf"{_HEAD}RX timeout on channel: (?P<queue>\d{{1,6}})", "mlx5_rx_timeout", device="hca"
    ),
    Form(
        ": Link ",
        rf"(?P<driver>mlx5_core) {PCI} (?P<name>[^\s:]{{1,40}}): Link (?P<state>down|up)$",
        "net_link",
        device="hca",
        by="state",
    ),
    Form(
        ": Port: ",
        rf"(?:(?P<driver>mlx5_core) {PCI} )?{_IB}: Port: (?P<port>\d{{1,4}}) Link (?P<state>[A-Za-z]{{1,16}})$",
        "ib_port",
        device="hca",
        by="state",
    ),
    Form(
        "dump_cqe:",
        rf"{_IB}: ?dump_cqe:\d{{1,6}}:\(pid (?P<pid>\d{{1,10}})\): (?P<error>.{{1,120}})",
        "mlx5_cqe_error",
        device="hca",
    ),
    Form(
        "Error cqe on cqn",
        rf"{_HEAD}Error cqe on cqn (?P<cqn>0x[0-9a-f]{{1,8}}), .{{0,80}}?syndrome (?P<syndrome>0x[0-9a-f]{{1,4}})",
        "mlx5_cqe_error",
        device="hca",
    ),
    Form(
        "_one failed with ",
        rf"{_HEAD}mlx5_(?:load|init)_one failed with(?: error code)?:? (?P<err>-?\d{{1,6}})",
        "mlx5_init_failed",
        device="hca",
    ),
    Form(
        "mlx5_core: probe of",
        rf"(?P<driver>mlx5_core): probe of {PCI} failed with error (?P<err>-?\d{{1,6}})",
        "mlx5_init_failed",
        device="hca",
    ),
)


def merge(head: Event, later: Event) -> Event | None:
    """A health report with its dump; a transmit timeout with the queue that stood still."""
    known, told = head.attributes, later.attributes
    whole = replace(head, attributes={**told, **known})
    if head.kind == "mlx5_health" and head.device == later.device:
        names_the_error = later.kind == head.kind and "synd" in told and "synd" not in known
        if not names_the_error and later.kind != "mlx5_health_detail":
            return None
        graver = SEVERITIES.index(later.severity) > SEVERITIES.index(head.severity)
        return replace(whole, severity=later.severity, action=later.action) if graver else whole
    same_interface = head.device.pci in (None, later.device.pci) and known.get("name") == told.get("name")
    if head.kind == later.kind == "mlx5_tx_timeout" and same_interface:
        return replace(whole, device=later.device)
    return None


FAMILY = Family("mlx5", signs(FORMS), decoder(FORMS), merge, heads=frozenset({"mlx5_health", "mlx5_tx_timeout"}))

"""ConnectX adapters: every line of the drivers that tells a fault."""

# ruff: noqa: E501  # a row is one line of a log, kept whole

import pytest

from parsers.formats.kernel import KernelParser
from parsers.kernel_messages.families.network import MLX5
from parsers.text.parser import Context, parse
from store.records.event import Event

AT = "mlx5_core 0000:d2:00.0: "


def decode(*lines: str) -> list[Event]:
    """The events of lines of one second."""
    return list(parse(KernelParser(Context()), (f"[    9.{number:06}] {line}" for number, line in enumerate(lines))))


@pytest.mark.parametrize(
    ("message", "kind", "severity", "attributes"),
    [
        (f"{AT}mlx5_cmd_out_err:838:(pid 1441871): ACCESS_REG(0x805) op_mod(0x1) failed, status bad operation(0x2), syndrome (0x9a6171), err(-22)", "mlx5_cmd_failed", "warning", {"pid": 1441871, "command": "ACCESS_REG", "status": "bad operation", "syndrome": "0x9a6171", "err": -22}),
        (f"{AT}mlx5_cmd_check:755:(pid 12): CREATE_MKEY(0x200) op_mod(0x0) failed, status limits exceeded(0x8), syndrome (0x1)", "mlx5_cmd_failed", "warning", {"status": "limits exceeded"}),
        (f"{AT}mlx5_cmd_out_err:838:(pid 123): ACCESS_REG(0x805) op_mod(0x0) failed", "mlx5_cmd_failed", "warning", {"pid": 123}),
        ("mlx5_cmd_out_err:838:(pid 1441871): ACCESS_REG(0x805) op_mod(0x1) failed, status bad operation(0x2)", "mlx5_cmd_failed", "warning", {"pid": 1441871}),
        (f"{AT}wait_func:964:(pid 112): ENABLE_HCA(0x104) timeout. Will cause a leak of a command resource", "mlx5_cmd_timeout", "error", {"command": "ENABLE_HCA"}),
        (f"{AT}wait_func:1195: timeout. Will cause a leak of a command resource", "mlx5_cmd_timeout", "error", {"function": "wait_func"}),
        (f"{AT}wait_func_handle_exec_timeout:1108:(pid 5): cmd[3]: CREATE_CQ(0x400) No done completion", "mlx5_cmd_timeout", "error", {"command": "CREATE_CQ"}),
        (f"{AT}poll_health:825: device's health compromised - reached miss count.", "mlx5_health", "fatal", {}),
        (f"{AT}device's health compromised", "mlx5_health", "fatal", {}),
        (f"{AT}poll_health:807:(pid 0): Fatal error 3 detected", "mlx5_health", "fatal", {"sensor": "3"}),
        (f"{AT}print_health_info:424:(pid 0): Health issue observed, High temperature, severity(4) WARNING:", "mlx5_health", "warning", {"error": "High temperature"}),
        ("mlx5_core: INFO: synd 0x8: unrecoverable hardware error.", "mlx5_health", "fatal", {"synd": "0x8", "error": "unrecoverable hardware error"}),
        (f"{AT}synd 0x1: firmware internal error", "mlx5_health", "error", {"synd": "0x1"}),
        (f"{AT}ext_synd 0x8d1e", "mlx5_health_detail", "info", {"ext_synd": "0x8d1e"}),
        (f"{AT}mlx5_health_try_recover:327:(pid 9): health recovery flow aborted, PCI reads still not working", "mlx5_health", "fatal", {"state": "flow aborted"}),
        (f"{AT}health recovery succeeded", "mlx5_health", "info", {"state": "succeeded"}),
        (f"{AT}print_health_info:446:(pid 0): Cold reset is required", "mlx5_health", "fatal", {}),
        (f"{AT}wait_fw_init:199:(pid 1): Firmware over 120000 MS in pre-initializing state, aborting", "mlx5_health", "fatal", {}),
        (f"{AT}print_health_info:419:(pid 0): PCI slot is unavailable", "mlx5_health", "fatal", {}),
        (f"{AT}Port module event[error]: module 0, Cable error, High Temperature", "mlx5_module_temp", "error", {"module": 0}),
        (f"{AT}mlx5_port_module_event:1131:(pid 0): Port module event[error]: module 0, Cable error, High Temperature", "mlx5_module_temp", "error", {"module": 0}),
        (f"{AT}Port module event[error]: module 1, Cable error, Power budget exceeded", "mlx5_module_error", "error", {"error": "Power budget exceeded"}),
        ("mlx5_core 0000:63:00.1: Port module event: module 1, Cable unplugged", "mlx5_module_unplugged", "warning", {"module": 1}),
        (f"{AT}temp_warn:169:(pid 0): High temperature on sensors with bit set 0 1", "mlx5_temp", "warning", {"sensors": "0 1"}),
        (f"{AT}mlx5_pcie_event:299:(pid 268269): Detected insufficient power on the PCIe slot (27W).", "mlx5_pcie_power", "warning", {"watts": 27, "pid": 268269}),
        ("mlx5_core: Detected insufficient power on the PCIe slot (W).", "mlx5_pcie_power", "warning", {}),
        ("mlx5_core: mlx5_pcie_event: Detected insufficient power on the PCIe slot (15W).", "mlx5_pcie_power", "warning", {"watts": 15}),
        ("NETDEV WATCHDOG: eth0 (mlx5_core): transmit queue 0 timed out", "mlx5_tx_timeout", "error", {"name": "eth0", "queue": 0}),
        ("NETDEV WATCHDOG: eth0 (mlx5_core): transmit queue timed out", "mlx5_tx_timeout", "error", {"name": "eth0"}),
        ("mlx5_core 0000:65:00.0 ens15np0: NETDEV WATCHDOG: CPU: 94: transmit queue 3 timed out 5032 ms", "mlx5_tx_timeout", "error", {"name": "ens15np0", "cpu": 94, "waited_ms": 5032}),
        ("mlx5_core 0000:65:00.0 ens15np0: TX timeout detected", "mlx5_tx_timeout", "error", {"name": "ens15np0"}),
        ("mlx5_core 0000:65:00.0 ens15np0: RX timeout on channel: 20, ICOSQ: 0x1ee0, RQ: 0x1e43, CQ: 0x3ea6", "mlx5_rx_timeout", "error", {"queue": 20}),
        ("mlx5_core 0000:53:00.0 enp83s0f0np0: Link down", "net_link", "error", {"name": "enp83s0f0np0", "state": "down"}),
        ("mlx5_core 0000:53:00.0 enp83s0f0np0: Link up", "net_link", "info", {"state": "up"}),
        ("mlx5_core 0000:ab:00.0 mlx5_5: Port: 1 Link INIT", "ib_port", "info", {"name": "mlx5_5", "state": "init"}),
        ("mlx5_core 0000:ab:00.0 mlx5_5: Port: 2 Link DOWN", "ib_port", "error", {"state": "down"}),
        ("infiniband mlx5_0: dump_cqe:272:(pid 77): WC error: 12, Message: transport retry counter exceeded", "mlx5_cqe_error", "warning", {"name": "mlx5_0"}),
        ("mlx5_0:dump_cqe:278:(pid 0): dump error cqe", "mlx5_cqe_error", "warning", {"name": "mlx5_0"}),
        ("mlx5_core 0000:1a:00.0 ens1np0: Error cqe on cqn 0x5a9, ci 0x0, qn 0x5e3, opcode 0xd, syndrome 0x2, vendor syndrome 0x0", "mlx5_cqe_error", "warning", {"syndrome": "0x2"}),
        (f"{AT}init_one:1371:(pid 803): mlx5_load_one failed with error code -22", "mlx5_init_failed", "error", {"err": -22}),
        (f"{AT}probe_one:1488:(pid 803): mlx5_init_one failed with error code -110", "mlx5_init_failed", "error", {"err": -110}),
        ("mlx5_core: probe of 0000:41:00.0 failed with error -22", "mlx5_init_failed", "error", {"err": -22}),
    ],
)  # fmt: skip
def test_a_fault_of_the_adapter(message: str, kind: str, severity: str, attributes: dict[str, object]) -> None:
    """Its kind, how grave it is, and what it says."""
    event = MLX5.decode(message)
    assert event is not None
    assert (event.kind, event.severity, event.device.type) == (kind, severity, "hca")
    assert attributes.items() <= event.attributes.items()
    assert event.device.pci is None or event.device.pci.startswith("0000:")


def test_a_port_is_a_place_of_the_device() -> None:
    """Not an attribute."""
    event = MLX5.decode("mlx5_core 0000:ab:00.0 mlx5_5: Port: 2 Link ACTIVE")
    assert event is not None
    assert (event.device.pci, event.device.port) == ("0000:ab:00.0", 2)
    assert "port" not in event.attributes


@pytest.mark.parametrize(
    "message",
    [
        f"{AT}Port module event: module 0, Cable plugged",
        f"{AT}mlx5_pcie_event:296:(pid 377): PCIe slot advertised sufficient power (75W).",
        f"{AT}firmware version: 28.39.1002",
        "mlx5_core 0000:41:00.0 enp65s0f0np0: renamed from eth0",
        "NETDEV WATCHDOG: eth0 (r8169): transmit queue 0 timed out",
        "r8169 0000:65:00.0 eth0: TX timeout detected",
        "amdgpu 0000:c1:00.0: Fatal error 3 detected",
        "note: mlx5_core 0000:53:00.0 enp83s0f0np0: Link down",
        "mlx5_core 0000:53:00.0 enp83s0f0np0: Link downgraded",
    ],
)
def test_other_messages_are_no_faults_of_the_adapter(message: str) -> None:
    """A cable that is in, another driver, a quotation."""
    assert MLX5.decode(message) is None


def test_a_health_report_with_its_dump_is_one_event_as_grave_as_its_syndrome() -> None:
    """The head says error, the syndrome that the hardware is gone."""
    (event,) = decode(
        f"{AT}print_health_info:424:(pid 0): Health issue observed, unrecoverable hardware error, severity(3) ERROR:",
        f"{AT}print_health_info:428:(pid 0): assert_var[0] 0x00000001",
        f"{AT}print_health_info:428:(pid 0): assert_var[1] 0x00000002",
        f"{AT}print_health_info:440:(pid 0): synd 0x8: unrecoverable hardware error",
        f"{AT}print_health_info:441:(pid 0): ext_synd 0x8d1e",
    )
    assert (event.kind, event.severity, event.action, event.line) == ("mlx5_health", "fatal", "reboot_node", 1)
    assert (event.attributes["assert_var"], event.attributes["ext_synd"]) == ("0x00000001", "0x8d1e")


def test_a_dump_does_not_make_a_dead_adapter_less_grave() -> None:
    """A missed health counter is fatal whatever the syndrome."""
    (event,) = decode(f"{AT}device's health compromised - reached miss count", f"{AT}synd 0x1: firmware internal error")
    assert (event.severity, event.attributes["synd"]) == ("fatal", "0x1")


def test_reports_of_two_adapters_are_two_events() -> None:
    """And two reports of one."""
    other = AT.replace("d2", "5c")
    report = "poll_health:807:(pid 0): Fatal error 3 detected"
    assert len(decode(f"{AT}{report}", f"{other}{report}", f"{AT}{report}")) == 3


def test_a_dump_of_another_adapter_stays_apart() -> None:
    """Two may die at once."""
    first, second = decode(f"{AT}device's health compromised", f"{AT.replace('d2', '5c')}synd 0x8: unrecoverable error")
    assert [first.device.pci, second.device.pci] == ["0000:d2:00.0", "0000:5c:00.0"]
    assert "synd" not in first.attributes


def test_a_transmit_timeout_told_three_times_is_one_event_with_its_queue() -> None:
    """The first line names no address."""
    (event,) = decode(
        "NETDEV WATCHDOG: ens15np0 (mlx5_core): transmit queue 3 timed out",
        "mlx5_core 0000:65:00.0 ens15np0: TX timeout detected",
        "mlx5_core 0000:65:00.0 ens15np0: TX timeout on queue: 3, SQ: 0x5e7, CQ: 0x4b1, SQ Cons: 0x1 SQ Prod: 0x2",
    )
    assert (event.device.pci, event.attributes["queue"]) == ("0000:65:00.0", 3)
    assert (
        len(
            decode(
                "NETDEV WATCHDOG: a (mlx5_core): transmit queue 3 timed out",
                "NETDEV WATCHDOG: b (mlx5_core): transmit queue 3 timed out",
            )
        )
        == 2
    )


@pytest.mark.parametrize(
    "message",
    [
        f"{AT}mlx5_eq_int:556:(pid 0): CQ error on CQN 0x40a, syndrom 0x1",
        f"{AT}cq_err_event_notifier:517:(pid 0): CQ error on CQN 0x40a, syndrome 0x1",
    ],
)
def test_a_completion_queue_that_overran_is_told(message: str) -> None:
    """In the spelling of older kernels and of newer ones."""
    event = MLX5.decode(message)
    assert event is not None
    assert (event.kind, event.device.pci, event.attributes["cqn"]) == ("mlx5_cqe_error", "0000:d2:00.0", "0x40a")

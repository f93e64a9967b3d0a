"""Intel Gaudi's driver's messages."""

import pytest

from parsers.kernel_messages.families.accelerators import HABANALABS, decode_habanalabs

PCI = "0000:33:00.0"
FAILED = ("gpu_init_failure", "error", 3, PCI, {})


@pytest.mark.parametrize(
    ("message", "kind", "severity", "index", "pci", "attributes"),
    [
        (
            "habanalabs hl3: HBM0_MC0_DERR: ECC error detected. address: 0x1. Syndrome: 0x3. wrapper id 2. block id 0x41. critical 1.",  # noqa: E501  # one real line
            "habana_ecc",
            "fatal",
            3,
            None,
            {"unit": "HBM0_MC0_DERR", "critical": 1},
        ),
        (
            "accel accel0: TPC1_DERR: ECC error detected. address: 0x1. Syndrom: 0x3. block id 2. critical 0.",
            "habana_ecc",
            "error",
            0,
            None,
            {"unit": "TPC1_DERR"},
        ),
        (
            "accel accel0: DEC0_SERR: ECC error detected. address: 0x1. Syndrom: 0x3. block id 2. critical 0.",
            "habana_ecc",
            "info",
            0,
            None,
            {"unit": "DEC0_SERR"},
        ),
        (
            "habanalabs hl1: ECC error detected. address: 0x1. Syndrom: 0x3. block id 2",
            "habana_ecc",
            "error",
            1,
            None,
            {},
        ),
        (
            "accel accel1: System Error Interrupt - HBM(2) MC(0) MC_CH(1) MC_PC(0). Error cause: x",
            "habana_hbm",
            "error",
            1,
            None,
            {"hbm": 2, "mc": 0},
        ),
        (
            "habanalabs 0000:19:00.0: Device heartbeat failed! PCI link is broken",
            "habana_heartbeat_lost",
            "fatal",
            None,
            "0000:19:00.0",
            {},
        ),
        ("habanalabs hl0: Device heartbeat failed! PCI link is healthy", "habana_heartbeat_lost", "error", 0, None, {}),
        ("habanalabs hl0: Device heartbeat failed!", "habana_heartbeat_lost", "error", 0, None, {}),
        ("habanalabs hl0: Going to reset device", "gpu_reset", "warning", 0, None, {}),
        ("habanalabs hl0: Going to RESET device!", "gpu_reset", "warning", 0, None, {}),
        ("habanalabs hl0: Successfully finished resetting the 0000:19:00.0 device", "gpu_reset", "info", 0, None, {}),
        ("habanalabs hl0: Failed to reset! Device is NOT usable", "gpu_reset", "fatal", 0, None, {}),
        ("accel accel3: 0000:33:00.0 Failed to reset! Device is NOT usable", "gpu_reset", "fatal", 3, PCI, {}),
        (
            f"habanalabs {PCI}: Failed to initialize hl3. Device is NOT usable !",
            "gpu_init_failure",
            "error",
            3,
            PCI,
            {},
        ),
        (f"habanalabs: Failed to initialize accel3. Device {PCI} is NOT usable!", *FAILED),
    ],
)
def test_each_fault_of_the_driver_is_told(  # a table's columns
    message: str, kind: str, severity: str, index: int | None, pci: str | None, attributes: dict[str, object]
) -> None:
    """By character device or address."""
    event = decode_habanalabs(message)
    assert event is not None
    assert any(sign in message for sign in HABANALABS.signs)
    assert (event.kind, event.severity, event.attributes) == (kind, severity, attributes)
    assert (event.device.type, event.device.index, event.device.pci) == ("hpu", index, pci)


@pytest.mark.parametrize(
    "message",
    [
        "habanalabs hl0: Going to reset device after release by user",
        "habanalabs 0000:19:00.0: Loading firmware to device, may take some time...",
        "mydriver hl0: Device heartbeat failed!",
        "ECC error detected. address: 0x1",
    ],
)
def test_what_tells_no_fault_gives_none(message: str) -> None:
    """The driver's start, a user's own reset, other drivers."""
    assert decode_habanalabs(message) is None

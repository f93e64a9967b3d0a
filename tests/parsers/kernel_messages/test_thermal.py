"""Heat and power of the host."""

# ruff: noqa: E501  # a row is one line of a log, kept whole

import pytest

from parsers.kernel_messages.families.host import THERMAL


@pytest.mark.parametrize(
    ("message", "kind", "severity", "attributes"),
    [
        ("mce: CPU12: Package temperature above threshold, cpu clock throttled (total events = 5)", "cpu_throttled", "warning", {"cpu": 12, "domain": "Package", "state": "throttled", "total_events": 5}),
        ("CPU3: Core temperature is above threshold, cpu clock is throttled (total events = 1)", "cpu_throttled", "warning", {"cpu": 3, "domain": "Core"}),
        ("CPU4: Package temperature above threshold, cpu clock throttled", "cpu_throttled", "warning", {"cpu": 4}),
        ("mce: CPU12: Package temperature/speed normal", "cpu_throttled", "info", {"state": "normal"}),
        ("CPU0: Core temperature/speed normal (total events = 5)", "cpu_throttled", "info", {"cpu": 0}),
        ("CPU0: Package power limit notification (total events = 1)", "cpu_power_limit", "warning", {"state": "notification"}),
        ("CPU0: Core power limit normal", "cpu_power_limit", "info", {"state": "normal"}),
        ("thermal thermal_zone0: critical temperature reached (98 C), shutting down", "thermal_shutdown", "fatal", {"temp_c": 98, "zone": "thermal_zone0"}),
        ("thermal thermal_zone0: acpitz: critical temperature reached, shutting down", "thermal_shutdown", "fatal", {"name": "acpitz"}),
        ("reboot: HARDWARE PROTECTION shutdown (Temperature too high)", "thermal_shutdown", "fatal", {"reason": "Temperature too high"}),
        ("ipmi_si IPI0001:00: BMC returned incorrect response, expected netfn 7 cmd 1, got netfn 7 cmd 3b", "bmc_error", "warning", {}),
    ],
)  # fmt: skip
def test_heat_and_what_it_slows_down(message: str, kind: str, severity: str, attributes: dict[str, object]) -> None:
    """The end of a throttling is a notice."""
    event = THERMAL.decode(message)
    assert event is not None
    assert (event.kind, event.severity) == (kind, severity)
    assert attributes.items() <= event.attributes.items()


@pytest.mark.parametrize(
    "message",
    [
        "mce: CPU0: Thermal monitoring enabled (TM1)",
        "thermal LNXTHERM:00: registered as thermal_zone0",
        "thermal_sys: Registered thermal governor 'step_wise'",
        "ipmi_si IPI0001:00: Found new BMC (man_id: 0x002a7c, prod_id: 0x1b6b, dev_id: 0x20)",
    ],
)
def test_a_cool_start_is_no_event(message: str) -> None:
    """What a healthy host says of heat."""
    assert THERMAL.decode(message) is None

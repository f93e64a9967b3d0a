"""Heat and power of the host: processors slowed down, critical temperatures, a failing management controller.

    mce: CPU12: Package temperature above threshold, cpu clock throttled (total events = 5)
    -> Event(kind="cpu_throttled", device=Device("cpu"),
             attributes={"cpu": 12, "domain": "Package", "state": "throttled", "total_events": 5})

Forms: drivers/thermal/intel/therm_throt.c, drivers/thermal/thermal_core.c, kernel/reboot.c,
drivers/char/ipmi of Linux 3.10 to 6.16.
"""

from parsers.kernel_messages.family import Family
from parsers.kernel_messages.form import Form, decoder, signs

_CPU = r"(?:mce: )?(?:\[Hardware Error\]: )?CPU(?P<cpu>\d{1,5}): (?P<domain>Core|Package) "

FORMS = (
    Form(
        "cpu clock ",
        rf"{_CPU}temperature (?:is )?above threshold, cpu clock (?:is )?(?P<state>throttled)(?: \(total events = "
        r"(?P<total_events>\d{1,18})\))?",
        "cpu_throttled",
        device="cpu",
    ),
    Form(
        "temperature/speed normal",
        rf"{_CPU}temperature/speed (?P<state>normal)",
        "cpu_throttled",
        device="cpu",
        by="state",
    ),
    Form(
        "power limit no",
        rf"{_CPU}power limit (?P<state>notification|normal)(?: \(total events = (?P<total_events>\d{{1,18}})\))?",
        "cpu_power_limit",
        device="cpu",
        by="state",
    ),
    Form(
        "ritical temperature reached",
        r"(?:thermal (?P<zone>[\w:.-]{1,40}): )?(?:(?P<name>[\w.-]{1,40}): )?(?:ACPI: )?[Cc]ritical temperature "
        r"reached(?: ?\((?P<temp_c>\d{1,4}) ?C\))?,? ?(?:shutting down)?",
        "thermal_shutdown",
    ),
    Form(
        "HARDWARE PROTECTION",
        r"(?:reboot: )?HARDWARE PROTECTION (?P<state>shutdown|reboot) \((?P<reason>[^()]{1,80})\)",
        "thermal_shutdown",
    ),
    Form(
        "BMC returned",
        r"(?:ipmi_\w{1,12} \S{1,40}: |IPMI message handler: )BMC returned (?P<error>.{1,120})",
        "bmc_error",
    ),
)

FAMILY = Family("thermal", signs(FORMS), decoder(FORMS))

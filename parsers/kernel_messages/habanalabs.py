"""Intel Gaudi's driver: memory errors, a firmware that does not answer, resets.

    habanalabs hl3: HBM0_MC0_DERR: ECC error detected. address: 0x1001. Syndrome: 0x3. wrapper id 2. block id 0x41. critical 1.
    -> Event(kind="habana_ecc", severity="fatal", device=Device("hpu", index=3), attributes={"unit": "HBM0_MC0_DERR", "critical": 1})

Forms: the kernel's drivers/accel/habanalabs (common/device.c, gaudi2/gaudi2.c, gaudi/gaudi.c). The device is told by
its character device (hl3, accel3) or its PCI address.
"""  # noqa: E501  # the second line is one line of code

import re

from parsers.kernel_messages.family import Family
from parsers.pci import canonical
from store.catalog import judged
from store.event import Attribute, Device, Event

_HEAD = re.compile(
    r"(?:habanalabs|accel) (?:(?:hl|accel)(?P<index>\d{1,4})|(?P<pci>[0-9a-fA-F:.]{7,16})): "
    r"(?:(?P<unit>[A-Z][A-Z0-9_]{2,80}): )?",
    re.ASCII,
)
_FORMS: tuple[tuple[str, str, re.Pattern[str]], ...] = tuple(
    (kind, variant, re.compile(pattern, re.ASCII))
    for kind, variant, pattern in (
        ("habana_ecc", "critical", r"ECC error detected\..{0,200}critical (?P<critical>[1-9])"),
        ("habana_ecc", "uncorrectable", r"ECC error detected\."),
        ("habana_hbm", "", r"System Error Interrupt - HBM\((?P<hbm>\d{1,4})\) MC\((?P<mc>\d{1,4})\)"),
        ("habana_heartbeat_lost", "link", r"Device heartbeat failed! PCI link is broken"),
        ("habana_heartbeat_lost", "", r"Device heartbeat failed!"),
        ("gpu_reset", "begin", r"Going to (?:reset|RESET) device(?:!|$|\n)"),
        ("gpu_reset", "succeeded", r"Successfully finished resetting the"),
        ("gpu_reset", "failed", r"Failed to reset! Device is NOT usable"),
    )
)
_NUMBERS = frozenset({"critical", "hbm", "mc"})


def decode(message: str) -> Event | None:
    """The event of the driver's message, without time and node; None where it tells no fault."""
    head = _HEAD.match(message)
    if not head:
        return None
    for kind, variant, pattern in _FORMS:
        if match := pattern.match(message, head.end()):
            attributes: dict[str, Attribute] = {"unit": head["unit"]} if head["unit"] else {}
            attributes |= {name: int(value) for name, value in match.groupdict().items() if name in _NUMBERS}
            corrected = variant == "uncorrectable" and (head["unit"] or "").endswith("SERR")
            event = Event(
                time=None,
                node=None,
                source="kernel",
                kind=kind,
                device=Device(
                    type="hpu",
                    pci=canonical(head["pci"]) if head["pci"] else None,
                    index=int(head["index"]) if head["index"] else None,
                ),
                message=message[head.end() :].strip(),
                attributes=attributes,
            )
            return judged(event, "correctable" if corrected else variant)
    return None


FAMILY = Family(
    name="habanalabs",
    signs=(
        "ECC error detected. address",
        "System Error Interrupt - HBM",
        "Device heartbeat failed!",
        "Going to reset device",
        "Going to RESET device",
        "Successfully finished resetting the",
        "Device is NOT usable",
    ),
    decode=decode,
)

"""What an entry of a management controller's event log (SEL) means, by its sensor's type and its words.

    meaning_of("Power Supply", "#0x51", "Power Supply AC lost")    -> SelMeaning("power_supply", "input", "over")
    meaning_of("Memory", "", "DIMM A3 Uncorrectable ECC")          -> SelMeaning("edac", "ue", device="dimm")

The types and words are those of IPMI 2.0 section 42.2, as ipmitool, FreeIPMI and Redfish's log entries have them.
"""

import re
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SelMeaning:
    """What an entry is: its kind and variant while it lasts (None: no event), and the variant of its end (likewise)."""

    kind: str
    variant: str | None = ""
    over: str | None = None
    device: str | None = None


def _health(grave: bool = False) -> SelMeaning:
    return SelMeaning("health_event", "grave" if grave else "")


_REDUNDANCY = r"redundancy (?:lost|degraded)|non-redundant"
_WELL = r"fully redundant|transition to ok"
_WORSE = r"transition to (?:critical|non-recoverable)"
_WORSENS = "transition to non-critical from ok"
_BACK = r"lower .{0,40}going high|upper .{0,40}going low"
_SUPPLY, _FAN = ("power supply", "power unit"), ("fan", "cooling device")
_SLOT = ("slot / connector", "slot/connector", "cable / interconnect", "cable/interconnect")
# By the sensor's type, as both programs write it, and the entry's words: the first that fits.
_MEANINGS: tuple[tuple[tuple[str, ...], str, SelMeaning], ...] = (
    (("power unit",), "240va", _health(grave=True)),
    (("power unit",), r"power (?:off|cycle)|interlock", SelMeaning("node_power", "off", "on")),
    (_SUPPLY, r"failure detected|soft-power control", SelMeaning("power_supply", "failed", "over")),
    (_SUPPLY, r"(?:ac|input) lost|out-of-range", SelMeaning("power_supply", "input", "over")),
    (_SUPPLY, rf"predictive failure|config|{_REDUNDANCY}|{_WORSE}|{_WORSENS}", SelMeaning("power_supply", "", "over")),
    (_SUPPLY, _WELL, SelMeaning("power_supply", "over")),
    (_SUPPLY, "presence detected", SelMeaning("power_supply", None, "")),
    (_FAN, rf"lower .{{0,40}}going high|{_WELL}", SelMeaning("node_fan", "over")),
    (
        _FAN,
        rf"lower (?:critical|non-recoverable)|failure detected|fault|{_WORSE}",
        SelMeaning("node_fan", "failed", "over"),
    ),
    (
        _FAN,
        rf"lower non-critical|predictive failure|{_REDUNDANCY}|absent|{_WORSENS}",
        SelMeaning("node_fan", "", "over"),
    ),
    (("processor", "chip set", "temperature"), r"therm(?:al)?[ _]?trip", SelMeaning("thermal_shutdown", device="cpu")),
    (("temperature",), rf"upper .{{0,40}}going low|{_WELL}", SelMeaning("node_hot", "over")),
    (("temperature",), rf"upper (?:critical|non-recoverable)|{_WORSE}", SelMeaning("node_hot", "critical", "over")),
    (
        ("temperature",),
        r"upper non-critical|limit (?:not )?exceeded|transition to non-critical",
        SelMeaning("node_hot", "", "over"),
    ),
    (("processor",), r"(?<!un)correctable machine check", SelMeaning("mce", "corrected", device="cpu")),
    (("processor",), r"machine check", SelMeaning("mce", "uncorrected", device="cpu")),
    (
        ("processor",),
        r"(?<![a-z])(?:cat|i)_?err(?![a-z])|frb|uncorrectable cpu",
        SelMeaning("mce", "fatal", device="cpu"),
    ),
    (("processor",), r"throttled", SelMeaning("cpu_throttled", "", "normal", "cpu")),
    (("processor",), r"configuration error|disabled", _health(grave=True)),
    (("memory",), r"uncorrectable (?:ecc|memory)|parity", SelMeaning("edac", "ue", device="dimm")),
    (("memory",), r"correctable (?:ecc|memory)", SelMeaning("edac", "ce", device="dimm")),
    # A maker's sensor that counts corrected errors: `Mem ECC Warning`.
    (("memory",), rf"ecc .*(?:{_WORSE}|{_WORSENS})", SelMeaning("edac", "ce", device="dimm")),
    (("memory",), r"overtemperature", SelMeaning("node_hot", "critical", "over")),
    (("memory",), r"disabled|scrub failed|configuration error", _health(grave=True)),
    (("critical interrupt",), r"bus fatal", SelMeaning("pcie_aer", "fatal")),
    (("critical interrupt",), r"bus uncorrectable|pci [sp]err", SelMeaning("pcie_aer", "nonfatal")),
    (("critical interrupt",), r"bus correctable", SelMeaning("pcie_aer", "correctable")),
    (("critical interrupt",), r"bus degraded", SelMeaning("pcie_degraded")),
    (("critical interrupt",), r"fatal nmi|bus timeout|channel check", _health(grave=True)),
    (("drive slot / bay", "drive slot"), r"drive fault|failed array|(?:rebuild|remap) aborted", _health(grave=True)),
    (("drive slot / bay", "drive slot"), r"predictive failure|critical array", _health()),
    (_SLOT, r"fault status|config", _health()),
    (("add-in card", "add in card"), r"absent", _health(grave=True)),
    (("watchdog2", "watchdog 2"), r"hard reset|power (?:down|cycle)", _health(grave=True)),
    (("watchdog1", "watchdog 1"), r"reset|power (?:down|cycle)|shut down", _health(grave=True)),
    (
        ("system firmwares", "system firmware progress", "system firmware error"),
        r"no (?:usable )?system memory|unrecoverable (?!ps/2|diskette|video)|corruption|mismatch"
        r"|(?:firmware|unknown) (?:error|hang)",
        _health(grave=True),
    ),
    (("system firmware hang",), r"\w", _health(grave=True)),
    (
        ("management subsys health", "management subsystem health"),
        r"degraded|off-?line|unavailable|failure",
        SelMeaning("bmc_error"),
    ),
    (("event logging disabled",), r"\b(?:log|sel) full", _health()),
    (("os critical stop", "os stop/shutdown"), r"critical stop", SelMeaning("kernel_panic")),
    (("voltage", "current"), _BACK, SelMeaning("health_event", None)),
    (("voltage", "current"), rf"(?:lower|upper) (?:critical|non-recoverable)|{_WORSE}", _health(grave=True)),
    (("voltage", "current"), r"(?:lower|upper) non-critical", _health()),
    (("battery",), r"\blow\b|failed", _health()),
)
_RULES = tuple((types, re.compile(words, re.IGNORECASE), meaning) for types, words, meaning in _MEANINGS)
TYPES = sorted({one for types, _words, _meaning in _MEANINGS for one in types}, key=len, reverse=True)
_LEAK = re.compile(r"leak", re.IGNORECASE)
# Words that say of a leak's sensor how it is, and of no leak.
_NO_LEAK = re.compile(rf"present|presence|absent|enabled|disabled|informational|monitor|running|{_BACK}", re.IGNORECASE)
# States that say something together with their sensor's name alone: `CATERR`, `State Asserted`.
_BY_NAME = re.compile(r"(?:state|limit|transition|predictive) |$", re.IGNORECASE)
# Words of a state that say by themselves that it is over.
ENDED = re.compile(r"(?:^| )deasserted$|^limit not exceeded$", re.IGNORECASE)


def meaning_of(kind: str, sensor: str, words: str) -> SelMeaning | None:
    """What an entry means by its sensor's type and name and by its words; None of what is no fault."""
    name = kind.lower()
    said = f"{sensor} {words}" if _BY_NAME.match(words) else words
    for types, pattern, meaning in _RULES:
        if name in types and pattern.search(said):
            return meaning
    leaks = _LEAK.search(f"{kind} {sensor}") and not _NO_LEAK.search(words)
    if not leaks:
        return None
    return SelMeaning("coolant_leak", "over" if words.lower() == "transition to ok" else "", "over")

"""Memory and processors: EDAC, machine checks, APEI reports, failed pages."""

# ruff: noqa: E501  # a row is one line of a log, kept whole

import pytest

from parsers.formats.kernel import KernelParser
from parsers.kernel_messages.families.memory import MEMORY
from parsers.text.parser import Context, parse
from store.records.event import Event


def decode(*lines: str) -> list[Event]:
    """The events of lines of one second."""
    return list(parse(KernelParser(Context()), (f"[    9.{number:06}] {line}" for number, line in enumerate(lines))))


@pytest.mark.parametrize(
    ("rest", "severity", "told", "dimm", "count"),
    [
        ("MC0: 1 CE memory read error on CPU_SrcID#0_MC#0_Chan#1_DIMM#0 (xxx xxx)", "warning", "ce", "CPU_SrcID#0_MC#0_Chan#1_DIMM#0", 1),
        ("MC0: 1 CE memory read error on CPU_SrcID#0_Ha#0_Chan#1_DIMM#0", "warning", "ce", "CPU_SrcID#0_Ha#0_Chan#1_DIMM#0", 1),
        ("MC3: 12 UE memory scrubbing error on A or B (channel:0 page:0x8a01 grain:32)", "error", "ue", "A or B", 12),
        ("MC0: 1 CE Read error on mc#0branch#0channel#1slot#0 (branch:0 channel:1 slot:0 page:0x0 - Rank=0, CE Err=0x2000 (Correctable Data ECC)))", "warning", "ce", "mc#0branch#0channel#1slot#0", 1),
        ("MC0: 1 CE DIMM 1 rank 1 bank 4 row 65056 col 1020 on any memory ( page:0x0 offset:0x0 grain:0 syndrome:0x0)", "warning", "ce", "any memory", 1),
        ("MC0: 1 CE Master abort on unknown label ( page:0xdead offset:0xbeef grain:-61441 syndrome:0x0)", "warning", "ce", "unknown label", 1),
        ("MC1: 2 CE on mc#0csrow#1channel#0 (csrow:1 channel:0 page:0x7b3)", "warning", "ce", "mc#0csrow#1channel#0", 2),
        ("MC0: 1 CE on DIMM_A1", "warning", "ce", "DIMM_A1", 1),
        ('MC0: CE page 0x42ba3, offset 0x580, grain 0, syndrome 0x1f54, row 0, channel 1, label "DIMM_A2": i3200 CE', "warning", "ce", "DIMM_A2", None),
        ("MC0: UE - no information available: e752x UE log register overflow", "error", "ue", None, None),
        ("DEVICE0: UE: l3 instance: cpu0 block: L3 count: 2 'bad parity'", "error", "ue", "L3", 2),
    ],
)  # fmt: skip
def test_memory_errors_name_their_dimm(
    rest: str, severity: str, told: str, dimm: str | None, count: int | None
) -> None:
    """Of every EDAC driver, old and new."""
    event = MEMORY.decode(f"EDAC {rest}")
    assert event is not None
    assert (event.kind, event.severity, event.attributes["severity"]) == ("edac", severity, told)
    assert (event.device.type, event.attributes.get("dimm"), event.attributes.get("count")) == ("dimm", dimm, count)


@pytest.mark.parametrize(
    ("message", "cpu", "bank", "severity"),
    [
        ("mce: [Hardware Error]: CPU 0: Machine Check Exception: f Bank 3: bd80000000070134", 0, 3, "fatal"),
        ("[Hardware Error]: CPU 178: Machine Check Exception: 5 Bank 6: ba00000011000402", 178, 6, "fatal"),
        ("CPU 1: Machine Check Exception:                4 Bank 4:  f600200137080813", 1, 4, "fatal"),
        ("mce: [Hardware Error]: CPU 2: Machine Check: 0 Bank 4: e600000000020408", 2, 4, "fatal"),
        ("mce: [Hardware Error]: CPU 2: Machine Check: 0 Bank 4: bc00000000010092", 2, 4, "error"),
        ("mce: [Hardware Error]: CPU 2: Machine Check: 0 Bank 7: 8c00004000010091", 2, 7, "warning"),
        ("[Hardware Error]: CPU:2 (19:1:1) MC18_STATUS[-|CE|MiscV|-]: 0x9c2041000000011b", 2, 18, "warning"),
        ("[Hardware Error]: CPU:2 (19:1:1) MC0_STATUS[Over|UE|MiscV|PCC]: 0xfe2041000000011b", 2, 0, "fatal"),
    ],
)
def test_a_machine_check_is_judged_by_its_status(message: str, cpu: int, bank: int, severity: str) -> None:
    """An exception and a corrupt context are fatal, uncorrected is an error, the rest a precursor."""
    event = MEMORY.decode(message)
    assert event is not None
    assert (event.kind, event.severity, event.device.type) == ("mce", severity, "cpu")
    assert (event.attributes["cpu"], event.attributes["bank"]) == (cpu, bank)


def test_a_machine_check_bears_its_registers() -> None:
    """The lines that follow it."""
    (event,) = decode(
        "mce: [Hardware Error]: CPU 18: Machine Check Exception: 5 Bank 7: be00000001010091",
        "mce: [Hardware Error]: RIP !INEXACT! 10:<ffffffffac58472a>",
        "mce: [Hardware Error]: TSC ae4b410af0b8 ADDR 314d193000 MISC 200400c008002086",
        "mce: [Hardware Error]: PROCESSOR 0:50657 TIME 1611400000 SOCKET 1 APIC 40 microcode 5003303",
    )
    assert (event.kind, event.line) == ("mce", 1)
    assert (event.attributes["address"], event.attributes["socket"]) == ("314d193000", 1)


@pytest.mark.parametrize(
    ("check", "tsc", "severity"),
    [
        ("Machine Check: 0", "0", "error"),
        ("Machine Check: 0", "ae4b410af0b8", "fatal"),
        ("Machine Check Exception: 5", "0", "fatal"),
    ],
)
def test_a_machine_check_from_before_the_boot_is_no_fault_of_now(check: str, tsc: str, severity: str) -> None:
    """What the banks still hold after a reset is found without a clock and without an exception: it holds no node."""
    (event,) = decode(
        f"mce: [Hardware Error]: CPU 9: {check} Bank 5: bea0000000000108",
        f"mce: [Hardware Error]: TSC {tsc} ADDR 1ffffc0754f4a MISC d012000100000000 SYND 4d000000 IPID 500b000000000",
        "mce: [Hardware Error]: PROCESSOR 2:870f10 TIME 1709068166 SOCKET 0 APIC 3 microcode 8701030",
    )
    assert (event.kind, event.severity, event.attributes["processor"]) == ("mce", severity, "2:870f10")


def test_amds_verdict_and_its_registers_are_one_event() -> None:
    """Five lines of drivers/edac/mce_amd.c."""
    (event,) = decode(
        "[Hardware Error]: Deferred error, no action required.",
        "[Hardware Error]: CPU:2 (19:1:1) MC18_STATUS[-|-|MiscV|AddrV|Deferred|-]: 0x9c2041000000011b",
        "[Hardware Error]: Error Addr: 0x00000004c2b41c00",
        "[Hardware Error]: IPID: 0x0000009600250f00, Syndrome: 0x00001000a800200",
        "[Hardware Error]: Unified Memory Controller Ext. Error Code: 0, DRAM ECC error.",
    )
    assert (event.kind, event.severity, event.attributes["state"]) == ("mce", "warning", "deferred")
    assert (event.attributes["bank"], event.attributes["error"]) == (18, "DRAM ECC error")


# A Ryzen's boot, as its owners publish it: no clock, no exception.
AMD_BOOT = (
    "[Hardware Error]: System Fatal error.",
    "[Hardware Error]: CPU:10 (17:1:1) MC5_STATUS[-|UE|MiscV|PCC|AddrV|-|-|SyndV|TCC]: 0xbea0000000000108",
    "[Hardware Error]: Error Addr: 0x0001ffff810796c0",
    "[Hardware Error]: IPID: 0x000500b000000000, Syndrome: 0x000000004d000000",
    "[Hardware Error]: Execution Unit Extended Error Code: 0",
    "[Hardware Error]: Execution Unit Error: Watchdog timeout error.",
    "[Hardware Error]: cache level: RESV, tx: GEN, mem-tx: GEN",
)


def test_amds_fatal_verdict_of_a_boots_start_is_no_fault_of_now() -> None:
    """What the processor stopped at was before the boot that reads it from its banks: it holds no node."""
    (event,) = decode(*AMD_BOOT)
    assert (event.kind, event.severity, event.action) == ("mce", "error", "run_diagnostics")
    assert (event.attributes["cpu"], event.attributes["bank"], event.attributes["state"]) == (10, 5, "fatal")
    (event,) = decode(*(f"mce: {line}" for line in AMD_BOOT[:2]))
    assert event.severity == "error"


def test_amds_fatal_verdict_with_a_clock_stays_fatal() -> None:
    """A record that a running kernel dated."""
    (event,) = decode(*AMD_BOOT[:3], "[Hardware Error]: TSC: 191239812371")
    assert (event.severity, event.attributes["tsc"]) == ("fatal", "191239812371")


def test_amds_decoder_after_an_exception_is_of_that_exception() -> None:
    """Kernels before 4.10 print both: the exception was taken, and is fatal."""
    (event,) = decode("[Hardware Error]: CPU 10: Machine Check Exception: 4 Bank 5: bea0000000000108", *AMD_BOOT)
    assert (event.severity, event.action, event.attributes["state"]) == ("fatal", "drain_node", "fatal")


def test_two_machine_checks_are_two_events() -> None:
    """Of one moment."""
    check = "mce: [Hardware Error]: CPU {}: Machine Check: 0 Bank 7: 8c00004000010091"
    assert [event.attributes["cpu"] for event in decode(check.format(1), check.format(2))] == [1, 2]


@pytest.mark.parametrize(
    ("word", "severity"), [("fatal", "fatal"), ("recoverable", "error"), ("corrected", "warning"), ("info", "info")]
)
def test_the_firmwares_report_is_as_grave_as_it_says(word: str, severity: str) -> None:
    """APEI, in the form of today and of 2.6."""
    for message in (f"{{1}}[Hardware Error]: event severity: {word}", f"[Hardware Error]: severity: 2, {word}"):
        event = MEMORY.decode(message)
        assert event is not None
        assert (event.kind, event.severity) == ("ghes", severity)


@pytest.mark.parametrize(
    ("word", "severity"), [("fatal", "error"), ("recoverable", "error"), ("corrected", "warning"), ("info", "info")]
)
def test_what_the_firmware_kept_from_before_the_boot_is_no_fault_of_now(word: str, severity: str) -> None:
    """The boot error record table, printed at a boot: without the number in braces that a live report bears."""
    (event,) = decode(
        "BERT: Error records from previous boot:",
        f"[Hardware Error]: event severity: {word}",
        f"[Hardware Error]:  Error 0, type: {word}",
        "[Hardware Error]:   section type: unknown, 81212a96-09ed-4996-9471-8d729c8e69ed",
    )
    assert (event.kind, event.severity, event.attributes["severity"]) == ("ghes", severity, word)


def test_a_report_over_a_device_is_of_that_device() -> None:
    """The PCIe section names it; the head says how grave it is."""
    (event,) = decode(
        "{1}[Hardware Error]: Hardware error from APEI Generic Hardware Error Source: 4",
        "{1}[Hardware Error]: event severity: fatal",
        "{1}[Hardware Error]:  Error 0, type: fatal",
        "{1}[Hardware Error]:   section_type: PCIe error",
        "{1}[Hardware Error]:   device_id: 0000:3b:00.0",
        "{1}[Hardware Error]:   vendor_id: 0x10de, device_id: 0x2330",
    )
    assert (event.kind, event.severity, event.device.type, event.device.pci) == ("ghes", "fatal", "pci", "0000:3b:00.0")


def test_a_report_over_memory_names_the_dimm() -> None:
    """The memory section's place."""
    (event,) = decode(
        "{7}[Hardware Error]: event severity: corrected",
        "{7}[Hardware Error]:   section_type: memory error",
        "{7}[Hardware Error]:   error_type: 2, single-bit ECC",
        "{7}[Hardware Error]:   DIMM location: P1-DIMMA1 DMI handle: 0x0000",
    )
    assert (event.severity, event.device.type) == ("warning", "dimm")
    assert (event.attributes["error"], event.attributes["section"]) == ("single-bit ECC", "memory error")


@pytest.mark.parametrize(
    ("message", "kind", "severity"),
    [
        ("mce: [Hardware Error]: Machine check events logged", "mce", "warning"),
        ("mce: CMCI storm detected: switching to poll mode", "mce", "warning"),
        ("mce: CPU 12 BANK 7 CMCI storm detected", "mce", "warning"),
        ("Memory failure: 0x1a2b3c: recovery action for dirty LRU page: Recovered", "memory_failure", "warning"),
        ("Memory failure: 0x1a2b3c: recovery action for reserved kernel page: Ignored", "memory_failure", "error"),
        ("Memory failure: 0x1a2b3c: Killing python:42 due to hardware memory corruption", "memory_failure", "error"),
        ("mce: Uncorrected hardware memory error in user-access at 3d41c9d1c0", "memory_failure", "error"),
        ("RAS: Soft-offlining pfn: 0x9c1b3", "page_offlined", "warning"),
        ("mce: CPU0: Thermal monitoring enabled (TM1)", None, None),
        ("EDAC MC: Ver: 3.0.0", None, None),
        (
            "EDAC MC0: Giving out device to module skx_edac controller Skylake Socket#0 IMC#0: DEV 0000:3a:0a.0 (INTERRUPT)",
            None,
            None,
        ),
        ("EDAC MC0: Removed device 0 for skx_edac", None, None),
        ("{1}[Hardware Error]: It has been corrected by h/w and requires no further action", None, None),
        ("mce: [Hardware Error]: Run the above through 'mcelog --ascii'", None, None),
    ],
)
def test_the_rest_of_memory(message: str, kind: str | None, severity: str | None) -> None:
    """Faults, and what a healthy start says."""
    event = MEMORY.decode(message)
    assert (event and event.kind, event and event.severity) == (kind, severity)

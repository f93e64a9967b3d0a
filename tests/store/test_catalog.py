"""The fault catalogues: every row reads, and says what the field knows of the codes that matter."""

import re
from importlib import resources

import pytest

from store.catalog_rows import rows
from store.records import fault_catalog
from store.records.event import ACTIONS, CAUSES, SEVERITIES, Cause, Severity
from store.records.fault_catalog import nvlink5, sxid, xid


@pytest.mark.parametrize("table", ["xid", "sxid"])
def test_every_code_stands_once_with_known_words(table: str) -> None:
    """A code twice would hide one of its meanings."""
    codes = [int(row["code"]) for row in rows(table)]
    assert len(codes) == len(set(codes)) > 50
    for row in rows(table):
        assert row["severity"] in (*SEVERITIES, "printed"), row
        assert row["cause"] in CAUSES, row
        assert row["action"] in ACTIONS or row["severity"] == "printed", row


@pytest.mark.parametrize("table", ["xid", "sxid", "nvlink5", "outage_reasons"])
def test_every_table_names_its_source(table: str) -> None:
    """In its first lines, so that a figure can be checked."""
    text = resources.files("store").joinpath(f"catalogs/{table}.csv").read_text(encoding="utf-8")
    comment = "".join(line for line in text.splitlines() if line.startswith("#"))
    assert "ource" in comment


@pytest.mark.parametrize(
    ("code", "severity", "cause"),
    [
        (79, "fatal", "hardware"),
        (13, None, "application"),
        (31, None, "application"),
        (43, None, "application"),
        (45, None, "application"),
        (48, None, "hardware"),
        (63, None, "hardware"),
        (64, None, "hardware"),
        (74, None, "hardware"),
        (94, None, "hardware"),
        (95, None, "hardware"),
    ],
)
def test_the_codes_that_matter_mean_what_the_field_knows(code: int, severity: str | None, cause: str) -> None:
    """FIELD A3: 13, 31, 43 and 45 are the application's, 48, 63, 64, 79, 94, 95 the hardware's."""
    fault = xid(code)
    assert fault is not None
    assert fault.cause == cause
    assert severity is None or fault.severity == severity
    assert fault.description


def test_a_code_that_no_table_knows_has_no_fault() -> None:
    """The caller keeps the event, with cause unknown."""
    assert xid(9999) is None
    assert sxid(1) is None


def test_a_printed_severity_is_decided_by_the_line() -> None:
    """SXids whose line says Fatal or Non-fatal itself."""
    printed = [row for row in rows("sxid") if row["severity"] == "printed"]
    for row in printed:
        fault = sxid(int(row["code"]))
        assert fault is not None
        assert fault.decided_by_line
        assert fault.severity == "warning"
        assert fault.action == "watch"


def test_the_nvlink_table_reads_and_its_patterns_are_of_bits() -> None:
    """32 places of 0, 1 or any; an empty pattern means any."""
    table = nvlink5()
    assert len(table) > 20
    assert {fault.xid for fault in table} <= set(range(144, 151))
    for fault in table:
        assert fault.unit
        for pattern in (fault.intrinfo_v1, fault.intrinfo_v2):
            assert re.fullmatch(r"[01xX\-_ ]*", pattern), pattern


@pytest.mark.parametrize(
    ("kind", "code", "severity", "cause", "meaning"),
    [
        ("xid", 94, "error", "hardware", "Memory error contained to the affected process"),
        ("quoted_xid", 94, "info", "unknown", "Memory error contained to the affected process"),
        (
            "xid",
            79,
            "fatal",
            "hardware",
            "Driver can no longer reach the GPU over PCIe; if it comes again, contact support",
        ),
        ("xid", 9999, "warning", "unknown", None),
        ("xid", None, "warning", "unknown", None),
        ("ib_port", None, "error", "fabric", "An InfiniBand port is down"),
        ("ib_port", None, "info", "fabric", "An InfiniBand port changed state"),
        ("oom_kill", None, "error", "application", "A job reached its memory limit: a process was killed"),
        ("oom_kill", None, "error", "host", "The node ran out of memory: a process was killed"),
        ("gpu_lost", 79, "fatal", "hardware", "A GPU has left the PCIe bus"),
        ("pcie_aer", None, "fatal", "hardware", "A fatal PCIe error: the link is not reliable"),
        ("some_new_kind", None, "error", "hardware", None),
    ],
)
def test_a_kind_means_what_its_form_of_that_severity_means(
    kind: str, code: int | None, severity: Severity, cause: Cause, meaning: str | None
) -> None:
    """By code where a code says it, else by the variant with the event's severity and cause."""
    assert fault_catalog.kind_description(kind, code, severity, cause) == meaning


def test_every_kind_has_a_meaning() -> None:
    """No bare code word is shown to an operator."""
    for form in fault_catalog.kind_meanings().values():
        assert fault_catalog.kind_description(form.kind, None, form.severity, form.cause), form


# Faults on which a node is cordoned by themselves: each is a decision. `drain_node` moves the work off it, too.
CONFIRMED = {
    "gpu_lost",
    "gpu_ras fatal",
    "gpu_bad_pages refused",
    "gpu_reset failed",
    "gpu_reset given_up",
    "gpu_over_temperature critical",
    "gpu_over_temperature shutdown",
    "ascend_fault separate",
    "npu_lost",
    "mlu_xid 14",
    "habana_ecc critical",
    "habana_heartbeat_lost link",
    "pcie_aer fatal",
    "pcie_recovery failed",
    "mce fatal",
    "ghes fatal",
    "mlx5_health fatal",
    "mlx5_health emergency",
    "mlx5_health failed",
    "mlx5_health flow aborted",
    "mlx5_health 0x7",
    "mlx5_health 0x8",
    "mlx5_health 0xb",
    "raid_failed",
    "thermal_shutdown",
    "coolant_leak critical",
}


def test_what_confirms_a_fault_by_one_line_is_decided_one_by_one() -> None:
    """Fatal and of hardware: the policy asks for a cordon. A lost disk or a failed start may be tried again first."""
    confirmed = {
        f"{kind.kind} {kind.variant}".strip()
        for kind in fault_catalog.kind_meanings().values()
        if (kind.severity, kind.cause) == ("fatal", "hardware")
    }
    assert confirmed == CONFIRMED


# Codes whose names end alike and that mean two things, each with its reason.
_DIFFERENT = {
    "RETIREMENT_EVENT": "156 waits for a reset, 160 has its repair recorded",
    "SEC_ERROR": "33 is of GPUs that no driver of today knows",
}


def _fault_of(mnemonic: str) -> str:
    """What a mnemonic calls the fault, without the unit: HALT_ERROR of PMU_HALT_ERROR, CE_ERROR of CE12_ERROR."""
    words = re.sub(r"\d+", "", mnemonic.removeprefix("ROBUST_CHANNEL_"))
    _, _, rest = words.partition("_")
    return rest if "_" in rest else words


def test_a_fatal_code_asks_for_more_than_to_watch() -> None:
    """In each table that judges: who reads `fatal` and `none` does nothing, and loses a job."""
    for table in ("xid", "sxid", "nvlink5", "kinds", "opensm"):
        idle = [row for row in rows(table) if row["severity"] == "fatal" and row["action"] in ("none", "watch")]
        assert idle == [], table


def test_what_is_called_fatal_is_fatal() -> None:
    """By its mnemonic or in its description."""
    for row in rows("xid"):
        called = "FATAL" in row["mnemonic"] or re.search(r"\bfatal", row["description"])
        assert not called or row["severity"] == "fatal", row


def test_one_fault_has_one_severity_whichever_unit_has_it() -> None:
    """A halted controller, an encoder's fault, a fatal timeout; codes that no driver prints any more are left out."""
    severities: dict[str, set[str]] = {}
    for row in rows("xid"):
        if row["mnemonic"] and "(legacy)" not in row["description"]:
            severities.setdefault(_fault_of(row["mnemonic"]), set()).add(row["severity"])
    assert severities["HALT_ERROR"] == severities["FATAL_TIMEOUT"] == {"fatal"}
    unequal = {fault for fault, found in severities.items() if len(found) > 1}
    assert unequal <= set(_DIFFERENT)


@pytest.mark.parametrize("table", ["xid", "sxid"])
def test_one_description_has_one_severity(table: str) -> None:
    """Two codes that are described alike are as grave as each other."""
    severities: dict[str, set[str]] = {}
    for row in rows(table):
        severities.setdefault(row["description"].lower(), set()).add(row["severity"])
    assert {words for words, found in severities.items() if len(found) > 1} == set()


def test_a_code_tells_what_to_do_when_its_action_did_not_help() -> None:
    """Of 64, a reset comes first; NVIDIA asks for its support where the fault comes again."""
    known = xid(64)
    assert known is not None
    assert (known.action, known.then) == ("reset_gpu", "contact_support")
    assert known.meaning().endswith("; if it comes again, contact support")
    assert {row["then"] for row in rows("xid")} <= {"", *ACTIONS}
    assert all(row["then"] != row["action"] for row in rows("xid"))


def test_a_missing_cable_is_looked_for_before_a_part_is_replaced() -> None:
    """Xid 54: the board's auxiliary power."""
    known = xid(54)
    assert known is not None
    assert known.action == "run_diagnostics"
    assert "cable" in known.description


def test_the_newest_codes_are_known_without_a_name() -> None:
    """178 to 180 stand in no public table: they are faults to be looked at, with the words of their line."""
    for code in (178, 179, 180):
        known = xid(code)
        assert known is not None
        assert (known.severity, known.cause, known.action) == ("warning", "unknown", "run_diagnostics")


def test_what_a_code_means_is_told_where_its_line_says_no_more() -> None:
    """The recovery action and the units of NVLink 5 are in the line; what no table knows means nothing."""
    assert fault_catalog.code_description("xid", 94) == "Memory error contained to the affected process"
    assert fault_catalog.code_description("sxid", 12028)
    for kind, code in (("xid", 154), ("xid", 145), ("xid", 99_999), ("xid", None), ("link_down", 3)):
        assert fault_catalog.code_description(kind, code) is None

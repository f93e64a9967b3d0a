"""The fault catalogues: every row reads, and says what the field knows of the codes that matter."""

import re
from importlib import resources

import pytest

from store.records import fault_catalog
from store.records.catalog_rows import rows
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
    assert fault.mnemonic or fault.description


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
        ("xid", 79, "fatal", "hardware", "Driver can no longer reach the GPU over PCIe"),
        ("quoted_xid", 79, "info", "unknown", "Driver can no longer reach the GPU over PCIe"),
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
    "gpu_over_temperature critical",
    "gpu_over_temperature shutdown",
    "ascend_fault separate",
    "npu_lost",
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
}


def test_what_confirms_a_fault_by_one_line_is_decided_one_by_one() -> None:
    """Fatal and of hardware: the policy asks for a cordon. A lost disk or a failed start may be tried again first."""
    confirmed = {
        f"{kind.kind} {kind.variant}".strip()
        for kind in fault_catalog.kind_meanings().values()
        if (kind.severity, kind.cause) == ("fatal", "hardware")
    }
    assert confirmed == CONFIRMED

"""The fault catalogues: every row reads, and says what the field knows of the codes that matter."""

import re

import pytest

from store import catalog
from store.catalog import nvlink5, rows, sxid, xid
from store.event import ACTIONS, CAUSES, SEVERITIES


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
    path = __import__("pathlib").Path(catalog.__file__).parent / "catalogs" / f"{table}.csv"
    comment = "".join(line for line in path.read_text().splitlines() if line.startswith("#"))
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

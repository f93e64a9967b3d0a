"""Records of rasdaemon: rows of every section, judged as the kernel's own lines are."""

from datetime import UTC, datetime

import pytest

from parsers.formats.rasdaemon import RasdaemonParser
from parsers.registry import detect
from parsers.text.parser import Context, parse
from store.records.event import Event

WHEN = "7 2026-03-01 04:05:06 +0100 "


def decode(text: str) -> list[Event]:
    """The events of one row."""
    return list(parse(RasdaemonParser(Context(node="n1")), [text]))


@pytest.mark.parametrize(
    ("row", "kind", "severity"),
    [
        ("1 Corrected error(s): memory read error at DIMM_A1 location: 0:0:0:-1, addr 0", "edac", "warning"),
        ("1 Corrected errors: memory read error at DIMM_A1 location: 0:0:0:-1, addr 0", "edac", "warning"),
        ("2 Uncorrected error(s): x at DIMM_A1 location: 0:0:0:-1, addr 0", "edac", "error"),
        ("0000:5d:00.0 Corrected error: Receiver Error", "pcie_aer", "warning"),
        ("0000:5d:00.0 Uncorrected (Fatal) error: Surprise Link Down", "pcie_aer", "fatal"),
        ("error: pfn=0x1, page_type=free buddy page, action_result=Recovered", "memory_failure", "warning"),
        ("error: type=Memory, severity=fatal, address=0x0000, fru_id=1", "ghes", "fatal"),
        ("error: Corrected error, bank CPU, mci x, mcgcap=0x1, status=0x8c00000000000001", "mce", "warning"),
        ("error: DRAM ECC error, mcgcap=0x1, status=0xbc00000000000001", "mce", "error"),
        ("error: DRAM ECC error, mcgcap=0x1, status=0xbe00000000000001", "mce", "fatal"),
    ],
)
def test_a_row_is_as_grave_as_the_kernels_own_line(row: str, kind: str, severity: str) -> None:
    """Its time bears its zone, and the node is the context's."""
    (event,) = decode(WHEN + row)
    assert (event.kind, event.severity, event.node) == (kind, severity, "n1")
    assert event.time == datetime(2026, 3, 1, 3, 5, 6, tzinfo=UTC)
    assert detect([WHEN + row]) == "rasdaemon"


@pytest.mark.parametrize(
    "row",
    [
        "Memory controller events:",
        "No Memory errors.",
        "\tCorrected on DIMM Label(s): 'DIMM_A1' location: 1:0:0:-1 errors: 1",
        WHEN + "error: bus_name=pci, dev_name=0000:d2:00.0, driver_name=mlx5_core, reporter_name=tx, message='x'",
        WHEN + "error: bus_name=pci, dev_name=0000:d2:00.0, driver_name=ice, reporter_name=fw, message='x'",
        WHEN + "error: pfn=0x1, page_type=x, action_result=Unheard",
        WHEN + "something else",
        "1 2026-13-01 04:05:06 0 Corrected",
    ],
)
def test_a_row_of_no_fault_gives_nothing(row: str) -> None:
    """Headings, the summary's rows, queues that a driver recovered, broken rows."""
    assert decode(row) == []


def test_a_broken_time_is_not_known() -> None:
    """The fault stays."""
    (event,) = decode("1 2026-13-41 99:05:06 +0000 0000:5d:00.0 Corrected error: Receiver Error")
    assert event.time is None

"""NVLink 5 errors, Xid 144-150."""

import pytest

from parsers.kernel_messages.families.xid import decode_xid
from parsers.kernel_messages.nvlink import nvlink_detail
from store.records.event import Event
from store.records.fault_catalog import nvlink5


def event_of(code: int, text: str) -> Event:
    """The event of one message."""
    event = decode_xid(f"NVRM: Xid (PCI:0000:3b:00): {code}, {text}")
    assert event is not None
    return event


def registers(pattern: str) -> int:
    """The lowest number that fits a bit pattern."""
    return int(pattern.replace("-", "0"), 2)


@pytest.mark.parametrize("row", range(len(nvlink5())))
def test_every_row_of_the_table_is_found_by_its_registers(row: int) -> None:
    """In both layouts, the line's word agreeing: severity and cause are of a row with the same unit and status."""
    fault = nvlink5()[row]
    word = "Fatal" if fault.severity == "fatal" else "Nonfatal"
    status = fault.error_status[0] if fault.error_status else 0
    for pattern in filter(None, (fault.intrinfo_v1, fault.intrinfo_v2)):
        event = event_of(
            fault.xid, f"{fault.unit.split()[0]} {word} XC0 i0 Link 05 (0x{registers(pattern):08x} 0x{status:08x})"
        )
        assert event.attributes["link"] == 5
        assert event.severity == fault.severity


def test_the_lines_fatal_is_never_made_less() -> None:
    """An unknown pattern, printed as Fatal: reset the GPU."""
    event = event_of(145, "RLW_NEW Fatal XC0 i0 Link 00 (0x3fffffff 0x00000000)")
    assert (event.severity, event.attributes["fatal"]) == ("fatal", True)
    assert event.action not in ("none", "watch")


def test_an_unknown_pattern_that_is_not_fatal_is_a_warning() -> None:
    """The catalogue's severity of the code is for the worst of its errors."""
    assert event_of(145, "RLW_NEW Nonfatal XC1 i0 Link 00 (0x3fffffff 0x00000000)").severity == "warning"


@pytest.mark.parametrize(
    ("text", "link", "intrinfo", "errstatus", "contained"),
    [
        ("NETIR Fatal XC0 i0 Link -1 (0x000fe406", -1, "0x000fe406", None, False),
        ("RLW_REMAP Nonfatal XC0 i0 Link 02", 2, None, None, False),
        ("NETIR_LINK_EVT Fatal XC 1 i 2 Link 01 [0x0000000a]", 1, "0x0000000a", None, True),
        ("NETIR_LINK_EVT  Fatal   XC0 i0 Link 09 (0x025525c6 0x00000000 0x0)", 9, "0x025525c6", "0x00000000", False),
        ("TLW_RX/TLW_RX_PIPE0 Nonfatal XC0 i0 Link 00 (0x0000000a 0x00000004)", 0, "0x0000000a", "0x00000004", False),
    ],
)
def test_every_form_of_the_detail_is_read(
    text: str, link: int, intrinfo: str | None, errstatus: str | None, contained: bool
) -> None:
    """A line that is cut keeps what it has."""
    detail = nvlink_detail(149, text)
    assert detail is not None
    assert (detail.link, detail.intrinfo, detail.errstatus, detail.cross_contained) == (
        link,
        intrinfo,
        errstatus,
        contained,
    )
    assert ("errstatus" in detail.attributes()) == (errstatus is not None)


@pytest.mark.parametrize(
    "text", ["", "Placeholder message", "RLW Sometimes XC0 i0 Link 00 (0x1)", "RLW Fatal XC0 i0 Link"]
)
def test_another_text_is_no_detail(text: str) -> None:
    """The event stays as the catalogue has it."""
    assert nvlink_detail(149, text) is None
    assert event_of(149, text).code == 149

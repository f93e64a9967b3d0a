"""The detail of an NVLink 5 error (Xid 144-150): which unit, which link, and what the two registers mean.

    RLW_REMAP Nonfatal XC1 i0 Link 10 (0x00000082 0x00000040 0x00000000 0x00000000)
    -> unit RLW_REMAP, link 10, intrinfo 0x00000082, errstatus 0x00000040

The first register (intrinfo) names the unit by a bit pattern, in one of two layouts by driver release;
the second (errstatus) names the error. Both are looked up in store/catalogs/nvlink5.csv.
"""

import re
from dataclasses import dataclass, replace
from functools import cache, lru_cache

from store.records.event import Attribute, Event, Severity
from store.records.fault_catalog import NvlinkFault, nvlink5

_DETAIL = re.compile(
    r"(?P<unit>[A-Z][A-Z0-9_/]{1,60})\s+(?P<severity>Fatal|Nonfatal)\s+XC ?(?P<contained>\d{1,2})\s+i ?\d{1,4}\s+"
    r"Link (?P<link>-?\d{1,4})\b(?: ?[(\[](?P<intrinfo>0x[0-9a-f]{1,8})(?:,? (?P<errstatus>0x[0-9a-f]{1,8}))?)?",
    re.ASCII | re.IGNORECASE,
)


# From this driver release on, intrinfo has the second layout.
SECOND_LAYOUT = 575


@dataclass(frozen=True, slots=True)
class NvlinkDetail:
    """What one line says. `intrinfo` and `errstatus` are None where the line is cut before them."""

    code: int
    unit: str
    fatal: bool
    cross_contained: bool
    link: int
    intrinfo: str | None
    errstatus: str | None

    def attributes(self) -> dict[str, Attribute]:
        """The event's attributes."""
        found: dict[str, Attribute] = {
            "unit": self.unit,
            "link": self.link,
            "fatal": self.fatal,
            "cross_contained": self.cross_contained,
        }
        if self.intrinfo is not None:
            found["intrinfo"] = self.intrinfo
        if self.errstatus is not None:
            found["errstatus"] = self.errstatus
        return found

    def judge(self, event: Event, driver: int | None = None) -> Event:
        """The event with the table's severity, cause and action; the line's own Fatal is never made less.

        `driver` is the release of the driver, 570: it tells the layout of intrinfo. Without it both are tried.
        """
        fault = None
        if self.intrinfo is not None:
            status = None if self.errstatus is None else int(self.errstatus, 16)
            fault = _known(self.code, self.unit, int(self.intrinfo, 16), status, driver)
        severity: Severity = fault.severity if fault else "warning"
        cause, action = (fault.cause, fault.action) if fault else (event.cause, event.action)
        if self.fatal:
            severity, action = "fatal", action if action not in ("none", "watch") else "reset_gpu"
        return replace(event, severity=severity, cause=cause, action=action)


def nvlink_detail(code: int, text: str) -> NvlinkDetail | None:
    """The detail of an NVLink 5 message; None where the text is of another form."""
    match = _DETAIL.match(text)
    if not match:
        return None
    return NvlinkDetail(
        code=code,
        unit=match["unit"],
        fatal=match["severity"].lower() == "fatal",
        cross_contained=int(match["contained"]) != 0,
        link=int(match["link"]),
        intrinfo=match["intrinfo"],
        errstatus=match["errstatus"],
    )


def read_by_driver(event: Event, driver: int) -> Event:
    """An NVLink 5 event read again, now that the driver's release is known; any other event as it is."""
    if event.kind != "xid" or "intrinfo" not in event.attributes:
        return event
    detail = nvlink_detail(event.code or 0, event.message)
    return event if detail is None else detail.judge(event, driver)


@cache
def _mask(pattern: str) -> tuple[int, int]:
    """A bit pattern as the bits it asks for and their values; `-` asks for nothing."""
    mask = int("".join("0" if bit == "-" else "1" for bit in pattern) or "0", 2)
    return mask, int(pattern.replace("-", "0") or "0", 2)


def _fits(fault: NvlinkFault, intrinfo: int, driver: int | None) -> bool:
    layouts = [fault.intrinfo_v1, fault.intrinfo_v2]
    if driver is not None:
        layouts = layouts[1:] if driver >= SECOND_LAYOUT else layouts[:1]
    for pattern in layouts:
        mask, value = _mask(pattern)
        if mask and intrinfo & mask == value:
            return True
    return not fault.intrinfo_v1 and not fault.intrinfo_v2


@cache
def _names(unit: str) -> frozenset[str]:
    """What a line may call a unit: `TLW_RX/TLW_RX_PIPE0` is also printed as either half, `MSE Degraded` as `MSE`."""
    return frozenset({unit, unit.split(" ")[0], *unit.split("/")})


# A failing link repeats its registers many times.
@lru_cache(maxsize=4096)
def _known(code: int, unit: str, intrinfo: int, errstatus: int | None, driver: int | None = None) -> NvlinkFault | None:
    """The table's row: best one of the unit that the line names, then one that names the error status."""
    fitting = [fault for fault in nvlink5() if fault.xid == code and _fits(fault, intrinfo, driver)]
    named = [fault for fault in fitting if unit in _names(fault.unit)]
    for rows in (named, fitting):
        exact = (fault for fault in rows if errstatus is not None and errstatus in fault.error_status)
        if found := next(exact, None) or next((fault for fault in rows if not fault.error_status), None):
            return found
    return None

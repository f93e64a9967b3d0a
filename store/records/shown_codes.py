"""Fault codes that an exporter shows of an accelerator: Ascend's codes, AMD's field identifiers, Cambricon's Xids.

    shown_codes({"error_code": 2162167809.0, "gpu_temp_c": 61.0}) -> {ShownCode("ascend_fault", 0x80E01801)}
    with_shown_code(event, ShownCode("gpu_afid", 18, "fatal")) -> Event(kind="gpu_afid", code=18, severity="error", ...)

The numbers of Cambricon's Xids have nothing to do with NVIDIA's. Tables: `catalogs/kinds.csv` (`mlu_xid`, by number),
`catalogs/afid.csv`, `catalogs/ascend.csv`. A code that no table knows stays a fault: it is never dropped.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from store.records.event import Event
from store.records.fault_catalog import coded_form, with_ascend_code, with_kind_meaning

# The measures that hold such codes begin with one of these.
CODES = ("error_code", "afid_", "mlu_xid_last")
_AFID = re.compile(r"afid_(?P<severity>[a-z_]{4,24})_\d{1,4}", re.ASCII)
_FORMS = {"fatal": "fatal", "non_fatal_uncorrected": "uncorrected", "non_fatal_corrected": "corrected"}
_MOST_CODE = 2**53


@dataclass(frozen=True, slots=True, order=True)
class ShownCode:
    """One code. `severity`: what the exporter's label says of it, of AMD's alone."""

    kind: str
    code: int
    severity: str = ""

    def stands(self) -> bool:
        """Whether it is shown only while its fault lasts; the others are of the last event, however old."""
        return self.kind == "ascend_fault"


def shown_codes(values: Mapping[str, float]) -> frozenset[ShownCode]:
    """The codes among the values of one device; 0 is none."""
    found: set[ShownCode] = set()
    for name, value in values.items():
        if not name.startswith(CODES) or not 0 < value < _MOST_CODE:
            continue
        if name.startswith("error_code"):
            found.add(ShownCode("ascend_fault", int(value)))
        elif name == "mlu_xid_last":
            found.add(ShownCode("mlu_xid", int(value)))
        elif match := _AFID.fullmatch(name):
            found.add(ShownCode("gpu_afid", int(value), match["severity"]))
    return frozenset(found)


def with_shown_code(event: Event, shown: ShownCode, *, over: bool = False) -> Event:
    """The event as that code's fault, or as its end where it is known to end."""
    if shown.kind == "ascend_fault":
        return with_ascend_code(event, f"{shown.code:08X}", over=over)
    if shown.kind == "mlu_xid":
        return with_mlu_xid(event, shown.code)
    form, name = coded_form("gpu_afid", shown.code)
    form = _FORMS.get(shown.severity, "") if form is None else form
    coded = with_kind_meaning(replace(event, kind="gpu_afid", code=shown.code, message=""), form)
    told = f"AFID {shown.code}: {coded.message}" + (f" ({name})" if name else "")
    return replace(coded, message=told, attributes={"afid": shown.code, **event.attributes})


def with_mlu_xid(event: Event, code: int) -> Event:
    """The event as Cambricon's Xid of that number; a message that it bears stays."""
    coded = with_kind_meaning(replace(event, kind="mlu_xid", code=code), coded_form("mlu_xid", code)[0] or "")
    return coded if event.message else replace(coded, message=f"MLU Xid {code}: {coded.message}")

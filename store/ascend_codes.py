"""What a fault code of an Ascend NPU, of a switch between NPUs or of their host means: `catalogs/ascend.csv`.

    coded(Event(..., kind=""), "80E18005") -> Event(kind="ascend_fault", code=0x80E18005, severity="error",
                                                    action="reset_gpu", attributes={"fault_code": "80E18005"})

A code that no table knows stays a fault, to be looked at: it is never dropped.
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import Literal

from store.catalog import judged, rows
from store.event import Event

Of = Literal["npu", "switch", "node"]
# How a code is handled that its table does not know.
_UNKNOWN: Mapping[Of, str] = {"npu": "", "switch": "switch", "node": "node"}


@cache
def _handlings() -> Mapping[str, str]:
    return {row["code"]: row["handling"] for row in rows("ascend")}


def handling(code: str, of: Of = "npu") -> str:
    """How a code is handled: a variant of the kind `ascend_fault`.

    An NPU's and a host's are hex digits; a switch's is `0x00f1fef5,155914,L2,na`, as its log writes it.
    """
    if of == "switch":
        key = code.replace(" ", "").replace(",", "/")
    else:
        key = ("node/" if of == "node" else "") + code.upper()
    return _handlings().get(key, _UNKNOWN[of])


def coded(event: Event, code: str, of: Of = "npu", *, over: bool = False) -> Event:
    """The event as a fault of that code, or as its end."""
    number = code.split(",")[0].strip().removeprefix("0x")
    text = code.replace(" ", "") if of == "switch" else code.upper()
    fault = replace(
        event,
        kind="ascend_fault_cleared" if over else "ascend_fault",
        code=int(number, 16),
        attributes={"fault_code": text, **event.attributes},
    )
    return judged(fault, "" if over else handling(code, of))

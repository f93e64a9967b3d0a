"""An Xid that Node Health Check hands on: the kernel has said it already, so it is told, but no fault of its own.

    gpu-066 | ERROR: nhc: Health check failed: check_gpu_xid: GPU Xid errors detected: NVRM: Xid (PCI:0002:00:00): 119,
    -> Event(kind="quoted_xid", code=119, severity="info", device=Device("gpu", pci="0002:00:00.0"))

Form: NHC's `die` (nhc in mej/nhc) and the check of that name. No other program's quotation is read.
"""

import re
from dataclasses import replace

from parsers.kernel_messages.family import Family
from parsers.kernel_messages.xid import decode_xid
from store.event import Event

_CHECK = re.compile(
    r"(?:(?P<node>[\w.-]{1,253}) \| )?(?:ERROR: {1,4})?(?:nhc: {1,4})?Health check failed: {1,4}"
    r"check_gpu_xid: .{0,200}?(?P<quoted>NVRM: Xid \(.*)",
    re.ASCII | re.DOTALL,
)


def decode(message: str) -> Event | None:
    """The Xid quoted, as a notice; without time, and without node unless the line names it.

    Without the process too: the kernel's own line blames it, and blames it once.
    """
    match = _CHECK.match(message)
    event = decode_xid(match["quoted"]) if match else None
    if match is None or event is None:
        return None
    attributes = {name: value for name, value in event.attributes.items() if name not in ("pid", "process")}
    return replace(event, kind="quoted_xid", severity="info", action="none", node=match["node"], attributes=attributes)


FAMILY = Family(name="quoted_xid", signs=("check_gpu_xid: ",), decode=decode, tags=frozenset({"nhc"}))

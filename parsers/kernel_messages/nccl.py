"""A training process that crashed inside NCCL, as the kernel tells it.

    pt_main_thread[2536443]: segfault at 7f797fe00000 ip 00007f7c7ac69996 sp 0000... error 4 in libnccl.so.2[7f...]
    -> Event(kind="nccl_segfault", attributes={"process": "pt_main_thread", "pid": 2536443, ...})

Forms: arch/x86/mm/fault.c (segfault) and arch/x86/kernel/traps.c (`traps: ... general protection fault`) of Linux.
"""

import re

from parsers.kernel_messages.family import Family
from store.catalog import judged
from store.event import Attribute, Device, Event

# The kernel cuts a process's name at 15 bytes: a longer one is somebody's sentence.
_CRASH = re.compile(
    r"(?:(?:traps: )?(?P<process>[^\s\[\]\"'`>$#|-][^\[\]]{0,14}(?:\[[^\[\]]{0,14}\])?)\[(?P<pid>\d{1,10})\]:? )?"
    r"(?P<fault>segfault|general protection(?: fault)?|trap \w{1,24})(?: at (?P<address>[0-9a-f]{1,16}))?"
    r" .{0,160}? in (?P<library>libnccl[\w.+-]{0,60})(?:[\[ ]|$)",
    re.ASCII,
)


def decode(message: str) -> Event | None:
    """The crash, without time and node."""
    match = _CRASH.match(message)
    if not match:
        return None
    attributes: dict[str, Attribute] = {"fault": match["fault"], "library": match["library"]}
    if match["process"]:
        attributes |= {"process": match["process"], "pid": int(match["pid"])}
    if match["address"]:
        attributes["address"] = f"0x{match['address']}"
    event = Event(
        time=None,
        node=None,
        source="kernel",
        kind="nccl_segfault",
        device=Device(type="node"),
        message=message.strip(),
        attributes=attributes,
    )
    return judged(event)


FAMILY = Family(name="nccl", signs=("in libnccl",), decode=decode)

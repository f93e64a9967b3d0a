"""The GPU driver's messages without an Xid: GPUs that are gone, found, not started, hanging; links that do not train.

    NVRM: GPU 0000:91:00.0: GPU has fallen off the bus.
    -> Event(kind="gpu_lost", code=79, severity="fatal", device=Device("gpu", pci="0000:91:00.0"))
    NVRM: GPU at PCI:0000:9b:00: GPU-509665ad-b600-ac93-3616-d754b23d636d
    -> Event(kind="gpu_map", severity="info", device=Device("gpu", pci="0000:9b:00.0", uuid="GPU-509665ad-..."))

Forms: NVIDIA/open-gpu-kernel-modules (osinit.c, nv.c, nv-pci.c, osapi.c, kernel_gsp.c, kernel_rc_watchdog.c,
kernel_nvlink*.c) and the peer-memory module.
A loss reported over three lines names its GPU in the first: `GpuNames` of `decoder.py` remembers it.
"""

import re

from parsers.kernel_messages.family import MessageFamily
from store.records.event import Attribute, Device, Event, canonical_pci
from store.records.fault_catalog import with_kind_meaning

_PCI = r"(?P<pci>(?:PCI:)?(?:[0-9a-fA-F]{4,8}:)?[0-9a-fA-F]{2}:[0-9a-fA-F]{2}(?:\.[0-7])?)"
_UUID = r"(?P<uuid>GPU-[0-9a-fA-F-]{3,48})"
# A driver of several GPUs may say which of them speaks: `NVRM: GPU0 RmInitAdapter: ...`. The first open drivers wrote
# no colon.
_NVRM = r"NVRM:? (?:GPU(?P<gpu_index>\d{1,4}) )?"
_FORMS: tuple[tuple[str, re.Pattern[str]], ...] = tuple(
    (kind, re.compile(pattern, re.ASCII))
    for kind, pattern in (
        ("gpu_map", rf"NVRM: GPU at {_PCI}: {_UUID}\s*$"),
        ("gpu_lost", rf"NVRM: (?:The NVIDIA )?GPU (?:at )?{_PCI}:? .{{0,80}}fallen off the bus"),
        ("gpu_lost", r"NVRM: fallen off the bus and is not responding"),
        ("nvrm_init_failure", rf"NVRM: (?:GPU {_PCI}: )?RmInitAdapter failed!(?: \((?P<status>[0-9a-fx:]{{1,40}})\))?"),
        ("nvrm_init_failure", rf"NVRM: (?:GPU {_PCI}: )?rm_init_adapter(?:\(\d{{1,4}}\))? failed"),
        ("nvrm_init_failure", rf"{_NVRM}RmInitAdapter: Cannot initialize"),
        ("nvrm_init_failure", rf"{_NVRM}\w{{1,80}}: unexpected WPR2 already up"),
        ("nvrm_init_failure", r"NVRM: The NVIDIA probe routine failed for (?P<count>\d{1,4}) device"),
        ("nvrm_init_failure", r"NVRM: None of the NVIDIA (?:devices|graphics adapters) were initialized"),
        ("nvrm_init_failure", rf"nvidia: probe of {_PCI} failed with error (?P<error>-?\d{{1,6}})"),
        ("nvrm_init_failure", rf"nvidia {_PCI}: probe with driver nvidia failed with error (?P<error>-?\d{{1,6}})"),
        ("nvrm_distress", rf"{_NVRM}\w{{1,80}}: (?:GSP RM |LibOS )?[Hh]eartbeat timed out"),
        ("nvrm_distress", rf"{_NVRM}\w{{1,80}}: RC watchdog: GPU is probably locked"),
        (
            "nvrm_distress",
            rf"{_NVRM}\w{{1,80}}: \*{{4,200}} ?GSP[\w -]{{0,40}}(?:Timeout|Failure|Crash|Error)",
        ),
        (
            "nvlink_train",
            rf"{_NVRM}_?knvlink\w{{1,80}}: .{{0,400}}?(?:[Ff]ail|[Ee]rror|[Tt]imed? ?out)",
        ),
        # A driver that was updated under a running node, or a container that brings libraries of its own.
        (
            "nvrm_mismatch",
            r"NVRM: API mismatch: the client (?:has the version (?P<version>[\w.-]{1,40})"
            r"|'(?P<process>[^']{1,64})' \(pid (?P<pid>\d{1,10})\))",
        ),
        ("peermem_invalid_context", r"nv(?:idia[-_]peermem|_peer_mem):? .{0,120}ERROR detected invalid context"),
    )
)
_COUNTS = frozenset({"gpu_index", "count", "error", "pid"})
_DEVICES = {"peermem_invalid_context": "hca", "nvrm_mismatch": "node"}
_NUMBER_OF_LOST = 79


def decode_gpu(message: str) -> Event | None:
    """The event of a driver's message that bears no Xid, without time and node; a loss may yet lack its address."""
    for kind, pattern in _FORMS:
        if match := pattern.match(message):
            return _event(kind, message, match.groupdict())
    return None


def _event(kind: str, message: str, found: dict[str, str | None]) -> Event:
    pci, uuid = found.pop("pci", None), found.pop("uuid", None)
    attributes: dict[str, Attribute] = {
        name: int(value) if name in _COUNTS else value for name, value in found.items() if value is not None
    }
    return with_kind_meaning(
        Event(
            time=None,
            node=None,
            source="kernel",
            kind=kind,
            code=_NUMBER_OF_LOST if kind == "gpu_lost" else None,
            device=Device(type=_DEVICES.get(kind, "gpu"), pci=pci and canonical_pci(pci), uuid=uuid),
            message="GPU has fallen off the bus." if kind == "gpu_lost" else message.removeprefix("NVRM: ").strip(),
            attributes=attributes,
        )
    )


GPU = MessageFamily(
    name="gpu",
    signs=(
        "NVRM: GPU at ",
        "fallen off the bus",
        "nitAdapter",
        "rm_init_adapter",
        "unexpected WPR2 already up",
        "NVIDIA probe routine failed",
        "None of the NVIDIA ",
        "nvidia: probe of ",
        "driver nvidia failed",
        "eartbeat timed out",
        "RC watchdog",
        "* GSP",
        "knvlink",
        "detected invalid context",
        "NVRM: API mismatch: ",
    ),
    decode=decode_gpu,
)


# A training process that crashed inside NCCL, as the kernel tells it.
#
#     pt_main_thread[2536443]: segfault at 7f797fe00000 ip 00007f7c7ac69996 sp 0000... error 4 in libnccl.so.2[7f...]
#     -> Event(kind="nccl_segfault", attributes={"process": "pt_main_thread", "pid": 2536443, ...})
#
# Forms: arch/x86/mm/fault.c (segfault) and arch/x86/kernel/traps.c (`traps: ... general protection fault`) of Linux.

# The kernel cuts a process's name at 15 bytes: a longer one is somebody's sentence.
_CRASH = re.compile(
    r"(?:(?:traps: )?(?P<process>[^\s\[\]\"'`>$#|-][^\[\]]{0,14}(?:\[[^\[\]]{0,14}\])?)\[(?P<pid>\d{1,10})\]:? )?"
    r"(?P<fault>segfault|general protection(?: fault)?|trap \w{1,24})(?: at (?P<address>[0-9a-f]{1,16}))?"
    r" .{0,160}? in (?P<library>libnccl[\w.+-]{0,60})(?:[\[ ]|$)",
    re.ASCII,
)


def decode_nccl(message: str) -> Event | None:
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
    return with_kind_meaning(event)


NCCL = MessageFamily(name="nccl", signs=("in libnccl",), decode=decode_nccl)

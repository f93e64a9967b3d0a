"""Xid messages of the GPU driver, and those that other programs quote: which fault, on which GPU, of which process.

    NVRM: Xid (PCI:0000:0f:00): 79, pid=1234, name=python, GPU has fallen off the bus.
    -> Event(kind="xid", code=79, severity="fatal", cause="hardware", action="reboot_node",
             device=Device("gpu", pci="0000:0f:00.0"), message="GPU has fallen off the bus.",
             attributes={"pid": 1234, "process": "python"})

The driver's form (kernel_rc.c): `NVRM: Xid (PCI:%04x:%02x:%02x GPU-I:%02u GPU-CI:%02u): %d, pid=%s, name=%s, TEXT`,
without the process where none is known. Fields of the text become attributes.
An unknown code stays an event, with cause `unknown`.
An Xid that names the one before it (`caused by previous Xid 149`) is a consequence: `info`, with the other's cause.
"""

import re
from dataclasses import replace
from functools import lru_cache

from parsers.kernel_messages.family import LONGEST_SHAPE, SHAPES, MessageFamily, shape_of
from parsers.kernel_messages.nvlink import nvlink_detail
from store.records.event import Action, Attribute, Device, Event, Severity, canonical_pci
from store.records.fault_catalog import xid

# What the text of an Xid says beside its code: places in the GPU, addresses, channels, links, calls that timed out.
#
#     Graphics SM Warp Exception on (GPC 1, TPC 3, SM 0): Out Of Range Address
#     -> {"gpc": 1, "tpc": 3, "sm": 0, "exception": "Out Of Range Address"}
#
# Read by the text, not by the code: the driver prints the same sentence under several codes.
# Sentences: NVIDIA/open-gpu-kernel-modules (gsp_events.c, kernel_nvlink.c, kernel_gsp.c, kernel_rc.c), public logs.
# Group names are the attributes' names; one that ends in `_n` is a decimal number, all others stay text.

_HEX = r"0x[0-9a-fA-F_]{1,20}"
# Each sentence: words that stand in every text of it, and its pattern. Cheap words first, patterns last.
_SENTENCES: tuple[tuple[str, re.Pattern[str]], ...] = tuple(
    (sign, re.compile(pattern, re.ASCII))
    for sign, pattern in (
        (
            "(GPC ",
            r"\(GPC (?P<gpc_n>\d{1,4}), TPC (?P<tpc_n>\d{1,4})(?:, SM (?P<sm_n>\d{1,4}))?\)"
            r"(?:: (?P<exception>.{1,80}))?",
        ),
        (
            "ESR ",
            r"ESR (?P<esr>0x[0-9a-fA-F]{1,16}=0x[0-9a-fA-F]{1,16}(?: 0x[0-9a-fA-F]{1,16}=0x[0-9a-fA-F]{1,16}){0,15})",
        ),
        (
            ", Class ",
            r"Ch[Ii][Dd] (?P<channel_id>[0-9a-fA-F]{1,8}), Class (?P<class>[0-9a-fA-F]{1,8}), "
            r"Offset (?P<offset>[0-9a-fA-F]{1,8}), Data (?P<data>[0-9a-fA-F]{1,8})"
            r"(?:, ErrorCode (?P<error_code>[0-9a-fA-F]{1,8}))?",
        ),
        (
            "ENGINE ",
            r"ENGINE (?P<engine>\w{1,32})(?: GPC(?P<gpc_n>\d{1,4}))? (?P<client>\w{1,40}) faulted",
        ),
        ("faulted @", rf"faulted @ (?P<address>{_HEX})"),
        ("FAULT_", r"(?P<fault_type>\bFAULT_\w{1,40})(?: (?P<access_type>ACCESS_TYPE_\w{1,40}))?"),
        (" intr", r"\bintr0? (?P<intr>[0-9a-fA-F]{1,8})"),
        ("engmask ", r"engmask (?P<engmask>[0-9a-fA-F]{1,8})"),
        (", Info ", rf", Info (?P<info>{_HEX})"),
        ("physAddr", rf"physAddr:? (?P<address>{_HEX})"),
        ("subpartition", r"(?:partition|FBPA) (?P<partition_n>\d{1,4}),? subpartition (?P<subpartition_n>\d{1,4})"),
        ("ontained: ", r"(?P<contained>Contained|Uncontained): (?P<location>[A-Za-z][A-Za-z0-9_ ]{0,60}?) ?\("),
        ("RST: ", r"\bRST: (?P<reset_required>Yes|No), D-RST: (?P<drain_required>Yes|No)"),
        (
            "DRAM:",
            r"DRAM:(?P<dram_n>\d{1,9}), LTC:(?P<ltc_n>\d{1,9}), MMU:(?P<mmu_n>\d{1,9}), PCIE:(?P<pcie_n>\d{1,9})",
        ),
        (
            "Remapper",
            rf"(?P<remapper>Row|Bank) [Rr]emapper(?P<remap_failed> Error)?:(?: (?:New row )?\((?P<address>{_HEX})\))?",
        ),
        ("etire", rf"(?:retired.{{0,40}}\(|retirement at )(?P<address>{_HEX})"),
        ("TPC ", r"TPC (?P<tpc_n>\d{1,4}) from GPC (?P<gpc_n>\d{1,4})"),
        ("LTS ", r"LTS (?P<lts_n>\d{1,4}) in (?:FBP|FPB) ?(?P<fbp_n>\d{1,4})"),
        (
            "ink ",
            r"\blink (?P<link_n>\d{1,4})(?: ?\((?P<registers>0x[0-9a-fA-F]{1,8}(?:, ?0x[0-9a-fA-F]{1,8}){0,15}))?",
        ),
        ("for links ", rf"for links (?P<link_mask>{_HEX}) \((?P<registers>{_HEX}(?:, ?{_HEX}){{0,15}})"),
        ("interrupt hit", r"^(?P<unit>[A-Z][A-Z0-9_/]{1,60}) interrupt hit"),
        ("on GPU", r"on GPU(?P<gpu_index_n>\d{1,4})\b"),
        ("remote PCI:", r"remote PCI:(?P<peer>[0-9a-fA-F:.]{5,20})"),
        (
            "RPC",
            r"Timeout (?:after (?P<timeout_s_n>\d{1,9})s of )?waiting for RPC (?:response )?from "
            r"(?:GPU|GSP)(?P<gpu_index_n>\d{1,4})?",
        ),
        (
            "Expected function",
            r"Expected function (?P<rpc_n>\d{1,9}) \((?P<rpc_name>\w{1,60})\)"
            r"(?: sequence (?P<rpc_sequence_n>\d{1,18}))?"
            r"(?: \((?P<rpc_data>0x[0-9a-fA-F]{1,16}(?: 0x[0-9a-fA-F]{1,16})?)\))?",
        ),
        ("caused by", r"caused by previous Xid (?P<caused_by_n>\d{1,9})"),
        ("Head ", r"Head (?P<head>[0-9a-fA-F]{1,8}) Count (?P<count>[0-9a-fA-F]{1,8})"),
    )
)
_CHANNEL = re.compile(r"(?:Ch|[Cc]hannel(?: ID)?) (?:0x)?(?P<channel>[0-9a-fA-F]{1,8})\b", re.ASCII)
# Words that are yes or no.
_TRUTH = {"Yes": True, "No": False, "Contained": True, "Uncontained": False, " Error": True}


_SHAPES_OF_SENTENCES = tuple(shape_of(sign) for sign, _ in _SENTENCES)


@lru_cache(maxsize=SHAPES)
def _sentences_of(shape: bytes) -> tuple[tuple[str, re.Pattern[str]], ...]:
    """The sentences that a text of a shape may hold."""
    return tuple(sentence for sentence, held in zip(_SENTENCES, _SHAPES_OF_SENTENCES, strict=True) if held in shape)


def fields_of(text: str) -> dict[str, Attribute]:
    """The attributes that the text of an Xid bears."""
    found: dict[str, Attribute] = {}
    if match := _CHANNEL.match(text):
        found["channel"] = f"0x{match['channel'].lower():0>8}"
    shape = shape_of(text)
    for sign, pattern in _sentences_of(shape) if len(shape) <= LONGEST_SHAPE else _SENTENCES:
        if sign in text and (match := pattern.search(text)):
            for name, value in match.groupdict().items():
                if value is not None:
                    _add(found, name, value)
    return found


def _add(found: dict[str, Attribute], name: str, value: str) -> None:
    if name.endswith("_n"):
        found[name[:-2]] = int(value)
    elif value in _TRUTH:
        found[name] = _TRUTH[value]
    elif name == "address":  # an address of 64 bits is printed in two halves: 0x6f6f_320c2000
        found[name] = value.replace("_", "").lower()
    else:
        found[name] = value.strip().rstrip(".")


NVLINK5_CODES = range(144, 151)
RECOVERY_ACTION = 154

_XID = re.compile(
    r"NVRM: {0,8}Xid {0,8}\((?P<where>[^()]{1,80})\) {0,8}: {0,8}(?P<code>\d{1,9})(?:(?:[,.;: ]|$)(?P<rest>.*))?$",
    re.ASCII | re.DOTALL | re.IGNORECASE,
)
_MIG = re.compile(r"GPU-(?P<kind>I|CI):(?P<id>\d{1,10})", re.ASCII)
_PID = re.compile(r"\s{0,8}pid=(?P<pid>[^,\s]{0,40})(?:,|\s|$)", re.ASCII)
_NAME = re.compile(r"\s{0,8}name=(?P<name>.*?)(?:, |,?$)", re.DOTALL)
# What the driver's texts begin with: a process name may hold commas, so the name ends where one of these follows.
_TEXT = re.compile(
    r"(?:Ch|[Cc]hannel(?: ID)?) (?:0x)?[0-9a-fA-F]{1,8}\b|(?:Graphics|Class Error|Timeout|NVLink|GPU|GSP|An uncorr|"
    r"Row Rem|Bank Rem|Dynamic|DRAM|Contained|Uncontained|MMU|SEC_FAULT|Unrecovered|Marking|Retiring|Unable|Repairing|"
    r"Double Bit|SM |C2C|PMU|CTX SWITCH|[A-Z0-9_/]{3,40}\s{1,4}(?:Fatal|Nonfatal))"
)
# Linux cuts a process name at 15 bytes, the driver at 99.
MAX_NAME = 100
_RECOVERY = re.compile(
    r"changed from (?P<before>0x[0-9a-fA-F]{1,8}) \([^)]*\) to (?P<after>0x[0-9a-fA-F]{1,8}) \((?P<text>[^)]*)\)",
    re.ASCII,
)
# What the driver's recovery action asks for: NVML's nvmlDeviceGpuRecoveryAction_t (nvml.h of driver R570).
_RECOVERY_ACTIONS: dict[int, Action] = {0: "none", 1: "reset_gpu", 2: "reboot_node", 3: "drain_node", 4: "drain_node"}
# How grave each is: work on the GPU is over with the first, on the node with the second.
_RECOVERY_SEVERITIES: dict[int, Severity] = {0: "info", 1: "error", 2: "fatal", 3: "error", 4: "error"}
# Actions that do less than a reset.
_LESS_THAN_RESET: frozenset[Action] = frozenset({"none", "watch", "restart_app", "run_diagnostics"})
_UNKNOWN = frozenset({"", "<unknown>", "'<unknown>'"})


def decode_xid(message: str) -> Event | None:
    """The fault of an Xid message, without time and node; None where it is no Xid message with a code."""
    match = _XID.match(message)
    if not match:
        return None
    place, number, rest = match.groups()
    code = int(number)
    attributes: dict[str, Attribute] = {}
    where = _where(place, attributes)
    pci = canonical_pci(where)
    if code == 0 or not (pci or where[:4].upper() == "PCI:"):
        return None
    text = _process(rest, attributes) if rest else ""
    fault = xid(code)
    event = Event(
        None,
        None,
        "kernel",
        "xid",
        code,
        fault.severity if fault else "warning",
        fault.cause if fault else "unknown",
        fault.action if fault else "run_diagnostics",
        Device("gpu", pci),
        text or (fault.description if fault else f"Xid {code}"),
        attributes,
    )
    return _refine(event, text, attributes) if text else event


def _where(text: str, attributes: dict[str, Attribute]) -> str:
    """The address of what stands in the brackets; the MIG instances beside it become attributes."""
    if " " not in text:
        return text
    address = []
    for word in text.split():
        if found := _MIG.fullmatch(word):
            attributes["mig_gi" if found["kind"] == "I" else "mig_ci"] = int(found["id"])
        else:
            address.append(word)
    return "".join(address)


def _refine(event: Event, text: str, attributes: dict[str, Attribute]) -> Event:
    """What the text adds to the catalogue's reading. `attributes` are the event's own."""
    code = event.code or 0
    if code in NVLINK5_CODES and (detail := nvlink_detail(code, text)):
        attributes |= detail.attributes()
        return detail.judge(event)
    if code == RECOVERY_ACTION and (match := _RECOVERY.search(text)):
        after = int(match["after"], 16)
        attributes |= {
            "recovery_from": match["before"],
            "recovery_to": match["after"],
            "recovery_to_text": match["text"],
        }
        severity = _RECOVERY_SEVERITIES.get(after, event.severity)
        return replace(event, severity=severity, action=_RECOVERY_ACTIONS.get(after, event.action))
    attributes |= fields_of(text)
    caused_by = attributes.get("caused_by")
    if isinstance(caused_by, int):
        former = xid(caused_by)
        return replace(event, severity="info", cause=former.cause if former else event.cause, action="none")
    if attributes.get("reset_required") and event.action in _LESS_THAN_RESET:
        return replace(event, action="reset_gpu")
    return event


def _process(rest: str, attributes: dict[str, Attribute]) -> str:
    """Takes pid and name off the front; what stays is the message."""
    if match := _PID.match(rest):
        pid = match["pid"].strip("'\"")
        if pid.isdecimal() and len(pid) < 12:
            attributes["pid"] = int(pid)
        rest = rest[match.end() :]
    if match := _NAME.match(rest):
        name, text = match["name"], rest[match.end() :]
        if text and not _TEXT.match(text):
            name, text = _name_with_commas(rest, match.start("name")) or (name, text)
        if name not in _UNKNOWN:
            attributes["process"] = name
        rest = text
    return rest.strip()


def _name_with_commas(rest: str, start: int) -> tuple[str, str] | None:
    """The name that ends where one of the driver's texts begins, and that text; None where none does."""
    end = start
    while (end := rest.find(", ", end, start + MAX_NAME)) >= 0:
        if _TEXT.match(rest, end + 2):
            return rest[start:end], rest[end + 2 :]
        end += 2
    return None


XID = MessageFamily(name="xid", signs=("NVRM: Xid", "Xid (PCI:", "xid (", "XID (PCI:"), decode=decode_xid)


# An Xid that Node Health Check hands on: the kernel has said it already, so it is reported, but no fault of its own.
#
#     gpu-066 | ERROR: nhc: Health check failed: check_gpu_xid: GPU Xid errors detected: NVRM: Xid (PCI:0002:00:00):
# 119,
#     -> Event(kind="quoted_xid", code=119, severity="info", device=Device("gpu", pci="0002:00:00.0"))
#
# Form: NHC's `die` (nhc in mej/nhc) and the check of that name. No other program's quotation is read.

_CHECK = re.compile(
    r"(?:(?P<node>[\w.-]{1,253}) \| )?(?:ERROR: {1,4})?(?:nhc: {1,4})?Health check failed: {1,4}"
    r"check_gpu_xid: .{0,200}?(?P<quoted>NVRM: Xid \(.*)",
    re.ASCII | re.DOTALL,
)


def decode_quoted_xid(message: str) -> Event | None:
    """The Xid quoted, as a notice; without time, and without node unless the line names it.

    Without the process too: the kernel's own line blames it, and blames it once.
    """
    match = _CHECK.match(message)
    event = decode_xid(match["quoted"]) if match else None
    if match is None or event is None:
        return None
    attributes = {name: value for name, value in event.attributes.items() if name not in ("pid", "process")}
    return replace(event, kind="quoted_xid", severity="info", action="none", node=match["node"], attributes=attributes)


QUOTED_XID = MessageFamily(
    name="quoted_xid", signs=("check_gpu_xid: ",), decode=decode_quoted_xid, tags=frozenset({"nhc"})
)

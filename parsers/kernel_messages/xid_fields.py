"""What the text of an Xid says beside its code: places in the GPU, addresses, channels, links, calls that timed out.

    Graphics SM Warp Exception on (GPC 1, TPC 3, SM 0): Out Of Range Address
    -> {"gpc": 1, "tpc": 3, "sm": 0, "exception": "Out Of Range Address"}

Read by the text, not by the code: the driver prints the same sentence under several codes.
Sentences: NVIDIA/open-gpu-kernel-modules (gsp_events.c, kernel_nvlink.c, kernel_gsp.c, kernel_rc.c), public logs.
Group names are the attributes' names; one that ends in `_n` is a decimal number, all others stay text.
"""

import re

from store.event import Attribute

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


def fields_of(text: str) -> dict[str, Attribute]:
    """The attributes that the text of an Xid bears."""
    found: dict[str, Attribute] = {}
    if match := _CHANNEL.match(text):
        found["channel"] = f"0x{match['channel'].lower():0>8}"
    for sign, pattern in _SENTENCES:
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

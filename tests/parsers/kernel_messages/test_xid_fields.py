"""What the text of an Xid says beside its code."""

import pytest

from parsers.kernel_messages.families.xid import fields_of


@pytest.mark.parametrize(
    ("text", "fields"),
    [
        (
            "Graphics SM Warp Exception on (GPC 1, TPC 3, SM 0): Out Of Range Address",
            {"gpc": 1, "tpc": 3, "sm": 0, "exception": "Out Of Range Address"},
        ),
        (
            "Graphics SM Warp Exception on (GPC 1, TPC 0): Out Of Range Address",
            {"gpc": 1, "tpc": 0, "exception": "Out Of Range Address"},
        ),
        ("Graphics Exception: ESR 0x54d730=0x11c000e 0x54d734=0x20", {"esr": "0x54d730=0x11c000e 0x54d734=0x20"}),
        (
            "Graphics Exception: ChID 000c, Class 0000cbc0, Offset 00000000, Data 00000000",
            {"channel_id": "000c", "class": "0000cbc0", "offset": "00000000", "data": "00000000"},
        ),
        (
            "Class Error: ChId 0008, Class 0000cbc0, Offset 00000184, Data ffffffff, ErrorCode 00000004",
            {
                "channel_id": "0008",
                "class": "0000cbc0",
                "offset": "00000184",
                "data": "ffffffff",
                "error_code": "00000004",
            },
        ),
        (
            "channel 0x00000003, intr 10000000. MMU Fault: ENGINE GRAPHICS GPC6 GPCCLIENT_T1_13 faulted @ "
            "0x6F6f_320c2000. Fault is of type FAULT_PDE ACCESS_TYPE_VIRT_READ",
            {
                "channel": "0x00000003",
                "intr": "10000000",
                "engine": "GRAPHICS",
                "gpc": 6,
                "client": "GPCCLIENT_T1_13",
                "address": "0x6f6f320c2000",
                "fault_type": "FAULT_PDE",
                "access_type": "ACCESS_TYPE_VIRT_READ",
            },
        ),
        (
            "Ch 0000003a, intr 10000000. MMU Fault: ENGINE CE2 HUBCLIENT_CE0 faulted @ 0x0_00001000. "
            "FAULT_PTE ACCESS_TYPE_ATOMIC",
            {
                "channel": "0x0000003a",
                "intr": "10000000",
                "engine": "CE2",
                "client": "HUBCLIENT_CE0",
                "address": "0x000001000",
                "fault_type": "FAULT_PTE",
                "access_type": "ACCESS_TYPE_ATOMIC",
            },
        ),
        ("Channel ID 00000010 intr0 00040000", {"channel": "0x00000010", "intr": "00040000"}),
        ("Ch 00000020, engmask 00000101", {"channel": "0x00000020", "engmask": "00000101"}),
        (
            "Ch 00000046, errorString CTX SWITCH TIMEOUT, Info 0x2c02c",
            {"channel": "0x00000046", "info": "0x2c02c"},
        ),
        (
            "An uncorrectable double bit error (DBE) has been detected on GPU in the framebuffer at physAddr "
            "0x7fdf0de80 partition 5, subpartition 1",
            {"address": "0x7fdf0de80", "partition": 5, "subpartition": 1},
        ),
        ("Double Bit ECC Error in FBPA 4 subpartition 1", {"partition": 4, "subpartition": 1}),
        (
            "Contained: CE User Channel (0x9). RST: No, D-RST: No",
            {
                "contained": True,
                "location": "CE User Channel",
                "reset_required": False,
                "drain_required": False,
            },
        ),
        (
            "Uncontained: DRAM (0x1, 0x0). physAddr: 0x18f31d80 RST: Yes, D-RST: No",
            {
                "contained": False,
                "location": "DRAM",
                "address": "0x18f31d80",
                "reset_required": True,
                "drain_required": False,
            },
        ),
        (
            "An uncorrectable ECC error detected (possible firmware handling failure) DRAM:2, LTC:0, MMU:1, PCIE:0",
            {"dram": 2, "ltc": 0, "mmu": 1, "pcie": 0},
        ),
        ("Row Remapper: New row marked for remapping, reset gpu to activate.", {"remapper": "Row"}),
        (
            "Row Remapper: New row (0x0000000abc) marked for remapping",
            {"remapper": "Row", "address": "0x0000000abc"},
        ),
        (
            "Row Remapper Error: (0x00000002eebc4100) - All reserved rows for bank are remapped",
            {"remapper": "Row", "remap_failed": True, "address": "0x00000002eebc4100"},
        ),
        ("Bank Remapper: New bank marked for remapping, reset gpu to activate.", {"remapper": "Bank"}),
        (
            "Dynamic Page Retirement: New page retired, reboot to activate (0x00000000000f0a0d).",
            {"address": "0x00000000000f0a0d"},
        ),
        (
            "DRAM Retirement failed due to no spare for retirement at 0x0000000000001234",
            {"address": "0x0000000000001234"},
        ),
        ("Retiring TPC 4 from GPC 2 with a spare from the same GPC.", {"tpc": 4, "gpc": 2}),
        ("Marking LTS 5 in FPB 1 along with its pair for repair.", {"lts": 5, "fbp": 1}),
        (
            "NVLink: fatal error detected on link 14(0x0, 0x0, 0x10000)",
            {"link": 14, "registers": "0x0, 0x0, 0x10000"},
        ),
        ("NVLink: fatal error detected on link 1", {"link": 1}),
        ("NVLink: failed to train link 3 to remote PCI:0006:00:00", {"link": 3, "peer": "0006:00:00"}),
        (
            "NVLink: Link training failed for links 0x3 (0x1, 0x2)",
            {"link_mask": "0x3", "registers": "0x1, 0x2"},
        ),
        (
            "RLW_RXPIPE interrupt hit on link 11 on GPU0: PRIV Error",
            {"link": 11, "unit": "RLW_RXPIPE", "gpu_index": 0},
        ),
        (
            "Timeout after 6s of waiting for RPC response from GPU4 GSP! Expected function 76 (GSP_RM_CONTROL) "
            "(0x20801813 0x4c).",
            {
                "timeout_s": 6,
                "gpu_index": 4,
                "rpc": 76,
                "rpc_name": "GSP_RM_CONTROL",
                "rpc_data": "0x20801813 0x4c",
            },
        ),
        (
            "Timeout after 45s of waiting for RPC response from GPU0 GSP! Expected function 10 (FREE) sequence 17 "
            "(0x5c00014d 0x0).",
            {
                "timeout_s": 45,
                "gpu_index": 0,
                "rpc": 10,
                "rpc_name": "FREE",
                "rpc_sequence": 17,
                "rpc_data": "0x5c00014d 0x0",
            },
        ),
        ("Timeout waiting for RPC from GSP1! Expected function 76 (X)", {"gpu_index": 1, "rpc": 76, "rpc_name": "X"}),
        ("Timeout waiting for RPC from GSP!", {}),
        ("Ch 00000001 caused by previous Xid 149", {"channel": "0x00000001", "caused_by": 149}),
        ("Head 00000000 Count 00000a11", {"head": "00000000", "count": "00000a11"}),
        ("GPU has fallen off the bus.", {}),
        ("unknown", {}),
        ("", {}),
    ],
)
def test_a_sentence_of_the_driver_is_read(text: str, fields: dict[str, object]) -> None:
    """All of it, and nothing that it does not say."""
    assert fields_of(text) == fields

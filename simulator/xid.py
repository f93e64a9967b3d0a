"""The driver's words for each Xid that the simulated cluster prints.

    NVRM: Xid (PCI:0000:0f:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.

Forms: NVIDIA/open-gpu-kernel-modules and public logs.
"""

import numpy as np

from simulator.layout import NVSWITCH_PCI, PCI
from simulator.trace import KernelLine

_NOBODY = "pid='<unknown>', name=<unknown>"
_GSP_CALLS = ("76 (GSP_RM_CONTROL) (0x20802a02 0x8)", "103 (GSP_RM_ALLOC) (0x2081 0x4)", "10 (FREE) (0xa55a0210 0x0)")
# What a decoder takes for a fault of the machine at error severity or worse.
_CONFOUNDING = frozenset({48, 62, 64, 74, 79, 94, 95, 119})


def xid_line(time_ms: int, node: int, gpu: int, code: int, rng: np.random.Generator) -> KernelLine:
    """One Xid line, its details drawn."""
    pid = int(rng.integers(2_000, 4_000_000))
    text = f"NVRM: Xid (PCI:{PCI[gpu]}): {code}, {_words(code, gpu, pid, rng)}"
    return KernelLine(time_ms, node, text, (gpu, code), code in _CONFOUNDING)


def sxid_line(time_ms: int, node: int, gpu: int, fatal: bool) -> KernelLine:
    """One NVSwitch line: a link's training machine faulted (fatal), or replays above the threshold."""
    switch = gpu % len(NVSWITCH_PCI)
    code, words = (20034, "LTSSM Fault Up") if fatal else (20009, "RX Short Error Rate")
    mark = "Fatal" if fatal else "Non-fatal"
    text = f"nvidia-nvswitch{switch}: SXid (PCI:{NVSWITCH_PCI[switch]}): {code}, {mark}, Link {gpu * 2 + 24} {words}"
    return KernelLine(time_ms, node, text, None, fatal)


def recovery_line(time_ms: int, node: int, gpu: int, action: int) -> KernelLine:
    """Xid 154: the driver asks for a reset (1) or a reboot (2)."""
    word = {1: "GPU Reset Required", 2: "Node Reboot Required"}[action]
    text = f"NVRM: Xid (PCI:{PCI[gpu]}): 154, GPU recovery action changed from 0x0 (None) to 0x{action} ({word})"
    return KernelLine(time_ms, node, text, (gpu, 154))


def _words(code: int, gpu: int, pid: int, rng: np.random.Generator) -> str:
    process = f"pid={pid}, name=python3"
    address = f"0x{int(rng.integers(2**28, 2**36)):016x}"
    channel = f"{int(rng.integers(1, 64)):08x}"
    where = f"(GPC {rng.integers(0, 8)}, TPC {rng.integers(0, 9)}, SM {rng.integers(0, 2)})"
    forms = {
        13: f"{process}, Graphics SM Warp Exception on {where}: Out Of Range Address",
        31: f"{process}, Ch {channel}, intr 00000000. MMU Fault: ENGINE GRAPHICS GPC{rng.integers(0, 8)} "
        f"GPCCLIENT_T1_{rng.integers(0, 9)} faulted @ 0x7f{rng.integers(16, 256):02x}_{rng.integers(0, 2**32):08x}. "
        "Fault is of type FAULT_PDE ACCESS_TYPE_VIRT_READ",
        43: f"{process}, Ch {channel}",
        45: f"{process}, Ch {channel}",
        48: f"{_NOBODY}, An uncorrectable double bit error (DBE) has been detected on GPU in the framebuffer at "
        f"physAddr {address} partition {rng.integers(0, 12)}, subpartition {rng.integers(0, 2)}.",
        63: f"{_NOBODY}, Row Remapper: New row ({address}) marked for remapping, reset gpu to activate.",
        64: f"{_NOBODY}, Row Remapper Error: ({address}) - All reserved rows for bank are remapped",
        74: f"{_NOBODY}, NVLink: fatal error detected on link {rng.integers(0, 18)}"
        "(0x0, 0x0, 0x10000, 0x0, 0x0, 0x0, 0x0)",
        79: f"{_NOBODY}, GPU has fallen off the bus.",
        92: f"{_NOBODY}, High single-bit ECC error rate",
        94: f"pid={pid}, Contained: CE User Channel (0x9). RST: No, D-RST: No",
        95: f"{_NOBODY}, Uncontained: LTC TAG (0x2,0x0). RST: Yes, D-RST: No",
        119: f"pid={pid}, name=nvc:[driver], Timeout after 6s of waiting for RPC response from GPU{gpu} GSP! "
        f"Expected function {_GSP_CALLS[int(rng.integers(0, 3))]}.",
    }
    return forms[code]

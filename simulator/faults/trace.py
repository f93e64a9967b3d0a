"""What the hidden faults leave behind, before it is put into any format: lines, link changes, counts, heat, gaps."""

from dataclasses import dataclass, field

import numpy as np

from simulator.site import NVSWITCH_PCI, PCI


@dataclass(frozen=True, slots=True)
class KernelLine:
    """One line of a node's kernel log. `xid` = (GPU, code) where it is an Xid."""

    time_ms: int
    node: int
    text: str
    xid: tuple[int, int] | None = None
    confounds: bool = False  # a decoder sees a fault of the machine in it


@dataclass(frozen=True, slots=True)
class LinkLoss:
    """A host's port is down for a time; `root` = more than a flap: the fault of an outage or of a leaf switch."""

    down_ms: int
    up_ms: int
    node: int
    root: bool = False


@dataclass(frozen=True, slots=True)
class Count:
    """A counter of a GPU rises by `amount`."""

    time_ms: int
    node: int
    gpu: int
    counter: str
    amount: int


@dataclass(frozen=True, slots=True)
class Heat:
    """A GPU (None: the whole node) runs hotter by up to `rise_c`, in a ramp over the time."""

    start_ms: int
    end_ms: int
    node: int
    gpu: int | None
    rise_c: float


@dataclass(frozen=True, slots=True)
class Gap:
    """No samples of a GPU (None: of the whole node)."""

    start_ms: int
    end_ms: int
    node: int
    gpu: int | None


@dataclass(slots=True)
class Trace:
    """Everything that is left behind, in no order; a reset sets a node's counters back to zero."""

    kernel: list[KernelLine] = field(default_factory=list)
    links: list[LinkLoss] = field(default_factory=list)
    counts: list[Count] = field(default_factory=list)
    heat: list[Heat] = field(default_factory=list)
    gaps: list[Gap] = field(default_factory=list)
    resets: list[tuple[int, int]] = field(default_factory=list)  # (ms, node)

    def sort(self) -> None:
        """Put each list in time order; what is simultaneous keeps its order."""
        self.kernel.sort(key=lambda line: line.time_ms)
        self.links.sort(key=lambda loss: loss.down_ms)
        self.counts.sort(key=lambda count: count.time_ms)
        self.resets.sort()


# The driver's words for each Xid that the simulated cluster prints.
#
#     NVRM: Xid (PCI:0000:0f:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.
#
# Forms: NVIDIA/open-gpu-kernel-modules and public logs.

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

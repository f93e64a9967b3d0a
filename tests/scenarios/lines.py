"""Messages as real programs print them, one function a fault: the kernel, the GPU's driver, adapters, file systems.

Forms: the samples under `fixtures/kernel` and `fixtures/training`, and the format strings of the programs themselves.
"""

# ruff: noqa: E501  # a line of a log is kept whole

import random

Message = tuple[float, str]  # seconds after the fault, text


def xid(pci: str, code: int, words: str, process: bool = True) -> str:
    """A report of NVIDIA's driver."""
    by = "pid='<unknown>', name=<unknown>, " if not process else ""
    return f"NVRM: Xid (PCI:{pci}): {code}, {by}{words}"


def torn_down(pci: str, rng: random.Random, by: int | None = None) -> str:
    """A channel that goes with its process."""
    tail = "" if by is None else f" caused by previous Xid {by}"
    return (
        f"NVRM: Xid (PCI:{pci}): 45, pid={rng.randint(2000, 999_999)}, name=python3, Ch {rng.randint(1, 30):08x}{tail}"
    )


def recovery(pci: str, action: str = "0x2 (Node Reboot Required)") -> str:
    """The driver's own advice after a fault."""
    return f"NVRM: Xid (PCI:{pci}): 154, GPU recovery action changed from 0x0 (None) to {action}"


def off_the_bus(pci: str, rng: random.Random) -> list[Message]:
    """A GPU that answers no more."""
    serial = rng.randint(1_650_000_000_000, 1_659_999_999_999)
    return [
        (0.0, xid(pci, 79, "GPU has fallen off the bus.", process=False)),
        (0.001, f"NVRM: GPU {pci}.0: GPU has fallen off the bus."),
        (0.002, f"NVRM: GPU {pci}.0: GPU serial number is {serial}."),
        (0.9, recovery(pci)),
    ]


def pcie_before(pci: str) -> list[Message]:
    """Correctable errors of the slot in the hour before, as often seen."""
    port = f"0000:{int(pci[5:7], 16) - 1:02x}:01.0"
    return [
        (-1800.0, f"pcieport {port}: AER: Multiple Corrected error received: {pci}.0"),
        (-1799.99, f"nvidia {pci}.0: PCIe Bus Error: severity=Corrected, type=Physical Layer, (Receiver ID)"),
        (-1799.98, f"nvidia {pci}.0:   device [10de:2330] error status/mask=00000001/0000a000"),
        (-1799.97, f"nvidia {pci}.0:    [ 0] RxErr                  (First)"),
    ]


def uncorrectable_memory(pci: str, rng: random.Random) -> list[Message]:
    """A double bit error, and what the driver does about it."""
    address = rng.randint(0x1_0000_0000, 0x9_FFFF_FFFF)
    found = [
        (
            0.0,
            xid(
                pci,
                48,
                "An uncorrectable double bit error (DBE) has been detected on GPU in the framebuffer at physAddr "
                f"0x{address:x} partition {rng.randint(0, 9)}, subpartition {rng.randint(0, 1)}",
                process=False,
            ),
        ),
        (0.1, xid(pci, 63, f"Row Remapper: New row (0x{address:016x}) marked for remapping", process=False)),
    ]
    if rng.random() < 0.5:
        text = f"pid={rng.randint(2000, 99999)}, name=python3, Contained: SM (0x1). RST: No, D-RST: No"
        found.append((0.2, xid(pci, 94, text)))
    else:
        found.append((0.2, xid(pci, 95, "Uncontained: FBHUB. RST: Yes, D-RST: No", process=False)))
    return [*found, (0.4, torn_down(pci, rng, 48))]


def nvlink_fatal(pci: str, rng: random.Random) -> list[Message]:
    """A link between GPUs that fails."""
    link = rng.randint(0, 17)
    words = f"NVLink: fatal error detected on link {link}(0x10000, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0)"
    return [(0.0, xid(pci, 74, words, process=False)), (0.6, torn_down(pci, rng))]


def switch_fatal(rng: random.Random) -> list[Message]:
    """An NVSwitch of the node that fails."""
    unit, link = rng.randint(0, 3), rng.randint(0, 63)
    pci = f"0000:{5 + unit:02x}:00.0"
    code, words = rng.choice(
        [(20034, "LTSSM Fault Up"), (12020, "egress sequence ID error"), (24007, "sourcetrack timeout error (First)")]
    )
    return [
        (0.0, f"nvidia-nvswitch{unit}: SXid (PCI:{pci}): {code}, Fatal, Link {link:02d} {words}"),
        (
            0.001,
            f"nvidia-nvswitch{unit}: SXid (PCI:{pci}): {code}, Severity 1 Engine instance {link:02d} "
            "Sub-engine instance 00",
        ),
        (
            0.002,
            f"nvidia-nvswitch{unit}: SXid (PCI:{pci}): {code}, Data {{0x0000003c, 0x0000003c, 0x00000000, 0x0000003c, "
            "0x80000302, 0x00000000, 0x00000000, 0x00000000, 0x00000000}",
        ),
    ]


def vanished(pci: str) -> list[Message]:
    """A GPU that leaves the bus without an Xid."""
    port = f"0000:{int(pci[5:7], 16) - 1:02x}:01.0"
    return [
        (0.0, f"pcieport {port}: pciehp: Slot({int(pci[5:7], 16) % 12 + 1}): Link Down"),
        (0.002, f"pcieport {port}: pciehp: Slot({int(pci[5:7], 16) % 12 + 1}): Card not present"),
        (1.5, f"nvidia {pci}.0: Unable to change power state from D3cold to D0, device inaccessible"),
        (3.0, f"NVRM: GPU {pci}.0: GPU has fallen off the bus."),
    ]


def machine_check(rng: random.Random) -> list[Message]:
    """A processor or memory fault that stops the kernel."""
    cpu = rng.randint(0, 111)
    return [
        (0.0, f"mce: [Hardware Error]: CPU {cpu}: Machine Check Exception: 5 Bank 7: be00000000800400"),
        (0.001, "mce: [Hardware Error]: TSC 1f3a ADDR 3f8a4c0 MISC 86"),
        (0.002, f"mce: [Hardware Error]: PROCESSOR 0:606a6 TIME 1741000000 SOCKET 1 APIC {cpu:x} microcode d0003a5"),
        (0.2, "Kernel panic - not syncing: Fatal machine check"),
    ]


def boot(driver: str) -> list[Message]:
    """The first lines after a start."""
    return [
        (
            0.0,
            "Linux version 5.15.0-105-generic (buildd@lcy02-amd64-007) (gcc (Ubuntu 11.4.0-1ubuntu1~22.04) 11.4.0) "
            "#115-Ubuntu SMP",
        ),
        (0.1, "Command line: BOOT_IMAGE=/vmlinuz-5.15.0-105-generic root=UUID=2f1c ro iommu=pt panic=10"),
        (14.0, f"NVRM: loading NVIDIA UNIX x86_64 Kernel Module  {driver}  Thu Oct 19 18:56:32 UTC 2023"),
    ]


def power_lost() -> list[Message]:
    """A node whose own supply gives way: an adapter notices it first."""
    return [
        (
            -4.0,
            "mlx5_core 0000:5e:00.0: mlx5_pcie_event:299:(pid 12): Detected insufficient power on the PCIe slot (27W).",
        ),
        (-2.0, "CPU0: Package power limit notification (total events = 1)"),
    ]


def disk_gone(rng: random.Random) -> list[Message]:
    """The node's own disk fails, and the file system on it."""
    disk = rng.randint(0, 3)
    return [
        (0.0, f"nvme nvme{disk}: I/O 24 QID 5 timeout, aborting"),
        (8.0, f"nvme nvme{disk}: controller is down; will reset: CSTS=0xffffffff, PCI_STATUS=0xffff"),
        (20.0, f"nvme nvme{disk}: Removing after probe failure status: -19"),
        (
            20.1,
            f"blk_update_request: I/O error, dev nvme{disk}n1, sector 262656 op 0x0:(READ) flags 0x0 phys_seg 1 prio class 0",
        ),
        (21.0, f'XFS (nvme{disk}n1p2): metadata I/O error in "xfs_trans_read_buf_map" at daddr 0x40 len 8 error 5'),
        (
            21.2,
            f"XFS (nvme{disk}n1p2): Log I/O Error (0x2) detected at xlog_ioend_work+0x7c/0x90 [xfs] (fs/xfs/xfs_log.c:1378).  Shutting down filesystem.",
        ),
    ]


def port_down(pci: str, rail: int) -> str:
    """An adapter's port without link."""
    return f"mlx5_core {pci} mlx5_{rail}: Port: 1 Link DOWN"


def port_up(pci: str, rail: int) -> str:
    """An adapter's port with link again."""
    return f"mlx5_core {pci} mlx5_{rail}: Port: 1 Link ACTIVE"


def adapter_dead(pci: str) -> list[Message]:
    """An adapter that fails by itself."""
    return [
        (0.0, f"mlx5_core {pci}: poll_health:807:(pid 0): Fatal error 3 detected"),
        (
            0.1,
            f"mlx5_core {pci}: print_health_info:424:(pid 0): Health issue observed, unrecoverable hardware error, severity(3) ERROR:",
        ),
        (0.101, f"mlx5_core {pci}: print_health_info:440:(pid 0): synd 0x8: unrecoverable hardware error"),
        (
            30.0,
            f"mlx5_core {pci}: mlx5_health_try_recover:327:(pid 9): health recovery flow aborted, PCI reads still not working",
        ),
    ]


def gsp_timeout(pci: str, gpu: int, rng: random.Random) -> list[Message]:
    """The GPU's system processor answers no more."""
    pid = rng.randint(2000, 99_999)
    words = (
        f"pid={pid}, name=python3, Timeout after 6s of waiting for RPC response from GPU{gpu} GSP! "
        "Expected function 76 (GSP_RM_CONTROL) (0x20802a02 0x8)."
    )
    found: list[Message] = [(0.0, xid(pci, 119, words))]
    found += [(0.01, f"NVRM: GPU{gpu} RPC history (CPU -> GSP):")]
    found += [(6.0 * number, xid(pci, 119, words)) for number in range(1, rng.randint(2, 5))]
    if rng.random() < 0.4:
        found.append((25.0, xid(pci, 120, "GSP task panic: instruction address misaligned", process=False)))
    return [*found, (30.0, recovery(pci, "0x1 (GPU Reset Required)"))]


def mmu_fault(pci: str, rng: random.Random, pid: int) -> str:
    """A program's wrong access."""
    return (
        f"NVRM: Xid (PCI:{pci}): 31, pid={pid}, name=python3, Ch {rng.randint(1, 60):08x}, intr 00000000. MMU Fault: "
        f"ENGINE GRAPHICS GPC{rng.randint(0, 6)} GPCCLIENT_T1_{rng.randint(0, 15)} faulted @ 0x7f{rng.randint(0, 255):02x}_"
        f"{rng.randint(0, 0xFFFFFFFF):08x}. Fault is of type FAULT_PDE ACCESS_TYPE_VIRT_READ"
    )


def killed_by_cgroup(rng: random.Random, job: int) -> list[Message]:
    """The kernel ends a program that used up its memory."""
    pid = rng.randint(2000, 99_999)
    return [
        (0.0, "python3 invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=0"),
        (
            0.1,
            f"oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=job_{job},mems_allowed=0-1,"
            f"oom_memcg=/slurm/job_{job},task_memcg=/slurm/job_{job}/step_0,task=python3,pid={pid},uid=1000",
        ),
        (
            0.2,
            f"Memory cgroup out of memory: Killed process {pid} (python3) total-vm:104857600kB, anon-rss:52428800kB, "
            "file-rss:0kB, shmem-rss:0kB, UID:1000 pgtables:102400kB oom_score_adj:0",
        ),
    ]


def nfs_silent(server: str) -> str:
    """A file server that answers nobody, by one of its clients."""
    return f"nfs: server {server} not responding, still trying"


def nfs_back(server: str) -> str:
    """The file server answers again."""
    return f"nfs: server {server} OK"


def lustre_lost(target: str, address: str) -> str:
    """A Lustre target that a client lost."""
    return (
        f"Lustre: {target}-osc-ffff9a3c: Connection to {target} (at {address}@o2ib) was lost; in progress operations "
        "using this service will wait for recovery to complete"
    )


def throttled(cpu: int, count: int) -> str:
    """A processor that is too hot."""
    return f"mce: CPU{cpu}: Package temperature above threshold, cpu clock throttled (total events = {count})"


def module_hot(pci: str, module: int) -> str:
    """An optical module that is too hot."""
    return f"mlx5_core {pci}: port_module:253:(pid 0): Port module event[error]: module {module}, Cable error, High Temperature"


def corrected_memory(rng: random.Random) -> str:
    """A memory error that was put right."""
    channel = rng.randint(0, 7)
    return (
        f"EDAC MC{rng.randint(0, 3)}: 1 CE memory read error on CPU_SrcID#0_MC#0_Chan#{channel}_DIMM#0 (channel:{channel} "
        "slot:0 page:0x5d8 offset:0x0 grain:32 syndrome:0x0 -  err_code:0x0101:0x0091 socket:0 imc:0 rank:0)"
    )

"""Faults that shout on one node: what a GPU, a link, a disk, a supply or the machine itself prints when it breaks."""

from scenarios import fabric, lines, program
from scenarios.archive import Outage
from scenarios.site import GPUS, RAILS
from scenarios.stage import Stage, Truth


def _of(stage: Stage, place: int, *classes: str) -> Truth:
    return Truth(frozenset({*classes, "node"}), node=stage.site.nodes[place])


def gpu_off_the_bus(stage: Stage) -> Truth:
    """Xid 79, after an hour of correctable PCIe errors in two of five cases."""
    place, gpu = stage.victim(), stage.rng.randrange(GPUS)
    pci = stage.site.gpu_pci(gpu)
    if stage.rng.random() < 0.43:
        stage.archive.says(place, lines.pcie_before(pci))
    stage.archive.says(place, lines.off_the_bus(pci, stage.rng))
    for other in range(GPUS):
        if other != gpu:
            stage.archive.say(place, 8.0 + other * 0.01, lines.torn_down(stage.site.gpu_pci(other), stage.rng))
    stage.broken_rank(place, gpu, "torch.AcceleratorError: CUDA error: unspecified launch failure")
    return _of(stage, place, "gpu")


def gpu_memory(stage: Stage) -> Truth:
    """Xid 48 with 94 or 95."""
    place, gpu = stage.victim(), stage.rng.randrange(GPUS)
    stage.archive.says(place, lines.uncorrectable_memory(stage.site.gpu_pci(gpu), stage.rng))
    stage.broken_rank(place, gpu, "torch.AcceleratorError: CUDA error: uncorrectable ECC error encountered")
    return _of(stage, place, "gpu")


def nvlink(stage: Stage) -> Truth:
    """Xid 74 on one GPU, and a moment later on a peer of it."""
    place, gpu = stage.victim(), stage.rng.randrange(GPUS)
    stage.archive.says(place, lines.nvlink_fatal(stage.site.gpu_pci(gpu), stage.rng))
    if stage.is_odd():
        stage.archive.says(place, lines.nvlink_fatal(stage.site.gpu_pci((gpu + 3) % GPUS), stage.rng), 0.2)
    error = "RuntimeError: CUDA error: Invalid access of peer GPU memory over nvlink or a hardware error"
    stage.broken_rank(place, gpu, error)
    return _of(stage, place, "nvlink", "gpu")


def nvswitch(stage: Stage) -> Truth:
    """A fatal SXid, and Xid 74 on the GPUs behind it."""
    place = stage.victim()
    stage.archive.says(place, lines.switch_fatal(stage.rng))
    for gpu in stage.rng.sample(range(GPUS), stage.rng.randint(1, GPUS)):
        stage.archive.says(place, lines.nvlink_fatal(stage.site.gpu_pci(gpu), stage.rng), 0.05 + 0.01 * gpu)
    error = "RuntimeError: CUDA error: Invalid access of peer GPU memory over nvlink or a hardware error"
    stage.broken_rank(place, stage.rng.randrange(GPUS), error)
    return _of(stage, place, "nvswitch", "nvlink")


def gpu_gone(stage: Stage) -> Truth:
    """A GPU that leaves the bus without an Xid."""
    place, gpu = stage.victim(), stage.rng.randrange(GPUS)
    stage.archive.says(place, lines.vanished(stage.site.gpu_pci(gpu)))
    stage.broken_rank(place, gpu, "torch.AcceleratorError: CUDA error: unknown error", 4.0)
    return _of(stage, place, "gpu")


def node_crash(stage: Stage) -> Truth:
    """A machine check, a panic, silence; the node starts again after some minutes."""
    place = stage.victim()
    stage.archive.says(place, lines.machine_check(stage.rng))
    stage.node_lost(place, back_s=stage.rng.uniform(300, 900) if stage.is_odd() else None)
    stage.neighbours_complain([place])
    stage.ends(stage.rng.uniform(90, 320), "NODE_FAIL", "0:0")
    return _of(stage, place)


def node_supply(stage: Stage) -> Truth:
    """One node's own power supply: a last word of an adapter, then nothing."""
    place = stage.victim()
    stage.archive.says(place, lines.power_lost())
    stage.node_lost(place, back_s=stage.rng.uniform(900, 2400) if stage.is_odd() else None)
    stage.neighbours_complain([place])
    stage.ends(stage.rng.uniform(90, 320), "NODE_FAIL", "0:0")
    return _of(stage, place, "power")


def node_disk(stage: Stage) -> Truth:
    """The node's own disk and the file system on it."""
    place, gpu = stage.victim(), stage.rng.randrange(GPUS)
    stage.archive.says(place, lines.disk_gone(stage.rng))
    error = "OSError: [Errno 5] Input/output error: '/local/cache/index.npy'"
    stage.broken_rank(place, gpu, error, 22.0)
    return _of(stage, place, "storage")


def host_link(stage: Stage) -> Truth:
    """One adapter or its cable: the kernel, the manager, and the neighbours that cannot reach it."""
    place, rail = stage.victim(), stage.rng.randrange(RAILS)
    if stage.is_odd():
        stage.archive.says(place, lines.adapter_dead(stage.site.hca_pci(rail)), -0.5)
    fabric.port_lost(stage.archive, 0.0, place, rail)
    stage.neighbours_complain([place], rail, 8.0)
    program.port_error(stage.archive, stage.job, 0.5, place, rail)
    stage.ends(stage.rng.uniform(40, 200))
    return _of(stage, place, "nic", "cable", "port", "optic")


def gpu_processor(stage: Stage) -> Truth:
    """Xid 119: the GPU's system processor."""
    place, gpu = stage.victim(), stage.rng.randrange(GPUS)
    stage.archive.says(place, lines.gsp_timeout(stage.site.gpu_pci(gpu), gpu, stage.rng))
    if stage.is_odd():
        stage.archive.outages.append(Outage(place, 240.0, None, "DRAIN", "Kill task failed", "root(0)"))
    stage.broken_rank(place, gpu, "torch.AcceleratorError: CUDA error: unspecified launch failure", 40.0)
    return _of(stage, place, "gpu", "driver")


def flap_then_gpu(stage: Stage) -> Truth:
    """A link of another node of the job is down for six seconds; minutes later a GPU falls off the bus."""
    other, rail = stage.victim(), stage.rng.randrange(RAILS)
    at = -stage.rng.uniform(60, 500)
    fabric.port_lost(stage.archive, at, other, rail)
    fabric.port_back(stage.archive, at + 6.0, other, rail)
    return gpu_off_the_bus(stage)


def two_faults(stage: Stage) -> Truth:
    """A GPU of one node and an adapter of another, within two minutes."""
    first = gpu_off_the_bus(stage)
    place, rail = stage.victim(), stage.rng.randrange(RAILS)
    at = stage.rng.uniform(-60, 15)
    stage.archive.says(place, lines.adapter_dead(stage.site.hca_pci(rail)), at)
    fabric.port_lost(stage.archive, at + 0.2, place, rail)
    return Truth(first.classes, first.node, second=_of(stage, place, "nic", "cable", "port", "optic"))

"""What is no fault of the machine: a program's own error, and work that somebody planned."""

# ruff: noqa: E501  # a line of a log is kept whole

from scenarios import fabric, lines, program
from scenarios.archive import Outage
from scenarios.site import GPUS, NODES_OF_RACK
from scenarios.stage import Stage, Truth

_PROGRAM = Truth(frozenset({"application", "job"}), nobody=True)
_PLANNED = Truth(frozenset({"planned"}), nobody=True)


def illegal_access(stage: Stage) -> Truth:
    """A kernel of the program reads where nothing is; in half of the cases the driver tells of it too."""
    place, gpu, rng = stage.victim(), stage.rng.randrange(GPUS), stage.rng
    if stage.is_odd():
        pci, pid = stage.site.gpu_pci(gpu), rng.randint(2000, 99_999)
        stage.archive.say(place, 0.0, lines.mmu_fault(pci, rng, pid))
        stage.archive.say(place, 0.3, f"NVRM: Xid (PCI:{pci}): 43, pid={pid}, name=python3, Ch 00000008")
    stage.broken_rank(place, gpu, "RuntimeError: CUDA error: an illegal memory access was encountered", 0.5)
    return _PROGRAM


def traceback(stage: Stage) -> Truth:
    """An error of the program's own."""
    place, gpu = stage.victim(), stage.rng.randrange(GPUS)
    error = stage.rng.choice(
        (
            "ValueError: expected sequence of length 4096 at dim 1 (got 4095)",
            "KeyError: 'attention_mask'",
            "AssertionError: loss scale went below 1.0",
            "RuntimeError: The size of tensor a (8192) must match the size of tensor b (8191) at non-singleton dimension 2",
            "FileNotFoundError: [Errno 2] No such file or directory: '/data/shard_0412.bin'",
        )
    )
    if stage.is_odd():
        stage.program_until(0.0)
        for rank in stage.rng.sample(range(len(stage.job.places) * GPUS), 40):
            program.raised(stage.archive, stage.job, 1.0 + stage.rng.random(), rank, error)
        program.root_cause(stage.archive, stage.job, 12.0, place, gpu)
        stage.ends(30.0)
    else:
        stage.broken_rank(place, gpu, error, 1.0)
    return _PROGRAM


def out_of_memory(stage: Stage) -> Truth:
    """The program wants more memory than a GPU, or its part of a host, has."""
    place, gpu = stage.victim(), stage.rng.randrange(GPUS)
    if stage.is_odd():
        error = (
            f"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.50 GiB. GPU {gpu} has a total capacity of "
            "79.11 GiB of which 1.21 GiB is free."
        )
        stage.broken_rank(place, gpu, error, 1.0)
        return _PROGRAM
    stage.archive.says(place, lines.killed_by_cgroup(stage.rng, stage.job.number))
    stage.program_until(0.0)
    log = stage.archive.training[stage.job.name]
    log.append(
        (
            1.0,
            f"slurmstepd: error: Detected 1 oom_kill event in StepId={stage.job.number}.0. Some of the step tasks have been OOM Killed.",
        )
    )
    program.root_cause(stage.archive, stage.job, 14.0, place, gpu, -9)
    stage.ends(30.0, "OUT_OF_MEMORY", "0:125")
    return _PROGRAM


def rack_drained(stage: Stage) -> Truth:
    """An admin drains a rack, then takes its power for maintenance."""
    rng, racks = stage.rng, [rack for rack in stage.site.racks() if not set(rack) & set(stage.job.places)]
    places = rng.choice(racks)
    stage.reserved |= set(places)
    for place in places:
        begin = -rng.uniform(3000, 3600)
        stage.archive.outages.append(
            Outage(
                place,
                begin,
                None if stage.seed_is_odd() else 5400.0,
                "DRAIN",
                "planned maintenance: PDU swap",
                "admin(1001)",
            )
        )
        stage.archive.silence(place, 0.0)
    fabric.nodes_lost(stage.archive, 0.4, places, rng, spread_s=40.0)
    if not stage.seed_is_odd():
        for place in places:
            stage.archive.says(place, lines.boot(stage.site.driver(place)), 2400 + rng.uniform(0, 200))
        fabric.nodes_back(stage.archive, 2440.0, places, rng, 200.0)
    stage.asked = "ended"
    stage.program_until(3000.0)
    stage.goes_on()
    return _PLANNED


def rolling_reboot(stage: Stage) -> Truth:
    """Nodes are started anew one after the other for a new kernel, as `scontrol reboot ASAP` does it."""
    rng = stage.rng
    free = [place for place in range(stage.site.size) if place not in stage.job.places]
    places = rng.sample(free, min(len(free), rng.choice((NODES_OF_RACK, 20, 40))))
    stage.reserved |= set(places)
    for number, place in enumerate(places):
        at = -1800.0 + 1800.0 * number / len(places)
        stage.archive.outages.append(
            Outage(
                place,
                at - 300,
                at + 420,
                rng.choice(("DRAIN", "MAINT")),
                "reboot ASAP : kernel update 5.15.0-106",
                "root(0)",
            )
        )
        fabric.nodes_lost(stage.archive, at, [place], rng)
        stage.archive.says(place, lines.boot(stage.site.driver(place)), at + 240)
        fabric.nodes_back(stage.archive, at + 290, [place], rng)
    stage.asked = "ended"
    stage.program_until(1900.0)
    stage.goes_on()
    return _PLANNED

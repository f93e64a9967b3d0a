"""A second set of kinds that the engine had not seen: shared and double faults, and faults of what it has no class for.

What they show at first sight stands in docs/diagnosis.md.
"""

# a line of a log is kept whole

from scenarios import fabric, lines, loud, program
from scenarios.site import GPUS, HOSTS_OF_LEAF, NODES_OF_RACK, RAILS
from scenarios.stage import HOUR, Stage, Truth

# What no part of the machine is to be accused of. "unknown" is a right answer, too.
_NOBODY = Truth(frozenset({"application", "job", "unknown"}), nobody=True)
_LINK = frozenset({"nic", "cable", "port", "optic", "node"})


def _of(stage: Stage, place: int, *classes: str) -> Truth:
    return Truth(frozenset({*classes, "node"}), node=stage.site.nodes[place])


def two_rails(stage: Stage) -> Truth:
    """A leaf of one rail dies; within the minute an adapter of another rail, elsewhere in the job, loses its link."""
    site, rng = stage.site, stage.rng
    rail, other = rng.sample(range(RAILS), 2)
    broken = site.leaf_of(stage.victim(), rail)
    hosts = site.hosts_of_leaf(broken)
    stage.reserved |= set(hosts)
    fabric.leaf_lost(stage.archive, 0.0, broken, rng)
    place = rng.choice([each for each in stage.job.places if each not in hosts] or stage.job.places)
    stage.reserved.add(place)
    fabric.port_lost(stage.archive, rng.uniform(8, 50), place, other)
    stage.neighbours_complain([each for each in hosts if each in stage.job.places][:6], rail, 7.0)
    stage.ends(rng.uniform(60, 300))
    names = frozenset({site.leaf_name(broken), f"0x{site.leaf_guid(broken):016x}"})
    return Truth(frozenset({"switch"}), names=names, second=Truth(_LINK, node=site.nodes[place]))


def supply_of_two_racks(stage: Stage) -> Truth:
    """One power feed carries half of two racks that stand side by side; every other site knows which half."""
    first = stage.rng.choice(stage.job.places) // (2 * NODES_OF_RACK) * (2 * NODES_OF_RACK)
    half = NODES_OF_RACK // 2
    places = [first + rack * NODES_OF_RACK + number for rack in range(2) for number in range(half)]
    feeds = {
        place: f"feed{place // (2 * NODES_OF_RACK) + 1}{'A' if place % NODES_OF_RACK < half else 'B'}"
        for place in range(stage.site.size)
    }
    if stage.seed_is_odd():
        stage.archive.columns["power_feed"] = feeds
    stage.reserved |= set(places)
    stage.nodes_lost(places, back_s=stage.rng.uniform(600, 1500) if stage.is_odd() else None)
    stage.neighbours_complain(places)
    stage.ends(stage.rng.uniform(90, 320), "NODE_FAIL", "0:0")
    names = {feeds[places[0]], *(stage.site.rack(place) for place in places)}
    nodes = frozenset(stage.site.nodes[place] for place in places)
    return Truth(frozenset({"power", "rack"}), names=frozenset(names), nodes=nodes)


def domain_switch(stage: Stage) -> Truth:
    """A switch tray of an NVLink domain of 16 nodes: links of many of its GPUs fail, all others print Xid 145."""
    rng, width = stage.rng, 2 * NODES_OF_RACK
    domains = {place: f"nvl{place // width + 1:02d}" for place in range(stage.site.size)}
    stage.archive.columns["nvlink_domain"] = domains
    first = rng.choice(stage.job.places) // width * width
    places = list(range(first, first + width))
    stage.reserved |= set(places)
    for place in places:
        struck = set(rng.sample(range(GPUS), rng.randint(1, 2))) if rng.random() < 0.7 else set()
        for gpu in range(GPUS):
            pci, after = stage.site.gpu_pci(gpu), rng.uniform(0, 0.6)
            code, words = (149, "NETIR_LINK_EVT  Fatal") if gpu in struck else (145, "RLW_SRC_TRACK Fatal")
            link, data = rng.randint(8, 9) if gpu in struck else 0, "0x00000000 0x00000000 0x00000000 0x00000000"
            text = lines.xid(
                pci, code, f"{words}   XC0 i0 Link {link:02d} (0x004505c6 0x00000000 {data})", process=False
            )
            stage.archive.say(place, after, text.replace("pid='<unknown>', name=<unknown>, ", ""))
    stage.broken_rank(
        max(set(places) & set(stage.job.places)),
        0,
        "torch.AcceleratorError: CUDA error: unspecified launch failure",
        4.0,
    )
    nodes = frozenset(stage.site.nodes[place] for place in places)
    return Truth(frozenset({"nvswitch"}), names=frozenset({domains[first]}), nodes=nodes)


def adapter_model(stage: Stage) -> Truth:
    """The adapters of one model got new firmware: over a day each flaps for some seconds, and one stays down.

    Nobody keeps the version in an inventory: each node's kernel told it when it started.
    """
    rng, site, version = stage.rng, stage.site, "28.45.1200"
    updated = rng.sample(range(site.size), site.size // 6)
    for place in range(site.size):
        own = version if place in set(updated) else "28.39.1002"
        stage.archive.say(place, -40 * HOUR - place, f"mlx5_core {site.hca_pci(0)}: firmware version: {own}")
    inside = [place for place in updated if place in stage.job.places]
    struck = [*inside[:1], *rng.sample([place for place in updated if place not in inside[:1]], 2 * len(updated) // 3)]
    stage.reserved |= set(struck)
    for number, place in enumerate(struck):
        at, rail = (0.0 if number == 0 else -rng.uniform(300, 20 * HOUR)), rng.randrange(RAILS)
        stage.archive.say(
            place,
            at - 0.2,
            f"mlx5_core {site.hca_pci(rail)}: poll_health:825: device's health compromised - reached miss count.",
        )
        fabric.port_lost(stage.archive, at, place, rail)
        if number:
            fabric.port_back(stage.archive, at + rng.uniform(4, 50), place, rail)
    stage.neighbours_complain(struck[:1], None, 9.0)
    stage.ends(rng.uniform(60, 300))
    return Truth(frozenset({"firmware"}), names=frozenset({version}))


def clock_step(stage: Stage) -> Truth:
    """A node's clock is set an hour forward while its link flaps; a GPU of another node ends the job."""
    other, rail = stage.victim(), stage.rng.randrange(RAILS)
    at, step = -stage.rng.uniform(120, 900), stage.rng.choice((-1.0, 1.0)) * HOUR
    pci = stage.site.hca_pci(rail)
    fabric.port_lost(stage.archive, at, other, rail, kernel=False)
    fabric.port_back(stage.archive, at + 5.0, other, rail, kernel=False)
    stage.archive.say(other, at, lines.port_down(pci, rail))
    stage.archive.say(other, at + 5.1 + step, lines.port_up(pci, rail))
    stage.archive.say(other, at + 30.0 + step, "systemd-journald[612]: Time jumped backwards, rotating.")
    return loud.gpu_off_the_bus(stage)


def name_service(stage: Stage) -> Truth:
    """The directory of users or the name server is down: a job ends for it, nodes' daemons complain."""
    rng, job = stage.rng, stage.job
    stage.program_until(0.0)
    error = rng.choice((
        "socket.gaierror: [Errno -3] Temporary failure in name resolution",
        "KeyError: 'getpwuid(): uid not found: 24017'",
    ))  # fmt: skip
    for rank in rng.sample(range(len(job.places) * GPUS), 30):
        program.raised(stage.archive, job, rng.uniform(0.5, 25), rank, error)
    program.root_cause(stage.archive, job, 30.0, stage.victim(), 0)
    for place in rng.sample(range(stage.site.size), stage.site.size // 2):
        stage.archive.say(place, rng.uniform(-60, 60), f"sssd_be[{rng.randint(900, 4000)}]: Backend is offline")
    stage.ends(rng.uniform(40, 90))
    return _NOBODY


def scratch_full(stage: Stage) -> Truth:
    """The shared scratch file system is full: saving ends the job, the machine is well."""
    rng, job = stage.rng, stage.job
    stage.program_until(0.0)
    stage.archive.training[job.name].append(
        (0.5, "saving checkpoint at iteration    4000 to /scratch/ckpt in torch_dist format")
    )
    for rank in rng.sample(range(len(job.places) * GPUS), 24):
        error = f"OSError: [Errno 28] No space left on device: '/scratch/ckpt/iter_0004000/__{rank}_0.distcp'"
        program.raised(stage.archive, job, rng.uniform(20, 60), rank, error)
    program.root_cause(stage.archive, job, 70.0, stage.victim(), rng.randrange(GPUS))
    stage.ends(rng.uniform(80, 120))
    return _NOBODY


def pages_and_hang(stage: Stage) -> Truth:
    """A GPU remaps row after row for hours and works on; the job hangs because another node's processes do."""
    sick, place, rng = stage.victim(), stage.victim(), stage.rng
    pci = stage.site.gpu_pci(rng.randrange(GPUS))
    for number in range(rng.randint(6, 14)):
        at, row = -rng.uniform(400, 5 * HOUR), rng.randint(0x1_0000_0000, 0x9_FFFF_FFFF)
        stage.archive.say(
            sick, at, lines.xid(pci, 63, f"Row Remapper: New row (0x{row:016x}) marked for remapping", process=False)
        )
        stage.archive.say(
            sick, at + 0.1, lines.xid(pci, 92, f"High single-bit ECC error rate ({number})", process=False)
        )
    stage.program_until(-600.0)
    stage.archive.say(
        place, -590.0, f"watchdog: BUG: soft lockup - CPU#{rng.randint(0, 111)} stuck for 27s! [python3:200001]"
    )
    program.watchdog(stage.archive, stage.job, 0.0, [program.rank_of(stage.job, place, each) for each in range(GPUS)])
    stage.ends(rng.uniform(20, 90))
    return _of(stage, place, "gpu")


def dark_rack_elsewhere(stage: Stage) -> Truth:
    """A rack outside of the job loses its power; a minute later memory of one of the job's GPUs ends the job."""
    racks = [rack for rack in stage.site.racks() if not set(rack) & set(stage.job.places)]
    dark = stage.rng.choice(racks)
    stage.reserved |= set(dark)
    stage.nodes_lost(dark)
    first = loud.gpu_memory(stage)
    names = frozenset({stage.site.rack(dark[0])})
    second = Truth(frozenset({"power", "rack"}), names=names, nodes=frozenset(stage.site.nodes[each] for each in dark))
    # Who asks without a name may hear of either first: the newest stop is the job's.
    return Truth(first.classes, first.node, second=second)


def half_a_leaf(stage: Stage) -> Truth:
    """Half a leaf's ports share a failing chip: 16 neighbouring hosts lose that rail, the other 16 do not."""
    site, rail, rng = stage.site, stage.rng.randrange(RAILS), stage.rng
    one, half = rng.choice(stage.job.places), HOSTS_OF_LEAF // 2
    broken = site.leaf_of(one, rail)
    struck = list(range(one // half * half, one // half * half + half))
    stage.reserved |= set(site.hosts_of_leaf(broken))
    for number, place in enumerate(struck):
        fabric.leaf_trap(stage.archive, rng.uniform(0, 0.003), broken)
        fabric.removed(stage.archive, 0.3 + 0.0003 * number, place, rail)
        stage.archive.say(place, rng.uniform(0, 0.3), lines.port_down(site.hca_pci(rail), rail))
    fabric.swept(stage.archive, 0.4)
    stage.neighbours_complain([place for place in struck if place in stage.job.places][:6], rail, 8.0)
    stage.ends(rng.uniform(60, 300))
    return Truth(frozenset({"switch"}), names=frozenset({site.leaf_name(broken), f"0x{site.leaf_guid(broken):016x}"}))


STRANGERS = {
    "two_rails": two_rails,
    "supply_of_two_racks": supply_of_two_racks,
    "domain_switch": domain_switch,
    "adapter_model": adapter_model,
    "clock_step": clock_step,
    "name_service": name_service,
    "scratch_full": scratch_full,
    "pages_and_hang": pages_and_hang,
    "dark_rack_elsewhere": dark_rack_elsewhere,
    "half_a_leaf": half_a_leaf,
}

"""Faults of what many nodes share: a switch, a cable between switches, power, storage, a release, the cooling."""

from scenarios import fabric, lines, program
from scenarios.archive import Outage
from scenarios.site import FIRST_UPLINK, GPUS, NODES_OF_RACK, RAILS, SPINES
from scenarios.stage import HOUR, Stage, Truth


def leaf(stage: Stage) -> Truth:
    """A leaf of one rail dies: 32 hosts lose one adapter each."""
    site, rail = stage.site, stage.rng.randrange(RAILS)
    broken = site.leaf_of(stage.rng.choice(stage.job.places), rail)
    stage.reserved |= set(site.hosts_of_leaf(broken))
    fabric.leaf_lost(stage.archive, 0.0, broken, stage.rng)
    hosts = [place for place in site.hosts_of_leaf(broken) if place in stage.job.places]
    stage.neighbours_complain(hosts[: stage.rng.randint(3, 12)], rail, 7.0)
    stage.ends(stage.rng.uniform(30, 300))
    return _switch(site.leaf_name(broken), site.leaf_guid(broken))


def _switch(name: str, guid: int) -> Truth:
    return Truth(frozenset({"switch"}), names=frozenset({name, f"0x{guid:016x}"}))


def uplink(stage: Stage) -> Truth:
    """A cable between a leaf and a spine; half of the managers name the ports."""
    site, spine = stage.site, stage.rng.randrange(SPINES)
    low = site.leaf_of(stage.rng.choice(stage.job.places), stage.rng.randrange(RAILS))
    fabric.uplink_lost(stage.archive, 0.0, low, spine, stage.rng)
    ends = (
        (site.leaf_name(low), site.leaf_guid(low), FIRST_UPLINK + spine),
        (site.spine_name(spine), site.spine_guid(spine), low + 1),
    )
    if stage.is_odd():
        for number, (name, guid, port) in enumerate(ends):
            fabric.port_state(stage.archive, 0.05 + 0.001 * number, name, guid, port, "ACTIVE", "DOWN")
    stage.program_until(0.0)
    hosts = [place for place in site.hosts_of_leaf(low) if place in stage.job.places]
    program.complaints(stage.archive, stage.job, 9.0, hosts[:3], site.rail_of_leaf(low), stage.rng)
    stage.ends(stage.rng.uniform(60, 400))
    names = {f"{name}/{port}" for name, _, port in ends} | {f"{name}[{port}]" for name, _, port in ends}
    return Truth(frozenset({"cable", "port", "optic"}), names=frozenset(names))


def spine(stage: Stage) -> Truth:
    """A spine dies: every leaf tells of a link, no host loses its own."""
    broken = stage.rng.randrange(SPINES)
    fabric.spine_lost(stage.archive, 0.0, broken, stage.rng)
    stage.program_until(0.0)
    program.complaints(stage.archive, stage.job, 9.0, stage.rng.sample(stage.job.places, 4), None, stage.rng)
    stage.ends(stage.rng.uniform(60, 400))
    return _switch(stage.site.spine_name(broken), stage.site.spine_guid(broken))


def rack_power(stage: Stage) -> Truth:
    """Every node of a rack falls silent at once, and starts again in half of the cases."""
    rack = stage.rng.choice(stage.job.places) // NODES_OF_RACK
    places = list(range(rack * NODES_OF_RACK, (rack + 1) * NODES_OF_RACK))
    return _dark(stage, places, {stage.site.rack(places[0])})


def rack_half(stage: Stage) -> Truth:
    """A power distribution unit: half of a rack; only some sites know which node hangs on which."""
    rack = stage.rng.choice(stage.job.places) // NODES_OF_RACK
    half = stage.rng.randrange(2) * NODES_OF_RACK // 2
    places = [rack * NODES_OF_RACK + half + number for number in range(NODES_OF_RACK // 2)]
    if stage.is_odd():
        stage.archive.columns["pdu"] = {place: stage.site.pdu(place) for place in range(stage.site.size)}
    return _dark(stage, places, {stage.site.rack(places[0]), stage.site.pdu(places[0])})


def _dark(stage: Stage, places: list[int], names: set[str]) -> Truth:
    stage.reserved |= set(places)
    stage.nodes_lost(places, back_s=stage.rng.uniform(420, 1500) if stage.is_odd() else None)
    stage.neighbours_complain(places)
    stage.ends(stage.rng.uniform(90, 320), "NODE_FAIL", "0:0")
    nodes = frozenset(stage.site.nodes[place] for place in places)
    return Truth(frozenset({"power", "rack"}), names=frozenset(names), nodes=nodes)


def storage(stage: Stage) -> Truth:
    """A file server: hundreds of clients complain of one name; in half of the cases it answers again."""
    rng, archive, job = stage.rng, stage.archive, stage.job
    lustre, number = stage.is_odd(), rng.randint(1, 30)
    server, target = f"10.20.{int(lustre)}.{number}", f"scratch-OST{number:04x}"
    clients = rng.sample(range(stage.site.size), int(stage.site.size * rng.uniform(0.25, 0.7)))
    back = rng.uniform(300, 900) if stage.is_odd() else None
    for place in clients:
        after = rng.uniform(0, 45)
        archive.say(place, after, lines.lustre_lost(target, server) if lustre else lines.nfs_silent(server))
        if not lustre:
            archive.say(place, after + 180, lines.nfs_silent(server))
        if back is not None:
            restored = f"Lustre: {target}-osc-ffff9a3c: Connection restored to {target} (at {server}@o2ib)"
            archive.say(place, back + rng.uniform(0, 20), restored if lustre else lines.nfs_back(server))
        if rng.random() < 0.1:
            archive.say(
                place, after + 125, f"INFO: task python3:{rng.randint(2000, 99_999)} blocked for more than 120 seconds."
            )
    stage.program_until(0.0)
    archive.training[job.name].append((2.0, "saving checkpoint at iteration    4000 to /ckpt in torch_dist format"))
    if stage.asked != "running":
        program.watchdog(archive, job, 640.0)
    stage.ends(rng.uniform(660, 700))
    names = {server, f"{server}@o2ib", target} if lustre else {server}
    return Truth(frozenset({"storage"}), names=frozenset(names))


def driver_release(stage: Stage) -> Truth:
    """A new driver on one node of eight, in no place: GPUs stop answering over some hours."""
    rng, site, version = stage.rng, stage.site, stage.rng.choice(("575.57.08", "580.65.06"))
    updated = rng.sample(range(site.size), site.size // 8)
    stage.archive.drivers = dict.fromkeys(updated, version)
    struck = _struck(stage, updated)
    for number, place in enumerate(struck):
        gpu = rng.randrange(GPUS)
        at = 0.0 if number == 0 else -rng.uniform(60, 6 * HOUR)
        stage.archive.says(place, lines.gsp_timeout(site.gpu_pci(gpu), gpu, rng), at)
    gpu = rng.randrange(GPUS)
    stage.broken_rank(struck[0], gpu, "torch.AcceleratorError: CUDA error: unspecified launch failure", 30.0)
    return Truth(frozenset({"driver"}), names=frozenset({version}))


def _struck(stage: Stage, updated: list[int]) -> list[int]:
    """Which of the updated nodes show it: some of the job's first, then others."""
    inside = [place for place in updated if place in stage.job.places]
    others = [place for place in updated if place not in inside]
    struck = inside[:1] + stage.rng.sample(inside[1:] + others, max(5, len(updated) * stage.rng.randint(25, 50) // 100))
    stage.reserved |= set(struck)
    return struck


def firmware_release(stage: Stage) -> Truth:
    """New adapter firmware on one node of eight: its adapters lose health and link over some hours."""
    rng, site, version = stage.rng, stage.site, stage.rng.choice(("28.43.1014", "28.44.2006"))
    updated = rng.sample(range(site.size), site.size // 8)
    old = "28.39.1002"
    stage.archive.columns["firmware"] = {place: version if place in set(updated) else old for place in range(site.size)}
    for place in range(site.size):
        own = version if place in set(updated) else old
        if place % 4 == 0 or own == version:
            stage.archive.say(place, -30 * HOUR - place, f"mlx5_core {site.hca_pci(0)}: firmware version: {own}")
    struck = _struck(stage, updated)
    for number, place in enumerate(struck):
        at, rail = (0.0 if number == 0 else -rng.uniform(60, 6 * HOUR)), rng.randrange(RAILS)
        stage.archive.says(place, lines.adapter_dead(site.hca_pci(rail)), at)
        fabric.port_lost(stage.archive, at + 0.4, place, rail)
        if number:
            fabric.port_back(stage.archive, at + rng.uniform(40, 200), place, rail)
    stage.neighbours_complain(struck[:1], None, 9.0)
    stage.ends(rng.uniform(60, 300))
    return Truth(frozenset({"firmware"}), names=frozenset({version}))


def cooling(stage: Stage) -> Truth:
    """The cooling of a row, or of one rack's door: its nodes grow hot and slow down, nobody else's do."""
    rng, site, archive = stage.rng, stage.site, stage.archive
    whole = stage.is_odd()
    one = rng.choice(stage.job.places)
    width = site.nodes_of_row() if whole else NODES_OF_RACK
    places = list(range(one // width * width, min(one // width * width + width, site.size)))
    stage.reserved |= set(places)
    if whole:
        archive.columns["row"] = {place: site.row(place) for place in range(site.size)}
    for place in places:
        if rng.random() < 0.85:
            after = rng.uniform(-300, 60)
            for number in range(rng.randint(1, 4)):
                archive.say(place, after + 70.0 * number, lines.throttled(rng.randint(0, 111), number * 7 + 1))
    _temperatures(stage, places)
    stage.program_until(-300.0)
    for number in range(8):
        program.iteration(archive, stage.job, -280.0 + 40 * number, 4010 + 10 * number, 3000.0 + 180.0 * number)
    stage.ends(rng.uniform(60, 200))
    names = {site.row(places[0])} if whole else set()
    names |= {site.rack(place) for place in places}
    nodes = frozenset(site.nodes[place] for place in places)
    return Truth(frozenset({"cooling"}), names=frozenset(names), nodes=nodes)


def _temperatures(stage: Stage, hot: list[int]) -> None:
    """Ten minutes of exporters' values: the hot nodes, and as many that stay cool."""
    cool = [place for place in stage.job.places if place not in set(hot)][:32]
    for place in [*hot, *cool]:
        for minute in range(-20, 3, 2):
            heat = max(0, minute + 12) * 1.6 if place in set(hot) else 0.0
            row = {"time": stage.archive.clock(60.0 * minute), "node": stage.site.nodes[place]}
            for gpu in (0, 4):
                stage.archive.gpu_rows.append(
                    {
                        **row,
                        "gpu": gpu,
                        "DCGM_FI_DEV_GPU_TEMP": 62.0 + heat + stage.rng.uniform(-2, 2),
                        "DCGM_FI_DEV_SM_CLOCK": 1980.0 if heat < 12 else 1410.0,
                        "DCGM_FI_DEV_THERMAL_VIOLATION": 0.0 if heat < 12 else heat * 1e6,
                    }
                )
            stage.archive.host_rows.append({**row, "node_hwmon_temp_celsius": 31.0 + heat / 2, "node_load1": 90.0})
    if stage.is_odd():
        for place in hot[:2]:
            stage.archive.outages.append(Outage(place, 150.0, None, "DRAIN", "NHC: check_gpu_temp", "root(0)"))

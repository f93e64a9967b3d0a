"""Kinds that were kept back until the engine stood: what they show is the honest figure of docs/diagnosis.md."""

# ruff: noqa: E501  # a line of a log is kept whole

from scenarios import fabric, lines, program
from scenarios.site import GPUS, RAILS
from scenarios.stage import Stage, Truth


def _of(stage: Stage, place: int, *classes: str) -> Truth:
    return Truth(frozenset({*classes, "node"}), node=stage.site.nodes[place])


def memory_module(stage: Stage) -> Truth:
    """Uncorrectable errors of a node's memory: the program there is killed for them."""
    place, gpu, rng = stage.victim(), stage.rng.randrange(GPUS), stage.rng
    for before in range(rng.randint(3, 12), 0, -1):
        stage.archive.say(place, -before * 400.0, lines.corrected_memory(rng))
    stage.archive.says(
        place,
        [
            (0.0, "EDAC MC3: 4 UE memory scrubbing error on CPU_SrcID#1_MC#1_Chan#0_DIMM#1 or CPU_SrcID#1_MC#1_Chan#1_DIMM#1 (channel:0 slot:1 page:0x8a01 offset:0x40 grain:32)"),
            (0.1, "mce: Uncorrected hardware memory error in user-access at 3d41c9d1c0"),
            (0.2, f"Memory failure: 0x1a2b3d: Sending SIGBUS to python3:{rng.randint(2000, 99_999)} due to hardware memory corruption"),
        ],
    )  # fmt: skip
    stage.program_until(0.0)
    program.root_cause(stage.archive, stage.job, 15.0, place, gpu, -7)
    stage.ends(rng.uniform(30, 80))
    return _of(stage, place)


def adapter_commands(stage: Stage) -> Truth:
    """An adapter whose firmware takes no commands any more; its link stays up."""
    place, rail = stage.victim(), stage.rng.randrange(RAILS)
    pci = stage.site.hca_pci(rail)
    stage.archive.says(
        place,
        [
            (0.0, f"mlx5_core {pci}: wait_func:1039:(pid 88): QUERY_HCA_CAP(0x100) timeout. Will cause a leak of a command resource"),
            (61.0, f"mlx5_core {pci}: wait_func_handle_exec_timeout:1108:(pid 5): cmd[3]: CREATE_CQ(0x400) No done completion"),
            (70.0, f"mlx5_core {pci}: poll_health:825: device's health compromised - reached miss count."),
        ],
    )  # fmt: skip
    stage.neighbours_complain([place], rail, 20.0)
    stage.ends(stage.rng.uniform(90, 400))
    return _of(stage, place, "nic")


def metadata_server(stage: Stage) -> Truth:
    """A Lustre metadata server that evicts its clients: the lines name the target."""
    rng, target, address = stage.rng, "scratch-MDT0000", f"10.20.4.{stage.rng.randint(2, 9)}"
    for place in rng.sample(range(stage.site.size), stage.site.size // 3):
        after = rng.uniform(0, 60)
        stage.archive.say(
            place,
            after,
            f"Lustre: {target}-mdc-ffff9a3c: Connection to {target} (at {address}@o2ib) was lost; in progress operations using this service will wait for recovery to complete",
        )
        if rng.random() < 0.5:
            stage.archive.say(
                place,
                after + 100,
                f"LustreError: 167-0: {target}-mdc-ffff9a3c: This client was evicted by {target}; in progress operations using this service will fail.",
            )
    stage.program_until(0.0)
    error = "OSError: [Errno 108] Cannot send after transport endpoint shutdown: '/scratch/ckpt/iter_0004000'"
    for rank in rng.sample(range(len(stage.job.places) * GPUS), 12):
        program.raised(stage.archive, stage.job, 120.0, rank, error)
    stage.ends(rng.uniform(140, 260))
    return Truth(frozenset({"storage"}), names=frozenset({target, address, f"{address}@o2ib"}))


def leaf_restarts(stage: Stage) -> Truth:
    """A leaf that starts anew three times within ten minutes."""
    site, rail, rng = stage.site, stage.rng.randrange(RAILS), stage.rng
    broken = site.leaf_of(rng.choice(stage.job.places), rail)
    stage.reserved |= set(site.hosts_of_leaf(broken))
    for at in (0.0, 210.0, 400.0):
        fabric.leaf_lost(stage.archive, at, broken, rng)
        for place in site.hosts_of_leaf(broken):
            fabric.discovered(stage.archive, at + 45.0 + rng.uniform(0, 2), place, rail)
            stage.archive.say(place, at + 44.0 + rng.uniform(0, 2), lines.port_up(site.hca_pci(rail), rail))
        fabric.swept(stage.archive, at + 48.0)
    hosts = [place for place in site.hosts_of_leaf(broken) if place in stage.job.places]
    stage.neighbours_complain(hosts[:8], rail, 7.0)
    stage.ends(rng.uniform(410, 450))
    return Truth(frozenset({"switch"}), names=frozenset({site.leaf_name(broken), f"0x{site.leaf_guid(broken):016x}"}))


def overheated(stage: Stage) -> Truth:
    """One node grows too hot and switches itself off."""
    place, rng = stage.victim(), stage.rng
    for number in range(4):
        stage.archive.say(place, -300.0 + 70 * number, lines.throttled(rng.randint(0, 111), number * 9 + 1))
    stage.archive.say(place, 0.0, "thermal thermal_zone0: critical temperature reached (105 C), shutting down")
    stage.archive.say(place, 0.2, "reboot: HARDWARE PROTECTION shutdown (Temperature too high)")
    stage.node_lost(place)
    stage.neighbours_complain([place])
    stage.ends(rng.uniform(90, 320), "NODE_FAIL", "0:0")
    return _of(stage, place, "cooling")


def row_power(stage: Stage) -> Truth:
    """The busway over four racks: all their nodes are dark at once; nobody told which racks share it."""
    first = stage.rng.choice(stage.job.places) // 32 * 32
    places = list(range(first, first + 32))
    stage.reserved |= set(places)
    stage.nodes_lost(places, back_s=stage.rng.uniform(600, 1500) if stage.is_odd() else None)
    stage.neighbours_complain(places[:6])
    stage.ends(stage.rng.uniform(90, 320), "NODE_FAIL", "0:0")
    racks = frozenset(stage.site.rack(place) for place in places)
    return Truth(
        frozenset({"power", "rack"}), names=racks, nodes=frozenset(stage.site.nodes[place] for place in places)
    )


def wrong_import(stage: Stage) -> Truth:
    """The program does not even begin: every rank ends within a second of the first iteration's place."""
    stage.program_until(0.0)
    error = "ModuleNotFoundError: No module named 'flash_attn_3'"
    for rank in range(0, len(stage.job.places) * GPUS, 3):
        program.raised(stage.archive, stage.job, 1.0 + stage.rng.random(), rank, error)
    program.root_cause(stage.archive, stage.job, 9.0, stage.victim(), 0)
    stage.ends(20.0)
    return Truth(frozenset({"application", "job"}), nobody=True)


UNSEEN = {
    "memory_module": memory_module,
    "adapter_commands": adapter_commands,
    "metadata_server": metadata_server,
    "leaf_restarts": leaf_restarts,
    "overheated": overheated,
    "row_power": row_power,
    "wrong_import": wrong_import,
}

"""Faults that nobody prints of himself: a missing rank, a slow one, wrong numbers, a storm of pause frames."""

# ruff: noqa: E501  # a line of a log is kept whole

from scenarios import fabric, lines, program
from scenarios.site import GPUS, RAILS
from scenarios.stage import HOUR, Stage, Truth


def _of(stage: Stage, place: int, *classes: str) -> Truth:
    return Truth(frozenset({*classes, "node"}), node=stage.site.nodes[place])


def missing_rank(stage: Stage) -> Truth:
    """One rank does not reach the collective; every other rank's watchdog says so, ten minutes later."""
    place, gpu = stage.victim(), stage.rng.randrange(GPUS)
    stage.program_until(-600.0)
    rank = program.rank_of(stage.job, place, gpu)
    whole = stage.rng.random() < 0.3
    silent = [program.rank_of(stage.job, place, each) for each in range(GPUS)] if whole else [rank]
    program.watchdog(stage.archive, stage.job, 0.0, silent)
    stage.ends(stage.rng.uniform(20, 90))
    return _of(stage, place, "gpu", "job")


def hang_unnamed(stage: Stage) -> Truth:
    """A node whose processes hang in the kernel; the job still runs by its books and nobody names it."""
    stage.asked = "running"
    place = stage.victim()
    stage.program_until(-600.0)
    for number in range(4):
        pid = 200_000 + number
        stage.archive.say(
            place,
            -470.0 + 120.0 * number,
            f"INFO: task python3:{pid} blocked for more than {121 + 121 * number} seconds.",
        )
    cpu = stage.rng.randint(0, 111)
    stage.archive.say(place, -590.0, f"watchdog: BUG: soft lockup - CPU#{cpu} stuck for 27s! [python3:200001]")
    program.watchdog(stage.archive, stage.job, 0.0, [program.rank_of(stage.job, place, each) for each in range(GPUS)])
    stage.ends(60.0)
    return _of(stage, place, "gpu", "job")


def straggler(stage: Stage) -> Truth:
    """One GPU runs at a lower clock: every step of the job grows longer, and the detector names the rank."""
    place, gpu = stage.victim(), stage.rng.randrange(GPUS)
    stage.program_until(-600.0)
    slow = stage.rng.uniform(1.25, 2.2)
    for number in range(1, 13):
        at = -600.0 + number * 48.0
        program.iteration(stage.archive, stage.job, at, 4000 + 10 * number, 3000.0 * slow)
        if number % 3 == 0:
            report = program.straggler_report(stage.job, stage.archive, place, gpu, 1 / slow)
            stage.archive.training[stage.job.name] += [(at + 0.5 + each, text) for each, text in report]
    for other in [place, *[each for each in stage.job.places if each != place][:16]]:
        for minute in range(-30, 1, 2):
            for each in range(GPUS):
                low = other == place and each == gpu and minute > -10
                stage.archive.gpu_rows.append(
                    {
                        "time": stage.archive.clock(60.0 * minute),
                        "node": stage.site.nodes[other],
                        "gpu": each,
                        "DCGM_FI_DEV_SM_CLOCK": 1980.0 / slow if low else 1980.0 - stage.rng.uniform(0, 15),
                        "DCGM_FI_DEV_POWER_USAGE": 330.0 if low else 610.0 + stage.rng.uniform(-20, 20),
                        "DCGM_FI_DEV_GPU_TEMP": 61.0 + stage.rng.uniform(-2, 2),
                    }
                )
    if stage.asked in ("named", "running"):
        stage.goes_on()
    else:
        stage.ends(60.0, "CANCELLED by 1001", "0:0")
    return _of(stage, place, "gpu")


def pause_storm(stage: Stage) -> Truth:
    """An adapter sends pause frames without end: its port first, then whoever wants to send to it, up the tree."""
    place, rail = stage.victim(), stage.rng.randrange(RAILS)
    site, archive, rng = stage.site, stage.archive, stage.rng
    leaf = site.leaf_of(place, rail)
    own = f"Ethernet{8 * (site.leaf_port(place) - 1)}"
    storm = "swss#orchagent: :- startWdActionOnQueue: PFC Watchdog detected PFC storm on port {}, queue index 3, queue id 0x15000000000{:03x} and port id 0x10000000{:05x}."
    archive.switches[site.leaf_name(leaf)].append((0.0, f"NOTICE {storm.format(own, 0xA1B, 0x13)}"))
    for number, other in enumerate(
        rng.sample([each for each in range(site.leafs()) if site.rail_of_leaf(each) == rail and each != leaf], 3)
    ):
        port = f"Ethernet{8 * rng.randint(33, 40)}"
        archive.switches[site.leaf_name(other)].append(
            (2.0 + number, f"NOTICE {storm.format(port, 0xB00 + number, 0x20 + number)}")
        )
    for number in range(1, 5):
        archive.switches[site.leaf_name(leaf)].append((6.0 * number, f"NOTICE {storm.format(own, 0xA1B, 0x13)}"))
    for other in [place, *rng.sample([each for each in stage.job.places if each != place], 24)]:
        for step in range(-20, 8):
            sent = max(0, step + 1) * 4_000_000.0 if other == place else 0.0
            felt = max(0, step + 1) * rng.uniform(2e4, 3e5) if other != place else 0.0
            archive.host_rows.append(
                {
                    "time": archive.clock(30.0 * step),
                    "node": site.nodes[other],
                    "node_ethtool_tx_prio3_pause": 1000.0 + sent,
                    "node_ethtool_rx_prio3_pause": 900.0 + felt,
                    "node_ethtool_tx_pause_storm_error_events": float(max(0, step + 1)) if other == place else 0.0,
                    "node_load1": 80.0,
                }
            )
    archive.columns["address"] = {each: site.address(each) for each in range(site.size)}
    stage.program_until(0.0)
    program.complaints(archive, stage.job, 20.0, [place], rail, rng)
    stage.ends(rng.uniform(60, 400))
    return Truth(
        frozenset({"nic", "port", "cable", "node"}),
        node=site.nodes[place],
        names=frozenset({f"{site.leaf_name(leaf)}/{own}", f"{site.nodes[place]}/mlx5_{rail}"}),
    )


def optics(stage: Stage) -> Truth:
    """A module grows hot and makes errors for hours, flaps, and its link goes in the end."""
    place, rail = stage.victim(), stage.rng.randrange(RAILS)
    pci, rng, archive = stage.site.hca_pci(rail), stage.rng, stage.archive
    errors = 10
    for hour in range(6, 0, -1):
        archive.say(place, -hour * HOUR + rng.uniform(0, 900), lines.module_hot(pci, rail))
        errors = int(errors * rng.uniform(2, 6))
        fabric.counters_grow(archive, -hour * HOUR + 1000, place, rail, {"SymbolErrorCounter": errors})
        if hour <= 2:
            fabric.counters_grow(archive, -hour * HOUR + 1010, place, rail, {"LinkErrorRecoveryCounter": 3})
            fabric.port_lost(archive, -hour * HOUR + 1200, place, rail)
            fabric.port_back(archive, -hour * HOUR + 1203, place, rail)
    fabric.port_lost(archive, 0.0, place, rail)
    program.port_error(archive, stage.job, 0.5, place, rail)
    stage.neighbours_complain([place], rail, 8.0)
    stage.ends(rng.uniform(40, 200))
    leaf = stage.site.leaf_name(stage.site.leaf_of(place, rail))
    return Truth(
        frozenset({"optic", "cable", "port", "nic"}),
        node=stage.site.nodes[place],
        names=frozenset({f"{leaf}/{stage.site.leaf_port(place)}", f"{stage.site.nodes[place]}/mlx5_{rail}"}),
    )


def wrong_numbers(stage: Stage) -> Truth:
    """A GPU that calculates wrongly: the replay of a step differs on one rank, in this attempt as before."""
    place, gpu = stage.victim(), stage.rng.randrange(GPUS)
    rank = program.rank_of(stage.job, place, gpu)
    stage.program_until(0.0)
    for attempt, at in enumerate((-stage.rng.uniform(2, 20) * HOUR / 8, 2.0), start=1):
        for each in stage.rng.sample(range(len(stage.job.places) * GPUS), 24):
            step = 3000 + attempt * 500
            program.raised(
                stage.archive, stage.job, at, each,
                f"torchtitan.distributed.sdc_replay.SDCReplayMismatch: SDC replay mismatch: step={step}, attempt={attempt}, "
                f"replay=1, rank={rank}, signature=grad.layers.{step % 60}.attention.wq.weight",
                "train.py",
            )  # fmt: skip
    stage.ends(stage.rng.uniform(30, 90))
    return _of(stage, place, "gpu")

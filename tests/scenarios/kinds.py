"""Every kind of composed scenario, and how one is made of its kind and a number."""

from collections.abc import Callable

from scenarios import loud, nobody, shared, silent
from scenarios.stage import Scenario, Stage, Truth

Kind = Callable[[Stage], Truth]

LOUD: dict[str, Kind] = {
    "gpu_off_the_bus": loud.gpu_off_the_bus,
    "gpu_memory": loud.gpu_memory,
    "nvlink": loud.nvlink,
    "nvswitch": loud.nvswitch,
    "gpu_gone": loud.gpu_gone,
    "node_crash": loud.node_crash,
    "node_supply": loud.node_supply,
    "node_disk": loud.node_disk,
    "host_link": loud.host_link,
    "gpu_processor": loud.gpu_processor,
    "flap_then_gpu": loud.flap_then_gpu,
    "two_faults": loud.two_faults,
}
SHARED: dict[str, Kind] = {
    "leaf": shared.leaf,
    "uplink": shared.uplink,
    "spine": shared.spine,
    "rack_power": shared.rack_power,
    "rack_half": shared.rack_half,
    "storage": shared.storage,
    "driver_release": shared.driver_release,
    "firmware_release": shared.firmware_release,
    "cooling": shared.cooling,
}
SILENT: dict[str, Kind] = {
    "missing_rank": silent.missing_rank,
    "hang_unnamed": silent.hang_unnamed,
    "straggler": silent.straggler,
    "pause_storm": silent.pause_storm,
    "optics": silent.optics,
    "wrong_numbers": silent.wrong_numbers,
}
NOBODY: dict[str, Kind] = {
    "illegal_access": nobody.illegal_access,
    "traceback": nobody.traceback,
    "out_of_memory": nobody.out_of_memory,
    "rack_drained": nobody.rack_drained,
    "rolling_reboot": nobody.rolling_reboot,
}
KINDS: dict[str, Kind] = {**LOUD, **SHARED, **SILENT, **NOBODY}


def compose(
    kind: str, seed: int, size: int = 1024, kinds: dict[str, Kind] = KINDS, naming: int | None = None
) -> Scenario:
    """One scenario: the same kind, number, size and naming make the same one, byte by byte."""
    stage = Stage(kind, seed, size, naming)
    truth = kinds[kind](stage)
    stage.finish()
    return Scenario(kind, seed, stage.archive, truth, stage.job.name if stage.asked == "named" else None)

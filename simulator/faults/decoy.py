"""What looks like trouble and is none: single-bit errors, remaps, flaps, application faults, gaps, heat (FIELD D7)."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from simulator.faults.hazard import Availability
from simulator.faults.trace import Count, Gap, Heat, KernelLine, LinkLoss, Trace, sxid_line, xid_line
from simulator.site import (
    DAY_MS,
    GPUS,
    HOUR_MS,
    MINUTE_MS,
    NODES_PER_RACK,
    Parameters,
    SimulationSettings,
    SiteLayout,
    draw_h,
)

_NOISE = (
    "perf: interrupt took too long (2503 > 2500), lowering kernel.perf_event_max_sample_rate to 79750",
    "systemd-journald[1021]: Data hash table of /run/log/journal has a fill level at 75.0, suggesting rotation.",
    "IPv6: ADDRCONF(NETDEV_CHANGE): eno1: link becomes ready",
    "cgroup: fork rejected by pids controller in /system.slice/docker.service",
    "TCP: request_sock_TCP: Possible SYN flooding on port 29500. Sending cookies.",
    "nvidia-uvm: Loaded the UVM driver, major device number 511.",
)
_NOISE_PER_NODE_DAY = 0.3


@dataclass(frozen=True, slots=True)
class DecoyContext:
    """What every decoy needs: where and how long, and the trace to write into."""

    settings: SimulationSettings
    layout: SiteLayout
    parameters: Parameters
    availability: Availability
    rng: np.random.Generator
    trace: Trace
    hazard: NDArray[np.float64]  # of each node, over the whole archive; any scale

    @property
    def gpu_mh(self) -> float:
        """The archive's size in million GPU-hours."""
        return self.layout.nodes * GPUS * self.settings.days * 24 / 1e6

    def moments(self, mean: float, by_frailty: bool = False) -> list[tuple[int, int]]:
        """Poisson many (ms, node), only where the node is in service and well; some go to frail nodes if asked for."""
        count = int(self.rng.poisson(mean))
        times = np.sort(self.rng.integers(0, self.settings.length_ms, count)).tolist()
        share = self.parameters.sign_frailty_share if by_frailty else 0.0
        chances = (1.0 - share) / self.layout.nodes + share * self.hazard / self.hazard.sum()
        nodes = self.rng.choice(self.layout.nodes, count, p=chances).tolist()
        return [(t, n) for t, n in zip(times, nodes, strict=True) if self.availability.usable(n, t)]

    def node_days(self) -> float:
        """The archive's size in node-days."""
        return float(self.layout.nodes * self.settings.days)


def leave_decoys(stage: DecoyContext) -> None:
    """Write all decoys into the stage's trace."""
    for decoy in (
        _single_bits,
        _one_offs,
        _remaps,
        _nvlink,
        _applications,
        _flaps,
        _flappers,
        _gaps,
        _fleet_gaps,
        _hot_racks,
        _noise,
    ):
        decoy(stage)


def _single_bits(stage: DecoyContext) -> None:
    """FIELD D5: 5 % of GPUs show SBE, for one to three weeks, in bursts."""
    mean = stage.parameters.sbe_gpu_share * stage.layout.nodes * GPUS * stage.settings.days / 120
    for begin, node in stage.moments(mean):
        gpu = int(stage.rng.integers(0, GPUS))
        days = float(stage.rng.uniform(*stage.parameters.sbe_active_days))
        for time in begin + stage.rng.random(int(stage.rng.poisson(1.5 * days)) + 1) * days * DAY_MS:
            if time < stage.settings.length_ms and stage.availability.usable(node, int(time)):
                burst = int(stage.rng.geometric(0.15)) * (20 if stage.rng.random() < 0.03 else 1)
                stage.trace.counts.append(Count(int(time), node, gpu, "ecc_sbe", burst))
                if burst > 60 and stage.rng.random() < 0.3:
                    stage.trace.kernel.append(xid_line(int(time), node, gpu, 92, stage.rng))


def _one_offs(stage: DecoyContext) -> None:
    """Single counts that never come back."""
    for counter, per_node_day, spread in (
        ("ecc_sbe", 0.006, 0.5),
        ("pcie_replay", 0.02, 0.15),
        ("nvlink_crc", 0.02, 0.08),
        ("nvlink_replay", 0.008, 0.4),
        ("thermal_violation", 0.004, 1e-8),
    ):
        for time, node in stage.moments(per_node_day * stage.node_days()):
            gpu = int(stage.rng.integers(0, GPUS))
            stage.trace.counts.append(Count(time, node, gpu, counter, int(stage.rng.geometric(spread))))


def _remaps(stage: DecoyContext) -> None:
    """FIELD D3: rows are remapped far more often than memory fails for good."""
    for time, node in stage.moments(stage.parameters.remap_per_mgpuh * stage.gpu_mh, by_frailty=True):
        gpu = int(stage.rng.integers(0, GPUS))
        stage.trace.kernel.append(xid_line(time, node, gpu, 63, stage.rng))
        stage.trace.counts.append(Count(time, node, gpu, "row_remap_correctable", 1))
        stage.trace.counts.append(Count(max(time - HOUR_MS, 0), node, gpu, "ecc_sbe", int(stage.rng.geometric(0.2))))


def _nvlink(stage: DecoyContext) -> None:
    """FIELD D5: Xid 74 recurs, and the job often survives: retries on a healthy link."""
    mean = stage.parameters.benign_nvlink_per_mgpuh * stage.gpu_mh / 3
    for begin, node in stage.moments(mean, by_frailty=True):
        gpu = int(stage.rng.integers(0, GPUS))
        for time in begin + stage.rng.integers(0, DAY_MS, int(stage.rng.geometric(0.33))):
            if not stage.availability.usable(node, int(time)) or time >= stage.settings.length_ms:
                continue
            line = xid_line(int(time), node, gpu, 74, stage.rng)
            stage.trace.kernel.append(
                line if stage.rng.random() < 0.3 else sxid_line(int(time), node, gpu, fatal=False)
            )
            stage.trace.counts.append(Count(int(time), node, gpu, "nvlink_crc", int(stage.rng.geometric(0.05))))


def _applications(stage: DecoyContext) -> None:
    """FIELD A1: 82 % of application Xids hit another GPU of the node within a minute."""
    for begin, node in stage.moments(stage.parameters.app_burst_per_node_day * stage.node_days(), by_frailty=True):
        first = int(stage.rng.choice((13, 31, 31, 43)))
        everywhere = stage.rng.random() < 0.82
        for gpu in range(GPUS) if everywhere else [int(stage.rng.integers(0, GPUS))]:
            time = begin + int(stage.rng.integers(0, MINUTE_MS)) if everywhere else begin
            stage.trace.kernel.append(xid_line(time, node, gpu, first, stage.rng))
            if stage.rng.random() < 0.5:
                stage.trace.kernel.append(xid_line(time + 400, node, gpu, 45 if first == 43 else 43, stage.rng))


def _flaps(stage: DecoyContext) -> None:
    """FIELD D4: healthy links flap too, in bursts (variance 3.3 times the mean)."""
    mean = stage.parameters.healthy_flap_per_link_day * stage.node_days() / 2
    for begin, node in stage.moments(mean):
        for time in begin + stage.rng.integers(0, 6 * HOUR_MS, int(stage.rng.geometric(0.5))):
            _flap(stage, int(time), node)


def _flappers(stage: DecoyContext) -> None:
    """FIELD D4: some links flap many times a day, for hours to days, and go on working."""
    count = max(1, round(stage.parameters.flapper_share * stage.layout.nodes))
    for node in stage.rng.choice(stage.layout.nodes, count, replace=False).tolist():
        for begin in stage.rng.integers(0, stage.settings.length_ms, 1 + stage.settings.days // 40).tolist():
            days = float(stage.rng.uniform(0.2, 3.0))
            per_day = float(np.exp(stage.rng.uniform(*np.log(stage.parameters.flapper_per_day))))
            for time in begin + stage.rng.random(int(stage.rng.poisson(per_day * days))) * days * DAY_MS:
                _flap(stage, int(time), node)


def _flap(stage: DecoyContext, time: int, node: int) -> None:
    if time < stage.settings.length_ms and stage.availability.usable(node, time):
        stage.trace.links.append(LinkLoss(time, time + int(stage.rng.integers(800, 15_000)), node))


def _gaps(stage: DecoyContext) -> None:
    """Collectors restart; an exporter loses a GPU for a while. Samples are missing, nothing is wrong."""
    measured = stage.parameters.scrape_gap_h
    for begin, node in stage.moments(stage.parameters.scrape_gap_per_node_day * stage.node_days()):
        length_ms = (
            round(draw_h(measured, stage.rng) * HOUR_MS) if measured else int(stage.rng.integers(1, 5)) * HOUR_MS
        )
        stage.trace.gaps.append(Gap(begin, begin + length_ms, node, None))
    for begin, node in stage.moments(stage.parameters.gpu_gap_per_gpu_day * stage.node_days() * GPUS):
        gpu = int(stage.rng.integers(0, GPUS))
        stage.trace.gaps.append(Gap(begin, begin + int(stage.rng.integers(1, 4)) * HOUR_MS, node, gpu))


def _fleet_gaps(stage: DecoyContext) -> None:
    """The collector of all nodes is silent: no sample of any of them, and nothing is wrong with any."""
    if not stage.parameters.fleet_gap_per_day:
        return
    for _ in range(int(stage.rng.poisson(stage.parameters.fleet_gap_per_day * stage.settings.days))):
        begin = int(stage.rng.integers(0, stage.settings.length_ms))
        end = begin + round(draw_h(stage.parameters.fleet_gap_h, stage.rng) * HOUR_MS)
        stage.trace.gaps += [Gap(begin, end, node, None) for node in range(stage.layout.nodes)]


def _hot_racks(stage: DecoyContext) -> None:
    """A rack runs hot for days: door open, chiller work."""
    racks = -(-stage.layout.nodes // NODES_PER_RACK)
    for _ in range(int(stage.rng.poisson(stage.parameters.hot_spot_per_rack_month * racks * stage.settings.days / 30))):
        rack = int(stage.rng.integers(0, racks))
        begin = int(stage.rng.integers(0, stage.settings.length_ms))
        end = begin + int(stage.rng.uniform(0.5, 6.0) * DAY_MS)
        rise_c = float(stage.rng.uniform(3.0, 12.0))
        for node in range(rack * NODES_PER_RACK, min((rack + 1) * NODES_PER_RACK, stage.layout.nodes)):
            stage.trace.heat.append(Heat(begin, end, node, None, rise_c))
    for begin, node in stage.moments(0.003 * stage.node_days()):
        end = begin + int(stage.rng.uniform(1.0, 8.0) * DAY_MS)
        stage.trace.heat.append(
            Heat(begin, end, node, int(stage.rng.integers(0, GPUS)), float(stage.rng.uniform(3.0, 14.0)))
        )


def _noise(stage: DecoyContext) -> None:
    """Lines that say nothing of a fault."""
    for time, node in stage.moments(_NOISE_PER_NODE_DAY * stage.node_days()):
        stage.trace.kernel.append(KernelLine(time, node, _NOISE[int(stage.rng.integers(0, len(_NOISE)))]))

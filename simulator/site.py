"""The simulated site: its nodes, racks, switches and addresses, and every figure, each with its FIELD row.

The rows are those of the project's list of published figures ("the field in figures"). `truth/parameters.json` repeats
figure and row, so a reader of an archive can judge it.
"""

from dataclasses import dataclass, field
from datetime import UTC, datetime, time, timedelta
from typing import Any

import numpy as np


def _figure(value: Any, source: str) -> Any:
    """A parameter with its source."""
    return field(default=value, metadata={"source": source})


# Of a length in hours: `_h` figures of five values are its quantiles at these places.
QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)


def draw_h(quantiles: tuple[float, ...], rng: np.random.Generator) -> float:
    """A length in hours: between two quantiles log-uniform, beyond the outer ones not at all."""
    return float(np.exp(np.interp(rng.random(), QUANTILES, np.log(quantiles))))


@dataclass(frozen=True, slots=True)
class Parameters:
    """Figures by subject. Ranges are (low, high); shares are 0-1; units are in the names."""

    # Nodes and their frailty
    frailty_shape: float = _figure(0.12, "D6/D7: gamma k = 0.10-0.15 puts 51-61 % of failures on the top 5 % of nodes")
    frailty_cap: float = _figure(30.0, "D7: bound of ours, so that one node cannot dominate a small archive")
    frailty_floor: float = _figure(0.04, "D7: floor of ours: no node is immune")
    frailty_drift_per_day: float = _figure(0.03, "D7: slow drift; sigma of the daily step of log frailty")
    resample_on_board_swap: float = _figure(0.4, "D7: frailty resampled on repair")
    resample_on_reimage: float = _figure(0.1, "D7: frailty resampled on repair")
    rate_scale: float = _figure(
        1.02, "so that relapses, infants and resampling leave the whole at the rate asked for; ours"
    )
    relapse_share: float = _figure(0.3, "D5: 33 of 112 GPUs with a DBE repeat (Summit)")
    relapse_factor: float = _figure(8.0, "D5: gap of a repeat: median 20 h, mean about 20 d; hazard factor of ours")
    relapse_days: float = _figure(7.0, "D5: as above")
    new_node_share: float = _figure(0.06, "D6: burn-in; share of nodes that join during the archive is ours")
    infant_shape: float = _figure(0.7, "D7: Weibull shape 0.7 in the first 30 days")
    infant_days: float = _figure(30.0, "D7: Weibull shape 0.7 in the first 30 days")
    # Repair
    mttr_reboot_h: tuple[float, float] = _figure((1.0, 4.0), "D6: driver or reboot 1-4 h")
    mttr_reimage_h: tuple[float, float] = _figure((4.0, 24.0), "D6: reimage 4-24 h")
    mttr_board_h: tuple[float, float] = _figure((24.0, 72.0), "D6: board swap 24-72 h")
    repair_h: tuple[float, ...] = _figure((), "empty: by tier, as above")
    health_check_s: tuple[int, int] = _figure(
        (20, 300), "C: Meta checks every 5 min; until Slurm knows of an idle node"
    )
    # Precursors
    contained_share: float = _figure(0.3, "D3/D5: Xid 94 before the end; share of visible ECC failures is ours")
    # A GPU that fell off the bus: how long it is still reported, and whether its whole board goes
    loss_lag_h: tuple[float, ...] = _figure((), "empty: its samples end with the Xid")
    whole_board_share: float = _figure(0.0, "one GPU falls, its neighbours stay; ours")
    # Decoys
    sbe_gpu_share: float = _figure(0.05, "D5: about 5 % of GPUs show SBE, active 1-3 weeks (share per 120 days)")
    sign_frailty_share: float = _figure(
        0.4, "D6/A1: lemons show in several signals (RSC: xid_cnt, tickets); share ours"
    )
    sbe_active_days: tuple[float, float] = _figure((7.0, 21.0), "D5: active 1-3 weeks")
    remap_per_mgpuh: float = _figure(5.0, "D3: Xid 63 at 2.8-7.6 per M GPU-h, most without a failure")
    benign_nvlink_per_mgpuh: float = _figure(12.0, "D3: Xid 74 at 0-200 per M GPU-h; D5: the job often survives")
    app_burst_per_node_day: float = _figure(0.006, "D3: Xid 31/13/43/45 at 50-900 per M GPU-h; A1: in node bursts")
    healthy_flap_per_link_day: float = _figure(0.01, "D4: between 5e-4 and 0.1-1 a day")
    flapper_share: float = _figure(0.015, "D4: 0.5-2 % of links are chronic flappers")
    flapper_per_day: tuple[float, float] = _figure((2.0, 20.0), "D4: 1-100 flaps a day in episodes of hours to days")
    leaf_event_per_leaf_month: float = _figure(0.02, "D4: 0.051 % of ToR switches crash a month at best; raised by us")
    drain_per_node_day: float = _figure(0.012, "D2: host maintenance 1.51 per M GPU-h; planned windows on top are ours")
    scrape_gap_per_node_day: float = _figure(0.05, "D7: scrape gaps from collector restarts; rate ours")
    scrape_gap_h: tuple[float, ...] = _figure((), "empty: 1 to 4 whole hours; ours")
    fleet_gap_per_day: float = _figure(0.0, "the collector of all nodes is silent; left out")
    fleet_gap_h: tuple[float, ...] = _figure((), "empty: there is none")
    sample_s: int = _figure(3600, "one sample an hour keeps an archive small; ours")
    gpu_gap_per_gpu_day: float = _figure(0.0005, "A1: GWDG: gaps and missing metrics; benign rate ours")
    hot_spot_per_rack_month: float = _figure(0.3, "D7: temperature regimes and correlated racks; rate ours")
    shock_after_share: float = _figure(0.6, "D7: driver-release shock; when, as a share of the archive, is ours")
    shock_factor: float = _figure(3.0, "D7: driver-release shock; D3: site spread per Xid is 100-10,000 fold")
    shock_days: float = _figure(10.0, "D7: driver-release shock; length ours")
    # The training run
    spare_share: float = _figure(0.06, "B5: 2-5 % over-provision; 144 cubes for 130")
    log_interval: int = _figure(50, "Megatron's --log-interval; ours")
    print_interval_s: int = _figure(400, "one line every 5-10 minutes of work; ours")
    spans_per_save: int = _figure(9, "B1: RSC assumes a checkpoint an hour")
    save_stall_s: tuple[int, int] = _figure((20, 60), "B3: DCP synchronous save about 50 s, BLOOM 40 s")
    load_s: tuple[int, int] = _figure((40, 150), "B3: loads of seconds to minutes")
    startup_s: tuple[int, int] = _figure((240, 600), "B3: Meta u0 5-20 min")
    requeue_s: tuple[int, int] = _figure((60, 660), "B3: median retry interval 11 min; warm standby faster")
    evaluation_s: tuple[int, int] = _figure((30, 60), "ours")
    spans_per_evaluation: int = _figure(36, "ours: about every 4 h")
    slow_per_day: float = _figure(0.4, "D4: communication fail-slow in 40 % of jobs")
    slow_minutes: tuple[float, float] = _figure((15.0, 75.0), "D4: about 24 min, 72 min at >= 512 GPUs")
    slow_factor: tuple[float, float] = _figure((1.25, 1.6), "D4: 1.34 x job time")


CALIBRATIONS = ("published", "real")
DAY_MS = 86_400_000
HOUR_MS = 3_600_000
MINUTE_MS = 60_000


@dataclass(frozen=True, slots=True)
class SimulationSettings:
    """The same settings give the same cluster, byte for byte: no clock is read.

    `rate_per_1000_node_days` is the unplanned hardware failure rate (FIELD D7: 3.8, worth sweeping over 1-20).
    `training` = `steady`, or `varied`: runs that save, wait for data, shrink and lose records in many ways.
    `calibration` = `published` figures, or `real`: fitted to the records of real sites (`calibration.csv`).
    `mechanisms` = names of `mechanisms/registry.py`: ways in which the world differs from the usual one.
    """

    nodes: int = 64
    days: int = 30
    seed: int = 1
    start: datetime = datetime(2025, 1, 1, tzinfo=UTC)
    rate_per_1000_node_days: float = 3.8
    training: str = "steady"
    calibration: str = "published"
    mechanisms: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Refuse what cannot be simulated.

        Raises:
            ValueError: a figure is out of range, or `start` is no aware midnight of 1980 to 2999.
        """
        if not 8 <= self.nodes <= 10_000:
            raise ValueError(f"{self.nodes} nodes cannot be simulated: choose 8 to 10000")
        if not 2 <= self.days <= 1_000:
            raise ValueError(f"{self.days} days cannot be simulated: choose 2 to 1000")
        if not 0 < self.rate_per_1000_node_days <= 50:
            raise ValueError(f"a rate of {self.rate_per_1000_node_days} is out of range: choose above 0, at most 50")
        if self.training not in ("steady", "varied"):
            raise ValueError(f"training that is {self.training!r} is not known: choose steady or varied")
        if self.calibration not in CALIBRATIONS:
            raise ValueError(f"a calibration {self.calibration!r} is not known: choose {' or '.join(CALIBRATIONS)}")
        if self.start.tzinfo is None or self.start.utcoffset() or self.start.time() != time.min:
            raise ValueError(f"{self.start} is no midnight in UTC: give the start as 2025-01-01T00:00:00Z")
        # Nodes are older than the archive, and the calendar ends.
        if not 1980 <= self.start.year <= 2999:
            raise ValueError(f"a start in the year {self.start.year} cannot be simulated: choose 1980 to 2999")

    @property
    def length_ms(self) -> int:
        """The simulated time in milliseconds."""
        return self.days * DAY_MS

    def moment(self, offset_ms: int) -> datetime:
        """The aware UTC time of an offset from the start."""
        return self.start + timedelta(milliseconds=int(offset_ms))

    def offset_ms(self, moment: datetime) -> int:
        """The offset of a time from the start."""
        return round((moment - self.start) / timedelta(milliseconds=1))


GPUS = 8
# The PCI addresses of the eight GPUs of a common HGX board, as the driver prints them.
PCI = ("0000:0f:00", "0000:2d:00", "0000:44:00", "0000:5b:00", "0000:89:00", "0000:a8:00", "0000:c0:00", "0000:d8:00")
NVSWITCH_PCI = ("0000:05:00.0", "0000:06:00.0", "0000:07:00.0", "0000:08:00.0")
NODES_PER_RACK = 4
NODES_PER_LEAF = 16
FIRST_UPLINK = 33
DRIVERS = ("550.90.07", "550.127.08")


@dataclass(frozen=True, slots=True)
class SiteLayout:
    """The machine room: index = node. `since_ms` is when a node joins (0: before the archive begins)."""

    names: tuple[str, ...]
    since_ms: tuple[int, ...]
    age_days: tuple[float, ...]  # at the start of the archive; 0 for nodes that join later

    @property
    def nodes(self) -> int:
        """How many nodes."""
        return len(self.names)

    @property
    def leaves(self) -> int:
        """How many leaf switches."""
        return -(-self.nodes // NODES_PER_LEAF)

    @property
    def spines(self) -> int:
        """How many spine switches."""
        return 2 if self.nodes <= 128 else 4


def rack_of(node: int) -> int:
    """The rack's index."""
    return node // NODES_PER_RACK


def leaf_of(node: int) -> int:
    """The leaf switch's index."""
    return node // NODES_PER_LEAF


def leaf_port(node: int) -> int:
    """The leaf's port that the node is cabled to."""
    return node % NODES_PER_LEAF + 1


def leaf_name(leaf: int) -> str:
    """The leaf's name."""
    return f"leaf-{leaf + 1:02d}"


def hca_guid(node: int) -> int:
    """The node GUID of a host's adapter; its port's is one more."""
    return 0xB83FD20300200000 + node * 0x10


def leaf_guid(leaf: int) -> int:
    """The GUID of a leaf switch."""
    return 0xB83FD20300100000 + leaf * 0x40


def spine_guid(spine: int) -> int:
    """The GUID of a spine switch."""
    return 0xB83FD2030010FA00 + spine * 0x40


def leaf_lid(leaf: int) -> int:
    """The LID of a leaf switch."""
    return 10 + leaf


def spine_lid(spine: int) -> int:
    """The LID of a spine switch."""
    return 2 + spine


def hca_lid(node: int) -> int:
    """The LID of a host's port."""
    return 1000 + node


def gpu_uuid(node: int, gpu: int) -> str:
    """A UUID in NVIDIA's form, the same for the same GPU."""
    return f"GPU-{0xF0E5 + node:08x}-{gpu:04x}-4b1d-9c0a-{(node * GPUS + gpu) * 2654435761 % 2**48:012x}"


def lay_out(settings: SimulationSettings, parameters: Parameters, rng: np.random.Generator) -> SiteLayout:
    """Draw the machine room. A few nodes join in the first part of the archive, always the last of their racks."""
    count = settings.nodes
    width = max(3, len(str(count)))
    since = np.zeros(count, dtype=np.int64)
    joining = rng.choice(count, size=round(parameters.new_node_share * count), replace=False)
    since[joining] = rng.uniform(0.05, 0.4, joining.size) * settings.days
    age = np.where(since > 0, 0.0, rng.uniform(40.0, 500.0, count))
    return SiteLayout(
        names=tuple(f"gpu-{i + 1:0{width}d}" for i in range(count)),
        since_ms=tuple(int(day) * DAY_MS for day in since),
        age_days=tuple(float(x) for x in age),
    )

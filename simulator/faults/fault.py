"""The failure classes: how often, how visible beforehand, how found and how repaired; and one failure.

Rates are FIELD D2 (events per million GPU-hours, Llama 3): its `faulty GPU` 6.97 is spread by us over nvlink, off_bus,
gsp, hbm_ecc and thermal_psu. Visibility is FIELD D7; repair tiers FIELD D6; detection FIELD C.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class FaultClass:
    """One kind of failure. `visible` = share with a true precursor; `lead_h` = (median, sigma of its log) of it.

    `tiers` = chances of reboot, reimage, board swap. `outage` is False where the node stays in service.
    """

    name: str
    per_mgpuh: float
    visible: float
    lead_h: tuple[float, float]
    tiers: tuple[float, float, float]
    detect_s: tuple[int, int]
    cause: str
    device: str
    outage: bool = True


FAULT_CLASSES: tuple[FaultClass, ...] = (
    # HBM3 3.39 + SRAM 0.90 + part of faulty GPU; D7: 60-80 % visible, hours to weeks
    FaultClass("hbm_ecc", 4.69, 0.65, (60.0, 1.1), (0.60, 0.05, 0.35), (15, 90), "hardware", "gpu"),
    # faulty GPU; D7: 30-60 %
    FaultClass("nvlink", 2.60, 0.42, (30.0, 1.0), (0.60, 0.10, 0.30), (15, 180), "hardware", "gpu"),
    # switch/cable 1.65 + NIC 0.33; D7: 40-60 %, flaps hours to days; C: 30 s to 10 min
    FaultClass("link_optics", 1.98, 0.48, (24.0, 0.9), (0.60, 0.35, 0.05), (30, 600), "fabric", "port"),
    # thermal 0.28 + PSU 0.14 + part of faulty GPU; D7: 30 %
    FaultClass("thermal_psu", 0.72, 0.30, (72.0, 0.8), (0.30, 0.30, 0.40), (15, 90), "hardware", "gpu"),
    # faulty GPU; D7: 0-20 %; D5: minimal numeric precursor
    FaultClass("off_bus", 2.60, 0.10, (10.0, 0.8), (0.65, 0.10, 0.25), (10, 60), "hardware", "gpu"),
    # GSP 0.80 + part of faulty GPU; D7: 0-20 %; D5: reboot, up to 23 h
    FaultClass("gsp", 1.87, 0.08, (8.0, 0.8), (0.85, 0.15, 0.0), (30, 300), "driver", "gpu"),
    # host maintenance 1.51 + chassis, IO board, CPU, memory, dependency 0.47; silent; C: NCCL timeout 10 min
    FaultClass("host", 1.98, 0.0, (1.0, 0.1), (0.50, 0.35, 0.15), (120, 660), "host", "node"),
)
# These end the job and leave the node in service: SSD 0.14 + file systems (ours); software 2.54 + watchdog 0.33.
JOB_CLASSES: tuple[FaultClass, ...] = (
    FaultClass("storage", 0.30, 0.0, (1.0, 0.1), (1.0, 0.0, 0.0), (5, 120), "storage", "node", outage=False),
    FaultClass("software", 2.87, 0.0, (1.0, 0.1), (1.0, 0.0, 0.0), (5, 60), "application", "node", outage=False),
)
CLASSES = {kind.name: kind for kind in (*FAULT_CLASSES, *JOB_CLASSES)}
TIERS = ("reboot", "reimage", "board")


@dataclass(slots=True)
class NodeFailure:
    """One fault of one node; times in ms from the start. The run may put `fault_ms` off by minutes (see run.py).

    `fault_ms` = the device breaks; `start_ms`..`end_ms` = the outage as Slurm knows it (equal where there is none).
    """

    node: int
    gpu: int
    kind: FaultClass
    fault_ms: int
    start_ms: int
    repair_ms: int
    tier: str
    visible: bool
    warning_ms: int  # when its precursors begin; fault_ms where it has none
    variant: int = 0  # which of a class's ways to show itself
    ends_job: bool = True
    leaf: int | None = None  # a leaf switch failed, not the node
    outage: bool = True
    lag_ms: int = 0  # how long after its Xid a GPU that fell off the bus is still reported
    whole_board: bool = False  # all GPUs fall with it

    @property
    def falls_off_bus(self) -> bool:
        """Whether its moment is Xid 79."""
        return self.kind.name == "off_bus" or (self.kind.name == "thermal_psu" and self.variant < 50)

    @property
    def end_ms(self) -> int:
        """When the node is back in service."""
        return self.start_ms + self.repair_ms

    def out_at(self, moment_ms: int) -> bool:
        """Whether the node cannot be used at a moment."""
        return self.outage and self.fault_ms <= moment_ms < self.end_ms


@dataclass(frozen=True, slots=True)
class PlannedDrain:
    """A planned time out of service; times in ms from the start, whole seconds."""

    node: int
    start_ms: int
    end_ms: int
    reason: str
    user: str

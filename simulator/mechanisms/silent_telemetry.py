"""Silent telemetry: before a failure nothing is counted; the part's values vanish, more and more often."""

from dataclasses import replace

import numpy as np

from simulator.faults.fault import FaultClass, NodeFailure
from simulator.faults.trace import Gap, Trace
from simulator.mechanisms.mechanism import Mechanism, Precursor
from simulator.site import HOUR_MS, MINUTE_MS

_MOST = 40
# Whole nodes fall silent by the management controller, single GPUs by the driver.
_NODE_SHARE = 0.3


def _kind(kind: FaultClass) -> FaultClass:
    """Silence comes before hosts and boards as well; two days ahead in the middle."""
    return replace(kind, visible=max(kind.visible, 0.35), lead_h=(36.0, 0.8))


def _vanishing(failure: NodeFailure, trace: Trace, rng: np.random.Generator) -> None:
    gpu = None if rng.random() < _NODE_SHARE else failure.gpu
    span = failure.fault_ms - failure.warning_ms
    count = min(2 + int(rng.poisson(span / (6 * HOUR_MS))), _MOST)
    for place in np.sort(1.0 - rng.random(count) ** 1.5).tolist():
        begin = failure.warning_ms + int(place * (span - 5 * MINUTE_MS))
        length = int(rng.uniform(1.0, 1.0 + 3.0 * place) * HOUR_MS)
        trace.gaps.append(Gap(begin, min(begin + length, failure.fault_ms), failure.node, gpu))


_CLASSES = ("hbm_ecc", "nvlink", "link_optics", "thermal_psu", "off_bus", "gsp", "host")
PRECURSORS: dict[str, Precursor] = dict.fromkeys(_CLASSES, _vanishing)
MECHANISM = Mechanism(
    "before a failure values vanish, and nothing else is seen",
    figures={"gpu_gap_per_gpu_day": 0.002, "scrape_gap_per_node_day": 0.08},
    kind=_kind,
    precursors=PRECURSORS,
)

"""What a site does not see of a failure: values that vanish before it, an older driver's words, a filter of its log.

Silent telemetry: before a failure nothing is counted; the part's values vanish, more and more often. Other log habits:
an older driver's words, a filter that keeps errors, reasons as other operators write them.
"""

import re
from dataclasses import replace

import numpy as np

from simulator.faults.fault import FaultClass, NodeFailure
from simulator.faults.trace import Gap, KernelLine, Trace
from simulator.mechanisms.mechanism import Mechanism, Precursor
from simulator.site import HOUR_MS, MINUTE_MS

_MOST_GAPS = 40
# Whole nodes fall silent by the management controller, single GPUs by the driver.
_NODE_SHARE = 0.3


def _silent_kind(kind: FaultClass) -> FaultClass:
    """Silence comes before hosts and boards as well; two days ahead in the middle."""
    return replace(kind, visible=max(kind.visible, 0.35), lead_h=(36.0, 0.8))


def _vanishing(failure: NodeFailure, trace: Trace, rng: np.random.Generator) -> None:
    gpu = None if rng.random() < _NODE_SHARE else failure.gpu
    span = failure.fault_ms - failure.warning_ms
    count = min(2 + int(rng.poisson(span / (6 * HOUR_MS))), _MOST_GAPS)
    for place in np.sort(1.0 - rng.random(count) ** 1.5).tolist():
        begin = failure.warning_ms + int(place * (span - 5 * MINUTE_MS))
        length = int(rng.uniform(1.0, 1.0 + 3.0 * place) * HOUR_MS)
        trace.gaps.append(Gap(begin, min(begin + length, failure.fault_ms), failure.node, gpu))


_SILENT = ("hbm_ecc", "nvlink", "link_optics", "thermal_psu", "off_bus", "gsp", "host")
_PRECURSORS: dict[str, Precursor] = dict.fromkeys(_SILENT, _vanishing)
SILENT_TELEMETRY = Mechanism(
    "before a failure values vanish, and nothing else is seen",
    figures={"gpu_gap_per_gpu_day": 0.002, "scrape_gap_per_node_day": 0.08},
    kind=_silent_kind,
    precursors=_PRECURSORS,
)

# What the site's log server drops: warnings, notices, and everything of an NVSwitch that is not fatal.
_DROPPED = frozenset({43, 45, 63, 92, 94, 154})
# Drivers before 450 name no process.
_PROCESS = re.compile(r"(?:pid=(?:\d+|'<unknown>')|name=(?:<unknown>|[^,]+)), ")
_REASONS = {
    "hbm_ecc": ("hw: GPU memory, RMA", "gpu{gpu} dbe, swap"),
    "nvlink": ("nvlink dead gpu{gpu}", "hgx board, RMA"),
    "link_optics": ("bad ib cable", "hca down"),
    "thermal_psu": ("overheat", "psu, tech called"),
    "off_bus": ("gpu{gpu} lost", "nvidia-smi: no devices, reboot"),
    "gsp": ("gpu{gpu} hung", "gpu hung, reboot"),
    "host": ("node down", "crashed"),
}
# Some write a ticket's number and nothing else.
_TICKET_VARIANT = 90


def _older_words(trace: Trace, rng: np.random.Generator) -> None:
    offset_s = float(rng.uniform(100, 9_000_000))
    trace.kernel[:] = [_line(line, offset_s) for line in trace.kernel if _is_kept(line)]


def _is_kept(line: KernelLine) -> bool:
    if line.xid is not None:
        return line.xid[1] not in _DROPPED
    return "Non-fatal" not in line.text


def _line(line: KernelLine, offset_s: float) -> KernelLine:
    """With the kernel's own clock before it, as rsyslog's template writes it."""
    uptime = f"[{line.time_ms / 1000 + offset_s:14.6f}] "
    return replace(line, text=uptime + (_PROCESS.sub("", line.text) if line.xid is not None else line.text))


def _reason(failure: NodeFailure, _usual: str) -> str:
    if failure.variant >= _TICKET_VARIANT:
        return f"OPS-{4000 + failure.fault_ms // 60_000 % 5000}"
    return _REASONS[failure.kind.name][failure.variant >= 50].format(gpu=failure.gpu)


LOG_HABITS = Mechanism(
    "an older driver's words, warnings that no log keeps, reasons that other operators write",
    rewrite=_older_words,
    reason=_reason,
)

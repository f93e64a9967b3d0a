"""Other log habits: an older driver's words, a filter that keeps errors, reasons as other operators write them."""

import re
from dataclasses import replace

import numpy as np

from simulator.faults.fault import NodeFailure
from simulator.faults.trace import KernelLine, Trace
from simulator.mechanisms.mechanism import Mechanism

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
    trace.kernel[:] = [_line(line, offset_s) for line in trace.kernel if _kept(line)]


def _kept(line: KernelLine) -> bool:
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


MECHANISM = Mechanism(
    "an older driver's words, warnings that no log keeps, reasons that other operators write",
    rewrite=_older_words,
    reason=_reason,
)

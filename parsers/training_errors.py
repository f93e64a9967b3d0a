"""The lines of a training log that tell why an attempt ended.

    slurmstepd: error: *** JOB 1809655 ON r6i4n3 CANCELLED AT 2021-05-24T09:50:34 DUE TO TIME LIMIT ***
    -> TrainingError(name="time_limit", severity="warning", ...)
    torch.distributed.DistBackendError: NCCL error in: ../torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp:1251, ...
    -> TrainingError(name="DistBackendError", severity="error", ...)

A traceback is told by its last line, which names the error. Lines that merely mention one are left alone.
"""

import re
from dataclasses import dataclass
from datetime import datetime

from parsers.stamp import Stamps
from store.event import Action, Cause, Severity

MAX_MESSAGE = 500

_CANCELLED = re.compile(
    r"slurmstepd: error: \*\*\* (?:JOB|STEP) [\w.+]{1,40} ON \S{1,200} CANCELLED AT (?P<time>[\d:T-]{19})"
    r"(?: DUE TO (?P<why>[A-Z ]{1,40}))?",
    re.ASCII,
)
_KILLED = re.compile(
    r"srun: error: (?P<node>\S{1,200}): tasks? [\d,-]{1,80}: "
    r"(?P<what>Killed|Aborted|Segmentation fault|Bus error|Out Of Memory|Exited with exit code \d{1,3})",
    re.ASCII,
)
_SLURM_NODE = re.compile(r"srun: error: (?P<message>Node failure on (?P<node>\S{1,200}))", re.ASCII)
_RAISED = re.compile(
    r"(?:\[[^\]]{0,120}\]:? ?)*(?P<name>(?:[A-Za-z_]\w{0,60}\.){0,8}[A-Z]\w{0,60}"
    r"(?:Error|Exception|Exit|Interrupt)): (?P<text>.*)",
    re.ASCII,
)
_GLOG_TIME = re.compile(r"\[E(?P<month>\d{2})(?P<day>\d{2}) (?P<clock>\d{2}:\d{2}:\d{2}\.\d{1,6}) ", re.ASCII)
_WATCHDOG = re.compile(
    r"Watchdog caught collective operation timeout|NCCL watchdog thread terminated with exception", re.ASCII
)
_EXITED = re.compile(r"exits with return code = -?\d{1,5}|failed \(exitcode: -?\d{1,5}\)", re.ASCII)
_ECC = re.compile(r"uncorrectable (?:NVLink|ECC)", re.IGNORECASE)
_MEMORY = re.compile(r"out of memory|OutOfMemory", re.IGNORECASE)
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_WHY = {"TIME LIMIT": "time_limit", "NODE FAILURE": "node_failure", "PREEMPTION": "preempted"}


@dataclass(frozen=True, slots=True)
class TrainingError:
    """What a line tells of an attempt's end."""

    name: str
    message: str
    time: datetime | None = None
    severity: Severity = "error"
    cause: Cause = "unknown"
    action: Action = "restart_app"
    node: str | None = None

    def key(self) -> str:
        """Equal for the same error told by many ranks; the scheduler's own endings are told apart by their time."""
        return f"{self.name} {self.time}" if self.severity == "warning" else self.name


def error_of(text: str, stamps: Stamps, seen: datetime | None = None) -> TrainingError | None:
    """The error that a line tells of, or None. The text is without launcher prefix and time.

    `seen` is the last time that the log bore, for a time without a year.
    """
    if match := _CANCELLED.search(text):
        why = next((name for words, name in _WHY.items() if (match["why"] or "").startswith(words)), "cancelled")
        failed = why == "node_failure"
        return TrainingError(
            name=why,
            message=text.strip()[:MAX_MESSAGE],
            time=stamps.iso(match["time"]),
            severity="error" if failed else "warning",
            cause="host" if failed else "unknown",
            action="restart_app" if failed else "none",
        )
    if match := _WATCHDOG.search(text):
        return _raised("nccl_watchdog", text[match.start() :], _glog_time(text, stamps, seen))
    if match := _SLURM_NODE.search(text):
        return TrainingError(name="node_failure", message=match["message"], cause="host", node=match["node"])
    if match := _KILLED.search(text):
        return TrainingError(name="task_killed", message=text.strip()[:MAX_MESSAGE], node=match["node"])
    if match := _EXITED.search(text):
        return TrainingError(name="process_exit", message=match[0])
    if match := _RAISED.match(text):
        return _raised(match["name"].rpartition(".")[2], f"{match['name']}: {match['text']}", None)
    return None


def _raised(name: str, message: str, time: datetime | None) -> TrainingError:
    """An error of the program; its words tell a few causes."""
    cause: Cause = "hardware" if _ECC.search(message) else "application" if _MEMORY.search(message) else "unknown"
    return TrainingError(name=name, message=message.strip()[:MAX_MESSAGE], time=time, cause=cause)


def _glog_time(text: str, stamps: Stamps, seen: datetime | None) -> datetime | None:
    """The time that PyTorch's C++ log puts before a message: month and day, no year."""
    match = _GLOG_TIME.search(text)
    if not match or not 1 <= int(match["month"]) <= 12:
        return None
    if seen is not None:
        return stamps.nearest(int(match["month"]), match["day"], match["clock"], seen)
    return stamps.yearless(_MONTHS[int(match["month"]) - 1], match["day"], match["clock"])

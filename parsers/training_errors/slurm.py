"""What Slurm writes into a job's log when it ends.

    slurmstepd: error: *** JOB 1809655 ON r6i4n3 CANCELLED AT 2021-05-24T09:50:34 DUE TO TIME LIMIT ***   -> time_limit
    srun: error: gpu-017: tasks 3-7: Killed                                                               -> task_killed
    slurmstepd: error: Detected 1 oom_kill event in StepId=4711.0. Some of the step tasks have ...        -> oom_kill

A job that was cancelled, preempted or out of time did not fail: these are warnings. Sources: slurmd/slurmstepd/req.c,
srun/libsrun/launch.c of Slurm, real logs of bigscience.
"""

import re

from parsers.training_errors.report import MAX_MESSAGE, Reader, Report, numbers

_CANCELLED = re.compile(
    r"slurmstepd: error: \*\*\* (?:JOB|STEP) [\w.+]{1,40} ON \S{1,200} CANCELLED AT (?P<time>[\d:T-]{19})"
    r"(?: DUE TO (?P<why>[A-Z ]{1,40}))?",
    re.ASCII,
)
_NOT_ENDING = re.compile(
    r"slurmstepd: error: \*\*\* (?:JOB|STEP) [\w.+]{1,40} STEPD TERMINATED ON (?P<node>\S{1,200}) "
    r"AT (?P<time>[\d:T-]{19})",
    re.ASCII,
)
_OOM = re.compile(r"slurmstepd: error: Detected \d{1,6} oom.?kill event", re.ASCII)
_KILLED = re.compile(
    r"srun: error: (?P<node>\S{1,200}): tasks? (?P<task>[\d,-]{1,80}): "
    r"(?P<what>Killed|Terminated|Aborted|Segmentation fault|Bus error|Floating point exception|Illegal instruction"
    r"|Out Of Memory|Exited with exit code (?P<exitcode>\d{1,3}))",
    re.ASCII,
)
_NODE = re.compile(r"srun: error: (?P<message>Node failure on (?P<node>\S{1,200}))", re.ASCII)
_WHY = {"TIME LIMIT": "time_limit", "NODE FAILURE": "node_failure", "PREEMPTION": "preempted"}


def read(text: str) -> Report | None:
    """The ending that a line tells."""
    message = text.strip()[:MAX_MESSAGE]
    if match := _CANCELLED.search(text):
        why = next((name for words, name in _WHY.items() if (match["why"] or "").startswith(words)), "cancelled")
        variant = "host" if why == "node_failure" else "ended"
        return Report(why, message, variant=variant, time=match["time"], apart=match["time"])
    if match := _NOT_ENDING.search(text):
        return Report("not_ending", message, variant="host", time=match["time"], node=match["node"])
    if match := _NODE.search(text):
        return Report("node_failure", match["message"], variant="host", node=match["node"])
    if match := _KILLED.search(text):
        told = {"task": match["task"], "exitcode": match["exitcode"]}
        return Report("task_killed", message, node=match["node"], attributes=numbers(told))
    if _OOM.search(text):
        return Report("oom_kill", message, variant="application")
    return None


READER = Reader(name="slurm", signs=("slurmstepd: error:", "srun: error:"), read=read)

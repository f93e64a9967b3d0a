"""How launchers tell that a task ended: DeepSpeed's, mpirun, pdsh, Lightning's.

[...] [ERROR] [launch.py:321:sigkill_handler] ['python', ...] exits with return code = 1        -> process_exit
mpirun noticed that process rank 3 with PID 4711 on node gpu-017 exited on signal 9 (Killed).   -> task_killed
pdsh@head: gpu-017: ssh exited with exit code 255                                              -> task_killed
[rank: 3] Child process with PID 170 terminated with code 1. Forcefully terminating ...        -> process_exit
"""

import re

from parsers.training_errors.report import MAX_MESSAGE, Reader, Report, numbers

_RETURNED = re.compile(r"exits with return code = (?P<exitcode>-?\d{1,5})", re.ASCII)
_CHILD = re.compile(
    r"\[rank: (?P<rank>\d{1,7})\] Child process with PID (?P<pid>\d{1,10}) terminated "
    r"with code (?P<exitcode>-?\d{1,5})",
    re.ASCII,
)
_MPI = re.compile(
    r"(?:mpirun|prterun|mpiexec) (?:noticed|has detected|detected) that process rank (?P<rank>\d{1,7}) "
    r"with PID (?P<pid>\d{1,10}) "
    r"on node (?P<node>\S{1,200}) (?P<what>exited on signal (?P<signal>\d{1,3})|called abort)?",
    re.ASCII,
)
_PDSH = re.compile(
    r"pdsh@\S{1,200}: (?P<node>\S{1,200}): (?:ssh )?"
    r"(?:exited with exit code (?P<exitcode>\d{1,3})|connect(?:ion)? \w{1,40})",
    re.ASCII,
)


def read(text: str) -> Report | None:
    """The end of a task."""
    if match := _RETURNED.search(text) or _CHILD.search(text):
        return Report("process_exit", match[0], attributes=numbers(match.groupdict()))
    if match := _MPI.search(text) or _PDSH.search(text):
        told = {name: value for name, value in match.groupdict().items() if name not in ("node", "what")}
        message = text.strip()[:MAX_MESSAGE]
        return Report("task_killed", message, node=match["node"], attributes=numbers(told))
    return None


READER = Reader(
    name="launchers", signs=("return code", "Child process with PID", "that process rank", "pdsh@"), read=read
)

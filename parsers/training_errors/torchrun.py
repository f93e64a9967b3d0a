"""torchrun, the elastic launcher of PyTorch (NVRx's ft_launcher and DLRover's agent print the same).

    E0621 21:36:52.942000 2319283 torch/distributed/elastic/multiprocessing/api.py:986] failed (exitcode: -9)
      local_rank: 3 (pid: 2319309) of binary: /usr/bin/python    -> process_exit, exitcode -9, local_rank 3
    [default] Worker group FAILED. 2/3 attempts left; will restart worker group   -> training_restart, restarts_left 2
    Root Cause (first observed failure):                         -> worker_failed, with the box's host, rank, exitcode
    [0]:
      time      : 2026-01-15_05:44:28
      host      : gpu-017
      rank      : 3 (local_rank: 3)
      exitcode  : -9 (pid: 6174)
      error_file: <N/A>
      traceback : Signal 9 (SIGKILL) received by PID 6174

Of a box the first failure alone counts: the others follow from it. Sources: torch/distributed/elastic/agent/server,
multiprocessing/api.py and multiprocessing/errors of PyTorch.
"""

import re

from parsers.training_errors.report import MAX_MESSAGE, Reader, Report, numbers
from store.event import Attribute

_FAILED = re.compile(
    r"failed \(exitcode: (?P<exitcode>-?\d{1,5})\)(?: local_rank: (?P<local_rank>\d{1,4}) \(pid: (?P<pid>\d{1,10})\))?",
    re.ASCII,
)
_GLOG = re.compile(r"[EWI](?P<month>\d{2})(?P<day>\d{2}) (?P<clock>\d{2}:\d{2}:\d{2}\.\d{1,9}) ", re.ASCII)
_RESTART = re.compile(
    r"Worker group (?P<state>[A-Z]{1,20})\. (?P<restarts_left>\d{1,5})/(?P<restarts_max>\d{1,5}) +"
    r"attempts left; +will restart",
    re.ASCII,
)
_JOINED = re.compile(
    r"Detected (?P<joined>\d{1,5}) new nodes from group_rank=\d{1,6}; +will restart worker group", re.ASCII
)
_RENDEZVOUS = re.compile(r"Rendezvous complete for workers", re.ASCII)
_STOPPED = re.compile(r"Received (?P<name>SIGTERM|SIGINT|Signals\.SIGTERM|Signals\.SIGINT) death signal", re.ASCII)
# A box's field, as torch/distributed/elastic/multiprocessing/errors prints it.
_FIELD = re.compile(r"\s{2,8}(?P<name>time|host|rank|exitcode|traceback) {0,6}: (?P<value>.{1,400})", re.ASCII)
_TWO = re.compile(r"(?P<first>-?\d{1,7}) \((?:local_rank|pid): (?P<second>\d{1,10})\)", re.ASCII)
# Lines of a box, and what they hold: a box that was cut ends here.
MAX_BOX = 12
BOX_SIGNS = ("Root Cause (first observed failure)", *(f"{name:<10}: " for name in ("time", "host", "rank", "exitcode")))
BOX_SIGNS += ("traceback : ",)


def read(text: str) -> Report | None:
    """What the launcher says of its workers."""
    if match := _FAILED.search(text):
        return Report("process_exit", match[0], glog=_glog(text), attributes=numbers(match.groupdict()))
    if match := _RESTART.search(text):
        told = numbers(match.groupdict())
        return Report(
            "restart", match[0], "training_restart", "", glog=_glog(text), attributes=told, apart=match["restarts_left"]
        )
    if match := _JOINED.search(text):
        return Report("joined", match[0], "training_restart", "membership", glog=_glog(text))
    if _RENDEZVOUS.search(text):
        return Report("rendezvous", "Rendezvous complete for workers", "training_phase", glog=_glog(text))
    if match := _STOPPED.search(text):
        return Report("stopped", text.strip()[:MAX_MESSAGE], variant="ended", glog=_glog(text))
    return None


def _glog(text: str) -> tuple[int, str, str] | None:
    match = _GLOG.search(text)
    return (int(match["month"]), match["day"], match["clock"]) if match else None


class RootCause:
    """Reads the box of the first failure. Holds its fields until the last one."""

    def __init__(self) -> None:
        self._until = 0
        self._time: str | None = None
        self._host: str | None = None
        self._told: dict[str, Attribute] = {}

    def read(self, text: str, line: int) -> Report | None:
        """The failure, at the last line of its box."""
        if BOX_SIGNS[0] in text:
            self._until, self._told, self._time, self._host = line + MAX_BOX, {}, None, None
            return None
        match = _FIELD.match(text) if line <= self._until else None
        if not match:
            return None
        name, value = match["name"], match["value"].strip()
        if name == "time":
            self._time = value.replace("_", " ")
        elif name == "host":
            self._host = value
        elif name == "traceback":
            self._until = 0
            what = value if value.startswith("Signal") else f"exit code {self._told.get('exitcode')}"
            return Report(
                "worker_failed",
                f"rank {self._told.get('rank')} failed first: {what}"[:MAX_MESSAGE],
                time=self._time,
                node=self._host,
                attributes=self._told,
                apart=self._host or "",
            )
        elif two := _TWO.match(value):
            names = ("rank", "local_rank") if name == "rank" else ("exitcode", "pid")
            self._told.update(zip(names, (int(two["first"]), int(two["second"])), strict=True))
        return None


READER = Reader(
    name="torchrun",
    signs=("failed (exitcode", "attempts left", "new nodes from", "Rendezvous complete", "death signal"),
    read=read,
)

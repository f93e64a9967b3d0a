"""Launchers and their reports of a task's end: Slurm, torchrun, DeepSpeed's, mpirun, pdsh, Lightning's.

[...] [ERROR] [launch.py:321:sigkill_handler] ['python', ...] exits with return code = 1        -> process_exit
mpirun noticed that process rank 3 with PID 4711 on node gpu-017 exited on signal 9 (Killed).   -> task_killed
pdsh@head: gpu-017: ssh exited with exit code 255                                              -> task_killed
[gpu-017:12345] Signal: Segmentation fault (11)                                                 -> signal_caught
[rank: 3] Child process with PID 170 terminated with code 1. Forcefully terminating ...        -> process_exit
"""

import re
from dataclasses import dataclass

from parsers.training.error_report import MAX_MESSAGE, ErrorReader, ErrorReport, numbers
from store.records.event import Attribute

# What launchers and log collectors put before each line of a training program, taken off.
#
#     vm-07-14:  iteration 5/5 | ...                        pdsh: the host
#      12: [2025-03-01 04:05:06] iteration 5/5 | ...        srun --label: the rank
#     [rank3]: ...   [default3]: ...   [1,3]<stderr>: ...   PyTorch, torchrun (local rank), mpirun (rank)
#     2025-03-01T04:05:06.123456789Z stdout F ...           a container's log (CRI); kubectl logs --timestamps; docker
#     trainer/0 [default0]: ...   (Worker pid=41) ...       TorchX, Ray
#     (worker1, rank=1, pid=41, ip=10.0.0.4) ...            SkyPilot: the rank is that of the node
#     [pod/t-0/pytorch] ...   t-0  | ...                    kubectl, docker compose
#     [NeMo I 2025-04-11 14:48:45 nemo_logging:393] ...     then the time that the program's own logger prints
#     -> Launched(node, rank, local_rank, time, text)
#
# Several of them may stand before one line. A time that the program prints goes before one that a collector adds.

# No line bears more prefixes than these.
MAX_PREFIXES = 5

_STAMP = r"\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}:\d{2}(?:[.,]\d{1,9})?(?:Z|[+-]\d{2}:?\d{2})?"
_PREFIX = re.compile(
    r"\s{0,8}(?:\[rank(?P<rank>\d{1,7})\]:? ?"
    r"|\[[A-Za-z]\w{0,30}?(?P<local>\d{1,4})?\]:(?!\S*\]) ?"
    r"|\[(?:[\w.-]{1,80}@)?\d{1,7},(?P<mpi>\d{1,7})\]<std(?:out|err|diag)>: ?"
    r"|(?P<srun>\d{1,7}): "
    r"|(?P<node>\d{1,3}(?:\.\d{1,3}){3}"
    r"|(?!py\d|E[A-Z]\d{4}: |[\w.-]{1,200}?(?:Error|Exception|Warning): )[A-Za-z][\w.-]{0,200}?\d[\w.-]{0,200}): "
    r"|[\w.-]{1,80}/\d{1,5} (?=\[)"
    r"|\((?:[\w.:-]{1,80},? )?(?:rank=\d{1,7}, )?pid=\d{1,10}(?:, ip=[\w.:]{1,60})?\) "
    r"|\[pod/[\w./-]{1,200}\] |(?:ERROR|CRITICAL) \d{2}-\d{2} \d{2}:\d{2}:\d{2} \[[\w./-]{1,120}:\d{1,6}\] "
    r"|[\w.-]{1,80} {1,20}\| "
    r"|\[?(?P<collected>\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}(?:\.\d{1,9})?(?:Z|[+-]\d{2}:\d{2}))\]? "
    r"(?:std(?:out|err) [FP] )?)",
    re.ASCII,
)
_TIME = re.compile(
    rf"\s{{0,8}}(?:\[NeMo [A-Z] (?P<nemo>{_STAMP}) [^\]]{{1,80}}\] ?"
    rf"|\[[A-Z]{{4,8}}\|[^\]\s]{{1,80}}\] (?P<hf>{_STAMP}) >> "
    rf"|(?:\[titan\] )?(?P<plain>{_STAMP})(?: - |[ \t]|: (?=[DIWEF] \w))"
    rf"|\[(?P<bracket>{_STAMP})\] ?)",
    re.ASCII,
)
_COLOUR = re.compile(r"\x1b\[[0-9;]{0,16}[A-Za-z]")


@dataclass(slots=True)
class ProgramLine:
    """A line without its prefixes, and what they told. `time` is text still; `job_rank` is by PyTorch's own prefix."""

    text: str
    node: str | None = None
    rank: int | None = None
    job_rank: int | None = None
    local_rank: int | None = None
    time: str | None = None


def program_line(text: str) -> ProgramLine:
    """The line that the program printed."""
    if "\x1b" in text:
        text = _COLOUR.sub("", text)
    line = ProgramLine(text)
    for _ in range(MAX_PREFIXES):
        match = _PREFIX.match(line.text)
        if not match or (match["node"] and line.node):
            break
        _note(line, match)
        line.text = line.text[match.end() :]
    if match := _TIME.match(line.text):
        line.time = match["nemo"] or match["hf"] or match["plain"] or match["bracket"]
        line.text = line.text[match.end() :]
    return line


def _note(line: ProgramLine, match: re.Match[str]) -> None:
    """Keep what a prefix tells."""
    line.node = line.node or (match["node"] and match["node"].removeprefix("slurmstepd-"))
    rank = match["rank"] or match["mpi"] or match["srun"]
    if rank is not None:
        line.rank = int(rank)
    if match["rank"] is not None:
        line.job_rank = int(match["rank"])
    if match["local"] is not None:
        line.local_rank = int(match["local"])
    line.time = match["collected"] or line.time


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
# Ray's head counts the heartbeats of its nodes (gcs_node_manager.cc): one that it misses is lost to the job.
_RAY_NODE = re.compile(
    r"The node with node id: \w{1,80} and address: \S{1,200} and node name: (?P<node>[\w.:-]{1,200}) has been marked "
    r"dead because the detector has missed too many heartbeats",
    re.ASCII,
)
# And what a node's raylet tells the driver: workers that ended, and those that it ended itself for memory.
_RAY_WORKER = re.compile(
    r"A worker died or was killed while executing a task by an unexpected system error\..{0,600}?"
    r"Worker IP address: (?P<node>[\w.:]{1,60})(?:.{0,60}? Worker PID: (?P<pid>\d{1,10}))?",
    re.ASCII,
)
_RAY_MEMORY = re.compile(
    r"(?P<count>[1-9]\d{0,8}) Workers \(tasks / actors\) killed due to memory pressure \(OOM\).{0,200}?"
    r"IP: (?P<node>[\w.:]{1,60})\)",
    re.ASCII,
)
# UCX: no answer came over InfiniBand or RoCE.
_UCX_RETRY = re.compile(
    r"(?:\[(?P<node>[\w.-]{1,200}):\d{1,10}:\d{1,6}(?::\d{1,10})?\] .{0,60}?)?"
    r"Transport retry count exceeded on (?P<name>[\w.-]{1,64}):(?P<port>\d{1,3})/(?:IB|RoCE)",
    re.ASCII,
)
# A signal that a library of the program caught: UCX's handler, then Open MPI's (opal/util/stacktrace.c).
#
#     [gpu-017:229246:0:229246] Caught signal 11 (Segmentation fault: address not mapped to object at address (nil))
#     [gpu-017:12345] Signal: Bus error (7)
_UCX_SIGNAL = re.compile(
    r"\[(?P<node>[\w.-]{1,200}):(?P<pid>\d{1,10}):\d{1,6}:\d{1,10}\] "
    r"Caught signal (?P<signal>\d{1,3}) \((?P<what>.{1,200}?)\)?$",
    re.ASCII,
)
_MPI_SIGNAL = re.compile(
    r"\[(?P<node>[\w.-]{1,200}):(?P<pid>\d{1,10})\] Signal: (?P<what>[A-Z][\w ]{1,40}) \((?P<signal>\d{1,3})\)",
    re.ASCII,
)
# Abseil's handler, in Ray's workers and in programs on TPUs.
_ABSL_SIGNAL = re.compile(
    r"\*\*\* SIG(?P<name>SEGV|ABRT|BUS|FPE|ILL|TRAP|TERM) received (?:at time=\d|by PID (?P<pid>\d{1,10}))", re.ASCII
)
_SIGNALS = {"SEGV": "11", "ABRT": "6", "BUS": "7", "FPE": "8", "ILL": "4", "TRAP": "5", "TERM": "15"}
# Somebody asked the program to end (SIGINT, SIGTERM).
_ASKED = frozenset({"2", "15"})


def read_launcher(text: str) -> ErrorReport | None:
    """The end of a task."""
    if match := _UCX_SIGNAL.search(text) or _MPI_SIGNAL.search(text):
        return _caught(match, match["signal"], match["node"])
    if match := _ABSL_SIGNAL.search(text):
        return _caught(match, _SIGNALS[match["name"]], None)
    if match := _RETURNED.search(text) or _CHILD.search(text):
        return ErrorReport("process_exit", match[0], attributes=numbers(match.groupdict()))
    if match := _RAY_NODE.search(text):
        name, node = "ray_node_dead", match["node"]
        return ErrorReport(name, match[0][:MAX_MESSAGE], variant="host", node=node, distinct_by=node)
    if match := _RAY_WORKER.search(text):
        pid = numbers({"pid": match["pid"]})
        return ErrorReport("ray_worker_died", match[0][:MAX_MESSAGE], node=match["node"], attributes=pid)
    if match := _RAY_MEMORY.search(text):
        said, node = numbers({"count": match["count"]}), match["node"]
        return ErrorReport(
            "ray_out_of_memory", match[0][:MAX_MESSAGE], variant="application", node=node, attributes=said
        )
    if match := _UCX_RETRY.search(text):
        port = numbers({"name": match["name"], "port": match["port"]})
        return ErrorReport("ucx_retries", match[0][:MAX_MESSAGE], variant="fabric", node=match["node"], attributes=port)
    if match := _MPI.search(text) or _PDSH.search(text):
        fields = {name: value for name, value in match.groupdict().items() if name not in ("node", "what")}
        message = text.strip()[:MAX_MESSAGE]
        return ErrorReport("task_killed", message, node=match["node"], attributes=numbers(fields))
    return None


def _caught(match: re.Match[str], signal: str, node: str | None) -> ErrorReport:
    """A signal that a handler told of."""
    caught = numbers({"pid": match["pid"], "signal": signal})
    variant = "ended" if signal in _ASKED else ""
    message = match[0][:MAX_MESSAGE]
    return ErrorReport("signal_caught", message, variant=variant, node=node, attributes=caught, distinct_by=signal)


LAUNCHERS = ErrorReader(
    name="launchers",
    signs=(
        *("return code", "Child process with PID", "that process rank", "pdsh@", "Caught signal ", "] Signal: "),
        *("has been marked dead because", "A worker died or was killed", "Workers (tasks / actors) killed"),
        *("Transport retry count exceeded on ", "*** SIG"),
    ),
    read=read_launcher,
)


# What Slurm writes into a job's log when it ends.
#
#     slurmstepd: error: *** JOB 1809655 ON r6i4n3 CANCELLED AT 2021-05-24T09:50:34 DUE TO TIME LIMIT ***   ->
# time_limit
#     srun: error: gpu-017: tasks 3-7: Killed                                                               ->
# task_killed
#     slurmstepd: error: Detected 1 oom_kill event in StepId=4711.0. Some of the step tasks have ...        -> oom_kill
#
# A job that was cancelled, preempted or out of time did not fail: these are warnings. Sources: slurmd/slurmstepd/req.c,
# srun/libsrun/launch.c of Slurm, real logs of bigscience.

# A job's log names the daemon; its own log (slurmd.log) names the step: `[4711.batch] error: *** JOB 4711 ...`.
_DAEMON = r"(?:slurmstepd(?:-[\w.-]{1,200})?: |^(?:\[[\w.+]{1,40}\] )?)error: "
_CANCELLED = re.compile(
    _DAEMON + r"\*\*\* (?:JOB|STEP) [\w.+]{1,40} ON \S{1,200} CANCELLED AT (?P<time>[\d:T-]{19})"
    r"(?: DUE TO (?P<why>[A-Z ]{1,40}))?",
    re.ASCII,
)
_NOT_ENDING = re.compile(
    _DAEMON + r"\*\*\* (?:(?:JOB|STEP) )?[\w.+]{1,40} STEPD TERMINATED ON (?P<node>\S{1,200}) "
    r"AT (?P<time>[\d:T-]{19})",
    re.ASCII,
)
_OOM = re.compile(
    r"slurmstepd: error: (?:Detected \d{1,6} oom.?kill event|Exceeded (?:step|job) memory limit at some point)",
    re.ASCII,
)
# What the daemon says just before it ends itself: processes that no signal ends, in a call of a dead filesystem or GPU.
_UNKILLABLE = re.compile(
    _DAEMON + r"Container \d{1,20} (?:in cgroup plugin )?has \d{1,9} processes, giving up after \d{1,9} sec", re.ASCII
)
_KILLED = re.compile(
    r"srun: error: (?P<node>\S{1,200}): tasks? (?P<task>[\d,-]{1,80}): "
    r"(?P<what>Killed|Terminated|Aborted|Segmentation fault|Bus error|Floating point exception|Illegal instruction"
    r"|Out Of Memory|Exited with exit code (?P<exitcode>\d{1,3}))",
    re.ASCII,
)
_NODE = re.compile(r"srun: error: (?P<message>Node failure on (?P<node>\S{1,200}))", re.ASCII)
# Nodes that are booted for the job and do not come; several are a list in brackets.
_NOT_READY = re.compile(
    r"srun: error: (?P<message>Nodes (?:(?P<node>[\w.-]{1,200})|\S{1,400}) are still not ready)", re.ASCII
)
# Tasks that a node's daemon did not start, for a reason that is the program's where it names no program.
_NOT_LAUNCHED = re.compile(
    r"srun: error: (?P<message>Task launch for \S{1,60} failed on node (?P<node>\S{1,200}): (?P<why>.{1,200}))",
    re.ASCII,
)
_OF_PROGRAM = re.compile(r"cpu bind request|Requested node config|[Ee]xecve|No such file|Permission denied", re.ASCII)
_PROLOG = re.compile(rf"{_DAEMON}(?P<message>Prolog hung on node (?P<node>\S{{1,200}}))", re.ASCII)
# NVIDIA's containers under Slurm: the image that cannot be fetched or unpacked, hooks that fail.
_CONTAINER = re.compile(
    rf"{_DAEMON}pyxis: (?P<message>couldn't start container|failed to (?:import|create) .{{0,40}}?(?:image|container)"
    r"|container start failed with error code: \d{1,6}|\[ERROR\] .{1,300})",
    re.ASCII,
)
_WHY = {
    "TIME LIMIT": "time_limit",
    "NODE FAILURE": "node_failure",
    "PREEMPTION": "preempted",
    "TASK FAILURE": "task_failed",
}


def read_slurm(text: str) -> ErrorReport | None:
    """The ending that a line tells."""
    message = text.strip()[:MAX_MESSAGE]
    if match := _CANCELLED.search(text):
        why = next((name for words, name in _WHY.items() if (match["why"] or "").startswith(words)), "cancelled")
        variant = "host" if why == "node_failure" else "ended"
        return ErrorReport(why, message, variant=variant, time=match["time"], distinct_by=match["time"])
    if match := _NOT_ENDING.search(text):
        return ErrorReport("not_ending", message, variant="host", time=match["time"], node=match["node"])
    if match := _NODE.search(text):
        return ErrorReport("node_failure", match["message"], variant="host", node=match["node"])
    if match := _NOT_READY.search(text):
        return ErrorReport("node_not_ready", match["message"], variant="host", node=match["node"])
    if match := _KILLED.search(text):
        fields = {"task": match["task"], "exitcode": match["exitcode"]}
        return ErrorReport("task_killed", message, node=match["node"], attributes=numbers(fields))
    if match := _NOT_LAUNCHED.search(text):
        variant = "application" if _OF_PROGRAM.search(match["why"]) else "host"
        return ErrorReport("not_launched", match["message"], variant=variant, node=match["node"])
    if match := _PROLOG.search(text):
        return ErrorReport("prolog_hung", match["message"], variant="host", node=match["node"])
    if match := _CONTAINER.search(text):
        return ErrorReport("container_start", match["message"][:MAX_MESSAGE])
    if _UNKILLABLE.search(text):
        return ErrorReport("not_ending", message, variant="host")
    if _OOM.search(text):
        return ErrorReport("oom_kill", message, variant="application")
    return None


SLURM = ErrorReader(
    name="slurm",
    signs=(
        "slurmstepd: error:",
        "srun: error:",
        "error: *** ",
        "processes, giving up",
        "error: pyxis: ",
        "Prolog hung on",
    ),
    read=read_slurm,
)


# torchrun, the elastic launcher of PyTorch (NVRx's ft_launcher and DLRover's agent print the same).
#
#     E0621 21:36:52.942000 2319283 torch/distributed/elastic/multiprocessing/api.py:986] failed (exitcode: -9)
#       local_rank: 3 (pid: 2319309) of binary: /usr/bin/python    -> process_exit, exitcode -9, local_rank 3
#     [default] Worker group FAILED. 2/3 attempts left; will restart worker group   -> training_restart, restarts_left 2
#     Root Cause (first observed failure):                         -> worker_failed, with the box's host, rank, exitcode
#     [0]:
#       time      : 2026-01-15_05:44:28
#       host      : gpu-017
#       rank      : 3 (local_rank: 3)
#       exitcode  : -9 (pid: 6174)
#       error_file: <N/A>
#       traceback : Signal 9 (SIGKILL) received by PID 6174
#
# Of a box the first failure alone counts: the others follow from it. Sources: torch/distributed/elastic/agent/server,
# multiprocessing/api.py and multiprocessing/errors of PyTorch.

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


def read(text: str) -> ErrorReport | None:
    """What the launcher says of its workers."""
    if match := _FAILED.search(text):
        return ErrorReport("process_exit", match[0], glog=_glog(text), attributes=numbers(match.groupdict()))
    if match := _RESTART.search(text):
        fields = numbers(match.groupdict())
        return ErrorReport(
            "restart",
            match[0],
            "training_restart",
            "",
            glog=_glog(text),
            attributes=fields,
            distinct_by=match["restarts_left"],
        )
    if match := _JOINED.search(text):
        return ErrorReport("joined", match[0], "training_restart", "membership", glog=_glog(text))
    if _RENDEZVOUS.search(text):
        return ErrorReport("rendezvous", "Rendezvous complete for workers", "training_phase", glog=_glog(text))
    if match := _STOPPED.search(text):
        return ErrorReport("stopped", text.strip()[:MAX_MESSAGE], variant="ended", glog=_glog(text))
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
        self._fields: dict[str, Attribute] = {}

    def read(self, text: str, line: int) -> ErrorReport | None:
        """The failure, at the last line of its box."""
        if BOX_SIGNS[0] in text:
            self._until, self._fields, self._time, self._host = line + MAX_BOX, {}, None, None
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
            what = value if value.startswith("Signal") else f"exit code {self._fields.get('exitcode')}"
            return ErrorReport(
                "worker_failed",
                f"rank {self._fields.get('rank')} failed first: {what}"[:MAX_MESSAGE],
                time=self._time,
                node=self._host,
                attributes=self._fields,
                distinct_by=self._host or "",
            )
        elif two := _TWO.match(value):
            names = ("rank", "local_rank") if name == "rank" else ("exitcode", "pid")
            self._fields.update(zip(names, (int(two["first"]), int(two["second"])), strict=True))
        return None


TORCHRUN = ErrorReader(
    name="torchrun",
    signs=("failed (exitcode", "attempts left", "new nodes from", "Rendezvous complete", "death signal"),
    read=read,
)

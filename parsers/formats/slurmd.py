"""The log of Slurm's node daemon, slurmd: GPUs that are not there, scripts around jobs that fail, its own end.

    [2026-09-16T05:02:46.101] fatal: can't stat gres.conf file /dev/nvidia0: No such file or directory
    -> {"kind": "gpu_missing", "time": "2026-09-16T05:02:46.101Z", "attributes": {"name": "/dev/nvidia0"}, ...}
    [2026-09-16T05:10:00.700] error: [job 23] prolog failed status=1:0
    -> {"kind": "node_service", "attributes": {"name": "prolog", "job": "23", "status": "1:0"}, ...}

Its own file, the system log of its node, or what it prints. What jobs' steps say of themselves in it is the format
`training`'s. A daemon that waits for a device file tells nothing: it says so again where the file did not come.
Sources: slurmd/slurmd/{req.c,slurmd.c}, interfaces/gres.c of Slurm 17.11 to 24.11, public logs.
"""

import re
from collections.abc import Iterable
from dataclasses import replace

from parsers.reports.nvml_failures import nvml_failure
from parsers.text.json_fields import attributes
from parsers.text.parser import Context, Format
from parsers.text.prefix import PrefixReader
from parsers.text.stamp import Stamps
from store.records.event import Device, Event
from store.records.fault_catalog import with_kind_meaning

_OWN = re.compile(
    r"\[(?P<time>\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}(?:\.\d{1,6})?(?:Z|[+-]\d{2}:?\d{2})?)\] (?:slurmd: )?", re.ASCII
)
_PRINTED = "slurmd: "
_DEVICE = re.compile(
    r"fatal: can't stat gres\.conf file (?P<name>/dev/(?:nvidia\d|dri/renderD\d|kfd|davinci\d)\S{0,40}): ", re.ASCII
)
_SCRIPT = re.compile(
    r"error: \[job (?P<job>\d{1,10})\] (?P<name>prolog|epilog) failed status=(?P<status>\d{1,5}:\d{1,3})", re.ASCII
)
_ENDS = re.compile(r"fatal: .{1,400}|error: slurmd initialization failed", re.ASCII)
_UNHEARD = re.compile(
    r"error: Unable to register(?: with slurm controller|: Unable to contact slurm controller)", re.ASCII
)


class SlurmdParser:
    """Decodes lines of the daemon. Holds nothing."""

    def __init__(self, context: Context) -> None:
        self._stamps = Stamps(context)
        self._prefix = PrefixReader(self._stamps)
        self._node = context.node

    def feed(self, text: str, line: int) -> Iterable[Event]:
        """The event of one line: none for what jobs do."""
        time, node = None, self._node
        if own := _OWN.match(text):
            time, message = self._stamps.iso(own["time"]), text[own.end() :]
        elif text.startswith(_PRINTED):
            message = text
        elif "slurmd" in text:
            record = self._prefix.read(text)
            if record.tag != "slurmd":
                return []
            time, node, message = record.time, record.node or node, record.message
        else:
            return []
        event = _decoded(message.removeprefix(_PRINTED).strip())
        return [] if event is None else [replace(event, time=time, node=node, line=line)]

    def flush(self) -> Iterable[Event]:
        """Nothing is held back."""
        return []


def _decoded(message: str) -> Event | None:
    if not message.startswith(("fatal: ", "error: ")):
        return None
    event = Event(None, None, "slurmd", "node_service", device=Device(), message=message[:500])
    if match := _DEVICE.match(message):
        missing = replace(event, kind="gpu_missing", device=Device("gpu"), attributes=attributes(name=match["name"]))
        return with_kind_meaning(missing)
    if match := _SCRIPT.match(message):
        return with_kind_meaning(replace(event, attributes=attributes(**match.groupdict())))
    if failure := nvml_failure(message):
        return failure.event("slurmd", message)
    if _ENDS.match(message):
        return with_kind_meaning(replace(event, attributes=attributes(name="slurmd")))
    if _UNHEARD.match(message):
        return with_kind_meaning(replace(event, attributes=attributes(name="slurmctld")))
    return None


FORMAT = Format(
    name="slurmd",
    description="Slurm's node daemon: slurmd.log, its lines in the system log",
    sample="[2026-09-16T05:02:46.101] fatal: can't stat gres.conf file /dev/nvidia0: No such file or directory",
    make=SlurmdParser,
    testimony="detector",
    recognises=re.compile(
        r"^\[\d{4}-\d{2}-\d{2}T[\d:.]{8,15}(?:Z|[+-][\d:]{4,5})?\] (?:(?:fatal: can't stat|error: Waiting for) "
        r"gres\.conf |error: \[job \d{1,10}\] (?:prolog|epilog) failed|error: Unable to register|slurmd version \d"
        r"|slurmd started on|Slurmd shutdown completing|launch task (?:StepId=)?[\d.]{3,20} request from UID)"
        r"|^slurmd: (?:fatal|error): |\bslurmd\[\d{1,10}\]: ",
        re.ASCII,
    ),
)

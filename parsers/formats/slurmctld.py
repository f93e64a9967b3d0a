"""The log of Slurm's controller: nodes that do not answer, that it takes out of service, that were booted meanwhile.

    [2026-08-26T09:12:03.501] error: Nodes gpu-[001-002] not responding, setting DOWN
    -> {"kind": "node_state", "time": "2026-08-26T09:12:03.501Z", "node": "gpu-001",
        "attributes": {"state": "DOWN+NOT_RESPONDING", "reason": "Not responding", ...}, ...}   (and one of gpu-002)
    [2026-08-26T09:14:34.679] update_node: node gpu-003 reason set to: Xid 79
    [2026-08-26T09:14:34.679] update_node: node gpu-003 state set to DRAINING
    -> node_state of gpu-003, for the reason Xid 79

Its own file, the system log of its host (`journalctl -o json` too), or what it prints. A reason counts for a state of
the same nodes that is set in one of the next lines: somebody's, or what a node's daemon could not do for a job. What is
said again of a node, as each round of pings does, is told once until the node returns, which gives nothing.
Sources: slurmctld/{ping_nodes,node_mgr,proc_req}.c of Slurm 20.02 to 24.11, public logs.
"""

import re
from collections.abc import Iterable
from datetime import datetime

from parsers.journal import record_from_json
from parsers.reports.slurm import NodeReason, NodeState, node_events, read_state
from parsers.text.parser import Context, Format, ParseError
from parsers.text.prefix import PrefixReader
from parsers.text.stamp import Stamps
from parsers.trust import RefusedLineError
from store.records.event import Event, RecordError
from store.records.fault_catalog import with_kind_meaning
from store.records.hostlist import expand

_OWN = re.compile(
    r"\[(?P<time>\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}(?:\.\d{1,6})?(?:Z|[+-]\d{2}:?\d{2})?)\] (?:slurmctld: )?", re.ASCII
)
_PRINTED = "slurmctld: "
_SILENT = re.compile(
    r"error: Nodes (?P<nodes>\S{1,4000}) not responding(?P<down>, setting DOWN)?(?:, no nodes to ping)?$", re.ASCII
)
_REASON = re.compile(r"update_node: node (?P<nodes>\S{1,4000}) reason set to: (?P<reason>.{1,400})", re.ASCII)
_JOB = re.compile(
    r"error: slurmd error running JobId=\S{1,40} on node\(s\)=(?P<nodes>\S{1,4000}): (?P<reason>.{1,400})", re.ASCII
)
_STATE = re.compile(
    r"(?:update_node|drain_nodes): node (?P<nodes>\S{1,4000}) state set to (?P<state>[A-Z_+*]{2,60})$", re.ASCII
)
_SET = re.compile(
    r"(?:error: )?(?:Setting node (?P<node>\S{1,255}) state to INVAL with reason: ?(?P<reason>.{1,400})"
    r"|.{0,60}?(?P<why>Prolog or job env setup failure) on node (?P<drained>\S{1,255}), draining the node)",
    re.ASCII,
)
_BOOTED = re.compile(r"(?:validate_node_specs: )?Node (?P<node>\S{1,255}) unexpectedly rebooted", re.ASCII)
_BACK = re.compile(
    r"(?:Node (?P<node>\S{1,255}) now responding|node (?P<served>\S{1,255}) returned to service)$", re.ASCII
)
# So many lines at most lie between a reason and the state that it is of.
_NEAR = 4
# Nodes whose state is remembered.
MAX_NODES = 200_000


class SlurmctldParser:
    """Decodes lines of the controller. Holds the last reason, and in which state each node was told."""

    def __init__(self, context: Context) -> None:
        self._stamps = Stamps(context)
        self._prefix = PrefixReader(self._stamps)
        self._reason: tuple[str, str, int] = ("", "", 0)  # nodes as they were written, the reason, its line
        self._told: dict[str, str] = {}

    def feed(self, text: str, line: int) -> Iterable[Event]:
        """The nodes that a line tells out of service, or booted.

        Raises:
            ParseError: a list of nodes is none, or JSON that is cut short.
            RefusedLineError: a record of journald that another program wrote.
        """
        found = self._message(text)
        if found is None:
            return []
        time, message = found
        if match := _REASON.match(message) or _JOB.match(message):
            self._reason = (match["nodes"], match["reason"].strip(), line)
        elif match := _STATE.match(message):
            state = read_state(match["state"])
            return self._out(match["nodes"], state, NodeReason(self._reason_of(match["nodes"], line), time), line)
        elif match := _SET.match(message):
            node, why = match["node"] or match["drained"], match["reason"] or match["why"]
            flag = "INVALID_REG" if match["node"] else "DRAIN"
            return self._out(node, NodeState((flag,), False), NodeReason(why.strip(), time), line)
        elif match := _SILENT.match(message):
            flags = ("DOWN", "NOT_RESPONDING") if match["down"] else ("NOT_RESPONDING",)
            return self._out(match["nodes"], NodeState(flags, False), NodeReason("Not responding", time), line)
        elif match := _BOOTED.match(message):
            event = Event(time, match["node"], "slurmctld", "node_reboot", message=message, line=line)
            return [with_kind_meaning(event)]
        elif match := _BACK.match(message):
            self._told.pop(match["node"] or match["served"], None)
        return []

    def flush(self) -> Iterable[Event]:
        """Nothing: a reason alone takes no node out."""
        return []

    def _message(self, text: str) -> tuple[datetime | None, str] | None:
        """When and what the controller said; None for a line of another program."""
        if own := _OWN.match(text):
            return self._stamps.iso(own["time"]), text[own.end() :].rstrip()
        if text.startswith(_PRINTED):
            return None, text[len(_PRINTED) :].rstrip()
        if "slurmctld" not in text:
            return None
        record = record_from_json(text, self._prefix) if text.startswith("{") else self._prefix.read(text)
        if record is None or record.tag != "slurmctld":
            return None
        if record.by_user:
            raise RefusedLineError("writer")
        message = record.message.removeprefix(_PRINTED)
        own = _OWN.match(message)
        return record.time, (message[own.end() :] if own else message).rstrip()

    def _reason_of(self, nodes: str, line: int) -> str | None:
        named, reason, since = self._reason
        return reason if named == nodes and line - since <= _NEAR else None

    def _out(self, nodes: str, state: NodeState, reason: NodeReason, line: int) -> list[Event]:
        """The nodes that were not told in this state; those in service are forgotten."""
        words = "+".join(state.flags)
        try:
            fresh = [node for node in dict.fromkeys(expand(nodes)) if self._told.get(node) != words]
        except RecordError as error:
            raise ParseError(str(error)) from error
        for node in fresh:
            if not words:
                self._told.pop(node, None)
            elif len(self._told) < MAX_NODES:
                self._told[node] = words
        return node_events("slurmctld", fresh, state, reason, line)


FORMAT = Format(
    name="slurmctld",
    description="Slurm's controller: slurmctld.log, its lines in the system log",
    sample="[2026-08-26T09:12:03.501] error: Nodes gpu-001 not responding, setting DOWN",
    make=SlurmctldParser,
    testimony="scheduler",
    recognises=re.compile(
        r"^\[\d{4}-\d{2}-\d{2}T[\d:.]{8,15}(?:Z|[+-][\d:]{4,5})?\] (?:error: Nodes \S{1,400} not responding"
        r"|(?:update_node|drain_nodes): node \S{1,400} (?:state|reason) set to|validate_node_specs: "
        r"|error: slurmd error running JobId=|sched: Allocate JobId=|_slurm_rpc_\w{1,60}: |slurmctld version \d)"
        r"|^slurmctld: |\bslurmctld\[\d{1,10}\]: |^\{.*\"SYSLOG_IDENTIFIER\" ?: ?\"slurmctld\"",
        re.ASCII,
    ),
)

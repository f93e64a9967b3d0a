"""What a reason and a message of Kubernetes tell, whoever reported them: an event of a node, or a condition of it.

("XIDError", "NVRM: Xid (PCI:0000:0f:00): 79, GPU has fallen off the bus.") -> the quoted Xid
("NvidiaXID79Error", "...")                                                 -> Xid 79 of EKS's monitoring agent
("SysLogsXIDErrorIsNotHealthy", "ErrorCode:79 PCI:0000:0f:00 ... Recommended Action=RESTART_BM;") -> of NVSentinel
"""

import re
from collections.abc import Iterable, Mapping

from parsers.detectors import Told, kernel_fault, known, xid_in
from parsers.json_fields import attributes
from parsers.nvsentinel import ACTIONS, family_of, place_of
from store.event import Attribute, Severity

SOURCE = "kubernetes"
# The tables of names that an event or condition may use, whoever reports it.
TABLES = ("kubernetes", "node-problem-detector", "eks-node-monitoring-agent")
_REPORTERS: Mapping[str, str] = {
    "eks-node-monitoring-agent": "eks-node-monitoring-agent",
    "kernel-monitor": "node-problem-detector",
    "docker-monitor": "node-problem-detector",
    "systemd-monitor": "node-problem-detector",
    "readonly-monitor": "node-problem-detector",
    "abrt-notification": "node-problem-detector",
    "health-checker": "node-problem-detector",
}
# An NVSentinel condition holds what several entities tell, parted by semicolons.
MAX_REPORTS = 64

_RECOMMENDED = " Recommended Action="
_ENTITY = re.compile(r"(?P<type>[A-Za-z][A-Za-z_]{1,30}):(?P<value>\S{1,100})(?: |$)", re.ASCII)
_EKS = re.compile(r"(?P<reason>[A-Z][A-Za-z0-9]{3,60}): (?P<message>.*)", re.ASCII | re.DOTALL)
_VICTIM = re.compile(r"victim process: (?P<process>.{1,60}?), pid: (?P<pid>\d{1,10})", re.ASCII)
_KILLED = re.compile(r"Kill(?:ed)? process (?P<pid>\d{1,10}),? \((?P<process>[^)]{1,60})\)", re.ASCII)
_TASK = re.compile(r"\btask (?P<process>[\w./:-]{1,60}):(?P<pid>\d{1,10}) blocked for more than", re.ASCII)


def reports(component: str, reason: str, message: str, severity: Severity, line: int) -> list[Told]:
    """What was reported; none for what tells of no fault and of no end of one."""
    if _RECOMMENDED in message:
        return list(_of_nvsentinel(reason, message, severity, line))
    detector = next((name for part, name in _REPORTERS.items() if part in component), component or SOURCE)
    check = reason
    if detector == "eks-node-monitoring-agent" and (match := _EKS.match(message)):
        check, message = match["reason"], match["message"].strip()
    told = Told(
        source=SOURCE,
        detector=detector,
        check=check,
        severity=severity,
        line=line,
        message=message,
        names=() if check == reason else (check,),
        codes=(str(xid_in(check) or ""),),
        family="xid" if "xid" in check.lower() and (xid_in(check) or xid_in(message)) else None,
        quoted=message,
        attributes=_named(message),
    )
    if severity == "info" and told.family is None and not _means_something(told):
        return []
    return [told]


def _means_something(told: Told) -> bool:
    names = (*told.names, told.check)
    return any(known(table, *names) for table in (told.detector, *TABLES)) or kernel_fault(told.message) is not None


def _named(message: str) -> dict[str, Attribute]:
    """The process that a message names."""
    match = _VICTIM.search(message) or _KILLED.search(message) or _TASK.search(message)
    return attributes(pid=int(match["pid"]), process=match["process"]) if match else {}


def _of_nvsentinel(reason: str, message: str, severity: Severity, line: int) -> Iterable[Told]:
    """The reports of NVSentinel (process_node_events.go): `ErrorCode:C TYPE:VALUE ... TEXT Recommended Action=A;`."""
    check = reason.removesuffix("IsNotHealthy").removesuffix("IsHealthy")
    for part in message.split(";")[:MAX_REPORTS]:
        text, found, action = part.strip().rpartition(_RECOMMENDED)
        if not found:
            continue
        codes, entities, at = [], dict[str, str](), 0
        while match := _ENTITY.match(text, at):
            at = match.end()
            if match["type"] == "ErrorCode":
                codes.append(match["value"])
            else:
                entities.setdefault(match["type"].upper(), match["value"])
        device, more = place_of(entities, None)
        yield Told(
            source=SOURCE,
            detector="nvsentinel",
            check=check,
            severity=severity,
            line=line,
            message=text[at:].strip(),
            names=tuple(codes),
            codes=tuple(codes),
            family=family_of(check),
            action=ACTIONS.get(action.strip()) if action.strip() != "NONE" else None,
            device=device,
            attributes={**attributes(error_code=codes), **more},
        )

"""LBNL Node Health Check: nhc.log, its lines in the system log, and the output of Azure's checks, which run under it.

    ERROR:  nhc:  Health check failed:  check_hw_ib:  No IB port is ACTIVE (LinkUp 100 Gb/sec).
    20250612 18:47:38 [slurm] /usr/libexec/nhc/node-mark-offline gpu007 check_hw_ib:  No IB port is ACTIVE (LinkUp ...).
    -> {"kind": "health_check_failed", "time": "2025-06-12T18:47:38Z", "node": "gpu007", "severity": "error",
        "cause": "fabric", "attributes": {"check": "check_hw_ib"}, ...}                           (two lines, one event)

The failure bears neither time nor node; the helper that takes the node out of service logs both in the line after it.
What a check is about is in the table of outage reasons (`store/catalogs/outage_reasons.csv`): the same text becomes the
node's reason in Slurm. A check that quotes an Xid names its code; the kernel log is the witness of it.
"""

import re
from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime

import orjson

from parsers.text.parser import Context, Format
from parsers.text.prefix import PrefixReader
from parsers.text.stamp import Stamps
from store.records.event import Attribute, Device, Event, canonical_pci
from store.records.fault_catalog import with_kind_meaning
from store.records.outage import classify

# Before a line of nhc.log: with -d the Unix time; where pdsh or clush gathered it, the host.
_BEFORE = re.compile(
    r"(?:(?!ERROR:)(?P<node>[A-Za-z0-9][\w.-]{0,252})(?:: | \| ))?(?:\[(?P<epoch>\d{9,10})\] - )?", re.ASCII
)
_FAILED = re.compile(
    r"(?:ERROR: {1,2}(?:[\w.-]{1,64}): {1,2})?Health check failed: {1,2}(?P<text>\S.*)", re.ASCII | re.DOTALL
)
_SGE = re.compile(r"(?P<node>[\w.-]{1,253}):diagnosis:NHC: (?:Health check failed: {1,2})?(?P<text>\S.*)", re.ASCII)
_MARK = re.compile(
    r"(?P<date>\d{8}) (?P<clock>\d{2}:\d{2}:\d{2}) (?:\[\w{1,16}\] )?\S{0,200}node-mark-offline "
    r"(?P<node>\S{1,253}) (?P<text>\S.*)",
    re.ASCII,
)
_TAG = re.compile(r"nhc(?:\([\w.-]{1,64}\))?", re.ASCII)
_CHECK = re.compile(r"(?P<check>(?:check|collect)_\w{1,64}|[A-Za-z][\w-]{1,64}(?=: )):? {0,2}", re.ASCII)
_RUNNING = re.compile(r'while executing "(?P<check>\w{1,64})', re.ASCII)
_UNFINISHED = re.compile(r"Script timed out|Terminated by signal|Watchdog timer unable|start in progress")
_XID = re.compile(r"Xid \((?:PCI:)?(?P<pci>[0-9a-fA-F:.]{5,20})\): (?P<xid>\d{1,4})\b", re.ASCII)
_GPU = re.compile(r"\b(?:GPU|gpu)(?: id)? ?#?(?P<index>\d{1,3})\b", re.ASCII)
_HCA = re.compile(r"\b(?P<name>(?:mlx\d|bnxt_re|hfi1|irdma|rocep|ib)_?\w{1,12})(?::(?P<port>\d{1,2}))?\b", re.ASCII)
_FAULT_CODE = re.compile(r"\.? ?FaultCode: ?(?P<code>NHC\w{1,16})\.?\s*$", re.ASCII)


class NhcParser:
    """Decodes lines of an NHC log. Holds the last failure: the next line may tell its node and time."""

    def __init__(self, context: Context) -> None:
        self._stamps = Stamps(context)
        self._prefix = PrefixReader(self._stamps)
        self._node = context.node
        self._held: Event | None = None

    def feed(self, text: str, line: int) -> Iterable[Event]:
        """The failures of one line, and the one held before it."""
        if mark := _MARK.match(text):
            return self._marked(mark, line)
        held = self.flush()
        self._held = self._failure(text, line)
        return held

    def flush(self) -> list[Event]:
        """The failure whose next line has not come."""
        held, self._held = self._held, None
        return [held] if held else []

    def _failure(self, text: str, line: int) -> Event | None:
        if sge := _SGE.match(text):
            return self._event(sge["text"], None, sge["node"], line)
        before = _BEFORE.match(text)
        if before and (failed := _FAILED.match(text, before.end())):
            time = self._stamps.since_epoch(float(before["epoch"])) if before["epoch"] else None
            return self._event(failed["text"], time, before["node"], line)
        if "nhc" not in text:
            return None
        record = self._prefix.read(text)
        if record.tag is None or not _TAG.fullmatch(record.tag):
            return None
        message = record.message
        if message.startswith("{"):
            return self._event(_json_message(message), record.time, record.node, line)
        failed = _FAILED.match(message)
        return self._event(failed["text"], record.time, record.node, line) if failed else None

    def _marked(self, mark: re.Match[str], line: int) -> list[Event]:
        """The helper that takes the node out: more of the failure before it, or, where that is cut off, all of it."""
        text = mark["text"].removeprefix("Health check failed:").strip()
        date = mark["date"]
        time = self._stamps.iso(f"{date[:4]}-{date[4:6]}-{date[6:]} {mark['clock']}")
        marked = self._event(text, time, mark["node"], line)
        held = self.flush()
        if held and marked and held[0].message == marked.message:
            first = held[0]
            return [replace(first, time=first.time or time, node=mark["node"])]
        return [*held, *([marked] if marked else [])]

    def _event(self, text: str, time: datetime | None, node: str | None, line: int) -> Event | None:
        text = text.strip()
        if not text:
            return None
        attributes: dict[str, Attribute] = {}
        if running := _RUNNING.search(text):
            attributes["check"] = running["check"]
        elif check := _CHECK.match(text):
            attributes["check"] = check["check"]
        if code := _FAULT_CODE.search(text):
            attributes["fault_code"] = code["code"]
        xid = _XID.search(text)
        if xid:
            attributes["xid"] = int(xid["xid"])
        _planned, cause = classify("", text)
        device = _device(text, xid)
        if device.type == "hca" and (hca := _HCA.search(text)):
            attributes["name"] = hca["name"]
        variant = "unfinished" if _UNFINISHED.search(text) else cause
        return with_kind_meaning(
            Event(
                time=time,
                node=node or self._node,
                source="nhc",
                kind="health_check_failed",
                device=device,
                message=text[: code.start()] if code else text,
                attributes=attributes,
                line=line,
            ),
            variant,
        )


def _device(text: str, xid: re.Match[str] | None) -> Device:
    """The device that a check names: a GPU by address or number, an adapter; else the node."""
    if xid:
        return Device(type="gpu", pci=canonical_pci(xid["pci"]))
    if gpu := _GPU.search(text):
        return Device(type="gpu", index=int(gpu["index"]))
    if hca := _HCA.search(text):
        return Device(type="hca", port=int(hca["port"]) if hca["port"] else None)
    return Device()


def _json_message(message: str) -> str:
    """What NHC 1.5 tells as JSON (`NHC_FMT_JSON`) of a failed check; nothing of one that passed or is cut short."""
    try:
        fields = orjson.loads(message.encode("utf-8", errors="replace"))
    except orjson.JSONDecodeError:
        return ""
    healthy, reported = str(fields.get("healthy")).lower(), fields.get("message")
    return reported if healthy == "false" and isinstance(reported, str) else ""


FORMAT = Format(
    name="nhc",
    description="Node health checks: LBNL NHC's log, azurehpc-health-checks",
    sample="ERROR:  nhc:  Health check failed:  check_hw_ib:  No IB port is ACTIVE (LinkUp 100 Gb/sec).",
    make=NhcParser,
    testimony="detector",
    recognises=re.compile(
        r"(?:ERROR|SUCCESS): {1,2}[\w.-]{1,64}: {1,2}Health check (?:failed|passed): "
        r"|^(?:\[\d{9,10}\] - )?Health check failed: {2}"
        r"|\bnhc(?:\([\w.-]{1,64}\))?\[\d{1,10}\]: (?:Health check failed: |\{\"progname)"
        r"|node-mark-o(?:ff|n)line\b|:diagnosis:NHC: ",
        re.ASCII,
    ),
)

"""The log of NVIDIA's DCGM host engine, /var/log/nv-hostengine.log: GPUs that it lost, a driver that is not there.

    2022-03-03 01:22:10.481 ERROR [11:11] Cannot initialize the hostengine: Error: Failed to initialize NVML
      [/workspaces/dcgm-rel_dcgm_2_3-postmerge/dcgmlib/src/DcgmHostEngineHandler.cpp:3677] [DcgmHostEngineHandler::Init]
    -> {"kind": "node_service", "severity": "warning", "cause": "driver", "time": "2022-03-03T01:22:10.481000Z",
        "attributes": {"name": "nv-hostengine", "function": "DcgmHostEngineHandler::Init"}, ...}

Most of its errors are of fields that a GPU has not ("GetLatestSample returned No data is available"): they give
nothing. dcgm-exporter prints the same lines within its own (`time=... msg="..." dcgm_level=ERROR`), and lines of its
own where the engine does not answer it or a GPU is lost.
Sources: public logs (issues 46, 141 and 416 of NVIDIA/dcgm-exporter and NVIDIA/DCGM); "GPU is lost" and the words of
a version that does not match are NVML's (nvmlErrorString).
"""

import re
from collections.abc import Iterable
from dataclasses import replace

from parsers.reports.nvml_failures import nvml_failure
from parsers.text.json_fields import attributes
from parsers.text.parser import Context, Format
from parsers.text.stamp import Stamps
from store.records.event import Device, Event
from store.records.fault_catalog import with_kind_meaning

_PLACE = r"\[(?P<file>/\S{1,300}:\d{1,7})\] \[(?P<function>[^\]]{1,200})\]"
_OWN = re.compile(
    r"(?P<time>\d{4}-\d{2}-\d{2} \d{2}:\d{2}:\d{2}\.\d{3}) (?P<level>FATAL|ERROR|WARN|WARNING) {1,2}"
    rf"\[\d{{1,10}}:\d{{1,10}}\] (?P<text>.{{1,2000}}?) {_PLACE}",
    re.ASCII,
)
_EXPORTERS = re.compile(
    r"time=\"(?P<time>[\dT:.Z+-]{20,35})\" level=\w{1,8} msg=\"(?P<text>.{1,2000}?) "
    rf"{_PLACE}\" dcgm_level=(?P<level>FATAL|ERROR|WARN)\b",
    re.ASCII,
)
# What dcgm-exporter says itself, of the engine or of what it asked: logrus's text and Go's slog.
_EXPORTER = re.compile(
    r"time=\"?(?P<time>[\dT:.Z+-]{20,35})\"? level=(?P<level>error|fatal|ERROR|FATAL) msg=\"(?P<text>.{1,2000}?)\"$",
    re.ASCII,
)
_DISCONNECTED = re.compile(r"[Hh]ost ?engine connection invalid|[Ee]rror connecting to nv-hostengine", re.ASCII)
# The engine has no driver to ask.
_NO_DRIVER = re.compile(
    r"Cannot initialize the hostengine|Failed to initialize NVML|Driver Not Loaded"
    r"|nvmlInit\w{0,8}\(?\)? (?:failed|returned)",
    re.ASCII,
)


class HostengineParser:
    """Decodes lines of the log. Holds nothing."""

    def __init__(self, context: Context) -> None:
        self._stamps = Stamps(context)
        self._node = context.node

    def feed(self, text: str, line: int) -> Iterable[Event]:
        """The event of one line: none for what is no fault of GPU or driver."""
        match = _OWN.match(text) or _EXPORTERS.match(text) or _EXPORTER.match(text)
        if match is None:
            return []
        event = _decoded(match["text"].strip(), match.groupdict().get("function"))
        if event is None:
            return []
        return [replace(event, time=self._stamps.iso(match["time"]), node=self._node, line=line)]

    def flush(self) -> Iterable[Event]:
        """Nothing is held back."""
        return []


def _decoded(text: str, function: str | None) -> Event | None:
    said = attributes(name="nv-hostengine" if function else "dcgm-exporter", function=function)
    if failure := nvml_failure(text):
        return failure.event("hostengine", text).with_attributes(said)
    if _NO_DRIVER.search(text) or (function is None and _DISCONNECTED.search(text)):
        event = Event(None, None, "hostengine", "node_service", device=Device(), message=text, attributes=said)
        return with_kind_meaning(event, "driver")
    return None


FORMAT = Format(
    name="hostengine",
    description="NVIDIA's DCGM host engine: /var/log/nv-hostengine.log",
    sample="2022-03-03 01:22:10.481 ERROR [11:11] Cannot initialize the hostengine: Error: Failed to initialize NVML "
    "[/workspaces/dcgm-rel_dcgm_2_3-postmerge/dcgmlib/src/DcgmHostEngineHandler.cpp:3677] "
    "[DcgmHostEngineHandler::Init]",
    make=HostengineParser,
    testimony="machine",
    recognises=re.compile(
        r"^\d{4}-\d{2}-\d{2} \d{2}:\d{2}:\d{2}\.\d{3} "
        r"(?:DEBUG|INFO|WARN|WARNING|ERROR|FATAL) {1,2}\[\d{1,10}:\d{1,10}\] "
        r"|\" dcgm_level=[A-Z]{4,7}"
        r"|^time=\S{20,40} level=(?:error|fatal|ERROR|FATAL) msg=\""
        r"(?:Failed to collect metrics|Error connecting to nv-hostengine)",
        re.ASCII,
    ),
)

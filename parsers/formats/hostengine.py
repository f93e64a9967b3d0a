"""The log of NVIDIA's DCGM host engine, /var/log/nv-hostengine.log: GPUs that it lost, a driver that is not there.

    2022-03-03 01:22:10.481 ERROR [11:11] Cannot initialize the hostengine: Error: Failed to initialize NVML
      [/workspaces/dcgm-rel_dcgm_2_3-postmerge/dcgmlib/src/DcgmHostEngineHandler.cpp:3677] [DcgmHostEngineHandler::Init]
    -> {"kind": "node_service", "severity": "warning", "cause": "driver", "time": "2022-03-03T01:22:10.481000Z",
        "attributes": {"name": "nv-hostengine", "function": "DcgmHostEngineHandler::Init"}, ...}

Most of its errors are of fields that a GPU has not ("GetLatestSample returned No data is available"): they give
nothing. dcgm-exporter prints the same lines within its own (`time=... msg="..." dcgm_level=ERROR`).
Sources: public logs (issues 46, 141 and 416 of NVIDIA/dcgm-exporter and NVIDIA/DCGM); "GPU is lost" and the words of
a version that does not match are NVML's (nvmlErrorString).
"""

import re
from collections.abc import Iterable
from dataclasses import replace

from parsers.text.parser import Context, Format
from parsers.text.stamp import Stamps
from store.records.event import Attribute, Device, Event
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
_LOST = re.compile(r"\bGPU is lost\b", re.ASCII)
_GPU = re.compile(r"\b(?:gpuId|GPU|entityId|nvmlIndex)[ :=]{0,2}(?P<index>\d{1,4})\b", re.ASCII)
# The engine has no driver to ask.
_NO_DRIVER = re.compile(
    r"Cannot initialize the hostengine|Failed to initialize NVML|Driver/library version mismatch|Driver Not Loaded"
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
        match = _OWN.match(text) or _EXPORTERS.match(text)
        if match is None:
            return []
        event = _decoded(match["text"].strip(), match["function"])
        if event is None:
            return []
        return [replace(event, time=self._stamps.iso(match["time"]), node=self._node, line=line)]

    def flush(self) -> Iterable[Event]:
        """Nothing is held back."""
        return []


def _decoded(text: str, function: str) -> Event | None:
    attributes: dict[str, Attribute] = {"name": "nv-hostengine", "function": function}
    if _LOST.search(text):
        gpu = _GPU.search(text)
        device = Device(type="gpu", index=int(gpu["index"]) if gpu else None)
        event = Event(None, None, "hostengine", "gpu_missing", device=device, message=text, attributes=attributes)
        return with_kind_meaning(event)
    if _NO_DRIVER.search(text):
        device = Device(type="node")
        event = Event(None, None, "hostengine", "node_service", device=device, message=text, attributes=attributes)
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
        r"|\" dcgm_level=[A-Z]{4,7}",
        re.ASCII,
    ),
)

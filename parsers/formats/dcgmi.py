"""The JSON of NVIDIA's `dcgmi diag -j`, of DCGM 3 and 4: each test that a GPU failed, by DCGM's own error.

    {"DCGM Diagnostic": {"test_categories": [{"category": "Hardware", "tests": [{"name": "memory", "results": [
      {"entity_group": "GPU", "entity_id": 5, "status": "Fail", "warnings": [{"error_id": 52, "error_severity": 2,
       "warning": "Memory: Pinned memory: mismatch ..."}]}]}]}]}, "metadata": {"version": "4.2.3"}}
    -> {"kind": "health_check_failed", "severity": "error", "cause": "hardware", "device": {"type": "gpu", "index": 5},
        "attributes": {"check": "DCGM_FR_FAULTY_MEMORY", "test": "memory"}, ...}

What passed or was left out tells nothing. A setting (persistence mode is off) is an `info`: no GPU is worse for it. The
document bears no time and no node: both come from the reader. Sources: NVIDIA/DCGM dcgmlib/dcgm_errors.h (4.2; new
codes are added at the end) and nvvs/include/JsonResult.hpp; captures of DCGM 4.2.3 and 4.5.2 that others published.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import cache
from typing import Any

from parsers.reports.detector_report import DetectorReport, event_of, xid_in
from parsers.text.documents import Document, DocumentParser
from parsers.text.json_fields import attributes, record_of, records_of, text_of, whole_of
from parsers.text.parser import Context, Format
from store.catalog_rows import rows
from store.records.event import Action, Device, Event, Severity

_DETECTOR = "dcgmi"
_ROOTS = ("DCGM Diagnostic", "DCGM GPU Diagnostic")
# dcgmErrorSeverity_t: monitor, isolate, unknown, triage, configuration, reset.
_CONFIGURATION = 5
_JUDGED: Mapping[int | None, tuple[Severity, Action]] = {
    1: ("warning", "watch"),
    2: ("error", "drain_node"),
    3: ("error", "run_diagnostics"),
    4: ("error", "run_diagnostics"),
    _CONFIGURATION: ("info", "none"),
    6: ("error", "reset_gpu"),
}
_TYPES = {"GPU": "gpu", "NvSwitch": "nvswitch", "Switch": "nvswitch"}
# Of one document: a node has 16 GPUs and DCGM some 20 tests.
_MOST = 2000


@cache
def _names() -> Mapping[int, str]:
    return {int(row["code"]): row["name"] for row in rows("dcgm_errors")}


class DcgmiParser(DocumentParser):
    """Decodes whole reports. Remembers nothing."""

    def __init__(self, context: Context) -> None:
        super().__init__(self._read)
        self._node = context.node

    def _read(self, document: Document) -> Iterable[Event]:
        root = record_of(document.value, *_ROOTS)
        serials = _serials(document.value)
        found: list[Event] = []
        if (error := text_of(root, "runtime_error")) is not None:
            found.append(self._event("diag", {"warning": error, "error_severity": 1}, document.line, Device()))
        for test, device, warning in _failures(root):
            if len(found) >= _MOST:
                break
            serial = serials.get(device.index) if device.type == "gpu" else None
            found.append(self._event(test, warning, document.line, device, serial))
        return found

    def _event(
        self, test: str, warning: Mapping[str, Any], line: int, device: Device, serial: str | None = None
    ) -> Event:
        code, judged = whole_of(warning.get("error_id")), whole_of(warning.get("error_severity"))
        severity, action = _JUDGED.get(judged, ("error", "run_diagnostics"))
        name = _names().get(code) if code is not None else None
        text = text_of(warning, "warning") or f"the test {test} failed"
        # A setting is told as one, whatever the table makes of its name.
        check = name if name is not None and judged != _CONFIGURATION else f"test {test}"
        xid = xid_in(text) if name == "DCGM_FR_XID_ERROR" else None
        report = DetectorReport(
            source=_DETECTOR,
            detector=_DETECTOR,
            check=check,
            severity=severity,
            line=line,
            message=text,
            codes=(str(xid),) if xid is not None else (),
            family=None if xid is None else "xid",
            action=action,
            node=self._node,
            device=device,
            attributes=attributes(test=test, error=name or code, serial=serial),
        )
        event = event_of(report, tables=("nvsentinel",))
        # How grave a test of this kind is, DCGM says itself; other kinds are judged by our table.
        return replace(event, severity=severity, action=action) if event.kind == "health_check_failed" else event


def _failures(root: Mapping[str, Any]) -> Iterator[tuple[str, Device, Mapping[str, Any]]]:
    """Each failed test, of which device, and a warning of it; what the summary alone says is of no device."""
    for category in records_of(root, "test_categories"):
        for test in records_of(category, "tests"):
            name = text_of(test, "name") or text_of(category, "category") or "unknown"
            said: list[object] = []
            for result in records_of(test, "results"):
                for warning in _warnings(result):
                    said.append(warning)
                    yield from ((name, device, warning) for device in _devices(result))
            summary = record_of(test, "test_summary")
            yield from ((name, Device(), one) for one in _warnings(summary) if one not in said and "error_id" in one)


def _warnings(result: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """What a failed or doubtful result says of it: objects (DCGM 3.1 on), texts, or nothing but that it failed."""
    status = (text_of(result, "status") or "").lower()
    if not status.startswith(("fail", "warn")):
        return []
    said = result.get("warnings")
    listed = said if isinstance(said, list) else [said]
    found: list[Mapping[str, Any]] = [one for one in listed if isinstance(one, dict)]
    found += [{"warning": one} for one in listed if isinstance(one, str) and one.strip()]
    if status.startswith("warn"):  # DCGM lets work go on
        found = [one if "error_severity" in one else {**one, "error_severity": 1} for one in found]
    return found or ([] if status.startswith("warn") else [{}])


def _devices(result: Mapping[str, Any]) -> list[Device]:
    """Of DCGM 4 the entity; of DCGM 3 the GPUs of a list in text, or one number."""
    if "entity_id" in result:
        group = text_of(result, "entity_group") or "GPU"
        return [Device(_TYPES.get(group, "node"), index=whole_of(result["entity_id"]))]
    listed = result.get("gpu_ids")
    numbers = [whole_of(part.strip()) for part in listed.split(",")] if isinstance(listed, str) else [whole_of(listed)]
    return [Device("gpu", index=number) for number in dict.fromkeys(numbers) if number is not None] or [Device()]


def _serials(document: Mapping[str, Any]) -> Mapping[int | None, str]:
    """The serial numbers of GPUs, as DCGM 4 tells them."""
    groups = [one for one in records_of(document, "entity_groups") if text_of(one, "entity_group") == "GPU"]
    pairs = (
        (whole_of(entity.get("entity_id")), text_of(entity, "serial_num"))
        for group in groups
        for entity in records_of(group, "entities")
    )
    return {number: serial for number, serial in pairs if serial is not None and not serial.startswith("<")}


FORMAT = Format(
    name="dcgmi",
    description="Results of NVIDIA's `dcgmi diag -j`",
    sample='{"DCGM Diagnostic": {"test_categories": [{"category": "Hardware", "tests": [{"name": "memory", "results": '
    '[{"entity_group": "GPU", "entity_id": 5, "status": "Fail", "warnings": [{"error_id": 52, "error_severity": 2, '
    '"error_category": 10, "warning": "Memory: Faulty memory detected on GPU 5."}]}]}]}]}, '
    '"metadata": {"version": "4.2.3"}}',
    make=DcgmiParser,
    testimony="detector",
    recognises=re.compile(r'"DCGM (?:GPU )?Diagnostic" ?:'),
    shape="document",
)

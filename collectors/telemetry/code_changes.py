"""Fault codes that an exporter shows of a device: which came, and which are gone.

    npu_chip_info_error_code{id="3"} 2162167809    -> ascend_fault 80E01801; its end, once the page shows it no more
    gpu_afid_errors{severity="fatal"} 18           -> gpu_afid 18
    mlu_last_xid_error{mlu="3"} 14                 -> mlu_xid 14

Of AMD's and Cambricon's codes the gauge shows the last one for good: what stands there at first may be old.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime

from collectors.telemetry.device_events import Finding
from collectors.telemetry.device_state import DeviceState
from store.records.event import Event
from store.records.shown_codes import ShownCode, shown_codes, with_shown_code


def code_changes(
    one: DeviceState, values: Mapping[str, float], moment: tuple[float, bool], before_s: float | None
) -> Iterator[Finding]:
    """What the codes of a device's sample tell. `moment`: when, and whether it is a new one; `before_s`: the last."""
    time_s, fresh = moment
    known, last = (frozenset(ShownCode(*code) for code in codes) for codes in (one.codes_before, one.codes))
    if fresh:
        for code in sorted(known - last):
            if code.stands() and one.limit(f"{code.kind}={code.code} over").add(1.0, time_s):
                yield _finding(code, over=True)
        known, last = last, frozenset()
    shown = shown_codes(values)
    for code in sorted(shown - known - last):
        if one.limit(f"{code.kind}={code.code}").add(1.0, time_s):
            yield _came(code, first=one.first_s == time_s, before_s=before_s)
    one.codes_before = [[code.kind, code.code, code.severity] for code in sorted(known)]
    one.codes = [[code.kind, code.code, code.severity] for code in sorted(last | shown)]


def _came(code: ShownCode, *, first: bool, before_s: float | None) -> Finding:
    found = _finding(code)
    if first and not code.stands():
        severity = "warning" if found.severity in ("error", "fatal") else found.severity
        message = f"{found.message}. It stood there when the device was first seen: its age is unknown."
        attributes = {**found.attributes, "age": "unknown"}
        return replace(found, severity=severity, action="run_diagnostics", message=message, attributes=attributes)
    if before_s is None:
        return found
    since = datetime.fromtimestamp(before_s, UTC).isoformat()
    return replace(found, attributes={**found.attributes, "after": since})


def _finding(code: ShownCode, *, over: bool = False) -> Finding:
    told = with_shown_code(Event(None, None, "telemetry", code.kind), code, over=over)
    name = told.attributes.get("fault_code")
    message = told.message if name is None else f"Fault code {name}: {told.message}"
    return Finding(told.kind, message, told.severity, told.cause, told.attributes, code=told.code, action=told.action)

"""Measures that are states, levels or codes: a port that goes down, an inlet that is too warm, an NPU's fault code.

Levels have a limit, and one to come back below.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime

from collectors.telemetry.device_events import Finding, meant_of_device
from collectors.telemetry.device_state import DeviceState
from store.records.event import Event
from store.records.fault_catalog import ShownCode, shown_codes, with_shown_code
from store.records.telemetry import Sample

# Its own watch (`ports.py`) tells the states of ports.
_WATCHES_PORTS = "infiniband"
_LOGICAL, _PHYSICAL, _RATE = "state_id", "physical_state_id", "rate_bytes_per_s"
_THROTTLE = "throttle_reasons"
# Slowed by its hardware, by its heat, by the power brake. Source: NVML's nvmlClocksEventReasonHwSlowdown,
# HwThermalSlowdown and HwPowerBrakeSlowdown. What software caps on purpose is no fault.
_HARDWARE_BITS = 0x8 | 0x40 | 0x80
# Air that a server takes in. Source: ASHRAE TC 9.9, class A2: 10 to 35 °C are allowable.
_INLET = re.compile(r"inlet|ambient", re.IGNORECASE)
_INLET_C = 35.0
_INLET_OVER_C = 33.0
_INLET_MEASURES = ("inlet_temp_c", "ambient_temp_c")


# Which value of a state is which kind of event, and variant, when a device comes to it from another one. Another value,
# and the first one, are no event: a port that is down at first may never have been cabled; but an accelerator that is
# not well at first is. Sources: InfiniBand Architecture Specification volume 1 (PortState, PortPhysicalState); IPMI 2.0
# section 28.2, by ipmi_exporter; the lists of metrics that `catalogs/telemetry.csv` names (1: well, linked, reached).
_STATES: Mapping[str, Mapping[int, tuple[str, str]]] = {
    _LOGICAL: {
        1: ("link_down", "fabric"),
        2: ("link_inactive", ""),
        3: ("link_inactive", ""),
        4: ("link_up", "fabric"),
    },
    _PHYSICAL: {
        2: ("link_down", "fabric"),
        3: ("link_down", "admin"),
        4: ("link_inactive", ""),
        5: ("link_up", "fabric"),
        6: ("link_inactive", ""),
    },
    "healthy": {0: ("accelerator_health", "alarm"), 1: ("accelerator_health", "well")},
    "driver_running": {0: ("accelerator_health", "driver"), 1: ("accelerator_health", "well")},
    "link_up": {0: ("link_down", "npu"), 1: ("link_up", "npu")},
    "network_healthy": {0: ("link_degraded", "npu"), 1: ("link_restored", "npu")},
    "chassis_power_state": {0: ("node_power", "off"), 1: ("node_power", "on")},
    "bmc_up": {0: ("bmc_silent", ""), 1: ("bmc_returned", "")},
}

_MUST_BE_ONE = frozenset({"healthy", "driver_running"})


def state_changes(one: DeviceState, sample: Sample, values: Mapping[str, float]) -> Iterator[Finding]:
    """What the states and levels of a device's sample tell, against what they were."""
    if sample.source == _WATCHES_PORTS:
        return
    time_s = sample.time.timestamp()
    for measure, meanings in _STATES.items():
        value, before = values.get(measure), one.last.get(measure)
        if before is None and measure in _MUST_BE_ONE:
            before = 1.0
        if value is None or before is None or value == before or (measure == _PHYSICAL and _LOGICAL in values):
            continue
        meaning = meanings.get(int(value))
        if meaning is not None and one.limit(f"{measure}={int(value)}").add(1.0, time_s):
            yield health_changed(value) if measure == "healthy" else meant_of_device(*meaning)
    yield from _rate(one, values, time_s)
    yield from _throttled(one, values, time_s)
    yield from _inlet(one, values, time_s)


def health_changed(value: float) -> Finding:
    """An exporter calls its device healthy (1) again, or no more."""
    if value:
        return meant_of_device("accelerator_health", "well")
    return meant_of_device("accelerator_health", "alarm", "The exporter calls it unhealthy")


def _rate(one: DeviceState, values: Mapping[str, float], time_s: float) -> Iterator[Finding]:
    rate, before = values.get(_RATE), one.last.get(_RATE)
    if not rate or not before or rate == before:
        return
    kind, words = ("link_degraded", "slower") if rate < before else ("link_restored", "faster")
    if one.limit(kind).add(1.0, time_s):
        message = f"The link runs at {rate * 8 / 1e9:.0f} Gb/s, {words} than before ({before * 8 / 1e9:.0f} Gb/s)"
        yield meant_of_device(kind, "", message)


def _throttled(one: DeviceState, values: Mapping[str, float], time_s: float) -> Iterator[Finding]:
    bits, before = values.get(_THROTTLE), one.last.get(_THROTTLE)
    if bits is None or before is None or not 0 <= bits < 2**53:
        return
    new = int(bits) & _HARDWARE_BITS
    if new and not int(before) & _HARDWARE_BITS and one.limit(_THROTTLE).add(1.0, time_s):
        yield meant_of_device("gpu_throttled", "", f"The GPU's hardware slows it down (reasons 0x{int(bits):x})")


def _inlet(one: DeviceState, values: Mapping[str, float], time_s: float) -> Iterator[Finding]:
    names = _INLET_MEASURES if one.name is None or not _INLET.search(one.name) else ("temp_c", *_INLET_MEASURES)
    for name in names:
        value = values.get(name)
        if value is None:
            continue
        if name not in one.standing and value > _INLET_C:
            one.standing.add(name)
            if one.limit(f"{name}_hot").add(1.0, time_s):
                yield meant_of_device("inlet_hot", "", f"The air that the node takes in is {value:.0f} °C warm")
        elif name in one.standing and value < _INLET_OVER_C:
            one.standing.discard(name)
            yield meant_of_device("inlet_hot", "over", f"The air that the node takes in is {value:.0f} °C warm again")


# Fault codes that an exporter shows of a device: which came, and which are gone.
#
#     npu_chip_info_error_code{id="3"} 2162167809    -> ascend_fault 80E01801; its end, once the page shows it no more
#     gpu_afid_errors{severity="fatal"} 18           -> gpu_afid 18
#     mlu_last_xid_error{mlu="3"} 14                 -> mlu_xid 14
#
# Of AMD's and Cambricon's codes the gauge shows the last one for good: what stands there at first may be old.


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
            yield code_came(code, first=one.first_s == time_s, before_s=before_s)
    one.codes_before = [[code.kind, code.code, code.severity] for code in sorted(known)]
    one.codes = [[code.kind, code.code, code.severity] for code in sorted(last | shown)]


def code_came(code: ShownCode, *, first: bool, before_s: float | None) -> Finding:
    """A code that was not shown before. `first`: nor was its device."""
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

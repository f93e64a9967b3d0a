"""What tells of a node as a whole: that it rebooted, that its exporters fall silent, that its BMC is alive meanwhile.

A reboot is a boot time that is newer by more than clocks drift, and than the last look: a clock that was set makes the
boot time jump, too, but leaves it before that look. Sources: Linux proc(5), btime of /proc/stat, which moves with the
clock; node_exporter's `node_boot_time_seconds`; ipmi_exporter's `ipmi_up`.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import UTC, datetime

from collectors.telemetry.device_events import Finding, finding_of
from collectors.telemetry.device_state import NAME_SHARED, DeviceState, NodeWatch
from collectors.telemetry.presence import Presence
from store.plural import many
from store.records.telemetry import Sample

BOOT_TIME = "boot_time_s"
NODE_TIME = "node_time_s"
# Btime moves by some seconds as the clock is disciplined; a node needs longer than this to boot.
DRIFT_S = 60.0
# A boot time beyond is no time.
_MOST_S = 2.0**33
# Silence before a reboot that is worth a word, and how many of its own intervals it is at least.
_LONG_S = 3600.0
_GAPS = 3
_BMC = "ipmi"
# Exporters whose silence tells something of the node, beside those of its accelerators.
SPEAKERS = frozenset({"node_exporter", _BMC})


def node_changes(
    reported: tuple[DeviceState, Sample, Mapping[str, float]], node: NodeWatch, devices: Sequence[DeviceState]
) -> Iterator[Finding]:
    """What a sample of a device tells of its node."""
    one, sample, values = reported
    boot_s = values.get(BOOT_TIME)
    if boot_s is None:
        return
    known_s, one.boot_s = one.boot_s, max(boot_s, one.boot_s or boot_s)
    if known_s is not None and boot_s < known_s - DRIFT_S:
        yield from _went_back(one, boot_s, sample.time.timestamp())
    if known_s is None or boot_s - known_s <= DRIFT_S:
        return
    looked_s = one.last.get(NODE_TIME)
    if looked_s is not None and NODE_TIME in values and boot_s < looked_s - DRIFT_S:
        yield finding_of("clock_jump", f"The node's clock was set forward by {_length(boot_s - known_s)}.")
        return
    time_s = sample.time.timestamp()
    node.rebooted_s = time_s
    silent_s = 0.0 if node.before_s is None else time_s - node.before_s
    long = silent_s >= max(_LONG_S, _GAPS * (one.here.cadence_s or 0.0))
    ended = _ended(devices, time_s)
    yield booted(one.node, boot_s, silent_s if long else None, ended)


def booted(node: str, boot_s: float, silent_s: float | None = None, ended: tuple[int, str] | None = None) -> Finding:
    """A node was booted: after how long a silence, and which Xid, that stood since when, it ends."""
    moment = datetime.fromtimestamp(boot_s, UTC) if 0 < boot_s < _MOST_S else None
    at = f"at {moment:%Y-%m-%d %H:%M:%S}" if moment else ""
    if moment and ended and moment < datetime.fromisoformat(ended[1]):  # seen after it, and dated before it
        at = f"({at} by its own clock, which is not that of the telemetry)"
    message = f"The node was booted {at}".rstrip()
    message += f", after {_length(silent_s)} without telemetry" if silent_s else ""
    message += f"; it ends the fault of Xid {ended[0]} that stood since {ended[1]}" if ended else ""
    return finding_of(
        "node_reboot",
        f"{message}.",
        "seen",
        name=node,
        boot_time=None if moment is None else moment.isoformat(),
        silent_s=round(silent_s) if silent_s else None,
        caused_by=f"xid:{ended[0]}" if ended else None,
        since=ended[1] if ended else None,
    )


def _went_back(one: DeviceState, boot_s: float, time_s: float) -> Iterator[Finding]:
    """A boot time that is older than one that was told: a clock that was set back, or another machine's."""
    before_s = one.last.get(BOOT_TIME)
    if before_s is not None and boot_s >= before_s - DRIFT_S:
        return  # it stays there
    if one.fell(BOOT_TIME, time_s) or one.is_no_counter(BOOT_TIME, time_s):
        yield from name_shared(one, time_s)
    elif before_s is not None:
        yield finding_of("clock_jump", f"The node's clock was set back by {_length(before_s - boot_s)}.")


def name_shared(one: DeviceState, time_s: float) -> Iterator[Finding]:
    """Two machines report under one name: told at a bounded rate."""
    if one.limit(NAME_SHARED).add(1.0, time_s):
        yield finding_of("name_shared", "")


def _ended(devices: Sequence[DeviceState], time_s: float) -> tuple[int, str] | None:
    """The fault that stood before this moment and that a reboot ends: the earliest of the node's."""
    standing = standing_fault(devices)
    if standing is None or datetime.fromisoformat(standing[1]).timestamp() >= time_s:
        return None
    for one in devices:
        if one.fault is not None and datetime.fromisoformat(one.fault[1]).timestamp() < time_s:
            one.fault = None
    return standing


def standing_fault(devices: Sequence[DeviceState]) -> tuple[int, str] | None:
    """The code and the time of the earliest fault of a node's devices that stands."""
    faults = [(str(one.fault[1]), int(one.fault[0])) for one in devices if one.fault is not None]
    return None if not faults else (min(faults)[1], min(faults)[0])


def streams_gone(
    state: NodeWatch, alive: Collection[str], look: tuple[datetime, bool], devices: Sequence[DeviceState]
) -> Iterator[tuple[Finding, str]]:
    """Exporters of a node that fall silent or speak again, with whose event it is.

    `look`: the moment, and whether it is one page of them all.
    """
    time_s, is_page = look[0].timestamp(), look[1]
    for source in sorted(alive):
        stream = state.streams.setdefault(source, Presence())
        stream.together = len(alive) > 1
        if stream.report(time_s) and not state.is_silent:
            yield finding_of("exporter_up", "The exporter reports of this node again."), source
    silent = [source for source in sorted(state.streams) if source not in alive]
    new = [source for source in silent if state.streams[source].lack(time_s, is_page)]
    state.silenced = set(new)
    if not alive:
        return
    speaking = {source for source, stream in state.streams.items() if not stream.gone}
    if state.is_silent and speaking - {_BMC}:
        state.is_silent = False
        yield finding_of("node_returned", ""), min(speaking - {_BMC})
    elif new and speaking == {_BMC} and not state.is_silent:
        state.is_silent = True
        yield _node_silent(devices), _BMC
    elif not state.is_silent:
        for source in new:
            yield _exporter_gone(source, devices, state), source


def _node_silent(devices: Sequence[DeviceState]) -> Finding:
    power = next((one.last.get("chassis_power_state") for one in devices if one.source == _BMC), None)
    words = {1.0: "its power is on", 0.0: "its power is off"}.get(-1.0 if power is None else power, "")
    gpus = sum(one.is_accelerator() for one in devices)
    message = "Every exporter of the node is silent while its BMC answers" + (f"; {words}" if words else "")
    fault = standing_fault(devices)
    follows = {} if fault is None else {"follows": f"xid:{fault[0]}", "since": fault[1]}
    message += "" if fault is None else f"; Xid {fault[0]} stands since {fault[1]}"
    power_state = words.removeprefix("its power is ") or None
    name = next(one.node for one in devices)
    return finding_of("node_silent", f"{message}.", name=name, devices=gpus or None, power=power_state, **follows)


def _exporter_gone(source: str, devices: Sequence[DeviceState], state: NodeWatch) -> Finding:
    if source == _BMC:
        return finding_of("bmc_silent", "")
    gpus = [one for one in devices if one.source == source and one.is_accelerator()]
    of_gpus = f" None of its {many(len(gpus), 'GPU')} is reported." if gpus else ""
    variant = "reboot" if state.rebooted_now() else ""
    message = f"The exporter {source} of this node is silent while others go on.{of_gpus}"
    return finding_of("exporter_down", message, variant, devices=len(gpus) or None)


def _length(seconds: float) -> str:
    for unit, size in (("d", 86400.0), ("h", 3600.0), ("min", 60.0)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds:.0f} s"

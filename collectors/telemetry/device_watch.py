"""Samples to events: what rose, changed, vanished or came back, of every device and node. Pure; plain JSON as state.

    watch = DeviceWatch(origin, state)
    events = watch.add(samples, now)        # one look at everything: a page that was scraped
    events = watch.follow(samples)          # a stretch of history; in any cut, what shares a moment in any order
    events = watch.finish()                 # its end: judge the last moment, too

A counter's first value is where it stands, not an increase. One that fell began anew (the driver was loaded again):
what it shows is the increase since. A device that another took the place of (its UUID changed) begins anew, silently.
What lacks is judged by its own pace (`presence.py`). Of values one event tells for all devices of the node: a driver
that is loaded again takes many. Where a page speaks for many nodes and one of them is gone from it whole, that node's
exporter is down; of its devices nothing is known meanwhile.
"""

from collections import Counter as Counted
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from math import isfinite
from typing import Any

from collectors.telemetry.device_events import (
    Finding,
    counters_began_anew,
    device_missing,
    device_returned,
    exporter_event,
    finding_event,
    metric_event,
    no_counter,
    proven_xid,
    rise,
    xid_changed,
)
from collectors.telemetry.device_state import NODE, DeviceState, NodeWatch, key_of, note_fault, watched_device
from collectors.telemetry.node_watch import SPEAKERS, name_shared, node_changes, streams_gone
from collectors.telemetry.presence import MISSES
from collectors.telemetry.states import code_changes, state_changes
from parsers.formats.dcgm import BLANKS
from store.records.event import Device, Event
from store.records.fault_catalog import Counter, counter, link_counters
from store.records.telemetry import Sample

# Of values that vanish at one moment: told one by one up to so many, beyond by one event that lists them.
_FEW_METRICS = 3
_XID = ("xid_last", "xid_active_")
# A fault that stands is told again after so long, and how much is kept of one that is.
_TELL_AGAIN_S = 3600.0
_TOLD = 4
# What a node has one of: it is its exporter that is missing.
_PARTS_OF_NODE = frozenset({NODE, "bmc"})


class DeviceWatch:
    """Every device ever seen through one source. `origin` is part of the ids: the exporter's address."""

    def __init__(self, origin: str, state: Mapping[str, Any] | None = None) -> None:
        saved = state or {}
        self._origin = origin
        watched = (DeviceState.of(one) for one in saved.get("devices", ()))
        self._devices = {one.key(): one for one in watched}
        self._nodes = {node: NodeWatch.of(one) for node, one in saved.get("nodes", {}).items()}
        self._silent: dict[str, int] = dict(saved.get("silent", {}))  # nodes gone from the page, for how many scrapes
        self._lost = {(node, name) for node, name in saved.get("lost", ())}  # values missing on a node
        self._of_node: dict[str, list[DeviceState]] = {}
        self._wholes: set[tuple[str, str]] = set()  # nodes and names of what has parts (`mc0` of `mc0/csrow2`)
        for one in self._devices.values():
            self._note_device(one)
        self.late = 0  # samples older than what is known of their device: they are left out

    def state(self) -> dict[str, Any]:
        """Everything, as plain JSON."""
        return {
            "devices": [one.state() for one in self._devices.values()],
            "nodes": {node: one.state() for node, one in self._nodes.items()},
            "silent": dict(self._silent),
            "lost": [list(pair) for pair in sorted(self._lost)],
        }

    def add(self, samples: Sequence[Sample], now: datetime, is_page: bool = True) -> list[Event]:
        """One look at everything; `now` is when, for what is missing in a page without samples.

        `is_page`: one exporter's page, all of which reports at one pace, so that what stands is told again; else, in an
            archive or a Prometheus's past, each part is judged by its own, and of what stands some looks are left out.
        """
        moment = max((sample.time for sample in samples), default=now)
        nodes = {sample.node for sample in samples}
        events = list(self._nodes_back(nodes, moment))
        present: dict[str, set[tuple[object, ...]]] = {node: set() for node in nodes}
        for sample in _ordered(samples):
            present[sample.node].add(key_of(sample))
            self._node(sample.node).begin(sample.time)
            events += self._take(sample)
        for node in sorted(nodes):
            events += self._judge(node, moment, present[node], is_page)
        return events + list(self._gone_from_page(nodes, moment))

    def follow(self, samples: Iterable[Sample], look: Callable[[], None] = lambda: None) -> list[Event]:
        """A stretch of history. A moment of a node is over when a later one of it comes, or `finish` is called.

        `look` is called before each sample: what it raises ends the work.
        """
        events: list[Event] = []
        for sample in _ordered(samples):
            look()
            node = self._node(sample.node)
            if node.time_s is not None and sample.time.timestamp() > node.time_s:
                events += self._closed(sample.node)
            node.begin(sample.time)
            events += self._take(sample)
        return events

    def news(self, sample: Sample) -> Sample | None:
        """A sample less what was told of its moment before; None where nothing is left, or it is older."""
        one = self._devices.get(key_of(sample))
        last_s = None if one is None else one.here.last_s
        time_s = sample.time.timestamp()
        if one is None or last_s is None or time_s > last_s:
            return sample
        fresh = {name: value for name, value in sample.values.items() if name not in one.names}
        return replace(sample, values=fresh) if time_s == last_s and fresh else None

    def places(self) -> dict[tuple[object, ...], int]:
        """The devices by their keys, each with its place in the order in which they were first reported."""
        return {key: place for place, key in enumerate(self._devices)}

    def finish(self) -> list[Event]:
        """The end of a stretch of history: every node's last moment is over."""
        return [event for node in sorted(self._nodes) for event in self._closed(node)]

    def is_settled(self) -> bool:
        """Whether the same look again, and again, would tell nothing more: nothing is held back."""
        for node in self._nodes.values():
            if node.is_open or any(one.misses and not one.gone for one in node.streams.values()):
                return False
        for one in self._devices.values():
            if one.here.misses and not one.here.gone:
                return False
            if any(limit.held for limit in one.limits.values()):
                return False
            if one.absent.keys() - one.lost_names():
                return False
        return True

    def _node(self, name: str) -> NodeWatch:
        return self._nodes.setdefault(name, NodeWatch())

    def _closed(self, node: str) -> list[Event]:
        state = self._nodes[node]
        if not state.is_open or state.time_s is None:
            return []
        present = {one.key() for one in self._of_node.get(node, ()) if one.here.last_s == state.time_s}
        return list(self._judge(node, datetime.fromtimestamp(state.time_s, UTC), present))

    def _nodes_back(self, nodes: set[str], moment: datetime) -> Iterator[Event]:
        for node in sorted(nodes & self._silent.keys()):
            if self._silent.pop(node) >= MISSES:
                yield exporter_event(node, moment, "exporter_up", "The exporter answers again.", self._origin)

    def _take(self, sample: Sample) -> Iterator[Event]:
        """What one sample tells of its device."""
        key = key_of(sample)
        one = self._devices.get(key)
        if one is None:
            one = self._devices[key] = watched_device(sample)
            self._note_device(one)
        time_s = sample.time.timestamp()
        if one.here.last_s is not None and time_s < one.here.last_s:
            self.late += 1
            return
        node = self._nodes[sample.node]
        parents = self._parents(sample)
        for finding in self._findings(one, sample, node):
            if finding.counter is None or not parents:
                note_fault(one, finding, sample.time)
                yield self._event(one, sample.time, finding)

    def _parents(self, sample: Sample) -> bool:
        """Whether parts of this device (`mc0/csrow2` of `mc0`) are known too: their counters count the same errors."""
        return sample.type == "dimm" and (sample.node, sample.name) in self._wholes

    def _note_device(self, one: DeviceState) -> None:
        self._of_node.setdefault(one.node, []).append(one)
        whole = one.name or ""
        while "/" in whole:
            whole = whole.rpartition("/")[0]
            self._wholes.add((one.node, whole))

    def _findings(self, one: DeviceState, sample: Sample, node: NodeWatch) -> Iterator[Finding]:
        time_s = sample.time.timestamp()
        values = {name: value for name, value in sample.values.items() if isfinite(value) and value not in BLANKS}
        before_s, fresh = one.here.last_s, one.begin(time_s)
        if one.here.report(time_s):
            yield device_returned(sample)
        if sample.uuid is not None and one.uuid is not None and sample.uuid != one.uuid:
            if not fresh or sample.uuid == one.uuid_before:
                yield from name_shared(one, time_s)
            one.forget()
            one.uuid_before = one.uuid
        one.uuid, one.pci = sample.uuid or one.uuid, sample.pci or one.pci
        one.serial = sample.serial or one.serial
        yield from _xids(one, values, time_s, before_s if fresh else None)
        yield from code_changes(one, values, (time_s, fresh), before_s if fresh else None)
        yield from node_changes((one, sample, values), node, self._of_node[sample.node])
        yield from state_changes(one, sample, values)
        rose, others, began_anew = _counted(one, sample.type, values, (time_s, fresh))
        if began_anew:
            node.fell.add(one.key())
        yield from others
        for total in link_counters(rose):
            rose.pop(total, None)
        for name, (known, increase) in rose.items():
            if told := one.limit(name).add(increase, time_s):
                yield rise(name, known, told)
        yield from self._held_back(one, sample, rose, time_s)

    def _held_back(
        self, one: DeviceState, sample: Sample, rose: Mapping[str, object], time_s: float
    ) -> Iterator[Finding]:
        """Rises that were held back for long enough."""
        for name, limit in one.limits.items():
            if name not in rose and (told := limit.due(time_s)) and (known := counter(name, sample.type)):
                yield rise(name, known, told)

    def _judge(
        self, node: str, moment: datetime, present: set[tuple[object, ...]], is_page: bool = False
    ) -> Iterator[Event]:
        """What a moment of a node lacks, now that it is over. `is_page`: all of it reports at one pace."""
        state = self._nodes[node]
        devices = self._of_node.get(node, [])
        fell = [one for one in devices if one.key() in state.fell]
        here = [one for one in devices if one.key() in present]
        if fell:
            yield self._event(fell[0], moment, counters_began_anew(ones_device(fell), len(fell)))
        yield from self._values_gone_and_back(node, here, moment)
        gone: list[DeviceState] = []
        counts = Counted(one.source for one in here)
        for one in here:
            one.here.together = counts[one.source] > 1
        alive = counts.keys() & SPEAKERS | {one.source for one in here if one.is_accelerator()}
        for finding, source in streams_gone(state, alive, (moment, is_page), devices):
            yield self._event_of(node, source, moment, finding)
        for one in devices:
            if one.key() not in present and one.source in counts and one.type not in _PARTS_OF_NODE:
                gone += [one] if one.here.lack(moment.timestamp(), is_page or one.is_accelerator()) else []
        for one in gone:
            yield self._event(one, moment, _missing(one))
        for one in self._unheard(devices, state, alive):
            yield self._event(one, moment, _unknown(one))
        for one in devices:
            if one.xids == [0]:
                one.fault = None
            elif is_page and (stands := _stands(one, moment.timestamp(), one.key() in present)) is not None:
                yield self._event(one, moment, stands)
        state.close()

    def _unheard(self, devices: Sequence[DeviceState], state: NodeWatch, alive: set[str]) -> Iterator[DeviceState]:
        """Accelerators whose whole exporter is silent since this moment."""
        for one in devices:
            if one.is_accelerator() and one.source in state.silenced and one.source not in alive and not one.here.gone:
                one.here.gone = True
                yield one

    def _values_gone_and_back(self, node: str, here: Sequence[DeviceState], moment: datetime) -> Iterator[Event]:
        """One event of a node and value, however many of its devices lack it."""
        gone: dict[tuple[str, str], list[DeviceState]] = {}
        for one in here:
            one.note_absent()
            for name in one.lost_names():
                gone.setdefault((node, name), []).append(one)
        new = sorted(gone.keys() - self._lost)
        self._lost.update(new)
        for names in _told_together([name for _, name in new]):
            lacking = gone[node, names[0]]
            of = f"{len(lacking)} device{'s' if len(lacking) > 1 else ''}"
            message = f"{_metrics(names)} no longer reported of {of}"
            change = ("metric_missing", names[0], message)
            yield metric_event(lacking[0], moment, change, len(lacking), self._origin)
        there = {name: one for one in here for name in one.names}
        back = sorted(name for of, name in self._lost - gone.keys() if of == node and name in there)
        self._lost.difference_update([(node, name) for name in back])
        for names in _told_together(back):
            change = ("metric_returned", names[0], f"{_metrics(names)} reported again")
            yield metric_event(there[names[0]], moment, change, 0, self._origin)

    def _gone_from_page(self, nodes: set[str], moment: datetime) -> Iterator[Event]:
        """Nodes that a page of many no longer speaks of; the devices of all nodes where it speaks of none."""
        if nodes:
            for node in sorted(self._of_node.keys() - nodes):
                self._silent[node] = self._silent.get(node, 0) + 1
                if self._silent[node] == MISSES:
                    message = "The page no longer speaks of this node."
                    yield exporter_event(node, moment, "exporter_down", message, self._origin)
            return
        for one in self._devices.values():
            if one.here.lack(moment.timestamp(), is_alike=True):
                yield self._event(one, moment, device_missing(one.type, one.name, one.index))

    def _event(self, one: DeviceState, time: datetime, finding: Finding) -> Event:
        if one.serial is not None and not finding.whole_node:
            finding = replace(finding, attributes={**finding.attributes, "serial": one.serial})
        return finding_event(finding, (one.node, one.source, one.name), one.device(), time, self._origin)

    def _event_of(self, node: str, source: str, time: datetime, finding: Finding) -> Event:
        return finding_event(finding, (node, source, None), Device(), time, self._origin)


def ones_device(ones: Sequence[DeviceState]) -> Device | None:
    """The device where there is only one."""
    return ones[0].device() if len(ones) == 1 else None


def _ordered(samples: Iterable[Sample]) -> list[Sample]:
    """By time and device: the order in which they come is nobody's."""
    return sorted(samples, key=lambda one: (one.time, one.node, repr(key_of(one)), repr(sorted(one.values.items()))))


def _counted(
    one: DeviceState, kind: str, values: Mapping[str, float], moment: tuple[float, bool]
) -> tuple[dict[str, tuple[Counter, float]], list[Finding], bool]:
    """Take a device's values in. `moment`: when, and whether it is a new one.

    Returns the counters that rose, what no longer is one, and whether any began anew.
    """
    time_s, fresh = moment
    rose: dict[str, tuple[Counter, float]] = {}
    others: list[Finding] = []
    began_anew = False
    for name, value in values.items():
        before, known = one.last.get(name), counter(name, kind)
        one.names.add(name)
        fell = known is not None and before is not None and value < before
        if fell and not fresh:
            continue  # one moment told twice: what it says most stands
        one.last[name] = value
        if before is None or known is None or value == before or name.startswith(_XID):
            continue
        was_none = one.is_no_counter(name, time_s)
        if fell and one.fell(name, time_s):
            others += [] if was_none else [no_counter(name)]
            continue
        began_anew = began_anew or fell
        if not was_none and (increase := value if fell else value - before) > 0:
            rose[name] = (known, increase)
    return rose, others, began_anew


def _told_together(names: list[str]) -> list[list[str]]:
    return [names] if len(names) > _FEW_METRICS else [[name] for name in names]


def _metrics(names: list[str]) -> str:
    return f"{names[0]} is" if len(names) == 1 else f"{names[0]} and {len(names) - 1} more values are"


def _xids(one: DeviceState, values: Mapping[str, float], time_s: float, before_s: float | None) -> Iterator[Finding]:
    """Codes that a device's gauges show and did not show before: of several MIG instances each has its own.

    An exporter may have no such series until the first Xid (dcgm-exporter from 4.5.3): its first code is a change.
    """
    names = [name for name in values if name.startswith(_XID)]
    if not names:
        one.xids = sorted({*one.xids, *one.xids_before}) if not one.xids else one.xids
        return
    codes = {_code(name, values[name]) for name in names}
    first = one.first_s == time_s
    new = sorted(codes - {0} - set(one.xids) - set(one.xids_before))
    one.xids = sorted({*one.xids, *codes})
    before = None if before_s is None else datetime.fromtimestamp(before_s, UTC)
    for code in new:
        finding = xid_changed(code, before, first=first)
        if finding is not None and one.limit(f"xid_{code}").add(1.0, time_s):
            yield finding


def _code(name: str, value: float) -> int:
    if name.startswith(_XID[1]):
        number = name.removeprefix(_XID[1])
        return int(number) if value > 0 and number.isdecimal() else 0
    return int(value) if 0 < value < 2**31 else 0


def _missing(one: DeviceState) -> Finding:
    """A device is reported no more, though others of its exporter are."""
    finding = device_missing(one.type, one.name, one.index)
    return _follows(one, finding) if one.is_accelerator() else finding


def _unknown(one: DeviceState) -> Finding:
    """An accelerator is reported no more, as is all that its exporter tells."""
    gone = device_missing(one.type, one.name, one.index)
    return _follows(one, replace(gone, severity="info", message=f"{gone.message}: its exporter is silent"))


def _stands(one: DeviceState, time_s: float, is_here: bool) -> Finding | None:
    """A fault that nothing has ended is told once an hour, so that nobody takes its device for well.

    Its gauge must show a code; of a device that is not reported itself, nothing tells that its fault has ended.
    """
    if one.fault is None or len(one.fault) < _TOLD or time_s - one.fault[3] < _TELL_AGAIN_S:
        return None
    if is_here and not (any(one.xids) and any(name.startswith(_XID) for name in one.names)):
        return None
    code, since, reach = one.fault[:3]
    one.fault[3] = time_s
    fault = proven_xid(code)
    attributes = {"error": "stands", "follows": f"xid:{code}", "since": reach}
    message = f"Xid {code} still stands, since {since}"
    return Finding("xid_hint", message, "warning", fault.cause if fault else "unknown", attributes, code=code)


def _follows(one: DeviceState, finding: Finding) -> Finding:
    """The same, of a device of which a fault stands."""
    if one.fault is None:
        return finding
    code, since = one.fault[:2]
    attributes = {**finding.attributes, "follows": f"xid:{code}", "since": since}
    return replace(finding, message=f"{finding.message}; Xid {code} stands since {since}", attributes=attributes)

"""A device and a node as they were last reported: what a `DeviceWatch` keeps of them, as plain JSON."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from collectors.telemetry.device_events import Finding, proven_xid
from collectors.telemetry.presence import MISSES, PATIENCE_S, Presence, RateLimit, rate_limit
from store.records.event import Device
from store.records.fault_catalog import CODES
from store.records.telemetry import ACCELERATORS, Sample

# Samples after which a value that never came back is forgotten: a day of one each 15 s.
_FORGOTTEN = 5760
# Values that are only there while something is wrong, or once something was: their end is no loss.
_COME_AND_GO = (*CODES, "xid_", "mlu_xid_")
# How much longer than ever before a value must be gone, and the longest absence that counts as its way.
_LONGER = 1.5
_LONGEST_GAP_S = 86_400.0
NODE = "node"
NAME_SHARED = "name_shared"
# A driver is not loaded anew so many times in a day; a gauge under a counter's name falls as often as it rises.
_MOST_FALLS = 4
_FALLS_S = 86_400.0


@dataclass(slots=True)
class DeviceState:
    """One device, as it was last reported.

    Attributes:
        last: its values. names: those of its last moment.
        absent: those that it had, and for how many samples they are gone. absent_s: since when.
        gaps_s: of each, its longest absence that ended: what comes less often than its device is not lost.
        first_s: when it was first reported.
        xids, xids_before: the codes that its gauges show at its last moment and showed at the one before.
        codes, codes_before: the same of other vendors' codes, each with its kind and severity.
        standing: levels that are over their limit.
        falls: when each counter fell last; what falls again and again is no counter.
        boot_s: the newest boot time. uuid_before: whose place the device took.
        fault: the code of an Xid that proves a fault of it, and since when; None where none stands. Where its event was
            told: also from when on it may have stood, and when it was told last.
    """

    node: str
    type: str
    index: int | None
    name: str | None = None
    port: int | None = None
    source: str = "dcgm"
    uuid: str | None = None
    pci: str | None = None
    serial: str | None = None
    last: dict[str, float] = field(default_factory=dict)
    names: set[str] = field(default_factory=set)
    absent: dict[str, int] = field(default_factory=dict)
    absent_s: dict[str, float] = field(default_factory=dict)
    gaps_s: dict[str, float] = field(default_factory=dict)
    here: Presence = field(default_factory=Presence)
    first_s: float | None = None
    xids: list[int] = field(default_factory=list)
    xids_before: list[int] = field(default_factory=list)
    codes: list[list[Any]] = field(default_factory=list)
    codes_before: list[list[Any]] = field(default_factory=list)
    fault: list[Any] | None = None
    limits: dict[str, RateLimit] = field(default_factory=dict)
    standing: set[str] = field(default_factory=set)
    falls: dict[str, list[float]] = field(default_factory=dict)
    boot_s: float | None = None
    uuid_before: str | None = None

    @staticmethod
    def of(saved: Mapping[str, Any]) -> "DeviceState":
        """One of its state; of an earlier version's, too."""
        known = {name: value for name, value in saved.items() if name in DeviceState.__slots__}
        here = Presence(**saved["here"]) if "here" in saved else Presence(misses=saved.get("misses", 0))
        limits = {name: rate_limit(limit) for name, limit in saved.get("limits", {}).items()}
        names = set(saved.get("names", saved.get("last", ())))
        standing = set(saved.get("standing", ()))
        return DeviceState(**{**known, "here": here, "limits": limits, "names": names, "standing": standing})

    def state(self) -> dict[str, Any]:
        """As plain JSON: asked for at every scrape, and `asdict` takes ten times as long."""
        state = {name: getattr(self, name) for name in self.__slots__}
        return {
            **state,
            "last": self.last.copy(),
            "absent": dict(sorted(self.absent.items())),
            "absent_s": dict(sorted(self.absent_s.items())),
            "gaps_s": dict(sorted(self.gaps_s.items())),
            "names": sorted(self.names),
            "standing": sorted(self.standing),
            "here": self.here.state(),
            "falls": {name: list(times) for name, times in self.falls.items()},
            "limits": {name: limit.state() for name, limit in self.limits.items()},
        }

    def key(self) -> tuple[object, ...]:
        """The same for the same device."""
        return _key(self.node, self.type, self.index, self.name, self.port, self.source)

    def device(self) -> Device:
        """Where it is."""
        return Device(type=self.type, pci=self.pci, index=self.index, uuid=self.uuid, port=self.port)

    def is_accelerator(self) -> bool:
        """Whether it is a GPU, whoever made it."""
        return self.type in ACCELERATORS

    def begin(self, time_s: float) -> bool:
        """A sample of a moment; whether it is a new moment, not another part of the last one."""
        if self.first_s is None:
            self.first_s = time_s
        if self.here.last_s is not None and time_s <= self.here.last_s:
            return False
        self.names = set()
        self.xids_before, self.xids = self.xids, []
        return True

    def forget(self) -> None:
        """Another device stands in its place."""
        self.last.clear()
        self.absent.clear()
        self.absent_s.clear()
        self.gaps_s.clear()
        self.limits = {name: limit for name, limit in self.limits.items() if name == NAME_SHARED}
        self.fault = None
        self.codes, self.codes_before = [], []
        self.serial = None

    def limit(self, name: str) -> RateLimit:
        """The limit of one of its counters."""
        return self.limits.setdefault(name, RateLimit())

    def fell(self, name: str, time_s: float) -> bool:
        """A counter fell; whether it is told by now that it is no counter: it fell so often within a day."""
        times = [*self.falls.get(name, []), time_s][-_MOST_FALLS:]
        self.falls[name] = times
        return len(times) == _MOST_FALLS and times[-1] - times[0] <= _FALLS_S

    def is_no_counter(self, name: str, time_s: float) -> bool:
        """Whether a counter fell so often of late that its rises tell nothing."""
        times = self.falls.get(name, [])
        return len(times) == _MOST_FALLS and time_s - times[0] <= 2 * _FALLS_S and times[-1] - times[0] <= _FALLS_S

    def note_absent(self) -> None:
        """Count the moments that lack a value which was there."""
        if not self.absent and self.names == self.last.keys():
            return
        now_s = self.here.last_s or 0.0
        for name in self.last.keys() - self.names:
            if not name.startswith(_COME_AND_GO):
                self.absent[name] = self.absent.get(name, 0) + 1
                self.absent_s.setdefault(name, now_s)
        for name in [name for name, misses in self.absent.items() if name in self.names or misses > _FORGOTTEN]:
            since_s = self.absent_s.pop(name, now_s)
            if self.absent.pop(name) > _FORGOTTEN:
                self.last.pop(name, None)
            else:
                self.gaps_s[name] = max(self.gaps_s.get(name, 0.0), min(now_s - since_s, _LONGEST_GAP_S))

    def lost_names(self) -> set[str]:
        """Values that are gone for longer than they ever were, as of the last moment."""
        enough = 1 if (self.here.cadence_s or 0.0) >= PATIENCE_S else MISSES
        now_s = self.here.last_s or 0.0
        return {
            name
            for name, misses in self.absent.items()
            if misses >= enough and now_s - self.absent_s.get(name, 0.0) >= _LONGER * self.gaps_s.get(name, 0.0)
        }


def _key(
    node: str, kind: str, index: int | None, name: str | None, port: int | None, source: str
) -> tuple[object, ...]:
    if kind == NODE:
        return node, kind, source, port
    return node, kind, index if name is None else name, port


def key_of(sample: Sample) -> tuple[object, ...]:
    """The key of a sample's device."""
    return _key(sample.node, sample.type, sample.gpu, sample.name, sample.port, sample.source)


def watched_device(sample: Sample) -> DeviceState:
    """A device that is reported for the first time."""
    index = sample.gpu if sample.name is None and sample.type != NODE else None
    name = None if sample.type == NODE else sample.name
    return DeviceState(sample.node, sample.type, index, name, sample.port, sample.source, sample.uuid, sample.pci)


@dataclass(slots=True)
class NodeWatch:
    """A node's last moment: what was found of it so far, and which of its exporters speak.

    Attributes:
        fell: devices whose counters fell at this moment. rebooted_s: the moment that showed the last reboot.
        silenced: exporters that fell silent at this moment. is_silent: all but the node's BMC are silent.
    """

    time_s: float | None = None
    before_s: float | None = None
    is_open: bool = False
    fell: set[tuple[object, ...]] = field(default_factory=set)
    streams: dict[str, Presence] = field(default_factory=dict)
    silenced: set[str] = field(default_factory=set)
    is_silent: bool = False
    rebooted_s: float | None = None

    @staticmethod
    def of(saved: Mapping[str, Any]) -> "NodeWatch":
        """One of its state."""
        streams = {source: Presence(**one) for source, one in saved["streams"].items()}
        fell = {tuple(key) for key in saved["fell"]}
        return NodeWatch(**{**saved, "streams": streams, "fell": fell, "silenced": set(saved["silenced"])})

    def state(self) -> dict[str, Any]:
        """As plain JSON."""
        state = {name: getattr(self, name) for name in self.__slots__}
        streams = {source: one.state() for source, one in self.streams.items()}
        fell = sorted((list(key) for key in self.fell), key=repr)
        return {**state, "streams": streams, "fell": fell, "silenced": sorted(self.silenced)}

    def begin(self, time: datetime) -> None:
        """A sample of this moment comes. One of an earlier moment changes nothing."""
        time_s = time.timestamp()
        if self.time_s is None or time_s > self.time_s:
            self.before_s, self.time_s = self.time_s, time_s
        if time_s == self.time_s:
            self.is_open = True

    def close(self) -> None:
        """The moment is over."""
        self.is_open = False
        self.fell = set()
        self.silenced = set()

    def rebooted_now(self) -> bool:
        """Whether this moment shows a reboot."""
        return self.rebooted_s is not None and self.rebooted_s == self.time_s


def note_fault(one: DeviceState, finding: Finding, time: datetime) -> None:
    """Keep the first Xid that proves a fault of a device: what follows it is the same fault."""
    if finding.code is not None and one.fault is None and proven_xid(finding.code):
        since = time.astimezone(UTC).isoformat()
        told = [finding.attributes.get("after") or since, time.timestamp()] if finding.kind == "xid" else []
        one.fault = [finding.code, since, *told]

"""An exporter's page: many series of a few devices, made one telemetry event per device and scrape.

    mlu_chip_temperature{mlu="3",node="mlu-7",uuid="6ad0..."} 61
    mlu_power_usage{mlu="3",node="mlu-7",uuid="6ad0..."} 212
    -> Event(kind="telemetry", node="mlu-7", device=Device("mlu", index=3, uuid="6ad0..."),
             attributes={"gpu_temp_c": 61.0, "power_w": 212.0})

What each exporter calls its metrics is in `store/telemetry/measures.py`; where its labels say the device is, in its own
file. A device whose series comes a second time begins its next sample, so several scrapes may stand in one file.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from operator import attrgetter

from parsers.text.exposition import Point, read_point
from parsers.text.parser import Context, FormatSigns, ParseError
from parsers.text.stamp import Stamps
from store.records.event import Attribute, Device, Event
from store.records.fault_catalog import ShownCode, shown_codes, with_kind_meaning, with_shown_code
from store.records.telemetry import Sample
from store.telemetry.measures import Metric, find_metric

# More devices than one page can hold: a broken page must not eat the memory.
MAX_DEVICES = 1_000_000
# Series of one device in one scrape; more are left out.
MAX_SERIES = 4096
_LAST_XID = "xid_last"
# A count of one Xid in the exporter's window (`DCGM_FI_DEV_XID_ERRORS_ACTIVE{xid="79"}`).
_ACTIVE_XID = re.compile(r"xid_active_(\d{1,6})", re.ASCII)
_INSTANCE = re.compile(r"\d{1,4}", re.ASCII)


@dataclass(frozen=True, slots=True)
class SeriesDevice:
    """Where a series belongs.

    Attributes:
        device: the device.
        node: the host, where the labels name it.
        instance: the MIG instance or partition of the device that the value is of; empty for the device itself.
        about: attributes that tell the device from others (`name`, `dimm`) or describe it.
    """

    device: Device
    node: str | None = None
    instance: str = ""
    about: Mapping[str, Attribute] = field(default_factory=dict)

    def key(self) -> tuple[object, ...]:
        """The same for the same device."""
        device = self.device
        return device.type, device.uuid or device.index, device.port, self.about.get("name"), self.about.get("dimm")


@dataclass(frozen=True, slots=True)
class Exporter:
    """One exporter's ways.

    Attributes:
        source: its format's name, and its name in the table of metrics.
        prefixes: what its metrics' names begin with.
        place: where a series belongs; None for one of no device.
        value: a series' value, by default as it stands; None where the exporter's number says that there is none.
        optional_prefix: stands before its names in some versions, and is not in the table.
        apart_s: times of one device that lie apart by no more are one scrape.
    """

    source: str
    prefixes: tuple[str, ...]
    place: Callable[[Point, Context], SeriesDevice | None]
    value: Callable[[Point], float | None] = attrgetter("value")
    optional_prefix: str = ""
    apart_s: float = 0.0

    def signs(self) -> FormatSigns:
        """Which lines of a page count: its series."""
        return FormatSigns((), "|".join(self.prefixes))


@dataclass(slots=True)
class DeviceScrape:
    """A device whose values of one scrape are being gathered."""

    time: datetime | None
    node: str | None
    device: Device
    line: int
    about: dict[str, Attribute] = field(default_factory=dict)
    values: dict[str, float] = field(default_factory=dict)
    series: set[tuple[object, ...]] = field(default_factory=set)
    lent: set[str] = field(default_factory=set)  # values that are an instance's, until the device's own comes
    unknown: set[str] = field(default_factory=set)

    def see(self, place: SeriesDevice) -> None:
        """What the labels report of the device; not every series tells all."""
        known, reported = self.device, place.device
        if reported.pci not in (None, known.pci) or reported.uuid not in (None, known.uuid):
            self.device = replace(known, pci=reported.pci or known.pci, uuid=reported.uuid or known.uuid)
        if place.about:
            self.about.update(place.about)

    def put(self, name: str, value: float | None, metric: Metric, instance: str) -> None:
        """One more value. An instance's never replaces the device's own; a sum with an unknown part is unknown."""
        if metric.how == "sum":
            if value is None:
                self.unknown.add(name)
            self.values[name] = self.values.get(name, 0.0) + (value or 0.0)
        elif value is None:
            return
        elif instance and metric.how != "max":
            if not metric.of_instance and name not in self.values:
                self.values[name] = value
                self.lent.add(name)
        elif metric.how == "max":
            self.values[name] = max(value, self.values.get(name, value))
        elif name not in self.values or name in self.lent:
            self.values[name] = value
            self.lent.discard(name)

    def put_of_instance(self, name: str, value: float | None, instance: str) -> None:
        """An instance's own value: each has its own last Xid, and the first row's must not hide the others'."""
        if value is not None and _INSTANCE.fullmatch(instance):
            self.values[f"{name}_i{instance}"] = value

    def finished(self) -> bool:
        """Whether anything was measured; sums that are not known are taken off."""
        for name in self.unknown:
            self.values.pop(name, None)
        return bool(self.values)


class ScrapeGroups:
    """Gathers a page's series by device."""

    def __init__(self, exporter: Exporter, context: Context) -> None:
        self.exporter = exporter
        self._context = context
        self._stamps = Stamps(context)
        self._open: dict[tuple[object, ...], DeviceScrape] = {}
        self._series: dict[tuple[object, ...], tuple[object, ...]] = {}  # devices have the same ones: held once

    def add(self, text: str, line: int) -> Iterator[DeviceScrape]:
        """The device whose scrape this line ends, if it ends one.

        Raises:
            ParseError: the line is cut short or broken.
        """
        if not text.startswith(self.exporter.prefixes):
            return
        point = read_point(text, self._stamps)
        if point is not None:
            yield from self.take(point, line)

    def take(self, point: Point, line: int) -> Iterator[DeviceScrape]:
        """The device whose scrape this point ends, if it ends one.

        Raises:
            ParseError: there are too many devices.
        """
        metric = _metric(self.exporter, point.name)
        name = metric.named(point.labels) if metric else None
        place = self.exporter.place(point, self._context) if name else None
        if metric is None or name is None or place is None:
            return
        time = point.time if point.time is not None else self._context.until
        node = place.node or self._context.node
        series = (point.name, name, place.instance, *(sorted(point.labels.items()) if metric.how else ()))
        scraped = self._open.get((node, *place.key()))
        if scraped is not None and (series in scraped.series or self._apart(scraped.time, time)):
            if scraped.finished():
                yield scraped
            scraped = None
        if scraped is None:
            if len(self._open) >= MAX_DEVICES:
                raise ParseError(f"more than {MAX_DEVICES} devices on one page")
            scraped = self._open[node, *place.key()] = DeviceScrape(time, node, place.device, line)
        if len(scraped.series) < MAX_SERIES:
            if len(self._series) < MAX_SERIES:
                series = self._series.setdefault(series, series)
            value = self.exporter.value(point)
            scraped.series.add(series)
            scraped.see(place)
            scaled = None if value is None else value * metric.factor
            scraped.put(name, scaled, metric, place.instance)
            if place.instance and name == _LAST_XID:
                scraped.put_of_instance(name, scaled, place.instance)

    def drain(self) -> list[DeviceScrape]:
        """The devices still being gathered: a page is over when its input is."""
        gathered, self._open = self._open, {}
        return [scraped for scraped in gathered.values() if scraped.finished()]

    def _apart(self, one: datetime | None, other: datetime | None) -> bool:
        if one is None or other is None:
            return one is not other
        return abs((other - one).total_seconds()) > self.exporter.apart_s


class PageParser:
    """Decodes pages of one exporter. Holds the scrape being gathered, and the last codes of each device."""

    def __init__(self, exporter: Exporter, context: Context) -> None:
        self._gathering = ScrapeGroups(exporter, context)
        self._active_xids: dict[tuple[object, ...], frozenset[int]] = {}
        self._last_xids: dict[tuple[object, ...], float] = {}
        self._codes: dict[tuple[object, ...], frozenset[ShownCode]] = {}

    def feed(self, text: str, line: int) -> Iterable[Event]:
        """The events of the scrape that this line ends, if it ends one.

        Raises:
            ParseError: a metric of this exporter that is cut short or broken.
        """
        return [event for scraped in self._gathering.add(text, line) for event in self._events(scraped)]

    def flush(self) -> Iterable[Event]:
        """The events of what is still being gathered."""
        return [event for scraped in self._gathering.drain() for event in self._events(scraped)]

    def _events(self, scraped: DeviceScrape) -> Iterator[Event]:
        event = Event(
            time=scraped.time,
            node=scraped.node,
            source=self._gathering.exporter.source,
            kind="telemetry",
            device=scraped.device,
            attributes={**scraped.about, **scraped.values},
            line=scraped.line,
        )
        yield event
        words = dict.fromkeys(self._new_xids(scraped), "last Xid of this device is now")
        words |= dict.fromkeys(self._new_active(scraped), "newest Xids of this device include")
        for code, what in words.items():
            message = f"The {what} {code}; the kernel log tells more."
            yield with_kind_meaning(replace(event, kind="xid_hint", code=code, message=message, attributes={}))
        for shown in self._new_codes(scraped):
            yield with_shown_code(replace(event, kind=shown.kind, attributes={}), shown)

    def _new_codes(self, scraped: DeviceScrape) -> list[ShownCode]:
        """The fault codes of other vendors that the page before did not show; at first only those that must last."""
        device = (scraped.node, scraped.device.type, scraped.device.uuid or scraped.device.index)
        codes = shown_codes(scraped.values)
        before = self._codes.get(device)
        if before is not None or len(self._codes) < MAX_DEVICES:
            self._codes[device] = codes
        if before is None:
            return sorted(code for code in codes if code.stands())
        return sorted(codes - before)

    def _new_xids(self, scraped: DeviceScrape) -> list[int]:
        """The codes that the device's last Xids changed to. A gauge is sticky: what it showed first may be old."""
        codes: set[float] = set()
        for name, last in scraped.values.items():
            if not name.startswith(_LAST_XID):
                continue
            gauge = (scraped.node, scraped.device.type, scraped.device.uuid or scraped.device.index, name)
            before = self._last_xids.get(gauge)
            if before is not None or len(self._last_xids) < MAX_DEVICES:
                self._last_xids[gauge] = last
            if before is not None and last != before and 0 < last < 2**31:
                codes.add(last)
        return sorted(int(code) for code in codes)

    def _new_active(self, scraped: DeviceScrape) -> list[int]:
        """The codes that the exporter counts in its window of some minutes, and did not in the scrape before.

        No such series is there until the first Xid, and none that is old.
        """
        device = (scraped.node, scraped.device.type, scraped.device.uuid or scraped.device.index)
        found = (_ACTIVE_XID.fullmatch(name) for name, count in scraped.values.items() if count > 0)
        codes = frozenset(int(match[1]) for match in found if match)
        before = self._active_xids.pop(device, frozenset())
        if codes and len(self._active_xids) < MAX_DEVICES:
            self._active_xids[device] = codes
        return sorted(codes - before)


def _metric(exporter: Exporter, name: str) -> Metric | None:
    """What the tables say of a metric: that of the fields that an exporter reads, or that of its own metrics."""
    bare = name.removeprefix(exporter.optional_prefix)
    return find_metric(exporter.source, bare) or find_metric(f"{exporter.source}_exporter", bare)


def device_samples(exporters: Iterable[Exporter], text: str, context: Context) -> list[Sample]:
    """The samples of every device of a whole page; broken lines are left out.

    Lines without a time take `context.until`.

    Raises:
        ParseError: a sample bears no time, or no host, and the context names none.
    """
    gatherings = [ScrapeGroups(exporter, context) for exporter in exporters]
    done: list[tuple[DeviceScrape, str]] = []
    for line, raw in enumerate(text.splitlines(), start=1):
        for gathering in gatherings:
            if raw.startswith(gathering.exporter.prefixes):
                try:
                    done.extend((scraped, gathering.exporter.source) for scraped in gathering.add(raw, line))
                except ParseError:
                    continue  # a page cut short gives what was whole
    for gathering in gatherings:
        done.extend((scraped, gathering.exporter.source) for scraped in gathering.drain())
    return [_sample(scraped, source) for scraped, source in done]


def samples_of_points(exporter: Exporter, points: Iterable[Point], context: Context) -> list[Sample]:
    """The samples of every device of which some points tell, those of one moment one after the other.

    Raises:
        ParseError: as of `device_samples`, or there are too many devices.
    """
    gathering = ScrapeGroups(exporter, context)
    done = [scraped for number, point in enumerate(points, start=1) for scraped in gathering.take(point, number)]
    return [_sample(scraped, exporter.source) for scraped in (*done, *gathering.drain())]


def _sample(scraped: DeviceScrape, source: str) -> Sample:
    device = scraped.device
    if scraped.time is None or scraped.node is None:
        missing = "time: give Context.until" if scraped.time is None else "host: give Context.node"
        raise ParseError(f"the sample of {device.type.upper()} {device.index} bears no {missing}")
    name = scraped.about.get("name") if device.index is None else None
    return Sample(
        time=scraped.time,
        node=scraped.node,
        gpu=device.index or 0,
        values=scraped.values,
        uuid=device.uuid,
        pci=device.pci,
        type=device.type,
        name=None if name is None else str(name),
        port=device.port,
        source=source,
        serial=None if scraped.about.get("serial") is None else str(scraped.about["serial"]),
    )

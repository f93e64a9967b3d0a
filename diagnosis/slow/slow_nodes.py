"""A node that slows its job down: it stands out among the job's nodes while the job's steps take longer than before.

    note_slow(engine, now)
    note_slow(engine, now, shifted_alone=True)      # the jobs alone whose nodes told of a shift: every few seconds

Three things must be true. The job's step times have a change point (Pettitt's test) and are longer since. One GPU or
adapter of the node stands far from the median of its job's others of the same model, eight nodes or more, on a robust
scale (median absolute deviation). It lasts: its mean over the hour stands out too, not its newest value alone.
What many nodes show at once is nobody's. When the job's steps or the node's values are usual again, that is told.

A node whose sidecar tells that a measure left its own usual level (`measure_shift`, the source `rings`) is compared by
that value at once: the last minute lasts long enough, and the step times since that moment are held against those
before it (Mann and Whitney's test), which takes five steps where an unknown change point takes many.
"""

import hashlib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from fractions import Fraction
from functools import partial
from math import exp, log1p
from statistics import median
from typing import Any, TypeAlias

import msgspec
import sqlalchemy as sa

from diagnosis.incidents.intake import note_found
from store.events.event_pages import event_of
from store.plural import many
from store.records.event import Device, Event
from store.records.fault_catalog import counter, with_kind_meaning
from store.records.telemetry import DROPPING, RISING, gpu_index, hour_of
from store.runs.jobs import running_jobs
from store.tables import schema
from store.tables.bulk_rows import is_one_of
from store.tables.packed_hours import TOLD, PackedHours

KIND = "node_slow"
_SOURCE = "slow"
# Fewer nodes tell nothing of what is usual.
LEAST_NODES = 8
# Robust deviations from the median: of the newest value, and of the hour's mean.
_FAR, _FAR_MEAN = 6.0, 3.0
# No deviation is taken for less: the part of the median that healthy devices differ by, and the same of a logarithm.
_LEAST_PART, _LEAST_LOG = 0.01, 0.35
_LEAST_COUNT = 8
# A loss in step time below this is no matter of a node.
LEAST_LOSS = 0.03
_SURE = 0.001
_LEAST_STEPS, _MOST_STEPS, _MOST_ROWS, _PARTS = 20, 2_000, 40_000, 120
_REACH = timedelta(hours=6)
# A roll-up that is older says nothing of now; what was told is cleared within so long.
_FRESH = timedelta(minutes=90)
_TOLD = timedelta(days=2)
_MOST_OF_A_JOB = 3
# Of a shift: the steps before it that are compared, and the fewest since.
_BEFORE, _LEAST_SINCE = timedelta(minutes=30), 5
_SHIFT, _USUAL = "measure_shift", "measure_usual"
_SHIFTS_OF_NODE, _MOST_SHIFTS = 64, 100_000
_EVENTS, _TELEMETRY = schema.events, schema.telemetry

_GAUGE_WORDS = {
    "pcie_link_width": "a PCIe link of {:g} lanes",
    "pcie_link_gen": "a PCIe link of generation {:g}",
    "sm_clock_mhz": "an SM clock of {:.0f} MHz",
}
# Of each device and measure: min, max, mean, last, changes.
_Figures: TypeAlias = tuple[float | None, float | None, float | None, float | None, float | None]
_DEVICES = msgspec.json.Decoder(dict[str, dict[str, _Figures]])


@dataclass(frozen=True, slots=True)
class StepLoss:
    """Since when a job's steps take longer, and by which part of what they took."""

    since: datetime
    loss: float


@dataclass(frozen=True, slots=True)
class DeviceReading:
    """One measure of one device of a node within an hour: its newest value and its mean, or what it rose by."""

    node: str
    device: str
    last: float
    mean: float


@dataclass(frozen=True, slots=True)
class SlowDevice:
    """A device that stands out among those of its job."""

    reading: DeviceReading
    measure: str
    usual: float
    peers: int
    deviations: float

    def event(self, run: str, loss: StepLoss, now: datetime) -> Event:
        """What is told of it, once until it is over."""
        one = self.reading
        kind, _, name = one.device.partition(":")
        words = (
            f"{'GPU' if kind == 'gpu' else 'fabric adapter'} {name} stands out in {run}: {self._measured(one.last)}, "
            f"the median of {many(self.peers, 'other node')} is {self._measured(self.usual)}; "
            f"steps take {loss.loss:.0%} longer since {loss.since:%Y-%m-%d %H:%M} UTC"
        )
        attributes: dict[str, Any] = {
            "run": run,
            "measure": self.measure,
            "value": one.last,
            "usual": self.usual,
            "peers": self.peers,
            "deviations": round(self.deviations, 1),
            "loss": round(loss.loss, 4),
        }
        index = gpu_index(one.device)
        device = Device("hca") if index is None else Device("gpu", index=index)
        if device.type == "hca":
            attributes["hca"] = name.partition("/")[0]
        what = f"{self.measure} {one.device} {now.isoformat()}"
        return with_kind_meaning(_event(one.node, device, words, attributes, now, what))

    def _measured(self, value: float) -> str:
        """A value of its measure in the trade's words: "SM clock 1200 MHz", "12 more PCIe replays"."""
        known = counter(self.measure, self.reading.device.partition(":")[0])
        return known.rise(value) if known else _GAUGE_WORDS.get(self.measure, f"{self.measure} {{:g}}").format(value)


def step_loss(steps: Sequence[tuple[datetime, float]]) -> StepLoss | None:
    """The change point of step times, the oldest first, where they take longer since; None where there is none."""
    if len(steps) < _LEAST_STEPS:
        return None
    parts = _in_parts(steps)
    values = [value for _, value in parts]
    place, strength = _pettitt(values)
    count = len(values)
    if 2 * exp(-6 * strength**2 / (count**3 + count**2)) > _SURE:
        return None
    before, after = median(values[:place]), median(values[place:])
    newest = median(values[-max(3, (count - place) // 3) :])
    loss = min(after, newest) / before - 1 if before > 0 else 0.0
    return StepLoss(parts[place][0], loss) if loss >= LEAST_LOSS else None


def loss_since(steps: Sequence[tuple[datetime, float]], moment: datetime) -> StepLoss | None:
    """The loss of a job's steps since a moment, against the half an hour before it; None where there is none."""
    from scipy.stats import mannwhitneyu  # type: ignore[import-untyped]  # a fifth of a server's start

    before = [took for time, took in steps if moment - _BEFORE <= time < moment]
    since = [took for time, took in steps if time >= moment]
    if len(before) < _LEAST_STEPS or len(since) < _LEAST_SINCE:
        return None
    if mannwhitneyu(since, before, alternative="greater", method="asymptotic").pvalue > _SURE:
        return None
    usual = median(before)
    loss = median(since) / usual - 1 if usual > 0 else 0.0
    return StepLoss(moment, loss) if loss >= LEAST_LOSS else None


Loss: TypeAlias = Callable[[Sequence[tuple[datetime, float]]], StepLoss | None]


def job_loss(steps: Mapping[str, Sequence[tuple[datetime, float]]], judge: Loss = step_loss) -> StepLoss | None:
    """What a job loses, by what its nodes tell of its steps: most of those that tell enough must say so.

    All ranks of synchronous training have the same steps: one node that tells otherwise is outvoted where three tell,
    and where two do, nothing is told. Often rank 0 alone tells; then its node has the word.
    """
    found = [judge(own) for own in steps.values() if len(own) >= _LEAST_STEPS]
    losses = sorted((one for one in found if one is not None), key=lambda one: one.loss)
    return losses[(len(losses) - 1) // 2] if 2 * len(losses) > len(found) else None


def _in_parts(steps: Sequence[tuple[datetime, float]]) -> list[tuple[datetime, float]]:
    """At most so many medians: a change point costs the square."""
    size = -(-len(steps) // _PARTS)
    groups = [steps[start : start + size] for start in range(0, len(steps), size)]
    return [(group[0][0], median(value for _, value in group)) for group in groups]


def _pettitt(values: Sequence[float]) -> tuple[int, int]:
    """Where values change most, and how strongly by ranks (Pettitt 1979)."""
    place, strength, total = 1, 0, 0
    for number in range(len(values) - 1):
        total += sum((other > values[number]) - (other < values[number]) for other in values)
        if total > strength:
            place, strength = number + 1, total
    return place, strength


def slow_devices(readings: Mapping[str, Sequence[DeviceReading]]) -> list[SlowDevice]:
    """The devices that stand out among a job's, one a node; none where too many nodes do. `readings` by measure."""
    found: dict[str, SlowDevice] = {}
    for measure in (*DROPPING, *RISING):
        for one in _of_measure(measure, readings.get(measure, ())):
            known = found.get(one.reading.node)
            if known is None or (known.measure == measure and known.deviations < one.deviations):
                found[one.reading.node] = one
    return sorted(found.values(), key=lambda one: -one.deviations) if len(found) <= _MOST_OF_A_JOB else []


def _of_measure(measure: str, readings: Sequence[DeviceReading]) -> list[SlowDevice]:
    nodes = {one.node for one in readings}
    if len(nodes) < LEAST_NODES:
        return []
    is_low = measure in DROPPING
    devices = Counter(one.node for one in readings)
    shares = [Fraction(1, devices[one.node]) for one in readings]  # a node that tells of many devices has one voice
    last = _deviations([one.last for one in readings], shares, is_low)
    mean = _deviations([one.mean for one in readings], shares, is_low)
    usual = _middle([one.last for one in readings], shares)
    return [
        SlowDevice(one, measure, usual, len(nodes) - 1, far)
        for one, far, far_mean in zip(readings, last, mean, strict=True)
        if far >= _FAR and far_mean >= _FAR_MEAN and (is_low or one.last >= _LEAST_COUNT)
    ]


def _middle(values: Sequence[float], shares: Sequence[Fraction]) -> float:
    """The weighted median: `statistics.median` where all shares are equal."""
    half, below = sum(shares) / 2, Fraction(0)
    ordered = sorted(zip(values, shares, strict=True))
    place = 0
    while (below := below + ordered[place][1]) < half:
        place += 1
    return ordered[place][0] if below > half else (ordered[place][0] + ordered[place + 1][0]) / 2


def _deviations(values: Sequence[float], shares: Sequence[Fraction], is_low: bool) -> list[float]:
    """How many robust deviations each is on the slow side of the median."""
    scaled = list(values) if is_low else [log1p(max(0.0, value)) for value in values]
    middle = _middle(scaled, shares)
    least = abs(middle) * _LEAST_PART if is_low else _LEAST_LOG
    spread = max(least, 1.4826 * _middle([abs(value - middle) for value in scaled], shares))
    sign = -1.0 if is_low else 1.0
    return [sign * (value - middle) / spread if spread else 0.0 for value in scaled]


def watch_nodes(connection: sa.Connection, now: datetime, *, shifted_alone: bool = False) -> list[Event]:
    """The nodes that slow a running job down as of a moment, and those that did and do no longer, as events."""
    shifts = _shifts(connection, now)
    if shifted_alone and not shifts:
        return []
    found: list[Event] = []
    told = _last_reports(connection, now)
    looked_at: set[str] = set()
    standing: set[tuple[str, str]] = set()
    for _job, run, nodes in running_jobs(connection, now):
        if shifted_alone and shifts.keys().isdisjoint(nodes):
            continue
        looked_at.add(run)
        for one, loss in _slow_of_job(connection, run, nodes, shifts, now):
            place = one.reading.node, run
            standing.add(place)
            if place not in told:
                found.append(one.event(run, loss, now))
    over = [place for place in told if place not in standing and (place[1] in looked_at or not shifted_alone)]
    return found + [_over(told[place], now) for place in over]


def note_slow(engine: sa.Engine, now: datetime, *, shifted_alone: bool = False) -> int:
    """Store who slows a job down at a moment, and who does no longer; returns how much of it is new."""
    return note_found(engine, partial(watch_nodes, now=now, shifted_alone=shifted_alone), now)


@dataclass(frozen=True, slots=True)
class ShiftReading:
    """A measure of a device that stands far from its own usual level, and since when."""

    reading: DeviceReading
    since: datetime


# Of each node that told of shifts of late those that stand, by measure; none where all are over.
_Shifts: TypeAlias = Mapping[str, Mapping[str, ShiftReading]]


def _slow_of_job(
    connection: sa.Connection, run: str, nodes: Sequence[str], shifts: _Shifts, now: datetime
) -> Iterable[tuple[SlowDevice, StepLoss]]:
    """The devices that slow one job down, and what it loses."""
    if len(nodes) < LEAST_NODES:
        return
    steps = _steps(connection, run, nodes, now)
    loss = job_loss(steps)
    if loss is None and not any(shifts.get(node) for node in nodes):
        return
    for group in _by_model(connection, nodes):
        readings = _with_shifts(_readings(connection, group, now), shifts)
        for one in slow_devices(readings):
            shifted = shifts.get(one.reading.node, {}).get(one.measure)
            own = loss or (job_loss(steps, partial(loss_since, moment=shifted.since)) if shifted else None)
            if own is not None:
                yield one, own


def _with_shifts(readings: Mapping[str, Sequence[DeviceReading]], shifts: _Shifts) -> dict[str, list[DeviceReading]]:
    """The readings, with those that shifted in the place of the same devices' of the hour."""
    found = {}
    for measure, known in readings.items():
        nodes = sorted({one.node for one in known})
        own = [shifts[node][measure].reading for node in nodes if measure in shifts.get(node, {})]
        places = {(one.node, one.device) for one in own}
        found[measure] = [one for one in known if (one.node, one.device) not in places] + own
    return found


def _shifts(connection: sa.Connection, now: datetime) -> _Shifts:
    """What nodes told of late of measures that left their usual level: of each the newest, as many as of any other."""
    table = _EVENTS.c
    place = sa.func.row_number().over(partition_by=table.node, order_by=table.time.desc()).label("place")
    told = (
        sa.select(table.node, table.kind, table.time, table.attributes, place)
        .where(table.kind.in_((_SHIFT, _USUAL)), table.time > now - _FRESH, table.time <= now)
        .where(table.node.is_not(None))
        .subquery()
    )
    query = sa.select(told).where(told.c.place <= _SHIFTS_OF_NODE).order_by(told.c.place).limit(_MOST_SHIFTS)
    newest: dict[str, dict[tuple[str, str], Any]] = defaultdict(dict)
    for row in connection.execute(query):
        newest[row.node].setdefault((str(row.attributes.get("of")), str(row.attributes.get("measure"))), row)
    return {node: _standing(node, rows) for node, rows in newest.items()}


def _standing(node: str, rows: Mapping[tuple[str, str], Any]) -> dict[str, ShiftReading]:
    found: dict[str, ShiftReading] = {}
    for (device, measure), row in rows.items():
        value, seconds = row.attributes.get("value"), row.attributes.get("seconds")
        if row.kind == _SHIFT and type(value) in (int, float) and type(seconds) is int:
            since = row.time - timedelta(seconds=min(abs(seconds), 3600))
            found.setdefault(measure, ShiftReading(DeviceReading(node, device, value, value), since))
    return found


def _steps(
    connection: sa.Connection, run: str, nodes: Sequence[str], now: datetime
) -> dict[str, list[tuple[datetime, float]]]:
    """The step times that each node of a job told, the oldest first: the newest ones, the same number of each node.

    Others' word of the run is not heard, and no node takes another's room.
    """
    columns = _EVENTS.c
    place = sa.func.row_number().over(partition_by=columns.node, order_by=columns.time.desc()).label("place")
    told = (
        sa.select(columns.node, columns.time, columns.attributes, place)
        .where(columns.run == run, columns.kind == "iteration", columns.time > now - _REACH, columns.time <= now)
        .where(is_one_of(connection, columns.node, nodes))
        .subquery()
    )
    query = sa.select(told).where(told.c.place <= _MOST_STEPS).order_by(told.c.place).limit(_MOST_ROWS)
    found: dict[str, list[tuple[datetime, float]]] = defaultdict(list)
    for row in connection.execute(query):
        took = row.attributes.get("elapsed_ms")
        if isinstance(took, int | float) and took > 0:
            found[row.node].append((row.time, float(took)))
    return {node: steps[::-1] for node, steps in found.items()}


def _by_model(connection: sa.Connection, nodes: Sequence[str]) -> list[list[str]]:
    """A job's nodes by the model of their GPUs."""
    table = schema.nodes.c
    query = sa.select(table.node, table.gpu_model).where(is_one_of(connection, table.node, nodes))
    groups: dict[str | None, list[str]] = defaultdict(list)
    for row in connection.execute(query):
        groups[row.gpu_model].append(row.node)
    return [sorted(group) for group in groups.values() if len(group) >= LEAST_NODES]


def _readings(connection: sa.Connection, nodes: Sequence[str], now: datetime) -> dict[str, list[DeviceReading]]:
    """The newest roll-up's values of some nodes, by measure."""
    table = _TELEMETRY.c
    query = (
        sa.select(table.node, table.time, sa.cast(table.devices, sa.Text).label("devices"), table.packed)
        .where(table.time >= hour_of(now - _FRESH), table.time <= now, is_one_of(connection, table.node, nodes))
        .where(TOLD)
        .order_by(table.time.desc())
    )
    found: dict[str, list[DeviceReading]] = defaultdict(list)
    seen: set[str] = set()
    hours = PackedHours(connection)
    with connection.execute(query.execution_options(yield_per=500)) as rows:
        for row in rows:
            if row.node in seen:
                continue
            try:
                devices = _DEVICES.decode(hours.text(row.time, row.devices, row.packed) or "")
            except msgspec.MsgspecError:
                continue
            seen.add(row.node)
            for device, measures in devices.items():
                for name in (*DROPPING, *RISING):
                    if (one := _reading(row.node, device, name, measures.get(name))) is not None:
                        found[name].append(one)
    return found


def _reading(node: str, device: str, measure: str, figures: _Figures | None) -> DeviceReading | None:
    if figures is None:
        return None
    low, high, mean, last, changes = figures
    if low is None or high is None or mean is None or last is None or changes is None:
        return None
    if measure in DROPPING:
        return DeviceReading(node, device, last, mean)
    # A counter that jumped once is an occasion; one that goes on rises again and again.
    rose = high - low
    return DeviceReading(node, device, rose, rose if changes >= 2 else 0.0)


def _last_reports(connection: sa.Connection, now: datetime) -> dict[tuple[str, str], Event]:
    """Of each node and run what was told last, where it is not over."""
    query = sa.select(_EVENTS).where(_EVENTS.c.kind == KIND, _EVENTS.c.time > now - _TOLD, _EVENTS.c.time <= now)
    newest: dict[tuple[str, str], Event] = {}
    for row in connection.execute(query.order_by(_EVENTS.c.time)):
        event = event_of(row)
        if event.node is not None and event.source == _SOURCE:
            newest[event.node, event.run() or ""] = event
    return {place: event for place, event in newest.items() if event.severity != "info"}


def _over(told: Event, now: datetime) -> Event:
    kept = {key: told.attributes[key] for key in ("run", "measure", "hca") if key in told.attributes}
    words = f"{told.device.words()} slows its job down no longer"
    return with_kind_meaning(_event(told.node or "", told.device, words, kept, now, f"over {told.id}"), "over")


def _event(node: str, device: Device, words: str, attributes: dict[str, Any], now: datetime, what: str) -> Event:
    ident = hashlib.blake2b(f"{KIND} {node} {attributes.get('run')} {what}".encode(), digest_size=12).hexdigest()
    return Event(
        time=now, node=node, source=_SOURCE, kind=KIND, device=device, message=words, attributes=attributes, id=ident
    )

"""Ports that go down again and again: counted with what is long past forgotten, and told as a fault of their own.

    events = watch_ports(connection, now)

A link that was up again in six seconds is no fault that lasts, and a fault that comes back every hour is none that is
over. Each loss counts 1 and half as much after every `_HALF_LIFE`; a port whose count is `CHRONIC` or more is a
flapper. Losses that have a reason of their own do not count: the port was shut on purpose, its node rebooted, or many
ports of the node or the switch went at the same moment, which is a matter of what they share.
"""

import hashlib
import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

import sqlalchemy as sa

from diagnosis.graph.device_graph import DeviceGraph
from diagnosis.graph.place import Place
from diagnosis.graph.stored_graph import read_graph
from diagnosis.incidents.intake import note_found
from diagnosis.symptoms.event_place import place_of_event
from diagnosis.symptoms.meaning import meaning_of
from diagnosis.symptoms.switch_notices import SwitchNotices, at_place, link_place
from store.events.event_pages import EventWindow, read_events
from store.records.event import Attribute, Device, Event
from store.records.fault_catalog import with_kind_meaning
from store.tables import schema

KIND = "port_flapping"
# Lines that tell of links, of work on them, and of reboots.
_LOSSES = ("link_down", "net_link", "ib_port", "port_removed", "carrier_change", "mlx5_module_unplugged")
_RETURNS = ("link_up", "port_discovered")
_NOTICES = ("link_state_change", "smp_timeout", "switch_down", "switch_up")
_ON_PURPOSE = ("port_disabled",)
_REBOOTS = ("node_reboot", "switch_reboot")
_KINDS = (*_LOSSES, *_RETURNS, *_NOTICES, *_ON_PURPOSE, *_REBOOTS)
_HALF_LIFE = timedelta(hours=12)
# Four losses in an hour or two, or eight in a day.
CHRONIC = 4.0
REACH = timedelta(days=3)
# Both ends, and all that watch them, tell a loss within this time.
_SAME_LOSS = timedelta(seconds=3)
# So many ports of one node or switch within a moment: of what they share.
_MANY, _MOMENT = 3, timedelta(seconds=2)
_AROUND_WORK = timedelta(minutes=1)
_BEFORE_BOOT, _AFTER_BOOT = timedelta(minutes=10), timedelta(minutes=2)
# Of one look; more are no matter of ports.
_MOST_FLAPPERS = 200
_PART = 500


@dataclass(slots=True)
class PortLosses:
    """The losses of one link, in the order of time, and the last event that told one."""

    times: list[datetime] = field(default_factory=list)
    last: Event | None = None

    def score(self, now: datetime) -> float:
        """How many losses there are, long past ones forgotten."""
        return sum(math.exp2(-((now - time) / _HALF_LIFE)) for time in self.times if time <= now)


def watch_ports(connection: sa.Connection, now: datetime, keep_on: Callable[[], bool] = lambda: True) -> list[Event]:
    """The chronic flappers as of a moment, as events; their ids are those of the day.

    `keep_on` is asked every `_PART` events, of which a flood brings hundreds of thousands: False ends it with nothing.
    """
    window = EventWindow(since=now - REACH, until=now + timedelta(microseconds=1))
    graph = read_graph(connection, now)
    try:
        losses = port_losses(_while(keep_on, read_events(connection, window, kinds=_KINDS)), graph)
    except _LookError:
        return []
    found = [(own.score(now), place, own) for place, own in losses.items()]
    flappers = sorted((one for one in found if one[0] >= CHRONIC), key=lambda one: (-one[0], one[1]))
    return [_event(place, own, score, now) for score, place, own in flappers[:_MOST_FLAPPERS]]


class _LookError(Exception):
    """Whoever asked does not want to go on."""


def _while(keep_on: Callable[[], bool], events: Iterable[Event]) -> Iterator[Event]:
    for number, event in enumerate(events, start=1):
        if not number % _PART and not keep_on():
            raise _LookError
        yield event


def note_flappers(engine: sa.Engine, now: datetime, keep_on: Callable[[], bool] = lambda: True) -> int:
    """Store who flaps at a moment, for the incidents to come; returns how many of them are new today."""
    return note_found(engine, lambda connection: watch_ports(connection, now, keep_on), now)


def note_last_flappers(engine: sa.Engine) -> int:
    """The same at the end of an archive that tells of links; returns how much was found."""
    table = schema.events
    with engine.connect() as connection:
        last = connection.scalar(sa.select(sa.func.max(table.c.time)).where(table.c.kind.in_(_LOSSES + _NOTICES)))
    return 0 if last is None else note_flappers(engine, last)


def port_losses(events: Iterable[Event], graph: DeviceGraph) -> dict[Place, PortLosses]:
    """The losses of each link that have no reason of their own; `events` in the order of time."""
    notices = SwitchNotices(graph)
    found: dict[Place, PortLosses] = defaultdict(PortLosses)
    work: dict[Place, list[datetime]] = defaultdict(list)
    boots: dict[str, list[datetime]] = defaultdict(list)
    for event in events:
        if event.time is None:
            continue
        place = link_place(place_of_event(event, graph), graph)
        if event.kind in _REBOOTS:
            boots[event.node or place.name].append(event.time)
        elif event.kind in _ON_PURPOSE or (event.kind == "link_down" and event.severity == "info"):
            work[place].append(event.time)
        else:
            meaning = at_place(event, meaning_of(event), place)
            if not notices.take(event, event.time, place, meaning) and meaning.symptom == "link_down":
                _add(found[place], event.time, event)
    for place, times in notices.falls().items():
        for time in times:
            _add(found[place], time, None)
    _leave_out(found, graph, work, boots)
    return {place: own for place, own in found.items() if own.times}


def _add(own: PortLosses, time: datetime, event: Event | None) -> None:
    own.last = event or own.last
    if not own.times or time - own.times[-1] > _SAME_LOSS:
        own.times.append(time)


def _leave_out(
    found: Mapping[Place, PortLosses],
    graph: DeviceGraph,
    work: Mapping[Place, Sequence[datetime]],
    boots: Mapping[str, Sequence[datetime]],
) -> None:
    """Take away what has a reason of its own."""
    owners = {place: _owners(place, graph) for place in found}
    shared: dict[str, list[datetime]] = defaultdict(list)
    for place, own in found.items():
        for owner in owners[place]:
            shared[owner] += own.times
    together = {owner: _together(sorted(times)) for owner, times in shared.items()}
    for place, own in found.items():
        booted = [at for owner in owners[place] for at in boots.get(owner, ())]
        own.times = [
            time
            for time in own.times
            if not any(abs(time - then) <= _AROUND_WORK for then in work.get(place, ()))
            and not any(time in together[owner] for owner in owners[place])
            and not any(-_AFTER_BOOT <= at - time <= _BEFORE_BOOT for at in booted)
        ]


def _owners(place: Place, graph: DeviceGraph) -> list[str]:
    """The node and the switches at the ends of a link."""
    found = dict.fromkeys([node] if (node := graph.node_of(place)) is not None else [])
    if place.kind in ("nic", "port") and "/" in place.name:
        found[place.name.partition("/")[0]] = None
    far = graph.far_end(place)
    if far is not None and far.kind == "port":
        found[far.name.partition("/")[0]] = None
    return list(found)


def _together(times: Sequence[datetime]) -> set[datetime]:
    """The moments at which many links of one owner went."""
    found: set[datetime] = set()
    begin = 0
    for place, time in enumerate(times):
        while time - times[begin] > _MOMENT:
            begin += 1
        if place - begin + 1 >= _MANY:
            found.update(times[begin : place + 1])
    return found


def _event(place: Place, own: PortLosses, score: float, now: datetime) -> Event:
    """What is told of a flapper: once a day, and again on a day on which it still flaps."""
    last, count = own.last, len(own.times)
    attributes: dict[str, Attribute] = {"count": count, "score": round(score, 2), "link": place.name}
    device, node = Device(type="port"), None
    if last is not None:
        device, node = last.device, last.node
        attributes |= {name: last.attributes[name] for name in ("hca", "switch", "name") if name in last.attributes}
    elif place.kind == "port":
        switch, _, port = place.name.rpartition("/")
        attributes["switch"] = switch
        device = Device(type="port", port=int(port) if port.isdecimal() else None)
    words = f"The link of {place.name} went down {count} times in {REACH.days} days, and came back each time"
    ident = hashlib.blake2b(f"{KIND} {place.kind} {place.name} {now:%Y-%m-%d}".encode(), digest_size=12).hexdigest()
    source = last.source if last is not None else "opensm"
    event = Event(now, node, source, KIND, device=device, message=words, attributes=attributes, id=ident)
    return with_kind_meaning(event)

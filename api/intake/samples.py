"""Samples that others send, as a sidecar has them of what it scrapes: roll-ups of each hour, events of what changed.

    samples = own_samples(caller, points, now, rejected)     # of each node that the caller speaks for
    take_samples(state, samples, rejected)                    # stored when it returns

What is known of a node (where counters stood, its open hour) is a row of the database, held and written in the one
transaction that writes what its samples told. So any server may take the next ones, and the same again tells nothing.
"""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from typing import Any

import sqlalchemy as sa

from api.edge.auth import Caller
from api.edge.work_budget import counted, limited
from api.intake.entries import Rejected, check_age, check_name, count_rejected, own_node, rejection
from api.intake.otlp_metrics import MetricPoint
from api.intake.records import append_judged, tell_new, with_own_table
from api.server.state import State
from collectors.telemetry.samples import NodeSamples
from parsers.otlp_points import node_of, point_of, samples_of
from parsers.text.exposition import Point
from parsers.text.parser import ParseError
from store.database.connections import transact
from store.database.partitions import ensure_days
from store.events.append import note_seen
from store.records.event import Event, RecordError, check_time
from store.records.telemetry import Rollup, Sample
from store.telemetry.device_watches import renew_states
from store.telemetry.hours import append_rollups

_log = logging.getLogger(__name__)
ORIGIN = "otlp"
# Of one body: nodes, and of each of them devices (those of its former bodies count) and moments. A collector's batch
# of 8,192 points is some fifty nodes.
MOST_NODES, MOST_DEVICES, MOST_MOMENTS = 2_000, 1_024, 120
# One sample that lies ahead makes all that come until then old ones of its device.
_MOST_AHEAD = timedelta(minutes=5)
_LATE = "it is older than what is known of its device: let one sender tell of a node, in order, by a clock that is set"
# Loopback and addresses are no node's name.
_NO_NAME = "no attribute names the host: set k8s.node.name or host.name (docs/opentelemetry.md)"


def own_samples(
    caller: Caller, points: Iterable[MetricPoint], now: datetime, rejected: list[Rejected]
) -> dict[str, list[Sample]]:
    """The samples of each node that the caller speaks for; what does not fit is rejected point by point.

    Raises:
        Problem: 413, there are too many points, or they take too much work; 429, too many of one node.
    """
    of_nodes: dict[str, list[Point]] = {}
    latest = max(now, datetime.now(UTC)) + _MOST_AHEAD
    for entry in limited(points):
        try:
            point = _point(entry, now)
            if point is None:
                continue
            node = _node(caller, entry, point)
            _check_moment(caller, entry.time or now, latest)
            _room(of_nodes, node).append(point)
        except (RecordError, ParseError) as error:
            rejected.append(
                rejection(entry.number, error if isinstance(error, RecordError) else RecordError(str(error)))
            )
    found: dict[str, list[Sample]] = {}
    with counted() as look:
        for node in list(of_nodes):
            samples, wrong = samples_of(of_nodes.pop(node), node, now, look)
            rejected += [Rejected(0, sentence) for sentence in wrong]
            found[node] = _within_bounds(samples, rejected, look)
            caller.count([node] * len(found[node]))
    return {node: samples for node, samples in found.items() if samples}


def _point(entry: MetricPoint, now: datetime) -> Point | None:
    """The point of a page that a data point is; None for one that no table knows.

    Raises:
        RecordError: it is broken. ParseError: it names no device.
    """
    if entry.error is not None:
        raise RecordError(entry.error)
    return point_of(entry.metric, entry.labels, entry.value, entry.time or now)


def _room(of_nodes: dict[str, list[Point]], node: str) -> list[Point]:
    """The points of a node.

    Raises:
        RecordError: it is one node too many.
    """
    if node not in of_nodes and len(of_nodes) >= MOST_NODES:
        raise RecordError(f"the body tells of over {MOST_NODES} nodes: send it in parts")
    return of_nodes.setdefault(node, [])


def _within_bounds(samples: Iterable[Sample], rejected: list[Rejected], look: Callable[[], None]) -> list[Sample]:
    """A node's samples, as many as any real one has."""
    devices: set[str] = set()
    moments: set[datetime] = set()
    kept: list[Sample] = []
    for sample in samples:
        look()
        device = sample.device_name()
        is_device_too_many = device not in devices and len(devices) >= MOST_DEVICES
        if is_device_too_many or (sample.time not in moments and len(moments) >= MOST_MOMENTS):
            text = f"{MOST_DEVICES} devices and {MOST_MOMENTS} moments of a node are the most: send it in parts"
            rejected += [Rejected(0, text)] * len(sample.values)
            continue
        devices.add(device)
        moments.add(sample.time)
        kept.append(sample)
    return kept


def _node(caller: Caller, entry: MetricPoint, point: Point) -> str:
    """The node of a point, by the name that the inventory has.

    What an operator's processor says of a Kubernetes node counts first, then the exporter's own label, the resource's
    host, and the name by which a target was scraped.

    Raises:
        RecordError: none is named, it is no node's name, or another's than the caller speaks for.
    """
    above = entry.above
    names = (above.get("k8s.node.name"), node_of(point), above.get("host.name"), _target(above))
    name = next(filter(None, names), None)
    if name is None:
        raise RecordError(f"{entry.metric}: {_NO_NAME}")
    check_name("node", name)
    return own_node(caller, name)


def _target(above: Mapping[str, str]) -> str | None:
    """The host of what was scraped, where it is a name."""
    host = above.get("server.address") or above.get("service.instance.id", "").rpartition(":")[0]
    try:
        ip_address(host.strip("[]"))
    except ValueError:
        return None if host in ("", "localhost") else host
    return None


def _check_moment(caller: Caller, moment: datetime, latest: datetime) -> None:
    check_time("time", moment)
    if moment > latest:
        raise RecordError("'time' lies in the future: set the node's clock")
    check_age(caller, moment)


@dataclass(slots=True)
class _Findings:
    """What samples tell of their nodes, and which were left out."""

    events: list[Event] = field(default_factory=list)
    rollups: list[Rollup] = field(default_factory=list)
    rejected: list[Rejected] = field(default_factory=list)


def take_samples(state: State, samples: Mapping[str, Sequence[Sample]], rejected: list[Rejected]) -> None:
    """Store what samples tell; `rejected` is counted, and what is left out for what is known of its node comes to it.

    Raises:
        Problem: 413, they take too much work; 503, nobody waits for it any more. Nothing is stored then.
    """
    count_rejected(state.metrics, "metrics", rejected)
    if not samples:
        return
    received = state.clock()
    days = {received.date(), *(sample.time.date() for ours in samples.values() for sample in ours)}
    ensure_days(state.engine, with_own_table(days, received), ("events", "telemetry"), now=received)

    def work(connection: sa.Connection) -> tuple[Sequence[Event], int, list[Rejected]]:
        told = _followed(state, connection, samples, received)
        new, faults = append_judged(state, connection, told.events, received)
        append_rollups(connection, told.rollups, received=received)
        note_seen(connection, new, received)
        return new, faults, told.rejected

    new, faults, left_out = transact(state.engine, work)
    count_rejected(state.metrics, "metrics", left_out)
    rejected += left_out
    if faults:
        state.faults.set()
    state.news.set()
    tell_new(state, new)


def _followed(
    state: State, connection: sa.Connection, samples: Mapping[str, Sequence[Sample]], received: datetime
) -> _Findings:
    """What the samples tell of their nodes, by what was known of them; and what is known now is written."""
    told = _Findings()
    with counted() as look:

        def renewed(node: str, saved: Mapping[str, Any]) -> Mapping[str, Any]:
            look()
            known = _node_samples(state, node, saved)
            events, rollups = known.take(samples[node], received, look)
            told.events += events
            told.rollups += rollups
            full = f"{MOST_DEVICES} devices of a node are the most, over all that it sent: leave out what are none"
            told.rejected += [Rejected(0, full)] * known.beyond + [Rejected(0, _LATE)] * known.late
            return known.state()

        renew_states(connection, samples, received, renewed)
    return told


def _node_samples(state: State, node: str, saved: Mapping[str, Any]) -> NodeSamples:
    """What is known of a node; nothing, where another version wrote it in a way that this one cannot read."""
    try:
        return NodeSamples(ORIGIN, MOST_DEVICES, saved)
    except (AttributeError, KeyError, TypeError, ValueError):
        _log.warning("the stored state of node %s cannot be read: its counters begin anew", node, exc_info=True)
        state.metrics.unread_states.inc()
        return NodeSamples(ORIGIN, MOST_DEVICES)

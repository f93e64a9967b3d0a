"""How the devices of one node stand now, worst first, each with what speaks for its state.

[NodeDevice(device="GPU 3", state="degraded", probabilities={...}, since=..., why="12 ...")]
"""

from dataclasses import dataclass
from datetime import datetime

import numpy as np
import sqlalchemy as sa

from predictor.devices.filter import FAILING, HEALTHY, STATES
from predictor.devices.states import WINDOW_MS, DeviceStates, device_states
from predictor.history.arrays import (
    DAY_MS,
    FAR_FUTURE_MS,
    FAR_PAST_MS,
    GAUGE_GAP_MS,
    HOUR_MS,
    FleetArrays,
    OutageLog,
    Precursors,
    Rows,
    from_ms,
    to_ms,
)
from predictor.history.families import FAMILIES
from predictor.history.store_reader import read_precursors
from store.nodes.inventory import read_outages
from store.nodes.repairs import repair_of, repair_place
from store.plural import many
from store.records.outage import Outage

# A device that is healthy with this probability is not worth a line.
SURELY_HEALTHY = 0.99
MOST = 32
_OWN = "node"


@dataclass(frozen=True, slots=True)
class NodeDevice:
    """One device. `probabilities` add up to 1; `since` is None where nothing but quiet time led to its state."""

    device: str
    state: str
    probabilities: dict[str, float]
    since: datetime | None
    why: str


def node_devices(connection: sa.Connection, node: str, at: datetime) -> list[NodeDevice]:
    """The devices of a node that are not surely healthy, at most MOST: a pure reading of 28 days of it alone."""
    at_ms = to_ms(at)
    events = read_precursors(connection, _alone(node), (at_ms - WINDOW_MS - GAUGE_GAP_MS - HOUR_MS, at_ms), [node])
    outages = read_outages(connection, until=at, node=node)
    row = Rows(np.zeros(1, dtype=np.int64), np.array([at_ms], dtype=np.int64))
    found = device_states(events, _outage_log(outages), row)
    order = np.lexsort((np.arange(len(found.row)), found.state[:, HEALTHY], -found.state[:, FAILING]))
    shown = [number for number in order.tolist() if found.state[number, HEALTHY] < SURELY_HEALTHY]
    return [_standing(found, number, events, outages, at_ms) for number in shown[:MOST]]


def _alone(node: str) -> FleetArrays:
    """A fleet of one node, of which nothing but the name is known."""
    unknown, past = np.full(1, -1, dtype=np.int64), np.full(1, FAR_PAST_MS, dtype=np.int64)
    return FleetArrays((node,), unknown, unknown, np.full(1, np.nan), past, -past, unknown)


def _outage_log(outages: list[Outage]) -> OutageLog:
    start = np.array([to_ms(one.start) for one in outages], dtype=np.int64)
    end = np.array([FAR_FUTURE_MS if one.end is None else to_ms(one.end) for one in outages], dtype=np.int64)
    planned = np.array([one.planned for one in outages], dtype=np.bool_)
    return OutageLog(
        node=np.zeros(len(outages), dtype=np.int64),
        start_ms=start,
        end_ms=np.maximum(end, start),
        planned=planned,
        driver=planned & np.array([one.cause == "driver" for one in outages], dtype=np.bool_),
        repair=np.array([repair_place(one.reason) for one in outages], dtype=np.int64),
    )


def _standing(found: DeviceStates, number: int, events: Precursors, outages: list[Outage], at_ms: int) -> NodeDevice:
    name, chances = found.names[int(found.device[number])], found.state[number].tolist()
    since_ms = int(found.since_ms[number])
    parts = [*_signs(events, name, at_ms), *_repairs(outages, at_ms)]
    return NodeDevice(
        device=name or _OWN,
        state=STATES[int(np.argmax(chances))],
        probabilities=dict(zip(STATES, chances, strict=True)),
        since=from_ms(since_ms) if since_ms else None,
        why="; ".join(parts) or "quiet since",
    )


def _signs(events: Precursors, name: str, at_ms: int) -> list[str]:
    """What the device showed within the window, most of it first."""
    named = np.array([one == name for one in events.devices], dtype=np.bool_)
    if not named.any():
        return []
    mine = np.flatnonzero(named[events.device] & (events.family >= 0) & (events.time_ms >= at_ms - WINDOW_MS))
    counts = np.bincount(events.family[mine], minlength=len(FAMILIES))
    order = [family for family in np.argsort(-counts, kind="stable").tolist() if counts[family]]
    told = [many(counts[at], FAMILIES[at].noun) for at in order[:3]]
    if not told:
        return []
    return [f"{', '.join(told)} in 28 days, the last {_ago(at_ms - int(events.time_ms[mine].max()))}"]


def _repairs(outages: list[Outage], at_ms: int) -> list[str]:
    """The last time that the node was out, and what was done then."""
    recent = [one for one in outages if at_ms - to_ms(one.end or one.start) <= WINDOW_MS]
    if not recent:
        return []
    last = recent[-1]
    if last.end is None:
        return [f"its node went out {_ago(at_ms - to_ms(last.start))}"]
    hours = (last.end - last.start).total_seconds() / 3600
    done = repair_of(last.reason, hours, last.planned and last.cause == "driver")
    return [f"its node was out {hours:.0f} h and back {_ago(at_ms - to_ms(last.end))} ({_DONE[done]})"]


_DONE = {
    "swap": "a part was swapped, or it took as long",
    "reimage": "reimaged, or it took as long",
    "reset": "reset",
    "reboot": "rebooted, or it took as long",
    "returned": "only returned",
    "driver": "a new driver",
}


def _ago(ms: int) -> str:
    return f"{ms / HOUR_MS:.0f} h ago" if ms < 2 * DAY_MS else f"{ms / DAY_MS:.0f} days ago"

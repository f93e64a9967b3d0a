"""The pages of a telemetry file: all that one table of columns says of one node at one moment, and where it changed.

A page without a change tells a watch nothing: its time is kept, its values are not. What counts as a change is the
value of a measure that is watched (`is_watched`: a counter, a code, a state, a level), and of any measure whether it
is there at all. Contents are compared by sums of 64 bits, so that files are compared without reading them again.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from hashlib import blake2b
from typing import Any, TypeAlias

import numpy as np

from store.records.fault_catalog import CODES, counter

Ints: TypeAlias = np.ndarray[Any, np.dtype[np.int64]]
Floats: TypeAlias = np.ndarray[Any, np.dtype[np.float64]]
Sums: TypeAlias = np.ndarray[Any, np.dtype[np.uint64]]

# Measures that are no counters, of which a change of the value is news; and of levels, past which limits it is.
_WATCHED = frozenset(
    {
        *("xid_last", "boot_time_s", "state_id", "physical_state_id", "rate_bytes_per_s"),
        *("throttle_reasons", "chassis_power_state", "bmc_up"),
        *("healthy", "driver_running", "link_up", "network_healthy"),
    }
)
_CODE = ("xid_active_", *CODES)
LEVELS = dict.fromkeys(("inlet_temp_c", "ambient_temp_c", "temp_c"), (33.0, 35.0))
# The finaliser of splitmix64 (Steele, Lea, Flood 2014): each bit of a sum depends on each bit of what went in.
_STEPS = ((np.uint64(30), np.uint64(0xBF58476D1CE4E5B9)), (np.uint64(27), np.uint64(0x94D049BB133111EB)))
_LAST = np.uint64(31)
_ABSENT = np.uint64(0x7FF8_0000_0000_0000)


@dataclass(frozen=True, slots=True)
class DevicePlace:
    """A device of a node as a table's rows name it; `index` where it has a number and no name."""

    type: str
    index: int = 0
    name: str | None = None
    port: int | None = None
    source: str = "dcgm"


@dataclass(frozen=True, slots=True)
class PageTable:
    """The pages of one table of columns, in order of node and time.

    Attributes:
        stream: names the table: files whose tables have one name go on from each other.
        interval_us: how far apart a node's pages usually are; 0: nobody knows.
        node, time_us: of each page.
        content: a sum of what a page says.
        row, rows: the first of its kept rows, and how many they are; those of the page before it where nothing changed.
        device, values: the kept rows: a position in `devices`, and (rows, `names`), NaN where absent.
    """

    stream: str
    interval_us: int
    node: Ints
    time_us: Ints
    content: Sums
    row: Ints
    rows: Ints
    devices: tuple[DevicePlace, ...]
    device: Ints
    names: tuple[str, ...]
    values: Floats


def is_watched(measure: str, device_type: str) -> bool:
    """Whether another value of a measure is news; of any other measure only that it comes and goes is."""
    return measure in _WATCHED or measure.startswith(_CODE) or counter(measure, device_type) is not None


def pages_of(
    stream: str,
    rows: tuple[Ints, Ints, Ints],
    devices: Sequence[DevicePlace],
    columns: Mapping[str, Callable[[], Floats]],
    interval_us: int = 0,
) -> PageTable:
    """The pages of rows.

    Args:
        rows: of each row the node, the position in `devices`, and the time; one row a device and moment.
        columns: reads each measure in the order of the rows.
    """
    node, device, time_us = rows
    order = np.lexsort((device, time_us, node))
    node, device, time_us = node[order], device[order], time_us[order]
    starts = _starts(node, time_us)
    sizes = np.diff(np.r_[starts, len(node)])
    whole = _page_sums(_contents(devices, device, order, columns), starts)
    page_node = node[starts]
    kept = np.ones(len(starts), dtype=bool)
    kept[1:] = (page_node[1:] != page_node[:-1]) | (whole[1:] != whole[:-1])
    # A clock is read from the page before a change: its own values, and of the last page, after which the next file is.
    last = np.r_[page_node[1:] != page_node[:-1], True] if len(starts) else kept
    kept = kept | np.r_[kept[1:], True] | last if len(starts) else kept
    of_page = np.repeat(kept, sizes)
    matrix = np.empty((int(of_page.sum()), len(columns)))
    for number, read in enumerate(columns.values()):
        matrix[:, number] = read()[order][of_page]
    # A page that shows what the one before it shows has that one's rows.
    begun = np.cumsum(np.r_[0, sizes[kept]])[:-1]
    return PageTable(
        stream=stream,
        interval_us=interval_us,
        node=page_node,
        time_us=time_us[starts],
        content=whole,
        row=begun[np.cumsum(kept) - 1] if len(starts) else np.empty(0, dtype=np.int64),
        rows=sizes,
        devices=tuple(devices),
        device=device[of_page],
        names=tuple(columns),
        values=matrix,
    )


def _contents(
    devices: Sequence[DevicePlace], device: Ints, order: Ints, columns: Mapping[str, Callable[[], Floats]]
) -> Sums:
    """Of each row a sum of what it says that is watched, and of what it says anything of."""
    types = {one.type for one in devices}
    content = np.zeros(len(device), np.uint64)
    for name, read in columns.items():
        values = read()[order] + 0.0  # one zero, not two
        known = ~np.isnan(values)
        salt = np.full(1, _salt(name), dtype=np.uint64)
        content += np.where(known, _mixed(salt), np.uint64(0))
        if name in LEVELS:
            low, high = LEVELS[name]
            content += _mixed((values < low).astype(np.uint64) + 2 * (values > high).astype(np.uint64) ^ salt)
        elif any(is_watched(name, one) for one in types):
            content += _mixed(np.where(known, values.view(np.uint64), _ABSENT) ^ salt)
    of_device = np.array([_salt(repr(one)) for one in devices], dtype=np.uint64)[device]
    return content ^ of_device


def _starts(*columns: Ints) -> Ints:
    changed = np.ones(len(columns[0]), dtype=bool)
    if len(changed):
        changed[1:] = False
        for column in columns:
            changed[1:] |= column[1:] != column[:-1]
    return np.flatnonzero(changed)


def _page_sums(rows: Sums, starts: Ints) -> Sums:
    return np.add.reduceat(_mixed(rows), starts) if len(starts) else np.empty(0, np.uint64)


def _mixed(values: Sums) -> Sums:
    mixed = values.copy()
    for shift, factor in _STEPS:
        mixed ^= mixed >> shift
        mixed *= factor
    mixed ^= mixed >> _LAST
    return mixed


@cache
def _salt(text: str) -> int:
    return int.from_bytes(blake2b(text.encode("utf-8", "replace"), digest_size=8).digest(), "little")

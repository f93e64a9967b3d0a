"""Devices of closed days' hours, packed: their names, then their figures, by zstd with a dictionary of the day's hours.

    hours = PackedHours(connection)
    hours.text(row.time, row.devices, row.packed)        # the JSON that says what was written, figure by figure

    [["gpu:0","gpu_temp_c","ecc_sbe"],["gpu:1","ecc_sbe"]]      each device and its measures
    [[52,19,8.8,14,41],3,0]                                     min, max, mean and last less min, changes; or what stays

`store/telemetry/packing.py` packs them. A roll-up that comes late stands as JSON beside what is packed of its hour, and
is joined to it when it is read.
"""

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, TypeAlias

import orjson
import sqlalchemy as sa
import zstandard

from store.tables import schema

HourDevices: TypeAlias = dict[str, dict[str, tuple[Any, ...]]]
# Days whose dictionaries a reader holds: rows come day by day.
_HELD = 8
_TABLE, _DAYS = schema.telemetry, schema.packed_days
# What has devices, whichever way.
TOLD = sa.or_(_TABLE.c.devices.is_not(None), _TABLE.c.packed.is_not(None))


def day_of(moment: datetime) -> datetime:
    """The midnight (UTC) that a moment's day began with."""
    return moment.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)


class PackedHours:
    """Reads packed hours over a connection; dictionaries are read when first asked for."""

    def __init__(self, connection: sa.Connection) -> None:
        self._connection = connection
        self._held: dict[datetime, zstandard.ZstdDecompressor] = {}

    def devices(
        self, time: datetime, text: str | None, packed: bytes | None, naming: re.Pattern[str] | None = None
    ) -> HourDevices | str | None:
        """An hour's devices, or their JSON where that is at hand; None: nothing is told, or nothing is named so."""
        kept = None if packed is None else self.of_day(day_of(time)).decompress(packed).decode()
        if naming is not None and not naming.search((kept or "") + (text or "")):
            return None
        if kept is None:
            return text
        if kept.startswith(_AS_IT_IS):
            whole = kept.removeprefix(_AS_IT_IS)
            return whole if text is None else _joined(orjson.loads(whole), text)
        return spread(kept) if text is None else _joined(spread(kept), text)

    def text(
        self, time: datetime, text: str | None, packed: bytes | None, naming: re.Pattern[str] | None = None
    ) -> str | None:
        """The JSON of an hour's devices."""
        found = self.devices(time, text, packed, naming)
        return dumped(found) if isinstance(found, dict) else found

    def of_day(self, day: datetime) -> zstandard.ZstdDecompressor:
        """What unpacks a day's hours."""
        found = self._held.get(day)
        if found is None:
            if len(self._held) >= _HELD:
                self._held.clear()
            dictionary = self._connection.scalar(sa.select(_DAYS.c.dictionary).where(_DAYS.c.day == day))
            found = self._held[day] = zstandard.ZstdDecompressor(dict_data=zstd_dictionary(dictionary))
        return found


def condensed(text: str) -> str:
    """The JSON of devices as it is packed: condensed, or itself where not every figure of it would come back."""
    try:
        devices = orjson.loads(text)
        names = [[device, *measures] for device, measures in devices.items()]
        figures = [_less_min(each) for measures in devices.values() for each in measures.values()]
        found = f"{dumped(names)}\n{dumped(figures)}"
        # A larger integer is read as a float.
        is_exact = _LARGE.search(text) is None and dumped(spread(found)) == dumped(devices)
    except (AttributeError, TypeError, ValueError):  # it is no JSON of devices
        is_exact = False
    return found if is_exact else _AS_IT_IS + text


_AS_IT_IS = "\n"
_LARGE = re.compile(r"\d{19}", re.ASCII)
_PLACES = 9
_FIGURES = {int, float, type(None)}


def dumped(value: Any) -> str:
    """JSON."""
    return orjson.dumps(value).decode()


def _less_min(figures: Sequence[Any]) -> Any:
    low, high, mean, last, changes = figures
    if not set(map(type, figures)) <= _FIGURES:
        raise TypeError(figures)
    if low == high == mean == last and changes == 0 and len(set(map(type, figures[:4]))) == 1:
        return low
    if None in figures:
        return [figures]
    rest = [high, mean, last]
    less = [round(each - low, _PLACES) for each in rest]
    back = [low + each for each in less]
    is_exact = back == rest and list(map(type, back)) == list(map(type, rest))
    return [low, *less, changes] if is_exact else [figures]


def spread(condensed: str) -> HourDevices:
    """What was condensed."""
    names, told = map(orjson.loads, condensed.split("\n"))
    figures = []
    for one in told:
        if one.__class__ is not list:
            figures.append((one, one, one, one, 0))
        elif len(one) == 1:
            figures.append(tuple(one[0]))  # as it was
        else:
            low, high, mean, last, changes = one
            figures.append((low, low + high, low + mean, low + last, changes))
    left = iter(figures)
    # Names first: zip asks it last, so that no figure is taken for a name that is not there.
    return {device: dict(zip(measures, left, strict=False)) for device, *measures in names}


def _joined(devices: HourDevices, text: str) -> str:
    """What is told later of a measure replaces what was packed of it; all else stays."""
    news = orjson.loads(text)
    return dumped(devices | {name: devices.get(name, {}) | told for name, told in news.items()})


def zstd_dictionary(made: bytes | None) -> zstandard.ZstdCompressionDict | None:
    """A day's dictionary as zstd takes it; None where the day has none."""
    return zstandard.ZstdCompressionDict(made) if made else None

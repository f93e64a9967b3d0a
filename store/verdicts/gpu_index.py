"""The index by which everybody calls a GPU, where its PCI address alone is known: a verdict of it tells.

    with_indices(connection, rows)                # rows of incidents as an answer has them, with `devices`
    named_culprits(connection, "llm-70b", stops)  # a run's interruptions: their incidents tell, too

The kernel says `0000:a8:00.0`, an exporter `GPU 5`: who weighs both has put the index into the verdict's device. A GPU
is counted otherwise after a boot, maybe: the verdict that began nearest to the incident tells.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, TypeAlias

import msgspec
import sqlalchemy as sa

from store.records.event import Device
from store.tables import run_tables, schema
from store.tables.bulk_rows import is_one_of
from store.tables.pages import document_of, moment_of
from store.tables.verdict_tables import verdicts

_MOST = 500  # verdicts that are read for a page


class _VerdictDevice(msgspec.Struct):
    """What is read of a verdict, and of a line of an incident."""

    device: Device = Device()


_NAMED = msgspec.json.Decoder(_VerdictDevice)
_HEADS = msgspec.json.Decoder(list[_VerdictDevice])
# When a GPU was said to have which index.
Told: TypeAlias = list[tuple[datetime, int]]


def with_indices(connection: sa.Connection, rows: Sequence[dict[str, Any]]) -> Sequence[dict[str, Any]]:
    """The same rows: each GPU among their devices with its index, where a verdict of that GPU has it."""
    wanted = [row for row in rows if row["node"] is not None and any(map(_lacks_index, _devices(row)))]
    if not wanted:
        return rows
    told = _index_history(connection, {row["node"] for row in wanted})
    for row in wanted:
        start = moment_of(row, "start")
        row["devices"] = [_indexed(one, told.get((row["node"], one.get("pci")), []), start) for one in _devices(row)]
        row["device"] = row["devices"][0]
    return rows


def named_culprits(
    connection: sa.Connection, run: str, stops: Sequence[Mapping[str, Any]]
) -> Sequence[Mapping[str, Any]]:
    """A run's interruptions as its account has them: each GPU that is a culprit with its index, where that was told.

    By a verdict of that GPU, or by another line of the incident that the interruption is put down to.
    """
    wanted = {stop["culprit"]["node"] for stop in stops if stop["culprit"] and _lacks_index(stop["culprit"])} - {None}
    if not wanted:
        return stops
    told = _index_history(connection, wanted)
    for key, found in _told_by_incidents(connection, run).items():
        told[key] = [*told.get(key, ()), *found]  # whichever is nearest to the stop tells
    return [stop | {"culprit": _named_culprit(stop, told)} for stop in map(dict, stops)]


def _named_culprit(stop: Mapping[str, Any], told: Mapping[tuple[str, str | None], Told]) -> dict[str, Any] | None:
    culprit: dict[str, Any] | None = stop["culprit"]
    if culprit is None:
        return None
    return _indexed(culprit, told.get((culprit["node"], culprit["pci"]), []), moment_of(stop, "time"))


def _told_by_incidents(connection: sa.Connection, run: str) -> dict[tuple[str, str | None], Told]:
    """The same of the lines in the incidents that a run's interruptions are put down to."""
    stops, incidents = run_tables.interruptions, schema.incidents
    query = sa.select(incidents.c.node, incidents.c.start, incidents.c.heads).where(
        stops.c.run == run, stops.c.incident == incidents.c.id, incidents.c.heads.is_not(None)
    )
    found: dict[tuple[str, str | None], Told] = {}
    for node, start, heads in connection.execute(query.order_by(incidents.c.start.desc()).limit(_MOST)):
        for device in (one.device for one in _HEADS.decode(heads)):
            if node is not None and device.pci is not None and device.index is not None:
                found.setdefault((node, device.pci), []).append((start, device.index))
    return found


def _devices(row: dict[str, Any]) -> list[dict[str, Any]]:
    return [document_of({"device": one}, "device") for one in row["devices"]]


def _lacks_index(device: dict[str, Any]) -> bool:
    return device.get("type") == "gpu" and device.get("pci") is not None and device.get("index") is None


def _index_history(connection: sa.Connection, nodes: set[str]) -> dict[tuple[str, str | None], Told]:
    """When each GPU of some nodes was said to have which index, by node and PCI address."""
    query = sa.select(verdicts.c.node, verdicts.c.since, verdicts.c.document).where(
        verdicts.c["class"] == "gpu", is_one_of(connection, verdicts.c.node, nodes)
    )
    found: dict[tuple[str, str | None], Told] = {}
    for node, since, document in connection.execute(query.order_by(verdicts.c.since.desc()).limit(_MOST)):
        device = _NAMED.decode(document).device
        if device.pci is not None and device.index is not None:
            found.setdefault((node, device.pci), []).append((since, device.index))
    return found


def _indexed(device: dict[str, Any], told: Told, start: datetime) -> dict[str, Any]:
    if not told or not _lacks_index(device):
        return device
    return {**device, "index": min(told, key=lambda one: abs(one[0] - start))[1]}

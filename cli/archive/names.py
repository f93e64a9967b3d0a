"""The nodes of an archive's files by the names that the inventory has; what is no node's name is left out and counted.

names = ArchiveNames(engine)
taken = names.named(taken)          # before it is written

`nodes.csv` and the topology are the first files of an archive: what they name is known when the others come.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

import sqlalchemy as sa

from cli.archive.parts import FileRecords
from collectors.files.archive import ArchivePart, PartRecords
from store.database.known_nodes import known_names
from store.nodes.known_names import KnownNames
from store.records.event import Event, RecordError
from store.records.hostlist import check_node_name
from store.records.node import Node
from store.telemetry.telemetry_file import TelemetryFile

T = TypeVar("T")


@dataclass(slots=True)
class ArchiveNames:
    """Of one ingest."""

    engine: sa.Engine
    _names: KnownNames | None = field(default=None)

    def named(self, taken: FileRecords) -> FileRecords:
        """What was read of a file, each record of its node by the inventory's name."""
        part = taken.task.digest.part
        if part.name in ("nodes", "topology"):
            self._names = None  # it is about to change
            return _doubted(_sifted(taken, check_node_name), _told_twice(taken.records.nodes))
        if self._names is None:
            with self.engine.connect() as connection:
                self._names = KnownNames(known_names(connection))
        if taken.telemetry is None:
            found = _sifted(taken, self._names.canonical)
            return _doubted(found, _of_others(part, found.records.events, self._names))
        try:
            return replace(taken, telemetry=_renamed(taken.telemetry, self._names))
        except RecordError as error:
            return replace(taken, telemetry=None, records=PartRecords(broken=str(error)))


def _doubted(taken: FileRecords, doubt: str | None) -> FileRecords:
    return taken if doubt is None else replace(taken, records=replace(taken.records, doubt=doubt))


def _told_twice(nodes: Sequence[Node]) -> str | None:
    """What to say where a node has two rows, or one host stands by its short name and by its FQDN."""
    counted = Counter(node.node for node in nodes)
    again = [name for name, count in counted.items() if count > 1]
    if again:
        return f"{again[0]}{_more(again)} has several rows, of which the last counts: leave the others out"
    twice = [name for name in sorted(counted) if "." in name and name.partition(".")[0] in counted]
    if not twice:
        return None
    both = f"{twice[0].partition('.')[0]} and {twice[0]}{_more(twice)}"
    return f"{both} count as two nodes: leave one of the two out, if they are one host"


def _more(names: Sequence[str]) -> str:
    return f" (and {len(names) - 1} more)" if len(names) > 1 else ""


def _of_others(part: ArchivePart, events: Sequence[Event], names: KnownNames) -> str | None:
    """What to say of a log that is named for a node of the inventory and speaks of another one alone."""
    if part.name != "kernel" or not events:
        return None
    try:
        own = names.canonical(part.stem())
    except RecordError:
        return None
    others = {event.node for event in events}
    if own not in names.known or own in others or len(others) > 1:
        return None
    return f"it is named for {own}, and its lines are of {events[0].node}: they count for {events[0].node}"


def _sifted(taken: FileRecords, canonical: Callable[[str], str]) -> FileRecords:
    """The records of a text file whose nodes have a name."""
    refused: list[str] = []
    records = taken.records
    events = _each(records.events, canonical, refused)
    nodes = _each(records.nodes, canonical, refused)
    if not refused and events is records.events and nodes is records.nodes:
        return taken
    first = records.first_skip or (refused[0] if refused else None)
    kept = replace(records, events=events, nodes=nodes, skipped=records.skipped + len(refused), first_skip=first)
    return replace(taken, records=kept)


def _each(records: tuple[T, ...], canonical: Callable[[str], str], refused: list[str]) -> tuple[T, ...]:
    """The records with their nodes' names; the same tuple where nothing changes."""
    names: dict[str, str | None] = {}
    for name in {record.node for record in records if record.node is not None}:  # type: ignore[attr-defined]  # all have one
        try:
            names[name] = canonical(name)
        except RecordError as error:
            names[name] = None
            refused += [str(error)] * sum(record.node == name for record in records)  # type: ignore[attr-defined]
    if all(name == found for name, found in names.items()):
        return records
    renamed = ((record, names.get(record.node, record.node)) for record in records)  # type: ignore[attr-defined]
    return tuple(
        record if name == record.node else replace(record, node=name)  # type: ignore[attr-defined,type-var]
        for record, name in renamed
        if name is not None or record.node is None  # type: ignore[attr-defined]
    )


def _renamed(telemetry: TelemetryFile, names: KnownNames) -> TelemetryFile:
    """A telemetry file by the inventory's names.

    Raises:
        RecordError: a column `node` holds what is no name, or two names of one node.
    """
    found = tuple(map(names.canonical, telemetry.nodes))
    if len(set(found)) < len(found):
        twice = next(name for place, name in enumerate(found) if name in found[:place])
        raise RecordError(f"node {twice} stands under two names: {_both(telemetry.nodes, found, twice)}: use one")
    return telemetry if found == telemetry.nodes else replace(telemetry, nodes=found)


def _both(said: Sequence[str], found: Sequence[str], name: str) -> str:
    return " and ".join(sorted(one for one, other in zip(said, found, strict=True) if other == name))

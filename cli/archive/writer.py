"""The writer of `foreshock ingest`: one transaction a file, so that a broken-off ingest leaves whole files behind."""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime

import sqlalchemy as sa

from cli.archive.page_watch import PageWatch
from cli.archive.parts import Digest, FileRecords, FileTask
from diagnosis.corruption.recurrence import note_last_recurring
from diagnosis.incidents.intake import fold_everything, put_faults
from diagnosis.links.link_outliers import note_past_outliers
from diagnosis.links.port_flaps import note_last_flappers
from store.database.connections import writing
from store.database.partitions import ensure_days
from store.events.append import IngestedFile, append_events, append_nodes, note_ingested
from store.nodes.topology import append_topology
from store.records.event import Event, from_us
from store.records.outage import SHIPPED_REASONS, OutageReasons
from store.tables import schema
from store.telemetry.hours import insert_rollups
from store.telemetry.rollups import DeviceHistory, RollupTable
from store.telemetry.telemetry_file import TelemetryFile

_DAY_US = 86_400_000_000
_LONG_AGO_US = -(2**62)


@dataclass(slots=True)
class IngestTally:
    """What was taken of one part of an archive."""

    files: int = 0
    broken: int = 0
    records: int = 0
    new: int = 0
    known: int = 0
    skipped: int = 0


@dataclass(slots=True)
class Writer:
    """Writes what workers read, file by file, and keeps count."""

    engine: sa.Engine
    now: datetime
    tallies: dict[str, IngestTally] = field(default_factory=dict)
    # Telemetry files in the order in which they come, of which those are new.
    order: deque[Digest] = field(default_factory=deque)
    new_from_us: int = 0
    reasons: OutageReasons = SHIPPED_REASONS
    _history: DeviceHistory = field(default_factory=DeviceHistory)
    _watch: PageWatch = field(default_factory=PageWatch)
    _unwatched: list[tuple[int, IngestedFile]] = field(default_factory=list)

    def expect(self, tasks: Sequence[FileTask]) -> None:
        """What is going to be written: the telemetry's order decides until when its events are known."""
        telemetry = [task for task in tasks if task.digest.part.name == "telemetry"]
        self.order = deque(task.digest for task in telemetry)
        self.new_from_us = min((task.digest.begins_us for task in telemetry if not task.only_carry), default=0)

    def tally(self, part: str) -> IngestTally:
        """The count of a part, from nothing."""
        return self.tallies.setdefault(part, IngestTally())

    def write(self, taken: FileRecords) -> None:
        """Write a file's records, and that it was taken unless it is broken."""
        digest = taken.task.digest
        events, name, devices = taken.records.events, digest.part.name, None
        if name == "telemetry":
            if taken.telemetry is not None:
                devices = self._history.follow(taken.telemetry.devices, taken.telemetry.nodes)
                self._watch.take(taken.telemetry)
            self.order.popleft()
            events = self._new_events()
        tally = self.tally(name)
        before = tally.records, tally.skipped
        if not taken.task.only_carry:
            tally.files += 1
            tally.skipped += taken.records.skipped
        ensure_days(self.engine, _days(events, taken.telemetry), ("events", "telemetry"))
        with writing(self.engine).begin() as connection:
            if not taken.task.only_carry:
                self._write_state(connection, taken, devices, tally)
            self._write_events(connection, events, self.tally("counters") if name == "telemetry" else tally)
            if taken.records.broken is not None:
                tally.broken += 1
            elif not taken.task.only_carry:
                records, skipped = tally.records - before[0], tally.skipped - before[1]
                file = IngestedFile(digest.part.relative, digest.sha256, records, skipped, self.now)
                self._unwatched.append((_ends_us(taken), file))
            self._note_watched(connection)

    def _until_us(self) -> int | None:
        """No file to come has a page before this moment; None: there is none to come."""
        return min((digest.begins_us for digest in self.order), default=None)

    def _new_events(self) -> tuple[Event, ...]:
        """The events of pages that no file to come can change, but for those of files that were taken before."""
        known_us = from_us(self.new_from_us)
        found = self._watch.events_until(self._until_us())
        return tuple(event for event in found if event.time is None or event.time >= known_us)

    def _note_watched(self, connection: sa.Connection) -> None:
        """Note files as taken of which every event is written: one that is not is read again after a break."""
        until_us = self._until_us()
        for ends_us, file in self._unwatched:
            if until_us is None or ends_us < until_us:
                note_ingested(connection, file)
        self._unwatched = [one for one in self._unwatched if until_us is not None and one[0] >= until_us]

    def _write_events(self, connection: sa.Connection, events: tuple[Event, ...], tally: IngestTally) -> None:
        if not events:
            return
        taken = append_events(connection, events, self.now, reasons=self.reasons)
        put_faults(connection, taken.new, self.now)
        tally.records += len(events)
        tally.new += len(taken.new)
        tally.known += len(events) - len(taken.new)

    def _write_state(
        self, connection: sa.Connection, taken: FileRecords, devices: Sequence[str | None] | None, tally: IngestTally
    ) -> None:
        """Nodes, cables and roll-ups: rows that a later word replaces."""
        records, telemetry = taken.records, taken.telemetry
        if records.nodes:
            with _counted(connection, sa.select(sa.func.count()).select_from(schema.nodes), tally):
                append_nodes(connection, records.nodes, self.now)
                tally.records += len(records.nodes)
        if len(records.topology):
            change = append_topology(connection, records.topology, self.now)
            tally.records += len(records.topology)
            tally.new += min(change.changed, len(records.topology))
            tally.known += max(0, len(records.topology) - change.changed)
        if telemetry is not None and len(telemetry.rollups.node):
            with _counted(connection, _rows_between(telemetry.rollups), tally):
                tally.records += insert_rollups(connection, telemetry.nodes, telemetry.rollups, devices)

    def make_incidents(self) -> int:
        """Incidents of what was taken, now or before an ingest was broken off. Returns how many there are more."""
        count = sa.select(sa.func.count()).select_from(schema.incidents)
        with self.engine.connect() as connection:
            before = connection.scalar(count) or 0
        note_past_outliers(self.engine)
        note_last_flappers(self.engine)
        note_last_recurring(self.engine)
        fold_everything(self.engine)
        with self.engine.connect() as connection:
            return max(0, (connection.scalar(count) or 0) - before)


def _ends_us(taken: FileRecords) -> int:
    """The last moment of a telemetry file; of any other file nothing is waited for."""
    return _LONG_AGO_US if taken.telemetry is None else taken.telemetry.ends_us


def _days(events: Iterable[Event], telemetry: TelemetryFile | None) -> set[datetime]:
    """A moment of each day of which there are records."""
    days = {event.time.date(): event.time for event in events if event.time is not None}
    if telemetry is not None:
        moments = map(from_us, {us // _DAY_US * _DAY_US for us in telemetry.rollups.time_us.tolist()})
        days |= {moment.date(): moment for moment in moments}
    return set(days.values())


@contextmanager
def _counted(connection: sa.Connection, query: sa.Select[int], tally: IngestTally) -> Iterator[None]:
    """Share the records written inside among new and known, by how many rows there are before and after."""
    records, rows = tally.records, connection.scalar(query) or 0
    yield
    new = (connection.scalar(query) or 0) - rows
    tally.new += new
    tally.known += tally.records - records - new


def _rows_between(rollups: RollupTable) -> sa.Select[int]:
    """How many roll-ups there are in the time that a file spans."""
    time = schema.telemetry.c.time
    first, last = from_us(int(rollups.time_us.min())), from_us(int(rollups.time_us.max()))
    return sa.select(sa.func.count()).select_from(schema.telemetry).where(time >= first, time <= last)

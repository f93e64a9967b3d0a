"""A range of a Prometheus's history into the store: the roll-ups and events that an archive of it would give.

    HistoryIntake(engine, reader, options).run(since, until, progress)

Each window is written in one transaction, with the note that it was taken and what the watch knows at its end: an
import that was killed at any moment goes on there, and asks for nothing again. Events have the ids that those of an
archive have, so what both tell of is there once.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import sqlalchemy as sa

from cli.archive.log_input import read_ahead
from cli.archive.page_watch import ORIGIN
from cli.console.errors import Failure
from cli.history.frames import HistoryNames, samples_of_table, table_of_window
from cli.history.server import AwayError
from cli.history.windows import HistoryReader, HistoryWindow
from collectors.telemetry.device_watch import DeviceWatch
from diagnosis.incidents.intake import fold_everything, put_faults
from store.database.connections import writing
from store.database.known_nodes import known_names
from store.database.partitions import ensure_days
from store.events.append import append_events
from store.nodes.known_names import KnownNames
from store.records.event import EPOCH, Event, format_time, from_us, to_us
from store.tables import schema
from store.telemetry.histories import HistoryGap, HistoryStretch, missing, note_stretch, read_stretches
from store.telemetry.hours import insert_rollups
from store.telemetry.rollups import DeviceHistory
from store.telemetry.telemetry_file import TelemetryFile, summarise

_DAY_US = 86_400_000_000
HOUR = timedelta(hours=1)


@dataclass(slots=True)
class HistorySummary:
    """What an import did. `taken_before`: hours of the range that an earlier one had taken."""

    since: datetime
    until: datetime
    hours: float = 0.0
    taken_before: float = 0.0
    samples: int = 0
    rollups: int = 0
    events: int = 0
    new: int = 0
    skipped: int = 0
    incidents: int = 0
    questions: int = 0
    wall_s: float = 0.0
    troubles: dict[str, int] = field(default_factory=dict)


@dataclass(slots=True)
class _IntakeState:
    """What goes on from one window to the next."""

    watch: DeviceWatch
    history: DeviceHistory
    stretch: HistoryStretch

    @classmethod
    def of(cls, stretch: HistoryStretch) -> "_IntakeState":
        state = stretch.state
        history = state.get("history", {})
        return cls(
            watch=DeviceWatch(ORIGIN, state.get("watch")),
            history=DeviceHistory(
                last={name: np.array(values, dtype=np.float64) for name, values in history.get("last", {}).items()},
                rows={(node, device): row for row, (node, device) in enumerate(history.get("rows", ()))},
            ),
            stretch=stretch,
        )

    def state(self) -> dict[str, Any]:
        rows = sorted(self.history.rows, key=self.history.rows.__getitem__)
        return {
            "watch": self.watch.state(),
            "history": {"rows": [list(row) for row in rows], "last": self.history.last},
        }


@dataclass(frozen=True, slots=True)
class HistoryIntake:
    """Of one source: the server's address, and what is selected of it."""

    engine: sa.Engine
    reader: HistoryReader
    source: str
    node_label: str | None = None
    now: datetime = field(default_factory=lambda: datetime.now(UTC))

    def run(
        self, since: datetime, until: datetime, progress: Callable[[int, int], None] | None = None
    ) -> HistorySummary:
        """Take a range of whole hours; what was taken before is passed over.

        Raises:
            Failure: the server refuses, or gives no answer any more; what was taken until then stays.
        """
        started = time.monotonic()
        summary = HistorySummary(since, until)
        with self.engine.connect() as connection:
            gaps = list(missing(read_stretches(connection, self.source), since, until))
            names = HistoryNames(KnownNames(known_names(connection)).canonical, self.node_label)
        whole = _seconds(until - since)
        open_s = sum(_seconds(gap.until - gap.since) for gap in gaps)
        summary.taken_before = (whole - open_s) / 3600
        done = whole - open_s
        for gap in gaps:
            for window in self._windows(gap, names, summary):
                done += (window.until_ms - window.since_ms) // 1000
                if progress is not None:
                    progress(done, whole)
        summary.incidents = self._incidents()
        summary.questions = self.reader.questions
        summary.troubles |= {f"the server warns: {text}": count for text, count in self.reader.server.warnings.items()}
        summary.wall_s = time.monotonic() - started
        return summary

    def _windows(self, gap: HistoryGap, names: HistoryNames, summary: HistorySummary) -> Iterator[HistoryWindow]:
        """Take the windows of a gap, one after the other."""
        stretch = gap.before or HistoryStretch(self.source, gap.since, gap.since, 0, 0, self.now)
        known = _IntakeState.of(stretch)
        ahead: Any = read_ahead(self.reader.windows(_milliseconds(gap.since), _milliseconds(gap.until)))
        try:
            with closing(ahead):
                for window in ahead:
                    self._take(window, names, known, summary)
                    yield window
        except AwayError as error:
            raise Failure(
                f"{self.reader.server.access.url} gives no answer any more ({error}): the history up to "
                f"{format_time(known.stretch.until)} is taken; run the same command again to go on from there"
            ) from error

    def _take(self, window: HistoryWindow, names: HistoryNames, known: _IntakeState, summary: HistorySummary) -> None:
        """Write one window."""
        table, identities = table_of_window(window.series, names)
        file = summarise(table)
        events = [event for part in samples_of_table(table, identities) for event in known.watch.follow(part)]
        events += known.watch.finish()
        devices = known.history.follow(file.devices, file.nodes)
        until = _moment(window.until_ms)
        ensure_days(self.engine, _days(events, file), ("events", "telemetry"))
        with writing(self.engine).begin() as connection:
            summary.rollups += insert_rollups(connection, file.nodes, file.rollups, devices)
            appended = append_events(connection, events, self.now)
            put_faults(connection, appended.new, self.now)
            known.stretch = replace(
                known.stretch,
                until=until,
                samples=known.stretch.samples + window.samples,
                skipped=known.stretch.skipped + file.skipped,
                done=datetime.now(UTC),
                state=known.state(),
            )
            note_stretch(connection, known.stretch)
        summary.hours += (window.until_ms - window.since_ms) / 3_600_000
        summary.samples += window.samples
        summary.events += len(events)
        summary.new += len(appended.new)
        summary.skipped += file.skipped
        for sentence in file.left_out:
            summary.troubles[sentence] = summary.troubles.get(sentence, 0) + 1

    def _incidents(self) -> int:
        """Incidents of what was taken, now or before an import was broken off; how many there are more."""
        count = sa.select(sa.func.count()).select_from(schema.incidents)
        with self.engine.connect() as connection:
            before = connection.scalar(count) or 0
        fold_everything(self.engine)
        with self.engine.connect() as connection:
            return max(0, (connection.scalar(count) or 0) - before)


def whole_hours(since: datetime, until: datetime, now: datetime) -> tuple[datetime, datetime]:
    """The whole hours that hold a range, as far as they are over: a roll-up is of an hour, and is written once.

    Raises:
        Failure: none of them is over.
    """
    begin, end = _floored(since), _floored(until)
    if end < until:
        end += HOUR
    end = min(end, _floored(now))
    if begin >= end:
        raise Failure(
            f"--since {format_time(since)} and --until {format_time(until)} hold no whole hour that is over: "
            "give an earlier --since, or a later --until"
        )
    return begin, end


def _floored(moment: datetime) -> datetime:
    return EPOCH + (moment - EPOCH) // HOUR * HOUR


def _days(events: list[Event], file: TelemetryFile) -> set[datetime]:
    """A moment of each day of which there are records."""
    days = {event.time.date(): event.time for event in events if event.time is not None}
    moments = map(from_us, {us // _DAY_US * _DAY_US for us in file.rollups.time_us.tolist()})
    days |= {moment.date(): moment for moment in moments}
    return set(days.values())


def _seconds(length: timedelta) -> int:
    return length // timedelta(seconds=1)


def _milliseconds(moment: datetime) -> int:
    return to_us(moment) // 1000


def _moment(time_ms: int) -> datetime:
    return from_us(time_ms * 1000)

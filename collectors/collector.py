"""Collectors: the protocol of every source, which is opened where it was left and read for what is new.

    collector.open(position)            # as saved with the events of the last time, or None
    while not stopped:
        collected = collector.collect(30.0)     # waits at most that long, and no longer than to `wake.set()`
        sink.append(collector.spec, collected)     # events and position together, on disk

A collector keeps no promise about disks or servers: it says what it saw and where it stands. Events and position are
saved together, so that a crash at any moment neither loses a line nor sends it under a second id.
"""

import os
import select
import time
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, tzinfo
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias
from urllib.parse import unquote

from store.records.event import Event
from store.records.event_sources import Trust
from store.records.telemetry import Rollup

if TYPE_CHECKING:
    from parsers.site_rules.rules import RulesSource

# A wait that another thread ends at once: so a quiet source sleeps for seconds and still stops promptly.


class Wake:
    """Once set it stays so. One thread waits. Costs one descriptor (eventfd), let go of with the object."""

    def __init__(self) -> None:
        self._descriptor = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        weakref.finalize(self, os.close, self._descriptor).atexit = False
        # A source may wake every second, and waits for the same again and again.
        self._alone = self._poll(())
        self._together: tuple[tuple[int, ...], select.poll] = ((), self._alone)
        self.is_set = False

    def set(self) -> None:
        """End the present wait and all that come. Any thread may call it."""
        self.is_set = True
        os.eventfd_write(self._descriptor, 1)

    def wait(self, wait_s: float, *descriptors: int) -> list[int]:
        """Wait for `set`, or until one of the descriptors can be read; these are returned."""
        if not descriptors:
            if wait_s > 0:
                self._alone.poll(int(1000 * wait_s) + 1)  # rounded up: less would spin
            return []
        if self._together[0] != descriptors:
            self._together = (descriptors, self._poll(descriptors))
        ready = self._together[1].poll(int(1000 * wait_s) + 1 if wait_s > 0 else 0)
        return [descriptor for descriptor, _events in ready if descriptor != self._descriptor]

    def _poll(self, descriptors: tuple[int, ...]) -> select.poll:
        poll = select.poll()
        for descriptor in (self._descriptor, *descriptors):
            poll.register(descriptor, select.POLLIN)
        return poll

    def wait_until(self, due_s: float, wait_s: float) -> bool:
        """Wait for a moment of the monotonic clock, at most `wait_s` seconds; whether it came before any `set`."""
        rest_s = due_s - time.monotonic()
        self.wait(min(rest_s, wait_s))
        return rest_s <= wait_s and not self.is_set


Position: TypeAlias = Mapping[str, Any]  # plain JSON: a collector alone knows what its own means


class SourceError(Exception):
    """A source that cannot be read; the message says why and what to do about it."""


@dataclass(frozen=True, slots=True)
class CollectorTurn:
    """What one turn of a collector gave. `position` is None where there is nothing to remember."""

    events: tuple[Event, ...] = ()
    rollups: tuple[Rollup, ...] = ()
    position: Position | None = None
    lines: int = 0  # lines, records or samples read
    errors: int = 0  # of them, those that were of the format but broken
    lost: int = 0  # records that the source had dropped before we came
    refused: Mapping[str, int] = field(default_factory=dict)  # lines whose writer may not say that, by the reason


@dataclass(frozen=True, slots=True)
class SourceSettings:
    """Settings of sources. Times in seconds; `zone` is for timestamps that bear none; `rules` are the site's.

    `interval_s` (between two looks), `timeout_s` (of one look), `format` and `trust` are one source's own, where the
    configuration gives them: None means as the source thinks best. Such a source's `node` may be its own too.
    """

    node: str
    zone: tzinfo = field(default=UTC)
    poll_interval_s: float = 0.25
    scrape_interval_s: float = 15.0
    rollup_interval_s: float = 300.0
    rotation_grace_s: float = 5.0
    rules: "RulesSource | None" = None
    interval_s: float | None = None
    timeout_s: float | None = None
    format: str | None = None
    trust: Trust | None = None
    hosts: str = "many"  # one: whatever host a record names, it is of `node`

    @property
    def busy_interval_s(self) -> float:
        """How often a file that is written to all the time is read; the first line after a rest is read at once."""
        return 2 * self.poll_interval_s


class Collector(Protocol):
    """One source. All calls come from one thread; `collect` may raise anything: the runner opens it anew.

    Another thread may set `wake`: then the present wait ends, for the source is to be left.
    """

    wake: Wake

    @property
    def spec(self) -> str:
        """The SPEC that named it: what its position is saved under."""

    def open(self, position: Position | None) -> None:
        """Begin, or go on from a saved position.

        Raises:
            SourceError: the source cannot be read; the message names the remedy.
        """

    def collect(self, wait_s: float) -> CollectorTurn:
        """What is new; waits at most `wait_s` for it and may come back with nothing."""

    def close(self) -> None:
        """Let go of files and processes; it may be opened again."""


class IntervalLooks:
    """What is looked at every `interval_s`, with nothing held open between: `collect` calls `look`."""

    def __init__(self, spec: str, interval_s: float) -> None:
        self.spec = spec
        self.wake = Wake()
        self.interval_s = interval_s
        self.due_s = 0.0

    def look(self, now: datetime) -> CollectorTurn:
        """What is new at this moment."""
        raise NotImplementedError

    def collect(self, wait_s: float) -> CollectorTurn:
        """One look, when it is due within `wait_s`."""
        if not self.wake.wait_until(self.due_s, wait_s):
            return CollectorTurn()
        self.due_s = time.monotonic() + self.interval_s
        return self.look(datetime.now(UTC))

    def close(self) -> None:
        """Nothing is held open."""


def check_listable(spec: str, folder: str | Path) -> None:
    """Say at the start what is wrong.

    Raises:
        SourceError: the folder cannot be listed.
    """
    try:
        os.scandir(folder).close()
    except OSError as error:
        raise SourceError(f"{spec}: {error.strerror}: let the sidecar's user list the directory") from error


# Options behind a SPEC's address, never sent to the host: `scrape:http://host:9500/metrics#keep=site_.*&keep=other`.


def split_options(spec: str, address: str, known: Sequence[str]) -> tuple[str, dict[str, list[str]]]:
    """The address without its options, and every option's values. `%26` stands for a `&` within a value.

    Raises:
        SourceError: an option that is not known, or without a value.
    """
    address, _hash, text = address.partition("#")
    options: dict[str, list[str]] = {}
    for part in filter(None, text.split("&")):
        name, _equals, value = part.partition("=")
        if name not in known or not value:
            allowed = ", ".join(f"{option}=..." for option in known)
            raise SourceError(f"{spec}: {part!r} is no option of this source: use {allowed}")
        options.setdefault(name, []).append(unquote(value))
    return address, options

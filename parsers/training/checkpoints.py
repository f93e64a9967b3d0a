"""Loads and saves of an attempt: one event each, of the several lines that report it.

    saving checkpoint at iteration 10 ...          -> checkpoint_save_start
      successfully saved checkpoint at iteration 10
        save-checkpoint ....: (21027.08, 21030.10) -> checkpoint_save, duration_ms 21030.1

A save in the background prints the same timer for what it stalled: it becomes `blocking_ms` of the save's end,
which bears `async`. Where no duration is printed, the times of its first and last line give one.
"""

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta

from store.records.event import Attribute, Event

# Saves in the background at once; programs refuse to begin a second one.
MAX_BACKGROUND = 16


class Checkpoints:
    """Holds a load or save until the line that tells how long it took, and the saves that go on in the background."""

    def __init__(self) -> None:
        self.background = False  # every save goes on in the background
        self._load: Event | None = None
        self._save: Event | None = None
        self._saving: Event | None = None  # the last save that was begun
        self._loading: Event | None = None
        self._done: Attribute = None  # iteration of the last save that was reported to its end
        self._scheduled: Attribute = None  # iteration of the save whose stall is still to come
        self._handed: Attribute = None  # iteration of the save that another process took over, which still stages
        self._blocking: dict[Attribute, Attribute] = {}  # iteration of a save in the background: its stall

    def held(self) -> list[Event]:
        """The load and the save that wait for more: nothing more comes."""
        held = [event for event in (self._load, self._save) if event is not None]
        if self._save is not None:
            self._done, self._saving = _iteration(self._save), None
        self._load = self._save = None
        return held

    def goes_on(self, iteration: Attribute) -> bool:
        """Whether a save that is held as done is of this iteration: what the trainer is built upon writes on."""
        return iteration is not None and self._save is not None and _iteration(self._save) == iteration

    def reset(self) -> None:
        """A new attempt: what went on in the background is gone."""
        self._blocking.clear()
        self._saving = self._loading = self._scheduled = self._done = self._handed = None

    def saving(self, event: Event) -> Iterator[Event]:
        """A save begins; other ranks may say so too."""
        last = self._saving
        if last is None or _iteration(last) is None or _iteration(last) != _iteration(event):
            self._saving, self._done, self._scheduled = event, None, None
            yield event

    def scheduled(self, event: Event) -> Iterator[Event]:
        """A save goes on in the background; one that was held as done has only stalled so far: it began before that."""
        save, self._save = self._save, None
        known = _iteration(event)
        if save is not None and known is not None and _iteration(save) not in (None, known):
            yield save  # an earlier one, which is done
            save = None
        if known is None:
            known = _iteration(save or self._saving)
        if len(self._blocking) >= MAX_BACKGROUND:
            self._blocking.pop(next(iter(self._blocking)))
        self._blocking[known] = None if save is None else save.attributes.get("duration_ms")
        self._scheduled = known if save is None else None
        if save is not None:
            attributes = {name: value for name, value in save.attributes.items() if name != "duration_ms"}
            message = save.message.replace("saved", "saving")
            begun = replace(save, kind="checkpoint_save_start", message=message, attributes=attributes)
            yield from self.saving(replace(begun, time=_before(save.time, self._blocking[known])))
        elif known is not None:
            yield from self.saving(
                replace(event, message=event.message.replace("scheduled", "saving checkpoint at iteration"))
            )

    def handed(self, event: Event) -> Iterator[Event]:
        """Another process takes a save over: the one that was begun, or one of which nothing was told yet."""
        known = _iteration(event)
        begun = self._saving is not None and _iteration(self._saving) in (None, known)
        if len(self._blocking) >= MAX_BACKGROUND:
            self._blocking.pop(next(iter(self._blocking)))
        self._blocking[known] = None
        if begun:
            self._handed = known
        else:
            yield from self.saving(
                replace(event, message=event.message.replace("handed", "saving checkpoint at iteration"))
            )

    def over(self, iteration: Attribute) -> None:
        """The save that work waited for is done."""
        self._done, self._saving = iteration, None

    def saved(self, event: Event) -> Iterator[Event]:
        """A save is done: held for its timer, unless it was in the background or tells its duration itself."""
        known = _iteration(event)
        # Old releases of NeMo name a file by the step that others print for the iteration before.
        if known not in self._blocking and isinstance(known, int) and known + 1 in self._blocking:
            event, known = _with(event, iteration=known + 1), known + 1
        if known is None and self._saving is not None and (known := _iteration(self._saving)) is not None:
            event = _with(event, iteration=known)
        if known in self._blocking:
            self._handed = None
            yield self._background(event, self._blocking.pop(known))
        elif known is None and self._handed is not None:
            self._blocking[self._handed], self._handed = event.attributes.get("duration_ms"), None
        elif self.background and (stall := event.attributes.get("duration_ms")) is not None:
            yield self._background(event, stall)
        elif self._save is not None and _iteration(self._save) == known:
            self._save = _lasted(replace(self._save, time=event.time or self._save.time), self._saving)
        elif known is None or known != self._done:
            yield from [] if self._save is None else [self._save]
            self._save = event if "duration_ms" in event.attributes else _lasted(event, self._saving)

    def save_timer(self, event: Event) -> Iterator[Event]:
        """How long a save took, or stalled."""
        if self._scheduled is not None:
            self._blocking[self._scheduled], self._scheduled = event.attributes.get("duration_ms"), None
            return
        save, self._save = self._save, None
        done = event if save is None else _with(save, duration_ms=event.attributes.get("duration_ms"))
        self._done, self._saving = _iteration(done), None
        yield replace(done, time=done.time or event.time)

    def loading(self, event: Event) -> None:
        """A load begins."""
        if self._loading is None:
            self._loading = event

    def loaded(self, event: Event) -> Iterator[Event]:
        """A load is done: held for its timer; other ranks may say so too."""
        known = _iteration(event)
        if known is None and self._loading is not None and (known := _iteration(self._loading)) is not None:
            event = _with(event, iteration=known)
        if self._load is not None and known != _iteration(self._load):
            yield self._load
            self._load = None
        lasted = event if "duration_ms" in event.attributes else _lasted(event, self._loading)
        self._load = lasted if self._load is None else replace(lasted, line=self._load.line)

    def load_timer(self, event: Event) -> Iterator[Event]:
        """How long a load took."""
        load, self._load = self._load, None
        done = event if load is None else _with(load, duration_ms=event.attributes.get("duration_ms"))
        yield replace(done, time=done.time or event.time)

    def _background(self, event: Event, stall: Attribute) -> Event:
        self._done, self._saving, self._scheduled = _iteration(event), None, None
        attributes = {name: value for name, value in event.attributes.items() if name != "duration_ms"}
        done = _with(replace(event, attributes=attributes), **{"async": True})
        return done if stall is None else _with(done, blocking_ms=stall)


def _iteration(event: Event | None) -> Attribute:
    return None if event is None else event.attributes.get("iteration")


def _with(event: Event, **numbers: Attribute) -> Event:
    return replace(event, attributes={**event.attributes, **numbers})


def _lasted(event: Event, begun: Event | None) -> Event:
    """The event with its duration, where the times of its beginning and end are known."""
    if begun is None or _iteration(begun) != _iteration(event):
        return event
    lasted = _between(begun.time, event.time)
    return event if lasted is None else _with(event, duration_ms=lasted)


def _before(time: datetime | None, passed_ms: Attribute) -> datetime | None:
    """The time so many milliseconds earlier."""
    return time - timedelta(milliseconds=passed_ms) if time and isinstance(passed_ms, float) else time


def _between(begin: datetime | None, end: datetime | None) -> float | None:
    """Milliseconds from one time to a later one."""
    if begin is None or end is None or end < begin:
        return None
    return round((end - begin).total_seconds() * 1000, 3)

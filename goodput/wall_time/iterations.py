"""Painting one attempt's iterations: from the first one's beginning to the last line, stalls and gaps between them.

An iteration line covers (time - iterations x elapsed, time]. Times are printed in whole seconds, so a gap
of up to one second is no gap. Lines without a time follow one another by what they cover.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from goodput.log.training_log import DEGRADED_RATIO, TICK_MS, TrainingLine
from goodput.timeline import CERTAIN, RUNNING, STARTING, Bucket, Segment, Timeline
from goodput.wall_time.saves import AttemptProgress

_STALLS: dict[str, Bucket] = {
    "checkpoint_save_start": "checkpoint_save",
    "checkpoint_save": "checkpoint_save",
    "evaluation": "evaluation",
    "data_wait": "data_stall",
}


@dataclass(frozen=True, slots=True)
class Stall:
    """A save, evaluation or wait between two iteration lines; `duration_ms` None = the log does not tell.

    Not `finished` = a save that was begun: one in the background may tell what it stalled, and keeps nothing yet.
    """

    bucket: Bucket
    duration_ms: int | None
    finished: bool


@dataclass(slots=True)
class IterationPainter:
    """Paints an attempt's log onto the timeline, never beyond `limit_ms`.

    After `paint`: `progress` = where each iteration ended and what was saved, `pending` = the stalls after the last
    iteration line, `saves` = the finished saves as they were painted, `begun_saves` = when each save without an end
    began, by its iteration, `dated` = whether the last iteration line bore its time.
    """

    timeline: Timeline
    limit_ms: int
    median_ms: float | None
    begun: bool = False
    dated: bool = False
    progress: AttemptProgress = field(default_factory=AttemptProgress)
    pending: list[Stall] = field(default_factory=list)
    saves: list[Segment] = field(default_factory=list)
    begun_saves: dict[int | None, int] = field(default_factory=dict)
    load_ms: int = 0
    load_told: bool = True
    first_ms: int | None = None  # when the first iteration began
    worked_ms: int = 0  # when the last one ended
    _known_ms: int | None = None
    _within_ms: float = 0.0  # waits for data that no gap has room for: the next line's own time has them

    def paint(self, lines: Sequence[TrainingLine]) -> None:
        """Paint every line up to the last iteration line; what follows it stays in `pending`."""
        for line in lines:
            if line.kind == "iteration":
                self._iteration(line)
            elif line.kind == "checkpoint_load" and not self.begun:
                self.load_ms += line.duration_ms or 0
                self.load_told = self.load_told and line.duration_ms is not None
            elif line.kind in _STALLS:
                self._stall(line)
            if line.time_ms is not None:
                self._known_ms = line.time_ms

    def _stall(self, line: TrainingLine) -> None:
        finished = line.kind != "checkpoint_save_start"
        if not finished:
            self.begun_saves[line.iteration] = self.timeline.cursor_ms if line.time_ms is None else line.time_ms
        elif line.kind == "checkpoint_save":
            self._ended(line)
        if line.background:
            self._keep(line)
            return
        if finished and line.kind == "checkpoint_save":  # its start line
            self.pending = [stall for stall in self.pending if stall.finished]
        self.pending.append(Stall(_STALLS[line.kind], line.duration_ms, finished))

    def _ended(self, line: TrainingLine) -> None:
        """The save that this line ends is no longer open: the one of its iteration, else the last one begun."""
        if line.iteration in self.begun_saves:
            del self.begun_saves[line.iteration]
        elif self.begun_saves and (line.iteration is None or not line.background):
            self.begun_saves.popitem()

    def _keep(self, line: TrainingLine) -> None:
        """A save in the background is done: it keeps what had ended when it was begun."""
        kept = self.progress.end_of(line.iteration or 0)
        if kept is None:
            return
        self.progress.saved(*kept)
        begun = any(save.start_ms == kept[1] for save in self.saves)
        if line.duration_ms and not begun:
            self.saves.append(Segment(kept[1], kept[1] + line.duration_ms, "checkpoint_save"))

    def _iteration(self, line: TrainingLine) -> None:
        span = line.span_ms
        if span is None and self.median_ms is not None:
            span = self.median_ms * line.iterations
        if line.time_ms is None:
            begin = max(self.timeline.cursor_ms, self._known_ms or 0)
            if self.begun and self.pending:
                begin = max(begin, self.timeline.cursor_ms + sum(x.duration_ms or 0 for x in self.pending))
            elif not self.begun:
                begin = max(begin, self.timeline.cursor_ms + self.load_ms)
            end = begin + round(span or 0)
        else:
            end = line.time_ms
            begin = self.timeline.cursor_ms if span is None and self.begun else end - round(span or 0)
        begin, end = min(begin, self.limit_ms), min(end, self.limit_ms)
        first = not self.begun
        if first:
            self._before_first(line, begin)
        else:
            self._between(begin, 0.0 if span is None else self._excess(line, span))
        self._cover(line, span, end, first)
        self.dated = line.time_ms is not None

    def _before_first(self, line: TrainingLine, begin_ms: int) -> None:
        self.begun = True
        self.pending.clear()
        fresh = line.iteration is not None and line.iteration <= line.iterations
        maybe = STARTING if not self.load_told or (not self.load_ms and not fresh) else CERTAIN
        maybe = RUNNING if line.span_ms is None else maybe
        self.timeline.paint("startup", begin_ms - self.load_ms, maybe - {"startup"})
        self.timeline.paint("checkpoint_load", begin_ms)
        self.first_ms = self.timeline.cursor_ms

    def _excess(self, line: TrainingLine, span_ms: float) -> float:
        """How much longer than normal the line's iterations took: older programs time a save with them."""
        if self.median_ms is None:
            return 0.0
        return max(0.0, span_ms - (line.data_ms or 0.0) - self.median_ms * line.iterations)

    def _between(self, begin_ms: int, excess_ms: float) -> None:
        """The stalls since the last line, then what nobody accounts for until `begin_ms`."""
        timeline = self.timeline
        room = begin_ms - timeline.cursor_ms + excess_ms
        filler: Bucket = "unknown"
        for stall in self.pending:
            if stall.duration_ms is None:
                filler = stall.bucket
                if stall.finished and stall.bucket == "checkpoint_save":
                    self.progress.saved_now(timeline.cursor_ms)
                continue
            gap = begin_ms - timeline.cursor_ms if stall.bucket == "data_stall" else room
            # A save that overlaps the next iterations was written in the background: it stalled no one.
            length = stall.duration_ms if stall.duration_ms <= gap + TICK_MS else max(0, round(gap))
            if stall.bucket == "data_stall":
                self._within_ms += stall.duration_ms - length
            self._paint_stall(stall, timeline.cursor_ms + length)
            room -= length
        self.pending.clear()
        if begin_ms - timeline.cursor_ms > TICK_MS:
            timeline.paint(filler, begin_ms, RUNNING - {filler})

    def _paint_stall(self, stall: Stall, until_ms: int) -> None:
        begin = self.timeline.cursor_ms
        self.timeline.paint(stall.bucket, min(until_ms, self.limit_ms))
        if stall.bucket != "checkpoint_save":
            return
        if stall.finished:
            self.progress.saved_now(self.timeline.cursor_ms)
        self.saves.append(Segment(begin, self.timeline.cursor_ms, "checkpoint_save"))

    def _cover(self, line: TrainingLine, span_ms: float | None, end_ms: int, first: bool) -> None:
        """The line's own time: waits for data, the excess of a slow one (a first one's is startup), the rest work."""
        timeline = self.timeline
        begin, length = timeline.cursor_ms, max(0, end_ms - timeline.cursor_ms)
        data = 0
        if line.data_ms or self._within_ms:
            data = min(round((line.data_ms or 0.0) + self._within_ms), length)
            self._within_ms = 0.0
        slow = 0
        if span_ms is not None and self.median_ms is not None:
            taken = (span_ms if abs(length - span_ms) <= TICK_MS else min(span_ms, length)) - data
            normal = self.median_ms * line.iterations
            slow = round(taken - normal) if taken > DEGRADED_RATIO * normal else 0
        slow = max(0, min(slow, length - data))
        maybe = CERTAIN if line.span_ms is not None else RUNNING - {"productive"}
        if first:
            timeline.paint("startup", begin + slow)
            slow = 0
        timeline.paint("productive", end_ms - data - slow, maybe)
        if data or slow:
            timeline.paint("data_stall", end_ms - slow)
            timeline.paint("degraded", end_ms)
        self.worked_ms = timeline.cursor_ms
        self.progress.done(line.iteration, line.iterations, begin, timeline.cursor_ms)

    def paint_tail(self, until_ms: int) -> None:
        """The timed stalls after the last iteration line, up to a moment; a save that never finished is not painted."""
        for stall in self.pending:
            if stall.duration_ms is not None:
                self._paint_stall(stall, min(until_ms, self.timeline.cursor_ms + stall.duration_ms))
            elif stall.finished and stall.bucket == "checkpoint_save":
                self.progress.saved_now(self.timeline.cursor_ms)
        self.pending.clear()

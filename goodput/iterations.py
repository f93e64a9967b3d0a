"""Painting one attempt's iterations: from the first one's beginning to the last line, stalls and gaps between them.

An iteration line covers (time - iterations x elapsed, time]. Times are printed in whole seconds, so a gap
of up to one second is no gap. Lines without a time follow one another by what they cover.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from goodput.timeline import Bucket, Segment, Timeline
from goodput.training_log import LogLine

# Log lines print whole seconds: two of them may lie this far apart without anything between.
TICK_MS = 1_000
# An iteration slower than this times the run's median is degraded; DESIGN fixes no figure, this is our choice.
DEGRADED_RATIO = 1.2

_STALLS: dict[str, Bucket] = {
    "checkpoint_save_start": "checkpoint_save",
    "checkpoint_save": "checkpoint_save",
    "evaluation": "evaluation",
}


@dataclass(frozen=True, slots=True)
class Stall:
    """A save or evaluation between two iteration lines; `duration_ms` None = the log does not tell."""

    bucket: Bucket
    duration_ms: int | None
    finished: bool


@dataclass(slots=True)
class IterationPainter:
    """Paints an attempt's log onto the timeline, never beyond `limit_ms`.

    After `paint`: `safe_ms` = what came before is kept by a finished save (or had been loaded), `pending` = the stalls
    after the last iteration line, `saves` = the finished saves as they were painted.
    """

    timeline: Timeline
    limit_ms: int
    median_ms: float | None
    begun: bool = False
    safe_ms: int | None = None
    pending: list[Stall] = field(default_factory=list)
    saves: list[Segment] = field(default_factory=list)
    load_ms: int = 0
    _known_ms: int | None = None
    _ends: list[tuple[int, int]] = field(default_factory=list)

    def paint(self, lines: Sequence[LogLine]) -> None:
        """Paint every line up to the last iteration line; what follows it stays in `pending`."""
        for line in lines:
            if line.kind == "iteration":
                self._iteration(line)
            elif line.kind == "checkpoint_load" and not self.begun:
                self.load_ms += line.duration_ms or 0
            elif line.kind in _STALLS:
                self._stall(line)
            if line.time_ms is not None:
                self._known_ms = line.time_ms

    def _stall(self, line: LogLine) -> None:
        finished = line.kind != "checkpoint_save_start"
        if line.background:
            self._kept(line)
            return
        if finished and self.pending and not self.pending[-1].finished:
            self.pending.pop()  # its start line
        self.pending.append(Stall(_STALLS[line.kind], line.duration_ms, finished))

    def _kept(self, line: LogLine) -> None:
        """A save in the background is done: it keeps what had ended when it was begun, and stalls no one here."""
        kept = next((end for iteration, end in reversed(self._ends) if iteration <= (line.iteration or 0)), None)
        if kept is None:
            return
        self.safe_ms = max(kept, self.safe_ms or kept)
        if line.duration_ms:
            self.saves.append(Segment(kept, kept + line.duration_ms, "checkpoint_save"))

    def _iteration(self, line: LogLine) -> None:
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
        if self.begun:
            self._between(begin, 0.0 if span is None else self._excess(line, span))
        else:
            self._before_first(begin)
        self._cover(line, span, end)

    def _before_first(self, begin_ms: int) -> None:
        self.begun = True
        self.pending.clear()
        self.timeline.paint("startup", begin_ms - self.load_ms)
        self.timeline.paint("checkpoint_load", begin_ms)

    def _excess(self, line: LogLine, span_ms: float) -> float:
        """How much longer than normal the line's iterations took: older programs time a save with them."""
        return 0.0 if self.median_ms is None else max(0.0, span_ms - self.median_ms * line.iterations)

    def _between(self, begin_ms: int, excess_ms: float) -> None:
        """The stalls since the last line, then what nobody accounts for until `begin_ms`."""
        timeline = self.timeline
        room = begin_ms - timeline.cursor_ms + excess_ms
        filler: Bucket = "unknown"
        for stall in self.pending:
            if stall.duration_ms is None:
                filler = stall.bucket
                if stall.finished and stall.bucket == "checkpoint_save":
                    self.safe_ms = timeline.cursor_ms
                continue
            # A save that overlaps the next iterations was written in the background: it stalled no one.
            length = stall.duration_ms if stall.duration_ms <= room + TICK_MS else max(0, round(room))
            self._paint_stall(stall, timeline.cursor_ms + length)
            room -= length
        self.pending.clear()
        if begin_ms - timeline.cursor_ms > TICK_MS:
            timeline.paint(filler, begin_ms)

    def _paint_stall(self, stall: Stall, until_ms: int) -> None:
        begin = self.timeline.cursor_ms
        self.timeline.paint(stall.bucket, min(until_ms, self.limit_ms))
        if stall.bucket == "checkpoint_save" and stall.finished:
            self.safe_ms = self.timeline.cursor_ms
            self.saves.append(Segment(begin, self.timeline.cursor_ms, "checkpoint_save"))

    def _cover(self, line: LogLine, span_ms: float | None, end_ms: int) -> None:
        """The line's own time: the normal part productive, the excess of a slow one degraded."""
        length = end_ms - self.timeline.cursor_ms
        slow = 0
        if span_ms is not None and self.median_ms is not None:
            taken = span_ms if abs(length - span_ms) <= TICK_MS else min(span_ms, length)
            normal = self.median_ms * line.iterations
            slow = round(taken - normal) if taken > DEGRADED_RATIO * normal else 0
        self.timeline.paint("productive", end_ms - max(0, min(slow, length)))
        self.timeline.paint("degraded", end_ms)
        if line.iteration is not None:
            self._ends.append((line.iteration, self.timeline.cursor_ms))

    def paint_tail(self, until_ms: int) -> None:
        """The finished stalls after the last iteration line, up to a moment; one that never finished is not painted."""
        for stall in self.pending:
            if stall.finished and stall.duration_ms is not None:
                self._paint_stall(stall, min(until_ms, self.timeline.cursor_ms + stall.duration_ms))
        self.pending.clear()

"""Walking the attempts of a run, each painted on a timeline of its own: startup, iterations, end.

What an attempt's own segments depend on: its own records, the run's pace, the faults and outages of its window; and
for one whose log and job bear no time, where the attempt before it ended. What was lost of it is settled afterwards by
the attempts that follow (goodput/wall_time/settling.py), and where it lies in the run's wall time by its neighbours
(goodput/wall_time/wall.py).
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from goodput.log.pace import Pace
from goodput.log.training_log import LogLine
from goodput.timeline import CERTAIN, Bucket, Segment, Timeline, to_ms
from goodput.wall_time.attempts import Attempt
from goodput.wall_time.blame import Evidence, blame
from goodput.wall_time.bounds import ENDING, RUNNING
from goodput.wall_time.interruption import Interruption, ended_badly, fault_window, first_fault
from goodput.wall_time.iterations import IterationPainter
from goodput.wall_time.saved_work import Progress
from store.event import Event

# What a failure takes back: work that no finished save keeps.
AT_RISK: tuple[Bucket, ...] = ("productive", "degraded", "data_stall", "evaluation")
_FAR_MS = 2**62
# Errors that end a program there and then; a lost connection or a lost node is noticed later.
_OWN_FAULTS = ("application", "storage", "hardware")


@dataclass(frozen=True, slots=True)
class UnfinishedSave:
    """A save that was begun and never ended, because the program did. `iteration` None = not told."""

    time_ms: int
    iteration: int | None


@dataclass(slots=True)
class Walked:
    """What one attempt left.

    `segments` = its own time, from start to end (of one that never started: its wait). `worked_ms` = until when its log
    tells of work. `resumed` = the iteration that it began with, `loaded` = a line told so, `blind` = it ran for
    longer than a line takes and none tells what it did.
    """

    attempt: Attempt
    segments: list[Segment]
    started: bool
    worked_ms: int
    interruption: Interruption | None = None
    saves: tuple[Segment, ...] = ()
    unfinished: tuple[UnfinishedSave, ...] = ()
    progress: Progress = field(default_factory=Progress)
    resumed: int | None = None
    loaded: bool = False
    blind: bool = False
    first_ms: int | None = None

    @property
    def start_ms(self) -> int:
        """Where its own time begins."""
        return self.segments[0].start_ms if self.segments else self.worked_ms

    @property
    def end_ms(self) -> int:
        """Where its own time ends."""
        return self.segments[-1].end_ms if self.segments else self.worked_ms


class Walker:
    """Paints attempts, each by itself."""

    def __init__(self, log: Sequence[LogLine], evidence: Evidence, until_ms: int | None, pace: Pace) -> None:
        self.evidence = evidence
        self.until_ms = until_ms
        self.has_log = any(line.kind == "iteration" for line in log)
        # Saves that nobody tells the end of (some trainers print their beginning alone) cannot be missed.
        self.tells_saves = any(line.kind == "checkpoint_save" for line in log)
        self.median_ms = pace.iteration_ms
        self.print_ms = pace.print_ms or 0.0

    def walk(self, attempt: Attempt, cursor_ms: int) -> Walked:
        """Paint one attempt: its startup, its iterations, its end. One without a time begins at `cursor_ms`."""
        timeline = Timeline(_first_known(attempt.start_ms, cursor_ms))
        if attempt.start_ms is None and not attempt.lines:  # it never started, or waits still
            timeline = Timeline(_first_known(attempt.begin_ms, cursor_ms))
            timeline.paint("waiting", _first_known(attempt.end_ms, self.until_ms, attempt.begin_ms))
            return Walked(attempt, timeline.segments, False, timeline.start_ms)
        painter = IterationPainter(timeline, _first_known(attempt.end_ms, self.until_ms, _FAR_MS), self.median_ms)
        painter.paint(attempt.lines)
        end = _first_known(attempt.end_ms, self.until_ms, max(timeline.cursor_ms, attempt.last_data_ms or 0))
        worked = timeline.cursor_ms
        window = fault_window(attempt, end, worked if painter.begun else None)
        fault = first_fault(attempt, self.evidence.between(*window))
        cut = None
        if ended_badly(attempt, fault):
            stopped = end if fault is None or fault.time is None else to_ms(fault.time)
            self._bad_end(timeline, painter, attempt, (stopped, end), _is_the_fault(fault))
            cut = Interruption(stopped, *blame(attempt, fault, window, self.evidence), 0, 0)
        else:
            self._good_end(timeline, painter, attempt, end)
        resumed, loaded = _resumed(attempt, painter.progress)
        return Walked(
            attempt=attempt,
            segments=timeline.segments,
            started=True,
            worked_ms=worked,
            interruption=cut,
            saves=tuple(painter.saves),
            unfinished=self._unfinished(attempt, painter),
            progress=painter.progress,
            resumed=resumed,
            loaded=loaded,
            blind=not attempt.lines and attempt.end_ms is not None and end - timeline.start_ms > self.print_ms,
            first_ms=painter.first_ms,
        )

    def _unfinished(self, attempt: Attempt, painter: IterationPainter) -> tuple[UnfinishedSave, ...]:
        """The saves that an attempt did not live to finish; where ends are never told, one that it died in."""
        if attempt.end_ms is None:
            return ()
        begun = painter.begun_saves.items()
        found = [
            UnfinishedSave(moment, iteration)
            for iteration, moment in begun
            if self.tells_saves or moment >= painter.worked_ms
        ]
        return tuple(sorted(found, key=lambda save: save.time_ms))

    def _before_iterations(
        self, timeline: Timeline, painter: IterationPainter, attempt: Attempt, until_ms: int
    ) -> None:
        """An attempt that printed no iteration was starting up; of one that ended and printed nothing nobody knows."""
        if self.has_log and (attempt.lines or attempt.end_ms is None):
            timeline.paint("startup", until_ms - painter.load_ms, RUNNING - {"startup"})
            timeline.paint("checkpoint_load", until_ms, RUNNING - {"checkpoint_load"})
        else:
            timeline.paint("unknown", until_ms, RUNNING - {"unknown"})

    def _bad_end(
        self, timeline: Timeline, painter: IterationPainter, attempt: Attempt, times: tuple[int, int], seen: bool
    ) -> None:
        """Work until the fault, thrown away; from there until the scheduler ended it, nobody had noticed.

        `times` = the fault, the end. Where nobody saw the fault, it may have come any time after the last line.
        """
        stopped, end = times
        if painter.begun:
            # A save in the background was begun: what it stalled is told when it ends.
            stalled = any(stall.duration_ms is None and not stall.finished for stall in painter.pending)
            painter.paint_tail(stopped)
            maybe = RUNNING if not painter.dated else CERTAIN if seen else ENDING
            if stalled:
                maybe = maybe | {"checkpoint_save"}
            timeline.paint("lost_work", stopped, maybe - {"lost_work"})
            maybe = RUNNING if not painter.dated else CERTAIN
        else:
            self._before_iterations(timeline, painter, attempt, stopped)
            maybe = RUNNING
        timeline.paint("detection", end, maybe - {"detection"})

    def _good_end(self, timeline: Timeline, painter: IterationPainter, attempt: Attempt, end_ms: int) -> None:
        """The rest after the last line: work that was not printed yet, if no longer than it takes to print a line."""
        if not painter.begun:
            self._before_iterations(timeline, painter, attempt, end_ms)
            return
        painter.paint_tail(end_ms)
        rest = end_ms - timeline.cursor_ms
        bucket: Bucket = "productive" if rest < self.print_ms else "unknown"
        timeline.paint(bucket, end_ms, RUNNING - {bucket})


def _is_the_fault(fault: Event | None) -> bool:
    """Whether a fault's time is when the work stopped: a program that only noticed may have stood still before."""
    return fault is not None and (fault.kind != "training_error" or fault.cause in _OWN_FAULTS)


def _resumed(attempt: Attempt, progress: Progress) -> tuple[int | None, bool]:
    """The iteration that an attempt began with, and whether a line tells what was loaded."""
    for line in attempt.lines:
        if line.kind == "iteration":
            break
        if line.kind == "checkpoint_load" and line.iteration is not None:
            return line.iteration, True
    return progress.first, False


def _first_known(*moments: int | None) -> int:
    """The first moment that is known."""
    return next(moment for moment in moments if moment is not None)

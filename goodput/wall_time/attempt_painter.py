"""Walking the attempts of a run, each painted on a timeline of its own: startup, iterations, end.

What an attempt's own segments depend on: its own records, the run's pace, the faults and outages of its window; and
for one whose log and job bear no time, where the attempt before it ended. What was lost of it is settled afterwards by
the attempts that follow (goodput/wall_time/wall.py), and where it lies in the run's wall time by its neighbours
(goodput/wall_time/wall.py).
"""

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from operator import itemgetter

from goodput.log.training_log import IterationPace, TrainingLine
from goodput.timeline import CERTAIN, ENDING, RUNNING, Bucket, Timeline, from_ms, to_ms
from goodput.wall_time.attempts import (
    LOST_LINKS,
    Interruption,
    InterruptionCulprit,
    PaintedAttempt,
    RunAttempt,
    UnfinishedSave,
    ended_badly,
    fault_window,
    first_fault,
)
from goodput.wall_time.iterations import IterationPainter
from goodput.wall_time.saves import AttemptProgress
from store.records.event import Cause, Device, Event
from store.records.outage import Outage
from store.records.verdict import Verdict

# Whom to blame for an attempt's bad end: the device that failed first, or what its neighbours and records tell.
#
# The subnet manager is the only witness of much: a host that crashes, a power supply that fails and a leaf switch that
# dies all show as ports that vanish. The outage that follows, or who else vanished with it, tells them apart.

# A node that dies silently is marked down by the scheduler up to this long after the attempt ended.
_MARKED_DOWN = timedelta(minutes=30)
# Ports under one switch vanish within one sweep of the subnet manager; three nodes are no coincidence.
_TOGETHER = timedelta(seconds=10)
_SEVERAL = 3
_MOMENT = itemgetter(0)

_CAUSE_OF_STATE: Mapping[str, Cause] = {"NODE_FAIL": "host", "BOOT_FAIL": "host", "OUT_OF_MEMORY": "application"}
_STORAGE = re.compile(
    r"Errno 5\b|Input/output error|Stale file handle|No space left|Read-only file system", re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class BlameEvidence:
    """What may speak for or against someone: faults and reported errors, outages, each node's leaf, stored verdicts.

    `faults` are in order, each with its time in milliseconds, as `faults_by_time` gives them; `verdicts` are by the end
    of the attempt that they explain.
    """

    faults: Sequence[tuple[int, Event]] = ()
    outages: Sequence[Outage] = ()
    leaves: Mapping[str, str] = field(default_factory=dict)
    verdicts: Mapping[int, Verdict] = field(default_factory=dict)

    def between(self, since_ms: int, until_ms: int) -> list[Event]:
        """The faults of a closed window, by their times."""
        first = bisect_left(self.faults, since_ms, key=_MOMENT)
        return [event for _, event in self.faults[first : bisect_right(self.faults, until_ms, key=_MOMENT)]]


def faults_by_time(faults: Iterable[Event]) -> list[tuple[int, Event]]:
    """Faults in order of time, each with its milliseconds since 1970; one without a time is left out."""
    timed = ((to_ms(event.time), event) for event in faults if event.time is not None)
    return sorted(timed, key=_MOMENT)


def blame(
    attempt: RunAttempt, fault: Event | None, window_ms: tuple[int, int], evidence: BlameEvidence
) -> tuple[Cause, InterruptionCulprit | None]:
    """Cause and culprit of an attempt's end: of the fault that came first, else of whom the records name.

    Args:
        fault: the first fault, None where none was seen.
        window_ms: from the last progress to the end, milliseconds since 1970.
    """
    down = _went_down(attempt, window_ms, evidence)
    if fault is not None and fault.kind != "training_error":
        return _of_machine(fault, down, evidence)
    if down:
        return down[0].cause, InterruptionCulprit(down[0].node, Device(type="node"), "outage", None)
    cause = _CAUSE_OF_STATE.get(attempt.state, "unknown") if fault is None else _of_words(fault)
    # What the program did to itself, it does on any node: who reports it is not to blame for it.
    return cause, None if cause == "application" else _failed_task(window_ms, evidence)


def _went_down(attempt: RunAttempt, window_ms: tuple[int, int], evidence: BlameEvidence) -> list[Outage]:
    """Unplanned outages of the attempt's nodes that began between its last progress and shortly after its end."""
    since, until = from_ms(window_ms[0]), from_ms(window_ms[1]) + _MARKED_DOWN
    near = [
        outage
        for outage in evidence.outages
        if not outage.planned and outage.node in attempt.nodes and since <= outage.start <= until
    ]
    return sorted(near, key=lambda outage: (outage.start, outage.node))


def _of_machine(fault: Event, down: Sequence[Outage], evidence: BlameEvidence) -> tuple[Cause, InterruptionCulprit]:
    """The device of a fault; of a lost link, the switch above or the node behind it where that is what failed."""
    own = InterruptionCulprit(fault.node, fault.device, fault.kind, fault.code)
    if fault.kind not in LOST_LINKS:
        return fault.cause, own
    leaf = evidence.leaves.get(fault.node or "")
    if leaf is not None and len(_vanished_with(fault, leaf, evidence)) >= _SEVERAL:
        return fault.cause, InterruptionCulprit(leaf, Device(type="switch"), fault.kind, None)
    for outage in down:
        if outage.node == fault.node and outage.cause not in ("fabric", "unknown"):
            return outage.cause, InterruptionCulprit(outage.node, Device(type="node"), "outage", None)
    return fault.cause, own


def _vanished_with(fault: Event, leaf: str, evidence: BlameEvidence) -> set[str]:
    """The nodes under a leaf that lost a link within seconds of a fault, its own among them."""
    if fault.time is None:
        return set()
    return {
        event.node
        for event in evidence.between(to_ms(fault.time - _TOGETHER), to_ms(fault.time + _TOGETHER))
        if event.node is not None and event.kind in LOST_LINKS and evidence.leaves.get(event.node) == leaf
    }


def _of_words(fault: Event) -> Cause:
    """The cause of an error that the program reported: what its line says, else the program's own."""
    if fault.cause != "unknown":
        return fault.cause
    return "storage" if _STORAGE.search(fault.message) else "application"


def _failed_task(window_ms: tuple[int, int], evidence: BlameEvidence) -> InterruptionCulprit | None:
    """The node whose task failed, if the launcher names one alone: when all are killed, none of them is to blame."""
    reported = evidence.between(*window_ms)
    named = {event.node for event in reported if event.kind == "training_error" and event.node}
    return InterruptionCulprit(named.pop(), Device(type="node"), "training_error", None) if len(named) == 1 else None


# Under this probability a verdict is a guess: what the records say by themselves stands.
SURE = 0.5


def with_verdict(cut: Interruption, verdict: Verdict | None) -> Interruption:
    """An interruption with the culprit that the verdict on its stop names: diagnosis found it from all that is known.

    What the run's own records say stands where there is no verdict, or it is that the cause is not known.
    """
    if verdict is None or verdict.cause_class == "unknown" or verdict.probability < SURE:
        return cut
    if verdict.cause_class in ("application", "job", "planned"):
        cause: Cause = "application" if verdict.cause_class != "planned" else verdict.cause
        return replace(cut, cause=cause, culprit=None, verdict=verdict)
    own = cut.culprit
    name = verdict.node or verdict.name
    if own is not None and own.node == name:  # the records tell it with its kind and code
        return replace(cut, verdict=verdict)
    device = verdict.device if verdict.node is not None else replace(verdict.device, type=verdict.cause_class)
    return replace(
        cut, cause=verdict.cause, culprit=InterruptionCulprit(name, device, "verdict", None), verdict=verdict
    )


_FAR_MS = 2**62
# Errors that end a program there and then; a lost connection or a lost node is noticed later.
_OWN_FAULTS = ("application", "storage", "hardware")


class AttemptPainter:
    """Paints attempts, each by itself."""

    def __init__(
        self, log: Sequence[TrainingLine], evidence: BlameEvidence, until_ms: int | None, pace: IterationPace
    ) -> None:
        self.evidence = evidence
        self.until_ms = until_ms
        self.has_log = any(line.kind == "iteration" for line in log)
        # Saves that nobody tells the end of (some trainers print their beginning alone) cannot be missed.
        self.tells_saves = any(line.kind == "checkpoint_save" for line in log)
        self.median_ms = pace.iteration_ms
        self.print_ms = pace.print_ms or 0.0

    def walk(self, attempt: RunAttempt, cursor_ms: int) -> PaintedAttempt:
        """Paint one attempt: its startup, its iterations, its end. One without a time begins at `cursor_ms`."""
        timeline = Timeline(_first_known(attempt.start_ms, cursor_ms))
        if attempt.start_ms is None and not attempt.lines:  # it never started, or waits still
            timeline = Timeline(_first_known(attempt.begin_ms, cursor_ms))
            timeline.paint("waiting", _first_known(attempt.end_ms, self.until_ms, attempt.begin_ms))
            return PaintedAttempt(attempt, timeline.segments, False, timeline.start_ms)
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
            cause, culprit = blame(attempt, fault, window, self.evidence)
            cut = with_verdict(Interruption(stopped, cause, culprit, 0, 0), self.evidence.verdicts.get(end))
        else:
            self._good_end(timeline, painter, attempt, end)
        resumed, loaded = _resumed(attempt, painter.progress)
        return PaintedAttempt(
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

    def _unfinished(self, attempt: RunAttempt, painter: IterationPainter) -> tuple[UnfinishedSave, ...]:
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
        self, timeline: Timeline, painter: IterationPainter, attempt: RunAttempt, until_ms: int
    ) -> None:
        """An attempt that printed no iteration was starting up; of one that ended and printed nothing nobody knows."""
        if self.has_log and (attempt.lines or attempt.end_ms is None):
            timeline.paint("startup", until_ms - painter.load_ms, RUNNING - {"startup"})
            timeline.paint("checkpoint_load", until_ms, RUNNING - {"checkpoint_load"})
        else:
            timeline.paint("unknown", until_ms, RUNNING - {"unknown"})

    def _bad_end(
        self, timeline: Timeline, painter: IterationPainter, attempt: RunAttempt, times: tuple[int, int], seen: bool
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

    def _good_end(self, timeline: Timeline, painter: IterationPainter, attempt: RunAttempt, end_ms: int) -> None:
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


def _resumed(attempt: RunAttempt, progress: AttemptProgress) -> tuple[int | None, bool]:
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

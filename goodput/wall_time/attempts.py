"""Attempts: the jobs of a run, each with the lines of the training log that it wrote.

A job is one attempt; where the training program started anew inside a job, each start is one.
A session of the log that no job covers is an attempt by itself: logs without `sacct` are accounted too.
"""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from goodput.log.training_log import Session, TrainingLine
from goodput.timeline import HOUR_MS, Bucket, Segment, from_ms, to_ms
from goodput.wall_time.saves import AttemptProgress
from store.records.event import Cause, Device, Event, format_time
from store.records.hostlist import hosts
from store.records.job import Job
from store.records.verdict import Verdict

# The clocks of the scheduler and of the training nodes differ by no more.
_SLACK_MS = 60_000
# A startup that took longer than this began with another start.
_STARTUP_MS = HOUR_MS

SUCCESSFUL = frozenset({"COMPLETED"})
STILL_OPEN = frozenset({"RUNNING", "PENDING", "SUSPENDED", "COMPLETING", "CONFIGURING", "STOPPED", "SIGNALING"})
# What the launcher's last words stand for; anything else failed.
_STATES = {
    "cancelled": "CANCELLED",
    "time_limit": "TIMEOUT",
    "preempted": "PREEMPTED",
    "node_failure": "NODE_FAIL",
}
# What a program notices and goes on.
_NO_END = frozenset({"nccl_socket", "nccl_ib_async", "unexpected_result"})
RESIZED = "RESIZING"  # Slurm's word for the record of a job before it changed its size
RESTARTED = "RESTARTED"  # the program started anew within its job


@dataclass(frozen=True, slots=True)
class RunAttempt:
    """One start of a run. None = not known; `end_ms` None = still open."""

    submit_ms: int | None
    start_ms: int | None
    end_ms: int | None
    state: str
    nodes: frozenset[str] = frozenset()
    node_count: int | None = None
    lines: tuple[TrainingLine, ...] = ()
    from_log: bool = False  # no scheduler knows of it

    @property
    def place_ms(self) -> int | None:
        """What orders attempts: the start; of one that has not started, the submit."""
        return self.submit_ms if self.start_ms is None else self.start_ms

    @property
    def begin_ms(self) -> int | None:
        """The first moment known of it: submitted, else started."""
        return self.start_ms if self.submit_ms is None else self.submit_ms

    @property
    def last_iteration_ms(self) -> int | None:
        """The time of its last iteration line that bears one."""
        times = (x.time_ms for x in reversed(self.lines) if x.kind == "iteration" and x.time_ms is not None)
        return next(times, None)

    @property
    def last_data_ms(self) -> int | None:
        """The last moment that anything is known of it; lines without a time follow those before by what they tell."""
        known = [self.submit_ms, self.start_ms, self.end_ms, _last_ms(self.lines, self.start_ms)]
        return max((moment for moment in known if moment is not None), default=None)


def attempts_of(
    jobs: Sequence[Job],
    log: Sequence[Session],
    until_ms: int | None = None,
    phases: Sequence[TrainingLine] = (),
) -> list[RunAttempt]:
    """The attempts of a run in the order of their starts, as they were known at `until_ms`.

    `phases` = the steps of startups that the log tells: of a start that no scheduler knows they are the beginning.
    """
    started = _begun(jobs, until_ms)
    own: list[list[Session]] = [[] for _ in started]
    starts = [(job.start_ms, place) for place, job in enumerate(started) if job.start_ms is not None]
    alone: list[Session] = []
    previous = -1
    for session in _cut_at_ends(log, started):
        first = session.first_ms
        # Without a time a session is the next job's in order.
        place = min(previous + 1, len(started) - 1) if first is None and started else _job_at(first, started, starts)
        if place is None:
            alone.append(session)
        else:
            own[place].append(session)
            previous = place
    attempts = [part for attempt, parts in zip(started, own, strict=True) for part in _split(attempt, parts)]
    dated = [(line.time_ms, line.words) for line in phases if line.time_ms is not None]
    attempts += _from_log(alone, sorted(dated, key=lambda phase: phase[0]))
    attempts.sort(key=lambda a: (a.place_ms is None, a.place_ms or 0))
    return [_known_by(until_ms, attempt) for attempt in _close(attempts)]


def _begun(jobs: Sequence[Job], until_ms: int | None) -> list[RunAttempt]:
    """The jobs that had been submitted or started, in the order of their starts."""
    known = [attempt for attempt in (_from_job(job, until_ms) for job in jobs) if attempt is not None]
    return sorted(known, key=lambda a: (a.place_ms or 0, a.end_ms or 0))


def _from_job(job: Job, until_ms: int | None) -> RunAttempt | None:
    """A job as it was known at a moment; None if nothing was known of it then."""

    def by_now(moment_ms: int | None) -> int | None:
        return None if moment_ms is None or (until_ms is not None and moment_ms > until_ms) else moment_ms

    submit, start, end = (by_now(None if t is None else to_ms(t)) for t in (job.submit, job.start, job.end))
    if submit is None and start is None:
        return None
    word = job.state.split()[0].upper() if job.state.split() else "UNKNOWN"
    hidden = end is None and job.end is not None
    if end is not None and start is not None:
        end = max(end, start)
    return RunAttempt(
        submit_ms=submit if submit is None or start is None else min(submit, start),
        start_ms=start,
        end_ms=end,
        state="RUNNING" if hidden else word,
        nodes=frozenset() if start is None else hosts(job.node_list),
        node_count=job.nodes,
    )


def _cut_at_ends(log: Sequence[Session], attempts: Sequence[RunAttempt]) -> list[Session]:
    """The sessions, cut where a job has ended and the next one has begun: some programs say nothing when they start.

    What a line covers then lies behind the ends of all jobs before, and in the last one begun.
    """
    starts, ends = _handovers(attempts)
    parts: list[Session] = []
    for session in log if attempts else []:
        begin, home = 0, -1
        for at, line in enumerate(session.lines):
            if line.kind != "iteration" or line.time_ms is None:
                continue
            place = bisect_right(starts, line.time_ms) - 1
            ended = ends[place] if place > home >= 0 and attempts[place].start_ms is not None else None
            if ended is not None and ended <= (line.begin_ms or line.time_ms):
                parts.append(Session(session.lines[begin:at]))
                begin, home = at, place
            elif home < 0:
                home = place
        parts.append(Session(session.lines[begin:]))
    return parts or list(log)


def _handovers(attempts: Sequence[RunAttempt]) -> tuple[list[int], list[int | None]]:
    """Of each job when it began, and when the last of those before it had ended; None where that is not known."""
    starts = [attempt.place_ms or 0 for attempt in attempts]
    ends: list[int | None] = [None]
    for attempt in attempts[:-1]:
        last, end = ends[-1], attempt.end_ms
        known = end is not None and (last is not None or len(ends) == 1)
        ends.append(max(end or 0, last or 0) if known else None)
    return starts, ends


def handovers_ms(jobs: Sequence[Job]) -> list[int]:
    """The moments by which jobs part the lines of a run's log among them, sorted.

    A line that ends before a job's start or begins before the end of those before it is not that job's. An end before
    the next start parts nothing: only lines after that start may be the next job's.
    """
    starts, ends = _handovers(_begun(jobs, None))
    late = [end for start, end in zip(starts, ends, strict=False) if end is not None and end > start]
    return sorted({*starts[1:], *late})


def _job_at(first_ms: int | None, jobs: Sequence[RunAttempt], starts: Sequence[tuple[int, int]]) -> int | None:
    """Which job wrote a session that begins at a moment: the last one begun then, else one that begins soon.

    Args:
        starts: when each started job started, in that order, and its place.
    """
    if first_ms is None:
        return None
    after = bisect_right(starts, first_ms, key=lambda start: start[0])
    begun = starts[after - 1][1] if after else None
    end = None if begun is None else jobs[begun].end_ms
    if begun is not None and (end is None or first_ms <= end):
        return begun
    if after < len(starts) and starts[after][0] <= first_ms + _SLACK_MS:
        return starts[after][1]
    return begun if end is not None and first_ms <= end + _SLACK_MS else None


def _split(attempt: RunAttempt, parts: Sequence[Session]) -> list[RunAttempt]:
    """A job cut where its program started anew, as far as the log tells when that was."""
    pieces: list[list[TrainingLine]] = [[]]
    cuts: list[int] = []
    for session in parts:
        begin = session.begin_ms
        floor = cuts[-1] if cuts else attempt.start_ms
        if any(line.kind == "iteration" for line in pieces[-1]) and begin is not None and begin > (floor or 0):
            cuts.append(begin)
            pieces.append([])
        pieces[-1].extend(session.lines)
    bounds = [attempt.start_ms, *cuts, attempt.end_ms]
    return [
        replace(
            attempt,
            submit_ms=attempt.submit_ms if i == 0 else None,
            start_ms=bounds[i],
            end_ms=bounds[i + 1],
            state=attempt.state if i == len(pieces) - 1 else RESTARTED,
            lines=tuple(lines),
        )
        for i, lines in enumerate(pieces)
    ]


def _from_log(log: Sequence[Session], phases: Sequence[tuple[int, str]]) -> list[RunAttempt]:
    """An attempt for each session that no job covers; it ended well only if it says so or nothing came after."""
    attempts = []
    before = None
    for session in log:
        state = _state_of(session)
        end = None
        if state != "RUNNING":
            end = _last_ms(session.lines, None)
        start = _first_phase(session.begin_ms, before, phases)
        attempts.append(RunAttempt(None, start, end, state, lines=session.lines, from_log=True))
        last = _last_ms(session.lines, None)
        before = before if last is None else last
    return attempts


def _last_ms(lines: Sequence[TrainingLine], since_ms: int | None) -> int | None:
    """When the last of the lines was written: its time, else the one known before and what was done since."""
    last, reached = since_ms, since_ms
    for line in lines:
        if line.time_ms is not None:
            reached = line.time_ms
        elif reached is not None and not line.background:
            reached += round(line.span_ms or 0) if line.kind == "iteration" else line.duration_ms or 0
        last = reached if last is None or (reached is not None and reached > last) else last
    return last


def _first_phase(begin_ms: int | None, since_ms: int | None, phases: Sequence[tuple[int, str]]) -> int | None:
    """The first step of the startup that led to a session; a step that repeats was another startup, that failed."""
    if begin_ms is None:
        return None
    first, reported = begin_ms, set[str]()
    for place in range(bisect_right(phases, begin_ms, key=lambda phase: phase[0]) - 1, -1, -1):
        time, words = phases[place]
        if words in reported or time < begin_ms - _STARTUP_MS or (since_ms is not None and time <= since_ms):
            break
        reported.add(words)
        first = time
    return first


def _state_of(session: Session) -> str:
    """How a session ended as its own lines tell: the error after its last iteration, else its word that it is done."""
    state = "RUNNING"
    for line in session.lines:
        if line.kind == "iteration":
            state = "RUNNING"
        elif line.kind == "training_end":
            state = "COMPLETED"
        elif line.kind == "training_error" and line.words not in _NO_END and state != "FAILED":
            state = _STATES.get(line.words, "FAILED")
    return state


def _known_by(until_ms: int | None, attempt: RunAttempt) -> RunAttempt:
    """The attempt, ended no later than its records go: lines without a time may tell of work beyond."""
    late = until_ms is not None and attempt.end_ms is not None and attempt.end_ms > until_ms
    return replace(attempt, end_ms=until_ms) if late else attempt


def _close(attempts: Sequence[RunAttempt]) -> list[RunAttempt]:
    """An attempt without an end that another one followed has ended, at its last data and not well."""
    closed = []
    newest = max((place for place, attempt in enumerate(attempts) if attempt.start_ms is not None), default=-1)
    for place, attempt in enumerate(attempts):
        if attempt.end_ms is None and attempt.start_ms is not None and place < newest:
            state = RESTARTED if attempt.state in STILL_OPEN else attempt.state
            attempt = replace(attempt, end_ms=attempt.last_data_ms, state=state)
        closed.append(attempt)
    return closed


# An interruption: an attempt that ended badly, when it stopped getting on, whose fault it was and what it cost.

FAULT_SEVERITIES = ("error", "fatal")
FAULT_CAUSES = ("hardware", "fabric", "host", "driver", "storage")
# What a lost link is called by the subnet manager and by the host that lost it.
LOST_LINKS = ("link_down", "port_removed", "ib_port", "net_link", "bond_down", "node_down")
# Without a training log nobody knows when the work stopped: only faults this close to the end may have ended it.
BLIND_WINDOW_MS = 30 * 60_000
# A fatal fault of the hardware that is told so long after the program's own words is what the program met.
_NOTICED = timedelta(seconds=60)


@dataclass(frozen=True, slots=True)
class InterruptionCulprit:
    """The device that is held to have ended an attempt, and what it said."""

    node: str | None
    device: Device
    kind: str
    code: int | None

    def to_json(self) -> dict[str, Any]:
        """The device with its node; `kind` and `code` of the event that names it."""
        d = self.device
        return {
            "type": d.type,
            "node": self.node,
            "pci": d.pci,
            "index": d.index,
            "uuid": d.uuid,
            "port": d.port,
            "kind": self.kind,
            "code": self.code,
        }


@dataclass(frozen=True, slots=True)
class KeptSave:
    """The newest whole save at a stop: its iteration (None = not told), and until when it keeps what was done."""

    iteration: int | None
    time_ms: int


@dataclass(frozen=True, slots=True)
class Interruption:
    """One attempt's bad end. `restart_ms` = detection, then waiting, startup and load of the next attempt.

    `gpus` = how many the attempt had; None = not known. `verdict` = the one by which it has its culprit.
    `kept` = the save to go on from; None where none was told. `torn` = the iteration of a later one that never ended.
    """

    time_ms: int
    cause: Cause
    culprit: InterruptionCulprit | None
    lost_work_ms: int
    restart_ms: int
    gpus: int | None = None
    verdict: Verdict | None = None
    kept: KeptSave | None = None
    torn: int | None = None

    @property
    def lost_ms(self) -> int:
        """What it cost in wall time: the work thrown away and the way back."""
        return self.lost_work_ms + self.restart_ms

    def to_json(self) -> dict[str, Any]:
        """The object of `foreshock goodput --json`."""
        return {
            "time": format_time(from_ms(self.time_ms)),
            "cause": self.cause,
            "culprit": None if self.culprit is None else self.culprit.to_json(),
            "lost_s": self.lost_ms / 1000,
            "verdict": None if self.verdict is None else _verdict_mark(self.verdict),
            "kept": None
            if self.kept is None
            else {"iteration": self.kept.iteration, "time": format_time(from_ms(self.kept.time_ms))},
            "torn": self.torn,
        }


def _verdict_mark(verdict: Verdict) -> dict[str, Any]:
    """A verdict in short, as an interruption names it."""
    return {
        "id": verdict.id or None,
        "class": verdict.cause_class,
        "name": verdict.name,
        "probability": verdict.probability,
        "reason": verdict.reason,
    }


def is_fault(event: Event) -> bool:
    """Whether an event may have ended an attempt: a grave one of the machine, a lost link, a reported error."""
    grave = event.severity in FAULT_SEVERITIES
    if event.kind == "training_error":  # a warning only tells that the scheduler ended the program
        return grave
    return (grave and event.cause in FAULT_CAUSES) or (event.kind in LOST_LINKS and event.severity != "info")


def fault_window(attempt: RunAttempt, end_ms: int, worked_ms: int | None = None) -> tuple[int, int]:
    """The closed window in which the fault that ended an attempt must lie: after its last iteration.

    `worked_ms` is where the last iteration was placed, for lines that bear no time.
    """
    last = worked_ms if attempt.last_iteration_ms is None else attempt.last_iteration_ms
    if last is not None:
        return min(last, end_ms), end_ms
    start = end_ms if attempt.start_ms is None else attempt.start_ms
    return (start, end_ms) if attempt.lines else (max(start, end_ms - BLIND_WINDOW_MS), end_ms)


def first_fault(attempt: RunAttempt, faults: Iterable[Event]) -> Event | None:
    """The earliest fault on the attempt's nodes (or of its program), of those in its window.

    Clocks differ, and a program may notice before the kernel writes: what it reports gives way to a node's own fatal
    hardware fault of about that time.
    """
    found = [
        event
        for event in faults
        if (event.node in attempt.nodes or event.kind == "training_error")
        and not event.attributes.get("time_assumed")
        and is_fault(event)
    ]
    first = min(found, key=_order, default=None)
    if first is None or first.kind != "training_error" or first.time is None:
        return first
    until = first.time + _NOTICED
    dead = (e for e in found if e.severity == "fatal" and e.cause == "hardware" and e.kind != "training_error")
    return min((e for e in dead if e.time is not None and e.time <= until), key=_order, default=first)


def _order(event: Event) -> tuple[datetime | None, bool, int, str]:
    return event.time, event.kind == "training_error", event.line or 0, event.id or ""


def ended_badly(attempt: RunAttempt, fault: Event | None) -> bool:
    """Whether an attempt was interrupted. One that was cancelled is, if a fault made someone cancel it."""
    if attempt.end_ms is None or attempt.state in SUCCESSFUL or attempt.state in STILL_OPEN:
        return False
    if attempt.state == RESIZED:  # the next record of the same job goes on where this one ends
        return False
    return fault is not None or attempt.state != "CANCELLED"


# What a failure takes back: work that no finished save keeps.
AT_RISK: tuple[Bucket, ...] = ("productive", "degraded", "data_stall", "evaluation")


@dataclass(frozen=True, slots=True)
class UnfinishedSave:
    """A save that was begun and never ended, because the program did. `iteration` None = not told."""

    time_ms: int
    iteration: int | None


@dataclass(slots=True)
class PaintedAttempt:
    """What one attempt left.

    `segments` = its own time, from start to end (of one that never started: its wait). `worked_ms` = until when its log
    tells of work. `resumed` = the iteration that it began with, `loaded` = a line told so, `blind` = it ran for
    longer than a line takes and none tells what it did.
    """

    attempt: RunAttempt
    segments: list[Segment]
    started: bool
    worked_ms: int
    interruption: Interruption | None = None
    saves: tuple[Segment, ...] = ()
    unfinished: tuple[UnfinishedSave, ...] = ()
    progress: AttemptProgress = field(default_factory=AttemptProgress)
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

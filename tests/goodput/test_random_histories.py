"""Random histories of a run: jobs that overlap or miss, logs with holes, clocks that disagree, saves that never end.

Whatever happens the buckets sum to the wall time, the bounds contain them, GPU time sums to what was held, an account
as of a moment uses nothing later, and nothing raises.
"""

from datetime import UTC, datetime, timedelta
from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as some

from goodput.account import account
from goodput.ledger import Ledger, RunRecords
from goodput.log.training_log import TrainingLine
from goodput.timeline import BUCKETS, to_ms
from store.records.event import Device, Event
from store.records.job import Job

START = datetime(2025, 3, 1, tzinfo=UTC)
ZERO = to_ms(START)
ENDS = ("COMPLETED", "FAILED", "NODE_FAIL", "CANCELLED by 5", "TIMEOUT", "RUNNING", "PREEMPTED", "RESTARTED")


def at(seconds: float) -> datetime:
    """A moment of the history."""
    return START + timedelta(milliseconds=round(seconds * 1000))


@some.composite
def lives(draw: some.DrawFn, start: int, number: int, done: int) -> tuple[list[TrainingLine], int, int]:
    """The lines of one start of the program, when the last was written, and the last iteration."""
    skew, dated = draw(some.sampled_from((0, 0, 0, -70, 45))), draw(some.booleans())
    now, lines = start + draw(some.integers(0, 40)), []

    def tell(kind: str, iteration: int | None = None, bears: bool = True, **more: object) -> None:
        time = ZERO + 1000 * (now + skew) if bears and draw(some.integers(0, 9)) else None
        lines.append(TrainingLine(kind, time, iteration, **more))  # type: ignore[arg-type]  # drawn figures

    if draw(some.booleans()):
        tell("training_phase", words="after megatron is initialized")
        tell("training_start")
    if number and draw(some.booleans()):
        done = draw(some.integers(0, done))
        tell("checkpoint_load", done, duration_ms=draw(some.none() | some.integers(0, 9_000)))
    for _ in range(draw(some.integers(0, 7))):
        span = draw(some.sampled_from((10, 10, 10, 13, 30)))
        now, done = now + span, done + 1
        waited = draw(some.none() | some.floats(0, 20_000))
        told = draw(some.sampled_from((span * 1000.0, span * 1000.0, None)))
        tell("iteration", done, dated or draw(some.booleans()), span_ms=told, data_ms=waited)
        stall = draw(some.sampled_from(("", "", "", "save", "open", "async", "evaluation", "data_wait", "straggler")))
        length = draw(some.integers(0, 8))
        if stall in ("save", "open", "async"):
            tell("checkpoint_save_start", done)
        if stall in ("save", "async"):
            now += length
            tell("checkpoint_save", done, duration_ms=length * 1000, background=stall == "async")
        elif stall in ("evaluation", "data_wait", "straggler"):
            now += length
            tell(stall, None, duration_ms=draw(some.none() | some.just(length * 1000)), words="rank 3")
    ending = draw(some.sampled_from(("", "", "training_error", "training_end", "bar")))
    if ending == "bar":  # what the last lines did not print, its end tells
        now, done = now + 20, done + 2
        tell("training_end", done, iterations=2, span_ms=20_000.0)
    elif ending:
        tell(ending, words="cancelled")
    return lines, now, done


@some.composite
def histories(draw: some.DrawFn) -> RunRecords:
    """A run of up to five attempts with what is known of it."""
    jobs, log, faults, now, done = [], [], [], 0, 0
    for number in range(draw(some.integers(1, 5))):
        submit = now + draw(some.integers(-30, 40))
        start = max(submit, 0) + draw(some.integers(0, 60))
        lines, last, done = draw(lives(start, number, done))
        now = max(start, last) + draw(some.integers(0, 50))
        end = None if draw(some.integers(0, 5)) == 0 else at(now)
        started = None if draw(some.integers(0, 9)) == 0 else at(start)
        nodes = draw(some.sampled_from(("gpu-1", "gpu-[1-2]", "gpu-[1-4]", "")))
        state = draw(some.sampled_from(ENDS))
        if draw(some.integers(0, 5)):
            jobs.append(Job(str(number), "run", state, at(submit), started, end, 2, nodes))
        if draw(some.integers(0, 5)):
            log += lines
        if draw(some.booleans()):
            kind = draw(some.sampled_from(("xid", "training_error", "port_removed")))
            time = at(draw(some.integers(start, max(start, now))))
            faults.append(
                Event(time, "gpu-1", "kernel", kind, severity="fatal", cause="hardware", device=Device("gpu"))
            )
    if draw(some.integers(0, 9)) == 0:
        log = draw(some.permutations(log)) if len(log) < 12 else log[::-1]
    return RunRecords("run", draw(some.permutations(jobs)), log, faults, gpus={f"gpu-{n}": 8 for n in range(1, 5)})


def check(made: Ledger) -> None:
    """What holds of every ledger."""
    buckets = made.buckets_ms
    assert sum(buckets.values()) == made.wall_ms >= 0
    assert all(segment.length_ms > 0 for segment in made.segments)
    assert all(one.end_ms == two.start_ms for one, two in pairwise(made.segments))
    for bucket, (least, most) in made.bounds_ms.items():
        assert 0 <= least <= buckets[bucket] <= most <= made.wall_ms
    if made.gpu_ms is not None:
        assert list(made.gpu_ms) == list(BUCKETS)
        assert all(value >= 0 for value in made.gpu_ms.values())
    assert all(cut.lost_work_ms >= 0 and cut.restart_ms >= 0 for cut in made.interruptions)
    parts = made.details["startup"].values()
    assert all(value >= 0 for value in parts)
    made.to_json()


@settings(max_examples=150, deadline=None)
@given(histories())
def test_every_history_has_an_exact_ledger(records: RunRecords) -> None:
    """Sums, bounds, GPU time."""
    check(account(records))


@settings(max_examples=100, deadline=None)
@given(histories(), some.integers(0, 400))
def test_an_account_as_of_a_moment_uses_nothing_later(records: RunRecords, seconds: int) -> None:
    """It is the same with what came later taken away, and ends by then."""
    until = to_ms(at(seconds))
    made = account(records, until)
    check(made)
    log = list(records.log)
    later = next((n for n, line in enumerate(log) if line.time_ms is not None and line.time_ms > until), len(log))
    jobs = [
        Job(job.job_id, job.run, job.state if hidden is None else "RUNNING", *moments, job.nodes, job.node_list)
        for job, moments, hidden in (_known(job, at(seconds)) for job in records.jobs)
    ]
    faults = [fault for fault in records.faults if fault.time is not None and fault.time <= at(seconds)]
    assert made == account(RunRecords("run", jobs, log[:later], faults, gpus=records.gpus), until)
    assert made.end_ms <= max(until, made.start_ms) or not made.dated


def _known(job: Job, until: datetime) -> tuple[Job, list[datetime | None], datetime | None]:
    """A job's moments as they were known, and its end if that was not."""
    moments = [None if time is None or time > until else time for time in (job.submit, job.start, job.end)]
    return job, moments, None if moments[2] is not None else job.end


@settings(max_examples=100, deadline=None)
@given(histories())
def test_gpu_time_of_one_size_is_that_many_times_the_time_held(records: RunRecords) -> None:
    """Where no two attempts overlap it is the wall time's buckets, each times the size."""
    jobs = [Job(j.job_id, j.run, j.state, j.submit, j.start, j.end, 2, "gpu-[1-2]") for j in records.jobs]
    made = account(RunRecords("run", jobs, records.log, records.faults, gpus={"gpu-1": 8, "gpu-2": 8}))
    if made.gpu_ms is None:
        return
    assert sum(made.gpu_ms.values()) >= 16 * made.wall_ms
    if sum(made.gpu_ms.values()) == 16 * made.wall_ms and made.attempts == 1:
        assert made.gpu_ms == {bucket: 16 * length for bucket, length in made.buckets_ms.items()}


@settings(max_examples=100, deadline=None)
@given(histories())
def test_the_order_of_the_jobs_changes_nothing(records: RunRecords) -> None:
    """They come from a table without one; the same history gives the same ledger."""
    jobs = sorted(records.jobs, key=lambda job: job.job_id)
    ordered = RunRecords("run", jobs, records.log, records.faults, gpus=records.gpus)
    backwards = RunRecords("run", jobs[::-1], records.log, records.faults, gpus=records.gpus)
    one, two = account(ordered), account(backwards)
    if len({(job.start or job.submit, job.end) for job in jobs}) == len(jobs):
        assert one.buckets_ms == two.buckets_ms

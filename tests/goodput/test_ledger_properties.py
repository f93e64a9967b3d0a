"""Whatever comes in, in whatever order: buckets are at least zero and sum to the wall time."""

from datetime import UTC, datetime, timedelta

from hypothesis import given, settings
from hypothesis import strategies as st

from goodput.account import account
from goodput.ledger import RunRecords
from goodput.log.training_log import lines_of
from goodput.timeline import to_ms
from store.records.event import Device, Event
from store.records.job import Job
from store.records.outage import Outage

START = datetime(2025, 3, 1, tzinfo=UTC)
moments = st.integers(-5_000, 50_000).map(lambda s: START + timedelta(milliseconds=s * 100))
maybe_moments = st.none() | moments
figures = st.none() | st.integers(-10, 100_000) | st.floats() | st.just("x") | st.booleans()
kinds = st.sampled_from(
    [
        "training_start",
        "iteration",
        "iteration",
        "iteration",
        "checkpoint_load",
        "checkpoint_save_start",
        "checkpoint_save",
        "evaluation",
        "training_error",
        "training_end",
    ]
)
attributes = st.fixed_dictionaries(
    {}, optional=dict.fromkeys(("iteration", "iterations", "elapsed_ms", "duration_ms"), figures)
) | st.fixed_dictionaries(
    {"iteration": st.integers(0, 50), "iterations": st.just(1), "elapsed_ms": st.floats(500, 20_000)}
)
logs = st.lists(
    st.builds(
        lambda kind, time, a: Event(time, None, "training", kind, attributes=a), kinds, maybe_moments, attributes
    ),
    max_size=30,
)
states = st.sampled_from(["COMPLETED", "FAILED", "NODE_FAIL", "CANCELLED by 5", "RUNNING", "PENDING", "TIMEOUT", ""])
jobs = st.lists(
    st.builds(
        lambda number, state, submit, start, end: Job(
            str(number), "run", state, submit, start, end, 2, "gpu-[1-2]", "0:0"
        ),
        st.integers(0, 9),
        states,
        maybe_moments,
        maybe_moments,
        maybe_moments,
    ),
    max_size=5,
)
faults = st.lists(
    st.builds(
        lambda time, node, kind: Event(
            time, node, "kernel", kind, severity="fatal", cause="hardware", device=Device("gpu")
        ),
        maybe_moments,
        st.sampled_from(["gpu-1", "gpu-3", None]),
        st.sampled_from(["xid", "training_error", "link_down"]),
    ),
    max_size=5,
)
outages = st.lists(
    st.builds(
        lambda start, planned: Outage("gpu-1", start, None, "DOWN", "", None, planned, "host"), moments, st.booleans()
    ),
    max_size=3,
)


@settings(max_examples=400, deadline=None)
@given(jobs, logs, faults, outages, maybe_moments)
def test_buckets_sum_to_wall_time_whatever_comes_in(
    jobs: list[Job], log: list[Event], faults: list[Event], outages: list[Outage], until: datetime | None
) -> None:
    """No overlap, no hole, nothing negative; the segments join end to end; the JSON can be made."""
    made = account(RunRecords("run", jobs, lines_of(log), faults, outages), None if until is None else to_ms(until))
    assert made.wall_ms >= 0
    assert all(value >= 0 for value in made.buckets_ms.values())
    assert sum(made.buckets_ms.values()) == made.wall_ms
    edges = [made.start_ms, *(segment.end_ms for segment in made.segments)]
    assert [segment.start_ms for segment in made.segments] == edges[:-1]
    assert edges[-1] == made.end_ms
    assert all(cut.lost_work_ms >= 0 and cut.restart_ms >= 0 for cut in made.interruptions)
    if until is not None and made.dated:
        assert made.end_ms <= max(made.start_ms, to_ms(until))
    made.to_json()


@settings(max_examples=100, deadline=None)
@given(st.lists(st.floats(1.0, 60.0), min_size=1, max_size=40), st.integers(0, 30), st.integers(0, 40))
def test_printed_seconds_shift_a_bucket_by_no_more_than_a_second_each_stall(
    spans: list[float], startup: int, tail: int
) -> None:
    """Spans of any length whose lines print whole seconds: nothing of the work turns into a gap."""
    now, log = float(startup), []
    for number, span in enumerate(spans, start=1):
        now += span
        attributes = {"iteration": number, "iterations": 1, "elapsed_ms": span * 1000}
        log.append(Event(START + timedelta(seconds=int(now)), None, "training", "iteration", attributes=attributes))
    job = Job("1", "run", "FAILED", START, START, START + timedelta(seconds=int(now) + tail), 1, "gpu-1")
    made = account(RunRecords("run", [job], lines_of(log)))
    late = made.details["startup"].get("first_iteration", 0)  # what the first line took longer than usual
    assert made.buckets_ms["unknown"] == 0
    assert abs(made.buckets_ms["startup"] - round(late * 1000) - startup * 1000) <= 1000

"""What holds in every simulated cluster, whatever its seed and size: no story in it contradicts another."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some
from simulated import SIZES, cluster_of

from simulator.faults.fault import CLASSES, PlannedDrain
from simulator.faults.hazard import Availability
from simulator.output.telemetry import COUNTER_FIELDS, FIELDS, present, snapshots
from simulator.output.truth import goodput, outages
from simulator.simulation import SimulatedCluster
from simulator.site import DAY_MS, GPUS, HOUR_MS, MINUTE_MS
from simulator.training.accounting import BUCKETS
from store.records.event import parse_time
from store.records.telemetry import COUNTERS, GAUGES

MANY = settings(max_examples=25)
Size = tuple[int, int, int]
RISING = [FIELDS.index(name) for name in COUNTER_FIELDS if COUNTERS[name] != "xid_last"]


@MANY
@given(SIZES)
def test_a_node_is_out_once_at_a_time(size: Size) -> None:
    """Its outages follow each other, each begins at or after its fault, and planned work overlaps none."""
    cluster = cluster_of(*size)
    spans: dict[int, list[tuple[int, int]]] = {}
    for failure in cluster.outages:
        assert failure.warning_ms <= failure.fault_ms <= failure.start_ms < failure.end_ms
        spans.setdefault(failure.node, []).append((failure.fault_ms, failure.end_ms))
    for drain in cluster.drains:
        assert drain.start_ms < drain.end_ms
        spans.setdefault(drain.node, []).append((drain.start_ms, drain.end_ms))
    for found in spans.values():
        assert all(before[1] <= after[0] for before, after in pairwise(sorted(found)))


@MANY
@given(SIZES)
def test_a_run_has_distinct_nodes_that_are_in_service_at_its_start(size: Size) -> None:
    """None failed, none drained, none of those that join later; always as many."""
    cluster = cluster_of(*size)
    availability = Availability(cluster.layout, cluster.outages)
    for drain in cluster.drains:
        availability.add(drain)
    sizes = set()
    for attempt in (a for run in cluster.runs for a in run.attempts):
        assert list(attempt.nodes) == sorted(set(attempt.nodes))
        assert all(availability.usable(node, attempt.start_ms) for node in attempt.nodes)
        assert all(cluster.layout.since_ms[node] <= attempt.start_ms for node in attempt.nodes)
        sizes.add(len(attempt.nodes))
    assert len(sizes) <= 1


@MANY
@given(SIZES)
def test_a_run_never_outlives_a_fault_of_its_nodes(size: Size) -> None:
    """The first outage of a node within an attempt is what ends it."""
    cluster = cluster_of(*size)
    for attempt in (a for run in cluster.runs for a in run.attempts):
        ends = attempt.fault.fault_ms if attempt.fault else attempt.end_ms
        for failure in cluster.outages:
            if failure.node in attempt.nodes:
                assert not attempt.start_ms < failure.fault_ms < ends


@MANY
@given(SIZES)
def test_planned_work_waits_for_the_job(size: Size) -> None:
    """But for the driver's roll, at which the job is stopped, no drain begins on a node that works."""
    cluster = cluster_of(*size)
    for attempt in (a for run in cluster.runs for a in run.attempts):
        for drain in cluster.drains:
            if drain.node in attempt.nodes and drain.start_ms < attempt.end_ms and attempt.start_ms < drain.end_ms:
                assert drain.start_ms == cluster.roll_ms
                assert attempt.state == "CANCELLED by 0" or attempt.fault is not None
                assert attempt.end_ms < cluster.roll_ms + HOUR_MS


@MANY
@given(SIZES)
def test_every_account_sums_to_its_wall_and_agrees_with_the_attempts(size: Size) -> None:
    """To the millisecond; what is paid for interruptions was lost, noticed, waited for, started or loaded."""
    cluster = cluster_of(*size)
    assert [account.run for account in cluster.accounts] == [run.name for run in cluster.runs]
    for account, run in zip(cluster.accounts, cluster.runs, strict=True):
        buckets = account.buckets_ms
        assert tuple(buckets) == BUCKETS
        assert sum(buckets.values()) == account.wall_ms == run.attempts[-1].end_ms - run.attempts[0].submit_ms
        assert min(buckets.values()) >= 0
        first_lines = sum(a.steps[0].length_ms for a in run.attempts if a.steps)
        # What made a first line slow belongs to the start, and is never the whole line.
        assert 0 <= buckets["startup"] - sum(a.startup_ms for a in run.attempts) < max(first_lines, 1)
        assert buckets["checkpoint_load"] == sum(a.load_ms for a in run.attempts)
        saves = sum(s.length_ms for a in run.attempts for s in a.steps if s.kind == "save")
        assert buckets["checkpoint_save"] == saves
        paid = ("lost_work", "detection", "waiting", "startup", "checkpoint_load")
        assert sum(cut.lost_ms for cut in account.interruptions) <= sum(buckets[name] for name in paid)
        assert len(account.interruptions) == sum(a.fault is not None for a in run.attempts)


@MANY
@given(SIZES)
def test_iterations_never_go_back_further_than_the_newest_save(size: Size) -> None:
    """Each attempt begins at what was saved; within it they rise by the print interval."""
    cluster = cluster_of(*size)
    for run in cluster.runs:
        for before, after in pairwise(run.attempts):
            assert after.loaded == before.saved
            assert after.submit_ms == before.end_ms < after.start_ms
        for attempt in run.attempts:
            told = [step.iteration for step in attempt.steps if step.kind == "iteration"]
            first = (attempt.loaded or 0) + cluster.parameters.log_interval
            assert told == list(range(first, first + cluster.parameters.log_interval * len(told), 50))


@settings(max_examples=12)
@given(SIZES)
def test_counters_fall_at_resets_alone(size: Size) -> None:
    """Hour by hour: a counter of a node that was not repaired in between never falls, and a repaired one starts low."""
    cluster = cluster_of(*size)
    before = None
    for snapshot in snapshots(cluster, 0, cluster.settings.length_ms):
        counters = snapshot.values[..., RISING]
        assert (counters >= 0).all()
        if before is not None:
            low = snapshot.time_ms - HOUR_MS
            reset = {node for at, node in cluster.trace.resets if low < at <= snapshot.time_ms}
            fell = set(np.argwhere((counters < before).any(axis=(1, 2))).ravel().tolist())
            assert fell <= reset
        before = counters


@settings(max_examples=12)
@given(SIZES)
def test_gaps_are_gaps(size: Size) -> None:
    """From the first millisecond to the last before the end; a GPU that no gap covers is there."""
    cluster = cluster_of(*size)
    for gap in cluster.trace.gaps[:20]:
        gpus = range(GPUS) if gap.gpu is None else [gap.gpu]
        for at in (gap.start_ms, gap.end_ms - 1):
            assert not present(cluster, at)[gap.node, list(gpus)].any()
    at = cluster.settings.length_ms // 3
    covered = {
        (gap.node, gpu)
        for gap in cluster.trace.gaps
        if gap.start_ms <= at < gap.end_ms
        for gpu in (range(GPUS) if gap.gpu is None else [gap.gpu])
    }
    missing = {tuple(place) for place in np.argwhere(~present(cluster, at)).tolist()}
    young = {(n, g) for n in range(cluster.layout.nodes) if cluster.layout.since_ms[n] > at for g in range(GPUS)}
    assert missing == covered | young


@MANY
@given(SIZES)
def test_nothing_is_written_outside_the_archives_time(size: Size) -> None:
    """Kernel lines and counts begin after its start and end before its end."""
    cluster = cluster_of(*size)
    end = cluster.settings.length_ms
    for times in (
        [line.time_ms for line in cluster.trace.kernel],
        [count.time_ms for count in cluster.trace.counts],
        [loss.down_ms for loss in cluster.trace.links],
    ):
        assert times == sorted(times)
        assert all(time >= 0 for time in times)
    assert all(line.time_ms < end for line in cluster.trace.kernel)
    assert all(count.time_ms < end and count.amount > 0 for count in cluster.trace.counts)
    assert all(a.end_ms <= end for run in cluster.runs for a in run.attempts)


@MANY
@given(SIZES)
def test_a_visible_failure_warns_an_hour_before_and_an_invisible_one_never(size: Size) -> None:
    """Nobody can act on less."""
    cluster = cluster_of(*size)
    for failure in cluster.hazard.failures:
        assert failure.kind.name in CLASSES
        if failure.visible:
            assert failure.fault_ms - failure.warning_ms >= HOUR_MS
            assert failure.kind.visible > 0
        else:
            assert failure.warning_ms == failure.fault_ms


@settings(max_examples=12)
@given(SIZES)
def test_the_truth_says_what_the_hidden_state_holds(size: Size) -> None:
    """Outages one by one; goodput in seconds; times that parse back."""
    cluster = cluster_of(*size)
    for told, failure in zip(outages(cluster), cluster.outages, strict=True):
        assert told["node"] == cluster.layout.names[failure.node]
        assert parse_time(told["start"]) == cluster.settings.moment(failure.start_ms)
        assert parse_time(told["end"]) == cluster.settings.moment(failure.end_ms)
        assert parse_time(told["fault"]) == cluster.settings.moment(failure.fault_ms)
        assert (told["warning"] is not None) == told["visible"] == failure.visible
        assert (told["device"]["index"] == failure.gpu) == (failure.kind.device == "gpu")
    for run, account in zip(goodput(cluster), cluster.accounts, strict=True):
        assert {name: round(s * 1000) for name, s in run["buckets"].items()} == account.buckets_ms
        assert run["goodput"] == account.buckets_ms["productive"] / account.wall_ms
        assert [cut["class"] for cut in run["interruptions"]] == [
            "leaf" if cut.attempt.fault and cut.attempt.fault.leaf is not None else cut.attempt.fault.kind.name
            for cut in account.interruptions
            if cut.attempt.fault
        ]


def test_failures_concentrate_on_frail_nodes(large: SimulatedCluster) -> None:
    """FIELD D6 and D7: half and more of the failures on the top twentieth of the nodes, most nodes without any."""
    counts = np.bincount([failure.node for failure in large.outages], minlength=large.layout.nodes)
    top = np.sort(counts)[::-1][: large.layout.nodes // 20].sum() / counts.sum()
    assert 0.4 < top < 0.8
    assert (counts == 0).mean() > 0.5
    hidden = large.hazard.rate.mean(axis=0)
    frail = np.argsort(-hidden)[: large.layout.nodes // 20]
    assert counts[frail].sum() / counts.sum() > 0.4


@given(some.integers(0, 47), some.integers(1, 12), some.integers(0, 60))
def test_availability_ends_and_begins_to_the_millisecond(begin_h: int, hours: int, moment_h: int) -> None:
    """A drain holds from its start to just before its end; `free` and `usable` agree on a moment."""
    cluster = cluster_of(8, 2, 1)
    availability = Availability(cluster.layout, [])
    availability.add(PlannedDrain(3, begin_h * HOUR_MS, (begin_h + hours) * HOUR_MS, "fan", "ops"))
    at = moment_h * HOUR_MS
    inside = begin_h <= moment_h < begin_h + hours
    assert availability.usable(3, at) != inside
    assert availability.free(3, at, at + 1) != inside
    assert availability.usable(4, at)
    if inside:
        assert availability.next_return_ms(at) == (begin_h + hours) * HOUR_MS + MINUTE_MS
    assert not availability.usable(3, (begin_h + hours) * HOUR_MS - 1)
    assert availability.usable(3, (begin_h + hours) * HOUR_MS)


@pytest.mark.parametrize("days", [2, 3])
def test_the_shortest_archives_have_every_part_of_the_story(days: int) -> None:
    """A run, an account, telemetry for each hour."""
    cluster = cluster_of(8, days, 4)
    assert cluster.runs
    assert len(list(snapshots(cluster, 0, days * DAY_MS))) == 24 * days
    assert len(FIELDS) == len(GAUGES) + len(COUNTERS)

"""A ledger cut into days: nothing is lost at midnight."""

from dataclasses import replace
from datetime import datetime, timedelta
from random import Random

import sqlalchemy as sa
from hand_made_run import START, attempt, iteration, ledger
from hypothesis import given
from hypothesis import strategies as some

from goodput.cluster.losses import days_of
from goodput.ledger import Ledger
from goodput.timeline import BUCKETS, DAY_MS, Bucket, Segment, merged, to_ms
from store.database.connections import migrate, writing
from store.runs.losses import RunDay, day_sums, mend_days, write_losses
from store.tables import run_tables

EMPTY = ledger([attempt(0, 1)], [])


def with_segments(segments: list[Segment]) -> Ledger:
    """A dated ledger of these segments."""
    return replace(
        EMPTY,
        start_ms=segments[0].start_ms,
        end_ms=segments[-1].end_ms,
        segments=merged(segments),
        held=tuple((segment, 16) for segment in segments),
    )


@given(
    some.integers(0, 3 * DAY_MS),
    some.lists(some.tuples(some.integers(1, 2 * DAY_MS), some.sampled_from(BUCKETS)), min_size=1, max_size=12),
)
def test_the_days_sum_to_the_ledger(begin_ms: int, parts: list[tuple[int, Bucket]]) -> None:
    """To the millisecond in each bucket, and no day holds more than a day."""
    segments, cursor = [], begin_ms
    for length, bucket in parts:
        segments.append(Segment(cursor, cursor + length, bucket))
        cursor += length
    made = with_segments(segments)
    days = days_of(made)
    assert sum(day.wall_ms for day in days) == made.wall_ms
    for bucket, ms in made.buckets_ms.items():
        assert sum(day.wall_ms for day in days if day.bucket == bucket) == ms
    for moment in {day.day for day in days}:
        assert to_ms(moment) % DAY_MS == 0
        assert sum(day.wall_ms for day in days if day.day == moment) <= DAY_MS
    assert all(day.gpu_ms == day.wall_ms * 16 and day.wall_ms > 0 for day in days)


def test_a_segment_over_two_midnights_is_three_days() -> None:
    """An hour, a day, an hour."""
    hour = 3_600_000
    midnight = to_ms(START) + DAY_MS
    days = days_of(with_segments([Segment(midnight - hour, midnight + DAY_MS + hour, "productive")]))
    assert [(to_ms(day.day) - midnight, day.wall_ms) for day in days] == [(-DAY_MS, hour), (0, DAY_MS), (DAY_MS, hour)]


def test_a_run_that_shrinks_holds_fewer_gpus() -> None:
    """Each attempt with its own: three nodes are not counted where two worked."""
    made = ledger([attempt(0, 30, "FAILED", number=1), attempt(40, 60, nodes="gpu-1", number=2)], [])
    assert made.gpu_ms is not None
    assert sum(day.gpu_ms or 0 for day in days_of(made)) == sum(made.gpu_ms.values()) == 30_000 * 16 + 30_000 * 8
    assert [one.gpus for one in made.interruptions] == [16]


def test_without_known_gpus_there_is_no_gpu_time_and_without_dates_no_day() -> None:
    """Null, not 0."""
    made = ledger([attempt(0, 30)], [iteration(10, 1), iteration(20, 2)])
    assert {day.gpu_ms for day in days_of(replace(made, held=None))} == {None}
    assert days_of(replace(made, dated=False)) == []


def by_hand(connection: sa.Connection) -> list[tuple[datetime, str, int, int, int]]:
    """The sums of the runs' days, by counting every row of them."""
    sums: dict[tuple[datetime, str], list[int]] = {}
    for row in connection.execute(sa.select(run_tables.run_days)):
        place = sums.setdefault((row.day, row.bucket), [0, 0, 0])
        place[0] += row.wall_ms
        place[1] += row.gpu_ms or 0
        place[2] += row.wall_ms if row.gpu_ms is None else 0
    return [(day, bucket, *figures) for (day, bucket), figures in sorted(sums.items())]  # type: ignore[misc]


def test_the_cluster_s_days_are_the_sums_of_the_runs_days_whatever_is_written_again(any_engine: sa.Engine) -> None:
    """Runs that grow, shrink, lose a bucket or their GPUs, and one that goes; on either database."""
    random = Random(20)
    gpu_ms = [None, *range(1, 99)]

    def some_days() -> list[RunDay]:
        return [
            RunDay(START + timedelta(days=day), bucket, random.randint(1, 9), random.choice(gpu_ms))
            for day in range(random.randint(0, 3))
            for bucket in random.sample(["productive", "waiting", "startup"], 2)
        ]

    wanted = 0
    for _ in range(40):
        told = {run: ([], some_days()) for run in random.sample("abcd", random.randint(1, 3))}
        with writing(any_engine).begin() as connection:
            write_losses(connection, told)
            sums = day_sums(connection, START - timedelta(days=9), START + timedelta(days=9))
            assert sums == by_hand(connection)
            for run, (_losses, days) in told.items():
                query = sa.select(run_tables.run_days).where(run_tables.run_days.c.run == run)
                assert {RunDay(*row[1:]) for row in connection.execute(query)} == set(days)
        wanted += len(sums)
    assert wanted > 100
    with writing(any_engine).begin() as connection:
        write_losses(connection, {run: ([], []) for run in "abcd"})
        assert day_sums(connection, START - timedelta(days=9), START + timedelta(days=9)) == []


def test_days_that_a_database_of_before_holds_are_summed_up_by_its_migration(any_engine: sa.Engine) -> None:
    """As when a server of the release before wrote them."""
    days = [RunDay(START, "productive", 7, gpus) for gpus in (None, 56)]
    with writing(any_engine).begin() as connection:
        write_losses(connection, {run: ([], [day]) for run, day in zip("ab", days, strict=True)})
        connection.execute(sa.text("DROP TABLE cluster_days"))
        connection.execute(sa.text("UPDATE alembic_version SET version_num = '0011'"))
    migrate(any_engine)
    with any_engine.connect() as connection:
        assert day_sums(connection, START, START + timedelta(days=1)) == [(START, "productive", 14, 56, 7)]


def test_sums_that_a_server_of_before_did_not_keep_are_mended(any_engine: sa.Engine) -> None:
    """It writes the runs' days alone, while a new server has migrated already."""
    window = START - timedelta(days=9), START + timedelta(days=9)
    with writing(any_engine).begin() as connection:
        write_losses(connection, {"a": ([], [RunDay(START, "productive", 7, 56), RunDay(START, "waiting", 1, 8)])})
        connection.execute(sa.delete(run_tables.run_days).where(run_tables.run_days.c.bucket == "waiting"))
        late = {"run": "b", "day": START, "bucket": "startup", "wall_ms": 3, "gpu_ms": None}
        connection.execute(sa.insert(run_tables.run_days), [late])
    assert mend_days(any_engine)
    assert not mend_days(any_engine)
    with any_engine.connect() as connection:
        wanted = [(START, "productive", 7, 56, 0), (START, "startup", 3, 0, 3)]
        assert day_sums(connection, *window) == by_hand(connection) == wanted

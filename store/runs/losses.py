"""What the runs' interruptions and days came to, by row: written with each ledger, summed in the database.

write_losses(connection, {"llm-70b": (losses, days)})
read_groups(connection, "node", (since, until), 101)
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeAlias

import sqlalchemy as sa

from store.database.connections import writing
from store.records.job import LossKey as LossKey
from store.tables import run_tables, schema
from store.tables.bulk_rows import insert_into, is_one_of, upsert

_LOST, _DAYS, _SUMMED = run_tables.interruptions, run_tables.run_days, run_tables.cluster_days

# What tells the groups of each kind apart.
KEY_COLUMNS: Mapping[LossKey, tuple[str, ...]] = {
    "device": ("node", "device"),
    "node": ("node",),
    "leaf": ("leaf",),
    "code": ("code",),
    "driver": ("driver",),
    "run": ("run",),
    "cause": ("cause",),
}
# Causes that another node would have helped against; not a program, a file system, or nobody knows what.
OF_THE_NODE = frozenset({"hardware", "driver", "fabric", "host"})
_AMOUNTS = ("wall_ms", "gpu_ms", "unmeasured_ms")
_BATCH = 2_000
# Stretches of time in one statement: the database seeks each by itself.
_SPANS = 100
_SUMS = (
    sa.func.sum(_LOST.c.lost_work_ms),
    sa.func.sum(_LOST.c.restart_ms),
    sa.func.coalesce(sa.func.sum(_LOST.c.lost_gpu_ms), 0),
    sa.func.count() - sa.func.count(_LOST.c.lost_gpu_ms),
)


@dataclass(frozen=True, slots=True)
class Loss:
    """An interruption as a row: what it is put down to (None = not known), its cost in wall and in GPU milliseconds."""

    run: str
    number: int
    time: datetime
    cause: str
    code: str | None
    node: str | None
    device: str | None
    leaf: str | None
    driver: str | None
    incident: str | None
    lost_work_ms: int
    restart_ms: int
    lost_gpu_ms: int | None

    @property
    def unexplained(self) -> bool:
        """Whether nobody knows why it happened: neither a cause nor a culprit."""
        return self.cause == "unknown" and self.node is None


@dataclass(frozen=True, slots=True)
class RunDay:
    """What of a run's UTC day went into a bucket, in wall and in GPU milliseconds (None: its GPUs are not known)."""

    day: datetime
    bucket: str
    wall_ms: int
    gpu_ms: int | None


@dataclass(frozen=True, slots=True)
class LossGroup:
    """The interruptions that are put down to one thing. `key` has None where that is not known."""

    key: tuple[str | None, ...]
    unexplained: bool
    interruptions: int
    runs: int
    lost_work_ms: int
    restart_ms: int
    lost_gpu_ms: int
    without_gpus: int  # interruptions whose GPUs are not known: no part of `lost_gpu_ms`

    @property
    def lost_ms(self) -> int:
        """Wall time."""
        return self.lost_work_ms + self.restart_ms


def write_losses(connection: sa.Connection, told: Mapping[str, tuple[Sequence[Loss], Sequence[RunDay]]]) -> None:
    """Put some runs' rows in the place of those before.

    Whoever does so has written the runs' ledgers in the same transaction: nobody else writes their rows meanwhile.
    """
    runs = sorted(told)
    for i in range(0, len(runs), _BATCH):
        connection.execute(sa.delete(_LOST).where(_LOST.c.run.in_(runs[i : i + _BATCH])))
    lost = [_row(loss) for run in runs for loss in told[run][0]]
    for i in range(0, len(lost), _BATCH):
        connection.execute(sa.insert(_LOST), lost[i : i + _BATCH])
    _write_days(connection, runs, {(run, day.day, day.bucket): day for run in runs for day in told[run][1]})


def _row(record: Loss | RunDay) -> dict[str, Any]:
    """The fields of a record: `asdict` would copy each value."""
    return {name: getattr(record, name) for name in record.__slots__}


def _write_days(
    connection: sa.Connection, runs: Sequence[str], after: Mapping[tuple[str, datetime, str], RunDay]
) -> None:
    """Write what changed of the days of some runs, and add the change to the cluster's days."""
    query = sa.select(_DAYS).where(is_one_of(connection, _DAYS.c.run, runs))
    before = {(row.run, row.day, row.bucket): RunDay(*row[1:]) for row in connection.execute(query)}
    changed = [key for key in before.keys() | after.keys() if before.get(key) != after.get(key)]
    upsert(connection, _DAYS, [{"run": key[0], **_row(after[key])} for key in changed if key in after])
    if gone := [{"run_": key[0], "day_": key[1], "bucket_": key[2]} for key in changed if key not in after]:
        keys = (_DAYS.c[name] == sa.bindparam(f"{name}_") for name in ("run", "day", "bucket"))
        connection.execute(sa.delete(_DAYS).where(*keys), gone)
    sums: dict[tuple[datetime, str], dict[str, int]] = {}
    for key in changed:
        place = sums.setdefault(key[1:], dict.fromkeys(_AMOUNTS, 0))
        for sign, day in ((-1, before.get(key)), (1, after.get(key))):
            if day is not None:
                place["wall_ms"] += sign * day.wall_ms
                place["gpu_ms"] += sign * (day.gpu_ms or 0)
                place["unmeasured_ms"] += sign * day.wall_ms if day.gpu_ms is None else 0
    if sums:
        statement = insert_into(connection, _SUMMED)
        added = {name: _SUMMED.c[name] + statement.excluded[name] for name in _AMOUNTS}
        connection.execute(
            statement.on_conflict_do_update(index_elements=["day", "bucket"], set_=added),
            [{"day": day, "bucket": bucket, **figures} for (day, bucket), figures in sorted(sums.items())],
        )


def mend_days(engine: sa.Engine) -> bool:
    """Sum the cluster's days up anew where they are not the sums of the runs' days; whether they were not.

    A server of before this table, which still works while a new one has migrated, writes runs' days alone.
    """
    unmeasured = sa.func.sum(_DAYS.c.wall_ms).filter(_DAYS.c.gpu_ms.is_(None))
    amounts = (sa.func.sum(_DAYS.c.wall_ms), sa.func.sum(_DAYS.c.gpu_ms), unmeasured)
    sums = sa.select(_DAYS.c.day, _DAYS.c.bucket, *(sa.func.coalesce(one, 0) for one in amounts))
    sums = sums.group_by(_DAYS.c.day, _DAYS.c.bucket)
    with engine.connect() as connection:
        if _without_zeros(connection, sums) == _without_zeros(connection, sa.select(_SUMMED)):
            return False
    with writing(engine).begin() as connection:
        if connection.dialect.name == "postgresql":  # who writes ledgers waits, and adds to the new sums
            connection.execute(sa.text("LOCK TABLE cluster_days IN EXCLUSIVE MODE"))
        connection.execute(sa.delete(_SUMMED))
        connection.execute(sa.insert(_SUMMED).from_select(["day", "bucket", *_AMOUNTS], sums))
    return True


def _without_zeros(connection: sa.Connection, days: sa.Select[Any]) -> set[tuple[Any, ...]]:
    """Days and buckets with their amounts; one that nothing is left of is as one that is not there."""
    return {(day, bucket, *map(int, amounts)) for day, bucket, *amounts in connection.execute(days) if any(amounts)}


def grouped(losses: Iterable[Loss], by: LossKey) -> list[LossGroup]:
    """The interruptions by what they are put down to, the costliest first: as `read_groups` does in the database."""
    parts: dict[tuple[Any, ...], list[Loss]] = {}
    for loss in losses:
        key = tuple(getattr(loss, name) for name in KEY_COLUMNS[by])
        parts.setdefault((key, loss.unexplained), []).append(loss)
    groups = [
        LossGroup(
            key=key,
            unexplained=unexplained,
            interruptions=len(part),
            runs=len({loss.run for loss in part}),
            lost_work_ms=sum(loss.lost_work_ms for loss in part),
            restart_ms=sum(loss.restart_ms for loss in part),
            lost_gpu_ms=sum(loss.lost_gpu_ms or 0 for loss in part),
            without_gpus=sum(loss.lost_gpu_ms is None for loss in part),
        )
        for (key, unexplained), part in parts.items()
    ]
    return in_order(groups)


def in_order(groups: Iterable[LossGroup]) -> list[LossGroup]:
    """The costliest first: by GPU time, then wall time, then name."""
    return sorted(groups, key=lambda g: (-g.lost_gpu_ms, -g.lost_ms, tuple(part or "" for part in g.key)))


def read_groups(
    connection: sa.Connection,
    by: LossKey,
    window: tuple[datetime | None, datetime | None] = (None, None),
    limit: int | None = None,
    skip: int = 0,
) -> list[LossGroup]:
    """What the interruptions of a window, since <= time < until, cost by what they are put down to.

    The costliest first: a page of a long list is cut in the database.
    """
    keys = [_LOST.c[name] for name in KEY_COLUMNS[by]]
    unexplained = sa.case(((_LOST.c.cause == "unknown") & _LOST.c.node.is_(None), 1), else_=0)
    query = (
        sa.select(
            *keys,
            unexplained,
            sa.func.count(),
            sa.func.count(_LOST.c.run.distinct()),
            *_SUMS,
        )
        .where(*_within(*window))
        .group_by(*keys, unexplained)
        .order_by(_SUMS[2].desc(), (_SUMS[0] + _SUMS[1]).desc(), *(sa.func.coalesce(key, "") for key in keys))
    )
    return [
        LossGroup(tuple(row[: len(keys)]), bool(row[len(keys)]), *(int(figure) for figure in row[len(keys) + 1 :]))
        for row in connection.execute(query.limit(limit).offset(skip))
    ]


def read_total(connection: sa.Connection, window: tuple[datetime | None, datetime | None] = (None, None)) -> LossGroup:
    """What all interruptions of a window cost; its `runs` are all that were interrupted."""
    runs = sa.func.count(_LOST.c.run.distinct())
    query = sa.select(sa.func.count(), runs, *(sa.func.coalesce(each, 0) for each in _SUMS)).where(*_within(*window))
    return LossGroup((), False, *(int(figure) for figure in connection.execute(query).one()))


def read_losses(
    connection: sa.Connection,
    since: datetime | None = None,
    until: datetime | None = None,
    limit: int | None = None,
    skip: int = 0,
) -> list[Loss]:
    """The interruptions of [since, until), newest first."""
    query = sa.select(_LOST).where(*_within(since, until)).order_by(_LOST.c.time.desc(), _LOST.c.run, _LOST.c.number)
    return [Loss(**row._mapping) for row in connection.execute(query.limit(limit).offset(skip))]


def _within(since: datetime | None, until: datetime | None) -> list[sa.ColumnElement[bool]]:
    return [
        *([] if since is None else [_LOST.c.time >= since]),
        *([] if until is None else [_LOST.c.time < until]),
    ]


def day_sums(connection: sa.Connection, since: datetime, until: datetime) -> list[tuple[datetime, str, int, int, int]]:
    """Of each day in [since, until) and bucket: wall ms, GPU ms, and the wall ms of runs whose GPUs are not known."""
    held = sa.or_(_SUMMED.c.wall_ms != 0, _SUMMED.c.gpu_ms != 0)
    query = sa.select(_SUMMED).where(_SUMMED.c.day >= since, _SUMMED.c.day < until, held)
    return [tuple(row) for row in connection.execute(query.order_by(_SUMMED.c.day, _SUMMED.c.bucket))]


def productive_gpu_ms(
    connection: sa.Connection, window: tuple[datetime, datetime], runs: Sequence[str]
) -> dict[str, int | None]:
    """The productive GPU ms of each of some runs that got anything done in a window's days; None: GPUs not known."""
    if not runs:
        return {}
    days = (_DAYS.c.day >= window[0], _DAYS.c.day < window[1], _DAYS.c.bucket == "productive")
    query = sa.select(_DAYS.c.run, sa.func.sum(_DAYS.c.gpu_ms)).where(*days, is_one_of(connection, _DAYS.c.run, runs))
    found = connection.execute(query.group_by(_DAYS.c.run))
    return {run: None if gpu_ms is None else int(gpu_ms) for run, gpu_ms in found}


IncidentNear: TypeAlias = tuple[str, datetime, datetime, str, int | None, str, str, dict[str, int]]


def incidents_near(
    connection: sa.Connection, asked: Iterable[tuple[str, datetime, datetime]]
) -> dict[tuple[str, datetime, datetime], list[IncidentNear]]:
    """Incidents of nodes or switches in [since, until], of each (node, since, until) that is asked for.

    By start and id: id, start, end, kind, code, severity, cause, kinds.
    """
    table = schema.incidents
    names = ("node", "id", "start", "end", "kind", "code", "severity", "cause", "kinds")
    listed = sorted(set(asked))
    found: dict[tuple[str, datetime, datetime], list[IncidentNear]] = {}
    for i in range(0, len(listed), _SPANS):
        part = listed[i : i + _SPANS]
        spans = (
            (table.c.node == node) & (table.c.end >= since) & (table.c.start <= until) for node, since, until in part
        )
        query = sa.select(*(table.c[name] for name in names)).where(sa.or_(*spans)).order_by(table.c.start, table.c.id)
        by_node: dict[str, list[IncidentNear]] = {}
        for node, *told in connection.execute(query):
            by_node.setdefault(node, []).append(tuple(told))
        for node, since, until in part:
            own = by_node.get(node, ())
            found[node, since, until] = [one for one in own if one[2] >= since and one[1] <= until]
    return found


def loss_places(connection: sa.Connection, nodes: Sequence[str]) -> dict[str, tuple[str | None, str | None]]:
    """The leaf and the driver release of nodes, as the node table has them now."""
    table = schema.nodes
    found: dict[str, tuple[str | None, str | None]] = {}
    for i in range(0, len(nodes), _BATCH):
        query = sa.select(table.c.node, table.c.leaf, table.c.driver).where(table.c.node.in_(nodes[i : i + _BATCH]))
        found |= {node: (leaf, driver) for node, leaf, driver in connection.execute(query)}
    return found

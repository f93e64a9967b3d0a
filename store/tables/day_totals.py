"""What stays of pruned days: counts of events, and telemetry by the day.

`summary` gives the rows of `event_days` or `telemetry_days` that some rows come to, `adding` adds such rows to what is
there. Rows are summed up in the transaction that deletes them: so each counts once, however often and late they come.
"""

from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from store.tables import schema

DAY_US = 86_400_000_000
_MEANS = ("gpu_temp_mean_c", "power_mean_w", "gpu_util_mean")
_MAXIMA = ("gpu_temp_max_c", "gpu_temp_spread_c", "memory_temp_max_c", "power_max_w")
_MINIMA = ("sm_clock_min_mhz",)
DAYS = {"events": schema.event_days, "telemetry": schema.telemetry_days}


def day_of(dialect: str, time: sa.ColumnElement[Any]) -> sa.ColumnElement[Any]:
    """The midnight (UTC) that a moment's day began with. Without bound values, so that one may group by it."""
    word = sa.literal_column
    if dialect == "postgresql":
        return sa.func.date_trunc(word("'day'"), time, word("'UTC'"), type_=schema.UtcTime())
    number, length = sa.type_coerce(time, sa.BigInteger), word(str(DAY_US), sa.BigInteger)
    return sa.type_coerce(number - (number % length + length) % length, schema.UtcTime())  # before 1970 too


def summary(dialect: str, table: str, source: sa.FromClause) -> sa.Select[Any]:
    """The rows of a table's days that the rows of `source` (with that table's columns) come to."""
    columns = _event_columns(dialect, source) if table == "events" else _hour_columns(dialect, source)
    keys = [columns[column.name] for column in DAYS[table].primary_key]
    return sa.select(*(found.label(name) for name, found in columns.items())).group_by(*keys)


def _event_columns(dialect: str, source: sa.FromClause) -> dict[str, sa.ColumnElement[Any]]:
    c = source.c
    return {
        "node": sa.func.coalesce(c.node, sa.literal_column("''")),
        "day": day_of(dialect, c.time),
        "source": c.source,
        "kind": c.kind,
        "code": sa.func.coalesce(c.code, sa.literal_column("-1")),
        "severity": c.severity,
        "count": sa.func.count(),
    }


def _hour_columns(dialect: str, source: sa.FromClause) -> dict[str, sa.ColumnElement[Any]]:
    c = source.c
    columns = {
        "node": c.node,
        "day": day_of(dialect, c.time),
        "hours": sa.func.count(),
        "samples": sa.cast(sa.func.sum(c.samples), sa.BigInteger),
        "gpus_seen": sa.func.max(c.gpus_seen),
    }
    for name in _MEANS:
        weight = sa.func.sum(sa.case((c[name].is_not(None), c.samples)))
        columns[name] = sa.func.sum(c[name] * c.samples) / sa.func.nullif(weight, 0)
    columns |= {name: sa.func.max(c[name]) for name in _MAXIMA}
    return columns | {name: sa.func.min(c[name]) for name in _MINIMA}


def adding(dialect: str, table: str, rows: sa.Select[Any]) -> Any:
    """The statement that adds such rows to the days that are there.

    Means are weighed by samples; of a day that is added to, the samples of all its hours count for every mean.
    """
    days = DAYS[table]
    insert = (postgresql if dialect == "postgresql" else sqlite).insert(days)
    statement = insert.from_select([column.name for column in rows.selected_columns], rows)
    old, new = days.c, statement.excluded
    if table == "events":
        changed: dict[str, Any] = {"count": old.count + new["count"]}
    else:
        changed = {name: old[name] + new[name] for name in ("hours", "samples")}
        changed |= {name: _other_if(old[name], new[name], new[name] > old[name]) for name in ("gpus_seen", *_MAXIMA)}
        changed |= {name: _other_if(old[name], new[name], new[name] < old[name]) for name in _MINIMA}
        changed |= {name: _mean(old, new, name) for name in _MEANS}
    return statement.on_conflict_do_update(index_elements=list(days.primary_key), set_=changed)


def _other_if(old: Any, new: Any, is_wanted: Any) -> Any:
    return sa.case((old.is_(None), new), (is_wanted, new), else_=old)


def _mean(old: Any, new: Any, name: str) -> Any:
    samples = sa.func.nullif(old.samples + new.samples, 0)
    joined = (old[name] * old.samples + new[name] * new.samples) / samples
    return sa.case((old[name].is_(None), new[name]), (new[name].is_(None), old[name]), else_=joined)

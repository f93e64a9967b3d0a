"""What stays of pruned days: counts of events, and telemetry by the day.

`summary` gives the rows of `event_days` or `telemetry_days` that some rows come to, `adding` adds such rows to what is
there. Rows are summed up in the transaction that deletes them: so each counts once, however often and late they come.
"""

from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import FunctionElement

from store.tables import schema
from store.tables.bulk_rows import insert_into

DAY_US = 86_400_000_000
_MEANS = ("gpu_temp_mean_c", "power_mean_w", "gpu_util_mean")
_MAXIMA = ("gpu_temp_max_c", "gpu_temp_spread_c", "memory_temp_max_c", "power_max_w")
_MINIMA = ("sm_clock_min_mhz",)
DAYS = {"events": schema.event_days, "telemetry": schema.telemetry_days}


class DayStart(FunctionElement[datetime]):
    """The midnight (UTC) that a moment's day began with. It has no bound values, so that a query may group by it."""

    type = schema.UtcTime()
    inherit_cache = True


@compiles(DayStart)
def _day_start(element: DayStart, compiler: SQLCompiler, **options: Any) -> str:
    time = compiler.process(element.clauses, **options)
    return f"({time} - ({time} % {DAY_US} + {DAY_US}) % {DAY_US})"  # before 1970 too


@compiles(DayStart, "postgresql")
def _day_start_postgresql(element: DayStart, compiler: SQLCompiler, **options: Any) -> str:
    return f"date_trunc('day', {compiler.process(element.clauses, **options)}, 'UTC')"


def summary(table: str, source: sa.FromClause) -> sa.Select[Any]:
    """The rows of a table's days that the rows of `source` (with that table's columns) come to."""
    columns = _event_columns(source) if table == "events" else _hour_columns(source)
    keys = [columns[column.name] for column in DAYS[table].primary_key]
    return sa.select(*(found.label(name) for name, found in columns.items())).group_by(*keys)


def _event_columns(source: sa.FromClause) -> dict[str, sa.ColumnElement[Any]]:
    c = source.c
    return {
        "node": sa.func.coalesce(c.node, sa.literal_column("''")),
        "day": DayStart(c.time),
        "source": c.source,
        "kind": c.kind,
        "code": sa.func.coalesce(c.code, sa.literal_column("-1")),
        "severity": c.severity,
        "count": sa.func.count(),
    }


def _hour_columns(source: sa.FromClause) -> dict[str, sa.ColumnElement[Any]]:
    c = source.c
    columns = {
        "node": c.node,
        "day": DayStart(c.time),
        "hours": sa.func.count(),
        "samples": sa.cast(sa.func.sum(c.samples), sa.BigInteger),
        "gpus_seen": sa.func.max(c.gpus_seen),
    }
    for name in _MEANS:
        weight = sa.func.sum(sa.case((c[name].is_not(None), c.samples)))
        columns[name] = sa.func.sum(c[name] * c.samples) / sa.func.nullif(weight, 0)
    columns |= {name: sa.func.max(c[name]) for name in _MAXIMA}
    return columns | {name: sa.func.min(c[name]) for name in _MINIMA}


def adding(connection: sa.Connection, table: str, rows: sa.Select[Any]) -> Any:
    """The statement that adds such rows to the days that are there.

    Means are weighed by samples; of a day that is added to, the samples of all its hours count for every mean.
    """
    days = DAYS[table]
    statement = insert_into(connection, days).from_select([column.name for column in rows.selected_columns], rows)
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

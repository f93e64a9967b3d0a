"""How often a lost link stops the job on its host, by what this site has seen.

    stop_share(connection, population, cabling, at)      # 0.12; None: too little was seen to tell

A link that is lost is no outage: training programs wait for a flap of seconds, and fabrics have a second way. What is
published reaches from one flap in thousands that ends a job (FIELD D4, HPN) to nearly each; so it is counted here. One
is a day on which a host lost a link while a job ran on it: did a job on it fail with that loss (FIELD B2)?
"""

from bisect import bisect_left, bisect_right
from collections.abc import Mapping
from datetime import datetime

import numpy as np
import sqlalchemy as sa

from predictor.history.arrays import DAY_MS, Population, from_ms, to_ms
from predictor.history.precursor_log import milliseconds
from predictor.links.cabling import Cabling
from predictor.links.link_log import LOSS_WINDOW_MS
from store.records.event import RecordError
from store.records.hostlist import expand
from store.records.job import AFTER_END, BEFORE_END, FAILED_STATES
from store.tables import schema

# Fewer days, or of fewer hosts, tell nothing; of one host so many count, for it says itself what it lost.
LEAST_DAYS, LEAST_HOSTS, MOST_OF_HOST = 8, 3, 8
_BEFORE_MS, _AFTER_MS = (round(span.total_seconds() * 1000) for span in (BEFORE_END, AFTER_END))


def stop_share(connection: sa.Connection, population: Population, cabling: Cabling, at: datetime) -> float | None:
    """The share (0-1) of days with a loss under a job on which that job failed by it, in the year before a moment.

    It is drawn towards a half, as by two days. None: fewer than LEAST_DAYS such days, or of fewer than LEAST_HOSTS.
    """
    lost = _lost_by_host(population, cabling, to_ms(at))
    days = _days_under_jobs(connection, lost, to_ms(at))
    counted = [stopped for seen in days.values() for _, stopped in sorted(seen.items())[-MOST_OF_HOST:]]
    if len(counted) < LEAST_DAYS or len(days) < LEAST_HOSTS:
        return None
    return (sum(counted) + 1) / (len(counted) + 2)


def _lost_by_host(population: Population, cabling: Cabling, at_ms: int) -> dict[str, list[int]]:
    """When each host lost a link by no fault of the host's own, in order."""
    log = population.outages
    seen = np.flatnonzero(~log.planned & (log.start_ms < at_ms) & (log.start_ms >= at_ms - LOSS_WINDOW_MS))
    found: dict[str, list[int]] = {}
    for link, start_ms in zip(log.node[seen].tolist(), log.start_ms[seen].tolist(), strict=True):
        host = cabling.host(population.fleet.names[link])
        if host is not None:
            found.setdefault(host, []).append(start_ms)
    return {host: sorted(times) for host, times in found.items()}


def _days_under_jobs(
    connection: sa.Connection, lost: Mapping[str, list[int]], at_ms: int
) -> dict[str, dict[int, bool]]:
    """Of each host the days on which it lost a link under a job, and whether that ended one."""
    days: dict[str, dict[int, bool]] = {}
    if not lost:
        return days
    table = schema.jobs.c
    start, end = milliseconds(connection, table.start), milliseconds(connection, table.end)
    query = sa.select(start, end, table.state.in_(FAILED_STATES), table.node_list)
    query = query.where(table.start < from_ms(at_ms))
    query = query.where(table.end.is_(None) | (table.end >= from_ms(at_ms - LOSS_WINDOW_MS)))
    for began, ended, failed, node_list in connection.execute(query):
        over = min(at_ms, at_ms if ended is None else ended + _AFTER_MS)
        for host in lost.keys() & _hosts(node_list):
            times = lost[host]
            for time in times[bisect_left(times, began) : bisect_right(times, over)]:
                stopped = bool(failed) and ended is not None and -_AFTER_MS <= ended - time <= _BEFORE_MS
                seen = days.setdefault(host, {})
                seen[time // DAY_MS] = seen.get(time // DAY_MS, False) or stopped
    return days


def _hosts(node_list: str) -> set[str]:
    try:
        return set(expand(node_list))
    except RecordError:
        return set()

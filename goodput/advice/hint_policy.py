"""Which stops a policy would have avoided, by the scores that were stored before them.

    avoided = avoided_by_scores(connection, history, top=0.01)
    what_if(history, Change(avoided=avoided, move_s=0.0))

The policy is the mildest one: a node among the `top` share of the newest scoring is left out when the run starts, and
nobody moves a running job. So a stop is avoided if its node was flagged at the start of the attempt that it ended, and
the run had a spare node to take. Scores are of that moment: nothing that came later is used.
"""

import math
from datetime import UTC, datetime

import sqlalchemy as sa

from goodput.advice.run_history import RunHistory
from store import schema

_SCORES = schema.scores
# A scoring older than this says nothing of today: the horizon that hints go by.
HORIZON_H = 24


def avoided_by_scores(connection: sa.Connection, history: RunHistory, top: float) -> dict[int, float]:
    """The stops (by their place) whose node was flagged when their attempt began, each with the chance 1.

    Raises:
        ValueError: the share is not within 0 and 1, the run has no dates, or no score is as old as its stops.
    """
    if not 0 < top <= 1:
        raise ValueError(f"a share of {top} of the nodes cannot be held: it lies within 0 and 1")
    if history.start_s is None:
        raise ValueError(f"run {history.run!r} bears no dates: its stops cannot be held against scores")
    begun = [history.first_pause_s, *(stop.time_s + stop.back_s for stop in history.stops[:-1])]
    moments = [datetime.fromtimestamp(history.start_s + seconds, UTC) for seconds in begun[: len(history.stops)]]
    scored = [_scoring(connection, moment) for moment in moments]
    if not any(scored):
        raise ValueError("no score was stored before the run's stops: `foreshock score --at T` makes them as of a time")
    found = {}
    for place, (stop, scoring) in enumerate(zip(history.stops, scored, strict=True)):
        if stop.node is not None and scoring is not None and _flagged(connection, stop.node, scoring, top):
            found[place] = 1.0
    return found


def _scoring(connection: sa.Connection, moment: datetime) -> datetime | None:
    """The newest scoring no later than a moment, if it is no older than the horizon."""
    query = sa.select(sa.func.max(_SCORES.c.time, type_=schema.UtcTime())).where(
        _SCORES.c.horizon_h == HORIZON_H, _SCORES.c.time <= moment
    )
    found: datetime | None = connection.scalar(query)
    if found is None or (moment - found).total_seconds() > HORIZON_H * 3600:
        return None
    return found


def _flagged(connection: sa.Connection, node: str, scoring: datetime, top: float) -> bool:
    """Whether a node's score was among the highest of a scoring; of equal ones, all count as higher."""
    then = (_SCORES.c.horizon_h == HORIZON_H) & (_SCORES.c.time == scoring)
    mine = connection.scalar(sa.select(_SCORES.c.score).where(then, _SCORES.c.node == node))
    if mine is None:
        return False
    others = sa.select(sa.func.count(), sa.func.count().filter((_SCORES.c.score >= mine) & (_SCORES.c.node != node)))
    total, higher = connection.execute(others.where(then)).one()
    return bool(higher < math.ceil(top * total))

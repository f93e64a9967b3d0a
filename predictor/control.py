"""What hints did to the answers: a node that was kept from work did not show whether it would have failed.

Such a row without an outage is no evidence of health ("uncertain positives": Azure's Uptake, FIELD A2, lost 9 % of its
accuracy by learning from them), and is left out. With an outage it counts all the same. The control group, of which
nothing was asked (`store/control.py`), keeps its answers.
"""

from dataclasses import dataclass
from datetime import datetime

import numpy as np
import sqlalchemy as sa

from predictor.history import HOUR_MS, Bools, Fleet, Ints, to_ms
from predictor.labels import Labels
from predictor.rows import Rows
from store import schema
from store.event import parse_time

# What changes a node's lot, or takes its job away; a `watch` asks for nothing, and a checkpoint leaves the job there.
ACTIONS = ("avoid", "cordon", "drain", "requeue", "swap")
# A scheduler that pulls may say that it has done it without having said before that it took it.
_TAKEN = ("sent", "confirmed")


@dataclass(frozen=True, slots=True)
class Acted:
    """When nodes were acted on, one entry a hint that a scheduler took."""

    node: Ints
    start_ms: Ints
    end_ms: Ints


def read_acted(connection: sa.Connection, fleet: Fleet) -> Acted:
    """From when a scheduler took a hint to when it ended: withdrawn, released, or no longer valid."""
    hints, audit = schema.hints, schema.audit
    sent = (
        sa.select(audit.c.subject, sa.func.min(audit.c.time, type_=schema.UtcTime()).label("time"))
        .where(audit.c.action.in_(_TAKEN))
        .group_by(audit.c.subject)
        .subquery()
    )
    query = sa.select(hints.c.node, hints.c.evidence, hints.c.valid_until, sent.c.time)
    query = query.join(sent, sent.c.subject == hints.c.id).where(hints.c.action.in_(ACTIONS))
    index = fleet.index
    found = [
        (index[row.node], to_ms(row.time), to_ms(min(row.valid_until, _closed(row.evidence) or row.valid_until)))
        for row in connection.execute(query)
        if row.node in index
    ]
    columns = np.array(found, dtype=np.int64).reshape(-1, 3)
    return Acted(columns[:, 0], columns[:, 1], columns[:, 2])


def _closed(evidence: dict[str, object]) -> datetime | None:
    closed = evidence.get("closed")
    return parse_time(closed["time"]) if isinstance(closed, dict) and "time" in closed else None


def uncertain(rows: Rows, labels: Labels, acted: Acted, horizon_h: int) -> Bools:
    """Which rows without an outage were acted on within their horizon."""
    found = np.zeros(len(rows), dtype=np.bool_)
    ends = rows.time_ms + horizon_h * HOUR_MS
    for node in np.unique(acted.node):
        mine = np.flatnonzero(rows.node == node)
        for hint in np.flatnonzero(acted.node == node):
            overlaps = (rows.time_ms[mine] < acted.end_ms[hint]) & (ends[mine] > acted.start_ms[hint])
            found[mine[overlaps]] = True
    return found & ~labels.positive

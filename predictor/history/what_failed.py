"""What failed in an outage: the family of the gravest fault that its node showed around the outage's beginning.

    failure_classes(connection, [("gpu-017", start)])       # ["row_remap"]

Families are those of precursors (`families.py`). Of two faults as grave the one nearer to the beginning counts; an
outage around which its node told of no fault is `no_sign`.
"""

from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import sqlalchemy as sa

from predictor.history.families import FAMILIES, SERIOUS_CAUSES, SERIOUS_SEVERITIES, family_of
from store.tables import schema
from store.tables.bulk_rows import is_one_of

NO_SIGN = "no_sign"
NOUNS = {family.name: family.noun for family in FAMILIES} | {NO_SIGN: "no fault told"}
# A node is taken out a while after its fault; its own last lines may arrive a little later.
_BEFORE, _AFTER = timedelta(hours=1), timedelta(minutes=10)


def failure_classes(connection: sa.Connection, outages: Sequence[tuple[str, datetime]]) -> list[str]:
    """The family of what failed, for each outage: its node and its beginning."""
    if not outages:
        return []
    table = schema.incidents.c
    query = sa.select(table.node, table.start, table.end, table.kind, table.code, table.severity, table.cause).where(
        is_one_of(connection, table.node, sorted({node for node, _start in outages})),
        table.end >= min(start for _node, start in outages) - _BEFORE,
        table.start <= max(start for _node, start in outages) + _AFTER,
        table.severity.in_(SERIOUS_SEVERITIES),
        table.cause.in_(SERIOUS_CAUSES),
    )
    faults = defaultdict[str, list[Any]](list)
    for row in connection.execute(query):
        faults[row.node].append(row)
    found = []
    for node, start in outages:
        near = [one for one in faults[node] if one.start <= start + _AFTER and one.end >= start - _BEFORE]
        worst = max(near, key=lambda one: (one.severity == "fatal", -abs(one.start - start)), default=None)
        family = None if worst is None else family_of(worst.kind, worst.code, worst.severity, worst.cause)
        found.append(family or NO_SIGN)
    return found

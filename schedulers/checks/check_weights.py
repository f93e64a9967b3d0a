"""What a check weighs, by its record at this site: of how many nodes it was right.

    check_weights(connection, {("dcgm", "row_remap_failure")}, 0.25)     # {("dcgm", "row_remap_failure"): 0.4}

The share is that of nodes: each counts once, so that a node that says the same a hundred times, or lies, is one case.
The prior is Beta(1, 1): a check without a history may be right always or never, and weighs as it did before it had one.
The upper end of the interval decides: a check weighs less only once its record is surely bad.
"""

from collections.abc import Collection
from datetime import datetime

import sqlalchemy as sa

from store.hints.check_log import CheckRecord, CheckTally, check_records, tallies


def record_of(tally: CheckTally) -> CheckRecord:
    """A tally with the posterior of its share: its mean and 95 % interval, from Beta(1, 1)."""
    from scipy.special import betaincinv  # type: ignore[import-untyped]

    right, wrong = 1.0 + tally.right, 1.0 + tally.wrong
    low, high = (float(betaincinv(right, wrong, share)) for share in (0.025, 0.975))
    return CheckRecord(tally, right / (right + wrong), low, high)


def weight_of(record: CheckRecord, enough: float) -> float:
    """What a check weighs where two confirm a hold, 0-1: less only where its share is surely under `enough`."""
    return 1.0 if enough <= 0.0 else min(1.0, record.high / enough)


def check_weights(
    connection: sa.Connection, checks: Collection[tuple[str, str]], enough: float, at: datetime | None = None
) -> dict[tuple[str, str], float]:
    """The weights of some checks; one that has no record is left out, and weighs 1.

    Args:
        at: as of then, from the cases themselves; None: now, from the records.
    """
    if not checks or enough <= 0.0:
        return {}
    if at is None:
        records = check_records(connection, checks)
    else:
        records = [record_of(tally) for tally in tallies(connection, at, checks)]
    return {(one.tally.source, one.tally.name): weight_of(one, enough) for one in records}

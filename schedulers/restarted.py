"""Whether a scheduler has forgotten an order of ours, rather than that a person has taken it back. Pure.

A scheduler that is killed loses what it was told in its last seconds: Slurm's controller writes its state some seconds
late. Of a hold that is gone the moments tell which it was: it was ordered shortly before we saw it last, and the
scheduler was started after that.
"""

from datetime import datetime, timedelta

from store.placements import Placement

# Slurm saves its nodes within 5 s of a change, or of the save before it; a machine under load takes longer.
SAVED_WITHIN = timedelta(seconds=60)
# Where it is not known when we saw it last (our server was started anew, too): so long after the order at the latest.
BACK_WITHIN = timedelta(minutes=15)
# The start is told in whole seconds.
_SECOND = timedelta(seconds=1)


def is_forgotten(was: Placement, looked: datetime | None, started: datetime | None) -> bool:
    """Whether a confirmed hold that is gone was lost with the scheduler's memory.

    Args:
        looked: when this server last saw what the scheduler holds, before now; None: not since its own start.
        started: when the scheduler was started, by our clock; None: it forgets nothing, or cannot tell.
    """
    if started is None or was.asked is None or was.state != "confirmed":
        return False
    last = max((moment for moment in (looked, was.observed) if moment is not None), default=was.asked)
    if looked is None and started - was.asked > BACK_WITHIN:
        return False
    return started + _SECOND > last and last - was.asked <= SAVED_WITHIN

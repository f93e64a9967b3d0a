"""Reservations of ours: no new job on a suspect until a hint's end, jobs that run go on. Named `foreshock-<hint>`.

They end by themselves at the hint's end, with us or without.
"""

import re
from collections.abc import Iterator
from datetime import UTC, datetime

from schedulers.slurm.commands import Commands, Said
from schedulers.slurm.plan import Write

_PREFIX = "foreshock-"
_LINE = re.compile(
    rf"^ReservationName={_PREFIX}(\S+) .*? ?EndTime=(\d{{4}}-\d\d-\d\dT\d\d:\d\d:\d\d) ", re.ASCII | re.MULTILINE
)


def read_reservations(text: str) -> dict[str, datetime]:
    """The ends of our reservations, by hint, from `scontrol -o show reservation`, told in UTC."""
    return {found[1]: datetime.fromisoformat(found[2]).replace(tzinfo=UTC) for found in _LINE.finditer(text)}


def reservation_calls(write: Write, commands: Commands) -> Iterator[Said]:
    """What a write asks of reservations, in order.

    Raises:
        SchedulerAwayError: nobody answers.
    """
    if write.unreserve is not None:
        yield commands.run("scontrol", "delete", f"reservation={_PREFIX}{write.unreserve}")
    if write.reserve is not None and write.until is not None:
        name = f"ReservationName={_PREFIX}{write.reserve}"
        end = f"EndTime={write.until.astimezone(UTC):%Y-%m-%dT%H:%M:%S}"
        if write.is_extended:
            yield commands.run("scontrol", "update", name, end)
        else:
            # IGNORE_JOBS: running ones do not stand in its way. Nobody submits to it: it is for the one who made it.
            means = ("StartTime=now", end, "Users=root", "Flags=IGNORE_JOBS")
            yield commands.run("scontrol", "create", "reservation", name, f"Nodes={write.node}", *means)

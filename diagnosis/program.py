"""What the program itself reported before it ended: the suspect where nothing of the machine is known."""

import re

import sqlalchemy as sa

from diagnosis.stop import Stop
from diagnosis.suspect import Culprit
from store import schema
from store.event import Cause, Device, Event
from store.read import event_of

# Below every grave fault of the machine, above a warning: programs fail by themselves most often, but they also
# report what the machine did to them.
_SCORE = 0.3
_MOST = 200
_EVIDENCE = 10
# The error lines that follow from another process's end, not its own.
_CONSEQUENCES = ("process_exit", "worker_failed", "ChildFailedError", "task_killed", "nccl_watchdog", "cancelled")
_STORAGE = re.compile(
    r"Errno 5\b|Input/output error|Stale file handle|No space left|Read-only file system", re.IGNORECASE
)


def from_program(connection: sa.Connection, stop: Stop) -> list[Culprit]:
    """The run's own grave errors within the window, as one suspect; none where it reported nothing."""
    if stop.run is None:
        return []
    table = schema.events
    query = (
        sa.select(table)
        .where(
            table.c.run == stop.run,
            table.c.kind == "training_error",
            table.c.severity.in_(("error", "fatal")),
            table.c.time >= stop.last_work,
            table.c.time <= stop.end,
        )
        .order_by(table.c.time, table.c.line, table.c.id)
        .limit(_MOST)
    )
    errors = [event_of(row) for row in connection.execute(query)]
    if not errors:
        return []
    first = min(errors, key=lambda event: event.attributes.get("error") in _CONSEQUENCES)
    nodes = sorted({event.node for event in errors if event.node is not None})
    node = nodes[0] if len(nodes) == 1 else None  # when all tasks are killed, none of them is to blame
    return [
        Culprit(
            rank=0,
            node=node,
            device=Device(type="node"),
            incident=None,
            score=_SCORE,
            reason=f"the program reported: {first.message[:160]}",
            events=tuple(event.id for event in errors[:_EVIDENCE] if event.id),
            time=first.time,
            cause=_cause(first),
            nodes=tuple(nodes),
        )
    ]


def _cause(error: Event) -> Cause:
    """The cause that the line tells, else the program's own."""
    if error.cause != "unknown":
        return error.cause
    return "storage" if _STORAGE.search(error.message) else "application"

"""A ledger cut at midnight (UTC): what of each day went into which bucket.

sum(day.wall_ms for day in days_of(ledger)) == ledger.wall_ms      # always, for a dated ledger
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import sqlalchemy as sa

from goodput.ledger import Ledger
from goodput.timeline import DAY_MS, HOUR_MS, Segment, from_ms
from goodput.wall_time.attempts import FAULT_CAUSES, FAULT_SEVERITIES, Interruption, InterruptionCulprit
from store.records.event import format_time, kind_key
from store.runs.losses import (
    KEY_COLUMNS,
    IncidentNear,
    Loss,
    LossGroup,
    LossKey,
    RunDay,
    incidents_near,
    loss_places,
)

# What each interruption is put down to: its culprit, where that stands, and the incident that tells more of it.
#
#     losses = losses_of(connection, ledger)
#     sum(loss.lost_work_ms + loss.restart_ms for loss in losses) == lost time of the ledger      # always
#
# An interruption keeps the culprit that its ledger blames. The incident adds its code, where the culprit has none of
# its own: of a node that "did not respond" the Xid that it wrote ten seconds before.

# An incident's event was seen at the same second as the interruption, to a whole second's rounding.
_SAME = timedelta(seconds=1)
# Where the culprit is known from records alone (an outage, a failed task), what its node said from so long before the
# work stopped to so long after may explain it: a collective times out ten minutes after its peer died (NCCL's default).
_BEFORE, _AFTER = timedelta(minutes=10), timedelta(minutes=2)
# Kinds that say that a node is gone, and not why.
_WORDLESS = ("outage", "training_error", "verdict")


def losses_of(connection: sa.Connection, *ledgers: Ledger) -> list[Loss]:
    """The interruptions of ledgers as rows, in their order; none of a ledger without dates."""
    found = [
        (ledger, number, one) for ledger in ledgers if ledger.dated for number, one in enumerate(ledger.interruptions)
    ]
    named = [(one.culprit.node, from_ms(one.time_ms)) for _, _, one in found if one.culprit and one.culprit.node]
    where = loss_places(connection, sorted({node for node, _ in named}))
    near = incidents_near(connection, [_around(node, time) for node, time in named])
    return [_loss(ledger, number, one, where, near) for ledger, number, one in found]


def _loss(
    ledger: Ledger,
    number: int,
    one: Interruption,
    where: Mapping[str, tuple[str | None, str | None]],
    near: Mapping[tuple[str, datetime, datetime], Sequence[IncidentNear]],
) -> Loss:
    culprit, time = one.culprit, from_ms(one.time_ms)
    node = None if culprit is None else culprit.node
    seen = () if node is None else near[_around(node, time)]
    incident, head = (None, None) if culprit is None else _incident(culprit, time, seen)
    leaf, driver = where.get(node or "", (None, None))
    code = None if culprit is None else kind_key(culprit.kind, culprit.code)
    return Loss(
        run=ledger.run,
        number=number,
        time=time,
        cause=one.cause,
        code=head if culprit is not None and culprit.kind in _WORDLESS and head is not None else code,
        node=node,
        device=None if culprit is None else device_of(culprit),
        leaf=node if culprit is not None and culprit.device.type == "switch" else leaf,
        driver=driver,
        incident=incident,
        lost_work_ms=one.lost_work_ms,
        restart_ms=one.restart_ms,
        lost_gpu_ms=None if one.gpus is None else one.lost_ms * one.gpus,
    )


def _around(node: str, time: datetime) -> tuple[str, datetime, datetime]:
    return node, time - _BEFORE, time + _AFTER


def _incident(
    culprit: InterruptionCulprit, time: datetime, near: Sequence[IncidentNear]
) -> tuple[str | None, str | None]:
    """The id and the code of the incident that an interruption belongs to: the one that holds its event, else the
    gravest, and of equals the nearest, of those `near` that its node had then."""
    own = kind_key(culprit.kind, culprit.code)
    for ident, start, end, kind, code, _severity, _cause, kinds in near:
        if own in kinds and start <= time + _SAME and end >= time - _SAME:
            return ident, kind_key(kind, code)
    if culprit.kind not in _WORDLESS:
        return None, None
    grave = [one for one in near if one[5] in FAULT_SEVERITIES and one[6] in FAULT_CAUSES]
    best = min(grave, key=lambda one: (one[5] != "fatal", abs(one[1] - time), one[0]), default=None)
    return (None, None) if best is None else (best[0], kind_key(best[3], best[4]))


def device_of(culprit: InterruptionCulprit) -> str:
    """A device within its node, in a few words: `gpu 0000:0f:00.0`, `port mlx5_0/1`."""
    device = culprit.device
    where = device.pci or device.uuid or (None if device.index is None else str(device.index))
    port = None if device.port is None else f"port {device.port}"
    return " ".join(part for part in (device.type, where, port) if part is not None)


def group_json(group: LossGroup, by: LossKey) -> dict[str, Any]:
    """A row of `foreshock goodput --by`: what it is put down to, and what it cost.

    GPU-hours are those of the interruptions whose GPUs are known; null where none are.
    """
    known = group.interruptions - group.without_gpus
    return {
        **dict(zip(KEY_COLUMNS[by], group.key, strict=True)),
        "name": name_of(group, by),
        "unexplained": group.unexplained,
        "interruptions": group.interruptions,
        "runs": group.runs,
        "lost_s": group.lost_ms / 1000,
        "lost_work_s": group.lost_work_ms / 1000,
        "restart_s": group.restart_ms / 1000,
        "lost_gpu_hours": group.lost_gpu_ms / HOUR_MS if known else None,
        "without_gpus": group.without_gpus,
    }


def name_of(group: LossGroup, by: LossKey) -> str:
    """A group in words."""
    if group.unexplained and by != "run":
        return "unexplained"
    if None in group.key:
        return f"no {by} named"
    return " ".join(part for part in group.key if part is not None)


def total(groups: Iterable[LossGroup]) -> LossGroup:
    """What all groups of one list cost together; `runs` is left to the reader, for one may be in several groups."""
    listed = list(groups)
    return LossGroup(
        key=(),
        unexplained=False,
        interruptions=sum(group.interruptions for group in listed),
        runs=0,
        lost_work_ms=sum(group.lost_work_ms for group in listed),
        restart_ms=sum(group.restart_ms for group in listed),
        lost_gpu_ms=sum(group.lost_gpu_ms for group in listed),
        without_gpus=sum(group.without_gpus for group in listed),
    )


def total_json(groups: Iterable[LossGroup]) -> dict[str, Any]:
    """The sum of a list: what all interruptions cost, however they are told apart."""
    summed = total(groups)
    return {
        "interruptions": summed.interruptions,
        "lost_s": summed.lost_ms / 1000,
        "lost_gpu_hours": summed.lost_gpu_ms / HOUR_MS if summed.interruptions > summed.without_gpus else None,
        "without_gpus": summed.without_gpus,
    }


def loss_json(loss: Loss) -> dict[str, Any]:
    """One interruption with all that it is put down to."""
    return {
        "time": format_time(loss.time),
        **{
            name: getattr(loss, name)
            for name in ("run", "cause", "code", "node", "device", "leaf", "driver", "incident")
        },
        "unexplained": loss.unexplained,
        "lost_s": (loss.lost_work_ms + loss.restart_ms) / 1000,
        "lost_gpu_hours": None if loss.lost_gpu_ms is None else loss.lost_gpu_ms / HOUR_MS,
    }


def days_of(ledger: Ledger) -> list[RunDay]:
    """The days of a ledger in order, a row for each bucket that holds time; none of a ledger without dates."""
    if not ledger.dated:
        return []
    wall = _by_day((segment, 1) for segment in ledger.segments)
    held = None if ledger.held is None else _by_day(ledger.held)
    # Attempts that overlap hold GPUs in buckets that the wall clock gives to one of them.
    return [
        RunDay(
            from_ms(day_ms),
            bucket,
            wall.get((day_ms, bucket), 0),
            None if held is None else held.get((day_ms, bucket), 0),
        )
        for day_ms, bucket in sorted({*wall, *(held or ())})
    ]


def _by_day(stretches: Iterable[tuple[Segment, int]]) -> dict[tuple[int, str], int]:
    """Milliseconds times width of each midnight's day and bucket."""
    found: dict[tuple[int, str], int] = {}
    for segment, width in stretches:
        begin = segment.start_ms
        while begin < segment.end_ms:
            midnight = (begin // DAY_MS + 1) * DAY_MS
            end = min(midnight, segment.end_ms)
            place = (midnight - DAY_MS, segment.bucket)
            found[place] = found.get(place, 0) + (end - begin) * width
            begin = end
    return found

"""What brings one node to where an order wants it: nothing, because it is there or may not be, or one update. Pure.

Planning again after the update must say `done`: so it is also what checks an update once the node was read anew.
A node bears one mark of ours at the most: a grave one replaces a soft one, and the other way round.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from schedulers.reconcile.actuator import Order, OrderReport
from schedulers.slurm.commands import SlurmSettings
from schedulers.slurm.node import (
    NodeOwnership,
    SlurmMark,
    SlurmNode,
    comment_with,
    comment_without,
    is_ident,
    ownership_of,
    reason_of,
)

# Slurm takes back a node by itself that was down for this alone (ReturnToService=1).
_SILENT = "Not responding"
# 22.05 clears a reason with its drain. 24.11 keeps it: ours would make another's drain without a reason look like ours.
_FREED = "taken off by foreshock"
_DOWN = "down while it was drained by foreshock, which took its drain off"
# A reservation's end is told in seconds.
_SAME_END = timedelta(seconds=2)


@dataclass(frozen=True, slots=True)
class NodeUpdate:
    """Words behind `scontrol update nodename=NODE`; none where only a reservation changes."""

    node: str
    words: tuple[str, ...] = ()
    unreserve: str | None = None  # the hint whose reservation goes
    reserve: str | None = None  # the hint that gets one
    is_extended: bool = False  # it has one, of another end
    until: datetime | None = None


@dataclass(frozen=True, slots=True)
class SlurmState:
    """What a plan goes by: `reserved` holds our reservations' ends by hint."""

    settings: SlurmSettings
    nodes: Mapping[str, SlurmNode]
    reserved: Mapping[str, datetime]


def plan(order: Order, before: SlurmState) -> OrderReport | NodeUpdate:
    """What is to be done for an order on its node as it was just read."""
    node = before.nodes.get(order.node)
    if node is None:
        return OrderReport(order.node, "absent", "Slurm knows no such node")
    if not is_ident(order.hint):
        return OrderReport(order.node, "refused", f"the hint's id {order.hint[:40]!r} cannot be written into a reason")
    found = ownership_of(node, before.settings)
    if order.action == "release":
        return _release(order, node, found, before)
    if found.foreign is not None:
        return OrderReport(order.node, "foreign", found.foreign)
    if found.is_opted_out and found.mark is None:
        return OrderReport(order.node, "refused", f"the node says {before.settings.opt_out}")
    if order.action in ("cordon", "drain"):
        return _hold(order, node, found, before)
    if order.action in ("watch", "avoid"):
        return _soften(order, node, found, before)
    return OrderReport(order.node, "refused", f"{order.action} is no action on a node")


def _release(order: Order, node: SlurmNode, found: NodeOwnership, before: SlurmState) -> OrderReport | NodeUpdate:
    hard = found.hard is not None and found.hard.hint == order.hint
    soft = found.soft is not None and found.soft.hint == order.hint and not node.is_doubtful
    unreserve = order.hint if order.hint in before.reserved else None
    if not hard and not soft and unreserve is None:
        return OrderReport(order.node, "done", f"nothing of hint {order.hint} is on it")
    if hard and _is_stuck(node):
        return OrderReport(
            order.node, "retry", "DOWN and FAIL: taking FAIL off would take DOWN off, too; once it is back"
        )
    words = (*(_undrained(node) if hard else ()), *(_plain(node, found) if soft else ()))
    return NodeUpdate(order.node, words, unreserve)


def _hold(order: Order, node: SlurmNode, found: NodeOwnership, before: SlurmState) -> OrderReport | NodeUpdate:
    """Drain or FAIL; running jobs go on in both."""
    unreserve = _old_reservation(found, before)
    wanted = SlurmMark(order.action, order.hint)
    if found.hard == wanted and found.soft is None and unreserve is None:
        return OrderReport(order.node, "done", node.state)
    reason = reason_of(order.reason, order.action, order.hint)
    words = (f"state={before.settings.hard}", f"reason={reason}")
    return NodeUpdate(order.node, (*words, *_plain(node, found)), unreserve)


def _soften(order: Order, node: SlurmNode, found: NodeOwnership, before: SlurmState) -> OrderReport | NodeUpdate:
    """A mark, and what keeps new work away without a drain."""
    soft = before.settings.soft
    if soft == "none":
        return OrderReport(order.node, "refused", f"soft: none is set: {order.action} is off in this Slurm")
    if found.hard is not None and _is_stuck(node):
        return OrderReport(
            order.node, "retry", "DOWN and FAIL: taking FAIL off would take DOWN off, too; once it is back"
        )
    wanted = _wanted_mark(order, node, found, before.settings)
    reserve = order.hint if order.action == "avoid" and soft == "reservation" else None
    end = before.reserved.get(order.hint)
    is_reserved = reserve is None or (end is not None and abs(end - order.valid_until) < _SAME_END)
    is_weighted = wanted.weight is None or node.weight == wanted.weight
    unreserve = _old_reservation(found, before, keep=reserve)
    if found.hard is None and found.soft == wanted and is_reserved and is_weighted and unreserve is None:
        return OrderReport(order.node, "done", node.state)
    words = (
        *(_undrained(node) if found.hard is not None else ()),
        *(_plain_weight(node, found) if wanted.weight is None else (f"weight={wanted.weight}",)),
        f"comment={comment_with(node.comment, wanted)}",
    )
    requested = None if is_reserved else reserve
    return NodeUpdate(order.node, words, unreserve, requested, is_extended=end is not None, until=order.valid_until)


def _wanted_mark(order: Order, node: SlurmNode, found: NodeOwnership, settings: SlurmSettings) -> SlurmMark:
    if order.action != "avoid" or settings.soft != "weight" or node.weight is None:
        return SlurmMark(order.action, order.hint)
    ours = found.soft if found.soft is not None and found.soft.was is not None else None
    was = ours.was if ours is not None and ours.was is not None else node.weight
    return SlurmMark(order.action, order.hint, max(was, settings.avoid_weight), was)


def _old_reservation(found: NodeOwnership, before: SlurmState, keep: str | None = None) -> str | None:
    """The hint of our mark, if it has a reservation that is not to stay."""
    mark = found.soft
    return mark.hint if mark is not None and mark.hint in before.reserved and mark.hint != keep else None


def _is_stuck(node: SlurmNode) -> bool:
    return "FAIL" in node.states and "DOWN" in node.states


def _undrained(node: SlurmNode) -> tuple[str, ...]:
    """UNDRAIN takes off the drain alone; RESUME would take off DOWN, too. FAIL goes by RESUME only."""
    if node.states & {"FAIL", "FAILING"}:
        return ("state=resume", f"reason={_FREED}")
    if "DOWN" not in node.states:
        return ("state=undrain", f"reason={_FREED}")
    # Slurm leaves the drain's reason on a node that is down, and would never take it back with one that is not its own.
    return ("state=undrain", f"reason={_SILENT if 'NOT_RESPONDING' in node.states else _DOWN}")


def _plain(node: SlurmNode, found: NodeOwnership) -> tuple[str, ...]:
    """The Comment and the weight as they were without our soft mark."""
    if found.soft is None:
        return ()
    return (*_plain_weight(node, found), f"comment={comment_without(node.comment)}")


def _plain_weight(node: SlurmNode, found: NodeOwnership) -> tuple[str, ...]:
    """The weight that we found, unless another has set it since."""
    mark = found.soft
    if mark is None or mark.was is None or mark.weight == mark.was or node.weight != mark.weight:
        return ()
    return (f"weight={mark.was}",)

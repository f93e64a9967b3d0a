"""Whose a node is: what of ours lies on it, who else keeps work off it, whether we may touch it. Pure."""

from collections.abc import Collection
from dataclasses import dataclass

from schedulers.actuator import Hold
from schedulers.slurm.marks import Mark, read_comment, read_reason
from schedulers.slurm.node import Node
from schedulers.slurm.settings import SlurmSettings

# Words of a node's state that keep work off it, by somebody's decision or Slurm's own. NOT_RESPONDING and UNKNOWN pass
# by themselves, POWERED_DOWN is saving, RESERVED and PLANNED are work.
_OUT = frozenset(
    {"DRAIN", "DRAINED", "DRAINING", "DOWN", "FAIL", "FAILING", "ERROR", "MAINT", "REBOOT_REQUESTED", "REBOOT_ISSUED"}
    | {"REBOOT", "INVALID_REG", "INVAL"}
)
_HELD = frozenset({"DRAIN", "DRAINED", "DRAINING", "FAIL", "FAILING"})
_BUSY = frozenset({"ALLOCATED", "MIXED", "COMPLETING", "DRAINING", "FAILING"})
_SAID = 200


@dataclass(frozen=True, slots=True)
class Standing:
    """`hard`: our drain or FAIL. `soft`: our mark in the Comment. `foreign`: who else, and why."""

    hard: Mark | None
    soft: Mark | None
    foreign: str | None
    is_opted_out: bool

    @property
    def mark(self) -> Mark | None:
        """The gravest thing of ours."""
        return self.hard or self.soft


def standing(node: Node, settings: SlurmSettings) -> Standing:
    """Read a node. A drain is ours if its reason is, from the first letter to the last; any other is not."""
    out = node.states & _OUT
    ours = read_reason(node.reason)
    hard = ours if node.states & _HELD else None
    foreign = None
    if node.is_doubtful:
        hard, foreign = None, "told twice, or with a comment that cannot be told from other fields: not touched"
    elif out and hard is None:
        by = f" [{node.user}]" if node.user else ""
        foreign = f"{'+'.join(sorted(out))}: {node.reason[:_SAID] or 'no reason'}{by}"
    return Standing(hard, read_comment(node.comment), foreign, _is_opted_out(node, settings.opt_out))


def hold_of(node: Node, settings: SlurmSettings, reserved: Collection[str]) -> Hold:
    """A node as the reconciler wants it told.

    Args:
        reserved: the hints that have a reservation; without it an `avoid` by reservation is a `watch`.
    """
    found = standing(node, settings)
    mark = found.mark
    action = None if mark is None else mark.action
    if mark is not None and mark.action == "avoid" and settings.soft == "reservation" and mark.hint not in reserved:
        action = "watch"
    return Hold(
        node=node.name,
        state=node.state,
        action=action,
        hint=None if mark is None else mark.hint,
        foreign=found.foreign,
        is_opted_out=found.is_opted_out,
        is_busy=bool(node.states & _BUSY),
    )


def _is_opted_out(node: Node, word: str) -> bool:
    return word in node.features or word in node.comment or word in node.extra

"""What a node's own health check makes of the server's hints of it: unwell or not, and which holds are over. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from schedulers.reconcile.actuator import Order
from store.records.hint import LIVE_STATES, OPEN_STATES, HintAction, evidence_of

# A hold whose hint ended longer ago is not looked for: each look is a call to the controller.
RECENT = timedelta(days=14)
_HARD: Mapping[str, HintAction] = {"cordon": "cordon", "drain": "drain"}


class HintsError(ValueError):
    """The server's answer is no list of hints."""


@dataclass(frozen=True, slots=True)
class NodeHints:
    """`open` is the hint that the node is to be held for; `over` are the ids of those that have ended of late."""

    open: Order | None
    over: frozenset[str]


def judge(items: object, node: str, now: datetime) -> NodeHints:
    """Sort the hints that `GET /api/v1/hints?node=` told.

    Raises:
        HintsError: one of them is none.
    """
    if not isinstance(items, list):
        raise HintsError("the server's answer has no items")
    hints = [_order(item, node) for item in items if _is_of(item, node)]
    live = [order for order, state in hints if state in LIVE_STATES and order.valid_until > now]
    gravest = min(live, key=lambda order: order.action != "drain", default=None)
    return NodeHints(gravest, frozenset(_over(hints, now)))


def _is_of(item: object, node: str) -> bool:
    """Cordons and drains of this node; what is written down for comparison alone is none."""
    if not isinstance(item, dict):
        raise HintsError("a hint of the server's is no object")
    found = item.get("evidence")
    is_control = isinstance(found, dict) and evidence_of(found).control
    return (
        _is_same(str(item.get("node")), node) and item.get("action") in _HARD and not item.get("job") and not is_control
    )


def _is_same(told: str, asked: str) -> bool:
    """Whether two names are a node's: the server tells of it by the one that its inventory has, whole or short."""
    told, asked = told.lower(), asked.lower()
    return told == asked or told == asked.partition(".")[0] or told.partition(".")[0] == asked


def _order(item: Mapping[str, Any], node: str) -> tuple[Order, str]:
    try:
        until = datetime.fromisoformat(item["valid_until"])
        order = Order(node, item["id"], _HARD[item["action"]], str(item["reason"]), until)
        return order, item["state"]
    except (KeyError, TypeError, ValueError) as error:
        raise HintsError(f"a hint of the server's cannot be read: {error!r}") from error


def _over(hints: Iterable[tuple[Order, str]], now: datetime) -> Iterable[str]:
    for order, state in hints:
        is_over = state not in OPEN_STATES or order.valid_until <= now
        if is_over and now - order.valid_until < RECENT:
            yield order.hint
